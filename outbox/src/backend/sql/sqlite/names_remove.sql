-- No name leads to the consumer ?1 any more.
delete from /*schema*/outbox_consumer_name where consumer = ?1;
