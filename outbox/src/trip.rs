//! Calls outside of transactions: a lane is leased, its messages are called, each is settled in a short transaction.
//!
//! A trip is one lease of one lane, with what was read of it. Keys are called at once, as many as the consumer allows; the messages
//! of one key are called in their order. After each transaction of a trip ([`Round`]) the calls begin that it has claimed. When
//! another has the lane, because this process was out of touch for longer than the lease, nothing more is written, and what was
//! under way is called again by that one: so an effect happens at least once.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedMutexGuard, OwnedSemaphorePermit};
use tokio::task::{Id, JoinError, JoinSet};

use crate::attempt::{Returned, call_outside, panicked};
use crate::backend::{Backend, Lane, ParkedState};
use crate::claim::{self, Turn};
use crate::dispatch::Dispatch;
use crate::error::{Error, ErrorKind, Result};
use crate::faults;
use crate::group::{Failed, Member};
use crate::lease::{Keeper, Lease};
use crate::notice::Notice;
use crate::rate::Allowance;
use crate::report::{self, Tally};
use crate::round::{Gone, Plan, Queued, Round, Verdict};
use crate::select::{self, Consumer, Held};
use crate::session::Session;
use crate::settle;
use crate::trouble::Trouble;

/// How long a transaction around calls may be left alone. Nothing of the user's runs in it.
const IDLE: Duration = Duration::from_secs(10);

/// So many messages are read however few of them may be called now: the first of a key, and some of others.
const FEW: usize = 16;

/// A call that is under way.
struct Call<'a, DB: Backend> {
    members: Vec<Member<'a, DB>>,
    since: Instant,
    permit: Option<OwnedSemaphorePermit>,
    /// Held while a message is called of which a process may have died: when this one dies, no second one is blamed.
    alone: Option<OwnedMutexGuard<()>>,
}

/// One lease of a lane.
pub(crate) struct Trip<'a, DB: Backend> {
    dispatch: &'a Dispatch<DB>,
    consumer: &'a Consumer<DB>,
    lane: Lane,
    owner: String,
    queue: VecDeque<Queued<'a, DB>>,
    tasks: JoinSet<Returned>,
    calls: HashMap<Id, Call<'a, DB>>,
    verdicts: Vec<Verdict<'a, DB>>,
    /// How many verdicts are settled in a transaction: one, while another of them makes it fail.
    at_once: usize,
    /// For calls that begin; what the consumer's other trips may have is given back at once.
    permits: Vec<OwnedSemaphorePermit>,
    alone: Option<OwnedMutexGuard<()>>,
    /// Messages that the consumer's rate lets this trip call.
    allowance: Allowance,
    /// Whether more would have been called if there had been more of that.
    limited: bool,
    tally: Tally,
}

impl<'a, DB: Backend> Trip<'a, DB> {
    /// Leases a lane of the consumer that has something runnable, and works on it until that is done. False where there is none;
    /// `claimed` is called as soon as a lane is ours. While the database is away, what has come back is kept for `patience`.
    pub(crate) async fn run(
        dispatch: &'a Dispatch<DB>,
        keeper: &Keeper<DB>,
        consumer: &'a Consumer<DB>,
        permit: OwnedSemaphorePermit,
        patience: Duration,
        claimed: impl FnOnce(),
    ) -> Result<bool> {
        let mut session = dispatch.connections.external().await?;
        let turn = give_way(dispatch);
        let begun = Self::begin(dispatch, keeper, consumer, permit, &mut session, claimed).await;
        end(session, turn, &begun).await;
        let Some((trip, lease)) = begun? else { return Ok(false) };
        if let Some(lease) = lease {
            trip.work(lease, patience).await?;
        }
        Ok(true)
    }

    /// One transaction: a lane is claimed and read, leased, and the first of its messages are claimed. Without a lease where nothing
    /// was to be called.
    async fn begin(
        dispatch: &'a Dispatch<DB>,
        keeper: &Keeper<DB>,
        consumer: &'a Consumer<DB>,
        permit: OwnedSemaphorePermit,
        session: &mut Session<DB>,
        claimed: impl FnOnce(),
    ) -> Result<Option<(Self, Option<Lease>)>> {
        let outbox = &dispatch.outbox;
        let failed = |error| Error::database(DB::kind(&error), "lease a lane", error);
        let since = Instant::now();
        let patience = consumer.patience(dispatch.config.poll_interval);
        let claim = claim::claim(outbox, IDLE, session, &consumer.row, true, patience).await;
        let Some(claim) = claim.map_err(failed)? else { return Ok(None) };
        claimed();
        faults::point("claimed lane");
        let lane = Lane { consumer: consumer.row.id, lane: claim.lane };
        if claim.suspect.is_some() {
            // Attempts are counted before their calls, so nothing has to be watched.
            DB::clear_suspect(session, outbox.sql(), lane).await.map_err(failed)?;
        }
        let mut held = Held { consumer, claim, lane, leaves: None, tally: Tally::default() };
        // A lane is not read to its end each time that a slow consumer may handle one more.
        let most = consumer.portion();
        let size = consumer.limit.room(most).max(FEW).min(most);
        let (members, _) = select::members(outbox, session, &mut held, size, patience).await?;
        let owner = keeper.owner();
        let mut trip = Self {
            dispatch,
            consumer,
            lane,
            queue: members.into_iter().map(|member| Queued { member, claimed: false }).collect(),
            owner: owner.clone(),
            tasks: JoinSet::new(),
            calls: HashMap::new(),
            verdicts: Vec::new(),
            at_once: usize::MAX,
            permits: vec![permit],
            alone: None,
            allowance: Allowance::none(&consumer.limit),
            limited: false,
            tally: held.tally,
        };
        if trip.queue.is_empty() {
            session.commit().await.map_err(failed)?;
            trip.count();
            return Ok(Some((trip, None)));
        }
        let length = consumer.registered.lease();
        let leased = DB::lease(session, outbox.sql(), lane, &owner, length).await.map_err(failed)?;
        settle::expect_one(outbox, leased, "lease a lane")?;
        trip.prepare();
        let plan = trip.round().work(session).await?;
        session.commit().await.map_err(failed)?;
        faults::point("leased");
        let lease = if plan.over { None } else { Some(keeper.keep(owner, lane, length, since)?) };
        trip.apply(plan);
        Ok(Some((trip, lease)))
    }

    /// Calls and settles until nothing is left, or another has the lane.
    async fn work(mut self, lease: Lease, patience: Duration) -> Result<()> {
        loop {
            let step = tokio::select! {
                biased;
                () = lease.lost() => Step::Lost,
                () = self.come_back() => self.settle(&lease, patience).await?,
            };
            match step {
                Step::On => {}
                Step::Over => {
                    lease.ended();
                    return Ok(());
                }
                Step::Lost => {
                    let under_way: usize = self.calls.values().map(|call| call.members.len()).sum();
                    let (messages, consumer) = (under_way + self.verdicts.len(), self.consumer.name());
                    let outbox = &self.dispatch.outbox;
                    report::lease_lost(outbox, consumer, self.lane.lane, messages, &mut self.tally);
                    self.count();
                    lease.ended();
                    // The calls end with their tasks: another makes them.
                    return Ok(());
                }
            }
        }
    }

    /// Waits until there is something to settle, or something may be begun.
    async fn come_back(&mut self) {
        let limit = async {
            if self.limited {
                self.consumer.limit.free().await;
            } else {
                std::future::pending::<()>().await;
            }
        };
        let first = tokio::select! {
            biased;
            first = self.tasks.join_next_with_id() => first,
            // More may be called, beside what is under way.
            () = limit => return,
        };
        let Some(first) = first else {
            // What is left may have killed a process, and another such message is being called.
            let alone = self.dispatch.alone.clone().lock_owned();
            self.alone = self.dispatch.stop.run_until_cancelled(alone).await;
            return;
        };
        self.returned(first);
        while let Some(next) = self.tasks.try_join_next_with_id() {
            self.returned(next);
        }
        faults::point("call returned");
    }

    /// Settles what has come back. What it came to is kept while the database is away; where a single message cannot be settled,
    /// the others are, and then the trip ends with its error.
    async fn settle(&mut self, lease: &Lease, patience: Duration) -> Result<Step> {
        let (mut trouble, since, mut refused) = (Trouble::new("external consumer"), Instant::now(), 0);
        loop {
            match self.transaction().await {
                Ok(None) => return Ok(Step::Lost),
                Ok(Some(plan)) => {
                    let over = plan.over;
                    self.apply(plan);
                    if over || self.at_once == usize::MAX {
                        return Ok(if over { Step::Over } else { Step::On });
                    }
                    if self.verdicts.is_empty() {
                        self.at_once = usize::MAX;
                    }
                }
                Err(error) if passes(&error) && since.elapsed() < patience => {
                    tokio::select! {
                        () = tokio::time::sleep(trouble.met(&error)) => (),
                        () = lease.lost() => return Ok(Step::Lost),
                    }
                }
                Err(error) => {
                    if self.at_once == 1 && !self.verdicts.is_empty() {
                        self.verdicts.rotate_left(1);
                        refused += 1;
                    }
                    if refused >= self.verdicts.len() {
                        return Err(error);
                    }
                    self.at_once = 1;
                }
            }
        }
    }

    /// One transaction; `None` where another has the lane.
    async fn transaction(&mut self) -> Result<Option<Plan>> {
        let outbox = &self.dispatch.outbox;
        let mut session = self.dispatch.connections.external().await?;
        let turn = give_way(self.dispatch);
        self.prepare();
        let plan = async {
            let failed = |error| Error::database(DB::kind(&error), "settle calls", error);
            session
                .begin(DB::begin_work(outbox.sql(), IDLE, outbox.config().controls()))
                .await
                .map_err(failed)?;
            let round = self.round();
            if !round.lock(&mut session).await? {
                return Ok(None);
            }
            let plan = round.work(&mut session).await?;
            session.commit().await.map_err(failed)?;
            if !plan.settled.is_empty() {
                faults::point("call committed");
            }
            Ok(Some(plan))
        };
        let plan = plan.await;
        end(session, turn, &plan).await;
        plan
    }

    /// Takes what the calls need that may begin now.
    fn prepare(&mut self) {
        while self.permits.len() < self.queue.len()
            && let Ok(permit) = self.consumer.calls.clone().try_acquire_owned()
        {
            self.permits.push(permit);
        }
        self.allowance.fill(self.queue.len());
        if self.alone.is_none() && self.queue.iter().any(Queued::is_suspect) {
            self.alone = self.dispatch.alone.clone().try_lock_owned().ok();
        }
    }

    fn round(&self) -> Round<'_, 'a, DB> {
        let members = self.calls.values().flat_map(|call| &call.members);
        Round {
            dispatch: self.dispatch,
            lane: self.lane,
            owner: &self.owner,
            verdicts: &self.verdicts[..self.verdicts.len().min(self.at_once)],
            queue: &self.queue,
            busy: members.filter_map(Member::key).collect(),
            under_way: self.calls.len(),
            room: self.permits.len(),
            allowed: self.allowance.left(),
            suspects: self.alone.is_some(),
            whole: self.at_once == usize::MAX,
            stopping: self.dispatch.stop.is_cancelled(),
        }
    }

    /// What a transaction has decided holds: says so, and begins the calls.
    fn apply(&mut self, mut plan: Plan) {
        let outbox = &self.dispatch.outbox;
        let verdicts: Vec<_> = self.verdicts.drain(..plan.settled.len()).collect();
        for (verdict, settled) in verdicts.into_iter().zip(std::mem::take(&mut plan.settled)) {
            match verdict {
                _ if !settled => {
                    let metadata = &verdict.member().metadata;
                    let (consumer, message_id) = (metadata.consumer(), &metadata.id);
                    tracing::warn!(consumer, %message_id, "another has claimed the message, and settles it");
                }
                Verdict::Done(member, duration) => {
                    report::handled(outbox, &member.metadata, duration, &mut self.tally);
                }
                Verdict::Failed(Failed { member, parking, duration }) => {
                    if parking.state == ParkedState::UnknownType {
                        self.consumer.meets_strange();
                    }
                    report::failed(outbox, &member.metadata, parking, duration, &mut self.tally);
                }
            }
        }
        let mut queue: Vec<_> = std::mem::take(&mut self.queue).into_iter().map(Some).collect();
        for (at, gone) in std::mem::take(&mut plan.gone) {
            let Some(Queued { member, .. }) = queue[at].take() else { continue };
            match gone {
                Gone::Dead(parking) => {
                    let attempt = u32::try_from(parking.attempts).unwrap_or(u32::MAX);
                    let metadata = member.metadata.with_attempt(attempt);
                    report::failed(outbox, &metadata, parking, Duration::ZERO, &mut self.tally);
                }
                Gone::Duplicate => {
                    self.tally.duplicates += 1;
                    let (consumer, message_id) = (self.consumer.name(), Some(member.metadata.id.clone()));
                    outbox.notify(|| Notice::Duplicate { consumer, message_id });
                }
                Gone::Busy => {}
            }
        }
        self.allowance.spend(plan.calls.iter().map(Vec::len).sum());
        self.limited = plan.limited;
        for call in std::mem::take(&mut plan.calls) {
            let queued = call.into_iter().filter_map(|at| Some((queue[at].take()?, plan.attempts[&at])));
            self.call(queued.collect());
        }
        self.queue = queue.into_iter().flatten().filter(|queued| !plan.stops(queued)).collect();
        self.permits.truncate(usize::from(self.calls.is_empty()));
        self.alone = None;
        self.count();
    }

    /// What is counted here is committed: it is the run's.
    fn count(&mut self) {
        self.dispatch.total.add(std::mem::take(&mut self.tally));
    }

    fn call(&mut self, queued: Vec<(Queued<'a, DB>, u32)>) {
        let suspect = queued.iter().any(|(queued, _)| queued.is_suspect());
        let members: Vec<_> = queued
            .into_iter()
            .map(|(Queued { member, .. }, attempt)| {
                let metadata = member.metadata.with_attempt(attempt);
                Member { metadata, ..member }
            })
            .collect();
        let Some(handler) = members.first().map(|member| *member.handler) else { return };
        let messages = members.iter().map(|member| member.metadata.clone()).collect();
        let dispatch = self.dispatch;
        let (outbox, states, stop) =
            (dispatch.outbox.clone(), dispatch.states.clone(), dispatch.stop.clone());
        let call = Call {
            members,
            since: Instant::now(),
            permit: self.permits.pop(),
            alone: self.alone.take().filter(|_| suspect),
        };
        let task = self.tasks.spawn(call_outside(outbox, states, stop, Box::new(handler), messages));
        self.calls.insert(task.id(), call);
    }

    /// A call has come back. A batch that failed as a whole says nothing of its messages: each is called by itself.
    fn returned(&mut self, returned: Result<(Id, Returned), JoinError>) {
        let (id, returned) = returned.unwrap_or_else(|error| {
            let id = error.id();
            let error = match error.try_into_panic() {
                Ok(panic) => panicked(&*panic),
                Err(_) => "the call was interrupted".into(),
            };
            (id, Returned::Failed(error))
        });
        let Some(Call { mut members, since, permit, alone }) = self.calls.remove(&id) else { return };
        drop(alone);
        self.permits.extend(permit);
        let duration = since.elapsed();
        match returned {
            Returned::Well { mut failed, .. } => {
                for (at, member) in members.into_iter().enumerate() {
                    let which = failed.iter().position(|(failed, _)| *failed == at);
                    self.verdicts.push(match which.map(|which| failed.swap_remove(which)) {
                        Some((_, error)) => Verdict::Failed(Failed::new(member, &error, duration)),
                        None => Verdict::Done(member, duration),
                    });
                }
            }
            Returned::Failed(error) | Returned::Dropped(error) if members.len() == 1 => {
                let failed = members.pop().map(|member| Failed::new(member, &error, duration));
                self.verdicts.extend(failed.map(Verdict::Failed));
            }
            Returned::Failed(_) | Returned::Dropped(_) => {
                for member in members.into_iter().rev() {
                    self.queue.push_front(Queued { member, claimed: true });
                }
            }
        }
    }
}

/// How a trip goes on after a transaction.
enum Step {
    On,
    Over,
    Lost,
}

/// Whether a database that says so may take what it is given later: it is away, or another one is about to take the writes.
fn passes(error: &Error) -> bool {
    error.is_transient() || error.kind() == ErrorKind::ReadOnly
}

fn give_way<DB: Backend>(dispatch: &Dispatch<DB>) -> Turn {
    let gives_way = dispatch.outbox.config().controls().give_way && !dispatch.connections.borrowed();
    Turn::begin(DB::SINGLE_WRITER && gives_way)
}

/// Ends a transaction that is not committed, and leaves the database to others.
async fn end<DB: Backend, T>(mut session: Session<DB>, turn: Turn, outcome: &Result<Option<T>>) {
    session.rollback().await;
    if outcome.as_ref().is_err_and(|error| error.kind() != ErrorKind::Conflict) {
        // A new connection may reach a server that works.
        session.close_own();
    }
    drop(session);
    if matches!(outcome, Ok(Some(_))) {
        turn.give_way().await;
    }
}
