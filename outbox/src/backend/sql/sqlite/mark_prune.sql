-- Removes the inbox marks from behind the time ?1 up to ?2 that are ?3 microseconds old: not those of messages that are still there,
-- since those may be delivered again (?4 = those too), nor those that somebody may have claimed for a call.
delete from /*schema*/outbox_inbox as i
where i.processed_at > ?1
  and i.processed_at <= min(?2, cast(unixepoch('subsec') * 1000000 as integer)/*now*/ - ?3)
  and (i.claimed_until is null or i.claimed_until < cast(unixepoch('subsec') * 1000000 as integer)/*now*/ - ?3)
  and (?4 or (select 1 from /*schema*/outbox_message m where m.id = i.message_id limit 1) is null);
