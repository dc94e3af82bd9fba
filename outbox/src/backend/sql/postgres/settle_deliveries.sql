-- Removes finished deliveries, $3 sequence numbers, and marks their messages: $4 ids, null for no marks.
--
-- They are a run of the lane, or nearly, and one scan from its first to its last is half the work of finding each. The sum keeps
-- the list out of the index conditions: with it there, a plan that was made for an empty table looked at the whole lane.
with run as (
    select min(seq) as first, max(seq) as last from unnest($3::bigint[]) seq
), done as (
    delete from /*schema*/outbox_delivery
    where consumer = $1 and lane = $2 and seq >= (select first from run) and seq <= (select last from run)
      and seq + 0 = any($3::bigint[])
    returning seq
), mark as (
    insert into /*schema*/outbox_inbox (consumer, message_id)
    select $1, id
    from unnest($4::text[]) id
    where (select count(*) from done) = cardinality($3::bigint[])
)
select count(*) from done;
