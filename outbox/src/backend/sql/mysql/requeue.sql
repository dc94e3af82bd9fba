-- Makes a dead message due at once, or lets it wait where an earlier one of its key is unfinished: ? consumer, lane, key
-- hash, seq, and all again. Its last error and its history stay. The table that is changed can be read only as a result
-- that is made before.
update /*schema*/outbox_parked p
join (select count(*) as waiting
      from (select 1 from /*schema*/outbox_parked r force index (primary)
            where r.consumer = ? and r.lane = ? and r.key_hash = ? and r.seq < ? and r.state <> 3
            limit 1) first) earlier
set p.state = case when earlier.waiting > 0 then 1 else 0 end,
    p.due_at = case when earlier.waiting = 0 then utc_timestamp(6)/*now*/ end,
    p.attempts = 0,
    p.conflicts = 0,
    p.dead_at = null
where p.consumer = ? and p.lane = ? and p.key_hash = ? and p.seq = ? and p.state in (2, 3, 6);
