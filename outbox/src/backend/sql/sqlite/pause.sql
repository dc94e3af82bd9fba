-- Pauses a consumer, or lets it go on.
update /*schema*/outbox_consumer set paused = ?2 where name = ?1;
