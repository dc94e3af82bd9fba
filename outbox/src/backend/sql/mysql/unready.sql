-- Subscriptions of a consumer that have not been backfilled.
select event_type from /*schema*/outbox_subscription where consumer = ? and not ready order by event_type;
