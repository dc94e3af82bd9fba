-- Leases a lane that this transaction holds: ? to whom, for how many microseconds, consumer, lane.
update /*schema*/outbox_lane
set leased_by = ?, leased_until = utc_timestamp(6)/*now*/ + interval ? microsecond
where consumer = ? and lane = ?;
