-- What the test of the plans fills the tables with: $1 messages of history; as many in the lane, and in others parked.
insert into /*schema*/outbox_consumer (id, name, first_name, lanes)
values (1, 'first', 'first', 1), (2, 'second', 'second', 1), (3, 'waiting', 'waiting', 1), (4, 'dead', 'dead', 1), (5, 'due', 'due', 1);
insert into /*schema*/outbox_consumer_name (name, consumer) select name, id from /*schema*/outbox_consumer;
insert into /*schema*/outbox_lane (consumer, lane) select id, 0 from /*schema*/outbox_consumer;
insert into /*schema*/outbox_subscription (event_type, consumer, ready)
select 'order.paid', id, 1 from /*schema*/outbox_consumer;

create temp table numbers as
with recursive number(seq) as (select 1 union all select seq + 1 from number where seq < 2 * $1) select seq from number;
insert into /*schema*/outbox_message (seq, id, event_type, version, topic, slot, payload, payload_size, content_type)
select seq, 'message-' || seq, 'order.nobody', 1, 'order', 0, x'7b7d', 2, 'application/json' from numbers
union all
select 1000000 + seq, 'message-' || (1000000 + seq), 'order.nobody', 1, 'order', 0, x'7b7d', 2, 'application/json' from numbers;
insert into /*schema*/outbox_subscription (event_type, consumer) values ('lost', 3);
insert into /*schema*/outbox_unrouted (event_type, seq) select 'lost', seq from numbers;
insert into /*schema*/outbox_backfill (event_type, consumer, first_seq, last_seq) select 'lost', 3, 10 * seq, 10 * seq + 5 from numbers;
insert into /*schema*/outbox_inbox (consumer, message_id, processed_at) select 1, 'history-' || seq, 1000000 * seq from numbers;

insert into /*schema*/outbox_delivery (consumer, lane, seq, key_hash) select 1, 0, 1000000 + seq, seq % 5000 from numbers;

insert into /*schema*/outbox_parked (consumer, lane, key_hash, seq, state, attempts, total_attempts, due_at)
select 5, 0, 1, seq, iif(seq = 1, 0, 1), iif(seq = 1, 1, 0), 1, iif(seq = 1, 1, null) from numbers;
insert into /*schema*/outbox_parked (consumer, lane, key_hash, seq, state) select 3, 0, 3, seq, 1 from numbers;
insert into /*schema*/outbox_parked (consumer, lane, key_hash, seq, state, attempts, total_attempts, dead_at)
select 4, 0, seq / 2, seq, 2, 10, 10, 1000000 * seq from numbers;
insert into /*schema*/outbox_parked (consumer, lane, key_hash, seq, state, attempts, total_attempts, due_at)
select 2, 0, -seq, seq, 0, 1, 1, 9000000000000000 from numbers;
insert into /*schema*/outbox_attempt (consumer, seq, number, error, worker, duration_us)
select 1, seq / 10, seq % 10, 'error', 'worker', 1 from numbers;
