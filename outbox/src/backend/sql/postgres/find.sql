-- One parked message: $3 key hash, $4 seq. The columns of read.
select p.seq, p.key_hash, p.state, p.attempts, p.total_attempts, p.conflicts, true as parked,
       false as blocked,
       (select case when i.claimed_by is null then 0 when i.claimed_until > now()/*now*/ then -1 else i.attempts end
            from /*schema*/outbox_inbox i
            where i.consumer = $1 and i.message_id = m.id limit 1) as mark,
       m.id, m.event_type, m.version, m.topic, m.source, m.aggregate_id, m.msg_key, m.payload, m.content_type,
       m.headers, m.created_at
from (
    select seq, key_hash, state, attempts, total_attempts, conflicts
    from /*schema*/outbox_parked
    where consumer = $1 and lane = $2 and key_hash = $3 and seq = $4
) p
left join lateral (select * from /*schema*/outbox_message where seq = p.seq limit 1) m on true;
