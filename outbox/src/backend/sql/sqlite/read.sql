-- What is next in the lane: ?4 parked messages that have been due for ?6 microseconds, each with what waits behind it, and the
-- first deliveries; ?3 rows of either, and no more than ?5 bytes. `blocked` = an earlier unfinished message of the key is
-- parked; `mark`: 0 = handled, -1 = claimed by somebody else, n = claimed n times, and nobody has it now.
select *
from (
    select p.seq, p.key_hash, p.state, p.attempts, p.total_attempts, p.conflicts, 1 as parked,
           exists (select 1 from /*schema*/outbox_parked r
                   where r.consumer = ?1 and r.lane = ?2 and r.key_hash = p.key_hash and r.seq < p.seq
                     and r.state <> 3) as blocked,
           (select case when i.claimed_by is null then 0
                        when i.claimed_until > cast(unixepoch('subsec') * 1000000 as integer)/*now*/ then -1
                        else i.attempts end
            from /*schema*/outbox_inbox i
            where i.consumer = ?1 and i.message_id = m.id) as mark,
           m.id, m.event_type, m.version, m.topic, m.source, m.aggregate_id, m.msg_key, m.payload, m.content_type,
           m.headers, m.created_at, m.payload_size,
           sum(m.payload_size) over (rows unbounded preceding) as bytes
    from (
        select key_hash, seq
        from /*schema*/outbox_parked
        where consumer = ?1 and lane = ?2 and due_at <= cast(unixepoch('subsec') * 1000000 as integer)/*now*/ - ?6
        order by due_at limit ?4
    ) due
    join /*schema*/outbox_parked p on p.consumer = ?1 and p.lane = ?2 and p.key_hash = due.key_hash
        and p.seq >= due.seq and p.state <> 3
    left join /*schema*/outbox_message m on m.seq = p.seq
    limit ?3
) parked
where coalesce(bytes - payload_size, 0) < ?5
union all
select *
from (
    select d.seq, d.key_hash, 0, 0, 0, 0, 0,
           exists (select 1 from /*schema*/outbox_parked r
                   where r.consumer = ?1 and r.lane = ?2 and r.key_hash = d.key_hash and r.seq < d.seq
                     and r.state <> 3),
           (select case when i.claimed_by is null then 0
                        when i.claimed_until > cast(unixepoch('subsec') * 1000000 as integer)/*now*/ then -1
                        else i.attempts end
            from /*schema*/outbox_inbox i
            where i.consumer = ?1 and i.message_id = m.id),
           m.id, m.event_type, m.version, m.topic, m.source, m.aggregate_id, m.msg_key, m.payload, m.content_type,
           m.headers, m.created_at, m.payload_size,
           sum(m.payload_size) over (rows unbounded preceding) as bytes
    from (
        select seq, key_hash
        from /*schema*/outbox_delivery
        where consumer = ?1 and lane = ?2
        order by seq limit ?3
    ) d
    left join /*schema*/outbox_message m on m.seq = d.seq
) delivered
where coalesce(bytes - payload_size, 0) < ?5;
