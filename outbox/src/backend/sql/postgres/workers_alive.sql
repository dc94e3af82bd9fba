-- Processes that have said of late that they are alive, with each of their consumers: $1 microseconds of silence that are too much.
select c.id as consumer, w.id, w.host, w.pid, w.version, w.pooled
from /*schema*/outbox_worker w cross join unnest(w.consumers) c(id)
where w.heartbeat_at >= now() - $1 * interval '1 microsecond'
order by w.id;
