//! Wake-ups between processes: a listener that is cut off or deaf, words that are few, and a process that is idle.

use std::time::{Duration, Instant};

use outbox::{Config, ConsumerConfig, ConsumersBuilder, Draft, ErrorKind, Outbox, Retention};
use outbox_tests::proxy::Proxy;
use outbox_tests::{Log, TestDatabase, eventually};
use sqlx::postgres::{PgConnectOptions, PgListener, PgPoolOptions, PgSslMode};
use sqlx::{Postgres, query};

use super::database;
use crate::common::*;

/// The channel of the default tables.
const CHANNEL: &str = "public.outbox";

/// The sessions that listen.
const LISTENING: &str = "from pg_stat_activity where datname = current_database() and query like 'LISTEN %'";

/// A poll that never comes again.
fn deaf() -> ConsumerConfig {
    ConsumerConfig { poll_interval: Duration::from_hours(1), ..quick() }
}

fn deaf_ledger(outbox: &Outbox<Postgres>) -> ConsumersBuilder<Postgres> {
    ledger(outbox, &Script::record()).config(deaf())
}

/// Waits until the process has said so many times that it is alive: so often it could have looked.
async fn beats(database: &TestDatabase<Postgres>, count: usize) {
    let mut seen = std::collections::HashSet::new();
    eventually("heartbeats", LONG, async || {
        seen.extend(database.texts("select heartbeat_at::text from outbox_worker").await);
        seen.len() >= count
    })
    .await;
}

/// A proxy, and how to reach the database through it.
pub(super) async fn far(database: &TestDatabase<Postgres>) -> Option<(Proxy, PgConnectOptions)> {
    let options = outbox_tests::postgres::options(database.address()).expect("there is a server");
    if options.get_host().starts_with('/') {
        // The server is on a socket, and the proxy speaks TCP.
        return None;
    }
    let server = format!("{}:{}", options.get_host(), options.get_port());
    let proxy = Proxy::start(server).await.expect("a port can be had");
    let options = options.host("127.0.0.1").port(proxy.port()).ssl_mode(PgSslMode::Disable);
    Some((proxy, options))
}

fn url(options: &PgConnectOptions, database: &str) -> String {
    format!("postgres://{}@{}:{}/{database}", options.get_username(), options.get_host(), options.get_port())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_published_while_nobody_could_listen_is_found_when_somebody_can() {
    let Some(database) = database().await else { return };
    let Some((proxy, options)) = far(&database).await else { return };
    let (outbox, other) = (database.outbox(), elsewhere(&database).await);
    register(&outbox).await;
    // Only what listens goes through the proxy.
    let config = ConsumerConfig { listen_url: Some(url(&options, database.address())), ..deaf() };
    let running = Running::start(deaf_ledger(&outbox).config(config));
    beats(&database, 2).await;
    publish(&other, placed_as("before", "7")).await;
    effects(&database, 1).await;
    proxy.refuse();
    // An executor that has handled something looks once more, and that may be late: then it finds the next one.
    let mut published = 1;
    loop {
        published += 1;
        assert!(published < 6, "somebody heard");
        publish(&other, placed_as(&published.to_string(), "7")).await;
        beats(&database, 3).await;
        if database.count("effects").await < published {
            break;
        }
    }
    proxy.pass();
    effects(&database, published).await;
    publish(&other, placed_as("after", "7")).await;
    effects(&database, published + 1).await;
    running.stop().await;
    assert_eq!(handled(&database).await.len(), usize::try_from(published + 1).expect("few"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_whose_session_was_ended_listens_again() {
    let Some(database) = database().await else { return };
    let (outbox, other) = (database.outbox(), elsewhere(&database).await);
    register(&outbox).await;
    let running = Running::start(deaf_ledger(&outbox));
    let mut ended = std::collections::HashSet::new();
    for n in 1..=5 {
        let mut now = Vec::new();
        eventually("another session that listens", LONG, async || {
            now = database.texts(&format!("select pid::text {LISTENING}")).await;
            now.iter().any(|pid| !ended.contains(pid))
        })
        .await;
        ended.extend(now);
        database.texts(&format!("select pg_terminate_backend(pid)::text {LISTENING}")).await;
        // Published while nobody listens or just when somebody does again.
        publish(&other, placed_as(&n.to_string(), "7")).await;
        effects(&database, n).await;
    }
    running.stop().await;
}

/// Where listening works and nothing is heard, as through a pooler. Here: in another database.
#[tokio::test]
async fn a_listener_that_hears_nothing_is_noticed_and_polling_goes_on() {
    let Some(database) = database().await else { return };
    let options = outbox_tests::postgres::options(database.address()).expect("there is a server");
    let (log, _guard) = Log::capture();
    let outbox = database.outbox();
    register(&outbox).await;
    let config = ConsumerConfig { listen_url: Some(url(&options, "template1")), ..quick() };
    let running = Running::start(ledger(&outbox, &Script::record()).config(config));
    let other = elsewhere(&database).await;
    let mut published = 0;
    eventually("a warning", LONG, async || {
        published += 1;
        publish(&other, placed(&published.to_string())).await;
        effects(&database, published).await;
        !log.lines("cannot hear other processes").is_empty()
    })
    .await;
    publish(&other, placed("last")).await;
    effects(&database, published + 1).await;
    running.stop().await;
    assert_eq!(log.lines("cannot hear other processes").len(), 1);
    assert_eq!(log.lines("listen_url").len(), 1, "it says what to do");
    assert_eq!(log.lines("ERROR"), [] as [&str; 0]);
}

#[tokio::test]
async fn a_url_of_something_else_is_refused() {
    let Some(database) = database().await else { return };
    let config = ConsumerConfig { listen_url: Some("postgres://user:secret@[/x".to_owned()), ..quick() };
    assert!(!format!("{config:?}").contains("secret"));
    let built = ledger(&database.outbox(), &Script::record()).config(config).build();
    let error = built.map(drop).expect_err("no URL");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(!whole(&error).contains("secret"), "{}", whole(&error));
}

async fn listener(database: &TestDatabase<Postgres>) -> PgListener {
    let options = outbox_tests::postgres::options(database.address()).expect("there is a server");
    let pool = PgPoolOptions::new().max_connections(1).connect_with(options).await.expect("connects");
    let mut listener = PgListener::connect_with(&pool).await.expect("connects");
    listener.listen(CHANNEL).await.expect("listens");
    listener
}

/// Counts the words that came before a last one of the test's own.
async fn words(database: &TestDatabase<Postgres>, listener: &mut PgListener) -> u32 {
    let last = query("select pg_notify($1, 'last')").bind(CHANNEL).execute(database.pool());
    last.await.expect("said");
    let mut words = 0;
    while listener.recv().await.expect("heard").payload() != "last" {
        words += 1;
    }
    words
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_burst_of_commits_makes_few_words_and_the_last_is_not_forgotten() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox();
    register(&outbox).await;
    let mut listener = listener(&database).await;
    let since = Instant::now();
    for n in 0..300 {
        publish(&outbox, placed(&n.to_string())).await;
        let mut tx = database.pool().begin().await.expect("begun");
        outbox.publish(&mut tx, placed(&n.to_string())).await.expect("published");
        tx.commit().await.expect("committed");
    }
    let one = listener.recv().await.expect("at least one");
    assert_eq!(one.payload(), "");
    let heard = 1 + words(&database, &mut listener).await;
    let most = u32::try_from(since.elapsed().as_millis() / 10).expect("not that long") + 1;
    assert!(heard <= most, "{heard} words, and there may be {most}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_notify_says_nothing() {
    let Some(database) = database().await else { return };
    let outbox = database.outbox_with(Config { notify: false, ..Config::default() });
    register(&outbox).await;
    let mut listener = listener(&database).await;
    publish(&outbox, placed("7")).await;
    let mut tx = database.pool().begin().await.expect("begun");
    outbox.publish(&mut tx, placed("7")).await.expect("published");
    tx.commit().await.expect("committed");
    let running = Running::start(ledger(&outbox, &Script::record()));
    effects(&database, 2).await;
    running.stop().await;
    assert_eq!(words(&database, &mut listener).await, 0);
}

/// The words that a process says whose handlers publish for consumers that run in it too.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn follow_ups_whose_consumers_run_here_are_told_to_nobody() {
    let Some(database) = database().await else { return };
    let silent = database.outbox_with(Config { notify: false, ..Config::default() });
    let script = Script::<Postgres>::new(|ctx| {
        Box::pin(async move {
            if ctx.metadata().event_type == "order.placed" {
                ctx.publish(Draft::new("order.shipped", "{}").aggregate_id("7"))?;
            }
            record(ctx).await
        })
    });
    let consumers = |outbox: &Outbox<Postgres>| {
        outbox.consumers().handler::<Ledger>().handler::<Shipping>().state(script.clone()).config(quick())
    };
    consumers(&silent).build().expect("complete").run_until_idle().await.expect("registered");
    for n in 0..20 {
        publish(&silent, placed(&n.to_string())).await;
    }
    let mut listener = listener(&database).await;
    let running = Running::start(consumers(&database.outbox()));
    effects(&database, 40).await;
    running.stop().await;
    // But for those with which it has found out that it hears.
    let last = query("select pg_notify($1, 'last')").bind(CHANNEL).execute(database.pool());
    last.await.expect("said");
    loop {
        match listener.recv().await.expect("heard").payload() {
            "last" => break,
            payload => assert_ne!(payload, "", "everybody was told to look"),
        }
    }
}

/// However many consumers it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_process_sends_two_statements_a_second_at_most() {
    let Some(database) = database().await else { return };
    for consumers in [1, 3] {
        let Some((proxy, options)) = far(&database).await else { return };
        let pool = PgPoolOptions::new().max_connections(3).connect_with(options).await.expect("connects");
        let outbox = Outbox::new(pool.clone());
        let all = |config| {
            let one = ledger(&outbox, &Script::record()).config(config);
            if consumers == 1 { one } else { one.handler::<Audit>().handler::<Shipping>() }
        };
        all(quick()).build().expect("complete").run_until_idle().await.expect("registered");
        // Pruning looks for something to do once a minute, which would be now or not.
        let unpruned = ConsumerConfig { retention: Retention::FOREVER, ..ConsumerConfig::default() };
        let running = Running::start(all(unpruned));
        beats(&database, 2).await;
        let (before, since) = (proxy.statements(), Instant::now());
        beats(&database, 5).await;
        let (sent, elapsed) = (proxy.statements() - before, since.elapsed());
        let most = 2.0 * elapsed.as_secs_f64() + 1.0;
        #[expect(clippy::cast_precision_loss, reason = "a handful")]
        let sent = sent as f64;
        assert!(sent >= 4.0, "it beats: {sent} statements");
        assert!(sent <= most, "{sent} statements of {consumers} consumers in {elapsed:?}");
        running.stop().await;
    }
}
