-- The next parked messages of a lane, and whether they are of a type: ?1 consumer, ?2 lane, ?3 type or *, ?4 key hash and ?5 seq behind
-- which, ?6 how many.
select p.key_hash, p.seq,
       coalesce(?3 = '*' or (select m.event_type from /*schema*/outbox_message m where m.seq = p.seq) = ?3, 0) as meant
from (select key_hash, seq from /*schema*/outbox_parked
      where consumer = ?1 and lane = ?2 and (key_hash, seq) > (?4, ?5)
      order by key_hash, seq limit ?6) p
order by p.key_hash, p.seq;
