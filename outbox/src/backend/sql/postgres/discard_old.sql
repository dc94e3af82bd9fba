-- Removes a message that has been dead for $5 microseconds: $3 key hash, $4 seq.
delete from /*schema*/outbox_parked
where consumer = $1 and lane = $2 and key_hash = $3 and seq = $4 and state in (2, 3, 6)
  and dead_at < now()/*now*/ - $5::bigint * interval '1 microsecond';
