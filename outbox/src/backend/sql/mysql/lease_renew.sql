-- Keeps a lane leased: ? for how many microseconds from now, consumer, lane, by whom. 0 where somebody else has it.
update /*schema*/outbox_lane
set leased_until = utc_timestamp(6)/*now*/ + interval ? microsecond
where consumer = ? and lane = ? and leased_by = ?;
