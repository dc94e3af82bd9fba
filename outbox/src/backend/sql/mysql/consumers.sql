-- The consumers from a number on, or the one that a name leads to: ? number, name or null, and again.
select id, name
from /*schema*/outbox_consumer
where id >= ? and (? is null or id = (select consumer from /*schema*/outbox_consumer_name where name = ?))
order by id;
