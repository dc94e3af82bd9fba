-- Removes attempts of a dropped consumer, which has no lanes any more: $1 consumer, $2 how many.
delete from /*schema*/outbox_attempt
where ctid = any(array(select ctid from /*schema*/outbox_attempt where consumer = $1 order by seq, number limit $2));
