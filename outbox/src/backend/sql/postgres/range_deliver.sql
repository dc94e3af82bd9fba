-- Gives a new subscription the messages of its type that it has not got: $1 type, $2 consumer, $3 the first number, $4 the last,
-- $5 since when they were published. Returns their number.
with found as materialized (
    select c.id as consumer, m.slot % c.lanes as lane, m.seq, m.key_hash, m.deliver_at
    from /*schema*/outbox_message m cross join (select id, lanes from /*schema*/outbox_consumer where id = $2) c
    where m.seq >= $3 and m.seq <= $4 and m.event_type = $1
      and ($5::timestamptz is null or m.created_at >= $5)
      and not exists (select 1 from /*schema*/outbox_delivery d
                      where d.consumer = c.id and d.lane = m.slot % c.lanes and d.seq = m.seq)
      and not exists (select 1 from /*schema*/outbox_parked p
                      where p.consumer = c.id and p.lane = m.slot % c.lanes and p.key_hash in (m.key_hash, -m.seq)
                        and p.seq = m.seq)
      and not exists (select 1 from /*schema*/outbox_inbox i where i.consumer = c.id and i.message_id = m.id)
), delivery as (
    insert into /*schema*/outbox_delivery (consumer, lane, seq, key_hash)
    select consumer, lane, seq, key_hash from found where deliver_at is null
), delayed as (
    insert into /*schema*/outbox_parked (consumer, lane, key_hash, seq, state, due_at)
    select consumer, lane, -seq, seq, 4, deliver_at from found where deliver_at is not null
), routed as (
    delete from /*schema*/outbox_unrouted u using found f where u.event_type = $1 and u.seq = f.seq
)
select count(*) from found;
