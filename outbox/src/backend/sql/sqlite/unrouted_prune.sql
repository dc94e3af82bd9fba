-- Removed messages of the type ?1 are not unrouted any more: ?2 numbers.
delete from /*schema*/outbox_unrouted where event_type = ?1 and seq in (select value from json_each(?2));
