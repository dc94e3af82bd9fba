-- No name leads to the consumer ? any more.
delete from /*schema*/outbox_consumer_name where consumer = ?;
