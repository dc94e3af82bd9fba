-- Gives the delayed messages of a type that nobody has got to all its new subscribers that get such: ? type,
-- up to which number.
insert into /*schema*/outbox_parked (consumer, lane, key_hash, seq, state, due_at)
select c.id, m.slot % c.lanes, -m.seq, m.seq, 4, m.deliver_at
from /*schema*/outbox_unrouted u
straight_join /*schema*/outbox_message m on m.seq = u.seq
straight_join /*schema*/outbox_subscription s on s.event_type = u.event_type
straight_join /*schema*/outbox_consumer c on c.id = s.consumer
where u.event_type = ? and u.seq <= ? and not s.ready and s.unrouted and m.deliver_at is not null
  and not exists (select 1 from /*schema*/outbox_parked p force index (primary)
                  where p.consumer = c.id and p.lane = m.slot % c.lanes and p.key_hash = -m.seq and p.seq = m.seq)
  and not exists (select 1 from /*schema*/outbox_inbox i where i.consumer = c.id and i.message_id = m.id);
