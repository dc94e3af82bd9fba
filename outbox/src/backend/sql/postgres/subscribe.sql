-- Adds a subscription and moves the registry's version with it.
with added as (
    insert into /*schema*/outbox_subscription (event_type, consumer) values ($1, $2)
    on conflict do nothing
    returning 1
)
update /*schema*/outbox_registry set version = version + 1 where exists (select 1 from added);
