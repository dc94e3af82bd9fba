-- Locks the messages of these ids, but for those at whose id somebody publishes now: who publishes an id that is there holds its entry
-- in the index until the commit, and two who wait for each other's would be a deadlock that the publisher may lose.
select seq from /*schema*/outbox_message force index (outbox_message_id) where id in (/*each*/?/*end*/) for update skip locked;
