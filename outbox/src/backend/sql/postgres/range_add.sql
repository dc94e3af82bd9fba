-- Gives a new subscription numbers to look through: $1 type, $2 consumer, $3 the first of each range, $4 the last, $5 since when
-- what it may get was published.
insert into /*schema*/outbox_backfill (event_type, consumer, first_seq, last_seq, since)
select $1, $2, r.first_seq, r.last_seq, $5 from unnest($3::bigint[], $4::bigint[]) r(first_seq, last_seq);
