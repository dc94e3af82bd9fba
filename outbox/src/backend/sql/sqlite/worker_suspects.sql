-- The lanes of a dead worker's consumers are suspect.
insert into /*schema*/outbox_suspect (consumer, lane)
select l.consumer, l.lane
from /*schema*/outbox_worker w
cross join json_each(w.consumers) c
cross join /*schema*/outbox_lane l on l.consumer = c.value
where w.id = ?1
on conflict do nothing;
