//! A consumer that registers while publishers are in flight, at every level of isolation.

use outbox::{Draft, ErrorKind, StartFrom};
use outbox_tests::TestDatabase;
use sqlx::{Executor as _, Postgres};

use super::database;
use crate::common::*;

/// Waits until the consumer's subscription is committed and announced.
async fn announced(database: &TestDatabase<Postgres>) {
    let announced = "select count(*) from outbox_registry_version where last_value > 1";
    outbox_tests::eventually("the announcement", LONG, async || database.number(announced).await == 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_published_before_and_committed_after_is_delivered() {
    for level in ["read committed", "repeatable read", "serializable"] {
        for ordered in [true, false] {
            let Some(database) = database().await else { return };
            let outbox = database.outbox();
            let draft = if ordered { placed("7") } else { Draft::new("order.placed", "{}") };
            let level = sqlx::AssertSqlSafe(format!("begin isolation level {level}"));
            let mut tx = database.pool().begin_with(level).await.expect("begun");
            outbox.publish(&mut tx, draft.id(id("in flight"))).await.expect("published");
            let running = Running::start(ledger(&elsewhere(&database).await, &Script::record()));
            announced(&database).await;
            // It waits for the publisher and holds nothing meanwhile: others publish, to it, freely.
            publish(&outbox, placed_as("meanwhile", "8")).await;
            assert_eq!(database.count("effects").await, 0);
            tx.commit().await.expect("committed");
            effects(&database, 2).await;
            running.stop().await;
            let mut handled = handled(&database).await;
            handled.sort();
            assert_eq!(handled, ["in flight", "meanwhile"]);
            assert_eq!(database.count("outbox_unrouted").await, 0);
        }
    }
}

/// What was in flight had deliveries for those who were subscribed, and none for the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_published_to_others_before_and_committed_after_is_delivered() {
    for level in ["read committed", "repeatable read", "serializable"] {
        for start_from in [StartFrom::Unrouted, StartFrom::Now] {
            let Some(database) = database().await else { return };
            let outbox = database.outbox();
            register(&outbox).await;
            publish(&outbox, placed_as("history", "7")).await;
            let begin = || sqlx::AssertSqlSafe(format!("begin isolation level {level}"));
            let ordered = database.pool().begin_with(begin()).await.expect("begun");
            let unordered = database.pool().begin_with(begin()).await.expect("begun");
            let rolled_back = database.pool().begin_with(begin()).await.expect("begun");
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
            let audit = audit.state(Script::<Postgres>::record()).config(quick());
            let audit = audit.options("audit", move |options| options.start_from = start_from);
            let running = Running::start(audit);
            let subscribed = "select count(*) from outbox_subscription s join outbox_consumer c on c.id = s.consumer \
                              where c.name = 'audit'";
            let there = async || database.number(subscribed).await == 1;
            outbox_tests::eventually("the subscription", LONG, there).await;
            publish(&outbox, placed_as("meanwhile", "8")).await;
            let [ordered, unordered, rolled_back] = in_flight;
            ordered.commit().await.expect("committed");
            unordered.commit().await.expect("committed");
            rolled_back.rollback().await.expect("rolled back");
            publish(&outbox, placed_as("after", "7")).await;
            effects(&database, 4).await;
            due_now(&database).await;
            effects(&database, 5).await;
            running.stop().await;
            let mut got = handled_by(&database, "audit").await;
            let seven = ["ordered", "after"].map(|id| got.iter().position(|other| other == id));
            assert!(seven.is_sorted(), "{got:?}");
            got.sort();
            assert_eq!(got, ["after", "delayed", "meanwhile", "ordered", "unordered"], "{level}");
            assert_eq!(database.count("outbox_backfill").await, 0);
            assert_eq!(drain(&outbox, &Script::record()).await.remaining, 0);
            assert_eq!(handled(&database).await.len(), 10);
        }
    }
}

/// A start that dies while it waits leaves behind what is to be looked through.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_in_flight_is_brought_by_the_next_start() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    register(&outbox).await;
    let mut tx = database.pool().begin().await.expect("begun");
    outbox.publish(&mut tx, placed_as("in flight", "7")).await.expect("published");
    publish(&outbox, placed_as("history", "8")).await;
    let audit = |outbox: &outbox::Outbox<Postgres>| {
        outbox.consumers().handler::<Audit>().state(Script::<Postgres>::record()).config(quick())
    };
    let running = Running::start(audit(&elsewhere(&database).await));
    let noted = async || database.count("outbox_backfill").await > 0;
    outbox_tests::eventually("the subscription", LONG, noted).await;
    running.abort().await;
    tx.commit().await.expect("committed");
    publish(&outbox, placed_as("after", "7")).await;
    audit(&outbox).build().expect("complete").run_until_idle().await.expect("it ran");
    assert_eq!(handled_by(&database, "audit").await, ["in flight", "after"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_older_snapshot_is_delivered_or_told_to_run_again() {
    for level in ["read committed", "repeatable read", "serializable"] {
        for many in [false, true] {
            let Some(database) = database().await else { return };
            let outbox = database.outbox();
            let begin = || sqlx::AssertSqlSafe(format!("begin isolation level {level}"));
            let mut tx = database.pool().begin_with(begin()).await.expect("begun");
            tx.execute("select count(*) from business").await.expect("its snapshot is taken");
            // It has published nothing, so the registration does not wait for it.
            register(&outbox).await;
            let list = [Placed::new("7"), Placed::new("8")];
            let list = if many { &list[..] } else { &list[..1] };
            match outbox.publish_events(&mut tx, list).await {
                Ok(_) => {
                    assert_eq!(level, "read committed");
                    tx.commit().await.expect("committed");
                }
                Err(error) => {
                    assert_ne!(level, "read committed");
                    assert_eq!(error.kind(), ErrorKind::StaleTransaction);
                    assert!(error.is_transient());
                    tx.rollback().await.expect("rolled back");
                    let mut tx = database.pool().begin_with(begin()).await.expect("begun");
                    outbox.publish_events(&mut tx, list).await.expect("run again");
                    tx.commit().await.expect("committed");
                }
            }
            let report = drain(&outbox, &Script::record()).await;
            assert_eq!((report.handled, report.remaining), (list.len() as u64, 0), "{level}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_that_gives_up_while_it_waits_is_finished_by_the_next() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    let mut tx = database.pool().begin().await.expect("begun");
    outbox.publish(&mut tx, placed_as("in flight", "7")).await.expect("published");
    let running = Running::start(ledger(&elsewhere(&database).await, &Script::record()));
    announced(&database).await;
    running.abort().await;
    tx.commit().await.expect("committed");
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 1);
}

fn shipped(id: &str, order: &str) -> Draft {
    Draft::new("order.shipped", "{}").topic("order").aggregate_id(order).id(self::id(id))
}

/// An old replica of the consumer still runs when a new one adds a type. It meets a message that was published after the
/// registration and puts it back; then the backfill brings an earlier one of the same key.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_type_that_is_added_beside_an_old_replica_keeps_its_order() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    register(&outbox).await;
    publish(&outbox, shipped("before", "7")).await;
    let old = Running::start(ledger(&elsewhere(&database).await, &Script::record()));
    publish(&outbox, placed_as("witness", "6")).await;
    effects(&database, 1).await;
    // Keeps the new replica from its backfill.
    let mut in_flight = database.pool().begin().await.expect("begun");
    outbox.publish(&mut in_flight, placed_as("in flight", "8")).await.expect("published");
    let new = elsewhere(&database).await.consumers().handler::<Both>().state(Script::<Postgres>::record());
    let new = Running::start(new.config(quick()));
    let types = "select count(*) from outbox_subscription where event_type = 'order.shipped'";
    outbox_tests::eventually("the new type", LONG, async || database.number(types).await == 1).await;
    publish(&outbox, shipped("after", "7")).await;
    let parked = async || database.count("outbox_parked").await == 1;
    outbox_tests::eventually("the old replica to put it back", LONG, parked).await;
    in_flight.commit().await.expect("committed");
    effects(&database, 4).await;
    new.stop().await;
    old.stop().await;
    let of_seven: Vec<_> =
        handled(&database).await.into_iter().filter(|id| id == "before" || id == "after").collect();
    assert_eq!(of_seven, ["before", "after"]);
    assert_eq!(database.count("outbox_parked").await, 0);
}

/// Between the commit of a subscription and everybody's knowing of it, a publisher with an older snapshot must not
/// store behind one that has seen it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_older_snapshot_slips_in_behind_a_registration() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    register(&outbox).await;
    let begin = "begin isolation level repeatable read";
    let mut older = database.pool().begin_with(begin).await.expect("begun");
    older.execute("select count(*) from business").await.expect("its snapshot is taken");
    let audit = outbox.consumers().handler::<Audit>().state(Script::<Postgres>::record()).config(quick());
    let running = Running::start(audit);
    let subscribed = "select count(*) from outbox_subscription s join outbox_consumer c on c.id = s.consumer \
                      where c.name = 'audit'";
    outbox_tests::eventually("the subscription", LONG, async || database.number(subscribed).await == 1).await;
    publish(&outbox, placed_as("seen", "7")).await;
    let error =
        outbox.publish(&mut older, placed_as("older", "7")).await.expect_err("its snapshot is too old");
    assert_eq!(error.kind(), ErrorKind::StaleTransaction);
    drop(older);
    effects(&database, 1).await;
    running.stop().await;
    assert_eq!(handled_by(&database, "audit").await, ["seen"]);
}

/// A registration that died between its announcement and its commit leaves the announcement behind.
#[tokio::test]
async fn a_registration_that_died_announced_stops_nobody() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    register(&outbox).await;
    database
        .execute("select setval('outbox_registry_version', (select version + 5 from outbox_registry))")
        .await;
    for level in ["read committed", "repeatable read", "serializable"] {
        let begin = sqlx::AssertSqlSafe(format!("begin isolation level {level}"));
        let mut tx = database.pool().begin_with(begin).await.expect("begun");
        tx.execute("select count(*) from business").await.expect("its snapshot is taken");
        outbox.publish(&mut tx, placed(level)).await.expect("published");
        outbox.publish_events(&mut tx, [Placed::new("7"), Placed::new("8")]).await.expect("published");
        tx.commit().await.expect("committed");
    }
    assert_eq!(database.count("outbox_delivery").await, 9);
}
