-- Makes the consumer's lanes that are not there.
insert into /*schema*/outbox_lane (consumer, lane)
select c.id, lane.n
from /*schema*/outbox_consumer c cross join lateral generate_series(0, c.lanes - 1) lane(n)
where c.name = $1
on conflict do nothing;
