//! A consumer that registers while publishers are in flight, at every level of isolation.

use outbox::{Draft, StartFrom};
use outbox_tests::{TestBackend as _, TestDatabase, eventually};
use sqlx::MySql;

use super::database;
use crate::common::*;

/// A transaction of each level that has its snapshot from the beginning, where the level has one.
const LEVELS: [&str; 4] = [
    "set transaction isolation level read uncommitted; begin",
    "set transaction isolation level read committed; begin",
    "set transaction isolation level repeatable read; start transaction with consistent snapshot",
    "set transaction isolation level serializable; start transaction with consistent snapshot",
];

/// Waits until a registration has gone as far as a publisher in flight lets it: its subscription waits for the locks of one
/// at a strict level, or it is committed and the slots are looked at.
async fn registering(database: &TestDatabase<MySql>) {
    let waiting = "select (select count(*) from outbox_subscription)
                        + (select count(*) from information_schema.processlist
                           where db = database() and id <> connection_id() and info like '%outbox_subscription%')";
    eventually("the registration to wait", LONG, async || database.number(waiting).await > 0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_published_before_and_committed_after_is_delivered() {
    for level in LEVELS {
        for ordered in [true, false] {
            let Some(database) = database().await else { return };
            let outbox = database.outbox();
            let draft = if ordered { placed("7") } else { Draft::new("order.placed", "{}") };
            let mut tx = database.pool().begin_with(level).await.expect("begun");
            outbox.publish(&mut tx, draft.id(id("in flight"))).await.expect("published");
            let running = Running::start(ledger(&elsewhere(&database).await, &Script::record()));
            registering(&database).await;
            // It waits for the publisher and keeps nobody else waiting.
            publish(&outbox, placed_as("meanwhile", "8")).await;
            assert_eq!(database.count("effects").await, 0, "{level}");
            tx.commit().await.expect("committed");
            effects(&database, 2).await;
            running.stop().await;
            let mut handled = handled(&database).await;
            handled.sort();
            assert_eq!(handled, ["in flight", "meanwhile"], "{level}");
            assert_eq!(database.count("outbox_unrouted").await, 0);
        }
    }
}

/// What was in flight had deliveries for those who were subscribed, and none for the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_published_to_others_before_and_committed_after_is_delivered() {
    for level in LEVELS {
        for start_from in [StartFrom::Unrouted, StartFrom::Now] {
            let Some(database) = database().await else { return };
            let outbox = database.outbox();
            register(&outbox).await;
            publish(&outbox, placed_as("history", "7")).await;
            let ordered = database.pool().begin_with(level).await.expect("begun");
            let unordered = database.pool().begin_with(level).await.expect("begun");
            let rolled_back = database.pool().begin_with(level).await.expect("begun");
            let mut in_flight = [ordered, unordered, rolled_back];
            for (tx, draft) in [
                (0, placed_as("ordered", "7")),
                (1, Draft::new("order.placed", "{}").id(id("unordered"))),
                (2, placed_as("rolled back", "9")),
                (0, placed_as("delayed", "7").deliver_after(LONG * 100)),
            ] {
                outbox.publish(&mut in_flight[tx], draft).await.expect("published");
                // Between what is in flight stands what is history.
                publish(&outbox, placed("between")).await;
            }
            let audit = elsewhere(&database).await.consumers().handler::<Audit>();
            let audit = audit.state(Script::<MySql>::record()).config(quick());
            let audit = audit.options("audit", move |options| options.start_from = start_from);
            let running = Running::start(audit);
            // Its subscription waits for the locks of those at a strict level, or it is there.
            let come = "select (select count(*) from outbox_subscription where not ready)
                             + (select count(*) from information_schema.processlist
                                where db = database() and id <> connection_id()
                                  and info like '%insert into%outbox_subscription%')";
            eventually("the registration to wait", LONG, async || database.number(come).await > 0).await;
            let [ordered, unordered, rolled_back] = in_flight;
            ordered.commit().await.expect("committed");
            unordered.commit().await.expect("committed");
            rolled_back.rollback().await.expect("rolled back");
            publish(&outbox, placed_as("after", "7")).await;
            effects(&database, 3).await;
            due_now(&database).await;
            effects(&database, 4).await;
            running.stop().await;
            let mut got = handled_by(&database, "audit").await;
            let seven = ["ordered", "after"].map(|id| got.iter().position(|other| other == id));
            assert!(seven.is_sorted(), "{got:?}");
            got.sort();
            assert_eq!(got, ["after", "delayed", "ordered", "unordered"], "{level}");
            assert_eq!(database.count("outbox_backfill").await, 0);
            assert_eq!(drain(&outbox, &Script::record()).await.remaining, 0);
            assert_eq!(handled(&database).await.len(), 9);
        }
    }
}

/// Subscriptions are read as they are now, whatever the rest of the transaction sees.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_snapshot_is_delivered() {
    for level in LEVELS {
        for many in [false, true] {
            let Some(database) = database().await else { return };
            let outbox = database.outbox();
            let mut tx = database.pool().begin_with(level).await.expect("begun");
            // It has published nothing, so the registration does not wait for it.
            register(&outbox).await;
            let list = [Placed::new("7"), Placed::new("8")];
            let list = if many { &list[..] } else { &list[..1] };
            outbox.publish_events(&mut tx, list).await.expect("published");
            tx.commit().await.expect("committed");
            let report = drain(&outbox, &Script::record()).await;
            assert_eq!((report.handled, report.remaining), (list.len() as u64, 0), "{level}");
        }
    }
}

/// Since 11.6 by default, an old snapshot cannot lock what is newer: then the transaction is to be run again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_snapshot_that_may_lock_nothing_newer_is_told_to_run_again() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    let mut conn = database.connection().await;
    if MySql::execute(&mut conn, "set session innodb_snapshot_isolation = on").await.is_err() {
        return;
    }
    let level = "start transaction with consistent snapshot";
    let mut tx = sqlx::Connection::begin_with(&mut *conn, level).await.expect("begun");
    register(&outbox).await;
    let error = outbox.publish(&mut tx, placed("7")).await.expect_err("the subscription is newer");
    assert!(error.is_transient(), "{error:?}");
    tx.rollback().await.expect("rolled back");
    let mut tx = sqlx::Connection::begin_with(&mut *conn, level).await.expect("begun");
    outbox.publish(&mut tx, placed("7")).await.expect("run again");
    tx.commit().await.expect("committed");
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 1);
}

/// A slot that one publisher after the other holds is never free at a glance.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_key_that_is_published_all_the_time_keeps_no_consumer_out() {
    let Some(database) = database().await else { return };
    let stop = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let publishing: Vec<_> = (0..4)
        .map(|_| {
            let (outbox, stop) = (database.outbox(), stop.clone());
            tokio::spawn(async move {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    let mut tx = outbox.pool().begin_with(LEVELS[1]).await.expect("begun");
                    outbox.publish(&mut tx, placed("hot")).await.expect("published");
                    // Held for as long as a few statements take.
                    for _ in 0..5 {
                        MySql::number(&mut tx, "select count(*) from business").await.expect("counted");
                    }
                    tx.commit().await.expect("committed");
                }
            })
        })
        .collect();
    effects_of_a_start(&database).await;
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    for task in publishing {
        task.await.expect("no publisher panics");
    }
}

async fn effects_of_a_start(database: &TestDatabase<MySql>) {
    let running = Running::start(ledger(&elsewhere(database).await, &Script::record()));
    effects(database, 1).await;
    running.stop().await;
}

/// A publish whose look at the subscriptions met a registration half-way: the message is delivered, and unrouted too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_delivered_and_unrouted_is_handled_once() {
    for delayed in [false, true] {
        for ordered in [false, true] {
            let Some(database) = database().await else { return };
            let outbox = database.outbox();
            register(&outbox).await;
            let mut draft = if ordered { placed("7") } else { Draft::new("order.placed", "{}") };
            if delayed {
                draft = draft.deliver_after(std::time::Duration::from_secs(1_000));
            }
            publish(&outbox, draft).await;
            database
                .execute(
                    "insert into outbox_unrouted (event_type, seq) select event_type, seq from outbox_message; \
                     update outbox_subscription set ready = false",
                )
                .await;
            drain(&outbox, &Script::record()).await;
            due_now(&database).await;
            drain(&outbox, &Script::record()).await;
            assert_eq!(database.count("effects").await, 1, "delayed {delayed}, ordered {ordered}");
            assert_eq!(outbox_tests::check::undone(&database).await, 0);
            assert_eq!(database.count("outbox_unrouted").await, 0);
        }
    }
}
