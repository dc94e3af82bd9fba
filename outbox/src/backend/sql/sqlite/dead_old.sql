-- The messages that have been dead for the longest, and for ?1 microseconds at least; at most ?2.
select consumer, lane, key_hash, seq
from /*schema*/outbox_parked
where dead_at < cast(unixepoch('subsec') * 1000000 as integer)/*now*/ - ?1
order by dead_at
limit ?2;
