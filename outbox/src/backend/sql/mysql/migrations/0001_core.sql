-- The way of a message: stored, delivered, parked when something is wrong with it, marked in the inbox.
-- MySQL commits after each of these statements, so each can be run again after an interruption. Texts of a message and names
-- are bytes: the text types pad with blanks, so that 'a' would equal 'a ', and change with the character set of a
-- connection. Engine and character sets are said, since the servers' defaults differ; times are UTC, whatever the
-- session's time zone.

-- Append-only. `seq` is drawn under the lock of the key's order slot, so for one key it is the commit order.
create table if not exists /*schema*/outbox_message (
    seq bigint not null auto_increment primary key,
    id varbinary(255) not null,
    event_type varbinary(255) not null,
    version int not null,
    topic varbinary(255) not null,
    source varbinary(255),
    aggregate_id varbinary(255),
    -- A topic, a separator and an aggregate's id.
    msg_key varbinary(511),
    key_hash bigint,
    slot int not null,
    payload longblob not null,
    payload_size int not null,
    content_type varbinary(255) not null,
    headers longblob,
    -- Not before; null = at once.
    deliver_at datetime(6),
    created_at datetime(6) not null default (utc_timestamp(6)),
    unique key outbox_message_id (id)
) engine = InnoDB;

create table if not exists /*schema*/outbox_consumer (
    id smallint not null primary key,
    name varbinary(255) not null,
    -- The name that it was made with: what is derived from a name and must outlive a new one is derived from this.
    first_name varbinary(255) not null,
    -- Never changes while deliveries exist: they were written for this many.
    lanes smallint not null,
    paused boolean not null default false,
    created_at datetime(6) not null default (utc_timestamp(6)),
    unique key outbox_consumer_name (name)
) engine = InnoDB;

-- Every name that a consumer has, had, or gave as an alias: whoever comes with one of them is that consumer.
create table if not exists /*schema*/outbox_consumer_name (
    name varbinary(255) not null primary key,
    consumer smallint not null,
    foreign key (consumer) references /*schema*/outbox_consumer (id)
) engine = InnoDB;

-- Consumers that were dropped, under this name: their numbers are never used again, and until it is `done` some of what they had is
-- there.
create table if not exists /*schema*/outbox_dropped (
    id smallint not null primary key,
    name varbinary(255) not null,
    lanes smallint not null,
    done boolean not null default false,
    dropped_at datetime(6) not null default (utc_timestamp(6))
) engine = InnoDB;

-- Which consumers get which types. `ready` once messages from before the subscription were looked at.
create table if not exists /*schema*/outbox_subscription (
    event_type varbinary(255) not null,
    consumer smallint not null,
    ready boolean not null default false,
    -- Whether it gets what nobody was subscribed to.
    unrouted boolean not null default true,
    primary key (event_type, consumer)
) engine = InnoDB;

-- Which numbers a subscription that is not ready has still to look through, for messages that were not delivered to it: of its
-- history, or of what was in flight when it was made.
create table if not exists /*schema*/outbox_backfill (
    event_type varbinary(255) not null,
    consumer smallint not null,
    first_seq bigint not null,
    last_seq bigint not null,
    -- Only what was published since; null = all.
    since datetime(6),
    primary key (event_type, consumer, first_seq)
) engine = InnoDB;

-- No message up to this number is in flight any more: what a new subscription may have missed is behind it. It may stand lower
-- than it could.
create table if not exists /*schema*/outbox_watermark (
    one smallint not null primary key,
    seq bigint not null
) engine = InnoDB;
insert into /*schema*/outbox_watermark (one, seq)
select 1, 0 from dual where not exists (select 1 from /*schema*/outbox_watermark);

-- Registrations run one after the other: who registers holds this row's lock.
create table if not exists /*schema*/outbox_registry (
    one smallint not null primary key,
    version bigint not null
) engine = InnoDB;
insert into /*schema*/outbox_registry (one, version)
select 1, 1 from dual where not exists (select 1 from /*schema*/outbox_registry);

-- Messages that no consumer was subscribed to when they were published.
create table if not exists /*schema*/outbox_unrouted (
    event_type varbinary(255) not null,
    seq bigint not null,
    primary key (event_type, seq)
) engine = InnoDB;

-- One row for each message and consumer until it is settled: inserted and deleted, never updated.
create table if not exists /*schema*/outbox_delivery (
    consumer smallint not null,
    lane smallint not null,
    seq bigint not null,
    key_hash bigint,
    primary key (consumer, lane, seq)
) engine = InnoDB;

-- Only what is not simply next has a row here. An unordered message has -seq as its key.
create table if not exists /*schema*/outbox_parked (
    consumer smallint not null,
    lane smallint not null,
    key_hash bigint not null,
    seq bigint not null,
    state smallint not null,
    -- Failures since the last requeue, and ever.
    attempts int not null default 0,
    total_attempts int not null default 0,
    -- Lost conflicts with other transactions, which are no failures.
    conflicts int not null default 0,
    due_at datetime(6),
    last_error text character set utf8mb4 collate utf8mb4_bin,
    first_failed_at datetime(6),
    -- Since when it is dead; null = it is not.
    dead_at datetime(6),
    -- Nulls come first in an index, and a search for the first that is due must not pass through them.
    due_or_never datetime(6) as (ifnull(due_at, timestamp '9999-12-31 00:00:00')) stored,
    primary key (consumer, lane, key_hash, seq),
    key outbox_parked_due (consumer, lane, due_or_never),
    key outbox_parked_dead (consumer, state, seq),
    key outbox_parked_given_up (dead_at)
) engine = InnoDB;

-- Every failed attempt of a message, the latest of them.
create table if not exists /*schema*/outbox_attempt (
    consumer smallint not null,
    seq bigint not null,
    number int not null,
    error text character set utf8mb4 collate utf8mb4_bin not null,
    worker varbinary(255) not null,
    duration_us bigint not null,
    failed_at datetime(6) not null default (utc_timestamp(6)),
    primary key (consumer, seq, number)
) engine = InnoDB;

-- Who is alive: for operators, and to notice a process that died in the middle of something.
create table if not exists /*schema*/outbox_worker (
    id varbinary(255) not null primary key,
    host varchar(1024) character set utf8mb4 collate utf8mb4_bin not null,
    pid bigint not null,
    version varchar(255) character set utf8mb4 collate utf8mb4_bin not null,
    -- Numbers of consumers with commas between.
    consumers text character set utf8mb4 collate utf8mb4_bin not null,
    -- Whether a pooler stands between it and the server.
    pooled boolean not null,
    started_at datetime(6) not null default (utc_timestamp(6)),
    heartbeat_at datetime(6) not null default (utc_timestamp(6))
) engine = InnoDB;

-- Lanes in which a process may have died.
create table if not exists /*schema*/outbox_suspect (
    consumer smallint not null,
    lane smallint not null,
    -- How many messages are still to run alone; 0 = first the next group, and only if a process dies of it each by itself.
    alone int not null default 0,
    primary key (consumer, lane)
) engine = InnoDB;

-- Whoever reads or changes a lane's deliveries holds its row's lock.
create table if not exists /*schema*/outbox_lane (
    consumer smallint not null,
    lane smallint not null,
    -- Whose the lane is while nobody holds the lock, and until when others keep away: for calls outside of transactions.
    leased_by varbinary(255),
    leased_until datetime(6),
    primary key (consumer, lane)
) engine = InnoDB;

-- Publishers of one key take turns on its slot's row. The rows are fixed: no growth, no upsert, no conflict.
-- Behind the 65536 slots stand 1024 gates: who publishes nothing ordered holds one of them, shared, so that a
-- registration can wait for every publisher by passing through all rows.
create table if not exists /*schema*/outbox_order_slot (
    slot int not null primary key
) engine = InnoDB;
insert into /*schema*/outbox_order_slot (slot)
select a.n * 4096 + b.n * 256 + c.n * 16 + d.n
from (select 0 as n union all select 1 union all select 2 union all select 3 union all select 4 union all select 5
      union all select 6 union all select 7 union all select 8 union all select 9 union all select 10
      union all select 11 union all select 12 union all select 13 union all select 14 union all select 15
      union all select 16) a
cross join (select 0 as n union all select 1 union all select 2 union all select 3 union all select 4
      union all select 5 union all select 6 union all select 7 union all select 8 union all select 9
      union all select 10 union all select 11 union all select 12 union all select 13 union all select 14
      union all select 15) b
cross join (select 0 as n union all select 1 union all select 2 union all select 3 union all select 4
      union all select 5 union all select 6 union all select 7 union all select 8 union all select 9
      union all select 10 union all select 11 union all select 12 union all select 13 union all select 14
      union all select 15) c
cross join (select 0 as n union all select 1 union all select 2 union all select 3 union all select 4
      union all select 5 union all select 6 union all select 7 union all select 8 union all select 9
      union all select 10 union all select 11 union all select 12 union all select 13 union all select 14
      union all select 15) d
where a.n * 4096 + b.n * 256 + c.n * 16 + d.n < 66560
  and not exists (select 1 from /*schema*/outbox_order_slot);

create table if not exists /*schema*/outbox_inbox (
    consumer smallint not null,
    message_id varbinary(255) not null,
    processed_at datetime(6) not null default (utc_timestamp(6)),
    -- Not handled yet, but claimed before a call: by whom, until when others keep away (null = as long as the message's lane
    -- is leased), and for the how manieth time. All null once it is handled.
    claimed_by varbinary(255),
    claimed_until datetime(6),
    attempts int,
    primary key (consumer, message_id),
    key outbox_inbox_old (processed_at)
) engine = InnoDB;

-- Who prunes, and how far it has come. A front is up to where all that was old enough has been looked at; what had to stay is looked
-- at again and again, a part at a time. Of messages the sequence, of inbox marks the time in microseconds since 1970.
create table if not exists /*schema*/outbox_maintenance (
    one smallint not null primary key,
    -- The process that began last, when, and how it ended.
    holder varbinary(255),
    started_at datetime(6),
    succeeded_at datetime(6),
    failed_at datetime(6),
    last_error text character set utf8mb4 collate utf8mb4_bin,
    message_front bigint not null default 0,
    message_again bigint not null default 0,
    mark_front bigint not null default 0,
    mark_again bigint not null default 0
) engine = InnoDB;
insert into /*schema*/outbox_maintenance (one)
select 1 from dual where not exists (select 1 from /*schema*/outbox_maintenance);

insert into /*schema*/outbox_migration (version)
select 1 from dual where not exists (select 1 from /*schema*/outbox_migration where version = 1);
