-- Stores many messages with their deliveries, in the order of the arrays. $8 = slots of all, $9 = the distinct
-- slots to lock, $16 = the registry is locked. One call takes its locks sorted, so two calls never deadlock on each other.
with slot as materialized (
    select slot from /*schema*/outbox_order_slot where slot = any($9::int[]) order by slot for update
), registry as materialized (
    select (select version from /*schema*/outbox_registry) as seen,
           (select last_value from /*schema*/outbox_registry_version) as announced
), message as (
    insert into /*schema*/outbox_message (id, event_type, version, topic, source, aggregate_id, msg_key, slot,
                                          key_hash, payload, payload_size, content_type, headers,
                                          deliver_at)
    select u.id, u.event_type, u.version, u.topic, u.source, u.aggregate_id, u.msg_key, u.slot,
           u.key_hash, u.payload, octet_length(u.payload), u.content_type, u.headers,
           coalesce(u.deliver_at, now()/*now*/ + u.deliver_after * interval '1 microsecond')
    from registry cross join unnest(
        $1::text[], $2::text[], $3::int[], $4::text[], $5::text[], $6::text[], $7::text[], $8::int[],
        $10::bigint[], $11::bytea[], $12::text[], $13::text[],
        $14::timestamptz[], $15::bigint[]
    ) with ordinality u(id, event_type, version, topic, source, aggregate_id, msg_key, slot,
                        key_hash, payload, content_type, headers, deliver_at, deliver_after, position)
    where (select count(*) from slot) = cardinality($9::int[]) and (registry.seen >= registry.announced or $16)
    order by u.position
    on conflict (id) do nothing
    returning seq, id, event_type, slot, key_hash, deliver_at
), delivery as (
    insert into /*schema*/outbox_delivery (consumer, lane, seq, key_hash)
    select s.consumer, m.slot % c.lanes, m.seq, m.key_hash
    from message m
    join /*schema*/outbox_subscription s on s.event_type in (m.event_type, '*')
    join /*schema*/outbox_consumer c on c.id = s.consumer
    where m.deliver_at is null
), delayed as (
    insert into /*schema*/outbox_parked (consumer, lane, key_hash, seq, state, due_at)
    select s.consumer, m.slot % c.lanes, -m.seq, m.seq, 4, m.deliver_at
    from message m
    join /*schema*/outbox_subscription s on s.event_type in (m.event_type, '*')
    join /*schema*/outbox_consumer c on c.id = s.consumer
    where m.deliver_at is not null
), unrouted as (
    insert into /*schema*/outbox_unrouted (event_type, seq)
    select m.event_type, m.seq from message m
    where not exists (select 1 from /*schema*/outbox_subscription s where s.event_type in (m.event_type, '*'))
)
select (select count(*) from slot) = cardinality($9::int[]) as ordered,
       registry.seen >= registry.announced or $16 as fresh,
       coalesce((select array_agg(m.id) from message m), '{}') as stored
from registry;
