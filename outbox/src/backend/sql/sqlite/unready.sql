-- Subscriptions of a consumer that have not been backfilled.
select event_type from /*schema*/outbox_subscription where consumer = ?1 and ready = 0 order by event_type;
