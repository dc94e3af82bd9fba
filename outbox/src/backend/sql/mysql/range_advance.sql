-- The numbers before ? are looked through: the new first, type, consumer, the old first.
update /*schema*/outbox_backfill set first_seq = ? where event_type = ? and consumer = ? and first_seq = ?;
