-- How far pruning has come, for whoever goes on with it; no row where somebody is at it. Due = nobody has begun for ? microseconds.
select holder, coalesce(started_at < utc_timestamp(6) - interval ? microsecond, true) as due,
       message_front, message_again, mark_front, mark_again
from /*schema*/outbox_maintenance
for update skip locked;
