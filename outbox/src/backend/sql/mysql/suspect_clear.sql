-- A lane's first message after a death has been run alone.
delete from /*schema*/outbox_suspect where consumer = ? and lane = ?;
