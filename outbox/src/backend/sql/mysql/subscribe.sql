-- Adds a subscription, under the registry's lock: ? type, consumer, whether it gets what nobody has got, and the first two again.
insert into /*schema*/outbox_subscription (event_type, consumer, unrouted)
select ?, ?, ? from dual
where not exists (select 1 from /*schema*/outbox_subscription where event_type = ? and consumer = ?);
