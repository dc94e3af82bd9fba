-- Marks a subscription as backfilled: ? consumer, type.
update /*schema*/outbox_subscription set ready = true where consumer = ? and event_type = ?;
