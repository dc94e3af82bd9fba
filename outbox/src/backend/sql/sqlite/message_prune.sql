-- Removes messages that were found to be of no more use: ?1 numbers.
delete from /*schema*/outbox_message where seq in (select value from json_each(?1));
