-- Stores one message with its deliveries. Scalar parameters: PostgreSQL plans this once, and an array form at each
-- execution. $9 = take the order lock; $14 = deliver at, $15 = or after so many microseconds. A delayed message leaves
-- the order of its key and waits among the parked ones.
--
-- The slot is locked before the sequence number is drawn, and the count of locked rows is part of the condition:
-- with a slot missing nothing is stored. So it is with a snapshot from before a registration, unless $16 says that the
-- registry is locked and cannot be newer.
with slot as materialized (
    select slot from /*schema*/outbox_order_slot where slot = $8 and $9 for update
), registry as materialized (
    select (select version from /*schema*/outbox_registry) as seen,
           (select last_value from /*schema*/outbox_registry_version) as announced
), message as (
    insert into /*schema*/outbox_message (id, event_type, version, topic, source, aggregate_id, msg_key, slot,
                                          key_hash, payload, payload_size, content_type, headers,
                                          deliver_at)
    select $1, $2, $3, $4, $5, $6, $7, $8, $10, $11::bytea, octet_length($11::bytea), $12, $13,
           coalesce($14::timestamptz, now()/*now*/ + $15::bigint * interval '1 microsecond')
    from registry
    where (select count(*) from slot) = $9::int and (registry.seen >= registry.announced or $16)
    on conflict (id) do nothing
    returning seq, slot, key_hash, deliver_at
), delivery as (
    insert into /*schema*/outbox_delivery (consumer, lane, seq, key_hash)
    select s.consumer, m.slot % c.lanes, m.seq, m.key_hash
    from message m
    join /*schema*/outbox_subscription s on s.event_type in ($2, '*')
    join /*schema*/outbox_consumer c on c.id = s.consumer
    where m.deliver_at is null
), delayed as (
    insert into /*schema*/outbox_parked (consumer, lane, key_hash, seq, state, due_at)
    select s.consumer, m.slot % c.lanes, -m.seq, m.seq, 4, m.deliver_at
    from message m
    join /*schema*/outbox_subscription s on s.event_type in ($2, '*')
    join /*schema*/outbox_consumer c on c.id = s.consumer
    where m.deliver_at is not null
), unrouted as (
    insert into /*schema*/outbox_unrouted (event_type, seq)
    select $2, m.seq from message m
    where not exists (select 1 from /*schema*/outbox_subscription s where s.event_type in ($2, '*'))
)
select (select count(*) from slot) = $9::int as ordered,
       registry.seen >= registry.announced or $16 as fresh,
       exists (select 1 from message) as stored
from registry;
