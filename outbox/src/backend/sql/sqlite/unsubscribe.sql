-- Removes a subscription: ?1 type, ?2 consumer.
delete from /*schema*/outbox_subscription where event_type = ?1 and consumer = ?2;
