-- Removes a parked message, whatever its state, under its lane's lock: ? consumer, lane, key hash, seq.
delete from /*schema*/outbox_parked where consumer = ? and lane = ? and key_hash = ? and seq = ?;
