-- The first of what waits behind a key's finished head becomes due: ? consumer, lane, key hash, and all again. A skipped
-- dead one is no head. The table that is changed can be read only as a result that is made before, and found by it only
-- in a join.
update /*schema*/outbox_parked p
join (select r.seq from /*schema*/outbox_parked r force index (primary)
      where r.consumer = ? and r.lane = ? and r.key_hash = ? and r.state <> 3
      order by r.seq limit 1) head on head.seq = p.seq
set p.state = 0, p.due_at = utc_timestamp(6)/*now*/
where p.consumer = ? and p.lane = ? and p.key_hash = ? and p.state = 1;
