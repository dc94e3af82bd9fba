//! Runs: how they end, and what they report.

use std::sync::Arc;
use std::time::Duration;

use outbox::{ConsumerConfig, Draft, ErrorKind, HandlerOptions};
use outbox_tests::{TestBackend, TestDatabase, eventually};
use tokio::sync::Barrier;

use crate::child;
use crate::common::*;

on_each_database!(
    a_run_until_idle_counts_what_it_did,
    a_run_once_claims_once_for_each_consumer,
    a_shutdown_finishes_what_was_begun,
    a_shutdown_waits_no_longer_than_its_grace,
    a_dropped_run_is_rolled_back_and_handled_by_another,
    a_terminated_process_finishes_what_was_begun_and_exits_cleanly,
    a_run_that_cannot_start_says_so,
    a_lock_held_elsewhere_is_waited_out,
    limits_that_never_come_are_none,
);

async fn a_run_until_idle_counts_what_it_did<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    let script = Script::<DB>::new(|ctx| {
        Box::pin(async move {
            let name = ctx.metadata().id.to_string();
            match &*name {
                "fails" => Err("always".into()),
                "unreadable" => outbox::__private::take_event::<Placed, DB>(ctx).map(drop),
                "chain-3" => record(ctx).await,
                chain if chain.starts_with("chain-") => {
                    let next: u32 = chain["chain-".len()..].parse::<u32>()? + 1;
                    ctx.publish(placed_as(&format!("chain-{next}"), "chain"))?;
                    record(ctx).await
                }
                _ => record(ctx).await,
            }
        })
    });
    publish(&outbox, placed_as("once", "1")).await;
    drain(&outbox, &script).await;
    database.execute("delete from outbox_message").await;
    for (name, key) in [("once", "1"), ("fails", "2"), ("behind", "2"), ("chain-0", "chain"), ("good", "3")] {
        publish(&outbox, placed_as(name, key)).await;
    }
    publish(&outbox, Draft::new("order.placed", "{").aggregate_id("4").id(id("unreadable"))).await;
    let report = drain(&outbox, &script).await;
    assert_eq!(report.handled, 5, "a good one and a chain of four");
    assert_eq!((report.retried, report.duplicates, report.dead, report.remaining), (1, 1, 1, 3));
}

async fn a_run_once_claims_once_for_each_consumer<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let both = || {
        let consumers = ledger(&outbox, &Script::record()).handler::<Audit>();
        let one = |options: &mut HandlerOptions| options.group = 1;
        consumers.options("ledger", one).options("audit", one).build().expect("complete")
    };
    both().run_once().await.expect("registered");
    for n in 0..4 {
        publish(&outbox, placed_as(&n.to_string(), "7")).await;
    }
    for round in 1..=4 {
        let report = both().run_once().await.expect("it ran");
        assert_eq!((report.handled, report.remaining), (2, 8 - 2 * round));
    }
    let report = both().run_once().await.expect("it ran");
    assert_eq!((report.handled, report.remaining), (0, 0));
    assert_eq!(handled(&database).await, ["0", "1", "2", "3"]);
}

/// A handler that says when it has begun and goes on when it is told to.
fn gated<DB: TestBackend>(gate: &Arc<Barrier>) -> Script<DB> {
    let gate = gate.clone();
    Script::new(move |ctx| {
        let gate = gate.clone();
        Box::pin(async move {
            record(ctx).await?;
            gate.wait().await;
            gate.wait().await;
            Ok(())
        })
    })
}

async fn a_shutdown_finishes_what_was_begun<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    for n in 0..3 {
        publish(&outbox, placed_as(&n.to_string(), "7")).await;
    }
    let gate = Arc::new(Barrier::new(2));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let asked = Arc::new(tokio::sync::Notify::new());
    let shutdown = {
        let asked = asked.clone();
        async move {
            drop(stopped.await);
            asked.notify_one();
        }
    };
    let consumers = ledger(&outbox, &gated(&gate)).build().expect("complete");
    let run = tokio::spawn(consumers.run_until(shutdown));
    gate.wait().await;
    stop.send(()).expect("it runs");
    asked.notified().await;
    // The run stops in the same breath as its shutdown completes, which is before these have answered.
    for _ in 0..10 {
        assert_eq!(database.count("effects").await, 0);
    }
    gate.wait().await;
    let report = run.await.expect("no panic").expect("it ran");
    assert_eq!((report.handled, report.retried), (1, 0));
    assert_eq!(handled(&database).await, ["0"]);
    assert_eq!(database.count("outbox_delivery").await, 2);
    assert_eq!(database.count("outbox_parked").await, 0);
}

async fn a_shutdown_waits_no_longer_than_its_grace<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    for name in ["first", "m"] {
        publish(&outbox, placed_as(name, "7")).await;
    }
    let gate = Arc::new(Barrier::new(2));
    let config = ConsumerConfig { shutdown_grace: Duration::from_millis(20), ..quick() };
    let one = |options: &mut HandlerOptions| options.group = 1;
    let running = Running::start(ledger(&outbox, &gated(&gate)).options("ledger", one).config(config));
    for _ in 0..3 {
        gate.wait().await;
    }
    let report = tokio::time::timeout(LONG, running.stop()).await.expect("it ended");
    assert_eq!((report.handled, report.retried), (1, 0), "what was done before counts");
    // What was dropped is rolled back, and no attempt is counted.
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 1);
    let effects = database.effects().await;
    assert_eq!((effects.len(), &*effects[1].worker), (2, "attempt 1"));
}

async fn a_dropped_run_is_rolled_back_and_handled_by_another<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    publish(&outbox, placed_as("m", "7")).await;
    let gate = Arc::new(Barrier::new(2));
    for _ in 0..3 {
        let running = Running::start(ledger(&outbox, &gated(&gate)));
        gate.wait().await;
        running.abort().await;
    }
    let running = Running::start(ledger(&outbox, &Script::record()));
    settled(&database).await;
    assert_eq!(running.stop().await.handled, 1);
    let effects = database.effects().await;
    assert_eq!((effects.len(), &*effects[0].worker), (1, "attempt 1"));
    // The application's pool is as it was.
    publish(&outbox, placed_as("after", "7")).await;
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 1);
}

async fn a_terminated_process_finishes_what_was_begun_and_exits_cleanly<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    let outbox = database.outbox();
    register(&outbox).await;
    for (work, first) in [("run", 0), ("run within", 10)] {
        for n in first..first + 3 {
            publish(&outbox, placed_as(&n.to_string(), "7")).await;
        }
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let started = folder.path().join("started");
        let mut process = child(work, &database, &[started.to_str().expect("temporary paths are UTF-8")]);
        eventually("the handler to begin", LONG, async || started.exists()).await;
        let status = tokio::task::spawn_blocking(move || process.terminate()).await.expect("no panic");
        assert!(status.expect("it was sent").success());
        let last = handled(&database).await.pop();
        assert_eq!(last, Some(first.to_string()), "{work}: it was finished and nothing else was begun");
        assert_eq!(database.count("outbox_delivery").await, 2);
        assert_eq!(drain(&outbox, &Script::record()).await.handled, 2);
    }
    assert!(database.effects().await.iter().all(|effect| effect.worker == "attempt 1"));
}

async fn a_run_that_cannot_start_says_so<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    database.execute("drop table outbox_migration").await;
    let consumers = || ledger(&outbox, &Script::record()).build().expect("complete");
    let errors = [
        consumers().run_once().await.map(drop),
        consumers().run_until_idle().await.map(drop),
        consumers().run_until(std::future::pending()).await.map(drop),
        consumers().run().await.map(drop),
    ];
    for error in errors {
        assert_eq!(error.expect_err("no tables").kind(), ErrorKind::NotMigrated);
    }
}

async fn a_lock_held_elsewhere_is_waited_out<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    publish(&outbox, placed_as("m", "7")).await;
    // Somebody writes and takes their time: on SQLite the whole file, elsewhere the lane.
    let mut tx = database
        .pool()
        .begin_with(by_database::<DB, _>("begin immediate", "begin", "begin"))
        .await
        .expect("begun");
    if !by_database::<DB, _>(true, false, false) {
        let lanes = "select cast(lane as char(2)) from outbox_lane for update";
        DB::texts(&mut tx, lanes).await.expect("locked");
    }
    let script = Script::record();
    let running = Running::start(ledger(&outbox, &script));
    let other = tokio::spawn({
        let outbox = elsewhere(&database).await;
        async move { ledger(&outbox, &Script::record()).build().expect("complete").run_until_idle().await }
    });
    for _ in 0..20 {
        database.count("effects").await;
    }
    assert_eq!(database.count("effects").await, 0);
    tx.commit().await.expect("committed");
    settled(&database).await;
    running.stop().await;
    other.await.expect("no panic").expect("a lock is no error");
    assert_eq!(handled(&database).await, ["m"]);
}

async fn limits_that_never_come_are_none<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let config = ConsumerConfig {
        poll_interval: Duration::MAX,
        idle_grace: Duration::MAX,
        group_window: Duration::MAX,
        ..ConsumerConfig::default()
    };
    let endless =
        |options: &mut HandlerOptions| (options.timeout, options.lease) = (Duration::MAX, Duration::MAX);
    let both = || {
        let consumers = outbox.consumers().handler::<Ledger>().handler::<Caller>();
        let consumers = consumers.options("ledger", endless).options("calls", endless).config(config.clone());
        consumers.state(Script::<DB>::new(|ctx| {
            Box::pin(
                async move { if ctx.metadata().consumer() == "ledger" { record(ctx).await } else { Ok(()) } },
            )
        }))
    };
    // A newer build, which takes another type too.
    let newer = outbox.consumers().handler::<Both>().handler::<Caller>().state(Script::<DB>::record());
    newer.build().expect("complete").run_until_idle().await.expect("registered");
    for draft in [Draft::new("order.shipped", "{}").aggregate_id("7"), placed_as("m", "8")] {
        publish(&outbox, draft).await;
    }
    let report = both().build().expect("complete").run_until_idle().await.expect("it ran");
    assert_eq!((report.handled, report.parked, report.retried), (2, 1, 0));
}
