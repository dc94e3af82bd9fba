-- Notes the consumer $1, which is about to go, so that its number is never used again and whoever comes after an interruption goes on.
insert into /*schema*/outbox_dropped (id, name, lanes)
select id, name, lanes from /*schema*/outbox_consumer where id = $1;
