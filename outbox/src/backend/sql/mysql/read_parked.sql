-- What is next of the parked messages of a lane that we hold: those that are due, each with what waits behind it, all
-- parameters being numbers that are written here. What stands between the marks is repeated for each that is due: only a key
-- that is a number is looked up from its first row on, and not through the thousands behind it. So many rows in all, and bytes,
-- cut in the order in which they may run, so that no key has a hole. `blocked` = an earlier unfinished message of the key is
-- parked. Sizes are added up before the messages are read, since what a window is computed of is copied. The index is named:
-- among many parked messages the optimizer takes the one by due time to look for a key.
select p.seq, p.key_hash, p.state, p.attempts, p.total_attempts, p.conflicts, true as parked,
       coalesce((select r.seq from /*schema*/outbox_parked r force index (primary)
                 where r.consumer = p.consumer and r.lane = p.lane and r.key_hash = p.key_hash and r.state <> 3
                 order by r.seq limit 1) < p.seq, false) as blocked,
       (select case when i.claimed_by is null then 0 when i.claimed_until > utc_timestamp(6)/*now*/ then -1
                    else i.attempts end
        from /*schema*/outbox_inbox i
        where i.consumer = p.consumer and i.message_id = m.id) as mark,
       m.id, m.event_type, m.version, m.topic, m.source, m.aggregate_id, m.msg_key, m.payload, m.content_type,
       m.headers, m.created_at
from (
    select sized.*, sum(payload_size) over (order by place rows unbounded preceding) - payload_size as bytes_before
    from (
        select k.*, coalesce(s.payload_size, 0) as payload_size, row_number() over (order by k.head, k.seq) as place
        from (/*each union all*/(select consumer, lane, seq, key_hash, state, attempts, total_attempts, conflicts, /*number*/0 as head
               from /*schema*/outbox_parked force index (primary)
               where consumer = /*consumer*/0 and lane = /*lane*/0 and key_hash = /*key*/0 and seq >= /*seq*/0 and state <> 3
               order by seq limit /*rows*/0)/*end*/) k
        left join /*schema*/outbox_message s on s.seq = k.seq
        order by k.head, k.seq limit /*rows*/0
    ) sized
) p
left join /*schema*/outbox_message m on m.seq = p.seq
where p.bytes_before < /*bytes*/0
order by p.place;
