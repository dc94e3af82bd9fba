-- Removes messages that were found to be of no more use, and locked.
delete from /*schema*/outbox_message where seq in (/*numbers*/0);
