-- Removes a dead message from its consumer for good: ? consumer, lane, key hash, seq.
delete from /*schema*/outbox_parked
where consumer = ? and lane = ? and key_hash = ? and seq = ? and state in (2, 3, 6);
