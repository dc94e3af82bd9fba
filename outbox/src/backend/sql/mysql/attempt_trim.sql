-- Keeps the latest attempts of a message: ? consumer, seq, the number above which they stay.
delete from /*schema*/outbox_attempt where consumer = ? and seq = ? and number <= ?;
