-- What was backfilled is routed now.
delete from /*schema*/outbox_unrouted where event_type = ?;
