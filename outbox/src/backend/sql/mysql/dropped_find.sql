-- Consumers that were dropped under this name and have left something: ?.
select id, lanes from /*schema*/outbox_dropped where name = ? and not done order by id;
