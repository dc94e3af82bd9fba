//! Kills the worker process twenty times and counts what is left of a thousand messages: all of them, once each.
//!
//! `cargo run --example crash_demo`, or on PostgreSQL
//! `cargo run --features postgres --example crash_demo -- --backend postgres --database-url postgres://…`, or the same with
//! `mysql`, where it
//! works in a schema of its own that it drops at the end.
#![allow(clippy::print_stdout, reason = "an example talks")]

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitCode};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use outbox::{
    Backend, Config, ConsumerConfig, Context, Envelope, Outbox, OutboxEvent, Retry, State, Tables,
    outbox_handler,
};
use serde::{Deserialize, Serialize};
use sqlx::Pool;

const MESSAGES: i64 = 1_000;
const ACCOUNTS: i64 = 20;
const KILLS: i64 = 20;
/// Without one of these something is badly wrong; it is no measure of speed.
const PATIENCE: Duration = Duration::from_mins(2);

/// Numbered within its account, so that order can be checked.
#[derive(Debug, Serialize, Deserialize, OutboxEvent)]
#[outbox(type = "account.credited", aggregate = "{account}")]
struct Credited {
    account: i64,
    number: i64,
}

/// One byte for each start of the handler, written before its first statement: no rollback takes it back.
struct Starts(File);

#[outbox_handler(manual, consumer = "ledger")]
async fn book<DB: Database>(
    credited: Envelope<Credited>,
    starts: State<Starts>,
    ctx: &mut Context<DB>,
) -> anyhow::Result<()> {
    (&starts.0).write_all(b".")?;
    DB::book(ctx, credited.account, credited.number).await?;
    // Time to be killed in.
    tokio::time::sleep(Duration::from_millis(fastrand::u64(0..4))).await;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<ExitCode> {
    let arguments = Arguments::parse(std::env::args().skip(1))?;
    match (arguments.backend.as_str(), arguments.database_url.clone()) {
        ("sqlite", None) => {
            let dir = tempfile::tempdir()?;
            let url = format!("sqlite://{}?mode=rwc", dir.path().join("crash_demo.db").display());
            demonstrate::<sqlx::Sqlite>(&arguments, &url).await
        }
        ("sqlite", Some(url)) => demonstrate::<sqlx::Sqlite>(&arguments, &url).await,
        #[cfg(feature = "postgres")]
        ("postgres", Some(url)) => demonstrate::<sqlx::Postgres>(&arguments, &url).await,
        #[cfg(feature = "postgres")]
        ("postgres", None) => bail!("--backend postgres needs --database-url"),
        #[cfg(feature = "mysql")]
        ("mysql", Some(url)) => demonstrate::<sqlx::MySql>(&arguments, &url).await,
        #[cfg(feature = "mysql")]
        ("mysql", None) => bail!("--backend mysql needs --database-url"),
        (other, _) => bail!(
            "there is no backend `{other}` in this build; PostgreSQL needs `--features postgres`, and MySQL or MariaDB \
             `--features mysql`"
        ),
    }
}

async fn demonstrate<DB: Database>(arguments: &Arguments, url: &str) -> anyhow::Result<ExitCode> {
    let pool = DB::connect(url).await.context("cannot connect")?;
    if let Some(starts) = &arguments.worker {
        work(DB::outbox(pool)?, starts).await?;
        return Ok(ExitCode::SUCCESS);
    }
    DB::prepare(&pool).await.context("cannot make the tables")?;
    let outbox = DB::outbox(pool.clone())?;
    outbox.migrate().await?;
    let outcome = run(&outbox, &pool, arguments, url).await;
    DB::clean_up(&pool).await?;
    outcome
}

/// The process that is killed.
async fn work<DB: Database>(outbox: Outbox<DB>, starts: &PathBuf) -> anyhow::Result<()> {
    let starts = Starts(OpenOptions::new().append(true).open(starts)?);
    let config = ConsumerConfig {
        poll_interval: Duration::from_millis(50),
        retry: Some(Retry::every(Duration::from_millis(20))),
        ..ConsumerConfig::default()
    };
    outbox.consumers().handler::<book<DB>>().state(starts).config(config).build()?.run().await?;
    Ok(())
}

async fn run<DB: Database>(
    outbox: &Outbox<DB>,
    pool: &Pool<DB>,
    arguments: &Arguments,
    url: &str,
) -> anyhow::Result<ExitCode> {
    let starts = tempfile::NamedTempFile::new()?;
    let worker =
        Worker { backend: arguments.backend.clone(), url: url.to_owned(), starts: starts.path().into() };
    for number in 0..MESSAGES / ACCOUNTS {
        let events = (0..ACCOUNTS).map(|account| Credited { account, number });
        let mut tx = outbox.begin().await?;
        outbox.publish_events(&mut tx, events).await?;
        tx.commit().await?;
    }
    println!("published      {MESSAGES} messages of {ACCOUNTS} accounts");

    let mut slowest = Duration::ZERO;
    let mut child = worker.start()?;
    for kill in 1..=KILLS {
        // Spread over the whole work, and at no particular point of it.
        reach(pool, kill * MESSAGES / (KILLS + 2), &mut child).await?;
        tokio::time::sleep(Duration::from_millis(fastrand::u64(0..15))).await;
        child.kill()?;
        child.wait()?;
        let (killed, before) = (Instant::now(), DB::effects(pool).await?);
        child = worker.start()?;
        reach(pool, before + 1, &mut child).await?;
        slowest = slowest.max(killed.elapsed());
    }
    println!("killed         {KILLS} workers with SIGKILL");
    reach(pool, MESSAGES, &mut child).await?;
    child.kill()?;
    child.wait()?;

    let effects = DB::effects(pool).await?;
    let distinct = DB::distinct_effects(pool).await?;
    let violations = DB::order_violations(pool).await?;
    let started = i64::try_from(std::fs::metadata(starts.path())?.len())?;
    println!("effects        {effects} ({distinct} distinct)");
    println!("redelivered    {} handler starts that a kill undid", started - effects);
    println!("out of order   {violations}");
    println!("recovery       {} ms at most, from the kill to the next effect", slowest.as_millis());
    let promised = (effects, distinct, violations) == (MESSAGES, MESSAGES, 0);
    println!(
        "{}",
        if promised { "as promised: each message took effect exactly once, in order" } else { "BROKEN" }
    );
    Ok(if promised { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Waits until there are this many effects.
async fn reach<DB: Database>(pool: &Pool<DB>, effects: i64, worker: &mut Child) -> anyhow::Result<()> {
    let since = Instant::now();
    while DB::effects(pool).await? < effects {
        ensure!(since.elapsed() < PATIENCE, "the worker has stopped working");
        if let Some(status) = worker.try_wait()? {
            bail!("the worker ended by itself: {status}");
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

struct Worker {
    backend: String,
    url: String,
    starts: PathBuf,
}

impl Worker {
    fn start(&self) -> anyhow::Result<Child> {
        Ok(Command::new(std::env::current_exe()?)
            .args(["--backend", &self.backend, "--database-url", &self.url, "--worker"])
            .arg(&self.starts)
            .spawn()?)
    }
}

struct Arguments {
    backend: String,
    database_url: Option<String>,
    /// Where the worker counts its starts.
    worker: Option<PathBuf>,
}

impl Arguments {
    fn parse(mut words: impl Iterator<Item = String>) -> anyhow::Result<Self> {
        let mut arguments = Self { backend: "sqlite".to_owned(), database_url: None, worker: None };
        while let Some(word) = words.next() {
            let mut value = || words.next().with_context(|| format!("`{word}` needs a value"));
            match word.as_str() {
                "--backend" => arguments.backend = value()?,
                "--database-url" => arguments.database_url = Some(value()?),
                "--worker" => arguments.worker = Some(value()?.into()),
                _ => bail!(
                    "unknown argument `{word}`; there are --backend sqlite|postgres|mysql and --database-url URL"
                ),
            }
        }
        Ok(arguments)
    }
}

/// What differs between the databases.
trait Database: Backend {
    async fn connect(url: &str) -> anyhow::Result<Pool<Self>>;
    fn outbox(pool: Pool<Self>) -> anyhow::Result<Outbox<Self>>;
    async fn prepare(pool: &Pool<Self>) -> anyhow::Result<()>;
    async fn clean_up(pool: &Pool<Self>) -> anyhow::Result<()>;
    fn book(
        conn: &mut Self::Connection,
        account: i64,
        number: i64,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;
    async fn effects(pool: &Pool<Self>) -> anyhow::Result<i64>;
    async fn distinct_effects(pool: &Pool<Self>) -> anyhow::Result<i64>;
    async fn order_violations(pool: &Pool<Self>) -> anyhow::Result<i64>;
}

macro_rules! database {
    ($database:ty, $options:ty, $connection:ty, $schema:literal, $id:literal, $values:literal, $cascade:literal, [$($adjust:ident),*]) => {
        impl Database for $database {
            async fn connect(url: &str) -> anyhow::Result<Pool<Self>> {
                let options: $options = url.parse()?;
                $(let options = $adjust(options);)*
                Ok(Pool::connect_with(options).await?)
            }

            fn outbox(pool: Pool<Self>) -> anyhow::Result<Outbox<Self>> {
                let schema = $schema.trim_end_matches('.');
                let tables = Tables::new(schema, "")?;
                Ok(Outbox::with_config(pool, Config { tables, ..Config::default() }))
            }

            async fn prepare(pool: &Pool<Self>) -> anyhow::Result<()> {
                if !$schema.is_empty() {
                    sqlx::raw_sql(concat!("drop schema if exists crash_demo", $cascade, "; create schema crash_demo"))
                        .execute(pool)
                        .await?;
                }
                sqlx::raw_sql(concat!(
                    "create table ", $schema, "effects (id ", $id, ", account bigint not null, number bigint not null)"
                ))
                .execute(pool)
                .await?;
                Ok(())
            }

            async fn clean_up(pool: &Pool<Self>) -> anyhow::Result<()> {
                if !$schema.is_empty() {
                    sqlx::raw_sql(concat!("drop schema crash_demo", $cascade)).execute(pool).await?;
                }
                Ok(())
            }

            async fn book(conn: &mut $connection, account: i64, number: i64) -> sqlx::Result<()> {
                sqlx::query(concat!("insert into ", $schema, "effects (account, number) values ", $values))
                    .bind(account)
                    .bind(number)
                    .execute(conn)
                    .await?;
                Ok(())
            }

            async fn effects(pool: &Pool<Self>) -> anyhow::Result<i64> {
                Ok(sqlx::query_scalar(concat!("select count(*) from ", $schema, "effects")).fetch_one(pool).await?)
            }

            async fn distinct_effects(pool: &Pool<Self>) -> anyhow::Result<i64> {
                let sql = concat!("select count(*) from (select distinct account, number from ", $schema, "effects) e");
                Ok(sqlx::query_scalar(sql).fetch_one(pool).await?)
            }

            async fn order_violations(pool: &Pool<Self>) -> anyhow::Result<i64> {
                let sql = concat!(
                    "select count(*) from (select number, lag(number) over (partition by account order by id) previous \
                     from ", $schema, "effects) e where number <= previous"
                );
                Ok(sqlx::query_scalar(sql).fetch_one(pool).await?)
            }
        }
    };
}

fn write_ahead(options: sqlx::sqlite::SqliteConnectOptions) -> sqlx::sqlite::SqliteConnectOptions {
    options.journal_mode(sqlx::sqlite::SqliteJournalMode::Wal)
}

database!(
    sqlx::Sqlite,
    sqlx::sqlite::SqliteConnectOptions,
    sqlx::SqliteConnection,
    "",
    "integer primary key autoincrement",
    "($1, $2)",
    "",
    [write_ahead]
);
#[cfg(feature = "postgres")]
database!(
    sqlx::Postgres,
    sqlx::postgres::PgConnectOptions,
    sqlx::PgConnection,
    "crash_demo.",
    "bigint generated always as identity",
    "($1, $2)",
    " cascade",
    []
);
#[cfg(feature = "mysql")]
database!(
    sqlx::MySql,
    sqlx::mysql::MySqlConnectOptions,
    sqlx::MySqlConnection,
    "crash_demo.",
    "bigint not null auto_increment primary key",
    "(?, ?)",
    "",
    []
);
