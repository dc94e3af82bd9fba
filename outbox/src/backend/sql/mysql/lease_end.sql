-- Gives a lane back: ? consumer, lane, by whom it is leased. 0 where somebody else has it.
update /*schema*/outbox_lane
set leased_by = null, leased_until = null
where consumer = ? and lane = ? and leased_by = ?;
