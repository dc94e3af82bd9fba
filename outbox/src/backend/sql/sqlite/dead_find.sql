-- Dead messages: ?1 consumer or null, ?2 event type or null, ?3 message id or null, ?4 part of the error or null,
-- after consumer ?5 and seq ?6, at most ?7.
select p.consumer, p.lane, p.key_hash, p.seq, p.state, p.attempts, p.last_error, c.name, m.id, m.event_type
from /*schema*/outbox_parked p
join /*schema*/outbox_consumer c on c.id = p.consumer
left join /*schema*/outbox_message m on m.seq = p.seq
where p.state in (2, 3, 6)
  and (p.consumer > ?5 or (p.consumer = ?5 and p.seq > ?6))
  and (?1 is null or c.id = (select n.consumer from /*schema*/outbox_consumer_name n where n.name = ?1))
  and (?2 is null or m.event_type = ?2)
  and (?3 is null or m.id = ?3)
  and (?4 is null or instr(p.last_error, ?4) > 0)
order by p.consumer, p.seq
limit ?7;
