-- The next parked messages of a lane, and whether they are of a type: ? type or *, type, consumer, lane, key hash and key hash and seq behind
-- which, how many.
select p.key_hash, p.seq,
       coalesce(? = '*' or (select m.event_type from /*schema*/outbox_message m where m.seq = p.seq) = ?, false) as meant
from (select key_hash, seq from /*schema*/outbox_parked force index (primary)
      where consumer = ? and lane = ? and key_hash >= ? and (key_hash > ? or seq > ?)
      order by key_hash, seq limit ?) p
order by p.key_hash, p.seq;
