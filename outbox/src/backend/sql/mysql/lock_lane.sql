-- Locks one lane, waiting for whoever holds it; says who has leased it, and whether others keep away now: ? consumer, lane.
select leased_by, coalesce(leased_until > utc_timestamp(6)/*now*/, false) as leased
from /*schema*/outbox_lane
where consumer = ? and lane = ?
for update;
