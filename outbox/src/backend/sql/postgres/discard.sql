-- Removes a dead message from its consumer for good: $3 key hash, $4 seq.
delete from /*schema*/outbox_parked
where consumer = $1 and lane = $2 and key_hash = $3 and seq = $4 and state in (2, 3, 6);
