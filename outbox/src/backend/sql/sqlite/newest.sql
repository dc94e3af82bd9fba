-- The highest number that is committed.
select coalesce((select seq from /*schema*/outbox_message order by seq desc limit 1), 0);
