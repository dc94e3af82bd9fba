//! Each consumer gets each message, and its effect happens exactly once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use outbox::{Draft, Outbox};
use outbox_tests::{TestBackend, TestDatabase, eventually};
use tokio::sync::Barrier;

use crate::common::*;

on_each_database!(
    each_consumer_has_its_own_progress,
    many_processes_handle_each_message_once,
    follow_ups_exist_exactly_when_their_handler_succeeded,
    follow_ups_of_many_handlers_are_all_delivered_once,
    a_message_that_was_handled_before_is_settled_without_running,
    effect_mark_and_delivery_change_together,
    a_message_that_comes_while_others_are_looked_for_is_not_lost,
    one_message_of_a_key_is_handled_at_a_time,
);

async fn each_consumer_has_its_own_progress<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let audit = || outbox.consumers().handler::<Audit>().state(Script::<DB>::record()).config(quick());
    register(&outbox).await;
    audit().build().expect("complete").run_until_idle().await.expect("registered");
    for n in 0..10 {
        publish(&outbox, placed_as(&n.to_string(), "7")).await;
    }
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 10);
    assert_eq!(database.count("outbox_delivery").await, 10, "those of the other consumer");
    publish(&outbox, placed_as("10", "7")).await;
    let report = audit().build().expect("complete").run_until_idle().await.expect("it ran");
    assert_eq!((report.handled, report.remaining), (11, 0));
    assert_eq!(handled(&database).await.len(), 10);
    assert_eq!(handled_by(&database, "audit").await.len(), 11);
    assert_eq!(database.count("outbox_inbox").await, 21);
}

async fn many_processes_handle_each_message_once<DB: TestBackend>(database: TestDatabase<DB>) {
    const MESSAGES: usize = 200;
    let outbox = database.outbox();
    let both =
        |outbox: &Outbox<DB>| ledger(outbox, &Script::record()).handler::<Audit>().build().expect("complete");
    both(&outbox).run_until_idle().await.expect("registered");
    let tx = outbox.begin().await.expect("begun");
    for n in 0..MESSAGES {
        // Half of them unordered.
        let draft =
            if n % 2 == 0 { placed(&format!("{}", n % 10)) } else { Draft::new("order.placed", "{}") };
        tx.publish(draft.id(id(&n.to_string()))).expect("accepted");
    }
    tx.commit().await.expect("committed");

    let start = Arc::new(Barrier::new(6));
    let mut runs = Vec::new();
    for n in 0..6 {
        // Two of them share a pool, as tasks of one process do.
        let outbox = if n < 2 { outbox.clone() } else { elsewhere(&database).await };
        let (start, consumers) = (start.clone(), both(&outbox));
        runs.push(tokio::spawn(async move {
            start.wait().await;
            consumers.run_until_idle().await.expect("it ran")
        }));
    }
    let mut reported = 0;
    for run in runs {
        let report = run.await.expect("no panic");
        assert_eq!((report.retried, report.duplicates, report.parked), (0, 0, 0));
        reported += report.handled;
    }
    assert_eq!(reported, 2 * MESSAGES as u64);
    for consumer in ["ledger", "audit"] {
        let mut handled = handled_by(&database, consumer).await;
        handled.sort_by_key(|id| id.parse::<usize>().expect("a number"));
        assert!(handled.into_iter().eq((0..MESSAGES).map(|n| n.to_string())), "{consumer}");
    }
    assert_eq!(database.count("outbox_delivery").await, 0);
}

/// Ships each order that was placed; fails afterwards as often as it is told to.
fn shipping<DB: TestBackend>(failures: u32) -> Script<DB> {
    Script::<DB>::new(move |ctx| {
        Box::pin(async move {
            record(ctx).await?;
            let metadata = ctx.metadata().clone();
            if metadata.event_type == "order.placed" {
                let order = metadata.aggregate_id.as_deref().unwrap_or("none");
                let first = ctx.publish(Draft::new("order.shipped", "{}").aggregate_id(order))?;
                let draft = Draft::new("order.shipped", "{}").aggregate_id(order);
                ctx.publish(draft.id(id(&format!("shipped-{}", metadata.id))))?;
                assert_ne!(first.as_str(), metadata.id.as_str());
                if metadata.attempt() <= failures {
                    return Err("after the publish".into());
                }
            }
            Ok(())
        })
    })
}

async fn follow_ups_exist_exactly_when_their_handler_succeeded<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let consumers = || {
        let all = outbox.consumers().handler::<Ledger>().handler::<Shipping>();
        all.state(shipping::<DB>(1)).config(patient())
    };
    consumers().build().expect("complete").run_until_idle().await.expect("registered");
    publish(&outbox, placed_as("m", "7")).await;
    let report = consumers().build().expect("complete").run_until_idle().await.expect("it ran");
    assert_eq!((report.handled, report.retried), (0, 1));
    assert_eq!(database.count("outbox_message").await, 1, "the failure took its follow-ups with it");
    due_now(&database).await;
    let running = Running::start(consumers());
    settled(&database).await;
    assert_eq!(running.stop().await.handled, 3);
    assert_eq!(handled(&database).await, ["m"]);
    let shipped = handled_by(&database, "shipping").await;
    assert_eq!(shipped.len(), 2);
    assert_eq!(shipped[1], "shipped-m", "in the order of their publishes");
}

async fn follow_ups_of_many_handlers_are_all_delivered_once<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let script = Script::<DB>::new(|ctx| {
        Box::pin(async move {
            record(ctx).await?;
            let metadata = ctx.metadata().clone();
            if metadata.event_type == "order.placed" {
                let count: usize = metadata.id.as_str().parse()?;
                for n in 0..count % 6 {
                    DB::number(ctx, "select count(*) from business").await?;
                    let follow_up = Draft::new("order.shipped", "{}").aggregate_id((n % 3).to_string());
                    ctx.publish(follow_up.id(id(&format!("{}-{n}", metadata.id))))?;
                }
            }
            Ok(())
        })
    });
    let consumers = |outbox: &Outbox<DB>| {
        let all = outbox.consumers().handler::<Ledger>().handler::<Shipping>();
        all.state(script.clone()).config(quick())
    };
    consumers(&outbox).build().expect("complete").run_until_idle().await.expect("registered");
    let (here, there) =
        (Running::start(consumers(&outbox)), Running::start(consumers(&elsewhere(&database).await)));
    for n in 0..60 {
        publish(&outbox, placed_as(&n.to_string(), &format!("{}", n % 7))).await;
    }
    effects(&database, 60 + 150).await;
    settled(&database).await;
    here.stop().await;
    there.stop().await;
    let mut shipped = handled_by(&database, "shipping").await;
    let mut expected: Vec<_> = (0..60).flat_map(|n| (0..n % 6).map(move |m| format!("{n}-{m}"))).collect();
    shipped.sort();
    expected.sort();
    assert_eq!(shipped, expected);
    assert_eq!(handled(&database).await.len(), 60);
}

async fn a_message_that_was_handled_before_is_settled_without_running<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    let outbox = database.outbox();
    register(&outbox).await;
    publish(&outbox, placed_as("m", "7")).await;
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 1);
    // The message is pruned and comes once more, as from a broker that delivers twice.
    database.execute("delete from outbox_message").await;
    publish(&outbox, placed_as("m", "7")).await;
    publish(&outbox, placed_as("next", "7")).await;
    let report = drain(&outbox, &Script::record()).await;
    assert_eq!((report.handled, report.duplicates, report.remaining), (1, 1, 0));
    assert_eq!(handled(&database).await, ["m", "next"]);

    // So it is when the second arrival waits behind a head.
    database.execute("delete from outbox_message").await;
    let once = Script::<DB>::new(|ctx| {
        Box::pin(async move {
            record(ctx).await?;
            let metadata = ctx.metadata();
            let fails = metadata.id.as_str() == "head" && metadata.attempt() == 1;
            if fails { Err("once".into()) } else { Ok(()) }
        })
    });
    for name in ["head", "m", "last"] {
        publish(&outbox, placed_as(name, "7")).await;
    }
    let running = Running::start(ledger(&outbox, &once));
    settled(&database).await;
    let report = running.stop().await;
    assert_eq!((report.handled, report.retried, report.duplicates), (2, 1, 1));
    assert_eq!(handled(&database).await, ["m", "next", "head", "last"]);
}

async fn effect_mark_and_delivery_change_together<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    let state = async || {
        let tables = ["effects", "outbox_inbox", "outbox_delivery", "outbox_parked"];
        let mut counts = [0; 4];
        for (count, table) in counts.iter_mut().zip(tables) {
            *count = database.count(table).await;
        }
        counts
    };
    publish(&outbox, placed_as("m", "7")).await;
    assert_eq!(state().await, [0, 0, 1, 0]);
    // Looked at from outside while the handler has written and not returned.
    let written = Arc::new(Barrier::new(2));
    let script = Script::<DB>::new({
        let written = written.clone();
        move |ctx| {
            let written = written.clone();
            Box::pin(async move {
                record(ctx).await?;
                written.wait().await;
                written.wait().await;
                if ctx.metadata().attempt() == 1 { Err("no".into()) } else { Ok(()) }
            })
        }
    });
    let running = Running::start(ledger(&outbox, &script));
    written.wait().await;
    assert_eq!(state().await, [0, 0, 1, 0]);
    written.wait().await;
    eventually("the failure to be recorded", LONG, async || database.count("outbox_parked").await == 1).await;
    written.wait().await;
    assert_eq!(state().await, [0, 0, 0, 1]);
    written.wait().await;
    settled(&database).await;
    running.stop().await;
    assert_eq!(state().await, [1, 1, 0, 0]);
}

async fn a_message_that_comes_while_others_are_looked_for_is_not_lost<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    let outbox = database.outbox();
    register(&outbox).await;
    // A poll that never comes again: only wake-ups, each for a message that is committed at some point of a round.
    let config = outbox::ConsumerConfig { poll_interval: std::time::Duration::from_hours(1), ..quick() };
    let running = Running::start(ledger(&outbox, &Script::record()).config(config));
    let mut published = 0_i64;
    for _ in 0..60 {
        for _ in 0..fastrand::u8(1..4) {
            publish(&outbox, placed(&format!("{}", fastrand::u8(..)))).await;
            published += 1;
        }
        if fastrand::bool() {
            effects(&database, published).await;
        }
    }
    effects(&database, published).await;
    running.stop().await;
    assert_eq!(database.count("effects").await, published);
}

async fn one_message_of_a_key_is_handled_at_a_time<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    // At most one of a key is handled at any time, over all executors and processes.
    let running_now: Arc<[AtomicUsize; 3]> = Arc::default();
    let script = Script::<DB>::new({
        let running_now = running_now.clone();
        move |ctx| {
            let running_now = running_now.clone();
            Box::pin(async move {
                let key: usize = ctx.metadata().aggregate_id.as_deref().unwrap_or("0").parse()?;
                let before = running_now[key].fetch_add(1, Ordering::SeqCst);
                DB::number(ctx, "select count(*) from business").await?;
                tokio::task::yield_now().await;
                let recorded = record(ctx).await;
                running_now[key].fetch_sub(1, Ordering::SeqCst);
                if before > 0 { Err("two at once".into()) } else { recorded }
            })
        }
    });
    let (here, there) = (
        Running::start(ledger(&outbox, &script)),
        Running::start(ledger(&elsewhere(&database).await, &script)),
    );
    for n in 0..90 {
        publish(&outbox, placed_as(&n.to_string(), &(n % 3).to_string())).await;
    }
    settled(&database).await;
    let (here, there) = (here.stop().await, there.stop().await);
    assert_eq!((here.handled + there.handled, here.retried + there.retried), (90, 0));
}
