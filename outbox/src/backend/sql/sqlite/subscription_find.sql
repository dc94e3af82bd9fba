-- Whether there is such a subscription: ?1 type, ?2 consumer.
select count(*) from /*schema*/outbox_subscription where event_type = ?1 and consumer = ?2;
