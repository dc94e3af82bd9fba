-- All consumers, by their present names.
select id, name, paused from /*schema*/outbox_consumer order by name;
