-- Removes the inbox marks from behind the time $1 up to $2, in microseconds since 1970, that are $3 microseconds old: not those of
-- messages that are still there, since those may be delivered again ($4 = those too), nor those that somebody may have claimed for
-- a call, or changes now.
with old as materialized (
    select i.ctid
    from /*schema*/outbox_inbox i
    where i.processed_at > timestamptz 'epoch' + $1::bigint * interval '1 microsecond'
      and i.processed_at <= least(timestamptz 'epoch' + $2::bigint * interval '1 microsecond',
                                  now()/*now*/ - $3::bigint * interval '1 microsecond')
      and (i.claimed_until is null or i.claimed_until < now()/*now*/ - $3::bigint * interval '1 microsecond')
      and ($4 or (select 1 from /*schema*/outbox_message m where m.id = i.message_id limit 1) is null)
    for update skip locked
)
delete from /*schema*/outbox_inbox where ctid = any (array (select ctid from old));
