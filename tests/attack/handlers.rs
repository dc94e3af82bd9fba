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
