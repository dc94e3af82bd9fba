-- Gives the messages of the type $1 up to the number $2 that nobody has got to all its new subscribers that get such; returns
-- their number.
with taken as (
    delete from /*schema*/outbox_unrouted where event_type = $1 and seq <= $2 returning seq
), found as (
    select m.seq, m.slot, m.key_hash, m.deliver_at
    from taken t cross join lateral (
        select seq, slot, key_hash, deliver_at from /*schema*/outbox_message where seq = t.seq limit 1
    ) m
), subscriber as (
    select c.id, c.lanes
    from /*schema*/outbox_subscription s join /*schema*/outbox_consumer c on c.id = s.consumer
    where s.event_type = $1 and not s.ready and s.unrouted
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
