//! Messages of one key reach each consumer in the order in which their transactions committed.

use std::sync::{Arc, Mutex};

use outbox_tests::{TestBackend, TestDatabase, eventually};
use sqlx::Connection as _;

use crate::common::*;

on_each_database!(
    concurrent_publishers_of_a_key_are_delivered_in_commit_order,
    lists_of_overlapping_keys_never_deadlock,
    gaps_after_rollbacks_block_nothing,
    nothing_overtakes_a_message_in_its_pause,
    a_failed_message_and_its_successors_come_in_order,
    several_consumers_keep_the_order_each_for_itself,
);

/// The commits happen one at a time, each awaited, so their order is known whatever publishing does.
async fn concurrent_publishers_of_a_key_are_delivered_in_commit_order<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    const PUBLISHERS: usize = 8;
    const EACH: usize = 12;
    const KEYS: usize = 3;
    let levels: &[&'static str] = by_database::<DB, _>(
        &["begin immediate"][..],
        &[
            "begin isolation level read committed",
            "begin isolation level repeatable read",
            "begin isolation level serializable",
        ],
        &[
            "set transaction isolation level read uncommitted; begin",
            "set transaction isolation level read committed; begin",
            "set transaction isolation level repeatable read; start transaction with consistent snapshot",
            "set transaction isolation level serializable; begin",
        ],
    );
    let outbox = database.outbox();
    register(&outbox).await;
    let running = Running::start(ledger(&outbox, &Script::record()));
    let commits = Arc::new(tokio::sync::Mutex::new(Vec::new()));
    for (round, level) in levels.iter().enumerate() {
        let mut publishers = Vec::new();
        for publisher in 0..PUBLISHERS {
            let (outbox, pool, commits) = (outbox.clone(), database.pool().clone(), commits.clone());
            publishers.push(tokio::spawn(async move {
                for n in 0..EACH {
                    let key = format!("k{}", fastrand::usize(0..KEYS));
                    let name = format!("{round}.{publisher}.{n}");
                    loop {
                        let mut tx = pool.begin_with(*level).await.expect("begun");
                        // The snapshot of the stricter levels is taken before the order lock.
                        DB::number(&mut tx, "select count(*) from business").await.expect("read");
                        let published = outbox.publish(&mut tx, placed_as(&name, &key)).await;
                        match published {
                            Ok(published) => assert_eq!(published.id().as_str(), name),
                            Err(error) if error.is_transient() => {
                                assert!(error.sqlstate().is_some(), "{error:?}");
                                continue;
                            }
                            Err(error) => panic!("{error:?}"),
                        }
                        for _ in 0..fastrand::usize(0..6) {
                            DB::number(&mut tx, "select count(*) from business").await.expect("read");
                        }
                        let mut commits = commits.lock().await;
                        if tx.commit().await.is_ok() {
                            commits.push((key, name));
                            break;
                        }
                    }
                }
            }));
        }
        for publisher in publishers {
            publisher.await.expect("no panic");
        }
    }
    settled(&database).await;
    running.stop().await;
    let commits = commits.lock().await;
    assert_eq!(commits.len(), PUBLISHERS * EACH * levels.len());
    let effects = database.effects().await;
    assert_eq!(effects.len(), commits.len());
    for key in 0..KEYS {
        let key = format!("k{key}");
        let committed: Vec<_> = commits.iter().filter(|(k, _)| *k == key).map(|(_, name)| name).collect();
        let full = format!("order\u{1f}{key}");
        let delivered = effects.iter().filter(|e| e.key.as_deref() == Some(&full));
        assert_eq!(delivered.map(|e| &e.message_id).collect::<Vec<_>>(), committed, "{key}");
    }
}

async fn lists_of_overlapping_keys_never_deadlock<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let mut publishers = Vec::new();
    for _ in 0..2 {
        let outbox = outbox.clone();
        publishers.push(tokio::spawn(async move {
            for round in 0..100 {
                let mut orders: Vec<_> = (0..20).collect();
                fastrand::shuffle(&mut orders);
                let list: Vec<_> = orders.iter().map(|order| Placed::new(format!("{order}"))).collect();
                if round % 2 == 0 {
                    let mut tx = outbox.pool().begin().await.expect("begun");
                    outbox.publish_events(&mut tx, &list).await.expect("no deadlock");
                    tx.commit().await.expect("committed");
                } else {
                    // One by one, which the buffer makes one list of.
                    let tx = outbox.begin().await.expect("begun");
                    for event in &list {
                        tx.publish_event(event).expect("accepted");
                    }
                    tx.commit().await.expect("no deadlock");
                }
            }
        }));
    }
    for publisher in publishers {
        publisher.await.expect("no panic");
    }
    assert_eq!(database.count("outbox_message").await, 2 * 100 * 20);
}

async fn gaps_after_rollbacks_block_nothing<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    let running = Running::start(ledger(&outbox, &Script::record()));
    let mut committed = Vec::new();
    for n in 0..200 {
        let key = format!("{}", n % 4);
        let mut tx = outbox
            .pool()
            .begin_with(by_database::<DB, _>("begin immediate", "begin", "begin"))
            .await
            .expect("begun");
        outbox.publish(&mut tx, placed_as(&format!("{n}"), &key)).await.expect("published");
        let mut inner = (*tx).begin().await.expect("a savepoint");
        outbox.publish(&mut inner, placed_as(&format!("{n}-inner"), &key)).await.expect("published");
        let keeps_inner = fastrand::bool();
        if keeps_inner { inner.commit().await } else { inner.rollback().await }.expect("ended");
        if fastrand::u8(0..3) == 0 {
            tx.rollback().await.expect("rolled back");
        } else {
            tx.commit().await.expect("committed");
            committed.push(format!("{n}"));
            committed.extend(keeps_inner.then(|| format!("{n}-inner")));
        }
    }
    settled(&database).await;
    running.stop().await;
    let mut delivered = handled(&database).await;
    delivered.sort();
    committed.sort();
    assert_eq!(delivered, committed);
}

async fn nothing_overtakes_a_message_in_its_pause<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    publish(&outbox, placed_as("head", "7")).await;
    let healed = Arc::new(Mutex::new(false));
    let script = Script::<DB>::new({
        let healed = healed.clone();
        move |ctx| {
            let healed = *healed.lock().expect("no panic");
            Box::pin(async move {
                record(ctx).await?;
                let fails = ctx.metadata().id.as_str() == "head" && !healed;
                if fails { Err("not yet".into()) } else { Ok(()) }
            })
        }
    });
    // Two processes of four executors, and a pause that is over only when this test says so.
    let start = |outbox| Running::start(ledger(outbox, &script).config(patient()));
    let (here, there) = (start(&outbox), start(&elsewhere(&database).await));
    eventually("the head to be parked", LONG, async || database.count("outbox_parked").await == 1).await;
    for n in 0..5 {
        publish(&outbox, placed_as(&format!("successor-{n}"), "7")).await;
        publish(&outbox, placed_as(&format!("other-{n}"), &format!("other-{n}"))).await;
    }
    // The witnesses were published after the successors, some of them in the same lane.
    for n in 0..100 {
        publish(&outbox, placed_as(&format!("witness-{n}"), &format!("witness-{n}"))).await;
    }
    effects(&database, 105).await;
    let before = handled(&database).await;
    assert_eq!(before.len(), 105);
    assert!(!before.iter().any(|id| id == "head" || id.starts_with("successor")), "{before:?}");

    *healed.lock().expect("no panic") = true;
    due_now(&database).await;
    settled(&database).await;
    here.stop().await;
    there.stop().await;
    let after = handled(&database).await[105..].to_vec();
    assert_eq!(after, ["head", "successor-0", "successor-1", "successor-2", "successor-3", "successor-4"]);
}

async fn a_failed_message_and_its_successors_come_in_order<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    // Every third message fails twice before it succeeds, while others of its key keep coming.
    let script = Script::<DB>::new(|ctx| {
        Box::pin(async move {
            record(ctx).await?;
            let number: u32 = ctx.metadata().id.as_str().parse()?;
            if number.is_multiple_of(3) && ctx.metadata().attempt() < 3 {
                Err("not yet".into())
            } else {
                Ok(())
            }
        })
    });
    let config = outbox::ConsumerConfig {
        retry: Some(outbox::Retry::every(std::time::Duration::from_millis(3))),
        ..quick()
    };
    let start = |outbox| Running::start(ledger(outbox, &script).config(config.clone()));
    let (here, there) = (start(&outbox), start(&elsewhere(&database).await));
    for n in 0..120 {
        publish(&outbox, placed_as(&n.to_string(), &format!("{}", n % 5))).await;
    }
    settled(&database).await;
    here.stop().await;
    there.stop().await;
    let effects = database.effects().await;
    assert_eq!(effects.len(), 120);
    for key in 0..5 {
        let full = format!("order\u{1f}{key}");
        let delivered =
            effects.iter().filter(|e| e.key.as_deref() == Some(&full)).map(|e| e.message_id.clone());
        assert!(delivered.eq((0..120).filter(|n| n % 5 == key).map(|n| n.to_string())), "key {key}");
    }
    for effect in effects {
        let retried = effect.message_id.parse::<u32>().expect("a number").is_multiple_of(3);
        assert_eq!(effect.worker, if retried { "attempt 3" } else { "attempt 1" }, "{}", effect.message_id);
    }
}

async fn several_consumers_keep_the_order_each_for_itself<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let script = Script::<DB>::new(|ctx| {
        Box::pin(async move {
            record(ctx).await?;
            // One consumer stumbles over the first message of each key, the other does not.
            let metadata = ctx.metadata();
            let stumbles = metadata.consumer() == "audit" && metadata.id.as_str().ends_with("-0");
            if stumbles && metadata.attempt() == 1 { Err("stumbled".into()) } else { Ok(()) }
        })
    });
    let both = || ledger(&outbox, &script).handler::<Audit>();
    both().build().expect("complete").run_until_idle().await.expect("registered");
    for n in 0..10 {
        let tx = outbox.begin().await.expect("begun");
        for key in ["a", "b", "c"] {
            tx.publish(placed_as(&format!("{key}-{n}"), key)).expect("accepted");
        }
        tx.commit().await.expect("committed");
    }
    let running = Running::start(both());
    settled(&database).await;
    running.stop().await;
    for consumer in ["ledger", "audit"] {
        let handled = handled_by(&database, consumer).await;
        assert_eq!(handled.len(), 30, "{consumer}");
        for key in ["a", "b", "c"] {
            let of_key = handled.iter().filter(|id| id.starts_with(key)).cloned();
            assert!(of_key.eq((0..10).map(|n| format!("{key}-{n}"))), "{consumer} {key}");
        }
    }
}
