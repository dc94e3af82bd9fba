-- A claimed message is not in work any more: ?3 by whom it was claimed, null = by anybody whose claim has ended.
delete from /*schema*/outbox_inbox
where consumer = ?1 and message_id = ?2 and claimed_by is not null
  and (claimed_by = ?3 or ?3 is null and (claimed_until is null or claimed_until <= cast(unixepoch('subsec') * 1000000 as integer)/*now*/));
