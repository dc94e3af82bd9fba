-- Removes marks of a dropped consumer, which has no lanes any more: consumer, how many.
delete from /*schema*/outbox_inbox
where consumer = ?
order by message_id limit ?;
