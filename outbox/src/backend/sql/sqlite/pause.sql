-- Pauses a consumer, or lets it go on.
update /*schema*/outbox_consumer set paused = ?2
where id = (select consumer from /*schema*/outbox_consumer_name where name = ?1);
