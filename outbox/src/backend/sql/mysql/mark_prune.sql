-- Removes inbox marks of a consumer that were found to be of no more use, and locked: ? consumer, ids.
delete from /*schema*/outbox_inbox where consumer = ? and message_id in (/*each*/?/*end*/);
