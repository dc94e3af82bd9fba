-- Locks one lane, waiting for whoever holds it; says who has leased it, and whether others keep away now.
select leased_by, coalesce(leased_until > clock_timestamp()/*now*/, false) as leased
from /*schema*/outbox_lane
where consumer = $1 and lane = $2
for update;
