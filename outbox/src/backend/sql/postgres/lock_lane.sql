-- Locks one lane, waiting for whoever holds it; says who has leased it, whether others keep away now, and by what the transaction
-- is found at the server.
select leased_by, coalesce(leased_until > clock_timestamp()/*now*/, false) as leased,
       pg_backend_pid() as backend, (extract(epoch from now()) * 1000000)::bigint as began
from /*schema*/outbox_lane
where consumer = $1 and lane = $2
for update;
