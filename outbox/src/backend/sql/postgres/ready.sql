-- Marks a subscription as backfilled.
update /*schema*/outbox_subscription set ready = true where consumer = $1 and event_type = $2;
