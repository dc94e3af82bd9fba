-- Removes the consumer ?.
delete from /*schema*/outbox_consumer where id = ?;
