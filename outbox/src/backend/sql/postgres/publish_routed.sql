-- Stores one message that is to be delivered at once and that somebody subscribes to, with its deliveries; their number.
-- $9 = take the order lock. Where it is 0 nothing is stored, and publish_one knows why: this is its smaller form, for nearly
-- all there is, since each table of a statement costs its locks and its start whether or not it gets a row.
with slot as materialized (
    select slot from /*schema*/outbox_order_slot where slot = $8 and $9 for update
), message as (
    insert into /*schema*/outbox_message (id, event_type, version, topic, source, aggregate_id, msg_key, slot,
                                          key_hash, payload, payload_size, content_type, headers)
    select $1, $2, $3, $4, $5, $6, $7, $8, $10, $11::bytea, octet_length($11::bytea), $12, $13
    where (select count(*) from slot) = $9::int
      and (select version from /*schema*/outbox_registry) >= (select last_value from /*schema*/outbox_registry_version)
      and exists (select 1 from /*schema*/outbox_subscription where event_type in ($2, '*'))
    on conflict (id) do nothing
    returning seq, slot, key_hash
)
insert into /*schema*/outbox_delivery (consumer, lane, seq, key_hash)
select s.consumer, m.slot % c.lanes, m.seq, m.key_hash
from message m
join /*schema*/outbox_subscription s on s.event_type in ($2, '*')
join /*schema*/outbox_consumer c on c.id = s.consumer;
