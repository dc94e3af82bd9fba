-- Which of these consumers (a JSON array) there are.
select id from /*schema*/outbox_consumer where id in (select value from json_each(?1));
