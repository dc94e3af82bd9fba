-- A claimed message is handled: ? consumer, id, by whom it was claimed. 0 where somebody else has it, or it is handled already.
update /*schema*/outbox_inbox
set processed_at = utc_timestamp(6), claimed_by = null, claimed_until = null, attempts = null
where consumer = ? and message_id = ? and claimed_by = ?;
