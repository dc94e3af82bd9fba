//! Pruning by hand.

use std::time::{Duration, Instant};

use super::Admin;
use crate::backend::{Backend, Positions};
use crate::error::{Error, ErrorKind, Result};
use crate::prune::{Pruned, Pruner};
use crate::retention::Retention;

/// How many rows a batch looks at when nothing else is said.
const CHUNK: u32 = 1_000;

/// What [`Admin::prune`] is to remove, and how.
#[derive(Debug, Clone)]
pub struct Prune {
    retention: Retention,
    chunk: u32,
    dry_run: bool,
    budget: Option<Duration>,
}

impl Prune {
    /// What is older than this.
    #[must_use]
    pub fn older_than(retention: Retention) -> Self {
        Self { retention, chunk: CHUNK, dry_run: false, budget: None }
    }

    /// How many rows a transaction looks at. 1 000.
    #[must_use]
    pub fn chunk(mut self, rows: u32) -> Self {
        self.chunk = rows;
        self
    }

    /// Change nothing, only say what would be removed. Every batch is done and rolled back.
    ///
    /// What would only go because something else went before is not counted: the message of a dead one, the marks of a message.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }

    /// Begin no batch after this time.
    #[must_use]
    pub fn budget(mut self, budget: Duration) -> Self {
        self.budget = Some(budget);
        self
    }
}

impl<DB: Backend> Admin<DB> {
    /// Removes what is old and of no more use, beside everything that goes on: in short transactions, and resting after each for as
    /// long as it took.
    ///
    /// Processes that run do that by themselves, for their [`retention`](crate::ConsumerConfig::retention). This is for programs that
    /// never do, and for less than they keep; it looks at everything from the beginning.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use outbox::{Outbox, Prune, Retention};
    /// # async fn example(outbox: Outbox<sqlx::Sqlite>) -> outbox::Result<()> {
    /// let day = Duration::from_hours(24);
    /// let older = Retention { delivered: Some(day), ..Retention::default() };
    /// let pruned = outbox.admin().prune(&Prune::older_than(older).budget(Duration::from_mins(1))).await?;
    /// println!("{} messages are gone", pruned.delivered);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config): ages that contradict each other, a chunk of 0. [`Conflict`](ErrorKind::Conflict) where others
    /// were in the way again and again; otherwise as [`dead`](Self::dead). What was removed before the error is gone.
    pub async fn prune(&self, what: &Prune) -> Result<Pruned> {
        what.retention.check()?;
        if what.chunk == 0 {
            return Err(Error::new(ErrorKind::Config, "`chunk` is 0, and nothing would ever be removed"));
        }
        let mut pruner = Pruner {
            outbox: &self.outbox,
            pool: self.outbox.pool(),
            retention: &what.retention,
            chunk: i64::from(what.chunk),
            dry_run: what.dry_run,
            // One that is out of sight is none.
            until: what.budget.and_then(|budget| Instant::now().checked_add(budget)),
            holder: None,
            positions: Positions::default(),
            done: Pruned::default(),
        };
        pruner.run().await?;
        Ok(pruner.done)
    }
}
