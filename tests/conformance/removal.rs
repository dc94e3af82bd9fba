//! Consumers that nobody needs any more: listed, dropped with all they had, or without one of their types.

use outbox::__private::Controls;
use outbox::{Config, ConsumerInfo, Dead, Draft, ErrorKind, Outbox};
use outbox_tests::{Process, TestBackend, TestDatabase, eventually};

use crate::common::*;
use crate::{child, command};

on_each_database!(
    a_dropped_consumer_leaves_nothing_and_others_lose_nothing,
    a_consumer_that_runs_stays,
    a_publisher_in_flight_leaves_no_delivery_behind,
    without_the_wait_a_publisher_in_flight_leaves_one,
    a_publisher_that_holds_the_subscriptions_is_let_through,
    an_interrupted_drop_goes_on,
    a_process_that_was_away_ends_and_comes_back_as_a_new_consumer,
    a_type_goes_and_what_waited_behind_it_follows,
    what_a_publisher_in_flight_delivers_of_a_type_goes_too,
    consumers_are_listed_with_those_who_run_them,
);

/// What belongs to the consumer of this number.
async fn left<DB: TestBackend>(database: &TestDatabase<DB>, consumer: i64) -> i64 {
    let tables = [
        "delivery",
        "parked",
        "lane",
        "suspect",
        "attempt",
        "inbox",
        "subscription",
        "backfill",
        "consumer_name",
    ];
    let counts: Vec<_> = tables
        .iter()
        .map(|table| format!("(select count(*) from outbox_{table} where consumer = {consumer})"))
        .collect();
    database.number(&format!("select {}", counts.join(" + "))).await
}

async fn number_of<DB: TestBackend>(database: &TestDatabase<DB>, name: &str) -> i64 {
    database.number(&format!("select count(*) * max(id) from outbox_consumer where name = '{name}'")).await
}

async fn run_audit<DB: TestBackend>(outbox: &Outbox<DB>) -> u64 {
    let consumers = outbox.consumers().handler::<Audit>().state(Script::<DB>::record()).config(patient());
    consumers.build().expect("complete").run_until_idle().await.expect("it ran").handled
}

/// One of each: handled, dead, behind it, retrying, delayed, and many that are new.
async fn one_of_each<DB: TestBackend>(outbox: &Outbox<DB>) {
    register(outbox).await;
    publish(outbox, placed_as("handled", "1")).await;
    publish(outbox, placed_as("dead", "2")).await;
    publish(outbox, placed_as("behind", "2")).await;
    publish(outbox, placed_as("retrying", "3")).await;
    publish(outbox, placed_as("delayed", "4").deliver_after(std::time::Duration::from_hours(1))).await;
    let script = Script::<DB>::new(|ctx| {
        Box::pin(async move {
            match ctx.metadata().id.as_str() {
                "dead" => Err(outbox::HandlerError::terminal("broken")),
                "retrying" => Err("not yet".into()),
                _ => record(ctx).await,
            }
        })
    });
    drain(outbox, &script).await;
    let tx = outbox.begin().await.expect("begun");
    for n in 0..1_200 {
        // More in one lane than a transaction removes.
        let key = if n < 600 { "hot".to_owned() } else { n.to_string() };
        tx.publish(placed_as(&format!("new-{n}"), &key)).expect("accepted");
    }
    tx.commit().await.expect("committed");
}

async fn a_dropped_consumer_leaves_nothing_and_others_lose_nothing<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    let outbox = database.outbox();
    assert_eq!(run_audit(&outbox).await, 0);
    one_of_each(&outbox).await;
    let ledger = number_of(&database, "ledger").await;
    let admin = outbox.admin();
    assert_eq!(admin.drop_consumer("ledger").await.expect("dropped"), 1_204);
    assert_eq!(left(&database, ledger).await, 0);
    assert_eq!(database.number("select count(*) from outbox_dropped where done").await, 1);
    assert_eq!(admin.drop_consumer("ledger").await.expect_err("it is gone").kind(), ErrorKind::NotFound);
    assert_eq!(admin.dead(&Dead::all()).await.expect("read"), []);
    assert_eq!(run_audit(&outbox).await, 1_204, "all but the delayed one");

    // Who comes with the name is somebody else, and what was delivered before is not his.
    assert_eq!(database.count("outbox_unrouted").await, 0);
    register(&outbox).await;
    assert!(number_of(&database, "ledger").await > ledger);
    publish(&outbox, placed_as("later", "1")).await;
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 1);
}

async fn a_consumer_that_runs_stays<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let running = Running::start(ledger(&outbox, &Script::record()));
    publish(&outbox, placed_as("m", "1")).await;
    effects(&database, 1).await;
    let admin = outbox.admin();
    for refused in [admin.drop_consumer("ledger").await, admin.unsubscribe("ledger", "order.placed").await] {
        let error = refused.expect_err("it runs");
        assert_eq!(error.kind(), ErrorKind::Registry);
        assert!(error.to_string().contains("is run by the process"), "{error}");
    }
    publish(&outbox, placed_as("n", "1")).await;
    effects(&database, 2).await;
    running.stop().await;
    assert_eq!(admin.drop_consumer("ledger").await.expect("dropped"), 0);
}

/// A connection whose transactions lock no subscriptions; MySQL's do by default.
async fn read_committed<DB: TestBackend>(outbox: &Outbox<DB>) -> sqlx::pool::PoolConnection<DB> {
    let mut conn = outbox.pool().acquire().await.expect("connected");
    if is_mysql::<DB>() {
        let set = "set session transaction isolation level read committed";
        DB::execute(&mut conn, set).await.expect("set");
    }
    conn
}

/// Drops the consumer beside a transaction that has published, and says what became of its delivery.
async fn beside_a_publisher<DB: TestBackend>(database: &TestDatabase<DB>, controls: Controls) -> i64 {
    let outbox = database.outbox_with(Config { controls, ..Config::default() });
    register(&outbox).await;
    let publisher = elsewhere(database).await;
    let mut conn = read_committed(&publisher).await;
    let mut tx = sqlx::Connection::begin(&mut *conn).await.expect("begun");
    publisher.publish(&mut tx, placed_as("in flight", "1")).await.expect("published");
    let dropping = tokio::spawn(async move { outbox.admin().drop_consumer("ledger").await });
    if controls.drop_wait {
        eventually("the subscription to go", LONG, async || database.count("outbox_subscription").await == 0)
            .await;
    } else {
        eventually("the end of it", LONG, async || {
            database.number("select count(*) from outbox_dropped where done").await == 1
        })
        .await;
    }
    tx.commit().await.expect("committed");
    dropping.await.expect("no panic").expect("dropped");
    database.count("outbox_delivery").await
}

async fn a_publisher_in_flight_leaves_no_delivery_behind<DB: TestBackend>(database: TestDatabase<DB>) {
    if !is_postgres::<DB>() && !is_mysql::<DB>() {
        return; // There is one writer: nobody publishes beside it.
    }
    assert_eq!(beside_a_publisher(&database, Controls::ALL).await, 0);
}

async fn without_the_wait_a_publisher_in_flight_leaves_one<DB: TestBackend>(database: TestDatabase<DB>) {
    if !is_postgres::<DB>() {
        return; // On MySQL what removes the lane's row waits for it too, where it is there by then.
    }
    let off = Controls { drop_wait: false, ..Controls::ALL };
    assert_eq!(beside_a_publisher(&database, off).await, 1);
}

async fn a_publisher_that_holds_the_subscriptions_is_let_through<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    if !is_mysql::<DB>() {
        return; // No other publisher locks them.
    }
    let outbox = database.outbox();
    register(&outbox).await;
    let (publisher, beside) = (elsewhere(&database).await, outbox.clone());
    let mut tx = publisher.pool().begin().await.expect("begun");
    publisher.publish(&mut tx, placed_as("first", "1")).await.expect("published");
    let dropping = tokio::spawn(async move { outbox.admin().drop_consumer("ledger").await });
    somebody_waits(&database).await;
    // Neither it nor any other waits for the consumer to go.
    publish(&beside, placed_as("beside", "2")).await;
    publisher.publish(&mut tx, placed_as("second", "3")).await.expect("published");
    tx.commit().await.expect("committed");
    assert_eq!(dropping.await.expect("no panic").expect("dropped"), 3);
    assert_eq!(database.count("outbox_delivery").await, 0);
}

async fn an_interrupted_drop_goes_on<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    one_of_each(&outbox).await;
    let ledger = number_of(&database, "ledger").await;
    for point in ["consumer dropped", "lane removed"] {
        let mut dying = command("drop", &database, &["ledger"]);
        let mut dying = Process::start(dying.env("OUTBOX_CRASH_POINT", point)).expect("it was built");
        eventually("it to die", LONG, async || !dying.is_running().expect("known")).await;
        assert_eq!(database.number("select count(*) from outbox_dropped where not done").await, 1, "{point}");
    }
    assert!(left(&database, ledger).await > 0);
    // Somebody comes with the name meanwhile; what is left of the other is none of his.
    register(&outbox).await;
    publish(&outbox, placed_as("later", "1")).await;
    outbox.admin().drop_consumer("ledger").await.expect("goes on");
    assert_eq!(left(&database, ledger).await, 0);
    assert_eq!(database.number("select count(*) from outbox_dropped where done").await, 1);
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 1, "the new one is still there");
}

async fn a_process_that_was_away_ends_and_comes_back_as_a_new_consumer<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    let outbox = database.outbox();
    let mut process = child("consume", &database, &["old"]);
    publish(&outbox, placed_as("before", "1")).await;
    effects(&database, 1).await;
    let admin = outbox.admin();
    let own = database.another_pool(1).await;
    let mut conn = own.acquire().await.expect("the pool has a connection");
    let writer = by_database::<DB, _>(Some("pragma busy_timeout = 100"), None, None);
    if let Some(impatient) = writer {
        DB::execute(&mut *conn, impatient).await.expect("a pragma");
    }
    eventually("it to stop between two writes", LONG, async || {
        process.stop().expect("stopped");
        // Nothing can take the lock on the file's writes from a process that stands still.
        let free = writer.is_none() || DB::execute(&mut *conn, "begin immediate; rollback").await.is_ok();
        if !free {
            process.resume().expect("resumed");
        }
        free
    })
    .await;
    eventually("it to be taken for dead", LONG, async || match admin.drop_consumer("ledger").await {
        Ok(_) => true,
        Err(error) => {
            assert!(matches!(error.kind(), ErrorKind::Registry | ErrorKind::Conflict), "{error}");
            false
        }
    })
    .await;
    process.resume().expect("resumed");
    eventually("it to end", LONG, async || !process.is_running().expect("known")).await;
    assert!(!process.ended().expect("known").expect("it has").success());
    publish(&outbox, placed_as("between", "1")).await;
    assert_eq!(database.count("outbox_unrouted").await, 1);
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 1, "it is the new consumer's");
    assert_eq!(handled(&database).await, ["before", "between"]);
}

fn shipped(id: &str, order: &str) -> Draft {
    Draft::new("order.shipped", "{}").aggregate_id(order).id(self::id(id))
}

async fn both<DB: TestBackend>(outbox: &Outbox<DB>, script: &Script<DB>) -> outbox::Report {
    let both = outbox.consumers().handler::<Both>().state(script.clone()).config(patient());
    both.build().expect("complete").run_until_idle().await.expect("it ran")
}

async fn a_type_goes_and_what_waited_behind_it_follows<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    both(&outbox, &Script::record()).await;
    publish(&outbox, shipped("dead", "1")).await;
    publish(&outbox, placed_as("behind", "1")).await;
    publish(&outbox, shipped("behind too", "1")).await;
    let terminal = Script::<DB>::new(|_| Box::pin(async { Err(outbox::HandlerError::terminal("broken")) }));
    assert_eq!(both(&outbox, &terminal).await.dead, 1);
    for n in 0..600 {
        let order = (n % 3).to_string();
        let tx = outbox.begin().await.expect("begun");
        tx.publish(shipped(&format!("shipped-{n}"), &order)).expect("accepted");
        tx.publish(placed_as(&format!("placed-{n}"), &order)).expect("accepted");
        tx.commit().await.expect("committed");
    }
    let admin = outbox.admin();
    assert_eq!(admin.unsubscribe("ledger", "order.shipped").await.expect("done"), 602);
    assert_eq!(admin.unsubscribe("ledger", "order.shipped").await.expect("again"), 0);
    assert_eq!(database.count("outbox_attempt").await, 0);
    publish(&outbox, shipped("nobody's", "1")).await;
    assert_eq!(database.count("outbox_unrouted").await, 1);
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 601);
    assert_eq!(outbox_tests::check::order_violations(&database).await, 0);
    assert_eq!(database.count("outbox_parked").await, 0);
}

async fn what_a_publisher_in_flight_delivers_of_a_type_goes_too<DB: TestBackend>(database: TestDatabase<DB>) {
    if !is_postgres::<DB>() && !is_mysql::<DB>() {
        return; // There is one writer: nobody publishes beside it.
    }
    let outbox = database.outbox();
    both(&outbox, &Script::record()).await;
    let publisher = elsewhere(&database).await;
    let mut conn = read_committed(&publisher).await;
    let mut tx = sqlx::Connection::begin(&mut *conn).await.expect("begun");
    publisher.publish(&mut tx, shipped("in flight", "1")).await.expect("published");
    publisher.publish(&mut tx, placed_as("stays", "2")).await.expect("published");
    let removing = tokio::spawn(async move { outbox.admin().unsubscribe("ledger", "order.shipped").await });
    eventually("the subscription to go", LONG, async || database.count("outbox_subscription").await == 1)
        .await;
    tx.commit().await.expect("committed");
    assert_eq!(removing.await.expect("no panic").expect("done"), 1);
    assert_eq!(database.count("outbox_delivery").await, 1);
    assert_eq!(drain(&publisher, &Script::record()).await.handled, 1);
}

async fn consumers_are_listed_with_those_who_run_them<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    assert_eq!(run_audit(&outbox).await, 0);
    outbox.inbox("only an inbox").await.expect("made");
    let books = outbox.consumers().handler::<Books>().state(Script::<DB>::record()).config(quick());
    let running = Running::start(books);
    publish(&outbox, placed_as("m", "1")).await;
    effects(&database, 1).await;
    outbox.admin().pause("audit").await.expect("paused");
    let listed = outbox.admin().consumers().await.expect("listed");
    let said = |consumer: &ConsumerInfo| {
        let ConsumerInfo { name, names, event_types, paused, workers, .. } = consumer;
        let orphaned = consumer.is_orphaned();
        format!("{name} {names:?} {event_types:?} {paused} {} {orphaned}", workers.len())
    };
    assert_eq!(
        listed.iter().map(said).collect::<Vec<_>>(),
        [
            r#"audit ["audit"] ["order.placed"] true 0 true"#,
            r#"books ["books", "ledger"] ["order.placed"] false 1 false"#,
            r#"only an inbox ["only an inbox"] [] false 0 false"#,
        ]
    );
    assert_eq!(listed[1].workers[0].pid, i64::from(std::process::id()));
    running.stop().await;
    let listed = outbox.admin().consumers().await.expect("listed");
    assert!(listed[1].is_orphaned());
}
