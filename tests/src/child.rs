//! What the crash suite's child processes do: consume, publish, operate.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use outbox::{ConsumerConfig, Dead, Outbox, Retry, StartFrom};
use serde::{Deserialize, Serialize};
use sqlx::Pool;

use crate::TestBackend;
use crate::act::{Act, Calls, Left, Right, Runs};

/// A process's orders.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Orders {
    /// sqlx's name of the database.
    pub database: String,
    /// For [`TestBackend::connect`].
    pub address: String,
    /// Where everything above debug level is written to.
    pub log: PathBuf,
    /// Where handlers note their runs.
    pub runs: PathBuf,
    /// What to do.
    pub task: Task,
}

/// What a process does.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Task {
    /// Run both consumers until SIGTERM.
    Consume(Consume),
    /// Publish messages `p-0`, `p-1`, …, each with its change and in its own transaction, in the given number of
    /// keys; leaves out those whose change exists.
    Publish {
        /// How many.
        count: usize,
        /// In how many keys.
        keys: usize,
    },
    /// Run the consumer that calls until SIGTERM.
    Call(Call),
    /// Requeue all that is dead.
    Requeue,
    /// Discard all that is dead.
    Discard,
}

/// How a process consumes.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Consume {
    /// How many messages at once.
    pub executors: usize,
    /// After how many failures a message is dead.
    pub max_attempts: u32,
    /// Between two attempts, in milliseconds.
    pub pause: u64,
    /// A handler's time, in milliseconds.
    pub timeout: u64,
    /// How long a transaction may be left alone beyond that, in milliseconds.
    pub idle_grace: u64,
    /// How many messages share a transaction at most.
    pub group: u32,
    /// Whether a new consumer gets all that is stored.
    #[serde(default)]
    pub from_the_beginning: bool,
    /// Whether what is handled leaves a mark.
    pub inbox: bool,
}

impl Default for Consume {
    fn default() -> Self {
        Self {
            executors: 3,
            max_attempts: 100,
            pause: 30,
            timeout: 10_000,
            idle_grace: 10_000,
            group: 100,
            from_the_beginning: false,
            inbox: true,
        }
    }
}

/// How a process calls.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Call {
    /// How long lanes are leased, in milliseconds.
    pub lease: u64,
    /// After how many failures a message is dead.
    pub max_attempts: u32,
    /// Between two attempts, in milliseconds.
    pub pause: u64,
    /// How many messages are read at once.
    pub group: u32,
}

/// Does as ordered.
///
/// # Errors
/// When it could not.
pub async fn run(orders: Orders) -> anyhow::Result<()> {
    let log = OpenOptions::new().append(true).create(true).open(&orders.log)?;
    let level = tracing_subscriber::EnvFilter::new("info");
    tracing_subscriber::fmt().with_env_filter(level).with_ansi(false).with_writer(Mutex::new(log)).init();
    // The handlers' panics are wanted.
    std::panic::set_hook(Box::new(|_| ()));
    match orders.database.as_str() {
        "SQLite" => work(sqlx::Sqlite::connect(&orders.address, 2).await?, &orders).await,
        #[cfg(feature = "postgres")]
        "PostgreSQL" => {
            work(<sqlx::Postgres as TestBackend>::connect(&orders.address, 2).await?, &orders).await
        }
        #[cfg(feature = "mysql")]
        "MySQL" => work(<sqlx::MySql as TestBackend>::connect(&orders.address, 2).await?, &orders).await,
        other => anyhow::bail!("no such database: {other}"),
    }
}

async fn work<DB: TestBackend>(pool: Pool<DB>, orders: &Orders) -> anyhow::Result<()> {
    let outbox = Outbox::new(pool);
    match &orders.task {
        Task::Consume(consume) => {
            let mut consumers = outbox.consumers().handler::<Left>().handler::<Right>();
            for consumer in ["left", "right"] {
                consumers = consumers.options(consumer, |options| {
                    options.retry = Retry {
                        max_attempts: consume.max_attempts,
                        ..Retry::every(Duration::from_millis(consume.pause))
                    };
                    options.timeout = Duration::from_millis(consume.timeout);
                    options.group = consume.group;
                    if consume.from_the_beginning {
                        options.start_from = StartFrom::Beginning;
                    }
                    options.inbox = consume.inbox;
                });
            }
            let config = ConsumerConfig {
                executors: consume.executors,
                poll_interval: Duration::from_millis(50),
                idle_grace: Duration::from_millis(consume.idle_grace),
                ..ConsumerConfig::default()
            };
            consumers.state(Runs::of(orders.runs.clone())).config(config).build()?.run().await?;
        }
        Task::Call(call) => {
            let consumers = outbox.consumers().handler::<Calls>().options("calls", |options| {
                options.retry = Retry {
                    max_attempts: call.max_attempts,
                    ..Retry::every(Duration::from_millis(call.pause))
                };
                options.lease = Duration::from_millis(call.lease);
                options.group = call.group;
            });
            let config =
                ConsumerConfig { poll_interval: Duration::from_millis(50), ..ConsumerConfig::default() };
            consumers.state(Runs::of(orders.runs.clone())).config(config).build()?.run().await?;
        }
        Task::Publish { count, keys } => {
            for number in 0..*count {
                publish(&outbox, number, number % keys).await?;
            }
        }
        Task::Requeue => drop(outbox.admin().requeue(&Dead::all()).await?),
        Task::Discard => drop(outbox.admin().discard(&Dead::all()).await?),
    }
    Ok(())
}

async fn publish<DB: TestBackend>(outbox: &Outbox<DB>, number: usize, key: usize) -> anyhow::Result<()> {
    let id = format!("p-{number}");
    let mut tx = outbox.begin().await?;
    let sql = format!("select count(*) from business where message_id = '{id}'");
    if DB::number(&mut tx, &sql).await? == 0 {
        DB::execute(&mut tx, &format!("insert into business (message_id) values ('{id}')")).await?;
        let act = Act::record().echo();
        tx.publish(act.draft(&id).key(format!("key {key}")))?;
    }
    tx.commit().await?;
    Ok(())
}
