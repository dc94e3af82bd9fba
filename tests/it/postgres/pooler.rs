//! Behind `PgBouncer`, which lends a session of the server for one transaction at a time: to the consumers now, to the
//! application next.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::{Config, ConsumerConfig, Context, Dead, ErrorKind, HandlerError, Outbox, Pooler as Way, Retry};
use outbox_tests::child::{Consume, Orders, Task};
use outbox_tests::pooler::Pooler;
use outbox_tests::{Log, Process, TestBackend as _, TestDatabase, act, eventually};
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection as _, PgPool, Postgres, query, raw_sql};

use super::database;
use crate::common::*;

/// A database, and a pooler before it.
struct Far {
    pooler: Pooler,
    database: TestDatabase<Postgres>,
}

impl Far {
    async fn new(sessions: u32) -> Option<Self> {
        let pooler = Pooler::start(sessions)?;
        Some(Self { pooler, database: database().await? })
    }

    async fn pool(&self, size: u32) -> PgPool {
        let address = self.pooler.address(self.database.address());
        Postgres::connect(&address, size).await.expect("the pooler answers")
    }

    async fn outbox(&self) -> Outbox<Postgres> {
        Outbox::new(self.pool(3).await)
    }
}

/// Runs a text in the handler's transaction.
async fn say(ctx: &mut Context<Postgres>, sql: &str) -> Result<(), HandlerError> {
    Ok(Postgres::execute(ctx, sql).await?)
}

/// A handler that does this at its first attempt, after it has left its effect.
fn at_first(
    what: impl for<'a> Fn(&'a mut Context<Postgres>) -> outbox::BoxFuture<'a, Outcome> + Send + Sync + 'static,
) -> Script<Postgres> {
    let what = Arc::new(what);
    Script::<Postgres>::new(move |ctx| {
        let what = what.clone();
        Box::pin(async move {
            record(ctx).await?;
            if ctx.metadata().attempt() == 1 && ctx.metadata().id.as_str().starts_with("bad") {
                return what(ctx).await;
            }
            Ok(())
        })
    })
}

/// What a session would keep that somebody has set, prepared, listened to or locked.
const LEFT: &str = "select name || '=' || setting from pg_settings where source in ('session', 'client') \
                        and name not in ('application_name', 'client_encoding', 'DateStyle', 'TimeZone', 'extra_float_digits') \
                    union all select name from pg_prepared_statements \
                    union all select * from pg_listening_channels() \
                    union all select locktype from pg_locks where pid = pg_backend_pid() and locktype = 'advisory' \
                    union all select relname::text from pg_class where relpersistence = 't'";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn everything_is_handled_once_and_in_order_beside_publishers_and_a_registration() {
    const PUBLISHERS: usize = 4;
    const EACH: usize = 40;
    let Some(far) = Far::new(6).await else { return };
    let mut publishers = tokio::task::JoinSet::new();
    for publisher in 0..PUBLISHERS {
        let outbox = far.outbox().await;
        publishers.spawn(async move {
            for n in 0..EACH {
                publish(&outbox, placed_as(&format!("{publisher}-{n:03}"), &publisher.to_string())).await;
            }
        });
    }
    eventually("some messages", LONG, async || far.database.count("outbox_message").await > 10).await;
    // The first subscription, while they publish; and every third message fails once.
    let script = Script::<Postgres>::new(|ctx| {
        Box::pin(async move {
            record(ctx).await?;
            let again = ctx.metadata().id.as_str().ends_with('3') && ctx.metadata().attempt() == 1;
            if again { Err("once".into()) } else { Ok(()) }
        })
    });
    let mut running = Vec::new();
    for _ in 0..2 {
        running.push(Running::start(ledger(&far.outbox().await, &script)));
    }
    while publishers.join_next().await.is_some() {}
    effects(&far.database, i64::try_from(PUBLISHERS * EACH).expect("few")).await;
    settled(&far.database).await;
    for running in running {
        running.stop().await;
    }
    let handled = handled(&far.database).await;
    for publisher in 0..PUBLISHERS {
        let of_one = handled.iter().filter(|id| id.starts_with(&format!("{publisher}-")));
        let expected: Vec<_> = (0..EACH).map(|n| format!("{publisher}-{n:03}")).collect();
        assert_eq!(of_one.cloned().collect::<Vec<_>>(), expected);
    }
    assert_eq!(handled.len(), PUBLISHERS * EACH);
    assert_eq!(far.database.count("outbox_worker").await, 0, "each has said good-bye");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_handlers_do_leaves_the_applications_session_as_it_was() {
    // One session for all, so that nothing can be hidden in another.
    let Some(far) = Far::new(1).await else { return };
    let (outbox, application) = (far.outbox().await, far.pool(1).await);
    register(&outbox).await;
    let left = async || {
        let mut tx = application.begin().await.expect("begun");
        let left = Postgres::texts(&mut tx, LEFT).await.expect("asked");
        // And it may write.
        Postgres::execute(&mut tx, "insert into business values ('the application')").await.expect("written");
        tx.commit().await.expect("committed");
        left
    };
    assert_eq!(left().await, [""; 0]);
    let script = at_first(|ctx| {
        Box::pin(async move {
            match ctx.metadata().id.as_str() {
                "bad-failure" => Err("once".into()),
                "bad-panic" => panic!("as told"),
                "bad-commit" => say(ctx, "commit").await,
                "bad-swallowed-commit" => {
                    drop(say(ctx, "commit").await);
                    Ok(())
                }
                "bad-rollback" => say(ctx, "rollback").await,
                "bad-timeout" => say(ctx, "select pg_sleep(20)").await,
                "bad-hang" => std::future::pending().await,
                "bad-statement" => say(ctx, "select 1/0").await,
                other => unreachable!("{other}"),
            }
        })
    });
    let bad = ["failure", "panic", "commit", "swallowed-commit", "rollback", "timeout", "hang", "statement"];
    let consumers =
        ledger(&outbox, &script).options("ledger", |options| options.timeout = Duration::from_millis(300));
    let running = Running::start(consumers);
    for (n, bad) in bad.into_iter().enumerate() {
        publish(&outbox, placed_as(&format!("good-{n}"), bad)).await;
        publish(&outbox, placed_as(&format!("bad-{bad}"), bad)).await;
        settled(&far.database).await;
        assert_eq!(left().await, [""; 0], "after {bad}");
    }
    running.stop().await;
    assert_eq!(left().await, [""; 0]);
    let mut handled = handled(&far.database).await;
    handled.sort();
    let mut expected: Vec<_> = bad.iter().map(|bad| format!("bad-{bad}")).collect();
    expected.extend((0..bad.len()).map(|n| format!("good-{n}")));
    expected.sort();
    assert_eq!(handled, expected);
}

/// Three messages in one group, of which the first leaves our transaction; how often each has left its effect.
async fn beside_one_that_rolls_back(config: Config) -> Option<Vec<String>> {
    let far = Far::new(3).await?;
    let outbox = Outbox::with_config(far.pool(3).await, config);
    register(&outbox).await;
    let script = at_first(|ctx| {
        Box::pin(async move {
            say(ctx, "rollback").await?;
            // Committed by itself: nobody can take it back any more.
            say(ctx, "insert into business values ('behind the rollback')").await
        })
    });
    let tx = outbox.begin().await.expect("begun");
    for id in ["bad", "good-1", "good-2"] {
        tx.publish(placed_as(id, "7")).expect("accepted");
    }
    tx.commit().await.expect("committed");
    let running = Running::start(ledger(&outbox, &script));
    settled(&far.database).await;
    running.stop().await;
    let errors = far.database.texts("select error from outbox_attempt").await;
    assert!(errors.iter().any(|error| error.contains("ended the transaction")), "{errors:?}");
    // Noticed, and not undone.
    assert!(far.database.count("business").await > 0);
    Some(handled(&far.database).await)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raw_rollback_is_noticed_before_the_next_message_runs() {
    let Some(handled) = beside_one_that_rolls_back(Config::default()).await else { return };
    assert_eq!(handled, ["bad", "good-1", "good-2"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_savepoint_for_each_message_a_raw_rollback_doubles_its_neighbours() {
    let mut config = Config::default();
    config.controls.secure_each = false;
    let Some(handled) = beside_one_that_rolls_back(config).await else { return };
    assert!(handled.len() > 3, "{handled:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_raw_commit_commits_nothing() {
    let Some(far) = Far::new(3).await else { return };
    let outbox = far.outbox().await;
    register(&outbox).await;
    publish(&outbox, placed_as("bad", "7")).await;
    let script = Script::<Postgres>::new(|ctx| {
        Box::pin(async move {
            record(ctx).await?;
            drop(say(ctx, "commit").await);
            Ok(())
        })
    });
    assert_eq!(drain(&outbox, &script).await.retried, 1);
    assert_eq!(far.database.count("effects").await, 0);
    assert_eq!(far.database.count("outbox_guard").await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_is_killed_behind_a_pooler_loses_and_doubles_nothing() {
    const MESSAGES: usize = 150;
    let Some(far) = Far::new(5).await else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let runs = act::Runs::of(folder.path().join("runs"));
    let spawn = || {
        let consume = Consume { executors: 2, ..Consume::default() };
        let orders = Orders {
            database: "PostgreSQL".into(),
            address: far.pooler.address(far.database.address()),
            log: folder.path().join("log"),
            runs: runs.path().to_owned(),
            task: Task::Consume(consume),
        };
        let orders = serde_json::to_string(&orders).expect("JSON");
        Process::spawn(env!("CARGO_BIN_EXE_outbox-test-child"), &[&orders]).expect("built")
    };
    let outbox = far.outbox().await;
    let (mut first, second) = (spawn(), spawn());
    for n in 0..MESSAGES {
        publish(&outbox, act::Act::record().draft(&format!("m-{n}")).key(format!("{}", n % 7))).await;
        if n == MESSAGES / 2 {
            effects(&far.database, 20).await;
            first.kill().expect("it runs");
            first = spawn();
        }
    }
    // Two consumers.
    effects(&far.database, i64::try_from(2 * MESSAGES).expect("few")).await;
    settled(&far.database).await;
    drop((first, second));
    let twice =
        "select message_id || consumer from effects group by message_id, consumer having count(*) > 1";
    assert_eq!(far.database.texts(twice).await, [""; 0]);
    assert_eq!(far.database.count("effects").await, i64::try_from(2 * MESSAGES).expect("few"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_that_is_restarted_under_load_is_waited_for() {
    let Some(mut far) = Far::new(4).await else { return };
    let outbox = far.outbox().await;
    register(&outbox).await;
    let running = Running::start(ledger(&outbox, &Script::record()));
    for n in 0..60 {
        let draft = placed_as(&n.to_string(), &(n % 5).to_string());
        if n % 20 == 10 {
            far.pooler.stop();
            far.pooler.run();
        }
        // Under the same id until it is known to be there.
        eventually("a publish", LONG, async || {
            let Ok(tx) = outbox.begin().await else { return false };
            tx.publish(draft.clone()).is_ok() && tx.commit().await.is_ok()
        })
        .await;
    }
    effects(&far.database, 60).await;
    settled(&far.database).await;
    running.stop().await;
    assert_eq!(handled(&far.database).await.len(), 60);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn words_come_by_a_url_of_the_server_itself() {
    let Some(far) = Far::new(4).await else { return };
    let (outbox, other) = (far.outbox().await, far.outbox().await);
    register(&outbox).await;
    let listening =
        "select count(*) from pg_stat_activity where datname = current_database() and query like 'LISTEN %'";
    let deaf = ConsumerConfig { poll_interval: Duration::from_hours(1), ..quick() };
    let direct = outbox_tests::postgres::options(far.database.address()).expect("there is a server");
    let url = format!(
        "postgres://{}@{}:{}/{}",
        direct.get_username(),
        direct.get_host(),
        direct.get_port(),
        far.database.address()
    );
    let config = ConsumerConfig { listen_url: Some(url), ..deaf };
    let running = Running::start(ledger(&outbox, &Script::record()).config(config));
    eventually("a listener", LONG, async || far.database.number(listening).await == 1).await;
    // Whoever has begun to listen looks once; only a word brings what comes later.
    for n in 1..=3 {
        publish(&other, placed_as(&n.to_string(), "7")).await;
        effects(&far.database, n).await;
    }
    running.stop().await;
}

#[tokio::test]
async fn nobody_listens_on_a_session_that_is_lent() {
    let Some(far) = Far::new(4).await else { return };
    let (log, _logging) = Log::capture();
    let outbox = far.outbox().await;
    let running = Running::start(ledger(&outbox, &Script::record()));
    publish(&outbox, placed("7")).await;
    effects(&far.database, 1).await;
    let consumers = outbox.admin().consumers().await.expect("read");
    assert!(consumers[0].workers[0].pooled);
    running.stop().await;
    assert_eq!(log.lines("behind a pooler").len(), 1, "{:?}", log.lines(""));
    assert_eq!(log.lines("hears=false").len(), 1);
    let sessions = "select query from pg_stat_activity where datname = current_database()";
    let queries = far.database.texts(sessions).await;
    assert!(!queries.iter().any(|query| query.starts_with("LISTEN")), "{queries:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_tables_are_made_and_operated_through_a_pooler() {
    let Some(pooler) = Pooler::start(4) else { return };
    let Some(database) = TestDatabase::<Postgres>::empty().await else { return };
    let far = Far { pooler, database };
    let (outbox, other) = (far.outbox().await, far.outbox().await);
    let (one, two) = tokio::join!(outbox.migrate(), other.migrate());
    let mut applied = [one.expect("made"), two.expect("made")].map(|migrated| migrated.applied.len());
    applied.sort_unstable();
    assert_eq!(applied, [0, 1]);
    assert!(matches!(outbox.schema_status().await.expect("read"), outbox::SchemaStatus::Ready { .. }));
    Postgres::create_ledger(&mut *far.database.connection().await).await.expect("made");
    register(&outbox).await;
    let fails = Script::<Postgres>::new(|_| Box::pin(async { Err(HandlerError::terminal("no")) }));
    publish(&outbox, placed_as("m", "7")).await;
    assert_eq!(drain(&outbox, &fails).await.dead, 1);
    let admin = outbox.admin();
    // Beside an application that keeps the sessions changing.
    let noise = far.outbox().await;
    let others = tokio::spawn(async move {
        for n in 0..200 {
            let mut tx = noise.pool().begin().await.expect("begun");
            query(AssertSqlSafe(format!("select {n}")))
                .persistent(false)
                .execute(&mut *tx)
                .await
                .expect("asked");
        }
    });
    for _ in 0..20 {
        assert_eq!(admin.dead(&Dead::all()).await.expect("read").len(), 1);
        assert_eq!(admin.attempts(&id("m"), "ledger").await.expect("read").len(), 1);
        assert_eq!(admin.consumers().await.expect("read").len(), 1);
    }
    others.await.expect("no panic");
    admin.pause("ledger").await.expect("paused");
    admin.resume("ledger").await.expect("resumed");
    assert_eq!(admin.requeue(&Dead::all()).await.expect("requeued").messages.len(), 1);
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 1);
    let inbox = outbox.inbox("by hand").await.expect("known");
    let done = inbox.handle(&id("m"), async |_| Ok::<_, outbox::Error>(7)).await.expect("handled");
    assert!(matches!(done, outbox::Inboxed::Processed(7)));
    assert_eq!(admin.unsubscribe("ledger", "order.placed").await.expect("gone"), 0);
    assert_eq!(admin.drop_consumer("ledger").await.expect("gone"), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_keep_their_lanes_through_a_pooler() {
    let Some(far) = Far::new(3).await else { return };
    let outbox = far.outbox().await;
    let calls: Arc<Mutex<Vec<String>>> = Arc::default();
    let script = Script::<Postgres>::new({
        let calls = calls.clone();
        move |ctx| {
            let (calls, id) = (calls.clone(), ctx.metadata().id.to_string());
            Box::pin(async move {
                // Four times the lease.
                tokio::time::sleep(Duration::from_secs(2)).await; // sleep-ok: how long the call takes
                calls.lock().expect("no panic").push(id);
                Ok(())
            })
        }
    });
    let consumers = |outbox: &Outbox<Postgres>| {
        let builder = outbox.consumers().handler::<Caller>().state(script.clone()).config(quick());
        builder.options("calls", |options| options.lease = Duration::from_millis(500))
    };
    let running = [Running::start(consumers(&outbox)), Running::start(consumers(&far.outbox().await))];
    eventually("a consumer", LONG, async || far.database.count("outbox_subscription").await == 1).await;
    for n in 0..4 {
        publish(&outbox, placed_as(&n.to_string(), &n.to_string())).await;
    }
    eventually("the calls", LONG, async || calls.lock().expect("no panic").len() >= 4).await;
    settled(&far.database).await;
    for running in running {
        assert_eq!(running.stop().await.leases_lost, 0);
    }
    let mut calls = calls.lock().expect("no panic").clone();
    calls.sort();
    assert_eq!(calls, ["0", "1", "2", "3"]);
}

/// The handler has left its transaction and the session with it, which runs a statement of the application when the
/// handler is cut off.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn cutting_a_handler_off_does_not_end_a_statement_of_the_application() {
    let Some(far) = Far::new(4).await else { return };
    let (outbox, application) = (far.outbox().await, far.pool(3).await);
    register(&outbox).await;
    publish(&outbox, placed_as("bad", "7")).await;
    let slept: Arc<Mutex<Vec<Result<(), String>>>> = Arc::default();
    let script = Script::<Postgres>::new({
        let slept = slept.clone();
        move |ctx| {
            let (slept, application) = (slept.clone(), application.clone());
            Box::pin(async move {
                let pid = Postgres::number(ctx, "select pg_backend_pid()::bigint").await?;
                say(ctx, "rollback").await?;
                let mut others = Vec::new();
                let mut found = loop {
                    let mut tx = application.begin().await?;
                    if Postgres::number(&mut tx, "select pg_backend_pid()::bigint").await? == pid {
                        break tx;
                    }
                    // The session is asked for until it is got; three of the four are held at most.
                    others.push(tx);
                    if others.len() == 3 {
                        others.clear();
                    }
                };
                drop(others);
                tokio::spawn(async move {
                    let done = raw_sql("select pg_sleep(2)").execute(&mut *found).await;
                    slept.lock().expect("no panic").push(done.map(drop).map_err(|error| error.to_string()));
                });
                std::future::pending().await
            })
        }
    });
    let consumers = ledger(&outbox, &script)
        .config(patient())
        .options("ledger", |options| options.timeout = Duration::from_millis(700));
    let report = consumers.build().expect("complete").run_until_idle().await.expect("it ran");
    assert_eq!(report.retried, 1);
    eventually("the application's statement", LONG, async || !slept.lock().expect("no panic").is_empty())
        .await;
    assert_eq!(*slept.lock().expect("no panic"), [Ok(())]);
}

/// One that runs in our transaction is ended, and the message's neighbours stay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_handlers_statement_is_cancelled_through_a_pooler() {
    let Some(far) = Far::new(3).await else { return };
    let outbox = far.outbox().await;
    register(&outbox).await;
    let script = at_first(|ctx| Box::pin(say(ctx, "select pg_sleep(60)")));
    let tx = outbox.begin().await.expect("begun");
    for (id, order) in [("good", "7"), ("bad", "7")] {
        tx.publish(placed_as(id, order)).expect("accepted");
    }
    tx.commit().await.expect("committed");
    let consumers = ledger(&outbox, &script)
        .config(patient())
        .options("ledger", |options| options.timeout = Duration::from_millis(300));
    let report = consumers.build().expect("complete").run_until_idle().await.expect("it ran");
    assert_eq!((report.handled, report.retried), (1, 1));
    let sleeping = "select count(*) from pg_stat_activity where datname = current_database() and state = 'active' \
                    and query like 'select pg_sleep%'";
    assert_eq!(far.database.number(sleeping).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pooler_is_found_whether_it_refuses_our_settings_or_ignores_them() {
    for parameters in ["extra_float_digits", "extra_float_digits, options"] {
        let Some(pooler) = Pooler::ignoring(3, parameters) else { return };
        let Some(database) = database().await else { return };
        let far = Far { pooler, database };
        let outbox = far.outbox().await;
        let read_only = Arc::new(Mutex::new(Vec::new()));
        let script = Script::<Postgres>::new({
            let read_only = read_only.clone();
            move |ctx| {
                let read_only = read_only.clone();
                Box::pin(async move {
                    let setting =
                        Postgres::texts(ctx, "select current_setting('default_transaction_read_only')");
                    let setting = setting.await?;
                    read_only.lock().expect("no panic").extend(setting);
                    Ok(())
                })
            }
        });
        publish(&outbox, placed("7")).await;
        let (log, _logging) = Log::capture();
        for way in [Way::Detect, Way::Present] {
            let config = ConsumerConfig { pooler: way, ..patient() };
            let consumers = ledger(&outbox, &script).config(config).build().expect("complete");
            consumers.run_until_idle().await.expect("it ran");
        }
        drop(log);
        assert_eq!(*read_only.lock().expect("no panic"), ["off"]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_says_that_there_is_no_pooler_is_refused_by_one() {
    let Some(far) = Far::new(3).await else { return };
    let config = ConsumerConfig { pooler: Way::Absent, ..patient() };
    let consumers = ledger(&far.outbox().await, &Script::record()).config(config).build().expect("complete");
    let error = consumers.run_until_idle().await.expect_err("it refuses the settings");
    assert!(whole(&error).contains("unsupported startup parameter"), "{}", whole(&error));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn statements_with_names_that_a_pooler_passes_on_are_refused_at_the_start() {
    let Some(far) = Far::new(1).await else { return };
    let address = far.pooler.address(far.database.address());
    let options = outbox_tests::postgres::options(&address).expect("there is a server");
    let named = options.statement_cache_capacity(100);
    let pool = PgPoolOptions::new().max_connections(2).connect_lazy_with(named);
    // Twice: the second finds what the first has left, if anything.
    for _ in 0..2 {
        let consumers = ledger(&Outbox::new(pool.clone()), &Script::record()).build().expect("complete");
        let error = consumers.run_until_idle().await.expect_err("it cannot work");
        assert_eq!(error.kind(), ErrorKind::Unsupported, "{}", whole(&error));
        assert!(whole(&error).contains("statement_cache_capacity(0)"), "{}", whole(&error));
    }
    let mut tx = far.pool(1).await.begin().await.expect("begun");
    assert_eq!(Postgres::texts(&mut tx, LEFT).await.expect("asked"), [""; 0]);
}

/// Statements without a name, and each in a transaction, by a connection to the server itself.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_application_that_keeps_no_statements_needs_no_pooler() {
    let Some(database) = database().await else { return };
    let options = outbox_tests::postgres::options(database.address()).expect("there is a server");
    let pool = PgPoolOptions::new().max_connections(3).connect_lazy_with(options.statement_cache_capacity(0));
    let outbox = Outbox::new(pool.clone());
    let retry = Some(Retry::every(Duration::ZERO));
    let running =
        Running::start(ledger(&outbox, &Script::record()).config(ConsumerConfig { retry, ..quick() }));
    eventually("a consumer", LONG, async || database.count("outbox_subscription").await == 1).await;
    for n in 0..5 {
        publish(&outbox, placed_as(&n.to_string(), "7")).await;
    }
    effects(&database, 5).await;
    assert!(!outbox.admin().consumers().await.expect("read")[0].workers[0].pooled);
    running.stop().await;
    let mut conn = pool.acquire().await.expect("one");
    assert_eq!(conn.cached_statements_size(), 0);
    let names = "select name from pg_prepared_statements";
    assert_eq!(Postgres::texts(&mut conn, names).await.expect("asked"), [""; 0]);
}
