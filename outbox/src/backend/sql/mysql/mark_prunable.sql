-- Locks the inbox marks that are old enough: ? from behind which time, up to which, in microseconds since 1970, how many microseconds
-- old, and again. Not those of messages that are still there, since those may be delivered again (? = those too), nor those that
-- somebody may have claimed for a call, or changes now.
select i.consumer, i.message_id
from /*schema*/outbox_inbox i force index (outbox_inbox_old)
where i.processed_at > timestamp '1970-01-01 00:00:00' + interval ? microsecond
  and i.processed_at <= least(timestamp '1970-01-01 00:00:00' + interval ? microsecond,
                              utc_timestamp(6)/*now*/ - interval ? microsecond)
  and (i.claimed_until is null or i.claimed_until < utc_timestamp(6)/*now*/ - interval ? microsecond)
  and (? or (select 1 from /*schema*/outbox_message m where m.id = i.message_id limit 1) is null)
for update skip locked;
