-- Keeps a lane leased: ?3 by whom, ?4 for how many microseconds from now. 0 where somebody else has it.
update /*schema*/outbox_lane
set leased_until = cast(unixepoch('subsec') * 1000000 as integer)/*now*/ + ?4
where consumer = ?1 and lane = ?2 and leased_by = ?3;
