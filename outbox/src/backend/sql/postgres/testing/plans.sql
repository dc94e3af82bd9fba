-- What the test of the plans fills the tables with: $1 messages of history; as many in a lane, and in others parked.
insert into /*schema*/outbox_consumer (id, name, first_name, lanes) values (1, 'first', 'first', 8), (2, 'second', 'second', 8), (3, 'third', 'third', 8);
insert into /*schema*/outbox_consumer_name (name, consumer) select name, id from /*schema*/outbox_consumer;
insert into /*schema*/outbox_subscription (event_type, consumer, ready)
select 'order.paid', id, true from /*schema*/outbox_consumer;
insert into /*schema*/outbox_lane (consumer, lane)
select c.id, lane from /*schema*/outbox_consumer c, generate_series(0, c.lanes - 1) lane;

insert into /*schema*/outbox_message (seq, id, event_type, version, topic, slot, payload, payload_size, content_type)
overriding system value
select seq, 'message-' || seq, 'order.paid', 1, 'order', 0, '{}', 2, 'application/json'
from (select generate_series(1, $1) union all select 1000000 + generate_series(1, 8 * $1)) all_of_them(seq);
select setval(pg_get_serial_sequence('/*schema*/outbox_message', 'seq'), 100000000);
update /*schema*/outbox_watermark set seq = (select max(seq) - 100 from /*schema*/outbox_message);
insert into /*schema*/outbox_subscription (event_type, consumer) values ('lost', 3);
insert into /*schema*/outbox_backfill (event_type, consumer, first_seq, last_seq)
select 'lost', 3, 10 * seq, 10 * seq + 5 from generate_series(1, $1) seq;
insert into /*schema*/outbox_inbox (consumer, message_id, processed_at)
select 1, 'history-' || seq, timestamptz 'epoch' + seq * interval '1 second' from generate_series(1, $1) seq;
insert into /*schema*/outbox_unrouted (event_type, seq) select 'lost', seq from generate_series(1, $1) seq;

insert into /*schema*/outbox_delivery (consumer, lane, seq, key_hash)
select 1, 0, 1000000 + 8 * seq, seq % 5000 from generate_series(1, $1) seq;

insert into /*schema*/outbox_parked (consumer, lane, key_hash, seq, state, attempts, total_attempts, due_at)
select 1, 1, 1, seq, case seq when 1 then 0 else 1 end, case seq when 1 then 1 else 0 end, 1, case seq when 1 then now() end
from generate_series(1, $1) seq;
insert into /*schema*/outbox_parked (consumer, lane, key_hash, seq, state, attempts, total_attempts)
select 1, 3, 3, seq, 1, 0, 0 from generate_series(1, $1) seq;
insert into /*schema*/outbox_parked (consumer, lane, key_hash, seq, state, attempts, total_attempts, dead_at)
select 2, 2, seq / 2, seq, 2, 10, 10, timestamptz 'epoch' + seq * interval '1 second' from generate_series(1, $1) seq;
insert into /*schema*/outbox_parked (consumer, lane, key_hash, seq, state, attempts, total_attempts, due_at)
select 2, seq % 8, -seq, seq, 0, 1, 1, now() + interval '1 hour' from generate_series($1 + 1, 2 * $1) seq;
insert into /*schema*/outbox_attempt (consumer, seq, number, error, worker, duration_us)
select 1, seq, number, 'error', 'worker', 1 from generate_series(1, $1 / 10) seq, generate_series(1, 10) number;
