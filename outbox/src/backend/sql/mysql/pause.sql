-- Pauses a consumer, or lets it go on: ? paused, name.
update /*schema*/outbox_consumer set paused = ?
where id = (select consumer from /*schema*/outbox_consumer_name where name = ?);
