-- How far the holder has come: ? messages, those that had to stay, marks, those that had to stay, holder. 0 where it is another by now.
update /*schema*/outbox_maintenance set message_front = ?, message_again = ?, mark_front = ?, mark_again = ? where holder = ?;
