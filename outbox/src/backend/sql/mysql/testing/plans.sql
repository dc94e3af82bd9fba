-- What the test of the plans fills the tables with: $1 messages of history; as many in a lane, and in others parked. The order
-- slots are numbers to count by.
insert into /*schema*/outbox_consumer (id, name, first_name, lanes) values (1, 'first', 'first', 8), (2, 'second', 'second', 8), (3, 'third', 'third', 8);
insert into /*schema*/outbox_consumer_name (name, consumer) select name, id from /*schema*/outbox_consumer;
insert into /*schema*/outbox_subscription (event_type, consumer, ready)
select 'order.paid', id, true from /*schema*/outbox_consumer;
insert into /*schema*/outbox_lane (consumer, lane)
select c.id, n.slot from /*schema*/outbox_consumer c join /*schema*/outbox_order_slot n on n.slot < c.lanes;

insert into /*schema*/outbox_message (seq, id, event_type, version, topic, slot, payload, payload_size, content_type)
select seq, concat('message-', seq), 'order.paid', 1, 'order', 0, '{}', 2, 'application/json'
from (select slot + 1 as seq from /*schema*/outbox_order_slot where slot < $1
      union all select 1000008 + 8 * slot from /*schema*/outbox_order_slot where slot < $1) all_of_them;
update /*schema*/outbox_watermark set seq = (select max(seq) - 100 from /*schema*/outbox_message);
insert into /*schema*/outbox_subscription (event_type, consumer) values ('lost', 3);
insert into /*schema*/outbox_backfill (event_type, consumer, first_seq, last_seq)
select 'lost', 3, 10 * slot, 10 * slot + 5 from /*schema*/outbox_order_slot where slot < $1;
insert into /*schema*/outbox_inbox (consumer, message_id, processed_at)
select 1, concat('history-', slot), timestamp '1970-01-01 00:00:00' + interval slot second from /*schema*/outbox_order_slot where slot < $1;
insert into /*schema*/outbox_unrouted (event_type, seq)
select 'lost', slot + 1 from /*schema*/outbox_order_slot where slot < $1;

insert into /*schema*/outbox_delivery (consumer, lane, seq, key_hash)
select 1, 0, 1000008 + 8 * slot, slot % 5000 from /*schema*/outbox_order_slot where slot < $1;

insert into /*schema*/outbox_parked (consumer, lane, key_hash, seq, state, attempts, total_attempts, due_at)
select 1, 1, 1, slot + 1, if(slot = 0, 0, 1), if(slot = 0, 1, 0), 1, if(slot = 0, utc_timestamp(6), null)
from /*schema*/outbox_order_slot where slot < $1;
insert into /*schema*/outbox_parked (consumer, lane, key_hash, seq, state)
select 3, 0, 500000 + slot, 500000 + slot, 1 from /*schema*/outbox_order_slot where slot < $1;
insert into /*schema*/outbox_parked (consumer, lane, key_hash, seq, state)
select 1, 3, 3, slot + 1, 1 from /*schema*/outbox_order_slot where slot < $1;
insert into /*schema*/outbox_parked (consumer, lane, key_hash, seq, state, attempts, total_attempts, dead_at)
select 2, 2, (slot + 1) div 2, slot + 1, 2, 10, 10, timestamp '1970-01-01 00:00:00' + interval slot second from /*schema*/outbox_order_slot where slot < $1;
insert into /*schema*/outbox_parked (consumer, lane, key_hash, seq, state, attempts, total_attempts, due_at)
select 2, slot % 8, -100000 - slot, 100000 + slot, 0, 1, 1, utc_timestamp(6) + interval 1 hour
from /*schema*/outbox_order_slot where slot < $1;
insert into /*schema*/outbox_attempt (consumer, seq, number, error, worker, duration_us)
select 1, 1 + slot div 10, slot % 10, 'error', 'worker', 1 from /*schema*/outbox_order_slot where slot < $1;
