-- The consumers from a number on, or the one of a name: ? number, name or null, and again.
select id, name from /*schema*/outbox_consumer where id >= ? and (? is null or name = ?) order by id;
