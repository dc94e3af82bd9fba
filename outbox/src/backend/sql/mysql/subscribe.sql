-- Adds a subscription, under the registry's lock: ? type, consumer, and both again.
insert into /*schema*/outbox_subscription (event_type, consumer)
select ?, ? from dual
where not exists (select 1 from /*schema*/outbox_subscription where event_type = ? and consumer = ?);
