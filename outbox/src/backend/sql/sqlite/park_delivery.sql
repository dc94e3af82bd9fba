-- Copies a delivery to the parked messages: ?4 state, ?5 attempts, ?6 attempts ever, ?7 conflicts, ?8 microseconds until
-- it is due, ?9 error, ?10 whether its key waits for it.
insert into /*schema*/outbox_parked (consumer, lane, key_hash, seq, state, attempts, total_attempts, conflicts, due_at,
                                     last_error, first_failed_at, dead_at)
select consumer, lane, coalesce(case when ?10 then key_hash end, -seq), seq, ?4, ?5, ?6, ?7,
       cast(unixepoch('subsec') * 1000000 as integer)/*now*/ + ?8,
       ?9, case when ?9 is not null then cast(unixepoch('subsec') * 1000000 as integer) end,
       iif(?4 in (2, 3, 6), cast(unixepoch('subsec') * 1000000 as integer)/*now*/, null)
from /*schema*/outbox_delivery
where consumer = ?1 and lane = ?2 and seq = ?3;
