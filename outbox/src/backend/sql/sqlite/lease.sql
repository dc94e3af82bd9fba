-- Leases a lane that this transaction holds: ?3 to whom, ?4 for how many microseconds.
update /*schema*/outbox_lane
set leased_by = ?3, leased_until = cast(unixepoch('subsec') * 1000000 as integer)/*now*/ + ?4
where consumer = ?1 and lane = ?2;
