-- A subscription that is gone has nothing left to look through: ? type, consumer.
delete from /*schema*/outbox_backfill where event_type = ? and consumer = ?;
