-- Gives a new subscription the messages of its type that it has not got: ?1 type,
-- ?2 consumer, ?3 the first number, ?4 the last, ?5 since when they were published.
insert into /*schema*/outbox_delivery (consumer, lane, seq, key_hash)
select c.id, m.slot % c.lanes, m.seq, m.key_hash
from /*schema*/outbox_consumer c cross join /*schema*/outbox_message m
where c.id = ?2 and m.seq >= ?3 and m.seq <= ?4 and m.event_type = ?1
  and (?5 is null or m.created_at >= ?5)
  and m.deliver_at is null
  and not exists (select 1 from /*schema*/outbox_delivery d
                  where d.consumer = c.id and d.lane = m.slot % c.lanes and d.seq = m.seq)
  and not exists (select 1 from /*schema*/outbox_parked p
                  where p.consumer = c.id and p.lane = m.slot % c.lanes
                    and p.key_hash in (m.key_hash, -m.seq) and p.seq = m.seq)
  and not exists (select 1 from /*schema*/outbox_inbox i where i.consumer = c.id and i.message_id = m.id);
