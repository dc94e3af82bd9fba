-- The way of a message: stored, delivered, parked when something is wrong with it, marked in the inbox.
-- Times are microseconds since 1970, UTC. STRICT, or a text in an integer column would be "never due".

-- Append-only. The write lock is held from a transaction's first write to its commit, so `seq` is the commit order.
-- AUTOINCREMENT, or it would start again at 1 after everything was pruned.
create table /*schema*/outbox_message (
    seq integer primary key autoincrement,
    id text not null unique,
    event_type text not null,
    version integer not null,
    topic text not null,
    source text,
    aggregate_id text,
    msg_key text,
    key_hash integer,
    slot integer not null,
    payload blob not null,
    payload_size integer not null,
    content_type text not null,
    headers text,
    -- Not before; null = at once.
    deliver_at integer,
    created_at integer not null default (cast(unixepoch('subsec') * 1000000 as integer))
) strict;

create table /*schema*/outbox_consumer (
    id integer primary key,
    name text not null unique,
    -- The name that it was made with: what is derived from a name and must outlive a new one is derived from this.
    first_name text not null,
    -- Never changes while deliveries exist: they were written for this many.
    lanes integer not null,
    paused integer not null default 0,
    created_at integer not null default (cast(unixepoch('subsec') * 1000000 as integer))
) strict;

-- Every name that a consumer has, had, or gave as an alias: whoever comes with one of them is that consumer.
create table /*schema*/outbox_consumer_name (
    name text primary key,
    consumer integer not null references /*prefix*/outbox_consumer (id)
) strict, without rowid;

-- Consumers that were dropped, under this name: their numbers are never used again, and until it is `done` some of what they had is
-- there.
create table /*schema*/outbox_dropped (
    id integer primary key,
    name text not null,
    lanes integer not null,
    done integer not null default 0,
    dropped_at integer not null default (cast(unixepoch('subsec') * 1000000 as integer))
) strict;

-- Which consumers get which types. `ready` once messages from before the subscription were looked at.
create table /*schema*/outbox_subscription (
    event_type text not null,
    consumer integer not null,
    ready integer not null default 0,
    -- Whether it gets what nobody was subscribed to.
    unrouted integer not null default 1,
    primary key (event_type, consumer)
) strict, without rowid;

-- Which numbers a subscription that is not ready has still to look through, for messages of its history that were not delivered
-- to it.
create table /*schema*/outbox_backfill (
    event_type text not null,
    consumer integer not null,
    first_seq integer not null,
    last_seq integer not null,
    -- Only what was published since; null = all.
    since integer,
    primary key (event_type, consumer, first_seq)
) strict, without rowid;

-- Messages that no consumer was subscribed to when they were published.
create table /*schema*/outbox_unrouted (
    event_type text not null,
    seq integer not null,
    primary key (event_type, seq)
) strict, without rowid;

-- One row for each message and consumer until it is settled: inserted and deleted, never updated.
create table /*schema*/outbox_delivery (
    consumer integer not null,
    lane integer not null,
    seq integer not null,
    key_hash integer,
    primary key (consumer, lane, seq)
) strict, without rowid;

-- Only what is not simply next has a row here. An unordered message has -seq as its key.
create table /*schema*/outbox_parked (
    consumer integer not null,
    lane integer not null,
    key_hash integer not null,
    seq integer not null,
    state integer not null,
    -- Failures since the last requeue, and ever.
    attempts integer not null default 0,
    total_attempts integer not null default 0,
    -- Lost conflicts with other transactions, which are no failures.
    conflicts integer not null default 0,
    due_at integer,
    last_error text,
    first_failed_at integer,
    -- Since when it is dead; null = it is not.
    dead_at integer,
    primary key (consumer, lane, key_hash, seq)
) strict, without rowid;
create index /*schema*/outbox_parked_due on /*prefix*/outbox_parked (consumer, lane, due_at) where due_at is not null;
create index /*schema*/outbox_parked_dead on /*prefix*/outbox_parked (consumer, seq) where state in (2, 3, 6);
create index /*schema*/outbox_parked_given_up on /*prefix*/outbox_parked (dead_at) where dead_at is not null;

-- Every failed attempt of a message, the latest of them.
create table /*schema*/outbox_attempt (
    consumer integer not null,
    seq integer not null,
    number integer not null,
    error text not null,
    worker text not null,
    duration_us integer not null,
    failed_at integer not null default (cast(unixepoch('subsec') * 1000000 as integer)),
    primary key (consumer, seq, number)
) strict, without rowid;

-- Who is alive: for operators, and to notice a process that died in the middle of something.
create table /*schema*/outbox_worker (
    id text primary key,
    host text not null,
    pid integer not null,
    version text not null,
    -- A JSON array of consumer ids.
    consumers text not null,
    -- Whether a pooler stands between it and the server, which there is none of here.
    pooled integer not null,
    started_at integer not null default (cast(unixepoch('subsec') * 1000000 as integer)),
    heartbeat_at integer not null default (cast(unixepoch('subsec') * 1000000 as integer))
) strict;

-- Lanes in which a process may have died.
create table /*schema*/outbox_suspect (
    consumer integer not null,
    lane integer not null,
    -- How many messages are still to run alone; 0 = first the next group, and only if a process dies of it each by itself.
    alone integer not null default 0,
    primary key (consumer, lane)
) strict, without rowid;

-- For calls outside of transactions, where the file's write lock is no lane's.
create table /*schema*/outbox_lane (
    consumer integer not null,
    lane integer not null,
    -- Whose the lane is, and until when others keep away.
    leased_by text,
    leased_until integer,
    primary key (consumer, lane)
) strict, without rowid;

create table /*schema*/outbox_inbox (
    consumer integer not null,
    message_id text not null,
    processed_at integer not null default (cast(unixepoch('subsec') * 1000000 as integer)),
    -- Not handled yet, but claimed before a call: by whom, until when others keep away (null = as long as the message's lane
    -- is leased), and for the how manieth time. All null once it is handled.
    claimed_by text,
    claimed_until integer,
    attempts integer,
    primary key (consumer, message_id)
) strict, without rowid;
create index /*schema*/outbox_inbox_old on /*prefix*/outbox_inbox (processed_at);

-- Who prunes, and how far it has come. A front is up to where all that was old enough has been looked at; what had to stay is looked
-- at again and again, a part at a time. Of messages the sequence, of inbox marks the time.
create table /*schema*/outbox_maintenance (
    one integer primary key check (one = 1),
    -- The process that began last, when, and how it ended.
    holder text,
    started_at integer,
    succeeded_at integer,
    failed_at integer,
    last_error text,
    message_front integer not null default 0,
    message_again integer not null default 0,
    mark_front integer not null default 0,
    mark_again integer not null default 0
) strict;
insert into /*schema*/outbox_maintenance (one) values (1);

-- Deliveries come with the message in one statement, so that no interruption can store one without the other.
-- (A trigger's body may not qualify its tables; they are those of the trigger's own schema.)
create trigger /*schema*/outbox_message_route after insert on /*prefix*/outbox_message
begin
    insert into /*prefix*/outbox_delivery (consumer, lane, seq, key_hash)
    select s.consumer, new.slot % c.lanes, new.seq, new.key_hash
    from /*prefix*/outbox_subscription s cross join /*prefix*/outbox_consumer c on c.id = s.consumer
    where s.event_type in (new.event_type, '*') and new.deliver_at is null;

    insert into /*prefix*/outbox_parked (consumer, lane, key_hash, seq, state, due_at)
    select s.consumer, new.slot % c.lanes, -new.seq, new.seq, 4, new.deliver_at
    from /*prefix*/outbox_subscription s cross join /*prefix*/outbox_consumer c on c.id = s.consumer
    where s.event_type in (new.event_type, '*') and new.deliver_at is not null;

    insert into /*prefix*/outbox_unrouted (event_type, seq)
    select new.event_type, new.seq
    where not exists (select 1 from /*prefix*/outbox_subscription s where s.event_type in (new.event_type, '*'));
end;

insert into /*schema*/outbox_migration (version) values (1);
