-- Keeps the latest attempts of a message: those above $3.
delete from /*schema*/outbox_attempt where consumer = $1 and seq = $2 and number <= $3;
