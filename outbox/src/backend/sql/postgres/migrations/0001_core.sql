-- The way of a message: stored, delivered, parked when something is wrong with it, marked in the inbox.

-- Append-only. `seq` is drawn under the lock of the key's order slot, so for one key it is the commit order.
create table /*schema*/outbox_message (
    seq bigint generated always as identity primary key,
    id text collate "C" not null unique,
    event_type text collate "C" not null,
    version int not null,
    topic text collate "C" not null,
    source text collate "C",
    aggregate_id text collate "C",
    msg_key text collate "C",
    key_hash bigint,
    slot int not null,
    payload bytea not null,
    payload_size int not null,
    content_type text collate "C" not null,
    headers text collate "C",
    -- Not before; null = at once.
    deliver_at timestamptz,
    created_at timestamptz not null default now()
);

create table /*schema*/outbox_consumer (
    id smallint primary key,
    name text collate "C" not null unique,
    -- The name that it was made with: what is derived from a name and must outlive a new one is derived from this.
    first_name text collate "C" not null,
    -- Never changes while deliveries exist: they were written for this many.
    lanes smallint not null,
    paused boolean not null default false,
    created_at timestamptz not null default now()
);

-- Every name that a consumer has, had, or gave as an alias: whoever comes with one of them is that consumer.
create table /*schema*/outbox_consumer_name (
    name text collate "C" primary key,
    consumer smallint not null references /*schema*/outbox_consumer (id)
);

-- Consumers that were dropped, under this name: their numbers are never used again, and until it is `done` some of what they had is
-- there.
create table /*schema*/outbox_dropped (
    id smallint primary key,
    name text collate "C" not null,
    lanes smallint not null,
    done boolean not null default false,
    dropped_at timestamptz not null default now()
);

-- Which consumers get which types. `ready` once messages from before the subscription were looked at.
create table /*schema*/outbox_subscription (
    event_type text collate "C" not null,
    consumer smallint not null,
    ready boolean not null default false,
    -- Whether it gets what nobody was subscribed to.
    unrouted boolean not null default true,
    primary key (event_type, consumer)
);

-- Which numbers a subscription that is not ready has still to look through, for messages that were not delivered to it: of its
-- history, or of what was in flight when it was made.
create table /*schema*/outbox_backfill (
    event_type text collate "C" not null,
    consumer smallint not null,
    first_seq bigint not null,
    last_seq bigint not null,
    -- Only what was published since; null = all.
    since timestamptz,
    primary key (event_type, consumer, first_seq)
);

-- No message up to this number is in flight any more: what a new subscription may have missed is behind it. It may stand lower
-- than it could.
create table /*schema*/outbox_watermark (
    one smallint primary key default 1 check (one = 1),
    seq bigint not null
);
insert into /*schema*/outbox_watermark (seq) values (0);

-- The version of the subscriptions, twice: the row belongs to a transaction's snapshot, the sequence does not.
-- A publisher whose row is older than the sequence has a snapshot from before a registration.
create table /*schema*/outbox_registry (
    one smallint primary key default 1 check (one = 1),
    version bigint not null
);
insert into /*schema*/outbox_registry (version) values (1);
create sequence /*schema*/outbox_registry_version;
select setval('/*schema*/outbox_registry_version', 1);

-- Messages that no consumer was subscribed to when they were published.
create table /*schema*/outbox_unrouted (
    event_type text collate "C" not null,
    seq bigint not null,
    primary key (event_type, seq)
);

-- One row for each message and consumer until it is settled: inserted and deleted, never updated.
-- Without vacuum_truncate the heap would shrink to nothing when the lanes run dry, which needs an exclusive lock
-- and leaves the planner with an estimate of zero pages.
create table /*schema*/outbox_delivery (
    consumer smallint not null,
    lane smallint not null,
    seq bigint not null,
    key_hash bigint,
    primary key (consumer, lane, seq)
) with (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000, vacuum_truncate = off);

-- Only what is not simply next has a row here. An unordered message has -seq as its key.
create table /*schema*/outbox_parked (
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
    due_at timestamptz,
    last_error text,
    first_failed_at timestamptz,
    -- Since when it is dead; null = it is not.
    dead_at timestamptz,
    primary key (consumer, lane, key_hash, seq)
);
create index /*prefix*/outbox_parked_due on /*schema*/outbox_parked (consumer, lane, due_at) where due_at is not null;
create index /*prefix*/outbox_parked_dead on /*schema*/outbox_parked (consumer, seq) where state in (2, 3, 6);
create index /*prefix*/outbox_parked_given_up on /*schema*/outbox_parked (dead_at) where dead_at is not null;

-- Every failed attempt of a message, the latest of them.
create table /*schema*/outbox_attempt (
    consumer smallint not null,
    seq bigint not null,
    number int not null,
    error text not null,
    worker text collate "C" not null,
    duration_us bigint not null,
    failed_at timestamptz not null default clock_timestamp(),
    primary key (consumer, seq, number)
);

-- Who is alive: for operators, and to notice a process that died in the middle of something.
create table /*schema*/outbox_worker (
    id text collate "C" primary key,
    host text collate "C" not null,
    pid bigint not null,
    version text collate "C" not null,
    consumers smallint[] not null,
    -- Whether a pooler stands between it and the server.
    pooled boolean not null,
    started_at timestamptz not null default now(),
    heartbeat_at timestamptz not null default now()
);

-- Lanes in which a process may have died.
create table /*schema*/outbox_suspect (
    consumer smallint not null,
    lane smallint not null,
    -- How many messages are still to run alone; 0 = first the next group, and only if a process dies of it each by itself.
    alone int not null default 0,
    primary key (consumer, lane)
);

-- Whoever reads or changes a lane's deliveries holds its row's lock.
create table /*schema*/outbox_lane (
    consumer smallint not null,
    lane smallint not null,
    -- Whose the lane is while nobody holds the lock, and until when others keep away: for calls outside of transactions.
    leased_by text collate "C",
    leased_until timestamptz,
    primary key (consumer, lane)
) with (fillfactor = 10);

-- Publishers of one key take turns on its slot's row. The rows are fixed: no growth, no upsert, no conflict.
create table /*schema*/outbox_order_slot (slot int primary key);
insert into /*schema*/outbox_order_slot (slot) select generate_series(0, 65535);

create table /*schema*/outbox_inbox (
    consumer smallint not null,
    message_id text collate "C" not null,
    processed_at timestamptz not null default now(),
    -- Not handled yet, but claimed before a call: by whom, until when others keep away (null = as long as the message's lane
    -- is leased), and for the how manieth time. All null once it is handled.
    claimed_by text collate "C",
    claimed_until timestamptz,
    attempts int,
    primary key (consumer, message_id)
);
create index /*prefix*/outbox_inbox_old on /*schema*/outbox_inbox (processed_at);

-- Who prunes, and how far it has come. A front is up to where all that was old enough has been looked at; what had to stay is looked
-- at again and again, a part at a time. Of messages the sequence, of inbox marks the time in microseconds since 1970.
create table /*schema*/outbox_maintenance (
    one smallint primary key default 1 check (one = 1),
    -- The process that began last, when, and how it ended.
    holder text collate "C",
    started_at timestamptz,
    succeeded_at timestamptz,
    failed_at timestamptz,
    last_error text,
    message_front bigint not null default 0,
    message_again bigint not null default 0,
    mark_front bigint not null default 0,
    mark_again bigint not null default 0
);
insert into /*schema*/outbox_maintenance (one) values (1);

-- A row in the guard refers to nothing, and that is checked at commit: a handler that commits our transaction
-- meets the foreign key.
create unlogged table /*schema*/outbox_nothing (id bigint primary key);
create unlogged table /*schema*/outbox_guard (
    id bigint primary key,
    unsettled bigint not null references /*schema*/outbox_nothing deferrable initially deferred
);

insert into /*schema*/outbox_migration (version) values (1);
