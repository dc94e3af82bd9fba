-- Moves deliveries, $3 sequence numbers, behind the parked messages of their keys. The scan as in settle_deliveries.
with run as (
    select min(seq) as first, max(seq) as last from unnest($3::bigint[]) seq
), moved as (
    delete from /*schema*/outbox_delivery
    where consumer = $1 and lane = $2 and seq >= (select first from run) and seq <= (select last from run)
      and seq + 0 = any($3::bigint[])
    returning seq, key_hash
)
insert into /*schema*/outbox_parked (consumer, lane, key_hash, seq, state)
select $1, $2, key_hash, seq, 1
from moved
where key_hash is not null;
