//! Measures outbox against a raw sqlx loop that leaves the same effects.
//!
//! `cargo run --release --example bench` on SQLite, or on PostgreSQL
//! `cargo run --release --features postgres --example bench -- --backend postgres --database-url postgres://…`, or on MySQL
//! and MariaDB the same with `mysql`.
//! `--help` has the options; `--format json` prints one object.
//!
//! A round makes tables of its own, publishes, and measures both sides one after the other, in turn, so that a machine
//! which becomes slower slows down both. The numbers are the medians of the rounds, `ratio` that of the rounds' own ratios.
//! The raw loop is given its work for nothing: it executes the handler's statements for each message, as many messages in
//! a transaction as outbox takes at most. It knows no order, no retries and no crash.
//!
//! After the rounds two more runs are not timed: one publishes at `--rate` and takes the time from each commit to
//! the handled message, one counts commits, log bytes and statements. What every run left behind is checked: each message
//! once for each consumer, in order. The exit status is 1 where it is not, and 2 where nothing could be measured.
//!
//! Where the options are not enough: read `consume` and `publish` for what is timed, `verify` for what is checked. A
//! database is one implementation of `database::Database`.
#![allow(clippy::print_stdout, reason = "an example talks")]

mod args;
mod consume;
mod count;
mod cpu;
mod database;
mod handlers;
mod latency;
#[cfg(feature = "mysql")]
mod mysql;
mod numbers;
#[cfg(feature = "postgres")]
mod postgres;
mod publish;
mod raw;
mod report;
mod sqlite;
mod verify;
mod workers;

use std::process::ExitCode;

use clap::Parser as _;

use crate::args::{Args, Backend, Format, Mode};
use crate::database::{Database, Place};
use crate::report::{Report, Round};
use crate::verify::Verdict;

#[tokio::main]
async fn main() -> ExitCode {
    match run(Args::parse()).await {
        Ok(verdict) => ExitCode::from(verdict.status()),
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::from(2)
        }
    }
}

async fn run(args: Args) -> anyhow::Result<Verdict> {
    match args.backend {
        Backend::Sqlite => on::<sqlx::Sqlite>(args).await,
        #[cfg(feature = "postgres")]
        Backend::Postgres => on::<sqlx::Postgres>(args).await,
        #[cfg(not(feature = "postgres"))]
        Backend::Postgres => anyhow::bail!("PostgreSQL is not in this build; it needs `--features postgres`"),
        #[cfg(feature = "mysql")]
        Backend::Mysql => on::<sqlx::MySql>(args).await,
        #[cfg(not(feature = "mysql"))]
        Backend::Mysql => anyhow::bail!("MySQL is not in this build; it needs `--features mysql`"),
    }
}

async fn on<DB: Database>(args: Args) -> anyhow::Result<Verdict> {
    if args.worker {
        workers::obey::<DB>().await?;
        return Ok(Verdict::default());
    }
    args.check()?;
    let report = measure::<DB>(&args).await?;
    match args.format {
        Format::Human => print!("{report}"),
        Format::Json => println!("{}", serde_json::to_string(&report)?),
    }
    Ok(report.verdict)
}

async fn measure<DB: Database>(args: &Args) -> anyhow::Result<Report> {
    let mut verdict = Verdict::default();
    let mut rounds = Vec::new();
    for number in 1..=args.rounds {
        let round = Place::<DB>::with(args, false, async |place| round(place, args, number).await).await?;
        verdict.add(round.verdict);
        eprintln!("round {number} of {}: {round}", args.rounds);
        rounds.push(round);
    }
    let latency = match args.mode {
        Mode::ConsumeOnly if args.rate > 0 => {
            let (latency, found) =
                Place::<DB>::with(args, false, async |place| latency::measure(place, args).await).await?;
            verdict.add(found);
            Some(latency)
        }
        _ => None,
    };
    let (counts, settings, found) =
        Place::<DB>::with(args, true, async |place| count::measure(place, args).await).await?;
    verdict.add(found);
    Ok(Report::new(args, &rounds, latency, counts, settings, verdict))
}

/// Both sides on the same tables; odd rounds begin with the raw one.
async fn round<DB: Database>(place: &Place<DB>, args: &Args, number: u32) -> anyhow::Result<Round> {
    let raw_first = number % 2 == 1;
    consume::fill(place, args).await?;
    let mut raw = None;
    if raw_first {
        raw = Some(raw::measure(place, args).await?);
    }
    let (outbox, verdict) = match args.mode {
        Mode::ConsumeOnly => consume::measure(place, args).await?,
        Mode::Single | Mode::Many => publish::measure(place, args).await?,
    };
    let raw = match raw {
        Some(raw) => raw,
        None => raw::measure(place, args).await?,
    };
    Ok(Round { raw, outbox, verdict })
}
