//! What a new subscription would miss: what was published before it, as far as its consumer wants it, and what was in flight
//! when it was made.
//!
//! What is in flight has a number that no committed message has. Those numbers are noted with the subscription, as ranges; so are
//! the numbers of the history that is wanted. Once every publisher of that moment has ended, the ranges are looked through for
//! messages of the type that the consumer has not got: batch by batch, each a transaction that notes how far it came. So
//! whoever goes on after an interruption, or beside, loses and doubles nothing.
//!
//! The watermark is how far back a new subscription has to look for what is in flight. A process that runs raises it now and then;
//! where it stands low, more is looked through, and nothing else.

use std::collections::{BTreeMap, HashSet};
use std::time::{Instant, UNIX_EPOCH};

use crate::backend::{Backend, Range, SqlResult};
use crate::error::{Error, ErrorKind, Result};
use crate::faults;
use crate::options::StartFrom;
use crate::publish::Outbox;
use crate::session::Session;

/// How many messages a transaction looks at.
const BATCH: i64 = 1_000;

/// How many ranges a transaction looks through. Most are empty: numbers of what was rolled back.
const RANGES: usize = 100;

/// Makes a subscription that is not there, with all that its consumer would miss.
pub(crate) async fn subscribe<DB: Backend>(
    outbox: &Outbox<DB>,
    session: &mut Session<DB>,
    (consumer, event_type): (i16, &str),
    start_from: StartFrom,
    in_doubt: &[Range],
) -> SqlResult<()> {
    let sql = outbox.sql();
    let unrouted = matches!(start_from, StartFrom::Unrouted | StartFrom::Beginning);
    DB::subscribe(session, sql, consumer, event_type, unrouted).await?;
    let all = [Range { first: 0, last: i64::MAX }];
    match start_from {
        StartFrom::Unrouted | StartFrom::Now => {}
        StartFrom::Beginning => return DB::add_ranges(session, sql, consumer, event_type, &all, None).await,
        StartFrom::Since(time) => {
            let time = Some(UNIX_EPOCH + time);
            DB::add_ranges(session, sql, consumer, event_type, &all, time).await?;
        }
    }
    DB::add_ranges(session, sql, consumer, event_type, in_doubt, None).await
}

/// Brings what they miss to subscriptions that are not ready, given by their types; every publisher that did not know of them has
/// ended. False where one of them is not there any more.
pub(crate) async fn catch_up<DB: Backend>(
    outbox: &Outbox<DB>,
    session: &mut Session<DB>,
    unready: &BTreeMap<String, Vec<i16>>,
) -> SqlResult<bool> {
    let sql = outbox.sql();
    // What is published from here on is delivered by its publisher.
    let newest = newest(outbox, session).await?;
    for (event_type, consumers) in unready {
        // What nobody has got first, for all at once: one that looks through its history takes it from the others.
        let mut found = 0;
        loop {
            session.begin(DB::begin_registration()).await?;
            DB::lock_registry(session, sql).await?;
            let batch = DB::backfill(session, sql, event_type, BATCH).await?;
            faults::point("backfilled");
            session.commit().await?;
            found += batch;
            if batch == 0 {
                break;
            }
        }
        for consumer in consumers {
            let mut step = Step { outbox, consumer: *consumer, event_type, newest, found: 0 };
            loop {
                session.begin(DB::begin_registration()).await?;
                DB::lock_registry(session, sql).await?;
                let done = step.run(session).await?;
                faults::point("caught up");
                session.commit().await?;
                match done {
                    Some(true) => break,
                    Some(false) => {}
                    None => return Ok(false),
                }
            }
            found += step.found;
        }
        if found > 0 {
            tracing::info!(event_type, found, "messages from before go to their new consumers");
        }
    }
    Ok(true)
}

/// One subscription that catches up.
struct Step<'a, DB: Backend> {
    outbox: &'a Outbox<DB>,
    consumer: i16,
    event_type: &'a str,
    newest: i64,
    found: u64,
}

impl<DB: Backend> Step<'_, DB> {
    /// What goes into one transaction: whether nothing is left, and the subscription ready; nothing where it is gone.
    async fn run(&mut self, session: &mut Session<DB>) -> SqlResult<Option<bool>> {
        let (sql, consumer, event_type) = (self.outbox.sql(), self.consumer, self.event_type);
        let mut left = BATCH;
        for _ in 0..RANGES {
            let Some((range, since)) = DB::next_range(session, sql, consumer, event_type).await? else {
                let ready = DB::ready(session, sql, consumer, event_type).await?;
                return Ok((ready == 1).then_some(true));
            };
            let last = range.last.min(self.newest);
            let end = if range.first > last {
                None
            } else {
                DB::end_of_batch(session, sql, Range { last, ..range }, left).await?
            };
            let mut next = None;
            if let Some((end, messages)) = end {
                let batch = Range { first: range.first, last: end };
                self.found += DB::deliver_range(session, sql, consumer, event_type, batch, since).await?;
                left -= i64::try_from(messages).unwrap_or(left);
                next = (end < last).then_some(end + 1);
            }
            DB::shrink_range(session, sql, consumer, event_type, range.first, next).await?;
            if left <= 0 {
                break;
            }
        }
        Ok(Some(false))
    }
}

/// Raises the watermark now and then.
pub(crate) struct Watermark {
    due: Option<Instant>,
    /// A number, and those who published when it was the newest, as far as they have not ended.
    candidate: Option<(i64, HashSet<String>)>,
}

impl Watermark {
    pub(crate) fn new<DB: Backend>() -> Self {
        Self { due: DB::WATERMARK.map(|every| Instant::now() + every), candidate: None }
    }

    /// Looks, if it is time for it. What is in its way can wait.
    pub(crate) async fn look<DB: Backend>(
        &mut self,
        outbox: &Outbox<DB>,
        session: &mut Session<DB>,
    ) -> Result<()> {
        let Some(every) = DB::WATERMARK.filter(|_| self.due.is_some_and(|due| due <= Instant::now())) else {
            return Ok(());
        };
        self.due = Some(Instant::now() + every);
        let looked = self.raise(outbox, session).await;
        session.rollback().await;
        match looked {
            Err(error) if DB::kind(&error) == ErrorKind::Conflict => Ok(()),
            looked => {
                looked.map_err(|error| Error::database(DB::kind(&error), "look for what is in flight", error))
            }
        }
    }

    async fn raise<DB: Backend>(&mut self, outbox: &Outbox<DB>, session: &mut Session<DB>) -> SqlResult<()> {
        if let Some((newest, known)) = self.candidate.take() {
            let known = in_flight(outbox, session, &known).await?;
            if !known.is_empty() {
                self.candidate = Some((newest, known));
                return Ok(());
            }
            raise(outbox, session, newest).await?;
        }
        let newest = newest(outbox, session).await?;
        let known = in_flight(outbox, session, &HashSet::new()).await?;
        if known.is_empty() {
            return raise(outbox, session, newest).await;
        }
        self.candidate = Some((newest, known));
        Ok(())
    }
}

/// Who publishes now; of those that are given, if there are some.
pub(crate) async fn in_flight<DB: Backend>(
    outbox: &Outbox<DB>,
    session: &mut Session<DB>,
    known: &HashSet<String>,
) -> SqlResult<HashSet<String>> {
    session.enter(outbox.sql()).await?;
    let found = DB::publishers_in_flight(session, outbox.sql(), known).await?;
    session.leave().await?;
    Ok(found)
}

async fn newest<DB: Backend>(outbox: &Outbox<DB>, session: &mut Session<DB>) -> SqlResult<i64> {
    session.enter(outbox.sql()).await?;
    let newest = DB::newest(session, outbox.sql()).await?;
    session.leave().await?;
    Ok(newest)
}

/// All who published when this was the newest number have ended.
pub(crate) async fn raise<DB: Backend>(
    outbox: &Outbox<DB>,
    session: &mut Session<DB>,
    newest: i64,
) -> SqlResult<()> {
    session.begin(DB::begin_registration()).await?;
    DB::raise_watermark(session, outbox.sql(), newest).await?;
    session.commit().await
}
