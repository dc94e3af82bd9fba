-- Makes a consumer with a number that none had before, under the registry's lock.
insert into /*schema*/outbox_consumer (id, name, first_name, lanes)
select coalesce(max(id), 0) + 1, $1, $1, $2
from (select id from /*schema*/outbox_consumer union all select id from /*schema*/outbox_dropped) used;
