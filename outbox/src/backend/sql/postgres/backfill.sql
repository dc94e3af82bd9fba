-- Gives the messages of a type that nobody has got to all its subscribers that are not ready; returns their number.
with taken as (
    delete from /*schema*/outbox_unrouted where event_type = $1 returning seq
), found as (
    select m.seq, m.slot, m.key_hash, m.deliver_at
    from taken t join /*schema*/outbox_message m on m.seq = t.seq
), subscriber as (
    select c.id, c.lanes
    from /*schema*/outbox_subscription s join /*schema*/outbox_consumer c on c.id = s.consumer
    where s.event_type = $1 and not s.ready
), delivery as (
    insert into /*schema*/outbox_delivery (consumer, lane, seq, key_hash)
    select s.id, f.slot % s.lanes, f.seq, f.key_hash
    from found f cross join subscriber s
    where f.deliver_at is null
    on conflict do nothing
), delayed as (
    insert into /*schema*/outbox_parked (consumer, lane, key_hash, seq, state, due_at)
    select s.id, f.slot % s.lanes, -f.seq, f.seq, 4, f.deliver_at
    from found f cross join subscriber s
    where f.deliver_at is not null
    on conflict do nothing
)
select count(*) from found;
