-- These numbers are looked through: type, consumer, the first.
delete from /*schema*/outbox_backfill where event_type = ?1 and consumer = ?2 and first_seq = ?3;
