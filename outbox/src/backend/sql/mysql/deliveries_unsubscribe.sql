-- Deliveries of a type, or of all for *, among a run of a lane, to be removed one by one: ? consumer, lane, behind which, last, type,
-- type. Locks nothing: a scan that removes would wait for what publishers have not committed.
select d.seq
from /*schema*/outbox_delivery d force index (primary)
where d.consumer = ? and d.lane = ? and d.seq > ? and d.seq <= ?
  and (? = '*' or (select m.event_type from /*schema*/outbox_message m where m.seq = d.seq) = ?);
