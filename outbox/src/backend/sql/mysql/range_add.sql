-- Gives a new subscription numbers to look through: type, consumer, first, last, and since when what it may get was published.
insert into /*schema*/outbox_backfill (event_type, consumer, first_seq, last_seq, since) values (?, ?, ?, ?, ?);
