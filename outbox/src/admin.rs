//! What operators do: dead messages, paused consumers, the history of a message.

mod consumers;
mod prune;
mod removal;

use std::fmt;
use std::time::{Duration, SystemTime};

use crate::backend::{Backend, DeadFilter, DeadRow};
use crate::claim;
use crate::error::{Error, ErrorKind, Result};
use crate::faults;
use crate::message::MessageId;
use crate::publish::Outbox;

pub use self::consumers::{ConsumerInfo, WorkerInfo};
pub use self::prune::Prune;

/// How many dead messages are read at a time.
const PAGE: i64 = 500;

/// The operator's side of an outbox, made by [`Outbox::admin`].
///
/// Every change holds the lock of the lane that it changes, one short transaction a message, while delivery goes on.
#[derive(Debug, Clone)]
pub struct Admin<DB: Backend> {
    outbox: Outbox<DB>,
}

/// Which dead messages are meant: those that meet every condition given. Without a condition it is all of them.
#[derive(Debug, Clone, Default)]
pub struct Dead {
    filter: DeadFilter,
    limit: Option<u64>,
    dry_run: bool,
}

impl Dead {
    /// All dead messages.
    #[must_use]
    pub fn all() -> Self {
        Self::default()
    }

    /// Those of one consumer.
    #[must_use]
    pub fn consumer(mut self, name: impl Into<String>) -> Self {
        self.filter.consumer = Some(name.into());
        self
    }

    /// Those of one event type.
    #[must_use]
    pub fn event_type(mut self, event_type: impl Into<String>) -> Self {
        self.filter.event_type = Some(event_type.into());
        self
    }

    /// One message, for every consumer at which it is dead.
    #[must_use]
    pub fn message(mut self, id: &MessageId) -> Self {
        self.filter.message_id = Some(id.to_string());
        self
    }

    /// Those whose last error contains this text.
    #[must_use]
    pub fn error(mut self, part: impl Into<String>) -> Self {
        self.filter.error = Some(part.into());
        self
    }

    /// At most this many.
    #[must_use]
    pub fn limit(mut self, limit: u64) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Change nothing, only say what would be changed.
    #[must_use]
    pub fn dry_run(mut self) -> Self {
        self.dry_run = true;
        self
    }
}

/// A dead message of one consumer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadLetter {
    /// The consumer at which it is dead.
    pub consumer: String,
    /// The message; `None` where somebody has deleted its row.
    pub message_id: Option<String>,
    /// Its type.
    pub event_type: Option<String>,
    /// Failed attempts since it was last requeued.
    pub attempts: u32,
    /// The last error with its causes.
    pub error: Option<String>,
}

/// A failed attempt of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct FailedAttempt {
    /// Its number among all attempts of the message at this consumer, from 1; requeueing does not start it again.
    pub number: u32,
    /// The error with its causes.
    pub error: String,
    /// The process start that ran it; empty where that process was lost.
    pub worker: String,
    /// How long the handler took.
    pub duration: Duration,
    /// When it failed, by the database's clock.
    pub failed_at: SystemTime,
}

/// What an operation on dead messages did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Changed {
    /// The messages that were changed, or would be in a dry run.
    pub messages: Vec<DeadLetter>,
    /// Found dead and, when their lane was locked, not dead any more: somebody else was faster.
    pub skipped: u64,
}

impl<DB: Backend> Outbox<DB> {
    /// The operator's side.
    #[must_use]
    pub fn admin(&self) -> Admin<DB> {
        Admin { outbox: self.clone() }
    }
}

impl<DB: Backend> Admin<DB> {
    /// Dead messages, sorted by consumer and publish order.
    ///
    /// # Errors
    /// [`NotMigrated`](ErrorKind::NotMigrated), [`Unavailable`](ErrorKind::Unavailable),
    /// [`Database`](ErrorKind::Database).
    pub async fn dead(&self, which: &Dead) -> Result<Vec<DeadLetter>> {
        let mut letters = Vec::new();
        let mut rows = Rows::new(which);
        while let Some(row) = rows.next(self).await? {
            rows.count();
            letters.push(row.into());
        }
        Ok(letters)
    }

    /// Makes dead messages due at once: attempts start again, the last error and the history stay, and what waited
    /// behind them follows in order. Only what is dead moves. Where a consumer has gone on behind it, what has failed there meanwhile waits
    /// for it again, and is due right after, whatever its pause.
    ///
    /// # Errors
    /// As [`dead`](Self::dead). Messages before the error have been requeued.
    pub async fn requeue(&self, which: &Dead) -> Result<Changed> {
        let changed = self.change(which, Change::Requeue).await?;
        self.outbox.wake().committed();
        Ok(changed)
    }

    /// Removes dead messages from their consumer for good; what waited behind them goes on.
    ///
    /// # Errors
    /// As [`requeue`](Self::requeue).
    pub async fn discard(&self, which: &Dead) -> Result<Changed> {
        let changed = self.change(which, Change::Discard).await?;
        self.outbox.wake().committed();
        Ok(changed)
    }

    /// Stops the handling of a consumer in all processes; what is being handled is finished, and publishing goes on.
    ///
    /// # Errors
    /// [`NotFound`](ErrorKind::NotFound) for a name that no process has registered; otherwise as
    /// [`dead`](Self::dead).
    pub async fn pause(&self, consumer: &str) -> Result<()> {
        self.set_paused(consumer, true).await
    }

    /// Lets a paused consumer go on.
    ///
    /// # Errors
    /// As [`pause`](Self::pause).
    pub async fn resume(&self, consumer: &str) -> Result<()> {
        self.set_paused(consumer, false).await?;
        self.outbox.wake().committed();
        Ok(())
    }

    /// The recorded failures of a message at a consumer, oldest first: the latest twenty.
    ///
    /// # Errors
    /// As [`dead`](Self::dead).
    pub async fn attempts(&self, message: &MessageId, consumer: &str) -> Result<Vec<FailedAttempt>> {
        let failed = |error| Error::database(DB::kind(&error), "read the attempts of a message", error);
        let mut conn = self.outbox.reader().await.map_err(failed)?;
        let rows =
            DB::attempts(&mut conn, self.outbox.sql(), message.as_str(), consumer).await.map_err(failed)?;
        let attempts = rows.into_iter().map(|row| FailedAttempt {
            number: u32::try_from(row.number).unwrap_or(0),
            error: row.error,
            worker: row.worker,
            duration: row.duration,
            failed_at: row.failed_at,
        });
        Ok(attempts.collect())
    }

    async fn set_paused(&self, consumer: &str, paused: bool) -> Result<()> {
        let failed = |error| Error::database(DB::kind(&error), "pause or resume a consumer", error);
        let mut tx = self.outbox.begin_with(DB::begin_operation()).await?;
        let changed = DB::set_paused(&mut tx, self.outbox.sql(), consumer, paused).await.map_err(failed)?;
        if changed == 0 {
            return Err(Error::new(
                ErrorKind::NotFound,
                format!(
                    "there is no consumer `{consumer}` in this database; it is registered when it first runs"
                ),
            ));
        }
        tx.commit().await.map(drop)
    }

    async fn change(&self, which: &Dead, change: Change) -> Result<Changed> {
        let mut changed = Changed::default();
        let mut rows = Rows::new(which);
        while let Some(row) = rows.next(self).await? {
            if which.dry_run || self.change_one(&row, change).await? {
                rows.count();
                changed.messages.push(row.into());
            } else {
                changed.skipped += 1;
            }
        }
        Ok(changed)
    }

    /// One message under its lane's lock, in a transaction of its own.
    async fn change_one(&self, row: &DeadRow, change: Change) -> Result<bool> {
        let failed = |error| Error::database(DB::kind(&error), format!("{change} a message"), error);
        let sql = self.outbox.sql();
        let mut tx = self.outbox.begin_with(DB::begin_operation()).await?;
        claim::lock(&self.outbox, &mut tx, row.lane).await?;
        faults::point("operator locked");
        let count = match change {
            Change::Requeue => DB::requeue(&mut tx, sql, row.lane, row.key_hash, row.seq).await,
            Change::Discard => DB::discard(&mut tx, sql, row.lane, row.key_hash, row.seq).await,
        };
        if count.map_err(failed)? == 0 {
            return Ok(false);
        }
        if matches!(change, Change::Discard) {
            DB::wake_next(&mut tx, sql, row.lane, row.key_hash).await.map_err(failed)?;
        }
        faults::point("operator changed");
        tx.commit().await?;
        faults::point("operator committed");
        Ok(true)
    }
}

/// The dead messages that are meant, a page at a time, until enough of them counted.
struct Rows<'a> {
    which: &'a Dead,
    left: u64,
    behind: (i16, i64),
    page: std::vec::IntoIter<DeadRow>,
}

impl<'a> Rows<'a> {
    fn new(which: &'a Dead) -> Self {
        let left = which.limit.unwrap_or(u64::MAX);
        Self { which, left, behind: (i16::MIN, i64::MIN), page: Vec::new().into_iter() }
    }

    async fn next<DB: Backend>(&mut self, admin: &Admin<DB>) -> Result<Option<DeadRow>> {
        if self.left == 0 {
            return Ok(None);
        }
        if self.page.as_slice().is_empty() {
            let failed = |error| Error::database(DB::kind(&error), "look for dead messages", error);
            let mut conn = admin.outbox.reader().await.map_err(failed)?;
            let page = DB::dead(&mut conn, admin.outbox.sql(), &self.which.filter, self.behind, PAGE).await;
            self.page = page.map_err(failed)?.into_iter();
        }
        let row = self.page.next();
        if let Some(row) = &row {
            self.behind = (row.lane.consumer, row.seq);
        }
        Ok(row)
    }

    /// The last one was one of the limit.
    fn count(&mut self) {
        self.left -= 1;
    }
}

#[derive(Debug, Clone, Copy)]
enum Change {
    Requeue,
    Discard,
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Requeue => "requeue",
            Self::Discard => "discard",
        })
    }
}

impl From<DeadRow> for DeadLetter {
    fn from(row: DeadRow) -> Self {
        Self {
            consumer: row.consumer,
            message_id: row.message_id,
            event_type: row.event_type,
            attempts: u32::try_from(row.attempts).unwrap_or(0),
            error: row.error,
        }
    }
}
