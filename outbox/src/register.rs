//! Making consumers known to the database: their lanes, their subscriptions, and what was published before.

use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use crate::backend::{Backend, ConsumerRow, Range, SqlResult};
use crate::backfill;
use crate::error::{Error, ErrorKind, Result};
use crate::faults;
use crate::names;
use crate::publish::Outbox;
use crate::registry::Registered;
use crate::session::Session;

/// Registers the consumers of a process. Starting only ever adds: an old build that starts beside a new one takes
/// nothing away.
///
/// The subscriptions are announced and committed first, so whoever publishes from then on delivers to the consumers, or
/// learns that its snapshot is too old. Publishers in flight have seen neither; they are waited for, while nothing is
/// held, and only then is what the new subscriptions would miss brought to them. A process that dies anywhere between leaves
/// its subscriptions marked as not ready, and the next start goes on.
///
/// All consumers at once, since what nobody has got goes to everybody who subscribes to it now.
pub(crate) async fn register<DB: Backend>(
    outbox: &Outbox<DB>,
    session: &mut Session<DB>,
    consumers: &[Registered<DB>],
) -> Result<Vec<ConsumerRow>> {
    let mut patience = Patience::new("the consumers start when they end");
    // As they were when the process came, however long it has to wait until it may subscribe.
    let mut in_doubt = None;
    loop {
        let outcome = register_on(outbox, session, consumers, &mut in_doubt).await;
        session.rollback().await;
        match outcome {
            // Somebody has dropped what was being registered.
            Ok(None) => {}
            // Another process registers, or a publisher has looked at the subscriptions and is still open.
            Err(error) if error.kind() == ErrorKind::Conflict && session.is_open() => {
                patience.wait(|| vec![error.to_string()]).await;
            }
            outcome => return outcome.map(Option::unwrap_or_default),
        }
    }
}

async fn register_on<DB: Backend>(
    outbox: &Outbox<DB>,
    session: &mut Session<DB>,
    consumers: &[Registered<DB>],
    in_doubt: &mut Option<Vec<Range>>,
) -> Result<Option<Vec<ConsumerRow>>> {
    let sql = outbox.sql();
    let mut rows = Vec::with_capacity(consumers.len());
    // By type, since a type is looked through once for all of its new subscribers.
    let mut unready: BTreeMap<String, Vec<i16>> = BTreeMap::new();

    session.begin(DB::begin_registration()).await.map_err(failed::<DB>)?;
    DB::lock_registry(session, sql).await.map_err(failed::<DB>)?;
    for consumer in consumers {
        let lanes = if consumer.is_external() { DB::LEASED_LANES } else { DB::LANES };
        let row = names::resolve::<DB>(session, sql, &consumer.name, consumer.aliases(), lanes).await?;
        for event_type in consumer.event_types() {
            if DB::is_subscribed(session, sql, row.id, event_type).await.map_err(failed::<DB>)? {
                continue;
            }
            let in_doubt = match &mut *in_doubt {
                Some(ranges) => ranges,
                None => in_doubt.insert(DB::in_doubt(session, sql).await.map_err(failed::<DB>)?),
            };
            let start_from = consumer.start_from(event_type);
            let subscribed =
                backfill::subscribe(outbox, session, (row.id, event_type), start_from, in_doubt).await;
            subscribed.map_err(failed::<DB>)?;
        }
        for event_type in DB::unready(session, sql, row.id).await.map_err(failed::<DB>)? {
            tracing::info!(consumer = %consumer.name, event_type, "subscribes");
            unready.entry(event_type).or_default().push(row.id);
        }
        rows.push(row);
    }
    if unready.is_empty() {
        session.commit().await.map_err(failed::<DB>)?;
        return Ok(Some(rows));
    }
    // Before the commit, so that no publisher can slip in between that sees neither.
    DB::announce(session, sql).await.map_err(failed::<DB>)?;
    faults::point("announced");
    session.commit().await.map_err(failed::<DB>)?;
    faults::point("subscribed");

    wait_for_publishers(outbox, session, "the consumers start when they end").await.map_err(failed::<DB>)?;

    if let Some(behind) = in_doubt.as_ref().and_then(|ranges| ranges.last()) {
        backfill::raise(outbox, session, behind.first - 1).await.map_err(failed::<DB>)?;
    }
    let caught_up = backfill::catch_up(outbox, session, &unready).await.map_err(failed::<DB>)?;
    Ok(caught_up.then_some(rows))
}

/// Waits until every transaction that publishes now has ended; `then` says what for.
pub(crate) async fn wait_for_publishers<DB: Backend>(
    outbox: &Outbox<DB>,
    session: &mut Session<DB>,
    then: &'static str,
) -> SqlResult<()> {
    let mut waiting = backfill::in_flight(outbox, session, &HashSet::new()).await?;
    let mut patience = Patience::new(then);
    while !waiting.is_empty() {
        patience.wait(|| waiting.iter().cloned().collect()).await;
        waiting = backfill::in_flight(outbox, session, &waiting).await?;
    }
    Ok(())
}

fn failed<DB: Backend>(error: sqlx::Error) -> Error {
    Error::database(DB::kind(&error), "register the consumers", error)
}

/// Waits for others, and says so once.
pub(crate) struct Patience {
    since: Instant,
    pause: Duration,
    then: &'static str,
    warned: bool,
}

impl Patience {
    pub(crate) fn new(then: &'static str) -> Self {
        Self { since: Instant::now(), pause: Duration::from_millis(2), then, warned: false }
    }

    pub(crate) async fn wait(&mut self, for_whom: impl FnOnce() -> Vec<String>) {
        if !self.warned && self.since.elapsed() > Duration::from_secs(2) {
            self.warned = true;
            tracing::warn!(
                transactions = ?for_whom(),
                "waiting for transactions that have published and are still open; {}", self.then
            );
        }
        tokio::time::sleep(self.pause).await;
        self.pause = (self.pause * 2).min(Duration::from_millis(100));
    }
}
