-- Locks the messages of these ids, but for those at whose id somebody publishes now: who publishes an id that is there holds its entry
-- in the index until the commit, and two who wait for each other's would be a deadlock that the publisher may lose.
select m.seq
from (/*each union all*/select cast(? as binary) as id/*end*/) gone
straight_join /*schema*/outbox_message m force index (outbox_message_id) on m.id = gone.id
for update skip locked;
