-- Moves a delivery to the parked messages: $4 state, $5 attempts, $6 attempts ever, $7 conflicts, $8 microseconds until
-- it is due, $9 error, $10 whether its key waits for it.
with moved as (
    delete from /*schema*/outbox_delivery where consumer = $1 and lane = $2 and seq = $3 returning seq, key_hash
)
insert into /*schema*/outbox_parked (consumer, lane, key_hash, seq, state, attempts, total_attempts, conflicts, due_at,
                                     last_error, first_failed_at, dead_at)
select $1, $2, coalesce(case when $10 then key_hash end, -seq), seq, $4::smallint, $5, $6, $7,
       clock_timestamp()/*now*/ + $8::bigint * interval '1 microsecond',
       $9::text, case when $9::text is not null then clock_timestamp() end,
       case when $4::smallint in (2, 3, 6) then clock_timestamp()/*now*/ end
from moved;
