//! Executors: the tasks that claim and dispatch, and what they do when the database is away.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::stream::FuturesUnordered;
use futures_util::{FutureExt as _, StreamExt as _};
use tokio::sync::OwnedSemaphorePermit;

use crate::alive;
use crate::backend::{Backend, Worker};
use crate::claim::Turn;
use crate::dispatch::Dispatch;
use crate::error::{Error, ErrorKind, Result};
use crate::lease::Keeper;
use crate::pace::Pace;
use crate::ready::Ready;
use crate::select::Consumer;
use crate::session::{Session, panic_text};
use crate::trip::Trip;
use crate::trouble::Trouble;

/// A process's consumers at work. Shared by its executors and its poll.
pub(crate) struct Engine<DB: Backend> {
    pub(crate) dispatch: Dispatch<DB>,
    pub(crate) keeper: Keeper<DB>,
    pub(crate) consumers: Vec<Consumer<DB>>,
    pub(crate) worker: Worker,
    pub(crate) ready: Ready,
}

impl<DB: Backend> Engine<DB> {
    pub(crate) fn new(
        dispatch: Dispatch<DB>,
        keeper: Keeper<DB>,
        consumers: Vec<Consumer<DB>>,
        worker: Worker,
    ) -> Self {
        let of = |consumer: &Consumer<DB>| (consumer.registered.is_external(), consumer.limit.clone());
        let ready = Ready::new(consumers.iter().map(of));
        Self { dispatch, keeper, consumers, worker, ready }
    }

    /// Works until the engine stops; finishes what it has begun.
    pub(crate) async fn execute(self: Arc<Self>) {
        let mut slot = Slot::new(&self);
        let mut trouble = Trouble::new("executor");
        while let Some(consumer) = self.dispatch.stop.run_until_cancelled(self.ready.wait()).await {
            match slot.step(consumer).await {
                Ok(true) => {
                    trouble.over();
                    // Once more: whoever looked in the meantime has passed over the lane that was held here.
                    self.ready.mark(consumer);
                }
                Ok(false) => trouble.over(),
                Err(error) => {
                    let pause = trouble.met(&error);
                    self.dispatch.stop.run_until_cancelled(tokio::time::sleep(pause)).await;
                    self.ready.mark(consumer);
                }
            }
        }
    }

    /// Works for a consumer whose calls are made outside of transactions, until the engine stops; ends what it has begun. While
    /// calls are waited for, other lanes are leased, as long as there are calls left to make.
    pub(crate) async fn carry(self: Arc<Self>, consumer: usize) {
        let (engine, stop) = (&*self, &self.dispatch.stop);
        let mut trips = FuturesUnordered::new();
        let mut trouble = Trouble::new("external consumer");
        let mut rest = Instant::now();
        loop {
            let next = async {
                tokio::time::sleep_until(rest.into()).await;
                engine.ready.marked(consumer).await;
                engine.consumers[consumer].limit.free().await;
                engine.consumers[consumer].permit().await
            };
            tokio::select! {
                biased;
                Some(ended) = trips.next(), if !trips.is_empty() => match ended {
                    Ok(true) => {
                        trouble.over();
                        engine.ready.mark(consumer);
                    }
                    Ok(false) => trouble.over(),
                    Err(error) => {
                        rest = Instant::now() + trouble.met(&error);
                        engine.ready.mark(consumer);
                    }
                },
                () = stop.cancelled() => break,
                permit = next => {
                    engine.ready.unmark(consumer);
                    trips.push(engine.trip(consumer, permit, Duration::MAX));
                }
            }
        }
        while trips.next().await.is_some() {}
    }

    /// One lease of one lane; whether there was one to lease.
    async fn trip(&self, consumer: usize, permit: OwnedSemaphorePermit, patience: Duration) -> Result<bool> {
        let (dispatch, of) = (&self.dispatch, &self.consumers[consumer]);
        let ready = || self.ready.mark(consumer);
        let trip = unpanicked(Trip::run(dispatch, &self.keeper, of, permit, patience, ready)).await;
        if trip.is_err()
            && let Ok(mut session) = dispatch.connections.external().await
        {
            self.keeper.give_back(&mut session).await;
        }
        trip
    }

    /// Works until no consumer has anything runnable, or the run is over. What waits for its due time is not waited for; what its consumer's rate does
    /// not allow yet is.
    pub(crate) async fn execute_until_idle(self: Arc<Self>) -> Result<()> {
        let mut slot = Slot::new(&self);
        let mut trouble = Trouble::new("executor");
        loop {
            let (mut worked, mut limited) = (false, Duration::ZERO);
            // In turn, so that a long backlog of one keeps no other waiting.
            for consumer in 0..self.consumers.len() {
                let limit = &self.consumers[consumer].limit;
                if self.dispatch.stop.is_cancelled() || limit.is_spent() {
                    return Ok(());
                }
                let wait = limit.wait();
                if !wait.is_zero() {
                    limited = if limited.is_zero() { wait } else { limited.min(wait) };
                    continue;
                }
                match slot.step(consumer).await {
                    Ok(did) => worked |= did,
                    Err(error) if error.kind() == ErrorKind::Conflict => {
                        tokio::time::sleep(trouble.met(&error)).await;
                        worked = true;
                    }
                    Err(error) => return Err(error),
                }
            }
            if !worked && limited.is_zero() {
                return Ok(());
            } else if !worked {
                self.dispatch.stop.run_until_cancelled(tokio::time::sleep(limited)).await;
            }
        }
    }

    /// One claim for each consumer.
    pub(crate) async fn execute_once(self: Arc<Self>) -> Result<()> {
        let mut slot = Slot::new(&self);
        for consumer in 0..self.consumers.len() {
            slot.step(consumer).await?;
        }
        Ok(())
    }

    /// Ends: nobody will miss this process.
    pub(crate) async fn leave(&self) {
        if let Ok(mut session) = self.dispatch.connections.acquire().await {
            self.keeper.give_back(&mut session).await;
            alive::leave(&self.dispatch.outbox, &mut session, &self.worker).await;
        }
        self.dispatch.connections.close().await;
    }

    /// Unfinished messages, counted up to `limit`.
    pub(crate) async fn remaining(&self, limit: i64) -> Result<u64> {
        let all: Vec<i16> = self.consumers.iter().map(|consumer| consumer.row.id).collect();
        let mut session = self.dispatch.connections.acquire().await?;
        let sql = self.dispatch.outbox.sql();
        let remaining = async {
            session.enter(sql).await?;
            let remaining = DB::remaining(&mut session, sql, &all, limit).await?;
            session.leave().await?;
            Ok(remaining.unsigned_abs())
        };
        remaining.await.map_err(|error| Error::database(DB::kind(&error), "count what remains", error))
    }
}

/// A panic outside of handlers, which are caught by themselves: that of the driver, as a lost connection. The task goes on.
pub(crate) async fn unpanicked<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    AssertUnwindSafe(work).catch_unwind().await.unwrap_or_else(|panic| {
        let text = format!("a panic outside of handlers: {}", panic_text(&*panic));
        Err(Error::new(ErrorKind::Unavailable, text))
    })
}

/// An executor's connection: kept from one transaction to the next, unless it is the application's.
struct Slot<'a, DB: Backend> {
    engine: &'a Engine<DB>,
    session: Option<Session<DB>>,
    paces: Vec<Pace>,
}

impl<'a, DB: Backend> Slot<'a, DB> {
    fn new(engine: &'a Engine<DB>) -> Self {
        let paces = engine.consumers.iter().map(Consumer::pace).collect();
        Self { engine, session: None, paces }
    }

    /// One claim; whether there was something to claim.
    async fn step(&mut self, consumer: usize) -> Result<bool> {
        let dispatch = &self.engine.dispatch;
        let external = &self.engine.consumers[consumer];
        if external.registered.is_external() {
            let permit = external.permit().await;
            return self.engine.trip(consumer, permit, external.registered.lease()).await;
        }
        let mut session = match self.session.take() {
            Some(session) => session,
            None => dispatch.connections.acquire().await?,
        };
        let give_way = dispatch.outbox.config().controls().give_way;
        let turn = Turn::begin(DB::SINGLE_WRITER && give_way && !dispatch.connections.borrowed());
        let ready = || self.engine.ready.mark(consumer);
        let step =
            dispatch.step(&mut session, &self.engine.consumers[consumer], &mut self.paces[consumer], ready);
        let step = unpanicked(step).await;
        if let Err(error) = &step
            && error.kind() != ErrorKind::Conflict
            && !dispatch.connections.borrowed()
        {
            // A new connection may reach a server that works, or the one that takes writes now; and whatever was
            // wrong with the old one is not met again.
            session.close();
        }
        if session.is_open() && !dispatch.connections.borrowed() {
            self.session = Some(session);
        }
        let Some(tally) = step? else { return Ok(false) };
        dispatch.total.add(tally);
        turn.give_way().await;
        Ok(true)
    }
}
