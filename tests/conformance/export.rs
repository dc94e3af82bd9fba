//! A publish that another client of the database executes.

use std::time::{Duration, SystemTime};

use outbox::{Draft, ErrorKind, Export, Headers};
use outbox_tests::{TestBackend, TestDatabase, eventually};

use crate::common::*;

on_each_database!(
    an_exported_publish_writes_what_a_publish_writes,
    an_exported_publish_is_part_of_its_transaction,
    an_id_that_is_there_is_published_once,
    an_exported_publish_waits_for_its_key,
    a_message_that_is_refused_is_not_exported,
    rows_that_are_missing_are_an_error,
);

/// As another client does it.
async fn execute<DB: TestBackend>(conn: &mut DB::Connection, publish: &Export) -> sqlx::Result<bool> {
    let mut stored = true;
    for statement in &publish.statements {
        let affected = DB::execute_statement(conn, statement).await?;
        stored &= statement.check(affected).expect("a possible number");
    }
    Ok(stored)
}

async fn begin<DB: TestBackend>(conn: &mut DB::Connection) {
    let begin = by_database::<DB, _>("begin immediate", "begin", "begin");
    DB::execute(conn, begin).await.expect("begun");
}

/// Every form of a message.
fn drafts(prefix: &str) -> Vec<Draft> {
    let headers = || {
        let mut headers = Headers::new();
        headers.insert("tenant", "a'b\u{1f980}").expect("valid");
        headers
    };
    let of = |n: &str| {
        Draft::new("order.placed", "{\"order\":\"7\",\"amount\":1.5}").id(id(&format!("{prefix}-{n}")))
    };
    let past = SystemTime::UNIX_EPOCH + Duration::from_micros(1_700_000_000_123_456);
    vec![
        of("plain"),
        of("ordered").aggregate_id("7; drop table business").headers(headers()).source("the shop"),
        of("keyed").key("its own").topic("orders").content_type("application/octet-stream").version(3),
        of("at a time").deliver_at(past),
        of("later").aggregate_id("7").deliver_after(Duration::from_hours(1)),
        Draft::new("nobody.asks", vec![0, 255, 39, 92]).id(id(&format!("{prefix}-unrouted"))),
    ]
}

async fn an_exported_publish_writes_what_a_publish_writes<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    for draft in drafts("a") {
        publish(&outbox, draft).await;
    }
    let mut conn = database.connection().await;
    begin::<DB>(&mut conn).await;
    for draft in drafts("b") {
        assert!(execute::<DB>(&mut conn, &outbox.export(draft).expect("accepted")).await.expect("executed"));
    }
    DB::execute(&mut conn, "commit").await.expect("committed");
    drop(conn);
    for columns in ["event_type", "topic", "source", "aggregate_id", "msg_key", "content_type", "headers"] {
        let of = async |prefix: &str| {
            let text = by_database::<DB, _>(
                columns.to_owned(),
                columns.to_owned(),
                format!("cast({columns} as binary)"),
            );
            let sql = format!(
                "select coalesce({text}, 'none') from outbox_message where id like '{prefix}-%' order by seq"
            );
            database.texts(&sql).await
        };
        assert_eq!(of("a").await, of("b").await, "{columns}");
    }
    for number in ["version", "payload_size", "coalesce(key_hash, 7)", "length(payload)"] {
        let of = async |prefix: &str| {
            let mut all = Vec::new();
            for draft in ["plain", "ordered", "keyed", "at a time", "later", "unrouted"] {
                let sql = format!(
                    "select cast({number} as {}) from outbox_message where id = '{prefix}-{draft}'",
                    by_database::<DB, _>("integer", "bigint", "signed")
                );
                all.push(database.number(&sql).await);
            }
            all
        };
        assert_eq!(of("a").await, of("b").await, "{number}");
    }
    let slots =
        "select count(distinct slot) from outbox_message where id like '%ordered' or id like '%keyed'";
    assert_eq!(database.number(slots).await, 2);
    let times = "select count(*) from (select 1 as one from outbox_message where id like '%at a time' group by deliver_at) t";
    assert_eq!(database.number(times).await, 1);
    let later = "select count(*) from outbox_parked where due_at is not null and state = 4";
    assert_eq!(database.number(later).await, 4);
    assert_eq!(database.count("outbox_unrouted").await, 2);
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 8);
}

async fn an_exported_publish_is_part_of_its_transaction<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let running = Running::start(
        ledger(&outbox, &Script::record())
            .config(outbox::ConsumerConfig { poll_interval: Duration::from_hours(1), ..quick() }),
    );
    eventually("a consumer", LONG, async || database.count("outbox_subscription").await == 1).await;
    let event = Placed::new("7");
    for end in ["rollback", "commit"] {
        let publish = outbox.export_event(&event).expect("accepted");
        let mut conn = database.connection().await;
        begin::<DB>(&mut conn).await;
        DB::execute(&mut conn, "insert into business values ('with it')").await.expect("written");
        assert!(execute::<DB>(&mut conn, &publish).await.expect("executed"));
        DB::execute(&mut conn, end).await.expect("ended");
        outbox.wake_consumers();
        if end == "commit" {
            effects(&database, 1).await;
            assert_eq!(handled(&database).await, [publish.id.to_string()]);
        }
    }
    if is_mysql::<DB>() {
        // Several statements, which would each be committed by itself.
        let publish = outbox.export_event(&event).expect("accepted");
        let error =
            execute::<DB>(&mut *database.connection().await, &publish).await.expect_err("no transaction");
        assert!(error.to_string().contains("SAVEPOINT"), "{error}");
    }
    assert_eq!(database.count("outbox_message").await, 1);
    assert_eq!(database.count("business").await, 1);
    running.stop().await;
}

async fn an_id_that_is_there_is_published_once<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    publish(&outbox, placed_as("m", "7")).await;
    let again = outbox.export(placed_as("m", "7")).expect("accepted");
    let mut conn = database.connection().await;
    begin::<DB>(&mut conn).await;
    let stored = execute::<DB>(&mut conn, &again).await;
    if is_mysql::<DB>() {
        let error = stored.expect_err("the unique key");
        assert!(error.to_string().contains("Duplicate entry"), "{error}");
    } else {
        assert!(!stored.expect("executed"));
    }
    DB::execute(&mut conn, by_database::<DB, _>("commit", "commit", "rollback")).await.expect("ended");
    drop(conn);
    assert_eq!(database.count("outbox_delivery").await, 1);
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 1);
}

async fn an_exported_publish_waits_for_its_key<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    let mut first = database.connection().await;
    begin::<DB>(&mut first).await;
    let one = outbox.export(placed_as("first", "7")).expect("accepted");
    assert!(execute::<DB>(&mut first, &one).await.expect("executed"));
    let second = {
        let outbox = elsewhere(&database).await;
        tokio::spawn(async move { publish(&outbox, placed_as("second", "7")).await })
    };
    somebody_waits(&database).await;
    DB::execute(&mut first, "commit").await.expect("committed");
    second.await.expect("no panic");
    drop(first);
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 2);
    assert_eq!(handled(&database).await, ["first", "second"]);
}

async fn a_message_that_is_refused_is_not_exported<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    for draft in [placed("a\0"), Draft::new("no type", "{}"), Draft::new("t", vec![0; 1024 * 1024 + 1])] {
        assert_eq!(outbox.export(draft).expect_err("refused").kind(), ErrorKind::InvalidMessage);
    }
}

async fn rows_that_are_missing_are_an_error<DB: TestBackend>(database: TestDatabase<DB>) {
    if !is_postgres::<DB>() && !is_mysql::<DB>() {
        // Nothing but the write lock orders publishers.
        return;
    }
    let outbox = database.outbox();
    database.execute("delete from outbox_order_slot").await;
    // On MySQL what has no order holds a gate, which is a row of the same table.
    let unordered = is_mysql::<DB>().then(|| Draft::new("order.placed", "{}"));
    for draft in [placed("7")].into_iter().chain(unordered) {
        let mut conn = database.connection().await;
        begin::<DB>(&mut conn).await;
        let publish = outbox.export(draft).expect("accepted");
        let error = execute::<DB>(&mut conn, &publish).await.expect_err("no slot");
        let says = by_database::<DB, _>("", "rows of the migration are missing", "'slot' cannot be null");
        assert!(error.to_string().contains(says), "{error}");
        DB::execute(&mut conn, "rollback").await.expect("ended");
    }
    assert_eq!(database.count("outbox_message").await, 0);
}
