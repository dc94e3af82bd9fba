-- publish_one for other clients: a statement that returns no rows is one for `execute` with all of them. It changes one row, or none
-- where the id is there. ?13 deliver at, in microseconds since 1970, ?14 or after so many.
insert into /*schema*/outbox_message (id, event_type, version, topic, source, aggregate_id, msg_key, slot, key_hash,
                                      payload, payload_size, content_type, headers, deliver_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, length(?10), ?11, ?12,
        coalesce(?13, cast(unixepoch('subsec') * 1000000 as integer)/*now*/ + ?14))
on conflict (id) do nothing;
