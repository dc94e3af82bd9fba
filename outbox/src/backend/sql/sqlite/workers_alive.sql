-- Processes that have said of late that they are alive, with each of their consumers: ?1 microseconds of silence that are too much.
select c.value as consumer, w.id, w.host, w.pid, w.version, w.pooled
from /*schema*/outbox_worker w cross join json_each(w.consumers) c
where w.heartbeat_at >= cast(unixepoch('subsec') * 1000000 as integer) - ?1
order by w.id;
