-- Stores messages with their deliveries, all or none: what stands between the marks is repeated for each message with its
-- number in place of 0. Rows are numbered in their order here.
--
-- What nobody takes is looked for before what somebody takes: a subscription that is committed in between makes a message
-- both, which the backfill sorts out, and never neither. Reads of the subscriptions in INSERT … SELECT are of what is
-- committed now, under every isolation level.
--
-- The messages are found by their numbers, which InnoDB draws at once for a list of values. A read by the id would, at the
-- stricter levels, lock the gap before it too, and so all publishers of ids in between. Where they are not all found, a subquery
-- that may have one row has two, which is an error.
savepoint outbox_publish;
insert into /*schema*/outbox_message (id, event_type, version, topic, source, aggregate_id, msg_key, key_hash, slot,
                                      payload, payload_size, content_type, headers, deliver_at)
values /*each*/(@outbox_0_id, @outbox_0_type, @outbox_0_version, @outbox_0_topic, @outbox_0_source, @outbox_0_aggregate, @outbox_0_key, @outbox_0_hash, @outbox_0_slot, @outbox_0_payload, length(@outbox_0_payload), @outbox_0_content, @outbox_0_headers, coalesce(cast('1970-01-01 00:00:00' as datetime(6)) + interval @outbox_0_at microsecond, utc_timestamp(6)/*now*/ + interval @outbox_0_after microsecond))/*end*/;
set @outbox_first = last_insert_id();
insert into /*schema*/outbox_unrouted (event_type, seq)
select m.event_type, m.seq
from (/*each union all*/select @outbox_0_id as id, cast(@outbox_first + /*number*/0 * @@auto_increment_increment as signed) as seq/*end*/) i
straight_join /*schema*/outbox_message m force index (primary) on m.seq = i.seq and m.id = i.id
where not exists (select 1 from /*schema*/outbox_subscription s where s.event_type = m.event_type)
  and not exists (select 1 from /*schema*/outbox_subscription s where s.event_type = '*');
insert into /*schema*/outbox_delivery (consumer, lane, seq, key_hash)
select s.consumer, m.slot % c.lanes, m.seq, m.key_hash
from (/*each union all*/select @outbox_0_id as id, cast(@outbox_first + /*number*/0 * @@auto_increment_increment as signed) as seq/*end*/) i
straight_join /*schema*/outbox_message m force index (primary) on m.seq = i.seq and m.id = i.id
straight_join /*schema*/outbox_subscription s on s.event_type in (m.event_type, '*')
straight_join /*schema*/outbox_consumer c on c.id = s.consumer
where m.deliver_at is null;
insert into /*schema*/outbox_parked (consumer, lane, key_hash, seq, state, due_at)
select s.consumer, m.slot % c.lanes, -m.seq, m.seq, 4, m.deliver_at
from (/*each union all*/select @outbox_0_id as id, cast(@outbox_first + /*number*/0 * @@auto_increment_increment as signed) as seq/*end*/) i
straight_join /*schema*/outbox_message m force index (primary) on m.seq = i.seq and m.id = i.id
straight_join /*schema*/outbox_subscription s on s.event_type in (m.event_type, '*')
straight_join /*schema*/outbox_consumer c on c.id = s.consumer
where m.deliver_at is not null;
set @outbox_first = (
    select 1
    from (select 1 as n union all select 2) two
    where n = 1
       or (select count(*)
           from (/*each union all*/select @outbox_0_id as id, cast(@outbox_first + /*number*/0 * @@auto_increment_increment as signed) as seq/*end*/) i
           straight_join /*schema*/outbox_message m force index (primary) on m.seq = i.seq and m.id = i.id) <> /*count*/0);
release savepoint outbox_publish;
set /*each*/@outbox_0_payload = null/*end*/;
