-- The numbers before $4 are looked through: type, consumer, the old first.
update /*schema*/outbox_backfill set first_seq = $4 where event_type = $1 and consumer = $2 and first_seq = $3;
