-- Removes attempts of a dropped consumer, which has no lanes any more: consumer, how many.
delete from /*schema*/outbox_attempt
where consumer = ?
order by seq, number limit ?;
