-- Consumers that were dropped under this name and have left something: $1.
select id, lanes from /*schema*/outbox_dropped where name = $1 and not done order by id;
