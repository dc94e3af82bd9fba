-- Removes a subscription, under the registry's lock: ? type, consumer.
delete from /*schema*/outbox_subscription where event_type = ? and consumer = ?;
