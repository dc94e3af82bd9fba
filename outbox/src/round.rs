//! One transaction of a trip: what has come back is settled, what is called next is claimed.
//!
//! Nothing here changes the trip: what is decided holds once the transaction is committed, and can be decided anew if it is not.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use crate::backend::{Backend, Lane, Mark, MessageClaim, ParkedState, Parking};
use crate::claim;
use crate::dispatch::Dispatch;
use crate::error::{Error, Result};
use crate::faults;
use crate::group::{Failed, Member};
use crate::inbox;
use crate::parked;
use crate::session::Session;
use crate::settle;

/// A message of a trip that is not called yet.
pub(crate) struct Queued<'a, DB: Backend> {
    pub(crate) member: Member<'a, DB>,
    /// It was called in a batch that failed as a whole, and is called by itself under the same claim.
    pub(crate) claimed: bool,
}

impl<DB: Backend> Queued<'_, DB> {
    /// The end of its last call was never recorded: its process may have died of it.
    pub(crate) fn is_suspect(&self) -> bool {
        matches!(self.member.next.mark, Mark::Left(_)) && !self.claimed
    }
}

/// What a call came to, for one message.
pub(crate) enum Verdict<'a, DB: Backend> {
    Done(Member<'a, DB>, Duration),
    Failed(Failed<'a, DB>),
}

impl<'a, DB: Backend> Verdict<'a, DB> {
    pub(crate) fn member(&self) -> &Member<'a, DB> {
        match self {
            Self::Done(member, _) => member,
            Self::Failed(failed) => &failed.member,
        }
    }
}

/// What a transaction has decided.
#[derive(Default)]
pub(crate) struct Plan {
    /// For each verdict whether it stands; it does not where another has claimed the message.
    pub(crate) settled: Vec<bool>,
    /// Calls to begin, by their messages' places in the queue.
    pub(crate) calls: Vec<Vec<usize>>,
    /// The attempts of messages to call, by their places in the queue.
    pub(crate) attempts: HashMap<usize, u32>,
    /// Messages that are not called any more, by their places in the queue.
    pub(crate) gone: Vec<(usize, Gone)>,
    /// Keys that wait for a message that failed, or that is another's; what is queued of them stays in the lane.
    pub(crate) stopped: HashSet<i64>,
    /// Whether more would be called if the consumer's rate allowed it.
    pub(crate) limited: bool,
    /// The trip is over, and the lane was given back.
    pub(crate) over: bool,
}

impl Plan {
    /// Whether a message of the queue waits for another of its key.
    pub(crate) fn stops<DB: Backend>(&self, queued: &Queued<'_, DB>) -> bool {
        queued.member.key().is_some_and(|key| self.stopped.contains(&key))
    }
}

pub(crate) enum Gone {
    /// Its last attempt was lost with the process that made it.
    Dead(Parking),
    /// It was handled elsewhere meanwhile.
    Duplicate,
    /// Another has claimed it, and may be at it.
    Busy,
}

pub(crate) struct Round<'t, 'a, DB: Backend> {
    pub(crate) dispatch: &'t Dispatch<DB>,
    pub(crate) lane: Lane,
    pub(crate) owner: &'t str,
    pub(crate) verdicts: &'t [Verdict<'a, DB>],
    pub(crate) queue: &'t VecDeque<Queued<'a, DB>>,
    /// The keys of the messages under way.
    pub(crate) busy: HashSet<i64>,
    /// How many calls are under way.
    pub(crate) under_way: usize,
    /// How many calls may begin.
    pub(crate) room: usize,
    /// How many messages they may be of, by the consumer's rate.
    pub(crate) allowed: usize,
    /// Whether one of them may be of a message of which a process may have died.
    pub(crate) suspects: bool,
    /// Whether these are all verdicts that there are. Else nothing else is done.
    pub(crate) whole: bool,
    /// Whether the process stops: nothing more is begun.
    pub(crate) stopping: bool,
}

impl<DB: Backend> Round<'_, '_, DB> {
    /// Locks the lane; whether it is still ours.
    pub(crate) async fn lock(&self, session: &mut Session<DB>) -> Result<bool> {
        let outbox = &self.dispatch.outbox;
        let row = claim::lock(outbox, session, self.lane).await?;
        Ok(row.leased_by.as_deref() == Some(self.owner) || !outbox.config().controls().lease_check)
    }

    /// All that is to be done under the lane's lock.
    pub(crate) async fn work(&self, session: &mut Session<DB>) -> Result<Plan> {
        let mut plan = Plan::default();
        let mut keys = self.settle(session, &mut plan).await?;
        if self.whole && !self.stopping {
            self.begin(session, &mut plan, &mut keys).await?;
        }
        settle::wake(&self.dispatch.outbox, session, self.lane, keys).await?;
        let called: usize = plan.calls.iter().map(Vec::len).sum();
        let idle = self.under_way == 0 && called == 0;
        // A lane is not held for what its consumer may not handle yet.
        let ends = self.whole && (self.stopping || idle && plan.limited);
        self.give_back(session, &plan, ends).await?;
        let left = self.queue.iter().filter(|queued| !plan.stops(queued)).count();
        let gone = plan.gone.iter().filter(|(at, _)| !plan.stops(&self.queue[*at])).count();
        plan.over = self.whole && idle && (ends || left == gone);
        if plan.over {
            let ended = DB::end_lease(session, self.dispatch.outbox.sql(), self.lane, self.owner).await;
            ended.map_err(|error| Error::database(DB::kind(&error), "give a lane back", error))?;
        }
        Ok(plan)
    }

    /// Messages of a batch that failed, and that are not called by themselves in this trip: they have had no attempt.
    async fn give_back(&self, session: &mut Session<DB>, plan: &Plan, ends: bool) -> Result<()> {
        for queued in self.queue.iter().filter(|queued| queued.claimed) {
            if plan.stops(queued) || ends {
                let message = (self.lane.consumer, queued.member.metadata.id.as_str());
                inbox::end(&self.dispatch.outbox, session, message, Some(self.owner)).await?;
            }
        }
        Ok(())
    }

    /// Returns the keys behind whose parked messages others may go on.
    async fn settle(&self, session: &mut Session<DB>, plan: &mut Plan) -> Result<Vec<i64>> {
        let outbox = &self.dispatch.outbox;
        let mut done = Vec::new();
        for verdict in self.verdicts {
            let member = verdict.member();
            let message = (self.lane.consumer, member.metadata.id.as_str());
            let ours = match verdict {
                Verdict::Done(..) => inbox::finish(outbox, session, message, self.owner).await?,
                Verdict::Failed(_) => inbox::end(outbox, session, message, Some(self.owner)).await?,
            };
            let ours = ours || !outbox.config().controls().claim_check;
            plan.settled.push(ours);
            if !ours {
                plan.stopped.extend(member.key());
                continue;
            }
            match verdict {
                Verdict::Done(..) => done.push(member.next.place),
                Verdict::Failed(failed) => {
                    let parking = &failed.parking;
                    parked::park(outbox, session, self.lane, member.next.place, parking).await?;
                    self.dispatch.record_failure(session, self.lane, failed).await?;
                    if parking.state != ParkedState::Skipped {
                        plan.stopped.extend(member.key());
                    }
                }
            }
        }
        let keys = settle::unmarked(outbox, session, self.lane, &done).await?;
        if !done.is_empty() {
            faults::point("call settled");
        }
        Ok(keys)
    }

    async fn begin(&self, session: &mut Session<DB>, plan: &mut Plan, keys: &mut Vec<i64>) -> Result<()> {
        let (calls, limited) = self.next_calls(&plan.stopped);
        plan.limited = limited;
        for places in calls {
            let mut call = Vec::with_capacity(places.len());
            for at in places {
                if self.claim(session, plan, keys, at).await? {
                    call.push(at);
                }
            }
            if !call.is_empty() {
                plan.calls.push(call);
            }
        }
        Ok(())
    }

    /// Claims the message at this place of the queue; whether it is to be called.
    async fn claim(
        &self,
        session: &mut Session<DB>,
        plan: &mut Plan,
        keys: &mut Vec<i64>,
        at: usize,
    ) -> Result<bool> {
        let (outbox, lane, queued) = (&self.dispatch.outbox, self.lane, &self.queue[at]);
        let member = &queued.member;
        let (next, options) = (&member.next, &member.handler.options);
        if plan.stops(queued) {
            return Ok(false);
        }
        if queued.claimed {
            plan.attempts.insert(at, member.metadata.attempt());
            return Ok(true);
        }
        let message = (lane.consumer, member.metadata.id.as_str());
        let lost = queued.is_suspect();
        if lost && options.retry.is_exhausted(u32::try_from(next.attempts).unwrap_or(u32::MAX)) {
            let parking = parked::lost_for_good(next, options);
            parked::park(outbox, session, lane, next.place, &parking).await?;
            inbox::end(outbox, session, message, None).await?;
            self.dispatch.record_lost(session, lane, next).await?;
            if parking.state != ParkedState::Skipped {
                plan.stopped.extend(member.key());
            }
            plan.gone.push((at, Gone::Dead(parking)));
            return Ok(false);
        }
        let attempt = next.attempts.saturating_add(1);
        match inbox::claim(outbox, session, message, self.owner, None, attempt).await? {
            MessageClaim::Owned(attempt) => {
                if lost {
                    self.dispatch.record_lost(session, lane, next).await?;
                }
                plan.attempts.insert(at, u32::try_from(attempt).unwrap_or(u32::MAX));
                Ok(true)
            }
            MessageClaim::Handled => {
                keys.extend(settle::unmarked(outbox, session, lane, &[next.place]).await?);
                plan.gone.push((at, Gone::Duplicate));
                Ok(false)
            }
            MessageClaim::Busy => {
                plan.stopped.extend(member.key());
                plan.gone.push((at, Gone::Busy));
                Ok(false)
            }
        }
    }

    /// What may be called now: the first of each key that is not under way, and for a batch handler what follows for it. And whether
    /// the consumer's rate has ended that.
    fn next_calls(&self, stopped: &HashSet<i64>) -> (Vec<Vec<usize>>, bool) {
        let mut blocked: HashSet<i64> = self.busy.union(stopped).copied().collect();
        let mut taken = vec![false; self.queue.len()];
        let (mut calls, mut suspects, mut allowed) = (Vec::new(), self.suspects, self.allowed);
        for (first, queued) in self.queue.iter().enumerate() {
            if calls.len() >= self.room {
                break;
            }
            let key = queued.member.key();
            if taken[first] {
                continue;
            }
            if key.is_some_and(|key| blocked.contains(&key)) || queued.is_suspect() && !suspects {
                blocked.extend(key);
                continue;
            }
            if allowed == 0 {
                return (calls, true);
            }
            suspects &= !queued.is_suspect();
            let call = self.fill(first, &blocked, &taken, allowed);
            allowed -= call.len();
            for at in &call {
                taken[*at] = true;
                blocked.extend(self.queue[*at].member.key());
            }
            calls.push(call);
        }
        (calls, false)
    }

    /// The message at this place, and what its batch takes in after it: as it stands in the queue, so of each key in its order.
    fn fill(&self, first: usize, blocked: &HashSet<i64>, taken: &[bool], allowed: usize) -> Vec<usize> {
        let mut call = vec![first];
        let queued = &self.queue[first];
        let handler = queued.member.handler;
        if !handler.batched || queued.claimed || queued.is_suspect() {
            return call;
        }
        let most = usize::try_from(handler.options.batch).unwrap_or(usize::MAX).min(allowed);
        for (at, next) in self.queue.iter().enumerate().skip(first + 1) {
            let fits = std::ptr::eq(next.member.handler, handler) && !next.claimed && !next.is_suspect();
            if call.len() >= most || !fits {
                break;
            }
            if !taken[at] && next.member.key().is_none_or(|key| !blocked.contains(&key)) {
                call.push(at);
            }
        }
        call
    }
}
