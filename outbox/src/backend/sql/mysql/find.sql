-- One parked message: ? consumer, lane, key hash, seq. The columns of read.
select p.seq, p.key_hash, p.state, p.attempts, p.total_attempts, p.conflicts, true as parked, false as blocked,
       (select case when i.claimed_by is null then 0 when i.claimed_until > utc_timestamp(6)/*now*/ then -1
                    else i.attempts end
        from /*schema*/outbox_inbox i
        where i.consumer = p.consumer and i.message_id = m.id) as mark,
       m.id, m.event_type, m.version, m.topic, m.source, m.aggregate_id, m.msg_key, m.payload, m.content_type,
       m.headers, m.created_at
from /*schema*/outbox_parked p force index (primary)
left join /*schema*/outbox_message m on m.seq = p.seq
where p.consumer = ? and p.lane = ? and p.key_hash = ? and p.seq = ?;
