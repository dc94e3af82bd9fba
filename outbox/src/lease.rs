//! Leases: lanes that stay this process's while no transaction is open.
//!
//! They are renewed from a thread of its own with a runtime and a connection of its own: a handler that blocks all threads of the
//! application's runtime does not lose them. The thread begins with the first lease and ends with the keeper.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::Pool;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::backend::{Backend, Lane, SqlResult};
use crate::connections::Connections;
use crate::error::{Error, ErrorKind, Result};
use crate::publish::Outbox;
use crate::session::Session;

/// A lease is renewed when so much of it is over, and a failed renewal is repeated when a tenth of that has passed.
const RENEWED_AFTER: u32 = 3;

/// Renews the leases of a process.
pub(crate) struct Keeper<DB: Backend> {
    shared: Arc<Shared>,
    outbox: Outbox<DB>,
    connections: Connections<DB>,
    /// The owner of a lease is this process's start and a number: whoever leases a lane twice is two owners.
    worker: String,
    leases: AtomicU64,
    running: AtomicBool,
}

/// What the thread and the leases have in common.
#[derive(Default)]
struct Shared {
    kept: Mutex<HashMap<String, Kept>>,
    /// Leases that ended without being given back: their owner was dropped.
    left: Mutex<Vec<(Lane, String)>>,
    changed: Notify,
    ended: AtomicBool,
}

#[derive(Clone)]
struct Kept {
    lane: Lane,
    length: Duration,
    due: Instant,
    lost: CancellationToken,
}

/// A lane that is ours until this is dropped, or lost.
pub(crate) struct Lease {
    shared: Arc<Shared>,
    owner: String,
    lane: Lane,
    lost: CancellationToken,
    /// It was given back, or it is known that another has the lane.
    over: bool,
}

impl Lease {
    /// Waits until another is known to have the lane.
    pub(crate) async fn lost(&self) {
        self.lost.cancelled().await;
    }

    /// The lane was given back, or is another's.
    pub(crate) fn ended(mut self) {
        self.over = true;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        lock(&self.shared.kept).remove(&self.owner);
        if !self.over {
            lock(&self.shared.left).push((self.lane, std::mem::take(&mut self.owner)));
        }
    }
}

impl<DB: Backend> Keeper<DB> {
    pub(crate) fn new(outbox: Outbox<DB>, connections: Connections<DB>, worker: String) -> Self {
        let (leases, running) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { shared: Arc::default(), outbox, connections, worker, leases, running }
    }

    /// The owner of the next lease.
    pub(crate) fn owner(&self) -> String {
        format!("{}/{}", self.worker, self.leases.fetch_add(1, Ordering::Relaxed))
    }

    /// Keeps a lane that was leased to the owner, for `length` from a moment after `since`.
    pub(crate) fn keep(&self, owner: String, lane: Lane, length: Duration, since: Instant) -> Result<Lease> {
        let lost = CancellationToken::new();
        let kept = Kept { lane, length, due: since + length / RENEWED_AFTER, lost: lost.clone() };
        lock(&self.shared.kept).insert(owner.clone(), kept);
        let lease = Lease { shared: self.shared.clone(), owner, lane, lost, over: false };
        if self.outbox.config().controls().renewals && !self.running.swap(true, Ordering::AcqRel) {
            self.run()?;
        }
        self.shared.changed.notify_one();
        Ok(lease)
    }

    /// Gives back what was dropped in the middle, so that nobody waits for it.
    pub(crate) async fn give_back(&self, session: &mut Session<DB>) {
        let left = std::mem::take(&mut *lock(&self.shared.left));
        for (lane, owner) in left {
            let given = async {
                session.begin(DB::begin_registration()).await?;
                DB::end_lease(session, self.outbox.sql(), lane, &owner).await?;
                session.commit().await
            };
            if let Err(error) = given.await {
                tracing::debug!(error = %error, "could not give a lane back; others take it when its lease ends");
            }
            session.rollback().await;
        }
    }

    fn run(&self) -> Result<()> {
        let failed = |cause: std::io::Error| {
            self.running.store(false, Ordering::Release);
            Error::new(ErrorKind::Unavailable, "cannot start the thread that renews leases")
                .with_source(cause)
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (shared, outbox) = (self.shared.clone(), self.outbox.clone());
        let connections = self.connections.clone();
        let renew = move || {
            runtime.block_on(async {
                let pool = connections.renewals(&outbox);
                let borrowed = connections.borrowed();
                Renewals { shared, outbox, pool: pool.clone(), borrowed }.all().await;
                if !borrowed {
                    pool.close().await;
                }
            });
        };
        std::thread::Builder::new().name("outbox-leases".to_owned()).spawn(renew).map_err(failed)?;
        Ok(())
    }
}

impl<DB: Backend> Drop for Keeper<DB> {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Release);
        self.shared.changed.notify_one();
    }
}

impl<DB: Backend> fmt::Debug for Keeper<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keeper").field("worker", &self.worker).finish_non_exhaustive()
    }
}

/// The thread's work.
struct Renewals<DB: Backend> {
    shared: Arc<Shared>,
    outbox: Outbox<DB>,
    pool: Pool<DB>,
    borrowed: bool,
}

impl<DB: Backend> Renewals<DB> {
    async fn all(self) {
        while !self.shared.ended.load(Ordering::Acquire) {
            let due = lock(&self.shared.kept).values().map(|kept| kept.due).min();
            let changed = self.shared.changed.notified();
            match due {
                Some(due) if due <= Instant::now() => self.round().await,
                Some(due) => drop(tokio::time::timeout_at(due.into(), changed).await),
                None => changed.await,
            }
        }
    }

    async fn round(&self) {
        let now = Instant::now();
        let due: Vec<_> = {
            let kept = lock(&self.shared.kept);
            kept.iter().filter(|(_, kept)| kept.due <= now).map(|(o, k)| (o.clone(), k.clone())).collect()
        };
        for (owner, kept) in due {
            let (since, pause) = (Instant::now(), kept.length / RENEWED_AFTER);
            // One that is stuck must not keep the others waiting for longer.
            let renewed = tokio::time::timeout(pause, self.renew(&owner, &kept)).await;
            let next = match renewed {
                Ok(Ok(1..)) => since + pause,
                Ok(Ok(0)) => {
                    kept.lost.cancel();
                    lock(&self.shared.kept).remove(&owner);
                    continue;
                }
                Ok(Err(error)) => {
                    tracing::warn!(error = %error, "could not renew a lease, and keeps trying");
                    Instant::now() + pause / 10
                }
                Err(_) => {
                    tracing::warn!("the renewal of a lease is not answered, and is repeated");
                    Instant::now() + pause / 10
                }
            };
            if let Some(kept) = lock(&self.shared.kept).get_mut(&owner) {
                kept.due = next;
            }
        }
    }

    /// On a new connection after every failure, which may reach a server that works.
    async fn renew(&self, owner: &str, kept: &Kept) -> SqlResult<u64> {
        let mut session = Renewing(Some(Session::new(self.pool.acquire().await?, self.borrowed)));
        let (entered, sql) = (session.get(), self.outbox.sql());
        entered.enter(sql).await?;
        let renewed = DB::renew_lease(entered, sql, kept.lane, owner, kept.length).await?;
        entered.leave().await?;
        session.well();
        Ok(renewed)
    }
}

/// A session that is closed unless all went well.
struct Renewing<DB: Backend>(Option<Session<DB>>);

impl<DB: Backend> Renewing<DB> {
    fn get(&mut self) -> &mut Session<DB> {
        self.0.as_mut().expect("it is taken by `well` and by the drop only")
    }

    fn well(mut self) {
        drop(self.0.take());
    }
}

impl<DB: Backend> Drop for Renewing<DB> {
    fn drop(&mut self) {
        if let Some(session) = &mut self.0 {
            session.close_own();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
