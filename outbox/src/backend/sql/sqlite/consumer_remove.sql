-- Removes the consumer ?1.
delete from /*schema*/outbox_consumer where id = ?1;
