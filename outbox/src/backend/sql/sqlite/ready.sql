-- Marks a subscription as backfilled.
update /*schema*/outbox_subscription set ready = 1 where consumer = ?1 and event_type = ?2;
