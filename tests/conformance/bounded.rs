//! Runs that end by themselves, within bounds.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use outbox::{Bounds, ConsumerConfig, ConsumersBuilder, Outbox, Report, Retry};
use outbox_tests::{TestBackend, TestDatabase};

use crate::common::*;

on_each_database!(
    no_more_is_handled_than_the_bounds_allow,
    consumers_share_the_bounds,
    what_fails_counts_and_what_is_due_again_does_too,
    no_more_is_called_than_the_bounds_allow,
    what_has_begun_when_the_time_is_over_is_finished,
);

const LONG_CALL: Duration = Duration::from_millis(100);

fn of(messages: u64) -> Bounds {
    Bounds { messages: Some(messages), ..Bounds::default() }
}

async fn publish_many<DB: TestBackend>(outbox: &Outbox<DB>, count: u32) {
    let tx = outbox.begin().await.expect("begun");
    for n in 0..count {
        tx.publish(placed_as(&n.to_string(), &format!("{}", n % 11))).expect("accepted");
    }
    tx.commit().await.expect("committed");
}

async fn run<DB: TestBackend>(consumers: ConsumersBuilder<DB>, bounds: Bounds) -> Report {
    let retry = Some(Retry { max_attempts: 1_000, ..Retry::every(Duration::ZERO) });
    let config = ConsumerConfig { executors: 3, retry, ..quick() };
    consumers.config(config).build().expect("complete").run_within(bounds).await.expect("it ran")
}

async fn no_more_is_handled_than_the_bounds_allow<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    publish_many(&outbox, 120).await;
    for (handled, remaining) in [(50, 70), (50, 20), (20, 0), (0, 0)] {
        let report = run(ledger(&outbox, &Script::record()), of(50)).await;
        assert_eq!((report.handled, report.remaining), (handled, remaining));
        assert_eq!(database.count("effects").await, 120 - i64::try_from(remaining).expect("few"));
    }
    assert_eq!(run(ledger(&outbox, &Script::record()), of(0)).await.handled, 0);
}

async fn consumers_share_the_bounds<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let both = || ledger(&outbox, &Script::record()).handler::<Audit>();
    both().build().expect("complete").run_until_idle().await.expect("registered");
    publish_many(&outbox, 30).await;
    let report = run(both(), of(40)).await;
    assert_eq!((report.handled, report.remaining), (40, 20));
    assert_eq!(run(both(), Bounds::default()).await.handled, 20);
}

async fn what_fails_counts_and_what_is_due_again_does_too<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    publish(&outbox, placed_as("bad", "7")).await;
    let script = Script::<DB>::new(|_| Box::pin(async { Err("never".into()) }));
    let report = run(ledger(&outbox, &script), of(5)).await;
    assert_eq!((report.retried, report.remaining), (5, 1));
    assert_eq!(database.count("outbox_attempt").await, 5);
}

async fn no_more_is_called_than_the_bounds_allow<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    publish_many(&outbox, 30).await;
    let calls: Arc<AtomicU64> = Arc::default();
    let script = {
        let calls = calls.clone();
        Script::<DB>::new(move |_| {
            calls.fetch_add(1, Ordering::SeqCst);
            Box::pin(async { Ok(()) })
        })
    };
    let caller = || outbox.consumers().handler::<Caller>().state(script.clone());
    let report = run(caller(), of(12)).await;
    assert_eq!((report.handled, report.remaining, calls.load(Ordering::SeqCst)), (12, 18, 12));
    let report = run(caller(), of(100)).await;
    assert_eq!((report.handled, report.remaining, calls.load(Ordering::SeqCst)), (18, 0, 30));
}

async fn what_has_begun_when_the_time_is_over_is_finished<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    publish_many(&outbox, 200).await;
    let begun: Arc<AtomicU64> = Arc::default();
    let script = {
        let begun = begun.clone();
        Script::<DB>::new(move |ctx| {
            let begun = begun.clone();
            Box::pin(async move {
                begun.fetch_add(1, Ordering::SeqCst);
                tokio::time::sleep(LONG_CALL).await; // sleep-ok: so that all take far more time than there is
                record(ctx).await
            })
        })
    };
    let bounds = Bounds { time: Some(Duration::from_millis(700)), ..Bounds::default() };
    let report = run(ledger(&outbox, &script), bounds).await;
    assert!(report.handled < 200, "{report:?}");
    assert_eq!((begun.load(Ordering::SeqCst), report.remaining), (report.handled, 200 - report.handled));
    assert_eq!(database.count("effects").await.unsigned_abs(), report.handled);
}
