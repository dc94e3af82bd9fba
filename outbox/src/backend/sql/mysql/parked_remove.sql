-- Removes parked messages of a lane of a dropped consumer, under its lock: consumer, lane, how many.
delete from /*schema*/outbox_parked
where consumer = ? and lane = ?
order by key_hash, seq limit ?;
