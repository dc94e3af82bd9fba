-- Removes a parked message, whatever its state, under its lane's lock: ?1 consumer, ?2 lane, ?3 key hash, ?4 seq.
delete from /*schema*/outbox_parked where consumer = ?1 and lane = ?2 and key_hash = ?3 and seq = ?4;
