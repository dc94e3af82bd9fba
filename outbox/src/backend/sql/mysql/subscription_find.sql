-- Whether there is such a subscription: ? type, consumer.
select count(*) from /*schema*/outbox_subscription where event_type = ? and consumer = ?;
