-- Leases a lane that this transaction holds: $3 to whom, $4 for how many microseconds.
update /*schema*/outbox_lane
set leased_by = $3, leased_until = clock_timestamp()/*now*/ + $4::bigint * interval '1 microsecond'
where consumer = $1 and lane = $2;
