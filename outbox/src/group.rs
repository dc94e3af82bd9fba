//! Group commit: several messages of a lane in one transaction.
//!
//! Handlers run one after the other with nothing between them. Where one fails, what was done since the last savepoint is taken
//! back; the failure stands, and those before it run again, each secured by itself. So a handler that fails runs once for each
//! attempt, and one that succeeds may run again for a neighbour's sake: what it does outside the transaction is repeated.

use std::collections::{HashSet, VecDeque};
use std::time::{Duration, Instant};

use crate::attempt::{Attempt, Began, Returned, patiently};
use crate::backend::{Backend, Guard, Next, ParkedState, Parking, Place, SqlResult};
use crate::draft::Outgoing;
use crate::handler::{HandlerVTable, Metadata};
use crate::notice::Stored;
use crate::outcome::HandlerError;
use crate::parked;
use crate::session::Session;

/// A message on its way to its handler.
pub(crate) struct Member<'a, DB: Backend> {
    pub(crate) next: Next,
    pub(crate) metadata: Metadata,
    pub(crate) handler: &'a HandlerVTable<DB>,
    /// It has failed before.
    pub(crate) again: bool,
}

impl<DB: Backend> Member<'_, DB> {
    /// The key whose later messages wait for this one.
    pub(crate) fn key(&self) -> Option<i64> {
        self.next.key_hash.filter(|_| self.handler.options.ordered)
    }

    /// How many may share its transaction.
    pub(crate) fn most(&self) -> usize {
        let options = &self.handler.options;
        let most = if self.handler.batched { options.group.max(options.batch) } else { options.group };
        usize::try_from(most).unwrap_or(usize::MAX)
    }
}

/// A message whose handler succeeded.
pub(crate) struct Done<'a, DB: Backend> {
    pub(crate) member: Member<'a, DB>,
    pub(crate) follow_ups: Vec<Outgoing>,
    pub(crate) duration: Duration,
}

/// A message whose handler failed, and whose work was taken back.
pub(crate) struct Failed<'a, DB: Backend> {
    pub(crate) member: Member<'a, DB>,
    pub(crate) parking: Parking,
    pub(crate) duration: Duration,
}

impl<'a, DB: Backend> Failed<'a, DB> {
    pub(crate) fn new(member: Member<'a, DB>, error: &HandlerError, duration: Duration) -> Self {
        let parking = parked::after_failure::<DB>(&member.next, error, &member.handler.options);
        Self { member, parking, duration }
    }
}

/// What became of a group. What is named nowhere was not run, and stays where it is.
pub(crate) struct Ran<'a, DB: Backend> {
    pub(crate) done: Vec<Done<'a, DB>>,
    pub(crate) failed: Vec<Failed<'a, DB>>,
    /// Deliveries whose key's earlier message has failed in this group.
    pub(crate) behind: Vec<Member<'a, DB>>,
    /// What the handlers published, once it is stored.
    pub(crate) stored: Vec<Stored>,
    /// Whether a message failed that had not before.
    pub(crate) troubled: bool,
    /// Whether the window closed before all had run.
    pub(crate) closed: bool,
}

/// How a group ended.
pub(crate) enum Ended<'a, DB: Backend> {
    /// The transaction is ours, and holds what the handlers did that succeeded.
    Ours(Ran<'a, DB>),
    /// A lock that others hold was in the way. Nothing stands.
    Crowded,
    /// A handler took the transaction with it. Nothing stands.
    Lost {
        /// Whose handler it was, where that is known and nothing of its key stands before it.
        culprit: Option<Box<Failed<'a, DB>>>,
        /// How many it may have been.
        among: usize,
    },
}

/// Runs the members in their order. `careful`: each success is secured at once.
pub(crate) async fn run<'a, DB: Backend>(
    attempt: &Attempt<'_, DB>,
    session: &mut Session<DB>,
    members: Vec<Member<'a, DB>>,
    careful: bool,
) -> SqlResult<Ended<'a, DB>> {
    let outbox = attempt.outbox;
    let shared = members.len() > 1;
    // Those that have failed before may wait for a lock: nothing else is held meanwhile.
    let patient = members.first().is_none_or(|first| first.again);
    let mut guard = DB::arm(session, outbox.sql(), shared && !patient, outbox.config().controls()).await?;
    guard.in_flight = !attempt.connections.borrowed();
    let run = Run {
        attempt,
        guard,
        shared,
        careful,
        each: DB::is_pooled(outbox.sql()) && outbox.config().controls().secure_each,
        count: members.len(),
        began: Began { at: Instant::now(), timeout: Duration::ZERO },
        since: Vec::new(),
        failures: 0,
        stopped: HashSet::new(),
        left: HashSet::new(),
        ran: Ran {
            done: Vec::new(),
            failed: Vec::new(),
            behind: Vec::new(),
            stored: Vec::new(),
            troubled: false,
            closed: false,
        },
    };
    Ok(run.all(session, members).await)
}

/// One call that is to be made.
struct Call<'a, DB: Backend> {
    member: Member<'a, DB>,
    /// It was taken back for another's sake and runs by itself, whatever the time.
    repeated: bool,
    /// What it came to beside others, and how many had failed before: it stands unless one of the repeated fails.
    verdict: Option<(HandlerError, Duration, usize)>,
}

/// A call that succeeded.
struct Success<'a, DB: Backend> {
    members: Vec<Member<'a, DB>>,
    follow_ups: Vec<Outgoing>,
    failed: Vec<(usize, HandlerError)>,
    duration: Duration,
}

/// Whether no message of a batch succeeded behind a failed one of its key.
fn in_order<DB: Backend>(members: &[Member<'_, DB>], failed: &[(usize, HandlerError)]) -> bool {
    failed.iter().all(|(at, _)| {
        let key = members[*at].key();
        let succeeded = |later: usize| failed.iter().all(|(failed, _)| *failed != later);
        let overtook = |(later, member): (usize, &Member<'_, DB>)| member.key() == key && succeeded(later);
        key.is_none() || !members.iter().enumerate().skip(at + 1).any(overtook)
    })
}

struct Run<'r, 'a, DB: Backend> {
    attempt: &'r Attempt<'r, DB>,
    guard: Guard,
    shared: bool,
    careful: bool,
    /// Each call is secured at once: what follows a handler that has left our transaction would be committed.
    each: bool,
    count: usize,
    /// The last call.
    began: Began,
    /// What has succeeded since the savepoint.
    since: Vec<Success<'a, DB>>,
    failures: usize,
    /// Keys that wait for a message that failed here.
    stopped: HashSet<i64>,
    /// Keys that wait for a message that was not run here.
    left: HashSet<i64>,
    ran: Ran<'a, DB>,
}

/// The end of a group before all its members have run.
enum Broken<'a, DB: Backend> {
    Crowded,
    Lost(Option<Box<Failed<'a, DB>>>),
}

impl<'a, DB: Backend> Run<'_, 'a, DB> {
    async fn all(mut self, session: &mut Session<DB>, members: Vec<Member<'a, DB>>) -> Ended<'a, DB> {
        let broken = match self.members(session, members).await {
            Ok(()) => {
                self.guard.in_flight = false;
                return Ended::Ours(self.ran);
            }
            Err(broken) => broken,
        };
        if matches!(broken, Broken::Lost(_)) && !DB::SAFE_TO_DROP {
            self.attempt.end_connection(session).await;
        } else {
            // While the guard still stands: what a dropped handler left behind must not be committed either.
            session.rollback().await;
        }
        self.guard.in_flight &= !session.is_open();
        match broken {
            Broken::Crowded => Ended::Crowded,
            Broken::Lost(culprit) => {
                let stands_before = |culprit: &Failed<'a, DB>| {
                    let before = |member: &Member<'a, DB>| {
                        member.key().is_some() && member.key() == culprit.member.key()
                    };
                    self.ran.done.iter().any(|done| before(&done.member))
                        || self.since.iter().flat_map(|success| &success.members).any(before)
                };
                let culprit = culprit.filter(|culprit| !stands_before(culprit));
                Ended::Lost { culprit, among: self.count }
            }
        }
    }

    async fn members(
        &mut self,
        session: &mut Session<DB>,
        members: Vec<Member<'a, DB>>,
    ) -> Result<(), Broken<'a, DB>> {
        let fresh = |member| Call { member, repeated: false, verdict: None };
        let mut queue: VecDeque<_> = members.into_iter().map(fresh).collect();
        let begun = Instant::now();
        let (mut again, mut called, mut any) = (true, false, false);
        loop {
            while let Some(call) = queue.pop_front() {
                if again && !call.member.again {
                    // The first of the others runs whatever the time: neither kind can starve the other.
                    (again, called) = (false, false);
                }
                let window = if again { self.attempt.window / 2 } else { self.attempt.window };
                let over = called && begun.elapsed() > window || any && self.attempt.stop.is_cancelled();
                let key = call.member.next.key_hash;
                if !call.repeated && (over || key.is_some_and(|key| self.left.contains(&key))) {
                    self.ran.closed = true;
                    self.left.extend(key);
                    continue;
                }
                (called, any) = (true, true);
                self.one(session, call, &mut queue).await?;
            }
            match self.end(session).await? {
                // Somebody's statement failed, and nobody said so.
                Some(repeat) => queue.extend(repeat),
                None => return Ok(()),
            }
        }
    }

    async fn one(
        &mut self,
        session: &mut Session<DB>,
        call: Call<'a, DB>,
        queue: &mut VecDeque<Call<'a, DB>>,
    ) -> Result<(), Broken<'a, DB>> {
        let Call { member, repeated, verdict } = call;
        if let Some((error, duration, failures)) = verdict
            && failures == self.failures
        {
            self.fail(member, &error, duration);
            return Ok(());
        }
        let Some(member) = self.free(member) else { return Ok(()) };
        let alone = repeated || self.careful || member.again;
        let (handler, first) = (member.handler, member.again);
        let mut members = vec![member];
        if handler.batched && !alone {
            self.fill(&mut members, queue);
        }
        let messages = members.iter().map(|member| member.metadata.clone()).collect();
        let began = Began::now(handler);
        self.began = began;
        let returned = self.attempt.call(session, handler, messages).await;
        let duration = began.at.elapsed();
        let after = match returned {
            Returned::Well { follow_ups, failed } => {
                if !in_order(&members, &failed) {
                    let error = "a later message of a failed one's key succeeded".into();
                    let taken_back = self.attempt.take_back(session, &self.guard, began, error).await;
                    taken_back.map_err(|_| Broken::Lost(None))?;
                    self.again(members, None, queue);
                    return Ok(());
                }
                self.since.push(Success { members, follow_ups, failed, duration });
                if !alone && !self.each {
                    return Ok(());
                }
                let patient = first && queue.front().is_some_and(|call| call.member.again);
                let advance = DB::advance(session, self.attempt.outbox.sql(), self.shared && !patient);
                let advanced = patiently(began, advance).await;
                let after = self.attempt.after(session, &self.guard, began, advanced).await;
                if let Ok(None) = after {
                    self.secure();
                    return Ok(());
                }
                members = self.since.pop().map(|success| success.members).unwrap_or_default();
                after
            }
            Returned::Failed(error) if self.shared && parked::lost_a_conflict::<DB>(&*error.source) => {
                return Err(Broken::Crowded);
            }
            Returned::Failed(error) => {
                self.attempt.take_back(session, &self.guard, began, error).await.map(Some)
            }
            Returned::Dropped(error) => self.attempt.cut_off(session, &self.guard, error).await.map(Some),
        };
        match after {
            Ok(error) => {
                self.again(members, error.map(|error| (error, duration)), queue);
                Ok(())
            }
            Err(error) => Err(self.lost(members, &error, duration)),
        }
    }

    /// The member, unless its key waits for one that has failed: a delivery then goes behind that one, and what is parked is
    /// there already.
    fn free(&mut self, member: Member<'a, DB>) -> Option<Member<'a, DB>> {
        if member.key().is_none_or(|key| !self.stopped.contains(&key)) {
            return Some(member);
        }
        if matches!(member.next.place, Place::Delivery { .. }) {
            self.ran.behind.push(member);
        }
        None
    }

    /// Adds to a batch what follows for the same handler.
    fn fill(&mut self, members: &mut Vec<Member<'a, DB>>, queue: &mut VecDeque<Call<'a, DB>>) {
        let handler = members[0].handler;
        let most = usize::try_from(handler.options.batch).unwrap_or(usize::MAX);
        while members.len() < most
            && let Some(next) = queue.pop_front_if(|call| {
                let left = call.member.next.key_hash.is_some_and(|key| self.left.contains(&key));
                std::ptr::eq(call.member.handler, handler) && !call.repeated && !left
            })
        {
            members.extend(self.free(next.member));
        }
    }

    /// What was done since the savepoint has been taken back, and runs again, each by itself. A failure stands if nothing was
    /// before it, or if all of that succeeds again: else another may have spoiled the transaction.
    fn again(
        &mut self,
        members: Vec<Member<'a, DB>>,
        failure: Option<(HandlerError, Duration)>,
        queue: &mut VecDeque<Call<'a, DB>>,
    ) {
        let single = members.len() == 1;
        let mut failure = failure.filter(|_| single);
        let before = std::mem::take(&mut self.since);
        if !members.iter().any(|member| member.again) {
            self.careful = true;
            self.ran.troubled = true;
        }
        let before = before.into_iter().flat_map(|success| success.members);
        let mut calls: Vec<_> = before.map(|member| Call { member, repeated: true, verdict: None }).collect();
        let first = calls.is_empty();
        for member in members {
            match failure.take() {
                Some((error, duration)) if first => self.fail(member, &error, duration),
                Some((error, duration)) => {
                    let verdict = Some((error, duration, self.failures));
                    calls.push(Call { member, repeated: true, verdict });
                }
                None => calls.push(Call { member, repeated: true, verdict: None }),
            }
        }
        for call in calls.into_iter().rev() {
            queue.push_front(call);
        }
    }

    fn fail(&mut self, member: Member<'a, DB>, error: &HandlerError, duration: Duration) {
        self.failures += 1;
        let failed = Failed::new(member, error, duration);
        if failed.parking.state != ParkedState::Skipped {
            self.stopped.extend(failed.member.key());
        }
        self.ran.failed.push(failed);
    }

    /// Everything that was done so far stands.
    fn secure(&mut self) {
        for success in std::mem::take(&mut self.since) {
            let Success { members, mut follow_ups, mut failed, duration } = success;
            for (at, member) in members.into_iter().enumerate() {
                if let Some(which) = failed.iter().position(|(failed, _)| *failed == at) {
                    let (_, error) = failed.swap_remove(which);
                    self.fail(member, &error, duration);
                } else {
                    let follow_ups = std::mem::take(&mut follow_ups);
                    self.ran.done.push(Done { member, follow_ups, duration });
                }
            }
        }
    }

    /// Takes the guard away. Returns what has to run again, if something has gone unnoticed.
    async fn end(&mut self, session: &mut Session<DB>) -> Result<Option<Vec<Call<'a, DB>>>, Broken<'a, DB>> {
        let disarmed =
            patiently(self.began, DB::disarm(session, self.attempt.outbox.sql(), &self.guard)).await;
        let after = self.attempt.after(session, &self.guard, self.began, disarmed).await;
        if let Ok(None) = after {
            self.secure();
            return Ok(None);
        }
        let mut since = std::mem::take(&mut self.since);
        let duration = since.last().map_or(Duration::ZERO, |success| success.duration);
        let mut members: Vec<_> = since.drain(..).flat_map(|success| success.members).collect();
        match after {
            Ok(error) if !members.is_empty() => {
                let mut queue = VecDeque::new();
                self.again(members, error.map(|error| (error, duration)), &mut queue);
                Ok(Some(queue.into()))
            }
            Ok(_) => Err(Broken::Lost(None)),
            Err(error) => Err(Broken::Lost(match members.pop() {
                Some(member) if self.count == 1 => Some(Failed::new(member, &error, duration).into()),
                _ => None,
            })),
        }
    }

    /// A handler took the transaction with it: the only one that ran since the savepoint, or one of several.
    fn lost(
        &mut self,
        mut members: Vec<Member<'a, DB>>,
        error: &HandlerError,
        duration: Duration,
    ) -> Broken<'a, DB> {
        let known = self.since.is_empty() && members.len() == 1;
        let culprit = members.pop().filter(|_| known);
        Broken::Lost(culprit.map(|member| Failed::new(member, error, duration).into()))
    }
}
