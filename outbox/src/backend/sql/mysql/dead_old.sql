-- The messages that have been dead for the longest, and for so many microseconds at least: ? these, at most so many.
select consumer, lane, key_hash, seq
from /*schema*/outbox_parked force index (outbox_parked_given_up)
where dead_at < utc_timestamp(6)/*now*/ - interval ? microsecond
order by dead_at
limit ?;
