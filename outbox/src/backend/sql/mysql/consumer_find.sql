-- The consumer of a name.
select id, lanes from /*schema*/outbox_consumer where name = ?;
