-- What stands behind a requeued message of the same key and is due or to become due waits for it again: ? consumer, lane,
-- key hash, seq.
update /*schema*/outbox_parked
set state = 1, due_at = null
where consumer = ? and lane = ? and key_hash = ? and seq > ? and state in (0, 4, 5, 7);
