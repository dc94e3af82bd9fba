//! The promises where something breaks: processes that die, connections that are cut, servers that stall, handlers
//! that fail in every way, and operators in the middle of it.

#[cfg(any(feature = "postgres", feature = "mysql"))]
mod clock;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod connections;
mod external;
mod frozen;
mod handlers;
mod kill;
mod operate;
mod poison;
mod policy;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod restart;

use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::sync::Once;
use std::time::Duration;

use outbox::{
    ConsumerConfig, Consumers, ConsumersBuilder, Draft, HandlerOptions, Outbox, Published, Report, Retry,
};
use outbox_tests::act::{Act, Calls, Left, Right, Runs};
use outbox_tests::child::{Orders, Task};
use outbox_tests::{Process, TestBackend, TestDatabase, check, eventually};
use tempfile::TempDir;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Ten times what anything here should take.
pub(crate) const LONG: Duration = Duration::from_mins(1);

/// Makes a test for each database of functions that are generic over it.
macro_rules! on_each_database {
    ($($test:ident),+ $(,)?) => {
        mod sqlite {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::$test::<sqlx::Sqlite>().await;
                }
            )+
        }

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
pub(crate) use on_each_database;

/// A database, and a record of what ran on it.
pub(crate) struct Scene<DB: TestBackend> {
    pub(crate) database: TestDatabase<DB>,
    pub(crate) outbox: Outbox<DB>,
    pub(crate) runs: Runs,
    folder: TempDir,
}

impl<DB: TestBackend> Scene<DB> {
    /// `None` where there is no server: return from the test.
    pub(crate) async fn new() -> Option<Self> {
        quiet();
        let database = TestDatabase::migrated().await?;
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        Some(Self { outbox: database.outbox(), runs: Runs::new(folder.path()), database, folder })
    }

    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// One message, in a transaction of its own.
    pub(crate) async fn publish(&self, draft: Draft) -> Published {
        let tx = self.outbox.begin().await.expect("begun");
        tx.publish(draft).expect("accepted");
        tx.commit().await.expect("committed").remove(0)
    }

    /// One message of a key, in a transaction of its own.
    pub(crate) async fn tell(&self, id: &str, key: &str, act: Act) {
        self.publish(act.draft(id).key(key)).await;
    }

    /// The left consumer, eager.
    pub(crate) fn left(&self, change: impl Fn(&mut HandlerOptions)) -> ConsumersBuilder<DB> {
        self.eager().handler::<Left>().options("left", at_once).options("left", change)
    }

    /// Both consumers, eager.
    pub(crate) fn both(&self, change: impl Fn(&mut HandlerOptions)) -> ConsumersBuilder<DB> {
        self.left(&change).handler::<Right>().options("right", at_once).options("right", change)
    }

    fn eager(&self) -> ConsumersBuilder<DB> {
        let config = ConsumerConfig { poll_interval: Duration::from_millis(20), ..ConsumerConfig::default() };
        self.outbox.consumers().config(config).state(self.runs.clone())
    }

    /// Registers both consumers, so that every message that is published from now on is delivered to them.
    pub(crate) async fn registered(&self) {
        let consumers = self.both(|_| ()).build().expect("complete");
        consumers.run_until_idle().await.expect("nothing is in its way");
    }

    /// [`registered`](Self::registered) with the left consumer alone.
    pub(crate) async fn left_registered(&self) {
        let consumers = self.left(|_| ()).build().expect("complete");
        consumers.run_until_idle().await.expect("nothing is in its way");
    }

    /// Registers the consumer that calls.
    pub(crate) async fn calls_registered(&self) {
        let consumers = self.eager().handler::<Calls>().build().expect("complete");
        consumers.run_until_idle().await.expect("nothing is in its way");
    }

    /// A child process; `crash` is the named point at which it dies, and after how many passes.
    pub(crate) fn spawn(&self, task: Task, crash: Option<&str>) -> Process {
        let [program, orders] = self.command(task);
        let mut command = Command::new(program);
        command.arg(orders);
        if let Some(crash) = crash {
            command.env("OUTBOX_CRASH_POINT", crash);
        }
        Process::start(&mut command).expect("the child was built")
    }

    /// The child's program and its argument.
    pub(crate) fn command(&self, task: Task) -> [String; 2] {
        let orders = Orders {
            database: DB::NAME.to_owned(),
            address: self.database.address().to_owned(),
            log: self.folder().join("log"),
            runs: self.runs.path().to_owned(),
            task,
        };
        let orders = serde_json::to_string(&orders).expect("orders are JSON");
        [env!("CARGO_BIN_EXE_outbox-test-child").to_owned(), orders]
    }

    /// SIGSTOP, at a moment at which the child does not hold what stops everybody: on SQLite the lock on the file's
    /// writes, which nothing can take from a process that stands still.
    pub(crate) async fn stop_between_writes(&self, process: &Process) {
        let own = self.database.another_pool(1).await;
        let mut conn = own.acquire().await.expect("the pool has a connection");
        if DB::NAME == "SQLite" {
            DB::execute(&mut *conn, "pragma busy_timeout = 100").await.expect("a pragma");
        }
        eventually("the child to stop between two writes", LONG, async || {
            process.stop().expect("a child can be stopped");
            let free =
                DB::NAME != "SQLite" || DB::execute(&mut *conn, "begin immediate; rollback").await.is_ok();
            if !free {
                process.resume().expect("a child can go on");
            }
            free
        })
        .await;
    }

    /// What the children have logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder().join("log")).unwrap_or_default()
    }

    pub(crate) async fn until_done(&self) {
        eventually("everything to be handled", LONG, async || check::undone(&self.database).await == 0).await;
    }

    pub(crate) async fn effects_of(&self, id: &str) -> i64 {
        self.database.number(&format!("select count(*) from effects where message_id = '{id}'")).await
    }

    pub(crate) async fn until_effect(&self, id: &str) {
        eventually("an effect", LONG, async || self.effects_of(id).await > 0).await;
    }

    pub(crate) async fn until_run(&self, id: &str) {
        eventually("a run", LONG, async || !self.runs.of_message(id, "left").is_empty()).await;
    }

    /// How many messages are dead.
    pub(crate) async fn dead(&self) -> i64 {
        self.database.number("select count(*) from outbox_parked where state in (2, 3, 6)").await
    }

    pub(crate) async fn until_dead(&self, count: i64) {
        eventually("dead messages", LONG, async || self.dead().await == count).await;
    }
}

/// Shows a line even when the test passes.
pub(crate) fn show(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}

/// Does not print the panics that are wanted.
fn quiet() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            if !panic.payload_as_str().is_some_and(|text| text.starts_with("as told")) {
                print(panic);
            }
        }));
    });
}

/// Retries without a pause.
pub(crate) fn at_once(options: &mut HandlerOptions) {
    options.retry = Retry { max_attempts: 3, ..Retry::every(Duration::ZERO) };
}

/// Consumers that run until the test ends them.
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<outbox::Result<Report>>,
}

impl Running {
    pub(crate) fn start<DB: TestBackend>(consumers: ConsumersBuilder<DB>) -> Self {
        let consumers: Consumers<DB> = consumers.build().expect("complete");
        let (stop, stopped) = oneshot::channel::<()>();
        Self { stop, task: tokio::spawn(consumers.run_until(async { drop(stopped.await) })) }
    }

    pub(crate) async fn end(self) -> Report {
        let _ = self.stop.send(());
        self.task.await.expect("no consumer panics").expect("the consumers ran")
    }
}
