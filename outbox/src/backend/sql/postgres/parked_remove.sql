-- Removes parked messages of a lane of a dropped consumer, under its lock: $1 consumer, $2 lane, $3 how many.
delete from /*schema*/outbox_parked
where ctid = any(array(select ctid from /*schema*/outbox_parked where consumer = $1 and lane = $2 order by key_hash, seq limit $3));
