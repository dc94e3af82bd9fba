-- Marks messages as handled by a consumer, all parameters being numbers that are written here.
insert into /*schema*/outbox_inbox (consumer, message_id)
select /*consumer*/0, m.id from /*schema*/outbox_message m where m.seq in (/*numbers*/0);
