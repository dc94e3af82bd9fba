-- Keeps a lane leased: $3 by whom, $4 for how many microseconds from now. 0 where somebody else has it.
update /*schema*/outbox_lane
set leased_until = clock_timestamp()/*now*/ + $4::bigint * interval '1 microsecond'
where consumer = $1 and lane = $2 and leased_by = $3;
