-- A claimed message is handled: $3 by whom it was claimed. 0 where somebody else has it, or it is handled already.
update /*schema*/outbox_inbox
set processed_at = clock_timestamp(), claimed_by = null, claimed_until = null, attempts = null
where consumer = $1 and message_id = $2 and claimed_by = $3;
