-- publish_one for other clients, who look at no columns: what is refused there is an error here, of a text that cannot be a
-- boolean. One row where the message was stored, none where its id is there. It depends on what was read, or the planner would
-- meet the error first. $8 slot, $9 key's hash, $13 deliver at, in microseconds since 1970, $14 or after so many.
with slot as materialized (
    select slot from /*schema*/outbox_order_slot where slot = $8::int and $9::bigint is not null for update
), registry as materialized (
    select (select version from /*schema*/outbox_registry) as seen,
           (select last_value from /*schema*/outbox_registry_version) as announced
), message as (
    insert into /*schema*/outbox_message (id, event_type, version, topic, source, aggregate_id, msg_key, slot,
                                          key_hash, payload, payload_size, content_type, headers,
                                          deliver_at)
    select $1::text, $2::text, $3::int, $4::text, $5::text, $6::text, $7::text, $8::int, $9::bigint, $10::bytea,
           octet_length($10::bytea), $11::text, $12::text,
           coalesce(timestamptz 'epoch' + $13::bigint * interval '1 microsecond',
                    now()/*now*/ + $14::bigint * interval '1 microsecond')
    from registry
    where case
        when (select count(*) from slot) <> ($9::bigint is not null)::int or registry.seen is null
            then ('outbox: rows of the migration are missing, version ' || registry.announced)::boolean
        when registry.seen < registry.announced
            then ('outbox: the snapshot is older than a registration, run the transaction again, version '
                  || registry.announced)::boolean
        else true
    end
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
select 1 as stored from message;
