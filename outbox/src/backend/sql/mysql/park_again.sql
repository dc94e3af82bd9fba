-- Changes a parked message: ? state, attempts, attempts ever, conflicts, microseconds until it is due, error, error again,
-- state again, consumer, lane, key hash, seq, attempts as read.
update /*schema*/outbox_parked
set state = ?,
    attempts = ?,
    total_attempts = ?,
    conflicts = ?,
    due_at = utc_timestamp(6)/*now*/ + interval ? microsecond,
    last_error = coalesce(?, last_error),
    first_failed_at = coalesce(first_failed_at, case when ? is not null then utc_timestamp(6) end),
    dead_at = case when ? in (2, 3, 6) then utc_timestamp(6)/*now*/ end
where consumer = ? and lane = ? and key_hash = ? and seq = ? and attempts = ?;
