-- These numbers are looked through: type, consumer, the first.
delete from /*schema*/outbox_backfill where event_type = ? and consumer = ? and first_seq = ?;
