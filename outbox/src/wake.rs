//! Waking consumers: those of this process, and by word of mouth those of others. Only ever hints: polling runs
//! underneath.
//!
//! What is done here costs a publisher a lock in memory. Everything that takes time is a task beside it, which ends
//! when nothing is left to tell.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use sqlx::Pool;
use tokio::sync::{Notify, watch};

use crate::backend::{Backend, SqlResult};
use crate::config::Config;
use crate::echo::Echoes;
use crate::session::Session;

/// Between two words to other processes, however many commits there are.
const QUIET: Duration = Duration::from_millis(10);

/// How long a word waits for one of the application's connections; then the others find out by polling.
const PATIENCE: Duration = Duration::from_secs(1);

/// Rings after commits; every listener hears the last ring at least once.
pub(crate) struct Wake<DB: Backend>(Arc<Inner<DB>>);

struct Inner<DB: Backend> {
    bell: watch::Sender<()>,
    pool: Pool<DB>,
    sql: Arc<DB::Sql>,
    config: Config,
    state: Mutex<State>,
    /// The next look at what may have been committed is sooner than it was.
    sooner: Notify,
}

#[derive(Default)]
struct State {
    /// Consumers that run in this process, once for each run.
    here: Vec<i16>,
    echoes: Echoes,
    /// A task looks after the echoes.
    echoing: bool,
    /// Who is to be told.
    tell: Option<Audience>,
    /// A task tells.
    telling: bool,
}

/// Who is to look for work, the smaller one first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Audience {
    /// Consumers that do not run in this process, which has looked for its own.
    Elsewhere,
    Everybody,
}

impl<DB: Backend> Wake<DB> {
    pub(crate) fn new(pool: Pool<DB>, sql: Arc<DB::Sql>, config: Config) -> Self {
        let bell = watch::Sender::new(());
        Self(Arc::new(Inner { bell, pool, sql, config, state: Mutex::default(), sooner: Notify::new() }))
    }

    /// Something may be runnable, for this process's consumers at least.
    pub(crate) fn ring(&self) {
        if self.0.config.controls().wake_ups {
            self.0.bell.send_replace(());
        }
    }

    pub(crate) fn listen(&self) -> watch::Receiver<()> {
        self.0.bell.subscribe()
    }

    /// Consumers run in this process for as long as what is returned lives.
    pub(crate) fn here(&self, consumers: &[i16]) -> Here<DB> {
        self.0.state().here.extend(consumers);
        Here { wake: Self(self.0.clone()), consumers: consumers.to_vec() }
    }

    /// Messages were committed.
    pub(crate) fn committed(&self) {
        self.ring();
        self.tell(Audience::Everybody);
    }

    /// A handler's messages were committed. Where all of their consumers run here too, nobody else need look.
    pub(crate) fn followed_up(&self) {
        self.ring();
        self.tell(Audience::Elsewhere);
    }

    /// Messages were written in a transaction whose commit cannot be seen: it is looked for a few times.
    pub(crate) fn written(&self) {
        let listened_to = self.0.bell.receiver_count() > 0;
        if !self.0.config.controls().wake_ups || !(listened_to || self.0.tells()) {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut state = self.0.state();
        let sooner = state.echoes.publish(Instant::now());
        if !state.echoing {
            state.echoing = true;
            runtime.spawn(Self(self.0.clone()).echo());
        } else if sooner {
            self.0.sooner.notify_one();
        }
    }

    async fn echo(self) {
        let mut running = Running { inner: &self.0, flag: Some(|state| &mut state.echoing) };
        loop {
            let next = {
                let mut state = self.0.state();
                let Some(next) = state.echoes.next() else { return running.over(&mut state) };
                next
            };
            tokio::select! {
                () = tokio::time::sleep_until(next.into()) => {
                    self.0.state().echoes.looked(Instant::now());
                    self.committed();
                }
                () = self.0.sooner.notified() => (),
            }
        }
    }

    fn tell(&self, whom: Audience) {
        if !self.0.tells() {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let mut state = self.0.state();
        state.tell = state.tell.max(Some(whom));
        if !state.telling {
            state.telling = true;
            runtime.spawn(Self(self.0.clone()).telling());
        }
    }

    async fn telling(self) {
        let mut running = Running { inner: &self.0, flag: Some(|state| &mut state.telling) };
        loop {
            let but = {
                let mut state = self.0.state();
                match state.tell.take() {
                    Some(Audience::Everybody) => Vec::new(),
                    Some(Audience::Elsewhere) => state.here.clone(),
                    None => return running.over(&mut state),
                }
            };
            if let Err(error) = self.0.tell(&but).await {
                tracing::debug!(error = %error, "other processes were not told of a commit and find it by polling");
            }
            tokio::time::sleep(QUIET).await;
        }
    }
}

impl<DB: Backend> Inner<DB> {
    fn tells(&self) -> bool {
        DB::TELLS && self.config.notify
    }

    /// On one of the application's connections, as its publishes are, and in no transaction of anybody's.
    async fn tell(&self, but: &[i16]) -> SqlResult<()> {
        let conn = tokio::time::timeout(PATIENCE, self.pool.acquire()).await;
        let mut session = Session::new(conn.map_err(|_| sqlx::Error::PoolTimedOut)??, true);
        session.enter(&self.sql).await?;
        DB::tell(&mut session, &self.sql, &self.config.tables, but).await?;
        session.leave().await
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing that can panic runs under the lock.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Which consumers run in this process.
pub(crate) struct Here<DB: Backend> {
    wake: Wake<DB>,
    consumers: Vec<i16>,
}

impl<DB: Backend> Drop for Here<DB> {
    fn drop(&mut self) {
        let mut state = self.wake.0.state();
        for consumer in &self.consumers {
            if let Some(index) = state.here.iter().position(|here| here == consumer) {
                state.here.swap_remove(index);
            }
        }
    }
}

/// A task that runs, as the state has it; one that its runtime has dropped does not.
struct Running<'a, DB: Backend> {
    inner: &'a Inner<DB>,
    flag: Option<fn(&mut State) -> &mut bool>,
}

impl<DB: Backend> Running<'_, DB> {
    /// There is nothing more to do. Under the lock of whoever saw that, so that who has something starts another.
    fn over(&mut self, state: &mut State) {
        if let Some(flag) = self.flag.take() {
            *flag(state) = false;
        }
    }
}

impl<DB: Backend> Drop for Running<'_, DB> {
    fn drop(&mut self) {
        if let Some(flag) = self.flag.take() {
            *flag(&mut self.inner.state()) = false;
        }
    }
}
