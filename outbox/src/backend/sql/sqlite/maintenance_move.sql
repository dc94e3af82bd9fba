-- How far the holder ?1 has come: ?2 messages, ?3 those that had to stay, ?4 marks, ?5 those that had to stay. 0 where it is
-- another by now.
update /*schema*/outbox_maintenance
set message_front = ?2, message_again = ?3, mark_front = ?4, mark_again = ?5
where holder = ?1;
