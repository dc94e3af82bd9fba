-- What is next in a lane that we hold: $4 parked messages that have been due for $6 microseconds, each with what waits
-- behind it, and the first deliveries; $3 rows of either, and no more than $5 bytes. Its own statement, after the claim, so that
-- its snapshot is later than the lock. `blocked` = an earlier unfinished message of the key is parked;
-- `mark`: 0 = handled, -1 = claimed by somebody else, n = claimed n times, and nobody has it now.
select *
from (
    select p.seq, p.key_hash, p.state, p.attempts, p.total_attempts, p.conflicts, true as parked,
           coalesce((select 1 from /*schema*/outbox_parked r
                     where r.consumer = $1 and r.lane = $2 and r.key_hash = p.key_hash and r.seq < p.seq
                       and r.state <> 3
                     limit 1) = 1, false) as blocked,
           (select case when i.claimed_by is null then 0 when i.claimed_until > now()/*now*/ then -1 else i.attempts end
            from /*schema*/outbox_inbox i
            where i.consumer = $1 and i.message_id = m.id limit 1) as mark,
           m.id, m.event_type, m.version, m.topic, m.source, m.aggregate_id, m.msg_key, m.payload, m.content_type,
           m.headers, m.created_at, m.payload_size,
           sum(m.payload_size) over (rows unbounded preceding) as bytes
    from (
        select key_hash, seq
        from /*schema*/outbox_parked
        where consumer = $1 and lane = $2 and due_at <= now()/*now*/ - $6::bigint * interval '1 microsecond'
        order by due_at limit $4
    ) due
    cross join lateral (
        select seq, key_hash, state, attempts, total_attempts, conflicts
        from /*schema*/outbox_parked
        where consumer = $1 and lane = $2 and key_hash = due.key_hash and seq >= due.seq and state <> 3
        order by seq limit $3
    ) p
    left join lateral (select * from /*schema*/outbox_message where seq = p.seq limit 1) m on true
    limit $3
) parked
where coalesce(bytes - payload_size, 0) < $5
union all
select *
from (
    select d.seq, d.key_hash, 0::smallint, 0, 0, 0, false,
           coalesce((select 1 from /*schema*/outbox_parked r
                     where r.consumer = $1 and r.lane = $2 and r.key_hash = d.key_hash and r.seq < d.seq
                       and r.state <> 3
                     limit 1) = 1, false),
           (select case when i.claimed_by is null then 0 when i.claimed_until > now()/*now*/ then -1 else i.attempts end
            from /*schema*/outbox_inbox i
            where i.consumer = $1 and i.message_id = m.id limit 1),
           m.id, m.event_type, m.version, m.topic, m.source, m.aggregate_id, m.msg_key, m.payload, m.content_type,
           m.headers, m.created_at, m.payload_size,
           sum(m.payload_size) over (rows unbounded preceding) as bytes
    from (
        select seq, key_hash
        from /*schema*/outbox_delivery
        where consumer = $1 and lane = $2
        order by seq limit $3
    ) d
    left join lateral (select * from /*schema*/outbox_message where seq = d.seq limit 1) m on true
) delivered
where coalesce(bytes - payload_size, 0) < $5;
