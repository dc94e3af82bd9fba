-- How far pruning has come, for whoever goes on with it; no row where somebody is at it. Due = nobody has begun for $1 microseconds.
select holder, coalesce(started_at < clock_timestamp() - $1::bigint * interval '1 microsecond', true) as due,
       message_front, message_again, mark_front, mark_again
from /*schema*/outbox_maintenance
for update skip locked;
