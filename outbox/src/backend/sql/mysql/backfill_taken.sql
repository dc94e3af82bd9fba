-- What was backfilled is routed now: type, up to which number.
delete from /*schema*/outbox_unrouted where event_type = ? and seq <= ?;
