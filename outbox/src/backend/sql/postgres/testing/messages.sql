-- Every stored message, delivered or not.
select id, event_type, version, topic, source, aggregate_id, msg_key, payload, content_type, headers, created_at
from /*schema*/outbox_message
order by seq;
