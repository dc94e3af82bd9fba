-- Makes a dead message due at once, or lets it wait where an earlier one of its key is unfinished: $3 key hash, $4 seq.
-- Its last error and its history stay.
update /*schema*/outbox_parked
set state = case when earlier.waits then 1 else 0 end,
    due_at = case when not earlier.waits then clock_timestamp()/*now*/ end,
    attempts = 0,
    conflicts = 0,
    dead_at = null
from (select exists (select 1 from /*schema*/outbox_parked
                     where consumer = $1 and lane = $2 and key_hash = $3 and seq < $4 and state <> 3) as waits) earlier
where consumer = $1 and lane = $2 and key_hash = $3 and seq = $4 and state in (2, 3, 6);
