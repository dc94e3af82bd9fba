-- Who is subscribed to what.
select consumer, event_type from /*schema*/outbox_subscription order by event_type;
