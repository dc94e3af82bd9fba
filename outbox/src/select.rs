//! Which messages run together: what was read of a lane, without what cannot run.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::backend::{Backend, Claimed, ConsumerRow, Lane, Mark, Next, Place, SqlResult, StoredMessage};
use crate::budget::Budget;
use crate::claim;
use crate::error::{Error, ErrorKind, Result};
use crate::group::Member;
use crate::handler::Metadata;
use crate::headers::Headers;
use crate::inbox;
use crate::message::{Message, MessageId};
use crate::notice::Notice;
use crate::pace::Pace;
use crate::parked;
use crate::plan::Plan;
use crate::publish::Outbox;
use crate::rate::Limit;
use crate::registry::Registered;
use crate::report::Tally;
use crate::session::Session;
use crate::settle;

/// For how long a process that has met a type which it does not know lets others take parked messages first.
const STRANGE: Duration = Duration::from_mins(1);

/// A registered consumer with its row.
pub(crate) struct Consumer<DB: Backend> {
    pub(crate) row: ConsumerRow,
    pub(crate) registered: Registered<DB>,
    /// The name that it was made with.
    keyed: Arc<str>,
    /// How many messages this process may handle.
    pub(crate) limit: Limit,
    /// How many calls may still begin, where they are made outside of transactions.
    pub(crate) calls: Arc<Semaphore>,
    /// When a type, or a version of one, was met last that no handler of this build takes.
    strange: Mutex<Option<Instant>>,
}

impl<DB: Backend> Consumer<DB> {
    pub(crate) fn new(row: ConsumerRow, registered: Registered<DB>, budget: Budget) -> Self {
        let calls =
            usize::try_from(registered.concurrency()).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let keyed = row.first_name.as_str().into();
        let limit = Limit::new(registered.rate(), budget);
        Self {
            row,
            keyed,
            limit,
            calls: Arc::new(Semaphore::new(calls)),
            registered,
            strange: Mutex::default(),
        }
    }

    /// The pace of an executor that begins.
    pub(crate) fn pace(&self) -> Pace {
        Pace::new(self.registered.largest_group(), self.registered.largest_batch())
    }

    /// Waits until a call may be made.
    pub(crate) async fn permit(&self) -> OwnedSemaphorePermit {
        self.calls.clone().acquire_owned().await.expect("it is never closed")
    }

    /// How many messages are read at once for calls outside of transactions.
    pub(crate) fn portion(&self) -> usize {
        let most = self.registered.largest_group().max(self.registered.largest_batch());
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    pub(crate) fn name(&self) -> Arc<str> {
        self.registered.name.clone()
    }

    pub(crate) fn meets_strange(&self) {
        *self.strange.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
    }

    /// How long parked messages are left to others. In a rolling deploy those of a new type are due for every process, and
    /// one that can only put them back should not be the first each time.
    pub(crate) fn patience(&self, poll_interval: Duration) -> Duration {
        let strange = *self.strange.lock().unwrap_or_else(PoisonError::into_inner);
        if strange.is_some_and(|at| at.elapsed() < STRANGE) {
            poll_interval.saturating_mul(2)
        } else {
            Duration::ZERO
        }
    }
}

/// A lane that this transaction holds, and what has been done in it so far.
pub(crate) struct Held<'a, DB: Backend> {
    pub(crate) consumer: &'a Consumer<DB>,
    pub(crate) claim: Claimed,
    pub(crate) lane: Lane,
    /// How many messages of the lane are to run alone once this transaction is committed, where that changes.
    pub(crate) leaves: Option<i32>,
    pub(crate) tally: Tally,
}

/// Reads the lane. What will run together, in its order, and whether there may be more; what cannot run is put where it
/// belongs.
pub(crate) async fn members<'a, DB: Backend>(
    outbox: &Outbox<DB>,
    session: &mut Session<DB>,
    held: &mut Held<'a, DB>,
    size: usize,
    patience: Duration,
) -> Result<(Vec<Member<'a, DB>>, bool)> {
    let plan = claim::read(outbox, session, held.lane, size, patience)
        .await
        .map_err(|error| Error::database(DB::kind(&error), "read a lane", error))?;
    let more = plan.more;
    Ok((runnable(outbox, session, held, plan, size).await?, more))
}

async fn runnable<'a, DB: Backend>(
    outbox: &Outbox<DB>,
    session: &mut Session<DB>,
    held: &mut Held<'a, DB>,
    plan: Plan,
    size: usize,
) -> Result<Vec<Member<'a, DB>>> {
    let lane = held.lane;
    let mut behind = Vec::new();
    for next in plan.behind {
        match next.place {
            Place::Delivery { seq } => behind.push(seq),
            Place::Parked(_) => {
                parked::park(outbox, session, lane, next.place, &parked::behind_its_key(&next)).await?;
            }
        }
        held.tally.moved += 1;
    }
    let (mut duplicates, mut stopped) = (Vec::new(), HashSet::new());
    let (mut again, mut fresh) = (Vec::new(), Vec::new());
    let one_alone = !plan.alone.is_empty();
    let all = plan.alone.into_iter().chain(plan.again).map(|next| (next, true));
    for (mut next, is_again) in all.chain(plan.fresh.into_iter().map(|next| (next, false))) {
        let key = next.key_hash;
        left_over(outbox, session, held, &mut next).await?;
        if key.is_some_and(|key| stopped.contains(&key)) {
            if let Place::Delivery { seq } = next.place {
                behind.push(seq);
                held.tally.moved += 1;
            }
        } else if next.mark == Mark::Handled && outbox.config().controls().inbox_marks {
            let consumer = held.consumer.name();
            outbox.notify(|| Notice::Duplicate { consumer, message_id: next.id() });
            duplicates.push(next.place);
        } else if next.mark == Mark::Claimed {
            parked::park(outbox, session, lane, next.place, &parked::claimed_elsewhere(&next)).await?;
            held.tally.parked += 1;
            stopped.extend(key);
        } else if let Some(member) = member(outbox, session, held, next, is_again).await? {
            if is_again { again.push(member) } else { fresh.push(member) }
        } else {
            stopped.extend(key);
        }
    }
    held.tally.duplicates += duplicates.len() as u64;
    let keys = settle::unmarked(outbox, session, lane, &duplicates).await?;
    parked::move_behind(outbox, session, lane, &behind).await?;
    settle::wake(outbox, session, lane, keys).await?;

    if one_alone {
        again.retain(|member| member.next.alone);
        fresh.clear();
    }
    // Where they leave no room for what is new, a coin: neither kind can starve the other.
    let room = fresh.first().map_or(usize::MAX, Member::most).min(size);
    if again.len() >= room && fastrand::bool() {
        let keys: HashSet<_> = again.iter().filter_map(|member| member.next.key_hash).collect();
        let follows = |member: &Member<'a, DB>| member.next.key_hash.is_some_and(|key| keys.contains(&key));
        if !fresh.iter().all(follows) {
            again.clear();
            fresh.retain(|member| !follows(member));
        }
    }
    let mut most = size;
    let mut members: Vec<Member<'a, DB>> = Vec::with_capacity(again.len() + fresh.len());
    for member in again.into_iter().chain(fresh) {
        most = most.min(member.most());
        if members.len() >= most {
            break;
        }
        members.push(member);
    }
    Ok(members)
}

/// The attempts of a claim that nobody has any more have been had: the end of the last was never recorded. In a transaction the
/// claim itself would be in the way of the mark.
async fn left_over<DB: Backend>(
    outbox: &Outbox<DB>,
    session: &mut Session<DB>,
    held: &Held<'_, DB>,
    next: &mut Next,
) -> Result<()> {
    let Mark::Left(attempts) = next.mark else { return Ok(()) };
    let lost = attempts.saturating_sub(next.attempts).max(0);
    next.attempts = next.attempts.saturating_add(lost);
    next.total_attempts = next.total_attempts.saturating_add(lost);
    if !held.consumer.registered.is_external()
        && let Some(id) = next.id()
    {
        inbox::end(outbox, session, (held.lane.consumer, id.as_str()), None).await?;
    }
    Ok(())
}

/// Finds the handler of a message, or parks what has none.
async fn member<'a, DB: Backend>(
    outbox: &Outbox<DB>,
    session: &mut Session<DB>,
    held: &mut Held<'a, DB>,
    mut next: Next,
    again: bool,
) -> Result<Option<Member<'a, DB>>> {
    let (consumer, lane) = (held.consumer, held.lane);
    let name = consumer.name();
    let message = match next.message.take().map(read) {
        Some(Ok(message)) => message,
        unreadable => {
            let problem = unreadable.and_then(Result::err).unwrap_or_else(|| {
                Error::new(
                    ErrorKind::Decode,
                    "the message's row is gone; something outside the library deleted it",
                )
            });
            tracing::warn!(consumer = %name, place = ?next.place, error = %problem, "parked");
            let parking = parked::unreadable(&next, &problem);
            parked::park(outbox, session, lane, next.place, &parking).await?;
            held.tally.parked += 1;
            return Ok(None);
        }
    };
    let Some(handler) = consumer.registered.handler(&message.event_type) else {
        tracing::warn!(
            consumer = %name,
            message_id = %message.id,
            event_type = %message.event_type,
            "no handler in this build takes the type; put back for one that has"
        );
        consumer.meets_strange();
        let parking = parked::unknown_type(&next, &message.event_type);
        parked::park(outbox, session, lane, next.place, &parking).await?;
        outbox.notify(|| Notice::UnknownType {
            consumer: name,
            message_id: message.id.clone(),
            event_type: message.event_type.clone(),
        });
        held.tally.parked += 1;
        return Ok(None);
    };
    let attempt = u32::try_from(next.attempts).unwrap_or(0).saturating_add(1);
    let metadata = Metadata::new(message, name, consumer.keyed.clone(), attempt);
    Ok(Some(Member { next, metadata, handler, again }))
}

/// A row as a message. A row can only be wrong where something outside the library wrote it.
pub(crate) fn read(row: SqlResult<StoredMessage>) -> Result<Message> {
    let row = row.map_err(|cause| {
        Error::new(ErrorKind::Decode, "the message's row cannot be read").with_source(cause)
    })?;
    let headers = match row.headers {
        None => Headers::new(),
        Some(json) => serde_json::from_str(&json).map_err(|cause| {
            Error::new(ErrorKind::Decode, "the stored headers are not a map of texts").with_source(cause)
        })?,
    };
    Ok(Message {
        id: MessageId::new(row.id)?,
        event_type: row.event_type,
        version: u32::try_from(row.version).map_err(|cause| {
            Error::new(ErrorKind::Decode, "the stored version is negative").with_source(cause)
        })?,
        topic: row.topic,
        source: row.source,
        aggregate_id: row.aggregate_id,
        key: row.key,
        payload: row.payload,
        content_type: row.content_type,
        headers,
        created_at: row.created_at,
    })
}
