//! Sessions: settings that stay whose they are, connections that are cut, pools of one.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::{ConsumerConfig, Draft, ErrorKind, Outbox, Retention};
use outbox_tests::{Log, TestBackend as _, TestDatabase, eventually};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Executor as _, PgPool, Postgres};

use super::database;
use crate::common::*;

/// Sessions of this database under another name than the test's own.
const THEIRS: &str = "outbox-it-consumers";

fn options(database: &TestDatabase<Postgres>) -> PgConnectOptions {
    outbox_tests::postgres::options(database.address()).expect("there is a server").application_name(THEIRS)
}

async fn pool(options: PgConnectOptions, size: u32) -> PgPool {
    PgPoolOptions::new().max_connections(size).connect_with(options).await.expect("connects")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_applications_sessions_keep_their_settings() {
    let Some(database) = database().await else { return };
    let pool = pool(options(&database), 1).await;
    let settings = "select name || '=' || setting from pg_settings where name ~ \
                    '^(enable_|jit|plan_cache|default_transaction|lock_timeout|statement_timeout|idle_in|client_conn|search_path)' \
                    order by name";
    let now =
        async || Postgres::texts(&mut *pool.acquire().await.expect("one"), settings).await.expect("asked");
    let before = now().await;
    let outbox = Outbox::new(pool.clone());
    register(&outbox).await;
    let seen: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
    let script = Script::<Postgres>::new({
        let seen = seen.clone();
        move |ctx| {
            let seen = seen.clone();
            Box::pin(async move {
                let inside = Postgres::texts(ctx, settings).await?;
                seen.lock().expect("no panic").push(inside);
                record(ctx).await?;
                if ctx.metadata().attempt() == 1 { Err("once".into()) } else { Ok(()) }
            })
        }
    });
    let running = Running::start(ledger(&outbox, &script));
    for n in 0..20 {
        publish(&outbox, placed(&n.to_string())).await;
    }
    settled(&database).await;
    running.stop().await;
    assert_eq!(now().await, before);
    // Inside a handler the planner is the application's, and the sessions' own guards are on.
    let planner = |all: &[String]| {
        let of_planner =
            all.iter().filter(|s| ["enable_", "jit", "plan_cache"].iter().any(|name| s.starts_with(name)));
        of_planner.cloned().collect::<Vec<_>>()
    };
    let seen = seen.lock().expect("no panic");
    assert!(seen.len() >= 40);
    for inside in &*seen {
        assert_eq!(planner(inside), planner(&before));
        assert!(inside.iter().any(|setting| setting == "default_transaction_read_only=on"));
        assert!(inside.iter().any(|setting| setting == "idle_in_transaction_session_timeout=40020"));
    }
}

/// A plan under our planner settings costs so much that compiling it seems worth while, and takes a second.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_consumer_publishes_is_not_compiled() {
    let Some(database) = database().await else { return };
    let outbox = Outbox::new(pool(options(&database), 2).await);
    register(&outbox).await;
    database
        .execute(
            "create table compiled (id text, jit text); \
             create function note_jit() returns trigger language plpgsql as $$ begin \
                 insert into compiled values (new.id, current_setting('jit')); return null; end $$; \
             create trigger note_jit after insert on outbox_message for each row execute function note_jit()",
        )
        .await;
    let script = Script::<Postgres>::new(|ctx| {
        Box::pin(async move {
            for n in 0..3 {
                ctx.publish(Draft::new("order.shipped", "{}").id(id(&format!("follow-up {n}"))))?;
            }
            Ok(())
        })
    });
    publish(&outbox, placed_as("m", "7")).await;
    assert_eq!(drain(&outbox, &script).await.handled, 1);
    let jit = database.texts("select id || ': ' || jit from compiled order by id").await;
    assert_eq!(jit, ["follow-up 0: off", "follow-up 1: off", "follow-up 2: off", "m: on"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_only_session_of_the_application_is_named_as_such() {
    let Some(database) = database().await else { return };
    register(&database.outbox()).await;
    let read_only = options(&database).options([("default_transaction_read_only", "on")]);
    let pool = pool(read_only, 2).await;
    let outbox = Outbox::new(pool.clone());
    let mut tx = pool.begin().await.expect("begun");
    let published = outbox.publish(&mut tx, placed("7")).await.map(drop);
    drop(tx);
    let tx = outbox.begin().await.expect("begun");
    tx.publish(placed("7")).expect("accepted");
    for error in [published, tx.commit().await.map(drop), outbox.migrate().await.map(drop)] {
        let error = error.expect_err("read-only");
        assert_eq!(error.kind(), ErrorKind::ReadOnly, "{error:?}");
        assert_eq!(error.sqlstate(), Some("25006"));
    }
    assert_eq!(database.count("outbox_message").await, 0);
    // Consumers say READ WRITE themselves.
    publish(&database.outbox(), placed_as("m", "7")).await;
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_kills_its_connection_fails_alone() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    register(&outbox).await;
    for n in 0..10 {
        publish(&outbox, placed_as(&format!("good-{n}"), &format!("good-{n}"))).await;
        publish(&outbox, placed_as(&format!("killer-{n}"), &format!("killer-{n}"))).await;
        publish(&outbox, placed_as(&format!("behind-{n}"), &format!("killer-{n}"))).await;
    }
    let killers = Arc::new(Mutex::new(std::collections::HashSet::new()));
    let script = Script::<Postgres>::new(move |ctx| {
        let killers = killers.clone();
        Box::pin(async move {
            record(ctx).await?;
            let metadata = ctx.metadata().clone();
            let Some(n) = metadata.id.as_str().strip_prefix("killer-") else { return Ok(()) };
            if killers.lock().expect("no panic").insert(metadata.id.clone()) {
                let killed = Postgres::execute(ctx, "select pg_terminate_backend(pg_backend_pid())").await;
                // Half of them go on as if nothing had happened.
                if n.parse::<u32>()?.is_multiple_of(2) {
                    killed?;
                }
            }
            Ok(())
        })
    });
    let running = Running::start(ledger(&outbox, &script));
    settled(&database).await;
    let report = running.stop().await;
    assert_eq!(report.handled, 30);
    // Its lane is free at once, so another executor may have run it again before this one recorded the loss.
    assert!(report.retried <= 10, "{report:?}");
    let effects = database.effects().await;
    assert_eq!(effects.len(), 30);
    for effect in effects {
        // A lost connection is no attempt.
        assert_eq!(effect.worker, "attempt 1", "{}", effect.message_id);
    }
}

#[tokio::test]
async fn connections_that_are_cut_are_replaced_and_nothing_is_lost() {
    let Some(database) = database().await else { return };
    let (log, _guard) = Log::capture();
    let outbox = Outbox::new(pool(options(&database), 3).await);
    let both = || ledger(&outbox, &Script::record()).handler::<Audit>();
    both().build().expect("complete").run_until_idle().await.expect("registered");
    let running = Running::start(both());
    let mut published = 0;
    for _ in 0..5 {
        for _ in 0..20 {
            publish(&database.outbox(), placed_as(&published.to_string(), &format!("{}", published % 7)))
                .await;
            published += 1;
        }
        effects(&database, published - 10).await;
        // All of them at once, the working and the idle ones.
        let cut = format!(
            "select count(pg_terminate_backend(pid)) from pg_stat_activity \
             where application_name = '{THEIRS}' and datname = current_database()"
        );
        assert!(database.number(&cut).await > 0);
        effects(&database, published + 1).await;
    }
    settled(&database).await;
    running.stop().await;
    for consumer in ["ledger", "audit"] {
        let mut handled = handled_by(&database, consumer).await;
        handled.sort_by_key(|id| id.parse::<usize>().expect("a number"));
        assert!(handled.into_iter().eq((0..published).map(|n| n.to_string())), "{consumer}");
    }
    let troubles = log.lines("ERROR");
    assert!(troubles.len() <= 5 * 8, "{} lines for five cuts:\n{}", troubles.len(), troubles.join("\n"));
}

#[tokio::test]
async fn a_database_that_is_away_is_waited_for_in_silence() {
    let Some(database) = database().await else { return };
    let outbox = Outbox::new(pool(options(&database), 3).await);
    register(&outbox).await;
    let (log, _guard) = Log::capture();
    let running = Running::start(ledger(&outbox, &Script::record()));
    publish(&database.outbox(), placed_as("before", "7")).await;
    effects(&database, 1).await;
    // Nobody new is let in, and those who are in are thrown out.
    let name = database.address();
    let admin = outbox_tests::postgres::options("postgres").expect("there is a server");
    let admin = pool_of_one(admin).await;
    let sql = |sql: String| {
        let admin = admin.clone();
        async move { admin.execute(sqlx::AssertSqlSafe(sql)).await.expect("the administrator may") }
    };
    sql(format!("alter database {name} with allow_connections false")).await;
    sql(format!("select pg_terminate_backend(pid) from pg_stat_activity where datname = '{name}'")).await;
    let since = std::time::Instant::now();
    let lasting = Duration::from_secs(2);
    eventually("some time without a database", LONG, async || since.elapsed() > lasting).await;
    let said = log.lines("ERROR");
    assert!(!said.is_empty() && said.len() <= 10, "{} lines:\n{}", said.len(), said.join("\n"));
    sql(format!("alter database {name} with allow_connections true")).await;
    let mut tries = 0;
    let tx = loop {
        match database.outbox().begin().await {
            Ok(tx) => break tx,
            Err(error) => assert!(error.kind() == ErrorKind::Unavailable && tries < 20, "{error:?}"),
        }
        tries += 1;
    };
    tx.publish(placed_as("after", "7")).expect("accepted");
    tx.commit().await.expect("committed");
    eventually("recovery", LONG, async || {
        let texts =
            Postgres::texts(&mut *database.connection().await, "select message_id from effects").await;
        texts.is_ok_and(|texts| texts.contains(&"after".to_owned()))
    })
    .await;
    running.stop().await;
    assert_eq!(handled(&database).await, ["before", "after"]);
    assert_eq!(database.count("outbox_parked").await, 0);
}

async fn pool_of_one(options: PgConnectOptions) -> PgPool {
    PgPoolOptions::new().max_connections(1).connect_with(options).await.expect("connects")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_roles_timeouts_do_not_end_the_consumers() {
    let Some(database) = database().await else { return };
    register(&database.outbox()).await;
    let limited = options(&database).options([("statement_timeout", "100ms"), ("lock_timeout", "50ms")]);
    let outbox = Outbox::new(pool(limited, 3).await);
    let running = Running::start(ledger(&outbox, &Script::record()));
    publish(&outbox, placed_as("before", "7")).await;
    effects(&database, 1).await;
    // Longer than either, several times over.
    let mut lock = database.pool().begin().await.expect("begun");
    let tables = "lock table outbox_delivery, outbox_lane, outbox_parked in access exclusive mode";
    lock.execute(tables).await.expect("locked");
    let waits = format!(
        "select count(*) from pg_stat_activity where application_name = '{THEIRS}' \
         and datname = current_database() and wait_event_type = 'Lock'"
    );
    for _ in 0..3 {
        eventually("them to wait", LONG, async || database.number(&waits).await > 0).await;
        eventually("them to give up", LONG, async || database.number(&waits).await == 0).await;
    }
    lock.commit().await.expect("unlocked");
    publish(&outbox, placed_as("after", "7")).await;
    effects(&database, 2).await;
    running.stop().await;
    assert_eq!(handled(&database).await, ["before", "after"]);
    assert_eq!(database.count("outbox_parked").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handler_that_takes_too_long_is_cut_off_and_tried_again() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    register(&outbox).await;
    publish(&outbox, placed_as("idles", "7")).await;
    for n in 0..10 {
        publish(&outbox, placed_as(&n.to_string(), &n.to_string())).await;
    }
    let observer = database.pool().clone();
    let script = Script::<Postgres>::new(move |ctx| {
        let observer = observer.clone();
        Box::pin(async move {
            record(ctx).await?;
            if ctx.metadata().id.as_str() == "idles" && ctx.metadata().attempt() == 1 {
                // Until this session has ended, which is never.
                let pid = Postgres::number(ctx, "select pg_backend_pid()::bigint").await?;
                let alive = format!("select count(*) from pg_stat_activity where pid = {pid}");
                while Postgres::number(&mut *observer.acquire().await?, &alive).await? > 0 {}
                record(ctx).await?;
            }
            Ok(())
        })
    });
    let consumers = ledger(&outbox, &script).config(quick());
    let running =
        Running::start(consumers.options("ledger", |options| options.timeout = Duration::from_millis(200)));
    settled(&database).await;
    let report = running.stop().await;
    assert_eq!((report.handled, report.retried), (11, 1));
    assert_eq!(database.count("effects").await, 11);
}

#[tokio::test]
async fn an_idle_process_asks_little() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    // Pruning looks for something to do once a minute, which would be now or not.
    let config = ConsumerConfig { retention: Retention::FOREVER, ..ConsumerConfig::default() };
    let consumers = || {
        let all = outbox.consumers().handler::<Ledger>().handler::<Audit>().handler::<Shipping>();
        all.state(Script::<Postgres>::record()).config(config.clone())
    };
    consumers().build().expect("complete").run_until_idle().await.expect("registered");
    let running = Running::start(consumers());
    publish(&outbox, placed("7")).await;
    effects(&database, 2).await;
    settled(&database).await;
    // Counted from outside, so that the counting is not counted.
    let admin = pool_of_one(outbox_tests::postgres::options("postgres").expect("there is a server")).await;
    let count = format!(
        "select xact_commit + xact_rollback from pg_stat_database where datname = '{}'",
        database.address()
    );
    let count =
        async || Postgres::number(&mut *admin.acquire().await.expect("one"), &count).await.expect("asked");
    // Sessions report their counts with a delay of up to a second, the first time after they were busy.
    tokio::time::sleep(Duration::from_secs(2)).await; // sleep-ok: what happens in a span of idle time is the question
    let before = count().await;
    tokio::time::sleep(Duration::from_secs(6)).await; // sleep-ok: what happens in a span of idle time is the question
    let asked = count().await - before;
    running.stop().await;
    assert!((4..=18).contains(&asked), "{asked} transactions in six idle seconds");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn time_zones_of_sessions_move_nothing() {
    let Some(database) = database().await else { return };
    register(&database.outbox()).await;
    let zones = ["Asia/Kolkata", "America/New_York", "Pacific/Kiritimati"];
    let fails = Script::<Postgres>::new(|_| Box::pin(async { Err("always".into()) }));
    for (n, zone) in zones.into_iter().enumerate() {
        let here = Outbox::new(pool(options(&database).options([("timezone", zone)]), 2).await);
        let zone = zones[(n + 1) % zones.len()];
        let there = Outbox::new(pool(options(&database).options([("timezone", zone)]), 2).await);
        publish(&here, placed_as(&n.to_string(), &n.to_string())).await;
        // Due in an hour wherever one looks from, and due at once when it says so.
        assert_eq!(drain(&there, &fails).await.retried, 1);
        let due = "select count(*) from outbox_parked where due_at between now() + interval '59 minutes' \
                   and now() + interval '61 minutes'";
        assert_eq!(database.number(due).await, 1);
        assert_eq!(drain(&here, &fails).await.retried, 0);
        due_now(&database).await;
        assert_eq!(drain(&here, &Script::record()).await.handled, 1);
    }
    let since = "select count(*) from outbox_message where created_at between now() - interval '10 minutes' and now()";
    assert_eq!(database.number(since).await, 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_waits_for_no_other_schema() {
    let Some(database) = database().await else { return };
    // Another outbox's migration is under way and holds its lock.
    let mut other = database.pool().begin().await.expect("begun");
    let name = "\"public\".other_outbox_migration";
    other
        .execute(sqlx::AssertSqlSafe(format!("select pg_advisory_xact_lock(hashtextextended('{name}', 0))")))
        .await
        .expect("locked");
    let tables = outbox::Tables::new("", "mine_").expect("valid");
    let mine = database.outbox_with(outbox::Config { tables, ..outbox::Config::default() });
    let migrated = tokio::time::timeout(LONG, mine.migrate()).await.expect("no wait");
    assert_eq!(migrated.expect("migrated").applied, [1]);
    other.rollback().await.expect("rolled back");
}

/// A role's limit is for the application's statements, and not for what settles their message.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_roles_timeout_does_not_end_what_settles() {
    let Some(database) = database().await else { return };
    register(&database.outbox()).await;
    let slow = "create function slow() returns trigger language plpgsql as
                $$ begin perform pg_sleep(0.5); return old; end $$;
                create trigger slow before delete on outbox_delivery for each row execute function slow()";
    database.execute(slow).await;
    let limited = options(&database).options([("statement_timeout", "200ms")]);
    let outbox = Outbox::new(pool(limited, 3).await);
    publish(&outbox, placed_as("m", "7")).await;
    let report = drain(&outbox, &Script::record()).await;
    assert_eq!((report.handled, report.retried, report.dead), (1, 0, 0));
}

/// Nothing that the handler itself could see is wrong, and the connection never survives the commit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_whose_commit_always_ends_the_connection_is_dead_in_the_end() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    register(&outbox).await;
    let ends = "create function ends() returns trigger language plpgsql as
                $$ begin perform pg_terminate_backend(pg_backend_pid()); return null; end $$;
                create constraint trigger ends after insert on effects deferrable initially deferred
                for each row when (new.message_id = 'ends') execute function ends()";
    database.execute(ends).await;
    for name in ["before", "ends", "after"] {
        publish(&outbox, placed_as(name, name)).await;
    }
    let once = |options: &mut outbox::HandlerOptions| options.retry.max_attempts = 1;
    // Another executor would take the lane before the loss is recorded, and run it once more.
    let config = ConsumerConfig {
        executors: 1,
        poll_interval: Duration::from_millis(20),
        ..ConsumerConfig::default()
    };
    let running = Running::start(ledger(&outbox, &Script::record()).config(config).options("ledger", once));
    let dead = "select count(*) from outbox_parked where state = 2";
    eventually("it to be dead", LONG, async || database.number(dead).await == 1).await;
    effects(&database, 2).await;
    let report = running.stop().await;
    assert_eq!((report.handled, report.dead), (2, 1));
    let mut done = handled(&database).await;
    done.sort_unstable();
    assert_eq!(done, ["after", "before"]);
}
