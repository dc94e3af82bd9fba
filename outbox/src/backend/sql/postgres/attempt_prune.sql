-- Removes the recorded attempts of removed messages: $1 numbers.
delete from /*schema*/outbox_attempt
where consumer = any (array (select id from /*schema*/outbox_consumer)) and seq = any ($1::bigint[]);
