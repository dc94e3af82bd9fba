-- The names of consumers that were dropped and have left something.
select distinct name from /*schema*/outbox_dropped where not done order by name;
