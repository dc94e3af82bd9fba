//! Order and visibility, where transactions really run beside each other, at every level of isolation.

use std::sync::Arc;

use outbox::{Draft, ErrorKind, Published};
use outbox_tests::{TestBackend as _, eventually, mysql};
use sqlx::MySql;
use sqlx::mysql::MySqlPoolOptions;
use tokio::sync::Barrier;

use super::database;
use crate::common::*;

const LEVELS: [&str; 4] = [
    "set transaction isolation level read uncommitted; begin",
    "set transaction isolation level read committed; begin",
    "set transaction isolation level repeatable read; start transaction with consistent snapshot",
    "set transaction isolation level serializable; start transaction with consistent snapshot",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lower_number_that_commits_later_is_delivered() {
    for level in LEVELS {
        let Some(database) = database().await else { return };
        let outbox = database.outbox();
        register(&outbox).await;
        for round in 0..5 {
            let mut late = database.pool().begin_with(level).await.expect("begun");
            outbox.publish(&mut late, placed_as(&format!("late-{round}"), "a")).await.expect("published");
            publish(&outbox, placed_as(&format!("early-{round}"), "b")).await;
            assert_eq!(drain(&outbox, &Script::record()).await.handled, 1, "{level}");
            late.commit().await.expect("committed");
            assert_eq!(drain(&outbox, &Script::record()).await.handled, 1, "{level}");
        }
        assert_eq!(database.count("effects").await, 10);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishers_of_one_key_wait_for_each_other_and_others_do_not() {
    for level in LEVELS {
        let Some(database) = database().await else { return };
        let outbox = database.outbox();
        register(&outbox).await;
        let mut first = database.pool().begin_with(level).await.expect("begun");
        outbox.publish(&mut first, placed_as("first", "7")).await.expect("published");
        let second = tokio::spawn({
            let outbox = outbox.clone();
            async move {
                let mut tx = outbox.pool().begin_with(level).await.expect("begun");
                outbox.publish(&mut tx, placed_as("second", "7")).await.expect("published");
                tx.commit().await.expect("committed");
            }
        });
        somebody_waits(&database).await;
        // Another key, and an unordered message, while both are there.
        publish(&outbox, placed("8")).await;
        publish(&outbox, Draft::new("order.placed", "{}")).await;
        assert!(!second.is_finished(), "{level}");
        first.commit().await.expect("committed");
        second.await.expect("no panic");
        assert_eq!(drain(&outbox, &Script::record()).await.handled, 4, "{level}");
        let of_one = database
            .texts("select message_id from effects where message_id in ('first', 'second') order by id")
            .await;
        assert_eq!(of_one, ["first", "second"], "{level}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn single_publishes_in_opposite_order_fail_once_and_typed() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    register(&outbox).await;
    let middle = Arc::new(Barrier::new(2));
    let publisher = |keys: [&'static str; 2]| {
        let (outbox, middle) = (outbox.clone(), middle.clone());
        async move {
            let mut tx = outbox.pool().begin().await.expect("begun");
            outbox.publish(&mut tx, placed(keys[0])).await.expect("the first lock");
            middle.wait().await;
            outbox.publish(&mut tx, placed(keys[1])).await?;
            tx.commit().await.expect("committed");
            Ok::<_, outbox::Error>(())
        }
    };
    let (one, two) = tokio::join!(tokio::spawn(publisher(["x", "y"])), tokio::spawn(publisher(["y", "x"])));
    let outcomes = [one.expect("no panic"), two.expect("no panic")];
    let errors: Vec<_> = outcomes.iter().filter_map(|outcome| outcome.as_ref().err()).collect();
    assert_eq!(errors.len(), 1, "{outcomes:?}");
    assert_eq!(errors[0].kind(), ErrorKind::Conflict);
    assert!(errors[0].is_transient());
    assert_eq!(database.count("outbox_message").await, 2, "nothing is half stored");

    // The buffered form of the same cannot.
    for round in 0..20 {
        let publisher = |keys: [&'static str; 2]| {
            let (outbox, middle) = (outbox.clone(), middle.clone());
            tokio::spawn(async move {
                let tx = outbox.begin().await.expect("begun");
                for key in keys {
                    tx.publish(placed(key)).expect("accepted");
                }
                middle.wait().await;
                tx.commit().await.expect("no deadlock");
            })
        };
        let (one, two) = tokio::join!(publisher(["x", "y"]), publisher(["y", "x"]));
        one.and(two).unwrap_or_else(|error| panic!("round {round}: {error}"));
    }
}

/// An id that another transaction has stored since the snapshot was taken.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_id_at_once_is_a_duplicate_at_every_level() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    register(&outbox).await;
    for (n, level) in LEVELS.into_iter().enumerate() {
        let name = format!("fact-{n}");
        let draft = || Draft::new("order.placed", "{}").id(id(&name));
        let mut second = database.pool().begin_with(level).await.expect("begun");
        publish(&outbox, draft()).await;
        let outcome = outbox.publish(&mut second, draft()).await.expect("the transaction goes on");
        assert_eq!(outcome, Published::Duplicate(id(&name)), "{level}");
        second.commit().await.expect("committed");
    }
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 4);
}

/// At levels that lock the gaps between rows too, neither side may meet the other's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_handler_holds_up_neither_publishers_nor_others() {
    for level in LEVELS {
        let Some(database) = database().await else { return };
        let outbox = database.outbox();
        register(&outbox).await;
        let gate = Arc::new(Barrier::new(2));
        let script = Script::<MySql>::new({
            let gate = gate.clone();
            move |ctx| {
                let gate = gate.clone();
                Box::pin(async move {
                    if ctx.metadata().id.as_str() == "slow" {
                        gate.wait().await;
                        gate.wait().await;
                    }
                    record(ctx).await
                })
            }
        });
        publish(&outbox, placed_as("slow", "7")).await;
        let running = Running::start(ledger(&outbox, &script));
        gate.wait().await;
        // To its own aggregate, and to others, in a transaction that is still open when theirs begin.
        let mut open = database.pool().begin_with(level).await.expect("begun");
        MySql::execute(&mut open, "set session innodb_lock_wait_timeout = 1").await.expect("set");
        outbox.publish(&mut open, placed_as("behind", "7")).await.expect("no wait");
        for n in 0..40 {
            outbox
                .publish(&mut open, placed_as(&format!("open-{n}"), &format!("open-{n}")))
                .await
                .expect("no wait");
            publish(&outbox, placed_as(&n.to_string(), &format!("other-{n}"))).await;
        }
        open.commit().await.expect("committed");
        let lane = "select count(*) from outbox_delivery d join outbox_message m on m.seq = d.seq \
                    where m.id not in ('slow', 'behind') and d.lane <> (select d.lane from outbox_delivery d \
                    join outbox_message m on m.seq = d.seq where m.id = 'slow')";
        eventually("the other lanes", LONG, async || database.number(lane).await == 0).await;
        let before = handled(&database).await;
        assert!(!before.iter().any(|id| id == "slow" || id == "behind"), "{level}");
        gate.wait().await;
        settled(&database).await;
        running.stop().await;
        let after = handled(&database).await;
        let at = |name: &str| after.iter().position(|id| id == name).expect("handled");
        assert!(at("slow") < at("behind"), "{level}");
        assert_eq!(after.len(), 82, "{level}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_sessions_default_level_does_not_change_the_consumers() {
    for level in ["read uncommitted", "serializable"] {
        let Some(database) = database().await else { return };
        let outbox = database.outbox();
        let options = mysql::options(database.address()).expect("there is a server");
        let pool = MySqlPoolOptions::new()
            .after_connect(move |conn, _| {
                let set = format!("set session transaction isolation level {level}");
                Box::pin(async move { MySql::execute(conn, &set).await })
            })
            .connect_with(options)
            .await
            .expect("connected");
        let there = outbox::Outbox::new(pool);
        register(&there).await;
        let running: Vec<_> = (0..2).map(|_| Running::start(ledger(&there, &Script::record()))).collect();
        for n in 0..100 {
            publish(
                if n % 2 == 0 { &outbox } else { &there },
                placed_as(&n.to_string(), &format!("{}", n % 5)),
            )
            .await;
        }
        settled(&database).await;
        for run in running {
            assert_eq!(run.stop().await.retried, 0, "{level}");
        }
        let effects = database.effects().await;
        assert_eq!(effects.len(), 100, "{level}");
        for key in 0..5_usize {
            let full = format!("order\u{1f}{key}");
            let ids =
                effects.iter().filter(|e| e.key.as_deref() == Some(&full)).map(|e| e.message_id.clone());
            assert!(ids.eq((0..100_usize).filter(|n| n % 5 == key).map(|n| n.to_string())), "{level}");
        }
    }
}
