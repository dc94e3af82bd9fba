-- The failures of a message at a consumer: ? consumer, seq.
delete from /*schema*/outbox_attempt where consumer = ? and seq = ?;
