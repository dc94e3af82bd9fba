-- Changes a parked message: $5 attempts as read, $6 state, $7 attempts, $8 attempts ever, $9 conflicts, $10 microseconds
-- until it is due, $11 error.
update /*schema*/outbox_parked
set state = $6::smallint,
    attempts = $7,
    total_attempts = $8,
    conflicts = $9,
    due_at = clock_timestamp()/*now*/ + $10::bigint * interval '1 microsecond',
    last_error = coalesce($11::text, last_error),
    first_failed_at = coalesce(first_failed_at, case when $11::text is not null then clock_timestamp() end),
    dead_at = case when $6::smallint in (2, 3, 6) then clock_timestamp()/*now*/ end
where consumer = $1 and lane = $2 and key_hash = $3 and seq = $4 and attempts = $5;
