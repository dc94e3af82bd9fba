-- Stores one message, to be delivered at ?13, or ?14 microseconds from now; a trigger writes its deliveries. Returns no row when the id is there.
insert into /*schema*/outbox_message (id, event_type, version, topic, source, aggregate_id, msg_key, slot, key_hash,
                                      payload, payload_size, content_type, headers, deliver_at)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, length(?10), ?11, ?12,
        coalesce(?13, cast(unixepoch('subsec') * 1000000 as integer)/*now*/ + ?14))
on conflict (id) do nothing
returning seq;
