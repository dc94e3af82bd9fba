-- What is due of a lane's parked messages: ? consumer, lane, microseconds for which it has been due, how many.
select key_hash, seq
from /*schema*/outbox_parked force index (outbox_parked_due)
where consumer = ? and lane = ? and due_or_never <= utc_timestamp(6)/*now*/ - interval ? microsecond
order by due_or_never limit ?;
