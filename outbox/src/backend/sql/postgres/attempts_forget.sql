-- The failures of a message at a consumer: $1 consumer, $2 seq.
delete from /*schema*/outbox_attempt where consumer = $1 and seq = $2;
