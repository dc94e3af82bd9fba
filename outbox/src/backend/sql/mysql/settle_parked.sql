-- Removes a parked message: ? consumer, lane, key hash, seq, attempts as read.
delete from /*schema*/outbox_parked
where consumer = ? and lane = ? and key_hash = ? and seq = ? and attempts = ?;
