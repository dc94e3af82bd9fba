-- The first deliveries of a lane that we hold: ? consumer, lane, rows, bytes. Its own statement, after the claim, so that its
-- snapshot is later than the lock. The columns are those of read_parked; `blocked` = an earlier unfinished message of the key is
-- parked; `mark`: 0 = handled, -1 = claimed by somebody else, n = claimed n times, and nobody has it now.
select d.seq, d.key_hash, 0 as state, 0 as attempts, 0 as total_attempts, 0 as conflicts, false as parked,
       coalesce((select r.seq from /*schema*/outbox_parked r force index (primary)
                 where r.consumer = d.consumer and r.lane = d.lane and r.key_hash = d.key_hash and r.state <> 3
                 order by r.seq limit 1) < d.seq, false) as blocked,
       (select case when i.claimed_by is null then 0 when i.claimed_until > utc_timestamp(6)/*now*/ then -1
                    else i.attempts end
        from /*schema*/outbox_inbox i
        where i.consumer = d.consumer and i.message_id = m.id) as mark,
       m.id, m.event_type, m.version, m.topic, m.source, m.aggregate_id, m.msg_key, m.payload, m.content_type,
       m.headers, m.created_at
from (
    select first.consumer, first.lane, first.seq, first.key_hash,
           sum(coalesce(s.payload_size, 0)) over (order by first.seq rows unbounded preceding)
               - coalesce(s.payload_size, 0) as bytes_before
    from (
        select consumer, lane, seq, key_hash
        from /*schema*/outbox_delivery
        where consumer = ? and lane = ?
        order by seq limit ?
    ) first
    left join /*schema*/outbox_message s on s.seq = first.seq
) d
left join /*schema*/outbox_message m on m.seq = d.seq
where d.bytes_before < ?
order by d.seq;
