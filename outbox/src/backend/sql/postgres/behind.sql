-- What stands behind a requeued message of the same key and is due or to become due waits for it again.
update /*schema*/outbox_parked
set state = 1, due_at = null
where consumer = $1 and lane = $2 and key_hash = $3 and seq > $4 and state in (0, 4, 5, 7);
