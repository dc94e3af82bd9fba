-- How far pruning has come, for whoever goes on with it. Due = nobody has begun for ?1 microseconds.
select holder, coalesce(started_at < cast(unixepoch('subsec') * 1000000 as integer) - ?1, 1) as due,
       message_front, message_again, mark_front, mark_again
from /*schema*/outbox_maintenance;
