-- Marks a message as handled by a consumer: ? consumer, id.
insert into /*schema*/outbox_inbox (consumer, message_id) values (?, ?);
