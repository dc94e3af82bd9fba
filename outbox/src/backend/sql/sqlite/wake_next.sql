-- The first of what waits behind a key's finished head becomes due: ?3 key hash. A skipped dead one is no head.
update /*schema*/outbox_parked
set state = 0, due_at = cast(unixepoch('subsec') * 1000000 as integer)/*now*/
where consumer = ?1 and lane = ?2 and key_hash = ?3 and state = 1
  and seq = (select min(seq) from /*schema*/outbox_parked
             where consumer = ?1 and lane = ?2 and key_hash = ?3 and state <> 3);
