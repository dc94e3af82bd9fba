//! SQLite: one file, one writer, and transactions that begin as readers.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use outbox::__private::Controls;
use outbox::{Config, ConsumerConfig, ErrorKind, Outbox, Tables};
use outbox_tests::act::{Act, Left, Right, Runs};
use outbox_tests::child::{Consume, Orders, Task};
use outbox_tests::{Process, TestBackend as _, TestDatabase, eventually};
use sqlx::sqlite::{SqliteConnectOptions, SqlitePoolOptions};
use sqlx::{Executor as _, Sqlite, SqlitePool};

use crate::common::*;

async fn database() -> TestDatabase<Sqlite> {
    TestDatabase::migrated().await.expect("SQLite is always there")
}

/// When the leases end, all together.
async fn leases(pool: &SqlitePool) -> i64 {
    let sql = "select coalesce(sum(leased_until), 0) from outbox_lane";
    Sqlite::number(&mut *pool.acquire().await.expect("the one"), sql).await.expect("answered")
}

/// There the application's only connection also claims, settles and renews: none of it during a call.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_of_one_in_memory_serves_callers_too() {
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await.expect("opens");
    let outbox = Outbox::new(pool.clone());
    outbox.migrate().await.expect("migrated");
    let asks = pool.clone();
    let script = Script::<Sqlite>::new(move |_| {
        let pool = asks.clone();
        Box::pin(async move {
            let before = leases(&pool).await;
            while leases(&pool).await == before {
                let pause = Duration::from_millis(5);
                tokio::time::sleep(pause).await; // sleep-ok: between two looks, and the look decides
            }
            Ok(())
        })
    });
    let consumers = outbox.consumers().handler::<Caller>().state(script).config(quick());
    let consumers = consumers.options("calls", |options| options.lease = Duration::from_millis(300));
    let running = Running::start(consumers);
    for n in 0..6 {
        publish(&outbox, placed_as(&n.to_string(), &format!("{}", n % 3))).await;
    }
    let left = "select (select count(*) from outbox_delivery) + (select count(*) from outbox_inbox where claimed_by is not null)";
    eventually("all calls", LONG, async || {
        Sqlite::number(&mut *pool.acquire().await.expect("the one"), left).await.expect("answered") == 0
    })
    .await;
    let report = running.stop().await;
    assert_eq!((report.handled, report.leases_lost), (6, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pool_of_one_in_memory_serves_application_and_consumers() {
    for options in ["sqlite::memory:", "sqlite://", "sqlite://file:pool_of_one?mode=memory&cache=shared"] {
        let pool = SqlitePoolOptions::new().max_connections(1).connect(options).await.expect("opens");
        let outbox = Outbox::new(pool.clone());
        outbox.migrate().await.expect("migrated");
        Sqlite::create_ledger(&mut *pool.acquire().await.expect("the one")).await.expect("made");
        register(&outbox).await;
        let script = Script::<Sqlite>::new(|ctx| {
            Box::pin(async move {
                record(ctx).await?;
                let metadata = ctx.metadata().clone();
                if metadata.id.as_str() == "3" && metadata.attempt() == 1 {
                    Sqlite::execute(ctx, "commit").await?;
                }
                Ok(())
            })
        });
        let running = Running::start(ledger(&outbox, &script));
        for n in 0..20 {
            let mut tx = outbox.begin().await.expect("begun");
            Sqlite::execute(&mut tx, "insert into business (message_id) values ('x')")
                .await
                .expect("written");
            tx.publish(placed_as(&n.to_string(), &format!("{}", n % 3))).expect("accepted");
            tx.commit().await.expect("committed");
        }
        let left = "select (select count(*) from outbox_delivery) + (select count(*) from outbox_parked)";
        let number = async |sql| {
            Sqlite::number(&mut *pool.acquire().await.expect("the one"), sql).await.expect("answered")
        };
        eventually(options, LONG, async || number(left).await == 0).await;
        let report = running.stop().await;
        assert_eq!((report.handled, report.retried), (20, 1), "{options}");
        assert_eq!(number("select count(*) from effects").await, 20, "{options}");
        assert_eq!(number("select count(*) from business").await, 20, "{options}");
        // The refusal of a commit is no longer in the connection that was given back.
        pool.execute("insert into business (message_id) values ('plain')").await.expect("committed");
        assert_eq!(number("select count(*) from business").await, 21, "{options}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_that_is_dropped_leaves_a_borrowed_connection_as_it_was() {
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await.expect("opens");
    let outbox = Outbox::new(pool.clone());
    outbox.migrate().await.expect("migrated");
    Sqlite::create_ledger(&mut *pool.acquire().await.expect("the one")).await.expect("made");
    register(&outbox).await;
    publish(&outbox, placed_as("m", "7")).await;
    for _ in 0..3 {
        let begun = Arc::new(tokio::sync::Notify::new());
        let script = Script::<Sqlite>::new({
            let begun = begun.clone();
            move |ctx| {
                let begun = begun.clone();
                Box::pin(async move {
                    record(ctx).await?;
                    begun.notify_one();
                    std::future::pending().await
                })
            }
        });
        let running = Running::start(ledger(&outbox, &script));
        begun.notified().await;
        running.abort().await;
        // The application works on the connection at once: its statements are durable, the handler's are gone.
        pool.execute("insert into business (message_id) values ('x')").await.expect("committed");
    }
    let mut conn = pool.acquire().await.expect("the one");
    assert_eq!(Sqlite::number(&mut conn, "select count(*) from business").await.expect("answered"), 3);
    assert_eq!(Sqlite::number(&mut conn, "select count(*) from effects").await.expect("answered"), 0);
    drop(conn);
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_has_read_is_stale_once_another_has_written() {
    let database = database().await;
    let outbox = database.outbox();
    register(&outbox).await;
    for many in [false, true] {
        let mut tx = database.pool().begin().await.expect("begun");
        Sqlite::number(&mut tx, "select count(*) from business").await.expect("read");
        database.execute("insert into business (message_id) values ('x')").await;
        let error = if many {
            outbox.publish_events(&mut tx, [Placed::new("7"), Placed::new("8")]).await.map(drop)
        } else {
            outbox.publish_event(&mut tx, Placed::new("7")).await.map(drop)
        };
        let error = error.expect_err("its snapshot is old");
        assert_eq!(error.kind(), ErrorKind::StaleTransaction);
        assert!(error.is_transient());
        assert_eq!(error.sqlstate(), Some("517"));
        assert!(error.to_string().contains("outbox.begin()"), "{error}");
        tx.rollback().await.expect("rolled back");
    }
    // What the error advises.
    let mut tx = database.pool().begin_with("BEGIN IMMEDIATE").await.expect("begun");
    Sqlite::number(&mut tx, "select count(*) from business").await.expect("read");
    outbox.publish_event(&mut tx, Placed::new("7")).await.expect("published");
    tx.commit().await.expect("committed");
    let mut tx = outbox.begin().await.expect("begun");
    Sqlite::number(&mut tx, "select count(*) from business").await.expect("read");
    tx.publish_event(Placed::new("7")).expect("accepted");
    tx.commit().await.expect("committed");
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_has_read_cannot_wait_for_a_writer() {
    let database = database().await;
    let outbox = database.outbox();
    let mut reader = database.pool().begin().await.expect("begun");
    Sqlite::number(&mut reader, "select count(*) from business").await.expect("read");
    let mut writer = database.pool().begin_with("begin immediate").await.expect("begun");
    let error = outbox.publish_event(&mut reader, Placed::new("7")).await.expect_err("busy at once");
    assert_eq!(error.kind(), ErrorKind::StaleTransaction);
    assert!(error.is_transient());
    assert_eq!(error.sqlstate(), Some("5"));
    reader.rollback().await.expect("rolled back");

    // One whose first statement is the publish waits for the writer.
    let mut first = database.pool().begin().await.expect("begun");
    let mut publishing = outbox.publish_event(&mut first, Placed::new("7"));
    let early = tokio::time::timeout(Duration::from_millis(50), &mut publishing).await;
    assert!(early.is_err(), "somebody else is writing");
    Sqlite::execute(&mut writer, "insert into business (message_id) values ('x')").await.expect("written");
    writer.commit().await.expect("committed");
    publishing.await.expect("published");
    first.commit().await.expect("committed");
    assert_eq!(database.count("outbox_message").await, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_that_cannot_be_written_says_so() {
    let database = database().await;
    let options = SqliteConnectOptions::new().filename(database.address()).read_only(true);
    let pool = SqlitePool::connect_with(options).await.expect("opens");
    let outbox = Outbox::new(pool.clone());
    let mut tx = pool.begin().await.expect("begun");
    let published = outbox.publish_event(&mut tx, Placed::new("7")).await.map(drop);
    drop(tx);
    let committed = async {
        let tx = outbox.begin().await?;
        tx.publish(placed("7"))?;
        tx.commit().await.map(drop)
    };
    let started = ledger(&outbox, &Script::record()).build().expect("complete").run_once().await.map(drop);
    // There is nothing for it to do here; without tables there is.
    assert_eq!(outbox.migrate().await.expect("nothing to do").applied, [] as [i32; 0]);
    let tables = Tables::new("", "other_").expect("valid names");
    let other = Outbox::with_config(pool.clone(), Config { tables, ..Config::default() });
    for error in [published, committed.await, started, other.migrate().await.map(drop)] {
        let error = error.expect_err("read-only");
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error:?}");
        assert!(!error.is_transient());
    }
    assert!(matches!(outbox.schema_status().await.expect("asked"), outbox::SchemaStatus::Ready { .. }));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tables_may_be_in_an_attached_database() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let attach = format!("attach '{}' as side", folder.path().join("side.db").display());
    let main = SqliteConnectOptions::new().filename(folder.path().join("main.db")).create_if_missing(true);
    // The consumers' own connections attach it too, by the same hook.
    let pool = SqlitePoolOptions::new().after_connect(move |conn, _| {
        let attach = attach.clone();
        Box::pin(async move { conn.execute(sqlx::AssertSqlSafe(attach)).await.map(drop) })
    });
    let pool = pool.connect_with(main).await.expect("opens");
    let tables = Tables::new("side", "app_").expect("valid names");
    let outbox = Outbox::with_config(pool.clone(), Config { tables, ..Config::default() });
    outbox.migrate().await.expect("migrated");
    Sqlite::create_ledger(&mut *pool.acquire().await.expect("one")).await.expect("made");
    register(&outbox).await;
    publish(&outbox, placed_as("m", "7")).await;
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 1);
    let mut conn = pool.acquire().await.expect("one");
    let side = "select count(*) from side.sqlite_master where name like 'app_outbox%'";
    assert!(Sqlite::number(&mut conn, side).await.expect("answered") > 8);
    let main = "select count(*) from main.sqlite_master where name like '%outbox%'";
    assert_eq!(Sqlite::number(&mut conn, main).await.expect("answered"), 0);
}

/// More to do than there is time for, each message a millisecond and more.
async fn backlog(outbox: &Outbox<Sqlite>) {
    register(outbox).await;
    let tx = outbox.begin().await.expect("begun");
    for n in 0..20_000 {
        tx.publish(placed(&n.to_string())).expect("accepted");
    }
    tx.commit().await.expect("committed");
}

fn slow() -> Script<Sqlite> {
    Script::new(|ctx| {
        Box::pin(async move {
            let count = "with recursive n(i) as (values (1) union all select i + 1 from n where i < 5000) \
                         select cast(max(i) as text) from n";
            Sqlite::texts(ctx, count).await?;
            record(ctx).await
        })
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishers_get_their_turn_beside_busy_consumers() {
    let database = database().await;
    let outbox = database.outbox();
    backlog(&outbox).await;
    let other = elsewhere(&database).await;
    let (here, there) = (Running::start(ledger(&outbox, &slow())), Running::start(ledger(&other, &slow())));
    effects(&database, 5).await;
    for n in 0..20 {
        // Its busy timeout is five seconds, so a starved one fails.
        publish(&outbox, placed_as(&format!("late-{n}"), "late")).await;
    }
    assert!(database.count("outbox_delivery").await > 0, "the consumers were busy all the time");
    here.stop().await;
    there.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishers_get_their_turn_beside_busy_processes() {
    let database = database().await;
    let outbox = database.outbox();
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let runs = Runs::new(folder.path());
    let mut consumers = outbox.consumers().handler::<Left>().handler::<Right>();
    consumers = consumers.state(runs.clone());
    consumers.build().expect("complete").run_until_idle().await.expect("registered");
    let tx = outbox.begin().await.expect("begun");
    for n in 0..5_000 {
        tx.publish(Act::record().draft(&n.to_string())).expect("accepted");
    }
    tx.commit().await.expect("committed");
    let orders = Orders {
        database: <Sqlite as sqlx::Database>::NAME.to_owned(),
        address: database.address().to_owned(),
        log: folder.path().join("log"),
        runs: runs.path().to_owned(),
        task: Task::Consume(Consume::default()),
    };
    let orders = serde_json::to_string(&orders).expect("orders are JSON");
    let processes: Vec<_> = (0..3)
        .map(|_| Process::spawn(env!("CARGO_BIN_EXE_outbox-test-child"), &[&orders]).expect("it was built"))
        .collect();
    eventually("each process to work", LONG, async || {
        let all = runs.all();
        processes.iter().all(|process| all.iter().any(|run| run.pid == process.id()))
    })
    .await;
    for n in 0..20 {
        publish(&outbox, Act::record().draft(&format!("late-{n}"))).await;
    }
    assert!(database.count("outbox_delivery").await > 0, "the processes were busy all the time");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_publisher_starves_beside_a_consumer_that_does_not_give_way() {
    let database = database().await;
    backlog(&database.outbox()).await;
    let controls = Controls { give_way: false, ..Controls::ALL };
    let selfish = database.outbox_with(Config { controls, ..Config::default() });
    let running = Running::start(ledger(&selfish, &slow()));
    effects(&database, 5).await;
    // Less patient than the others, so as not to wait for long.
    let impatient =
        SqliteConnectOptions::new().filename(database.address()).busy_timeout(Duration::from_millis(500));
    let outbox = Outbox::new(SqlitePool::connect_with(impatient).await.expect("opens"));
    let mut published = 0;
    while outbox.begin().await.is_ok() {
        published += 1;
        assert!(published < 200, "it was never kept out");
    }
    assert!(database.count("outbox_delivery").await > 0, "the consumer was busy all the time");
    running.abort().await;
}

/// A file that is attached is watched too, by the consumers' own hook.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_to_an_attached_database_is_heard() {
    let folder = tempfile::tempdir().expect("a temporary folder can be made");
    let pool = || {
        let attach = format!("attach '{}' as side", folder.path().join("side.db").display());
        let main =
            SqliteConnectOptions::new().filename(folder.path().join("main.db")).create_if_missing(true);
        let pool = SqlitePoolOptions::new().after_connect(move |conn, _| {
            let attach = attach.clone();
            Box::pin(async move { conn.execute(sqlx::AssertSqlSafe(attach)).await.map(drop) })
        });
        pool.connect_with(main)
    };
    let outbox = |pool| {
        let tables = Tables::new("side", "app_").expect("valid names");
        Outbox::with_config(pool, Config { tables, ..Config::default() })
    };
    let (here, there) = (pool().await.expect("opens"), pool().await.expect("opens"));
    let (outbox, other) = (outbox(here.clone()), outbox(there));
    outbox.migrate().await.expect("migrated");
    Sqlite::create_ledger(&mut *here.acquire().await.expect("one")).await.expect("made");
    register(&outbox).await;
    let number =
        async |sql| Sqlite::number(&mut *here.acquire().await.expect("one"), sql).await.expect("answered");
    let rare = ConsumerConfig { poll_interval: Duration::from_hours(1), ..quick() };
    let running = Running::start(ledger(&outbox, &Script::record()).config(rare));
    let alive = "select count(*) from side.app_outbox_worker where heartbeat_at > started_at";
    eventually("the consumer to have begun", LONG, async || number(alive).await > 0).await;
    publish(&other, placed_as("m", "7")).await;
    eventually("its effect", LONG, async || number("select count(*) from effects").await > 0).await;
    running.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_text_that_is_not_utf_8_is_parked_and_blocks_nobody() {
    let database = database().await;
    let outbox = database.outbox();
    register(&outbox).await;
    for name in ["broken", "good"] {
        publish(&outbox, placed_as(name, name)).await;
    }
    // STRICT tables check the type and not the encoding.
    database.execute("update outbox_message set headers = cast(x'ff7b7d' as text) where id = 'broken'").await;
    let running = Running::start(ledger(&outbox, &Script::record()));
    effects(&database, 1).await;
    running.stop().await;
    assert_eq!(handled(&database).await, ["good"]);
    assert_eq!(database.number("select count(*) from outbox_parked where state = 6").await, 1);
}

/// SQLite cannot tell that somebody has ended the transaction; the pool must not suffer from it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_of_what_was_ended_by_hand_leaves_the_connection_fit() {
    let database = database().await;
    let outbox = Outbox::new(database.another_pool(1).await);
    let mut tx = outbox.begin().await.expect("begun");
    tx.execute("rollback").await.expect("rolled back");
    let error = tx.commit().await.expect_err("there is nothing to commit");
    assert_eq!(error.kind(), ErrorKind::Database, "{error}");
    publish(&outbox, placed_as("after", "7")).await;
    assert_eq!(database.count("outbox_message").await, 1);
}

/// A caller's own transaction on the file began as a reader, and another has written since: nobody's failure.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_snapshot_that_is_too_old_is_no_attempt_of_a_caller() {
    let database = database().await;
    let outbox = database.outbox();
    let (pool, tries) = (database.another_pool(2).await, Arc::new(AtomicUsize::new(0)));
    let locked = Arc::new(AtomicUsize::new(0));
    let script = Script::<Sqlite>::new({
        let (tries, locked) = (tries.clone(), locked.clone());
        move |_| {
            let (pool, again) = (pool.clone(), tries.fetch_add(1, Ordering::SeqCst) > 0);
            let locked = locked.clone();
            Box::pin(async move {
                let mut tx = pool.begin().await?;
                Sqlite::number(&mut tx, "select count(*) from business").await?;
                if !again {
                    let mut other = pool.acquire().await?;
                    Sqlite::execute(&mut other, "insert into business (message_id) values ('other')").await?;
                }
                let own = Sqlite::execute(&mut tx, "insert into business (message_id) values ('own')").await;
                let code = own.as_ref().err().and_then(|error| error.as_database_error()?.code());
                // An old snapshot, and a writer for whom one who has read may not wait.
                let conflict = matches!(code.as_deref(), Some("517" | "5"));
                locked.fetch_add(usize::from(conflict), Ordering::SeqCst);
                own?;
                Ok(tx.commit().await?)
            })
        }
    });
    let once = |options: &mut outbox::HandlerOptions| options.retry.max_attempts = 1;
    let consumers =
        outbox.consumers().handler::<Caller>().state(script).config(quick()).options("calls", once);
    let running = Running::start(consumers);
    publish(&outbox, placed_as("m", "7")).await;
    let own = "select count(*) from business where message_id = 'own'";
    eventually("the second call", LONG, async || database.number(own).await == 1).await;
    settled(&database).await;
    let report = running.stop().await;
    assert_eq!((report.handled, report.dead), (1, 0));
    // What the library writes meanwhile may be in the way of a later one too, and nothing else may.
    let locked = locked.load(Ordering::SeqCst);
    assert!(locked >= 1);
    assert_eq!(tries.load(Ordering::SeqCst), locked + 1);
}
