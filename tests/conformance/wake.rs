//! What makes consumers look for work. Each means alone, while the next poll is an hour away; and without it.

use std::io::Write as _;
use std::time::{Duration, Instant};

use outbox::__private::Controls;
use outbox::{Config, ConsumerConfig, ConsumersBuilder, Draft, Outbox};
use outbox_tests::{TestBackend, TestDatabase, eventually};

use crate::child;
use crate::common::*;

on_each_database!(
    rows_without_a_wake_up_are_found_by_the_poll,
    a_commit_in_the_process_wakes_it,
    a_follow_up_wakes_its_consumer,
    a_commit_that_cannot_be_seen_is_looked_for,
    nothing_is_looked_for_without_wake_ups,
    a_commit_of_another_process_is_heard,
    a_follow_up_of_another_process_is_heard,
    a_process_that_does_not_listen_hears_nothing,
);

/// A poll that never comes again.
fn deaf() -> ConsumerConfig {
    ConsumerConfig { poll_interval: Duration::from_hours(1), ..quick() }
}

/// An outbox of a process that hears of no other.
fn alone<DB: TestBackend>(database: &TestDatabase<DB>) -> Outbox<DB> {
    database.outbox_with(Config { notify: false, ..Config::default() })
}

/// An outbox whose commits wake nobody, not even in its own process.
fn unwoken<DB: TestBackend>(database: &TestDatabase<DB>) -> Outbox<DB> {
    let controls = Controls { wake_ups: false, ..Controls::ALL };
    database.outbox_with(Config { notify: false, controls, ..Config::default() })
}

fn deaf_ledger<DB: TestBackend>(outbox: &Outbox<DB>) -> ConsumersBuilder<DB> {
    ledger(outbox, &Script::record()).config(deaf())
}

/// Consumers that run and have looked at least once, so that only a wake-up makes them look again.
async fn started<DB: TestBackend>(database: &TestDatabase<DB>, consumers: ConsumersBuilder<DB>) -> Running {
    let running = Running::start(consumers);
    beats(database, 2).await;
    running
}

/// Waits until the processes that consume have said so many times that they are alive: so often they could have looked.
async fn beats<DB: TestBackend>(database: &TestDatabase<DB>, count: usize) {
    let mut seen = std::collections::HashSet::new();
    eventually("heartbeats", LONG, async || {
        seen.extend(database.texts("select concat(heartbeat_at, '') from outbox_worker").await);
        seen.len() >= count
    })
    .await;
}

/// Publishes in a transaction that is not of the outbox's making, and commits it after a pause.
async fn publish_unseen<DB: TestBackend>(outbox: &Outbox<DB>, id: &str, pause: Duration) {
    let mut tx = outbox.pool().begin().await.expect("begun");
    outbox.publish(&mut tx, placed_as(id, "7")).await.expect("published");
    tokio::time::sleep(pause).await; // sleep-ok: a commit that comes late is what is tested
    tx.commit().await.expect("committed");
}

/// The same, until it was committed before it was looked for it the last time; how many messages it took.
async fn publish_unseen_in_time<DB: TestBackend>(outbox: &Outbox<DB>, pause: Duration) -> i64 {
    let mut published = 0;
    loop {
        let since = Instant::now();
        publish_unseen(outbox, &uuid(), pause).await;
        published += 1;
        if since.elapsed() < Duration::from_millis(320) {
            return published;
        }
        // The machine is too busy; this one is helped.
        publish(outbox, placed("7")).await;
        published += 1;
    }
}

fn uuid() -> String {
    (Config::default().new_id)().to_string()
}

async fn rows_without_a_wake_up_are_found_by_the_poll<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = unwoken(&database);
    register(&outbox).await;
    publish(&outbox, placed_as("template", "7")).await;
    let running = Running::start(ledger(&outbox, &Script::record()));
    effects(&database, 1).await;
    publish(&outbox, placed_as("here", "7")).await;
    effects(&database, 2).await;
    publish(&elsewhere(&database).await, placed_as("elsewhere", "7")).await;
    effects(&database, 3).await;
    publish_unseen(&outbox, "foreign", Duration::ZERO).await;
    effects(&database, 4).await;
    // Plain SQL, as a restore does it; the mark first, or whoever looks in between finds a duplicate.
    database
        .execute(
            "delete from outbox_inbox where message_id = 'template'; \
             insert into outbox_delivery (consumer, lane, seq, key_hash) \
             select c.id, m.slot % c.lanes, m.seq, m.key_hash from outbox_message m, outbox_consumer c \
             where m.id = 'template'",
        )
        .await;
    effects(&database, 5).await;
    running.stop().await;
    assert_eq!(handled(&database).await, ["template", "here", "elsewhere", "foreign", "template"]);
}

async fn a_commit_in_the_process_wakes_it<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = alone(&database);
    register(&outbox).await;
    let running = started(&database, deaf_ledger(&outbox)).await;
    for n in 1..=20 {
        publish(&outbox, placed_as(&n.to_string(), "7")).await;
        effects(&database, n).await;
    }
    outbox.transaction(async |tx| tx.publish(placed_as("21", "7")).map(drop)).await.expect("committed");
    effects(&database, 21).await;
    running.stop().await;
}

/// Publishes `order.shipped` for each `order.placed`.
fn ships<DB: TestBackend>() -> Script<DB> {
    Script::<DB>::new(|ctx| {
        Box::pin(async move {
            if ctx.metadata().event_type == "order.placed" {
                ctx.publish(Draft::new("order.shipped", "{}").aggregate_id("7"))?;
            }
            record(ctx).await
        })
    })
}

async fn a_follow_up_wakes_its_consumer<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = alone(&database);
    let consumers = || {
        let all = outbox.consumers().handler::<Ledger>().handler::<Shipping>();
        all.state(ships::<DB>()).config(deaf())
    };
    consumers().build().expect("complete").run_until_idle().await.expect("registered");
    let running = started(&database, consumers()).await;
    for n in 1..=5 {
        publish(&outbox, placed_as(&n.to_string(), "7")).await;
        effects(&database, 2 * n).await;
    }
    running.stop().await;
    assert_eq!(handled_by(&database, "shipping").await.len(), 5);
}

async fn a_commit_that_cannot_be_seen_is_looked_for<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = alone(&database);
    register(&outbox).await;
    let running = started(&database, deaf_ledger(&outbox)).await;
    let mut published = 0;
    for pause in [0, 10, 60, 250] {
        published += publish_unseen_in_time(&outbox, Duration::from_millis(pause)).await;
        effects(&database, published).await;
    }
    // On a bare connection too.
    let mut tx = database.pool().begin().await.expect("begun");
    outbox.publish_on(&mut tx, Placed::new("7")).await.expect("published");
    tx.commit().await.expect("committed");
    effects(&database, published + 1).await;
    running.stop().await;
}

async fn nothing_is_looked_for_without_wake_ups<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = unwoken(&database);
    register(&outbox).await;
    let running = started(&database, deaf_ledger(&outbox)).await;
    publish(&outbox, placed_as("here", "7")).await;
    publish_unseen(&outbox, "foreign", Duration::ZERO).await;
    beats(&database, 3).await;
    assert_eq!(database.count("effects").await, 0, "it beats and does not look");
    running.stop().await;
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 2, "and all was there");
}

/// Whether other processes cannot be heard on this database, which is said.
fn is_deaf<DB: TestBackend>() -> bool {
    if is_mysql::<DB>() {
        // Not by `eprintln!`, which the test harness keeps to itself when a test passes.
        let why = "there is no means to hear another process, and the poll finds what it commits";
        let _ = writeln!(std::io::stderr(), "SKIPPED {}: {why}", DB::NAME);
    }
    is_mysql::<DB>()
}

async fn a_commit_of_another_process_is_heard<DB: TestBackend>(database: TestDatabase<DB>) {
    if is_deaf::<DB>() {
        return;
    }
    let outbox = database.outbox();
    register(&outbox).await;
    let running = started(&database, deaf_ledger(&outbox)).await;
    // Another process in everything but the process.
    let other = elsewhere(&database).await;
    for n in 1..=5 {
        publish(&other, placed_as(&n.to_string(), "7")).await;
        effects(&database, n).await;
    }
    let published = 5 + publish_unseen_in_time(&other, Duration::from_millis(10)).await;
    effects(&database, published).await;
    let mut process = child("publish", &database, &["another process"]);
    effects(&database, published + 1).await;
    tokio::task::spawn_blocking(move || process.terminate()).await.expect("no panic").expect("it was sent");
    running.stop().await;
    assert_eq!(handled(&database).await.last().map(String::as_str), Some("another process"));
}

async fn a_follow_up_of_another_process_is_heard<DB: TestBackend>(database: TestDatabase<DB>) {
    if is_deaf::<DB>() {
        return;
    }
    let (outbox, other) = (database.outbox(), elsewhere(&database).await);
    let shipping = || outbox.consumers().handler::<Shipping>().state(Script::<DB>::record()).config(deaf());
    shipping().build().expect("complete").run_until_idle().await.expect("registered");
    register(&other).await;
    let here = started(&database, shipping()).await;
    let there = Running::start(ledger(&other, &ships()).config(deaf()));
    for n in 1..=3 {
        publish(&other, placed_as(&n.to_string(), "7")).await;
        effects(&database, 2 * n).await;
    }
    here.stop().await;
    there.stop().await;
    assert_eq!(handled_by(&database, "shipping").await.len(), 3);
}

async fn a_process_that_does_not_listen_hears_nothing<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = alone(&database);
    register(&outbox).await;
    let running = started(&database, deaf_ledger(&outbox)).await;
    publish(&elsewhere(&database).await, placed_as("elsewhere", "7")).await;
    beats(&database, 3).await;
    assert_eq!(database.count("effects").await, 0, "it beats and does not look");
    publish(&outbox, placed_as("here", "7")).await;
    effects(&database, 2).await;
    running.stop().await;
}
