-- Removes the recorded attempts of removed messages: ?1 numbers.
delete from /*schema*/outbox_attempt
where consumer in (select id from /*schema*/outbox_consumer) and seq in (select value from json_each(?1));
