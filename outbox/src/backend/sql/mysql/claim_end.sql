-- A claimed message is not in work any more: ? consumer, id, and twice by whom it was claimed, null = by anybody whose claim has
-- ended.
delete from /*schema*/outbox_inbox
where consumer = ? and message_id = ? and claimed_by is not null
  and (claimed_by = ? or ? is null and (claimed_until is null or claimed_until <= utc_timestamp(6)/*now*/));
