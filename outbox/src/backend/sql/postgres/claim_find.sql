-- Whether a message is handled; no row where it was never claimed.
select claimed_by is null from /*schema*/outbox_inbox where consumer = $1 and message_id = $2;
