//! Counting: what the way of a message costs, without a clock.
//!
//! A run of its own, in this process: it publishes as before a round, and handles until nothing is left. Starting and
//! ending the consumers is counted as well, so with few messages the numbers are too high. Bytes of the write-ahead
//! log are those of the whole server, and commits those of the whole database: measure where nobody else works.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use serde::Serialize;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

use crate::args::{Args, Mode};
use crate::database::{Counters, Database, Place};
use crate::numbers::ratio;
use crate::verify::Verdict;
use crate::{consume, handlers, publish};

/// How many messages are counted at most.
const MESSAGES: u32 = 10_000;

/// For each message. `None` where the database does not say.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Costs {
    pub(crate) commits: Option<f64>,
    pub(crate) wal_bytes: Option<f64>,
    /// Calls of sqlx, BEGIN and COMMIT included. Several statements sent in one are one.
    pub(crate) statements: Option<f64>,
}

/// What publishing costs, and consuming.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(crate) struct Counts {
    pub(crate) publish: Costs,
    /// `None` where only publishing is measured.
    pub(crate) consume: Option<Costs>,
}

impl Counts {
    /// All that is measured.
    pub(crate) fn sum(&self) -> Costs {
        let Some(consume) = self.consume else { return self.publish };
        let sum = |a: Option<f64>, b: Option<f64>| Some(a? + b?);
        Costs {
            commits: sum(self.publish.commits, consume.commits),
            wal_bytes: sum(self.publish.wal_bytes, consume.wal_bytes),
            statements: sum(self.publish.statements, consume.statements),
        }
    }
}

/// Counts, and says by what settings the database worked.
pub(crate) async fn measure<DB: Database>(
    place: &Place<DB>,
    args: &Args,
) -> anyhow::Result<(Counts, BTreeMap<String, String>, Verdict)> {
    let args = &Args { messages: args.messages.min(MESSAGES), backlog: 0, failing: 0.0, ..args.clone() };
    // One connection stays open, or SQLite would clear its log.
    let mut conn = place.pool.acquire().await?;
    let settings = DB::settings(&mut conn).await?;
    let statements = Arc::new(AtomicI64::new(0));
    tracing::subscriber::set_global_default(Statements(statements.clone()))?;
    let mut counts = Counts::default();
    let (mut verdict, mut before) = (Verdict::default(), now::<DB>(&mut conn, place, &statements).await?);
    if args.mode == Mode::ConsumeOnly {
        consume::publish(place, args, args.messages()).await?;
    } else {
        publish::publish(place, args).await?;
        verdict.add(publish::check(place, args).await?);
    }
    let mut after = now::<DB>(&mut conn, place, &statements).await?;
    counts.publish = costs::<DB>(before, after, args);
    if args.mode == Mode::ConsumeOnly {
        before = after;
        handlers::consumers(&place.outbox, args, args.executors)?.run_until_idle().await?;
        after = now::<DB>(&mut conn, place, &statements).await?;
        counts.consume = Some(costs::<DB>(before, after, args));
        verdict.add(consume::check(place, args, args.messages(), false).await?);
    }
    Ok((counts, settings, verdict))
}

async fn now<DB: Database>(
    conn: &mut DB::Connection,
    place: &Place<DB>,
    statements: &AtomicI64,
) -> anyhow::Result<(Counters, i64)> {
    // The counting has statements of its own.
    let statements = statements.load(Ordering::Relaxed);
    Ok((DB::counters(conn, &place.address).await?, statements))
}

fn costs<DB: Database>(before: (Counters, i64), after: (Counters, i64), args: &Args) -> Costs {
    let difference = |after: Option<i64>, before: Option<i64>| Some(after? - before?);
    let commits = difference(after.0.commits, before.0.commits);
    let wal_bytes = difference(after.0.wal_bytes, before.0.wal_bytes);
    let statements = after.1 - before.1 + DB::UNREPORTED * commits.unwrap_or(0);
    let each = |count: i64| ratio(count, args.messages());
    Costs { commits: commits.map(each), wal_bytes: wal_bytes.map(each), statements: Some(each(statements)) }
}

/// Counts what sqlx reports of its statements, and lets everything else go.
struct Statements(Arc<AtomicI64>);

impl Subscriber for Statements {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "sqlx::query"
    }

    fn event(&self, _: &Event<'_>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}
