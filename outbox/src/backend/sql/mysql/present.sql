-- Which of these consumers (numbers with commas between) there are.
select id from /*schema*/outbox_consumer where find_in_set(id, ?);
