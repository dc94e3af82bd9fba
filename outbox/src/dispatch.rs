//! Dispatch: one transaction from the claim of a lane to its commit.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tokio_util::sync::CancellationToken;

use crate::attempt::Attempt;
use crate::backend::{self, Backend, Claimed, Lane, Mark, Next, Parked, ParkedState, Place};
use crate::claim;
use crate::config::ConsumerConfig;
use crate::connections::Connections;
use crate::error::{Error, ErrorKind, Result};
use crate::faults;
use crate::group::{self, Done, Ended, Failed, Member, Ran};
use crate::handler::States;
use crate::outcome::{Disposition, HandlerError};
use crate::pace::Pace;
use crate::parked;
use crate::publish::Outbox;
use crate::report::{self, Tally, Total};
use crate::select::{self, Consumer, Held};
use crate::session::Session;
use crate::settle;

/// How many failed attempts of a message are kept for a person to read.
const ATTEMPTS_KEPT: i32 = 20;

/// Everything a transaction needs besides its connection.
pub(crate) struct Dispatch<DB: Backend> {
    pub(crate) outbox: Outbox<DB>,
    pub(crate) connections: Connections<DB>,
    pub(crate) config: ConsumerConfig,
    pub(crate) states: States,
    /// The id of this process's start.
    pub(crate) worker: String,
    /// How long a transaction may be left alone: longer than the longest handler may take.
    pub(crate) idle: Duration,
    /// Cancelled when nothing more is to be begun.
    pub(crate) stop: CancellationToken,
    /// Why it was cancelled by the process itself.
    pub(crate) refused: std::sync::Mutex<Option<Error>>,
    pub(crate) total: Total,
    /// Held while a message runs alone: when the process dies of one, no second one is blamed.
    pub(crate) alone: Arc<Mutex<()>>,
}

impl<DB: Backend> Dispatch<DB> {
    /// Ends the run, with this error.
    pub(crate) fn refuse(&self, error: Error) {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
        self.stop.cancel();
    }

    /// Why the run ended by itself, if it did.
    pub(crate) fn refusal(&self) -> Option<Error> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Claims a lane of the consumer and works on what is next in it. `None` where nothing was runnable;
    /// `claimed` is called as soon as a lane is ours.
    ///
    /// On an error nothing has happened: the transaction is rolled back.
    pub(crate) async fn step(
        &self,
        session: &mut Session<DB>,
        consumer: &Consumer<DB>,
        pace: &mut Pace,
        claimed: impl FnOnce(),
    ) -> Result<Option<Tally>> {
        let outcome = self.transaction(session, consumer, pace, claimed).await;
        session.rollback().await;
        outcome
    }

    async fn transaction(
        &self,
        session: &mut Session<DB>,
        consumer: &Consumer<DB>,
        pace: &mut Pace,
        claimed: impl FnOnce(),
    ) -> Result<Option<Tally>> {
        let outbox = &self.outbox;
        let suspects = self.alone.try_lock().is_ok();
        let patience = consumer.patience(self.config.poll_interval);
        let Some(claim) = claim::claim(outbox, self.idle, session, &consumer.row, suspects, patience)
            .await
            .map_err(|error| failed::<DB>("claim a lane", error))?
        else {
            return Ok(None);
        };
        claimed();
        faults::point("claimed");
        let lane = Lane { consumer: consumer.row.id, lane: claim.lane };
        let mut held = Held { consumer, claim, lane, leaves: None, tally: Tally::default() };
        // Of what runs alone one is enough, and a second one shows that there are more.
        let size = match claim.suspect {
            Some(left) if left > 0 => 2,
            _ if !DB::may_share(outbox.sql()) => 1,
            _ => pace.size(),
        };
        let size = consumer.limit.room(size).max(1);
        let (mut members, mut more) =
            select::members(&self.outbox, session, &mut held, size, patience).await?;
        let allowed = consumer.limit.take(members.len());
        if allowed == 0 && !members.is_empty() {
            // Others of this process were faster. Nothing is held while it waits.
            session.rollback().await;
            return Ok(Some(Tally::default()));
        }
        more |= allowed < members.len();
        members.truncate(allowed);
        let Some(first) = members.first() else {
            if claim.suspect.is_some() && held.tally == Tally::default() {
                self.set_suspect(session, lane, 0).await?;
            }
            self.commit(session).await?;
            return Ok(Some(held.tally));
        };
        let last = members.len() == 1 && !more;
        let ran = match claim.suspect {
            Some(0) if members.len() > 1 && !first.next.alone => {
                self.run_watched(session, held, members.len(), pace).await
            }
            None if !first.next.alone => {
                let full = more && members.len() == size;
                self.run(session, held, members, pace, full).await
            }
            suspect => {
                held.leaves = suspect.map(|left| match left {
                    _ if last => 0,
                    // It may have been what was parked, or what was new.
                    0 => 1,
                    left => left - 1,
                });
                consumer.limit.give_back(members.len() - 1);
                members.truncate(1);
                self.run_alone(session, held, members, pace).await
            }
        };
        ran.map(Some)
    }

    /// So many messages of the lane are still to run alone; 0 = none, and it is like any other.
    async fn set_suspect(&self, session: &mut Session<DB>, lane: Lane, left: i32) -> Result<u64> {
        let sql = self.outbox.sql();
        let set = match left {
            0 => DB::clear_suspect(session, sql, lane).await.map(|()| 1),
            left => DB::set_suspect(session, sql, lane, left).await,
        };
        set.map_err(|error| failed::<DB>("mark a lane in which a process may have died", error))
    }

    /// Runs the first group after a death. If this process dies as well, it was one of the group, and each of them will run
    /// alone.
    async fn run_watched(
        &self,
        session: &mut Session<DB>,
        mut held: Held<'_, DB>,
        count: usize,
        pace: &mut Pace,
    ) -> Result<Tally> {
        let Some(alone) = self.alone(session).await else { return Ok(Tally::default()) };
        let left = i32::try_from(count).unwrap_or(i32::MAX);
        if self.set_suspect(session, held.lane, left).await? == 0 {
            // Somebody else was faster.
            return Ok(Tally::default());
        }
        self.commit(session).await?;
        faults::point("watched");
        if !self.take_again(session, held.lane, &mut held.claim).await? {
            return Ok(Tally::default());
        }
        let (members, _) = select::members(&self.outbox, session, &mut held, count, Duration::ZERO).await?;
        held.leaves = Some(0);
        let ran = if members.is_empty() || members[0].next.alone {
            Ok(held.tally)
        } else {
            self.run(session, held, members, pace, false).await
        };
        drop(alone);
        // Other executors have passed suspect lanes by.
        self.outbox.wake().ring();
        ran
    }

    /// Runs a message that a process may have died of.
    async fn run_alone<'a>(
        &self,
        session: &mut Session<DB>,
        mut held: Held<'a, DB>,
        mut members: Vec<Member<'a, DB>>,
        pace: &mut Pace,
    ) -> Result<Tally> {
        let Some(alone) = self.alone(session).await else { return Ok(Tally::default()) };
        let Some(member) = members.first_mut() else { return Ok(held.tally) };
        if !self.count_before(session, &mut held, member).await? {
            return Ok(held.tally);
        }
        let ran = self.run(session, held, members, pace, false).await;
        drop(alone);
        self.outbox.wake().ring();
        ran
    }

    /// The right to run what a process may die of. Where another executor has it, nothing is held while it is waited for.
    async fn alone(&self, session: &mut Session<DB>) -> Option<MutexGuard<'_, ()>> {
        let alone = self.alone.try_lock().ok();
        if alone.is_none() {
            session.rollback().await;
            drop(self.alone.lock().await);
        }
        alone
    }

    /// Begins a second transaction on a lane, after a commit on the way. False where a build that works outside of transactions
    /// has leased it meanwhile.
    async fn take_again(&self, session: &mut Session<DB>, lane: Lane, claim: &mut Claimed) -> Result<bool> {
        let begin = DB::begin_work(self.outbox.sql(), self.idle, self.outbox.config().controls());
        session.begin(begin).await.map_err(|error| failed::<DB>("take a lane again", error))?;
        let row = claim::lock(&self.outbox, session, lane).await?;
        claim.running = row.running.unwrap_or(claim.running);
        Ok(!row.leased)
    }

    async fn run<'a>(
        &self,
        session: &mut Session<DB>,
        held: Held<'a, DB>,
        members: Vec<Member<'a, DB>>,
        pace: &mut Pace,
        full: bool,
    ) -> Result<Tally> {
        let attempt = Attempt {
            outbox: &self.outbox,
            connections: &self.connections,
            states: &self.states,
            window: self.config.group_window,
            stop: &self.stop,
            running: held.claim.running,
        };
        let count = members.len();
        let ended = group::run(&attempt, session, members, pace.careful())
            .await
            .map_err(|error| failed::<DB>("prepare the handlers' savepoint", error))?;
        faults::point("handler returned");
        let mut ran = match ended {
            Ended::Ours(ran) => ran,
            Ended::Crowded => {
                tracing::debug!(consumer = %held.consumer.name(), count, "a lock was in the way of a group");
                pace.crowded();
                return Ok(Tally::default());
            }
            Ended::Lost { culprit: Some(culprit), .. } => return self.blame(session, &held, *culprit).await,
            Ended::Lost { culprit: None, among } => {
                return Ok(self.apart(session, pace, among));
            }
        };
        held.consumer.limit.give_back(count.saturating_sub(ran.done.len() + ran.failed.len()));
        if ran.troubled {
            pace.failed();
        }
        if ran.failed.iter().any(|failed| failed.parking.state == ParkedState::UnknownType) {
            held.consumer.meets_strange();
        }
        match self.settle(session, &held, &mut ran).await {
            Ok(()) => {
                pace.ended(ran.done.len() + ran.failed.len(), full && !ran.closed);
                Ok(self.report(held.tally, ran))
            }
            Err(error) if may_be_the_handlers(&error) && count > 1 => Ok(self.apart(session, pace, count)),
            Err(error) if may_be_the_handlers(&error) => {
                let lost = error.kind() == ErrorKind::Unavailable;
                let mut error: HandlerError = error.into();
                if lost {
                    // An outage, most likely; a message whose commit always ends in one is dead in the end.
                    error.disposition = Disposition::Disconnected;
                }
                let lost = |done: Done<'a, DB>| Failed::new(done.member, &error, done.duration);
                match ran.failed.pop().or_else(|| ran.done.pop().map(lost)) {
                    Some(culprit) => self.blame(session, &held, culprit).await,
                    None => Ok(Tally::default()),
                }
            }
            Err(error) if error.kind() == ErrorKind::Conflict && count > 1 => {
                pace.crowded();
                Err(error)
            }
            Err(error) => Err(error),
        }
    }

    /// A group was lost, and nobody knows by whom: its messages come back one by one.
    fn apart(&self, session: &mut Session<DB>, pace: &mut Pace, among: usize) -> Tally {
        tracing::debug!(among, "a handler spoiled its transaction; the messages run one by one");
        pace.apart(among);
        if !self.connections.borrowed() {
            // Whatever else the handler did to the connection ends with it.
            session.close();
        }
        Tally::default()
    }

    async fn settle(
        &self,
        session: &mut Session<DB>,
        held: &Held<'_, DB>,
        ran: &mut Ran<'_, DB>,
    ) -> Result<()> {
        let (outbox, lane) = (&self.outbox, held.lane);
        let mark = |member: &Member<'_, DB>| member.handler.options.inbox;
        let messages: Vec<_> = ran
            .done
            .iter()
            .map(|Done { member, .. }| {
                (member.next.place, mark(member).then_some(member.metadata.id.as_str()))
            })
            .collect();
        let keys = settle::handled(outbox, session, lane, &messages).await?;
        for failed in &ran.failed {
            let place = failed.member.next.place;
            parked::park(outbox, session, lane, place, &failed.parking).await?;
            faults::point("parked");
            self.record_failure(session, lane, failed).await?;
        }
        let behind: Vec<_> = ran.behind.iter().map(|member| member.next.place.seq()).collect();
        parked::move_behind(outbox, session, lane, &behind).await?;
        settle::wake(outbox, session, lane, keys).await?;
        if let Some(left) = held.leaves {
            self.set_suspect(session, lane, left).await?;
        }
        // Last: their order locks are held until the commit.
        let follow_ups: Vec<_> =
            ran.done.iter_mut().flat_map(|done| std::mem::take(&mut done.follow_ups)).collect();
        outbox.store(session, &follow_ups).await?;
        ran.stored = follow_ups.into_iter().map(Into::into).collect();
        if !ran.done.is_empty() {
            faults::point("settled");
        }
        self.commit(session).await?;
        faults::point(if ran.failed.is_empty() { "committed" } else { "failure committed" });
        Ok(())
    }

    fn report(&self, mut tally: Tally, ran: Ran<'_, DB>) -> Tally {
        tally.moved += ran.behind.len() as u64;
        for done in ran.done {
            report::handled(&self.outbox, &done.member.metadata, done.duration, &mut tally);
        }
        for Failed { member, parking, duration } in ran.failed {
            report::failed(&self.outbox, &member.metadata, parking, duration, &mut tally);
        }
        report::stored(&self.outbox, ran.stored);
        tally
    }

    /// Counts the attempt before it runs, in a commit of its own, and takes the lane again. Whether the message is
    /// still ours to run: it may have used up its attempts, or somebody was faster.
    async fn count_before(
        &self,
        session: &mut Session<DB>,
        held: &mut Held<'_, DB>,
        member: &mut Member<'_, DB>,
    ) -> Result<bool> {
        let (sql, lane, what) = (self.outbox.sql(), held.lane, "run a message alone");
        let parking = parked::counted_before(&member.next, &member.handler.options);
        parked::park(&self.outbox, session, lane, member.next.place, &parking).await?;
        if member.next.alone {
            self.record_lost(session, lane, &member.next).await?;
        }
        self.commit(session).await?;
        if parking.state != ParkedState::Alone {
            let attempt = u32::try_from(parking.attempts).unwrap_or(u32::MAX);
            let metadata = member.metadata.with_attempt(attempt);
            report::failed(&self.outbox, &metadata, parking, Duration::ZERO, &mut held.tally);
            return Ok(false);
        }
        faults::point("counted before");
        if !self.take_again(session, lane, &mut held.claim).await? {
            return Ok(false);
        }
        let (key_hash, seq) = match member.next.place {
            Place::Delivery { seq } => (member.next.parked_key(&parking), seq),
            Place::Parked(Parked { key_hash, seq, .. }) => (key_hash, seq),
        };
        let found = DB::find(session, sql, lane, key_hash, seq).await.map_err(|e| failed::<DB>(what, e))?;
        match found {
            Some(found) if found.attempts == parking.attempts && found.mark == Mark::None => {
                // The attempt is counted: a failure of this run changes the row as it stands, to the same count.
                member.next.place = found.place;
                Ok(true)
            }
            _ => Ok(false),
        }
    }

    /// Records the failure of a handler that destroyed its transaction, in a new one. The lane was free in
    /// between: whoever had it may have settled the message, and then there is nothing to record.
    async fn blame(
        &self,
        session: &mut Session<DB>,
        held: &Held<'_, DB>,
        culprit: Failed<'_, DB>,
    ) -> Result<Tally> {
        let (outbox, lane, what) = (&self.outbox, held.lane, "record a failure");
        session.rollback().await;
        if !self.connections.borrowed() {
            // Whatever else the handler did to the connection ends with it.
            session.close();
            *session = self.connections.acquire().await?;
        }
        if !self.take_again(session, lane, &mut held.claim.clone()).await? {
            return Ok(Tally::default());
        }
        let (place, mut tally) = (culprit.member.next.place, Tally::default());
        let parked = DB::park(session, outbox.sql(), lane, place, &culprit.parking)
            .await
            .map_err(|e| failed::<DB>(what, e))?;
        if parked == 0 {
            return Ok(tally);
        }
        parked::go_on_behind(session, outbox, lane, place, &culprit.parking)
            .await
            .map_err(|e| failed::<DB>(what, e))?;
        self.record_failure(session, lane, &culprit).await?;
        self.commit(session).await?;
        let Failed { member, parking, duration } = culprit;
        report::failed(outbox, &member.metadata, parking, duration, &mut tally);
        Ok(tally)
    }

    /// Keeps the attempt's error, in the transaction that counts it.
    pub(crate) async fn record_failure(
        &self,
        session: &mut Session<DB>,
        lane: Lane,
        failed: &Failed<'_, DB>,
    ) -> Result<()> {
        let (next, parking) = (&failed.member.next, &failed.parking);
        let Some(error) = parking.error.as_deref().filter(|_| parking.attempts > next.attempts) else {
            return Ok(());
        };
        let attempt = backend::Attempt {
            seq: next.place.seq(),
            number: parking.total_attempts,
            error,
            worker: &self.worker,
            duration: failed.duration,
        };
        self.record(session, lane, &attempt).await
    }

    /// Keeps that the end of the attempt before was never recorded.
    pub(crate) async fn record_lost(&self, session: &mut Session<DB>, lane: Lane, next: &Next) -> Result<()> {
        let lost = backend::Attempt {
            seq: next.place.seq(),
            number: next.total_attempts,
            error: parked::LOST_WORKER,
            worker: "",
            duration: Duration::ZERO,
        };
        self.record(session, lane, &lost).await
    }

    async fn record(
        &self,
        session: &mut Session<DB>,
        lane: Lane,
        attempt: &backend::Attempt<'_>,
    ) -> Result<()> {
        DB::record_attempt(session, self.outbox.sql(), lane.consumer, attempt, ATTEMPTS_KEPT)
            .await
            .map_err(|error| failed::<DB>("record an attempt", error))
    }

    async fn commit(&self, session: &mut Session<DB>) -> Result<()> {
        session.commit().await.map_err(|error| failed::<DB>("commit", error))
    }
}

/// Whether what failed right after a handler failed because of it: a constraint of its tables that is checked at
/// commit only, a role or a time limit that it has set, statements of the connection that it has dropped, a temporary table
/// of its own that is found in place of ours. Not so
/// where others were in the way or the database has gone; and if one of these only looks like the handler's doing,
/// it cannot be recorded as such either.
///
/// A connection that is lost right then may be its doing as well: a constraint's trigger that ends the session, a follow-up
/// that is too large for the server. While the server is away, nothing can be recorded.
fn may_be_the_handlers(error: &Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::Database
            | ErrorKind::ReadOnly
            | ErrorKind::TransactionAborted
            | ErrorKind::NotMigrated
            | ErrorKind::Unavailable
    )
}

fn failed<DB: Backend>(doing: &str, error: sqlx::Error) -> Error {
    Error::database(DB::kind(&error), doing, error)
}
