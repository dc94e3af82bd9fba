-- Copies a delivery to the parked messages: ? whether its key waits for it, state, attempts, attempts ever, conflicts,
-- microseconds until it is due, error, error again, state again, consumer, lane, seq.
insert into /*schema*/outbox_parked (consumer, lane, key_hash, seq, state, attempts, total_attempts, conflicts, due_at,
                                     last_error, first_failed_at, dead_at)
select consumer, lane, coalesce(case when ? then key_hash end, -seq), seq, ?, ?, ?, ?,
       utc_timestamp(6)/*now*/ + interval ? microsecond, ?, case when ? is not null then utc_timestamp(6) end,
       case when ? in (2, 3, 6) then utc_timestamp(6)/*now*/ end
from /*schema*/outbox_delivery
where consumer = ? and lane = ? and seq = ?;
