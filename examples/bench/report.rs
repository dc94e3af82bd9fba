//! The result: medians of the rounds, as a table or as JSON.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;

use crate::args::{self, Args};
use crate::count::Counts;
use crate::cpu::Spent;
use crate::latency::Latency;
use crate::numbers::{median, ratio};
use crate::verify::Verdict;

/// One side of a round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Measured {
    /// How many messages, each of them for all consumers.
    pub(crate) messages: i64,
    pub(crate) seconds: f64,
    pub(crate) cpu: Spent,
}

/// Both sides.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Round {
    pub(crate) raw: Measured,
    pub(crate) outbox: Measured,
    pub(crate) verdict: Verdict,
}

/// Everything that was found, in the shape of the JSON object.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// Of this object's form; a name that changes its meaning changes it.
    version: u32,
    command: String,
    outbox_version: &'static str,
    machine: Machine,
    /// The database's version and settings.
    server: BTreeMap<String, String>,
    args: Args,
    raw: Side,
    outbox: Side,
    /// The median of the rounds' ratios.
    ratio: f64,
    ratios: Vec<f64>,
    latency_ms: Option<Latency>,
    commits_per_message: Option<f64>,
    wal_bytes_per_message: Option<f64>,
    statements_per_message: Option<f64>,
    /// The three above, apart for publishing and consuming.
    per_message: Counts,
    #[serde(flatten)]
    pub(crate) verdict: Verdict,
}

#[derive(Debug, Serialize)]
struct Side {
    /// The median of the rounds.
    messages_per_second: f64,
    /// Of each round.
    rounds: Vec<f64>,
    /// Processor time; `null` where it cannot be seen.
    cpu_us_per_message: CpuPerMessage,
}

#[derive(Debug, Serialize)]
struct CpuPerMessage {
    client: Option<i64>,
    server: Option<i64>,
}

#[derive(Debug, Serialize)]
struct Machine {
    os: &'static str,
    architecture: &'static str,
    processors: usize,
    processor: Option<String>,
    memory: Option<String>,
    optimised: bool,
}

impl Measured {
    pub(crate) fn rate(&self) -> f64 {
        ratio(self.messages, 1) / self.seconds.max(f64::EPSILON)
    }
}

impl Round {
    fn ratio(&self) -> f64 {
        self.outbox.rate() / self.raw.rate()
    }
}

impl fmt::Display for Round {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (raw, outbox) = (self.raw.rate(), self.outbox.rate());
        write!(f, "raw {raw:.0}/s, outbox {outbox:.0}/s, ratio {:.2}", self.ratio())
    }
}

impl Report {
    pub(crate) fn new(
        args: &Args,
        rounds: &[Round],
        latency: Option<Latency>,
        per_message: Counts,
        server: BTreeMap<String, String>,
        verdict: Verdict,
    ) -> Self {
        let ratios: Vec<f64> = rounds.iter().map(Round::ratio).collect();
        let sum = per_message.sum();
        Self {
            version: 1,
            command: args::command(),
            outbox_version: env!("CARGO_PKG_VERSION"),
            machine: Machine::this(),
            server,
            // The URL stands in the command, without its password.
            args: Args { database_url: None, ..args.clone() },
            raw: Side::of(rounds, |round| round.raw),
            outbox: Side::of(rounds, |round| round.outbox),
            ratio: median(&ratios),
            ratios,
            latency_ms: latency,
            commits_per_message: sum.commits,
            wal_bytes_per_message: sum.wal_bytes,
            statements_per_message: sum.statements,
            per_message,
            verdict,
        }
    }
}

impl Side {
    fn of(rounds: &[Round], side: fn(&Round) -> Measured) -> Self {
        let rates: Vec<f64> = rounds.iter().map(|round| side(round).rate()).collect();
        let messages: i64 = rounds.iter().map(|round| side(round).messages).sum();
        let total = |of: fn(Spent) -> Option<i64>| {
            let ticks: Option<i64> = rounds.iter().map(|round| of(side(round).cpu)).sum();
            Spent::each(ticks, messages)
        };
        Self {
            messages_per_second: median(&rates),
            rounds: rates,
            cpu_us_per_message: CpuPerMessage {
                client: total(|spent| spent.client),
                server: total(|spent| spent.server),
            },
        }
    }
}

impl Machine {
    fn this() -> Self {
        let line = |file: &str, name: &str| {
            let text = std::fs::read_to_string(file).ok()?;
            let (_, value) = text.lines().find(|line| line.starts_with(name))?.split_once(':')?;
            Some(value.trim().to_owned())
        };
        Self {
            os: std::env::consts::OS,
            architecture: std::env::consts::ARCH,
            processors: std::thread::available_parallelism().map_or(0, usize::from),
            processor: line("/proc/cpuinfo", "model name"),
            memory: line("/proc/meminfo", "MemTotal"),
            optimised: !cfg!(debug_assertions),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let machine = &self.machine;
        writeln!(f, "{}", self.command)?;
        write!(f, "{} {}, {} processors", machine.os, machine.architecture, machine.processors)?;
        if !machine.optimised {
            write!(f, "; a debug build, so the numbers mean nothing")?;
        }
        let version = self.server.iter().find(|(name, _)| name.contains("version"));
        writeln!(f, "; {} {}", self.args.backend.name(), version.map_or("", |(_, version)| version))?;
        writeln!(f, "\n{:24}{:>12}{:>12}{:>12}", "", "median", "least", "most")?;
        line(f, "raw      messages/s", &self.raw.rounds, 0)?;
        line(f, "outbox   messages/s", &self.outbox.rounds, 0)?;
        line(f, "ratio", &self.ratios, 2)?;
        writeln!(f)?;
        for (name, side) in [("raw", &self.raw), ("outbox", &self.outbox)] {
            let cpu = &side.cpu_us_per_message;
            let (client, server) = (or_none(cpu.client), or_none(cpu.server));
            writeln!(f, "{name:9}CPU us/message   {client} in the program, {server} in the server")?;
        }
        for (name, value, places) in [
            ("commits/message", self.commits_per_message, 2),
            ("statements/message", self.statements_per_message, 2),
            ("log bytes/message", self.wal_bytes_per_message, 0),
        ] {
            let value = value.map_or_else(|| "-".to_owned(), |value| format!("{value:.places$}"));
            writeln!(f, "{name:24}{value:>12}")?;
        }
        if let Some(Latency { p50, p95, p99, rate, .. }) = self.latency_ms {
            writeln!(
                f,
                "commit to handled       p50 {p50:.1} ms, p95 {p95:.1} ms, p99 {p99:.1} ms at {rate}/s"
            )?;
        }
        let Verdict { lost, duplicated, out_of_order } = self.verdict;
        writeln!(f, "lost {lost}, duplicated {duplicated}, out of order {out_of_order}")
    }
}

fn line(f: &mut fmt::Formatter<'_>, name: &str, values: &[f64], places: usize) -> fmt::Result {
    let least = values.iter().copied().fold(f64::INFINITY, f64::min);
    let most = values.iter().copied().fold(0.0, f64::max);
    let median = median(values);
    writeln!(f, "{name:24}{median:>12.places$}{least:>12.places$}{most:>12.places$}")
}

fn or_none(value: Option<i64>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}
