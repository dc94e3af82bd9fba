-- Removes attempts of a dropped consumer, which has no lanes any more: ?1 consumer, ?2 how many.
-- The whole key in the list, and no condition beside it, or the scan would be of all that meets it.
delete from /*schema*/outbox_attempt
where (consumer, seq, number) in (
    select consumer, seq, number from /*schema*/outbox_attempt where consumer = ?1 order by seq, number limit ?2);
