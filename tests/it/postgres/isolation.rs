//! Order and visibility, where transactions really run beside each other.

use std::sync::Arc;

use outbox::{Draft, ErrorKind, Published};
use outbox_tests::{TestBackend as _, eventually};
use sqlx::{Executor as _, Postgres};
use tokio::sync::Barrier;

use super::database;
use crate::common::*;

const LEVELS: [&str; 3] = [
    "begin isolation level read committed",
    "begin isolation level repeatable read",
    "begin isolation level serializable",
];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lower_number_that_commits_later_is_delivered() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    register(&outbox).await;
    for round in 0..10 {
        let mut late = database.pool().begin().await.expect("begun");
        outbox.publish(&mut late, placed_as(&format!("late-{round}"), "a")).await.expect("published");
        publish(&outbox, placed_as(&format!("early-{round}"), "b")).await;
        assert_eq!(drain(&outbox, &Script::record()).await.handled, 1);
        late.commit().await.expect("committed");
        assert_eq!(drain(&outbox, &Script::record()).await.handled, 1);
    }
    // Many at once, in any order of commits.
    let mut open = Vec::new();
    for n in 0..9 {
        let mut tx = database.pool().begin().await.expect("begun");
        outbox
            .publish(&mut tx, placed_as(&format!("open-{n}"), &format!("open-{n}")))
            .await
            .expect("published");
        open.push(tx);
    }
    fastrand::shuffle(&mut open);
    let other = elsewhere(&database).await;
    for tx in open {
        tx.commit().await.expect("committed");
        assert_eq!(drain(&other, &Script::record()).await.handled, 1);
    }
    assert_eq!(database.count("effects").await, 29);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_write_transaction_elsewhere_stalls_nobody() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    register(&outbox).await;
    let mut idle = database.pool().begin().await.expect("begun");
    idle.execute("insert into business (message_id) values ('backup')").await.expect("written");
    // And one that has published to another aggregate, with an old snapshot.
    let mut publisher = database.pool().begin_with(LEVELS[1]).await.expect("begun");
    outbox.publish(&mut publisher, placed_as("open", "open")).await.expect("published");
    let running = Running::start(ledger(&outbox, &Script::record()));
    for n in 1..=10 {
        publish(&outbox, placed_as(&n.to_string(), &n.to_string())).await;
        effects(&database, n).await;
    }
    publisher.commit().await.expect("committed");
    effects(&database, 11).await;
    idle.rollback().await.expect("rolled back");
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishers_of_one_key_wait_for_each_other_and_others_do_not() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    register(&outbox).await;
    for level in LEVELS {
        let mut first = database.pool().begin_with(level).await.expect("begun");
        first.execute("select count(*) from business").await.expect("read");
        outbox.publish(&mut first, placed("7")).await.expect("published");
        let second = tokio::spawn({
            let outbox = outbox.clone();
            async move {
                let mut tx = outbox.pool().begin_with(level).await.expect("begun");
                tx.execute("select count(*) from business").await.expect("read");
                outbox.publish(&mut tx, placed("7")).await.expect("published");
                tx.commit().await.expect("committed");
            }
        });
        somebody_waits(&database).await;
        assert!(!second.is_finished());
        // Another key, and an unordered message, while both are there.
        publish(&outbox, placed("8")).await;
        publish(&outbox, Draft::new("order.placed", "{}")).await;
        assert!(!second.is_finished());
        first.commit().await.expect("committed");
        second.await.expect("no panic");
    }
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 12);
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
    assert_eq!(errors[0].sqlstate(), Some("40P01"));
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_id_at_once_under_the_stricter_levels_is_a_typed_conflict() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    register(&outbox).await;
    for (n, level) in LEVELS.into_iter().enumerate() {
        let name = format!("fact-{n}");
        let draft = || Draft::new("order.placed", "{}").id(id(&name));
        let mut second = database.pool().begin_with(level).await.expect("begun");
        second.execute("select count(*) from business").await.expect("read");
        publish(&outbox, draft()).await;
        match outbox.publish(&mut second, draft()).await {
            Ok(outcome) => {
                assert_eq!(n, 0, "{level}");
                assert_eq!(outcome, Published::Duplicate(id(&name)));
            }
            Err(error) => {
                assert_ne!(n, 0, "{level}: {error:?}");
                assert_eq!(error.kind(), ErrorKind::Conflict);
                assert_eq!(error.sqlstate(), Some("40001"));
                assert!(error.is_transient());
            }
        }
        second.rollback().await.expect("rolled back");
        // Run again, it is a duplicate like any other.
        let mut again = database.pool().begin_with(level).await.expect("begun");
        let outcome = outbox.publish(&mut again, draft()).await.expect("run again");
        assert_eq!(outcome, Published::Duplicate(id(&name)));
        again.commit().await.expect("committed");
    }
    assert_eq!(database.count("outbox_message").await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conflict_of_the_application_shows_its_code_through_the_publish() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    database.execute("insert into business (message_id) values ('0')").await;
    // Two serializable transactions that each read what the other changes; the publish is in their middle.
    let mut one = database.pool().begin_with(LEVELS[2]).await.expect("begun");
    let mut two = database.pool().begin_with(LEVELS[2]).await.expect("begun");
    for tx in [&mut one, &mut two] {
        Postgres::number(tx, "select count(*) from business").await.expect("read");
    }
    one.execute("insert into business (message_id) values ('1')").await.expect("written");
    two.execute("insert into business (message_id) values ('2')").await.expect("written");
    outbox.publish(&mut one, placed("a")).await.expect("published");
    one.commit().await.expect("committed");
    let failed = match outbox.publish(&mut two, placed("b")).await {
        Ok(_) => {
            let error = two.commit().await.expect_err("a cycle");
            error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned))
        }
        Err(error) => {
            assert!(error.is_transient() && error.kind() == ErrorKind::Conflict, "{error:?}");
            error.sqlstate().map(ToOwned::to_owned)
        }
    };
    assert_eq!(failed.as_deref(), Some("40001"));
    assert_eq!(database.count("outbox_message").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_handler_holds_up_neither_publishers_nor_others() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    register(&outbox).await;
    let gate = Arc::new(Barrier::new(2));
    let script = Script::<Postgres>::new({
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
    // To its own aggregate, and to others, none of which is in its lane by chance only.
    tokio::time::timeout(LONG, publish(&outbox, placed_as("behind", "7"))).await.expect("no wait");
    for n in 0..100 {
        publish(&outbox, placed_as(&n.to_string(), &n.to_string())).await;
    }
    // All but those of the held lane, which are about two of the hundred.
    let lane = "select count(*) from outbox_delivery d join outbox_message m on m.seq = d.seq \
                where m.id not in ('slow', 'behind') and d.lane <> (select d.lane from outbox_delivery d \
                join outbox_message m on m.seq = d.seq where m.id = 'slow')";
    eventually("the other lanes", LONG, async || database.number(lane).await == 0).await;
    assert!(database.count("effects").await >= 80);
    let before = handled(&database).await;
    assert!(!before.iter().any(|id| id == "slow" || id == "behind"));
    gate.wait().await;
    settled(&database).await;
    running.stop().await;
    let after = handled(&database).await;
    let at = |name: &str| after.iter().position(|id| id == name).expect("handled");
    assert!(at("slow") < at("behind"));
    assert_eq!(after.len(), 102);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_aborted_transaction_is_an_error_at_publish_and_at_commit() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    let mut tx = database.pool().begin().await.expect("begun");
    tx.execute("select * from no_such_table").await.expect_err("refused");
    for error in [
        outbox.publish(&mut tx, placed("7")).await.map(drop),
        outbox.publish_events(&mut tx, [Placed::new("7"), Placed::new("8")]).await.map(drop),
    ] {
        let error = error.expect_err("aborted");
        assert_eq!(error.kind(), ErrorKind::TransactionAborted);
        assert_eq!(error.sqlstate(), Some("25P02"));
        assert!(!error.is_transient());
    }
    drop(tx);
    // sqlx's own commit says Ok to what PostgreSQL rolls back; ours does not, published or not.
    for published in 0..3 {
        let mut tx = outbox.begin().await.expect("begun");
        tx.execute("insert into business (message_id) values ('x')").await.expect("written");
        for n in 0..published {
            tx.publish(placed(&n.to_string())).expect("accepted");
        }
        tx.execute("select * from no_such_table").await.expect_err("refused");
        let error = tx.commit().await.expect_err("rolled back");
        assert_eq!(error.kind(), ErrorKind::TransactionAborted, "{published} published");
        assert_eq!(error.sqlstate(), Some("25P02"));
    }
    assert_eq!(database.count("business").await + database.count("outbox_message").await, 0);
    let work = outbox.transaction(async |tx| {
        tx.execute("insert into business (message_id) values ('x')").await?;
        let _ = tx.execute("select * from no_such_table").await;
        Ok::<_, anyhow::Error>(())
    });
    work.await.expect_err("what it did is rolled back");
    assert_eq!(database.count("business").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_servers_default_level_does_not_change_the_consumers() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    let name = database.address();
    database
        .execute(&format!("alter database {name} set default_transaction_isolation = 'serializable'"))
        .await;
    let outbox_there = elsewhere(&database).await;
    register(&outbox_there).await;
    let running: Vec<_> = (0..6).map(|_| Running::start(ledger(&outbox_there, &Script::record()))).collect();
    for n in 0..100 {
        publish(&outbox, placed_as(&n.to_string(), &format!("{}", n % 5))).await;
    }
    settled(&database).await;
    for run in running {
        assert_eq!(run.stop().await.retried, 0);
    }
    let effects = database.effects().await;
    assert_eq!(effects.len(), 100);
    for key in 0..5_usize {
        let full = format!("order\u{1f}{key}");
        let ids = effects.iter().filter(|e| e.key.as_deref() == Some(&full)).map(|e| e.message_id.clone());
        assert!(ids.eq((0..100_usize).filter(|n| n % 5 == key).map(|n| n.to_string())));
    }
}

#[tokio::test]
async fn an_operator_changes_nothing_in_a_lane_that_cannot_be_locked() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    register(&outbox).await;
    publish(&outbox, placed("7")).await;
    let hopeless =
        Script::<Postgres>::new(|_| Box::pin(async { Err(outbox::HandlerError::terminal("no way")) }));
    assert_eq!(drain(&outbox, &hopeless).await.dead, 1);
    database.execute("delete from outbox_lane").await;
    let all = outbox::Dead::all();
    for error in [outbox.admin().requeue(&all).await, outbox.admin().discard(&all).await] {
        assert_eq!(error.expect_err("nothing is locked").kind(), ErrorKind::NotMigrated);
    }
    assert_eq!(outbox.admin().dead(&all).await.expect("listed").len(), 1);
}
