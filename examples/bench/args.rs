//! The options.

use anyhow::ensure;
use clap::{Parser, ValueEnum};
use serde::{Deserialize, Serialize};

/// How many events a call has in the mode `many`, and in what is published before the time begins.
pub(crate) const CALL: i64 = 1_000;

/// How many consumers there can be: as many as `handlers` has.
pub(crate) const MOST_CONSUMERS: i64 = 16;

/// Measures outbox against a raw sqlx loop that leaves the same effects.
///
/// Exits with 0 when every message was handled once and in order, with 1 when one was not, and with 2 when nothing could
/// be measured.
#[derive(Debug, Clone, Parser, Serialize, Deserialize)]
#[command(name = "bench", args_override_self = true)]
pub(crate) struct Args {
    /// The database.
    #[arg(long, value_enum, default_value_t = Backend::Sqlite)]
    pub(crate) backend: Backend,
    /// PostgreSQL: a URL; a schema is made there and dropped at the end. MySQL and MariaDB: the same with a database. SQLite: a
    /// folder for its files, or a file in it; the system's temporary one when missing.
    #[arg(long, value_name = "URL")]
    pub(crate) database_url: Option<String>,
    /// What is timed. The events of `many` go 1000 a call.
    #[arg(long = "publish", value_enum, default_value_t = Mode::ConsumeOnly, value_name = "MODE")]
    pub(crate) mode: Mode,
    /// What a handler does with a message.
    #[arg(long, value_enum, default_value_t = Handler::Insert)]
    pub(crate) handler: Handler,
    /// How many messages a round has.
    #[arg(long, default_value_t = 10_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000_000))]
    pub(crate) messages: u32,
    /// How many ordering keys they are spread over.
    #[arg(long, default_value_t = 5_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) keys: u32,
    /// One key for all messages, and one loop on the raw side.
    #[arg(long)]
    pub(crate) hot_key: bool,
    /// How many consumers take every message.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=MOST_CONSUMERS))]
    pub(crate) consumers: u16,
    /// How many messages are worked on at once, in all processes together; or how many publish.
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) executors: u16,
    /// How many processes consume. With one it is this process.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) processes: u16,
    /// How many messages a transaction has at most, and a call of `batch`; on the raw side it always
    /// has so many, and with `update-hot` one.
    #[arg(long, default_value_t = 100, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) group: u32,
    /// How many rounds.
    #[arg(long, default_value_t = 5, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) rounds: u32,
    /// Messages that have been handled and marked before.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) history: u32,
    /// Messages that are still to be handled when the time is over.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) backlog: u32,
    /// Failed messages of other keys that are due in an hour.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub(crate) parked: u32,
    /// The share of the keys whose messages fail for ever, tried again each 200 ms. Only the others count.
    #[arg(long, default_value_t = 0.0, value_name = "SHARE")]
    pub(crate) failing: f64,
    /// The raw loop of `--publish single` inserts the event too, into a table of its own: an outbox as it is written by hand.
    #[arg(long)]
    pub(crate) by_hand: bool,
    /// Somebody holds a snapshot open while the time runs.
    #[arg(long)]
    pub(crate) pinned_snapshot: bool,
    /// How many messages a second are published while the latency is measured; 0 = it is not.
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=1_000_000))]
    pub(crate) rate: u32,
    /// For how long.
    #[arg(long, default_value_t = 3, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) seconds: u32,
    /// How the result is printed.
    #[arg(long, value_enum, default_value_t = Format::Human)]
    pub(crate) format: Format,
    /// A process that another one has started, and tells what to do.
    #[arg(long, hide = true)]
    pub(crate) worker: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Backend {
    Sqlite,
    Postgres,
    Mysql,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Mode {
    /// Consuming: everything was published before.
    ConsumeOnly,
    /// Publishing: a row of the application's and an event in each transaction.
    Single,
    /// Publishing: as many rows as events in each transaction.
    Many,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Handler {
    /// Nothing; the raw loop asks for `select 1`. Order cannot be seen.
    Noop,
    /// One insert.
    Insert,
    /// One insert, and updates of two of 200 rows.
    UpdateHot,
    /// One insert and one event; the raw loop inserts what the event says.
    FollowUp,
    /// One insert for all messages of a call.
    Batch,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Format {
    Human,
    Json,
}

impl Backend {
    /// As it is given to `--backend`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::Mysql => "mysql",
        }
    }
}

impl Args {
    /// What clap cannot check.
    pub(crate) fn check(&self) -> anyhow::Result<()> {
        ensure!((0.0..1.0).contains(&self.failing), "--failing is a share from 0 to below 1");
        ensure!(
            self.executors >= self.processes,
            "--executors is for all processes together: one each at least"
        );
        ensure!(
            self.backlog == 0 || self.mode == Mode::ConsumeOnly,
            "--backlog is for consuming; --history is for both"
        );
        ensure!(!self.by_hand || self.mode == Mode::Single, "--by-hand is for --publish single");
        Ok(())
    }

    pub(crate) fn messages(&self) -> i64 {
        i64::from(self.messages)
    }

    /// All that is published before the time begins.
    pub(crate) fn published(&self) -> i64 {
        i64::from(self.messages) + i64::from(self.backlog)
    }

    pub(crate) fn keys(&self) -> i64 {
        if self.hot_key { 1 } else { i64::from(self.keys) }
    }

    /// The key of a message.
    pub(crate) fn key(&self, message: i64) -> i64 {
        message % self.keys()
    }

    /// How many keys have messages that fail for ever. They are the lowest.
    pub(crate) fn failing_keys(&self) -> i64 {
        let keys = if self.hot_key { 1 } else { self.keys };
        let failing = (0..keys).take_while(|key| f64::from(*key) + 0.5 < self.failing * f64::from(keys));
        i64::try_from(failing.count()).expect("there are not more than u32 can say")
    }
}

/// The words of the command, without a password.
pub(crate) fn command() -> String {
    let words: Vec<String> = std::env::args().skip(1).map(|word| without_password(&word)).collect();
    format!("bench {}", words.join(" "))
}

/// `scheme://user:***@host…`, and no parameters, which may have one too.
fn without_password(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else { return word.to_owned() };
    let rest = rest.split('?').next().unwrap_or_default();
    match rest.rsplit_once('@') {
        Some((user, place)) => {
            let user = user.split(':').next().unwrap_or_default();
            format!("{scheme}://{user}:***@{place}")
        }
        None => format!("{scheme}://{rest}"),
    }
}
