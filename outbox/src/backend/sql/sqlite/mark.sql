-- Marks messages as handled by a consumer: ?2 ids, a JSON array.
insert into /*schema*/outbox_inbox (consumer, message_id) select ?1, value from json_each(?2);
