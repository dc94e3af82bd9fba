//! The inbox by itself: each message is handled once, wherever it came from.
//!
//! Where the work is in the database, it and the mark are one transaction. Where it is not, a message is claimed before it and marked
//! as handled after it: who has claimed it is the only one at it, until the claim has gone stale; then exactly one other takes it
//! over, and from then on the first can neither finish the claim nor end it.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use uuid::Uuid;

use crate::backend::{Backend, MessageClaim};
use crate::error::{Error, ErrorKind, Result};
use crate::message::{MessageId, check_text};
use crate::names;
use crate::publish::Outbox;
use crate::transaction::OutboxTx;

/// After how long a claim is taken over that nobody has finished.
const STALE: Duration = Duration::from_mins(5);

/// How many conflicts in a row a claim may lose before its caller hears of it.
const CONFLICTS: u32 = 8;

/// The inbox of a consumer, from [`Outbox::inbox`]: for messages that do not come through this database's outbox, as those that
/// a broker or a webhook brings, and that may come twice.
///
/// ```
/// # use outbox::{Inboxed, MessageId, Outbox};
/// # async fn example(outbox: Outbox<sqlx::Sqlite>, id: MessageId) -> Result<(), Box<dyn std::error::Error>> {
/// let inbox = outbox.inbox("billing").await?;
/// let handled = inbox
///     .handle(&id, async |tx| {
///         // What this writes is committed with the mark, or neither is.
///         sqlx::query("insert into ledger (order_id) values (7)").execute(&mut **tx).await?;
///         Ok::<_, Box<dyn std::error::Error>>(())
///     })
///     .await?;
/// if let Inboxed::AlreadyProcessed = handled {
///     // Acknowledge it all the same.
/// }
/// # Ok(()) }
/// ```
pub struct Inbox<DB: Backend> {
    outbox: Outbox<DB>,
    consumer: i16,
    name: Arc<str>,
    stale_after: Duration,
}

/// What became of a message that was to be handled in a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Inboxed<R> {
    /// It was handled now, with this result.
    Processed(R),
    /// It was handled before, and nothing was done.
    AlreadyProcessed,
}

/// What became of a message that was to be claimed.
#[derive(Debug)]
pub enum Claim<DB: Backend> {
    /// It is ours.
    Owned(Claimed<DB>),
    /// Another is at it, and has it until it finishes or its claim goes stale.
    Busy,
    /// It was handled before.
    Done,
}

/// A message that is ours to handle. Dropped, it is taken over when it has gone stale.
pub struct Claimed<DB: Backend> {
    outbox: Outbox<DB>,
    consumer: i16,
    id: MessageId,
    owner: String,
    attempt: u32,
}

impl<DB: Backend> Outbox<DB> {
    /// The inbox of a consumer of this name, which may also have handlers or not. One that was renamed is found by its old names too.
    ///
    /// # Errors
    /// [`InvalidMessage`](ErrorKind::InvalidMessage) for a name that is empty or too long, and the errors of
    /// [`begin`](Self::begin) and [`OutboxTx::commit`].
    pub async fn inbox(&self, consumer: &str) -> Result<Inbox<DB>> {
        check_text("consumer's name", consumer)?;
        let mut tx = self.begin().await?;
        let locked = DB::lock_registry(&mut tx, self.sql()).await;
        locked.map_err(|error| failed::<DB>("make a consumer known", error))?;
        let row = names::resolve::<DB>(&mut tx, self.sql(), consumer, &[], DB::LANES).await?;
        tx.commit().await?;
        Ok(Inbox { outbox: self.clone(), consumer: row.id, name: consumer.into(), stale_after: STALE })
    }
}

impl<DB: Backend> Inbox<DB> {
    /// Another time after which a claim is taken over that nobody has finished, in place of 5 min. Longer than the work may take:
    /// a claim is not renewed.
    #[must_use]
    pub fn stale_after(self, stale_after: Duration) -> Self {
        Self { stale_after, ..self }
    }

    /// Does the work of a message in a transaction, unless it was done before: it and the mark are committed together.
    ///
    /// # Errors
    /// What `work` returns, and everything is rolled back; the errors of [`Outbox::begin`] and [`OutboxTx::commit`].
    /// [`Conflict`](ErrorKind::Conflict) where another has [claimed](Self::claim) the message and may be at it.
    pub async fn handle<R, E, F>(&self, id: &MessageId, work: F) -> Result<Inboxed<R>, E>
    where
        E: From<Error>,
        F: AsyncFnOnce(&mut OutboxTx<DB>) -> Result<R, E>,
    {
        let (outbox, message, owner) = (&self.outbox, (self.consumer, id.as_str()), owner());
        // Whoever handles the same message meanwhile waits here for the end of this transaction.
        let (mut tx, claimed) = self.begin(id, &owner).await?;
        match claimed {
            MessageClaim::Owned(_) => {}
            MessageClaim::Handled => {
                let _ = tx.rollback().await;
                return Ok(Inboxed::AlreadyProcessed);
            }
            MessageClaim::Busy => {
                let _ = tx.rollback().await;
                let text = format!(
                    "message `{id}` of consumer `{}` is being handled; try it again later",
                    self.name
                );
                return Err(Error::new(ErrorKind::Conflict, text).into());
            }
        }
        let done = match work(&mut tx).await {
            Ok(done) => done,
            Err(error) => {
                // The error of the work is what matters.
                let _ = tx.rollback().await;
                return Err(error);
            }
        };
        if !finish(outbox, &mut tx, message, &owner).await? {
            let text = "the work ended the transaction that it was given, so that its mark is gone; nothing more was written";
            return Err(Error::new(ErrorKind::Guard, text).into());
        }
        tx.commit().await?;
        Ok(Inboxed::Processed(done))
    }

    /// Claims a message for work that no transaction can hold: it is [completed](Claimed::complete) after that, and at least
    /// once. A claim that its owner never finished is taken over by exactly one when it has gone stale.
    ///
    /// ```
    /// # use outbox::{Claim, Inbox, MessageId};
    /// # async fn call() -> bool { true }
    /// # async fn example(inbox: Inbox<sqlx::Sqlite>, id: MessageId) -> outbox::Result<()> {
    /// match inbox.claim(&id).await? {
    ///     Claim::Owned(claimed) if call().await => drop(claimed.complete().await?),
    ///     Claim::Owned(claimed) => drop(claimed.fail().await?), // others may try
    ///     Claim::Busy => {} // it comes again
    ///     Claim::Done => {} // acknowledge it
    /// }
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// Those of [`Outbox::begin`] and [`OutboxTx::commit`].
    pub async fn claim(&self, id: &MessageId) -> Result<Claim<DB>> {
        let (outbox, owner) = (&self.outbox, owner());
        let (tx, claimed) = self.begin(id, &owner).await?;
        tx.commit().await?;
        Ok(match claimed {
            MessageClaim::Owned(attempt) => Claim::Owned(Claimed {
                outbox: outbox.clone(),
                consumer: self.consumer,
                id: id.clone(),
                owner,
                attempt: u32::try_from(attempt).unwrap_or(u32::MAX),
            }),
            MessageClaim::Busy => Claim::Busy,
            MessageClaim::Handled => Claim::Done,
        })
    }
}

impl<DB: Backend> Inbox<DB> {
    /// Begins a transaction with the claim. Where it loses a conflict with another claim of the message, nothing of the caller's has
    /// been done yet, and it begins again.
    async fn begin(&self, id: &MessageId, owner: &str) -> Result<(OutboxTx<DB>, MessageClaim)> {
        let message = (self.consumer, id.as_str());
        let mut conflicts = 0;
        loop {
            let mut tx = self.outbox.begin().await?;
            let claimed = claim(&self.outbox, &mut tx, message, owner, Some(self.stale_after), 1).await;
            match claimed {
                Ok(claimed) => return Ok((tx, claimed)),
                Err(error) if error.kind() == ErrorKind::Conflict && conflicts < CONFLICTS => {
                    let _ = tx.rollback().await;
                    let longest = Duration::from_millis(5 << conflicts);
                    tokio::time::sleep(longest.mul_f64(fastrand::f64())).await;
                    conflicts += 1;
                }
                Err(error) => return Err(error),
            }
        }
    }
}

impl<DB: Backend> Claimed<DB> {
    /// 1, and one more for each owner before that was lost.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Marks the message as handled. False where that came too late: another has taken it over, and nothing was written.
    ///
    /// # Errors
    /// Those of [`Outbox::begin`] and [`OutboxTx::commit`].
    pub async fn complete(self) -> Result<bool> {
        let mut tx = self.outbox.begin().await?;
        let ours = finish(&self.outbox, &mut tx, (self.consumer, self.id.as_str()), &self.owner).await?;
        tx.commit().await?;
        Ok(ours)
    }

    /// Gives the message back unhandled: whoever claims it next has it. False where that came too late: another has taken it over,
    /// and nothing was written.
    ///
    /// # Errors
    /// Those of [`Outbox::begin`] and [`OutboxTx::commit`].
    pub async fn fail(self) -> Result<bool> {
        let mut tx = self.outbox.begin().await?;
        let ours = end(&self.outbox, &mut tx, (self.consumer, self.id.as_str()), Some(&self.owner)).await?;
        tx.commit().await?;
        Ok(ours)
    }
}

impl<DB: Backend> Clone for Inbox<DB> {
    fn clone(&self) -> Self {
        Self { outbox: self.outbox.clone(), name: self.name.clone(), ..*self }
    }
}

impl<DB: Backend> fmt::Debug for Inbox<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut inbox = f.debug_struct("Inbox");
        inbox.field("consumer", &self.name).field("stale_after", &self.stale_after).finish_non_exhaustive()
    }
}

impl<DB: Backend> fmt::Debug for Claimed<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claimed")
            .field("id", &self.id)
            .field("attempt", &self.attempt)
            .finish_non_exhaustive()
    }
}

/// Each claim has an owner of its own.
fn owner() -> String {
    Uuid::now_v7().to_string()
}

/// Claims a message of a consumer for an attempt. `stale_after` as in [`Leasing::claim_message`](crate::backend::Leasing).
pub(crate) async fn claim<DB: Backend>(
    outbox: &Outbox<DB>,
    conn: &mut DB::Connection,
    message: (i16, &str),
    owner: &str,
    stale_after: Option<Duration>,
    attempt: i32,
) -> Result<MessageClaim> {
    let claimed = DB::claim_message(conn, outbox.sql(), message, owner, stale_after, attempt).await;
    claimed.map_err(|error| failed::<DB>("claim a message", error))
}

/// Marks a claimed message as handled; whether it was still the owner's.
pub(crate) async fn finish<DB: Backend>(
    outbox: &Outbox<DB>,
    conn: &mut DB::Connection,
    message: (i16, &str),
    owner: &str,
) -> Result<bool> {
    let finished = DB::finish_claim(conn, outbox.sql(), message, owner).await;
    Ok(finished.map_err(|error| failed::<DB>("mark a message as handled", error))? == 1)
}

/// Gives a claimed message back unhandled; whether it was still the owner's. Without an owner, one that nobody alive has.
pub(crate) async fn end<DB: Backend>(
    outbox: &Outbox<DB>,
    conn: &mut DB::Connection,
    message: (i16, &str),
    owner: Option<&str>,
) -> Result<bool> {
    let ended = DB::end_claim(conn, outbox.sql(), message, owner).await;
    Ok(ended.map_err(|error| failed::<DB>("give a message back", error))? == 1)
}

fn failed<DB: Backend>(doing: &str, error: sqlx::Error) -> Error {
    Error::database(DB::kind(&error), doing, error)
}
