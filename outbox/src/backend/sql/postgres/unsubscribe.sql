-- Removes a subscription and moves the registry's version with it, under the registry's lock: $1 type, $2 consumer.
with removed as (
    delete from /*schema*/outbox_subscription where event_type = $1 and consumer = $2
    returning 1
)
update /*schema*/outbox_registry set version = version + 1 where exists (select 1 from removed);
