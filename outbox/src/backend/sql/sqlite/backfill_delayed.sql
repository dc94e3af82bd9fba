-- Gives the delayed messages of the type ?1 up to the number ?2 that nobody has got to all its new subscribers that get such.
insert into /*schema*/outbox_parked (consumer, lane, key_hash, seq, state, due_at)
select c.id, m.slot % c.lanes, -m.seq, m.seq, 4, m.deliver_at
from /*schema*/outbox_unrouted u
cross join /*schema*/outbox_message m on m.seq = u.seq
cross join /*schema*/outbox_subscription s on s.event_type = u.event_type
cross join /*schema*/outbox_consumer c on c.id = s.consumer
where u.event_type = ?1 and u.seq <= ?2 and s.ready = 0 and s.unrouted = 1 and m.deliver_at is not null
on conflict do nothing;
