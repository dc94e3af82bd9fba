//! What a handler does to the connection that it was lent must hurt nobody but its own message.

use std::time::{Duration, Instant};

use outbox::__private::FromContext as _;
use outbox::{ConsumerConfig, Context, Draft, HandlerError, State};
use outbox_tests::worker::PLACED;
use outbox_tests::{Effect, TestBackend, TestDatabase, handler};

use crate::check;

/// Runs statements at the first attempt of the message that has the key `bad`.
async fn spoil<DB: TestBackend>(ctx: &mut Context<DB>) -> Result<(), HandlerError> {
    let metadata = ctx.metadata().clone();
    let statements: State<&'static str> = State::from_context(ctx)?;
    let effect = Effect {
        message_id: metadata.id.to_string(),
        consumer: metadata.consumer().to_owned(),
        key: metadata.key.clone(),
        worker: String::new(),
    };
    DB::insert_effect(ctx, &effect).await?;
    if metadata.attempt() == 1 && metadata.aggregate_id.as_deref() == Some("bad") {
        let _ = DB::execute(ctx, *statements).await;
    }
    Ok(())
}

handler!(Spoils, consumer "spoils", types [PLACED], run spoil);

/// One message spoils its connection with `statements`; it and all others are handled once, and soon.
async fn only_its_own_message_suffers<DB: TestBackend>(statements: &'static str) {
    let Some(database) = TestDatabase::<DB>::migrated().await else { return };
    let outbox = database.outbox();
    let tx = outbox.begin().await.expect("begun");
    for order in ["bad", "1", "2", "3", "bad", "4", "5", "6"] {
        tx.publish(Draft::new(PLACED.event_type, "{}").aggregate_id(order)).expect("accepted");
    }
    tx.commit().await.expect("committed");
    let config = ConsumerConfig {
        executors: 1,
        poll_interval: Duration::from_millis(20),
        retry: Some(outbox::Retry::every(Duration::from_millis(10))),
        ..ConsumerConfig::default()
    };
    let consumers = outbox.consumers().handler::<Spoils>().state(statements).config(config);
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = consumers.build().expect("complete").run_until(async { drop(stopped.await) });
    let running = tokio::spawn(running);
    let begun = Instant::now();
    outbox_tests::eventually(statements, Duration::from_mins(1), async || {
        check::undone(&database).await == 0 && database.count("effects").await > 0
    })
    .await;
    crate::show(&format!("{}: `{statements}` was over after {:?}", DB::NAME, begun.elapsed()));
    stop.send(()).expect("the consumers still run");
    running.await.expect("no consumer panics").expect("the consumers ran");
    assert_eq!(database.count("effects").await, 8, "{statements}");
    assert_eq!(check::duplicates(&database).await, 0, "{statements}");
    assert_eq!(check::order_violations(&database).await, 0, "{statements}");
}

#[tokio::test]
async fn a_handler_spoils_its_connection_on_sqlite() {
    for statements in ["pragma query_only = on", "rollback", "pragma cache_size = 1", "savepoint mine"] {
        only_its_own_message_suffers::<sqlx::Sqlite>(statements).await;
    }
}

/// Ends its transaction at the first attempt, and then writes while another has the file, until its time is over.
async fn outstay<DB: TestBackend>(ctx: &mut Context<DB>) -> Result<(), HandlerError> {
    let metadata = ctx.metadata().clone();
    let other: State<sqlx::Pool<DB>> = State::from_context(ctx)?;
    let effect = |worker: &str| Effect {
        message_id: metadata.id.to_string(),
        consumer: metadata.consumer().to_owned(),
        key: metadata.key.clone(),
        worker: worker.to_owned(),
    };
    if metadata.attempt() == 1 {
        DB::execute(ctx, "rollback").await?;
        let mut other = other.acquire().await?;
        DB::execute(&mut other, "begin immediate").await?;
        tokio::spawn(async move {
            tokio::time::sleep(HELD).await; // sleep-ok: how long the file is held is what is tested
            DB::execute(&mut other, "rollback").await.expect("the other transaction ends");
        });
        DB::insert_effect(ctx, &effect("after rollback")).await?;
    }
    DB::insert_effect(ctx, &effect("in time")).await?;
    Ok(())
}

handler!(Outstays, consumer "outstays", types [PLACED], run outstay);

/// Longer than the handler's time and than its statement is given to end.
const HELD: Duration = Duration::from_millis(800);

#[tokio::test]
async fn what_waits_on_a_closed_connection_is_never_committed_on_sqlite() {
    let database = TestDatabase::<sqlx::Sqlite>::migrated().await.expect("SQLite needs no server");
    let outbox = database.outbox();
    let tx = outbox.begin().await.expect("begun");
    tx.publish(Draft::new(PLACED.event_type, "{}")).expect("accepted");
    tx.commit().await.expect("committed");
    let config = ConsumerConfig {
        // After everything that waits for the file has had it.
        retry: Some(outbox::Retry::every(HELD * 2)),
        ..ConsumerConfig::default()
    };
    let other = database.another_pool(1).await;
    let consumers = outbox.consumers().handler::<Outstays>().state(other).config(config);
    let consumers = consumers.options("outstays", |options| options.timeout = Duration::from_millis(100));
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = tokio::spawn(consumers.build().expect("complete").run_until(async { drop(stopped.await) }));
    outbox_tests::eventually("the second attempt", Duration::from_mins(1), async || {
        database.count("effects").await > 0 && check::undone(&database).await == 0
    })
    .await;
    stop.send(()).expect("the consumers still run");
    running.await.expect("no consumer panics").expect("the consumers ran");
    let by: Vec<_> = database.effects().await.into_iter().map(|effect| effect.worker).collect();
    assert_eq!(by, ["in time"]);
}

#[cfg(feature = "postgres")]
#[tokio::test]
async fn a_handler_spoils_its_connection_on_postgres() {
    for statements in [
        "deallocate all",
        "set local role pg_monitor",
        "set role pg_monitor",
        "set constraints all immediate",
        "set transaction read only",
        "set local statement_timeout = '1ms'",
        "set default_transaction_read_only = off; rollback",
        "savepoint mine",
        "select pg_terminate_backend(pg_backend_pid())",
        "select pg_cancel_backend(pg_backend_pid())",
    ] {
        only_its_own_message_suffers::<sqlx::Postgres>(statements).await;
    }
}

#[cfg(feature = "mysql")]
#[tokio::test]
async fn a_handler_spoils_its_connection_on_mysql() {
    for statements in [
        "rollback",
        "commit; begin",
        "create table mine (id int)",
        "truncate business",
        "lock tables business write",
        "use information_schema",
        "set autocommit = 0",
        "set session transaction isolation level serializable",
        "set session innodb_lock_wait_timeout = 50",
        "set session sql_mode = 'ansi_quotes'",
        "set session sql_safe_updates = 1",
        "set @outbox_0_id = 'mine'",
        "savepoint mine",
        "release savepoint outbox_handler",
        "kill connection_id()",
        "kill query connection_id()",
    ] {
        only_its_own_message_suffers::<sqlx::MySql>(statements).await;
    }
}
