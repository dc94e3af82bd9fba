-- Removes a consumer's recorded attempts of removed messages: ? consumer.
delete from /*schema*/outbox_attempt where consumer = ? and seq in (/*numbers*/0);
