-- The messages that have been dead for the longest, and for $1 microseconds at least; at most $2.
select consumer, lane, key_hash, seq
from /*schema*/outbox_parked
where dead_at < now()/*now*/ - $1::bigint * interval '1 microsecond'
order by dead_at
limit $2;
