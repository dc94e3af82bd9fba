-- Processes that have said of late that they are alive, with each of their consumers: ? microseconds of silence that are too much.
select c.id as consumer, w.id, w.host, w.pid, w.version, w.pooled
from /*schema*/outbox_worker w straight_join /*schema*/outbox_consumer c on find_in_set(c.id, w.consumers)
where w.heartbeat_at >= utc_timestamp(6) - interval ? microsecond
order by w.id;
