-- Removes a finished message from the parked ones and marks it: $6 id, null for no mark.
with done as (
    delete from /*schema*/outbox_parked
    where consumer = $1 and lane = $2 and key_hash = $3 and seq = $4 and attempts = $5
    returning consumer
), mark as (
    insert into /*schema*/outbox_inbox (consumer, message_id)
    select consumer, $6::text from done where $6::text is not null
)
select count(*) from done;
