-- Gives a new subscription the messages of its type that it has not got: ? consumer, the first
-- number, the last, type, since when they were published, and that again.
-- Its place among the parked ones is one of two: a list of both would read the lane for each message.
insert into /*schema*/outbox_delivery (consumer, lane, seq, key_hash)
select c.id, m.slot % c.lanes, m.seq, m.key_hash
from /*schema*/outbox_consumer c straight_join /*schema*/outbox_message m force index (primary)
where c.id = ? and m.seq >= ? and m.seq <= ? and m.event_type = ?
  and (? is null or m.created_at >= ?)
  and m.deliver_at is null
  and not exists (select 1 from /*schema*/outbox_delivery d
                  where d.consumer = c.id and d.lane = m.slot % c.lanes and d.seq = m.seq)
  and not exists (select 1 from /*schema*/outbox_parked p force index (primary)
                  where p.consumer = c.id and p.lane = m.slot % c.lanes and p.key_hash = m.key_hash and p.seq = m.seq)
  and not exists (select 1 from /*schema*/outbox_parked p force index (primary)
                  where p.consumer = c.id and p.lane = m.slot % c.lanes and p.key_hash = -m.seq and p.seq = m.seq)
  and not exists (select 1 from /*schema*/outbox_inbox i where i.consumer = c.id and i.message_id = m.id);
