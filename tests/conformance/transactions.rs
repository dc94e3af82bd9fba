//! Small pools, dropped futures, and whose connection is whose.

use std::future::Future;
use std::pin::pin;
use std::task::Poll;

use outbox::{ErrorKind, Outbox};
use outbox_tests::{TestBackend, TestDatabase};

use crate::common::*;

on_each_database!(
    a_pool_of_one_serves_application_and_consumers,
    handlers_may_use_the_applications_small_pool,
    a_dropped_begin_never_poisons_the_pool,
    a_dropped_begin_of_the_application_poisons_nothing_of_ours,
    what_the_application_left_open_is_in_nobodys_way,
    a_transaction_that_is_dropped_in_a_statement_never_poisons_the_pool,
    a_savepoint_that_is_dropped_leaves_nothing_behind,
    a_dropped_commit_is_one_or_the_other,
    a_migration_that_is_dropped_is_still_whole,
    a_closed_pool_is_an_error_and_no_wait,
    a_transaction_in_trouble_says_so_at_its_commit,
);

async fn a_pool_of_one_serves_application_and_consumers<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = Outbox::new(database.another_pool(1).await);
    register(&outbox).await;
    let running = Running::start(ledger(&outbox, &Script::record()));
    for n in 0..20 {
        let mut tx = outbox.begin().await.expect("begun");
        DB::execute(&mut tx, "insert into business (message_id) values ('x')").await.expect("written");
        tx.publish(placed_as(&n.to_string(), &format!("{}", n % 3))).expect("accepted");
        tx.commit().await.expect("committed");
    }
    settled(&database).await;
    running.stop().await;
    assert_eq!(database.count("effects").await, 20);
    assert_eq!(database.count("business").await, 20);
}

async fn handlers_may_use_the_applications_small_pool<DB: TestBackend>(database: TestDatabase<DB>) {
    let pool = database.another_pool(2).await;
    let outbox = Outbox::new(pool.clone());
    register(&outbox).await;
    let script = Script::<DB>::new(move |ctx| {
        let pool = pool.clone();
        Box::pin(async move {
            // Held together with the handler's own connection: four executors, two connections.
            let mut conn = pool.acquire().await?;
            DB::number(&mut conn, "select count(*) from business").await?;
            record(ctx).await
        })
    });
    let running = Running::start(ledger(&outbox, &script));
    for n in 0..100 {
        publish(&outbox, placed_as(&n.to_string(), &n.to_string())).await;
    }
    settled(&database).await;
    assert_eq!(running.stop().await.retried, 0);
    assert_eq!(database.count("effects").await, 100);
}

/// Polls a future so many times at most; `None` where it was dropped before it was ready.
async fn polled<F: Future>(future: F, times: usize) -> Option<F::Output> {
    let mut future = pin!(future);
    for _ in 0..times {
        let poll = std::future::poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await;
        if let Poll::Ready(output) = poll {
            return Some(output);
        }
        tokio::task::yield_now().await;
    }
    None
}

/// What was acknowledged is there for everybody, and the pool's only connection is in no transaction.
async fn the_pool_is_sound<DB: TestBackend>(database: &TestDatabase<DB>, outbox: &Outbox<DB>, round: usize) {
    let name = format!("witness-{round}");
    let mut tx = outbox.begin().await.expect("begun");
    let write = format!("insert into business (message_id) values ('{name}')");
    DB::execute(&mut tx, &write).await.expect("written");
    tx.publish(placed_as(&name, "7")).expect("accepted");
    tx.commit().await.expect("committed");
    let seen = format!("select count(*) from business where message_id = '{name}'");
    assert_eq!(database.number(&seen).await, 1, "acknowledged in round {round} and not there");
    let seen = format!("select count(*) from outbox_message where id = '{name}'");
    assert_eq!(database.number(&seen).await, 1, "acknowledged in round {round} and not there");
}

async fn a_dropped_begin_never_poisons_the_pool<DB: TestBackend>(database: TestDatabase<DB>) {
    let pool = database.another_pool(1).await;
    let outbox = Outbox::new(pool.clone());
    register(&outbox).await;
    for round in 0..100 {
        drop(polled(outbox.begin(), round % 10).await);
        the_pool_is_sound(&database, &outbox, round).await;
        // A plain statement of the application is committed by itself.
        let mut conn = pool.acquire().await.expect("there is one");
        DB::execute(&mut conn, "insert into business (message_id) values ('plain')").await.expect("written");
        drop(conn);
    }
    let plain = "select count(*) from business where message_id = 'plain'";
    assert_eq!(database.number(plain).await, 100);
    if is_postgres::<DB>() {
        let idle = "select count(*) from pg_stat_activity \
                    where datname = current_database() and state like 'idle in transaction%'";
        assert_eq!(database.number(idle).await, 0);
    }
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 100);
}

async fn a_dropped_begin_of_the_application_poisons_nothing_of_ours<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    let pool = database.another_pool(1).await;
    let outbox = Outbox::new(pool.clone());
    register(&outbox).await;
    let running = Running::start(ledger(&outbox, &Script::record()));
    for round in 0..100 {
        drop(polled(pool.begin(), round % 10).await);
        the_pool_is_sound(&database, &outbox, round).await;
    }
    settled(&database).await;
    running.stop().await;
    assert_eq!(database.count("effects").await, 100);
}

/// A BEGIN that sqlx did not send, and on some databases a statement that failed behind it.
async fn what_the_application_left_open_is_in_nobodys_way<DB: TestBackend>(database: TestDatabase<DB>) {
    let pool = database.another_pool(1).await;
    let outbox = Outbox::new(pool.clone());
    register(&outbox).await;
    for (round, fails) in [false, true].into_iter().enumerate() {
        let mut conn = pool.acquire().await.expect("there is one");
        DB::execute(&mut conn, "begin").await.expect("begun");
        if fails {
            DB::execute(&mut conn, "insert into no_such_table values (1)").await.expect_err("there is none");
        }
        drop(conn);
        the_pool_is_sound(&database, &outbox, round).await;
    }
}

async fn a_transaction_that_is_dropped_in_a_statement_never_poisons_the_pool<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    let pool = database.another_pool(1).await;
    let outbox = Outbox::new(pool.clone());
    register(&outbox).await;
    for round in 0..60 {
        let mut tx = outbox.begin().await.expect("begun");
        // Another text each time, so that there is something to prepare.
        let write = format!("insert into business (message_id) values ('dropped {round}')");
        drop(polled(DB::execute(&mut tx, &write), round % 12).await);
        drop(polled(DB::number(&mut tx, "select count(*) from business"), round % 7).await);
        drop(tx);
        the_pool_is_sound(&database, &outbox, round).await;
    }
    let dropped = "select count(*) from business where message_id like 'dropped%'";
    assert_eq!(database.number(dropped).await, 0);
}

async fn a_savepoint_that_is_dropped_leaves_nothing_behind<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let mut tx = outbox.begin().await.expect("begun");
    tx.publish(placed_as("before", "7")).expect("accepted");
    let within = tokio::sync::Notify::new();
    let work = tx.savepoint(async |tx| {
        DB::execute(tx, "insert into business (message_id) values ('dropped')").await?;
        tx.publish(placed_as("dropped", "7"))?;
        tx.savepoint(async |tx| {
            DB::execute(tx, "insert into business (message_id) values ('dropped too')").await?;
            tx.publish(placed_as("dropped-too", "7"))?;
            within.notify_one();
            std::future::pending::<anyhow::Result<()>>().await
        })
        .await
    });
    tokio::select! {
        biased;
        done = work => panic!("{done:?}"),
        () = within.notified() => {}
    }
    DB::execute(&mut tx, "insert into business (message_id) values ('after')").await.expect("it goes on");
    tx.savepoint(async |tx| tx.publish(placed_as("after", "7")).map(drop)).await.expect("it goes on");
    tx.commit().await.expect("committed");
    let messages = database.texts("select cast(id as char(20)) from outbox_message order by seq").await;
    let messages: Vec<&str> = messages.iter().map(|id| id.trim_end()).collect();
    assert_eq!(messages, ["before", "after"]);
    let business = database.texts("select cast(message_id as char(20)) from business").await;
    assert_eq!(business.iter().map(|id| id.trim_end()).collect::<Vec<_>>(), ["after"]);
}

async fn a_dropped_commit_is_one_or_the_other<DB: TestBackend>(database: TestDatabase<DB>) {
    let pool = database.another_pool(1).await;
    let outbox = Outbox::new(pool.clone());
    register(&outbox).await;
    for round in 0..60 {
        let name = format!("dropped-{round}");
        let mut tx = outbox.begin().await.expect("begun");
        let write = format!("insert into business (message_id) values ('{name}')");
        DB::execute(&mut tx, &write).await.expect("written");
        tx.publish(placed_as(&name, "7")).expect("accepted");
        tx.publish(placed_as(&format!("{name}-too"), "8")).expect("accepted");
        drop(polled(tx.commit(), round % 12).await);
        the_pool_is_sound(&database, &outbox, round).await;
        let there = |table, column| {
            format!("select count(*) from {table} where {column} like '{name}' or {column} like '{name}-%'")
        };
        let business = database.number(&there("business", "message_id")).await;
        let messages = database.number(&there("outbox_message", "id")).await;
        assert_eq!(messages, 2 * business, "round {round}");
        let deliveries = "select count(*) - (select count(*) from outbox_message) from outbox_delivery";
        assert_eq!(database.number(deliveries).await, 0, "round {round}");
    }
}

async fn a_migration_that_is_dropped_is_still_whole<DB: TestBackend>(database: TestDatabase<DB>) {
    let pool = database.another_pool(1).await;
    for round in 0..20_usize {
        let tables = outbox::Tables::new("", &format!("r{round}_")).expect("valid names");
        let config = || outbox::Config { tables: tables.clone(), ..outbox::Config::default() };
        let outbox = Outbox::with_config(pool.clone(), config());
        drop(polled(outbox.migrate(), round).await);
        outbox.migrate().await.expect("migrated");
        let tx = outbox.begin().await.expect("begun");
        tx.publish(placed("7")).expect("accepted");
        tx.commit().await.expect("committed");
        assert_eq!(database.count(&format!("r{round}_outbox_message")).await, 1);
    }
}

async fn a_closed_pool_is_an_error_and_no_wait<DB: TestBackend>(database: TestDatabase<DB>) {
    let pool = database.another_pool(1).await;
    let outbox = Outbox::new(pool.clone());
    pool.close().await;
    let error = outbox.begin().await.expect_err("closed");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let error = outbox.migrate().await.expect_err("closed");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    let error = outbox.schema_status().await.expect_err("closed");
    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

async fn a_transaction_in_trouble_says_so_at_its_commit<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    if is_mysql::<DB>() {
        // It looks at nothing in its commit, and some statements commit by themselves: what follows them is no part of
        // any transaction.
        let mut tx = outbox.begin().await.expect("begun");
        DB::execute(&mut tx, "create table other (id int)").await.expect("made");
        tx.publish(placed("7")).expect("accepted");
        let error = tx.commit().await.expect_err("there is no transaction");
        assert_eq!(error.kind(), ErrorKind::TransactionAborted);
        assert_eq!(database.count("outbox_message").await, 0);
        let mut tx = outbox.begin().await.expect("begun");
        DB::execute(&mut tx, "drop table other").await.expect("dropped");
        assert_eq!(tx.commit().await.expect_err("no transaction").kind(), ErrorKind::TransactionAborted);
        publish(&outbox, placed("7")).await;
        assert_eq!(database.count("outbox_message").await, 1);
        return;
    }
    // A constraint that is looked at by the commit.
    database
        .execute(
            "create table parent (id bigint primary key); create table child (id bigint primary key, \
             parent bigint not null references parent (id) deferrable initially deferred)",
        )
        .await;
    let mut tx = outbox.begin().await.expect("begun");
    DB::execute(&mut tx, "insert into child (id, parent) values (1, 99)").await.expect("looked at later");
    tx.publish(placed("7")).expect("accepted");
    let error = tx.commit().await.expect_err("no such parent");
    assert_eq!(error.kind(), ErrorKind::Database);
    assert!(!error.is_transient());
    assert_eq!(error.sqlstate(), Some(by_database::<DB, _>("787", "23503", "")));
    assert_eq!(database.count("outbox_message").await, 0);
    publish(&outbox, placed("7")).await;
    assert_eq!(database.count("outbox_message").await, 1);
}
