-- Claims a message before its call: $3 for whom, $4 for how many microseconds, null = as long as its lane is leased; $5 the how
-- manieth attempt it is at least. Returns the attempt. Nothing where it is handled, or claimed by somebody who may be alive;
-- who has leased the lane knows that nobody else has.
insert into /*schema*/outbox_inbox as i (consumer, message_id, claimed_by, claimed_until, attempts)
values ($1, $2, $3, clock_timestamp()/*now*/ + $4::bigint * interval '1 microsecond', $5)
on conflict (consumer, message_id) do update
set claimed_by = excluded.claimed_by,
    claimed_until = excluded.claimed_until,
    attempts = greatest(excluded.attempts, i.attempts + 1)
where i.claimed_by is not null
  and (i.claimed_until <= clock_timestamp()/*now*/ or i.claimed_until is null and $4::bigint is null)
returning attempts;
