-- Gives a lane back: ?3 by whom it is leased. 0 where somebody else has it.
update /*schema*/outbox_lane
set leased_by = null, leased_until = null
where consumer = ?1 and lane = ?2 and leased_by = ?3;
