-- Adds a subscription and moves the registry's version with it: $1 type, $2 consumer, $3 whether it gets what nobody has got.
with added as (
    insert into /*schema*/outbox_subscription (event_type, consumer, unrouted) values ($1, $2, $3)
    on conflict do nothing
    returning 1
)
update /*schema*/outbox_registry set version = version + 1 where exists (select 1 from added);
