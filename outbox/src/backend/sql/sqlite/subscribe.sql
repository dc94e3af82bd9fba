-- Adds a subscription: ?1 type, ?2 consumer, ?3 whether it gets what nobody has got.
insert into /*schema*/outbox_subscription (event_type, consumer, unrouted) values (?1, ?2, ?3) on conflict do nothing;
