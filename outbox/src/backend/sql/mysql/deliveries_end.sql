-- The last of the first deliveries of a lane behind one: ? consumer, lane, behind which, how many.
select max(seq)
from (select seq from /*schema*/outbox_delivery where consumer = ? and lane = ? and seq > ? order by seq limit ?) first;
