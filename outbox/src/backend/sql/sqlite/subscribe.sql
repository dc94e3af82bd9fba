-- Adds a subscription.
insert into /*schema*/outbox_subscription (event_type, consumer) values (?1, ?2) on conflict do nothing;
