-- Gives the messages of a type that nobody has got to all its new subscribers that get such: ? type,
-- up to which number. Not what they have
-- already: a message whose publish met the registration half-way is delivered and unrouted.
-- Its place among the parked ones is one of two: a list of both would read the lane for each message.
insert into /*schema*/outbox_delivery (consumer, lane, seq, key_hash)
select c.id, m.slot % c.lanes, m.seq, m.key_hash
from /*schema*/outbox_unrouted u
straight_join /*schema*/outbox_message m on m.seq = u.seq
straight_join /*schema*/outbox_subscription s on s.event_type = u.event_type
straight_join /*schema*/outbox_consumer c on c.id = s.consumer
where u.event_type = ? and u.seq <= ? and not s.ready and s.unrouted and m.deliver_at is null
  and not exists (select 1 from /*schema*/outbox_delivery d
                  where d.consumer = c.id and d.lane = m.slot % c.lanes and d.seq = m.seq)
  and not exists (select 1 from /*schema*/outbox_parked p force index (primary)
                  where p.consumer = c.id and p.lane = m.slot % c.lanes and p.key_hash = m.key_hash and p.seq = m.seq)
  and not exists (select 1 from /*schema*/outbox_parked p force index (primary)
                  where p.consumer = c.id and p.lane = m.slot % c.lanes and p.key_hash = -m.seq and p.seq = m.seq)
  and not exists (select 1 from /*schema*/outbox_inbox i where i.consumer = c.id and i.message_id = m.id);
