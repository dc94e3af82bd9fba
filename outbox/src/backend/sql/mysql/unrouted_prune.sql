-- Removed messages of a type are not unrouted any more: ? type.
delete from /*schema*/outbox_unrouted where event_type = ? and seq in (/*numbers*/0);
