-- Makes a consumer with a number that none had before, under the registry's lock: ? name, name, lanes.
insert into /*schema*/outbox_consumer (id, name, first_name, lanes)
select coalesce(max(id), 0) + 1, ?, ?, ?
from (select id from /*schema*/outbox_consumer union all select id from /*schema*/outbox_dropped) used;
