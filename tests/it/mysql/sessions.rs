//! What a deadlock leaves behind, and whose settings end where.

use std::sync::Arc;
use std::time::Duration;

use outbox::__private::Controls;
use outbox::{Config, ErrorKind, HandlerError};
use outbox_tests::{TestBackend as _, TestDatabase, eventually, mysql};
use sqlx::MySql;
use sqlx::mysql::MySqlPoolOptions;
use tokio::sync::Notify;

use super::database;
use crate::common::*;

/// What a handler does with the deadlock that it has lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Then {
    Returns,
    GoesOn,
}

/// A handler loses a deadlock in its first run. Returns the attempts that it was told, and the effects in the end.
async fn lose_a_deadlock(then: Then, controls: Controls) -> Option<(Vec<u32>, i64)> {
    let database = database().await?;
    let outbox = database.outbox_with(Config { controls, ..Config::default() });
    register(&outbox).await;
    database
        .execute(
            "create table pair (id int primary key, v int not null) engine = InnoDB; \
             insert into pair values (1, 0), (2, 0); create table weight (id int) engine = InnoDB",
        )
        .await;
    publish(&outbox, placed_as("m", "7")).await;

    // The server lets the one lose that has changed less.
    let mut heavy = database.pool().begin().await.expect("begun");
    let rows: Vec<_> = (0..100).map(|n| format!("({n})")).collect();
    let weight = format!("insert into weight values {}", rows.join(","));
    MySql::execute(&mut heavy, &weight).await.expect("written");
    MySql::execute(&mut heavy, "update pair set v = v + 1 where id = 2").await.expect("locked");

    let (has_first, attempts) = (Arc::new(Notify::new()), Arc::new(std::sync::Mutex::new(Vec::new())));
    let script = Script::<MySql>::new({
        let (has_first, attempts) = (has_first.clone(), attempts.clone());
        move |ctx| {
            let (has_first, attempts) = (has_first.clone(), attempts.clone());
            Box::pin(async move {
                let runs = {
                    let mut attempts = attempts.lock().expect("no panic under the lock");
                    attempts.push(ctx.metadata().attempt());
                    attempts.len()
                };
                record(ctx).await?;
                if runs > 1 {
                    return Ok(());
                }
                MySql::execute(ctx, "update pair set v = v + 1 where id = 1").await?;
                has_first.notify_one();
                let lost = MySql::execute(ctx, "update pair set v = v + 1 where id = 2").await;
                let error = lost.expect_err("the other one waits for what is locked here");
                if then == Then::Returns {
                    return Err(HandlerError::from(error));
                }
                let _ = record(ctx).await;
                Ok(())
            })
        }
    });
    // A second executor might run the message again before the first has recorded what became of it.
    let config = outbox::ConsumerConfig { executors: 1, ..quick() };
    let running = Running::start(ledger(&outbox, &script).config(config));
    has_first.notified().await;
    // Beside it the handler waits for what this one holds, and one of the two has lost.
    MySql::execute(&mut heavy, "update pair set v = v + 1 where id = 1")
        .await
        .expect("it outweighs the handler");
    heavy.rollback().await.expect("rolled back");
    settled(&database).await;
    running.stop().await;
    let attempts = attempts.lock().expect("no panic under the lock").clone();
    Some((attempts, database.count("effects").await))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_deadlock_that_a_handler_returns_is_no_attempt() {
    let Some(lost) = lose_a_deadlock(Then::Returns, Controls::ALL).await else { return };
    assert_eq!(lost, (vec![1, 1], 1));
}

/// A deadlock takes the whole transaction along, and what follows would be committed statement by statement.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn nothing_is_committed_behind_a_deadlock_that_was_swallowed() {
    let Some(lost) = lose_a_deadlock(Then::GoesOn, Controls::ALL).await else { return };
    assert_eq!(lost, (vec![1, 2], 1));
    let unguarded = Controls { commit_guard: false, ..Controls::ALL };
    let (attempts, effects) = lose_a_deadlock(Then::GoesOn, unguarded).await.expect("the server was there");
    assert_eq!((attempts, effects), (vec![1, 2], 2), "without the guard the stray effect stays");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_that_waits_too_long_for_another_may_try_again() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    let mut first = database.pool().begin().await.expect("begun");
    outbox.publish(&mut first, placed("7")).await.expect("published");
    let mut second = database.pool().begin().await.expect("begun");
    MySql::execute(&mut second, "set session innodb_lock_wait_timeout = 1").await.expect("set");
    let error = outbox.publish(&mut second, placed("7")).await.expect_err("the first holds the key");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.is_transient());
    // The statement alone was rolled back.
    outbox.publish(&mut second, placed("8")).await.expect("another key is free");
    second.commit().await.expect("committed");
    first.commit().await.expect("committed");
    assert_eq!(database.count("outbox_message").await, 2);
}

/// The second publish of a transaction fails: the first is as it was.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publish_that_fails_half_way_leaves_nothing() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    register(&outbox).await;
    database
        .execute(
            "create trigger refuses before insert on outbox_delivery for each row \
             begin if new.seq > 1 then signal sqlstate '45000' set message_text = 'refused'; end if; end",
        )
        .await;
    let mut tx = database.pool().begin().await.expect("begun");
    outbox.publish(&mut tx, placed("7")).await.expect("published");
    let error = outbox.publish(&mut tx, placed("8")).await.expect_err("its delivery is refused");
    assert_eq!(error.kind(), ErrorKind::Database);
    tx.commit().await.expect("committed");
    assert_eq!(database.count("outbox_message").await, 1);
    assert_eq!(database.count("outbox_delivery").await, 1);
    assert_eq!(database.count("outbox_unrouted").await, 0);
}

/// Whatever comes between a message and its deliveries: it is not stored without them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_is_not_where_it_was_put_is_not_stored() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    register(&outbox).await;
    database
        .execute(
            "create trigger renames before insert on outbox_message for each row \
             set new.id = if(new.id = 'renamed', 'other', new.id)",
        )
        .await;
    for name in ["alone", "renamed"] {
        let mut tx = database.pool().begin().await.expect("begun");
        outbox.publish(&mut tx, placed_as("before", "7")).await.expect("published");
        let published = outbox.publish(&mut tx, placed_as(name, "8")).await;
        assert_eq!(published.is_ok(), name == "alone", "{published:?}");
        MySql::execute(&mut tx, &format!("insert into business values ('{name}')")).await.expect("written");
        if name == "alone" {
            tx.rollback().await.expect("rolled back");
        } else {
            tx.commit().await.expect("committed");
        }
    }
    assert_eq!(database.texts("select id from outbox_message").await, ["before"]);
    assert_eq!(database.count("outbox_delivery").await, 1);
}

/// Settings of a cluster whose servers number in steps.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn numbers_may_have_gaps_between_the_messages_of_a_call() {
    let Some(database) = database().await else { return };
    register(&database.outbox()).await;
    let options = mysql::options(database.address()).expect("there is a server");
    let pool = MySqlPoolOptions::new()
        .after_connect(|conn, _| {
            Box::pin(async move {
                MySql::execute(conn, "set session auto_increment_increment = 7, auto_increment_offset = 3")
                    .await
            })
        })
        .connect_with(options)
        .await
        .expect("connected");
    let outbox = outbox::Outbox::new(pool);
    let names: Vec<_> = (0..150).map(|n| n.to_string()).collect();
    let mut tx = outbox.pool().begin().await.expect("begun");
    for half in names.chunks(75) {
        let tx_outbox = outbox.begin().await.expect("begun");
        for name in half {
            tx_outbox.publish(placed_as(name, "one")).expect("accepted");
        }
        tx_outbox.commit().await.expect("committed");
    }
    let list = [Placed::new("a"), Placed::new("b"), Placed::new("c")];
    outbox.publish_events(&mut tx, &list).await.expect("published");
    tx.commit().await.expect("committed");
    assert_eq!(database.number("select count(*) from outbox_message where seq % 7 = 3").await, 153);
    assert_eq!(drain(&database.outbox(), &Script::record()).await.handled, 153);
    let of_one: Vec<_> = handled(&database).await.into_iter().filter(|name| name.len() < 4).collect();
    assert_eq!(of_one, names);
}

/// A server or a hook can turn autocommit off, and what a statement does by itself is then lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_without_autocommit_beat_and_find_work() {
    let Some(database) = database().await else { return };
    let options = mysql::options(database.address()).expect("there is a server");
    let pool = MySqlPoolOptions::new()
        .after_connect(|conn, _| {
            Box::pin(async move { MySql::execute(conn, "set session autocommit = 0").await })
        })
        .connect_with(options)
        .await
        .expect("connected");
    let outbox = outbox::Outbox::with_config(pool, Config { notify: false, ..Config::default() });
    register(&outbox).await;
    let running = Running::start(ledger(&outbox, &Script::record()));
    eventually("a heartbeat", LONG, async || database.count("outbox_worker").await == 1).await;
    // Of another process, so that only a look at the database finds it.
    for n in 1..=3 {
        publish(&database.outbox(), placed_as(&n.to_string(), "7")).await;
        effects(&database, n).await;
    }
    publish(&outbox, placed_as("here", "7")).await;
    effects(&database, 4).await;
    running.stop().await;
    assert_eq!(database.count("outbox_worker").await, 0, "it has said good-bye");
}

/// A connection of another character set: what is stored and what is handled are the same bytes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_character_set_of_a_connection_changes_nothing() {
    let Some(database) = database().await else { return };
    let options = mysql::options(database.address()).expect("there is a server").charset("latin1");
    let pool = MySqlPoolOptions::new().connect_with(options).await.expect("connected");
    let outbox = outbox::Outbox::new(pool);
    register(&outbox).await;
    let draft = placed_as("ä", "ключ").topic("θέμα").source("källa");
    publish(&outbox, draft).await;
    let stored =
        "select concat_ws(' ', hex(id), hex(topic), hex(aggregate_id), hex(source)) from outbox_message";
    let hex = |text: &str| text.bytes().map(|byte| format!("{byte:02X}")).collect::<Vec<_>>().concat();
    let expected = ["ä", "θέμα", "ключ", "källa"].map(hex).join(" ");
    assert_eq!(database.texts(stored).await, [expected]);
    let script = Script::<MySql>::new(|ctx| {
        Box::pin(async move {
            let metadata = ctx.metadata();
            assert_eq!((metadata.topic.as_str(), metadata.aggregate_id.as_deref()), ("θέμα", Some("ключ")));
            assert_eq!(metadata.source.as_deref(), Some("källa"));
            assert_eq!(metadata.id.as_str(), "ä");
            Ok(())
        })
    });
    let report = drain(&outbox, &script).await;
    assert_eq!((report.handled, report.retried), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn our_settings_stay_on_our_connections() {
    let Some(database) = database().await else { return };
    let pool = database.another_pool(1).await;
    let outbox = outbox::Outbox::new(pool.clone());
    let settings = "select concat_ws(' ', @@session.wait_timeout, @@session.innodb_lock_wait_timeout, @@session.autocommit)";
    let before = MySql::texts(&mut *pool.acquire().await.expect("connected"), settings).await.expect("read");
    register(&outbox).await;
    publish(&outbox, placed_as("m", "7")).await;
    let failing = Script::<MySql>::new(|_| Box::pin(async { Err(HandlerError::terminal("never")) }));
    assert_eq!(drain(&outbox, &failing).await.dead, 1);
    outbox.admin().requeue(&outbox::Dead::all()).await.expect("requeued");
    outbox.admin().pause("ledger").await.expect("paused");
    outbox.admin().resume("ledger").await.expect("resumed");
    let after = MySql::texts(&mut *pool.acquire().await.expect("connected"), settings).await.expect("read");
    assert_eq!(before, after);
    // A level that is said for one transaction is not that of the next.
    let mut tx = pool.begin().await.expect("begun");
    let seen = MySql::number(&mut tx, "select count(*) from outbox_message").await.expect("counted");
    publish(&database.outbox(), placed("8")).await;
    assert_eq!(MySql::number(&mut tx, "select count(*) from outbox_message").await.expect("counted"), seen);
}

/// The server ends what stands still: the transactions of ours alone, and not their connections between two of them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_executor_may_be_idle_for_longer_than_a_transaction() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    register(&outbox).await;
    let config = outbox::ConsumerConfig {
        executors: 1,
        idle_grace: Duration::ZERO,
        poll_interval: Duration::from_millis(20),
        ..outbox::ConsumerConfig::default()
    };
    let consumers = ledger(&outbox, &Script::record()).config(config);
    let consumers = consumers.options("ledger", |options| options.timeout = Duration::from_secs(1));
    let running = Running::start(consumers);
    publish(&outbox, placed_as("first", "7")).await;
    effects(&database, 1).await;
    let connections = async |database: &TestDatabase<MySql>| {
        database.texts("select cast(id as char) from information_schema.processlist where db = database() order by id").await
    };
    let before = connections(&database).await;
    let since = std::time::Instant::now();
    eventually("three seconds", LONG, async || since.elapsed() > Duration::from_secs(3)).await;
    assert_eq!(connections(&database).await, before, "no connection was ended");
    publish(&outbox, placed_as("second", "7")).await;
    effects(&database, 2).await;
    running.stop().await;
}
