-- A subscription that is gone has nothing left to look through: ?1 type, ?2 consumer.
delete from /*schema*/outbox_backfill where event_type = ?1 and consumer = ?2;
