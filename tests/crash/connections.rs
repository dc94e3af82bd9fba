//! Connections that are cut, stalled and refused, before, in and after a commit.

use std::io::{self, Write};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use outbox::{ConsumerConfig, ConsumersBuilder, ErrorKind, Outbox, Published};
use outbox_tests::act::{Act, Does, Left};
use outbox_tests::proxy::{AtCommit, Proxy};
use outbox_tests::{TestBackend, check, eventually};
use sqlx::Pool;
use tracing_subscriber::fmt::MakeWriter;

use crate::{LONG, Running, Scene, at_once};

/// A server that is reached through a proxy.
trait Server: TestBackend {
    /// Where the tests' server listens; `None` where that is no TCP port.
    fn listens() -> Option<String>;

    /// Connects to a database of it by another port of this machine.
    async fn through(address: &str, port: u16) -> sqlx::Result<Pool<Self>>;

    /// A query that takes two seconds.
    fn slow() -> Does;

    /// Cuts the connection on which it runs.
    fn cut() -> Does;
}

#[cfg(feature = "postgres")]
impl Server for sqlx::Postgres {
    fn listens() -> Option<String> {
        let options = outbox_tests::postgres::options("postgres").expect("there is a server");
        let server = format!("{}:{}", options.get_host(), options.get_port());
        (!options.get_host().starts_with('/')).then_some(server)
    }

    async fn through(address: &str, port: u16) -> sqlx::Result<Pool<Self>> {
        let options = outbox_tests::postgres::options(address).expect("there is a server");
        let options = options.host("127.0.0.1").port(port).ssl_mode(sqlx::postgres::PgSslMode::Disable);
        sqlx::postgres::PgPoolOptions::new().max_connections(5).connect_with(options).await
    }

    fn slow() -> Does {
        Does::Query("select pg_sleep(2)::text".into())
    }

    fn cut() -> Does {
        Does::Query("select pg_terminate_backend(pg_backend_pid())::text".into())
    }
}

#[cfg(feature = "mysql")]
impl Server for sqlx::MySql {
    fn listens() -> Option<String> {
        let options = outbox_tests::mysql::options("").expect("there is a server");
        options.get_socket().is_none().then(|| format!("{}:{}", options.get_host(), options.get_port()))
    }

    async fn through(address: &str, port: u16) -> sqlx::Result<Pool<Self>> {
        let options = outbox_tests::mysql::options(address).expect("there is a server");
        let options = options.host("127.0.0.1").port(port).ssl_mode(sqlx::mysql::MySqlSslMode::Disabled);
        sqlx::mysql::MySqlPoolOptions::new().max_connections(5).connect_with(options).await
    }

    fn slow() -> Does {
        Does::Query("select cast(sleep(2) as char)".into())
    }

    fn cut() -> Does {
        Does::Execute("kill connection_id()".into())
    }
}

/// Makes a test for each server of functions that are generic over it.
macro_rules! on_each_server {
    ($($test:ident),+ $(,)?) => {
        #[cfg(feature = "postgres")]
        mod postgres {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test::<sqlx::Postgres>().await;
                }
            )+
        }

        #[cfg(feature = "mysql")]
        mod mysql {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test::<sqlx::MySql>().await;
                }
            )+
        }
    };
}

on_each_server!(
    a_consumer_that_loses_its_commit_doubles_and_loses_nothing,
    a_publisher_that_loses_its_commit_publishes_again_under_the_same_id,
    a_connection_that_is_cut_under_a_handler_is_no_attempt,
    a_handler_that_always_loses_its_connection_is_dead_in_the_end,
    a_server_that_stalls_is_waited_for,
);

/// A scene, and an outbox that reaches its database through a proxy.
struct Far<DB: Server> {
    scene: Scene<DB>,
    proxy: Proxy,
    outbox: Outbox<DB>,
}

impl<DB: Server> Far<DB> {
    async fn new() -> Option<Self> {
        let scene = Scene::<DB>::new().await?;
        scene.left_registered().await;
        let Some(server) = DB::listens() else {
            crate::show("SKIPPED: the server is on a socket, and the proxy speaks TCP");
            return None;
        };
        let proxy = Proxy::start(server).await.expect("a port can be had");
        let pool = DB::through(scene.database.address(), proxy.port()).await.expect("it connects");
        Some(Self { outbox: Outbox::new(pool), scene, proxy })
    }

    fn left(&self) -> ConsumersBuilder<DB> {
        let config = ConsumerConfig { poll_interval: Duration::from_millis(20), ..ConsumerConfig::default() };
        let left = self.outbox.consumers().handler::<Left>().options("left", at_once).config(config);
        left.options("left", |options| options.retry.max_attempts = 1).state(self.scene.runs.clone())
    }

    async fn attempts(&self) -> i64 {
        self.scene.database.count("outbox_attempt").await
    }
}

const COMMITS: [AtCommit; 3] = [AtCommit::CutBefore, AtCommit::CutIn, AtCommit::CutAfter];

async fn a_consumer_that_loses_its_commit_doubles_and_loses_nothing<DB: Server>() {
    let Some(far) = Far::<DB>::new().await else { return };
    let running = Running::start(far.left());
    // From here on it is running; what goes wrong at a start is an error of the start.
    far.scene.tell("first", "a", Act::record()).await;
    far.scene.until_effect("first").await;
    for (round, at) in COMMITS.iter().cycle().take(9).enumerate() {
        far.proxy.at_commit(*at);
        let act = match round % 2 {
            0 => Act::record(),
            // Its failure is what is committed: a failure that was not recorded may happen again.
            _ => Act::first(1, Does::Snooze(1)),
        };
        far.scene.tell(&format!("m{round}"), "a", act.echo()).await;
        eventually("the cut", LONG, async || far.proxy.has_met_a_commit()).await;
        far.scene.until_effect(&format!("m{round}")).await;
        check::holds(&far.scene.database, &format!("cut {at:?}")).await;
    }
    far.scene.until_done().await;
    running.end().await;
    check::holds(&far.scene.database, "all done").await;
    assert_eq!(far.scene.database.count("effects").await, 10);
    assert_eq!(far.scene.database.count("outbox_message").await, 19, "each follow-up once");
    assert_eq!(far.attempts().await, 0, "a lost connection is nobody's failure");
}

async fn a_publisher_that_loses_its_commit_publishes_again_under_the_same_id<DB: Server>() {
    let Some(far) = Far::<DB>::new().await else { return };
    for (round, at) in COMMITS.iter().enumerate() {
        let publish = async || {
            let tx = far.outbox.begin().await?;
            tx.publish(Act::record().draft(&format!("m{round}")))?;
            tx.commit().await
        };
        far.proxy.at_commit(*at);
        let error = publish().await.expect_err("the answer was lost");
        assert_eq!(error.kind(), ErrorKind::OutcomeUnknown, "{at:?}: {error:?}");
        assert!(!error.is_transient(), "a loop that tries again would do it twice");
        let again = publish().await.expect("the connection is a new one").remove(0);
        match at {
            AtCommit::CutBefore => assert!(matches!(again, Published::Stored(_)), "{again:?}"),
            AtCommit::CutAfter => assert!(matches!(again, Published::Duplicate(_)), "{again:?}"),
            AtCommit::CutIn => {}
        }
        let count = far.scene.database.number("select count(*) from outbox_message").await;
        assert_eq!(count, i64::try_from(round).expect("small") + 1, "{at:?}");
    }
    let report = far.left().build().expect("complete").run_until_idle().await.expect("it ran");
    assert_eq!((report.handled, report.remaining), (3, 0));
}

async fn a_connection_that_is_cut_under_a_handler_is_no_attempt<DB: Server>() {
    let Some(far) = Far::<DB>::new().await else { return };
    let running = Running::start(far.left());
    // One that does not notice, and one that is in the middle of a statement, in lanes of their own.
    far.scene.tell("waits", "a", Act::first(1, Does::Wait)).await;
    far.scene.tell("queries", "c", Act::first(3, DB::slow())).await;
    far.scene.until_run("waits").await;
    for round in 1..=3 {
        let running = async || far.scene.runs.of_message("queries", "left").len() == round;
        eventually("the statement to run", LONG, running).await;
        far.proxy.cut();
        far.scene.runs.open();
    }
    far.scene.until_done().await;
    running.end().await;
    check::holds(&far.scene.database, "all done").await;
    assert_eq!(far.attempts().await, 0);
}

/// What cuts its own connection each time it runs is not tried for ever.
async fn a_handler_that_always_loses_its_connection_is_dead_in_the_end<DB: Server>() {
    let Some(far) = Far::<DB>::new().await else { return };
    // Another executor would take the lane before the failure is recorded, and run it once more.
    let config = ConsumerConfig { executors: 1, ..ConsumerConfig::default() };
    let running = Running::start(far.left().config(config));
    far.scene.tell("cuts", "a", Act::always(DB::cut())).await;
    far.scene.tell("beside", "c", Act::record()).await;
    far.scene.until_dead(1).await;
    running.end().await;
    assert_eq!(far.scene.runs.of_message("cuts", "left").len(), 10);
    assert_eq!(far.scene.effects_of("beside").await, 1);
    check::holds(&far.scene.database, "one is dead").await;
}

async fn a_server_that_stalls_is_waited_for<DB: Server>() {
    let Some(far) = Far::<DB>::new().await else { return };
    let running = Running::start(far.left());
    for number in 0..20 {
        far.scene.tell(&format!("before{number}"), &format!("key {number}"), Act::record()).await;
    }
    far.scene.until_effect("before3").await;
    far.proxy.stall();
    for number in 0..20 {
        far.scene.tell(&format!("after{number}"), &format!("key {number}"), Act::record()).await;
    }
    let pause = Duration::from_secs(2);
    tokio::time::sleep(pause).await; // sleep-ok: how long the server stalls is what is tested
    check::holds(&far.scene.database, "stalled").await;
    far.proxy.pass();
    let passing = Instant::now();
    far.scene.until_done().await;
    assert!(passing.elapsed() < Duration::from_secs(10), "done after {:?}", passing.elapsed());
    running.end().await;
    check::holds(&far.scene.database, "all done").await;
    assert_eq!((far.scene.database.count("effects").await, far.attempts().await), (40, 0));
}

/// Keeps what is logged.
#[derive(Debug, Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(line);
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[cfg(feature = "postgres")]
#[test]
fn a_server_that_is_away_is_waited_for_in_few_words_on_postgres() {
    a_server_that_is_away_is_waited_for_in_few_words::<sqlx::Postgres>();
}

#[cfg(feature = "mysql")]
#[test]
fn a_server_that_is_away_is_waited_for_in_few_words_on_mysql() {
    a_server_that_is_away_is_waited_for_in_few_words::<sqlx::MySql>();
}

fn a_server_that_is_away_is_waited_for_in_few_words<DB: Server>() {
    let lines = Lines::default();
    let log =
        tracing_subscriber::fmt().with_ansi(false).with_env_filter("outbox=info").with_writer(lines.clone());
    // On this thread alone, with a runtime that has no other.
    let _log = tracing::subscriber::set_default(log.finish());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let Some(far) = Far::<DB>::new().await else { return };
        let running = Running::start(far.left());
        far.scene.tell("before", "a", Act::record()).await;
        far.scene.until_effect("before").await;
        let said = || String::from_utf8_lossy(&lines.0.lock().expect("nobody panics")).into_owned();
        let before = said().lines().count();
        far.proxy.refuse();
        eventually("a word", LONG, async || said().contains("keeps trying")).await;
        far.scene.tell("after", "a", Act::record()).await;
        let pause = Duration::from_secs(3);
        tokio::time::sleep(pause).await; // sleep-ok: how long the server is away is what is tested
        far.proxy.pass();
        let passing = Instant::now();
        far.scene.until_effect("after").await;
        assert!(passing.elapsed() < Duration::from_secs(10), "goes on after {:?}", passing.elapsed());
        far.scene.until_done().await;
        running.end().await;
        assert_eq!(far.attempts().await, 0);
        let text = said();
        let new: Vec<&str> = text.lines().skip(before).collect();
        assert!(new.len() <= 12, "{} lines:\n{}", new.len(), new.join("\n"));
        check::holds(&far.scene.database, "all done").await;
    });
}
