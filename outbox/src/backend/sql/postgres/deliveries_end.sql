-- The last of the first $4 deliveries of a lane behind $3: $1 consumer, $2 lane.
select max(seq)
from (select seq from /*schema*/outbox_delivery where consumer = $1 and lane = $2 and seq > $3 order by seq limit $4) first;
