-- Changes a parked message: ?5 attempts as read, ?6 state, ?7 attempts, ?8 attempts ever, ?9 conflicts, ?10 microseconds
-- until it is due, ?11 error.
update /*schema*/outbox_parked
set state = ?6,
    attempts = ?7,
    total_attempts = ?8,
    conflicts = ?9,
    due_at = cast(unixepoch('subsec') * 1000000 as integer)/*now*/ + ?10,
    last_error = coalesce(?11, last_error),
    first_failed_at = coalesce(first_failed_at, case when ?11 is not null then cast(unixepoch('subsec') * 1000000 as integer) end),
    dead_at = iif(?6 in (2, 3, 6), cast(unixepoch('subsec') * 1000000 as integer)/*now*/, null)
where consumer = ?1 and lane = ?2 and key_hash = ?3 and seq = ?4 and attempts = ?5;
