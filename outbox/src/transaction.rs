//! Transactions of the outbox's own making: publishes are buffered, and consumers wake after the commit.

use std::fmt;
use std::ops::{Deref, DerefMut};

use sqlx::{Pool, SqlSafeStr as _, SqlStr};
use sqlx_core::transaction::TransactionManager as _;

use crate::backend::{Backend, SqlResult};
use crate::draft::{Draft, Outgoing};
use crate::error::{Error, ErrorKind, Result};
use crate::event::OutboxEvent;
use crate::faults;
use crate::finish::Finish;
use crate::message::MessageId;
use crate::notice::Notice;
use crate::publish::{Buffer, Outbox, Published, buffered_target};
use crate::session::Session;

/// A transaction begun by [`Outbox::begin`].
///
/// It derefs to the connection, so queries run on `&mut *tx`. What is published on it is written right before
/// the commit, in one statement and sorted, so that transactions which publish several keys cannot deadlock on
/// each other. Dropped without a commit it rolls back.
pub struct OutboxTx<DB: Backend> {
    /// Private: whoever could reach it could commit past the buffer.
    session: Session<DB>,
    outbox: Outbox<DB>,
    buffer: Buffer,
}

impl<DB: Backend> Outbox<DB> {
    /// Begins a transaction that will write; on SQLite as `BEGIN IMMEDIATE`.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable), [`Conflict`](ErrorKind::Conflict) where another writer did not
    /// finish in time, [`ReadOnly`](ErrorKind::ReadOnly), [`Database`](ErrorKind::Database).
    pub async fn begin(&self) -> Result<OutboxTx<DB>> {
        self.begin_with(DB::begin_write()).await
    }

    pub(crate) async fn begin_with(&self, statement: SqlStr) -> Result<OutboxTx<DB>> {
        self.begin_on(self.pool(), statement).await
    }

    /// On a connection of another pool.
    pub(crate) async fn begin_on(&self, pool: &Pool<DB>, statement: SqlStr) -> Result<OutboxTx<DB>> {
        let pool = pool.clone();
        let begun = Finish::new(async move {
            let mut session = Session::new(pool.acquire().await?, true);
            match session.begin(statement.clone()).await {
                Ok(()) => {}
                // Somebody has left a transaction on the connection of which sqlx does not know, and perhaps a failed one.
                Err(error)
                    if left_open::<DB>(&error)
                        && DB::run(&mut session, "rollback".into_sql_str()).await.is_ok() =>
                {
                    session.begin(statement).await?;
                }
                Err(error) => {
                    close_if_read_only(&mut session, &error);
                    return Err(error);
                }
            }
            Ok(session)
        });
        let session =
            begun.await.map_err(|error| Error::database(DB::kind(&error), "begin a transaction", error))?;
        Ok(OutboxTx { session, outbox: self.clone(), buffer: Buffer::default() })
    }

    /// Runs `work` in a transaction: commits on `Ok`, rolls back on `Err`.
    ///
    /// ```
    /// # use outbox::{Draft, Outbox};
    /// # async fn example(outbox: Outbox<sqlx::Sqlite>) -> Result<(), Box<dyn std::error::Error>> {
    /// outbox
    ///     .transaction(async |tx| {
    ///         sqlx::query("update orders set paid = 1 where id = 7").execute(&mut **tx).await?;
    ///         tx.publish(Draft::new("order.paid", r#"{"order_id":7}"#).aggregate_id("7"))?;
    ///         Ok::<_, Box<dyn std::error::Error>>(())
    ///     })
    ///     .await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// What `work` returns, and the errors of [`begin`](Self::begin) and [`OutboxTx::commit`].
    pub async fn transaction<R, E, F>(&self, work: F) -> Result<R, E>
    where
        E: From<Error>,
        F: AsyncFnOnce(&mut OutboxTx<DB>) -> Result<R, E>,
    {
        let mut tx = self.begin().await?;
        match work(&mut tx).await {
            Ok(done) => {
                tx.commit().await?;
                Ok(done)
            }
            Err(error) => {
                // The error of the work is what matters; a rollback that fails means a connection that is gone,
                // and then the database has rolled back.
                let _ = tx.rollback().await;
                Err(error)
            }
        }
    }
}

impl<DB: Backend> OutboxTx<DB> {
    /// Publishes an event with this transaction's commit: checked and encoded now, written then.
    ///
    /// # Errors
    /// [`Encode`](ErrorKind::Encode) and [`InvalidMessage`](ErrorKind::InvalidMessage).
    pub fn publish_event<E: OutboxEvent>(&self, event: E) -> Result<MessageId> {
        Ok(self.buffer.add(self.outbox.encode(&event)?))
    }

    /// Publishes an untyped message with this transaction's commit.
    ///
    /// # Errors
    /// [`InvalidMessage`](ErrorKind::InvalidMessage).
    pub fn publish(&self, draft: Draft) -> Result<MessageId> {
        Ok(self.buffer.add(self.outbox.check(draft)?))
    }

    /// Runs `work` inside a savepoint: on `Err`, or if this future is dropped, what it wrote and what it published is dropped,
    /// and the transaction goes on.
    ///
    /// # Errors
    /// What `work` returns, and [`Database`](ErrorKind::Database) errors of the savepoint itself.
    pub async fn savepoint<R, E, F>(&mut self, work: F) -> Result<R, E>
    where
        E: From<Error>,
        F: AsyncFnOnce(&mut Self) -> Result<R, E>,
    {
        let failed = |error| Error::database(DB::kind(&error), "go on with the transaction", error);
        DB::TransactionManager::begin(&mut self.session, None).await.map_err(failed)?;
        let savepoint = Savepoint::new(self);
        let outcome = work(savepoint.tx).await;
        let ended = if outcome.is_ok() { savepoint.release().await } else { savepoint.roll_back().await };
        ended.map_err(failed)?;
        outcome
    }

    /// Writes what was published, commits, and wakes the consumers: those of this process at once; those of others are
    /// told by a task that the caller does not wait for.
    ///
    /// Returns what became of each publish, in their order.
    ///
    /// # Errors
    /// As [`Outbox::publish_event`]; nothing of the transaction exists then. An
    /// [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) says that the connection was lost in the commit itself, and leaves open whether
    /// it happened: run the work again with message ids of your own, and a second publish of one id stores nothing.
    pub async fn commit(mut self) -> Result<Vec<Published>> {
        faults::point("publishing");
        if DB::TransactionManager::get_transaction_depth(&self.session) == 0 {
            // A nested `begin` that was dropped half-way takes everything along.
            return Err(Error::new(
                ErrorKind::TransactionAborted,
                "could not commit: the transaction was rolled back before; run it again",
            ));
        }
        let messages = self.buffer.take();
        // Where that is needed, a commit that is dropped half-way takes the connection along.
        self.session.keep(DB::SAFE_TO_DROP);
        let published = match self.flush(&messages).await {
            Ok(published) => published,
            Err(error) => {
                self.session.keep(true);
                if error.kind() == ErrorKind::ReadOnly {
                    close_read_only(&mut self.session);
                }
                return Err(error);
            }
        };
        faults::point("published");
        let committed = self.session.commit().await;
        self.session.keep(true);
        if let Err(error) = committed {
            // sqlx may still count a transaction that somebody has ended.
            self.session.rollback().await;
            close_if_read_only(&mut self.session, &error);
            let kind = match DB::kind(&error) {
                ErrorKind::Unavailable => ErrorKind::OutcomeUnknown,
                kind => kind,
            };
            return Err(Error::database(kind, "commit", error));
        }
        faults::point("publish committed");
        let outcomes = messages.into_iter().zip(&published);
        let stored = outcomes.filter(|(_, published)| matches!(published, Published::Stored(_)));
        let messages: Vec<_> = stored.map(|(message, _)| message.into()).collect();
        if !messages.is_empty() {
            self.outbox.wake().committed();
            self.outbox.notify(|| Notice::Stored { messages });
        }
        Ok(published)
    }

    /// Rolls back: nothing of the transaction exists, and nothing that was published on it.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable); the database rolls back by itself then.
    pub async fn rollback(mut self) -> Result<()> {
        let rolled_back = DB::TransactionManager::rollback(&mut self.session).await;
        rolled_back.map_err(|error| Error::database(DB::kind(&error), "roll back", error))
    }

    async fn flush(&mut self, messages: &[Outgoing]) -> Result<Vec<Published>> {
        if messages.is_empty() {
            // A statement all the same: PostgreSQL answers COMMIT with success where an earlier statement has
            // failed and everything is rolled back.
            let usable = DB::assert_usable(&mut self.session).await;
            usable.map_err(|error| Error::database(DB::kind(&error), "commit", error))?;
        }
        self.outbox.store(&mut self.session, messages).await
    }
}

/// A savepoint of sqlx's own, which is rolled back where this is dropped: before the next statement on the connection.
struct Savepoint<'a, DB: Backend> {
    tx: &'a mut OutboxTx<DB>,
    depth: usize,
    /// How many messages there were before.
    published: usize,
    over: bool,
}

impl<'a, DB: Backend> Savepoint<'a, DB> {
    fn new(tx: &'a mut OutboxTx<DB>) -> Self {
        let (depth, published) =
            (DB::TransactionManager::get_transaction_depth(&tx.session), tx.buffer.len());
        Self { tx, depth, published, over: false }
    }

    async fn release(mut self) -> SqlResult<()> {
        if self.depth_now() != self.depth {
            // One inside may have been dropped, and its end is still on the way.
            DB::assert_usable(&mut self.tx.session).await?;
        }
        if self.depth_now() != self.depth {
            return Err(sqlx::Error::Protocol(
                "a savepoint was ended by somebody else than its owner".to_owned(),
            ));
        }
        DB::TransactionManager::commit(&mut self.tx.session).await?;
        self.over = true;
        Ok(())
    }

    fn depth_now(&self) -> usize {
        DB::TransactionManager::get_transaction_depth(&self.tx.session)
    }

    async fn roll_back(mut self) -> SqlResult<()> {
        self.tx.buffer.truncate(self.published);
        DB::TransactionManager::rollback(&mut self.tx.session).await?;
        self.over = true;
        Ok(())
    }
}

impl<DB: Backend> Drop for Savepoint<'_, DB> {
    fn drop(&mut self) {
        if self.over {
            return;
        }
        self.tx.buffer.truncate(self.published);
        // Once: those inside have done the same, if perhaps nobody has counted it yet.
        if self.depth_now() >= self.depth {
            DB::TransactionManager::start_rollback(&mut self.tx.session);
        }
    }
}

/// Whether a BEGIN met a transaction that is open.
fn left_open<DB: Backend>(error: &sqlx::Error) -> bool {
    matches!(DB::kind(error), ErrorKind::TransactionAborted | ErrorKind::Database)
}

/// The pool's next connection may lead to the server that takes writes now. A file is the same for all connections.
fn close_read_only<DB: Backend>(session: &mut Session<DB>) {
    if !DB::SINGLE_WRITER {
        session.close();
    }
}

fn close_if_read_only<DB: Backend>(session: &mut Session<DB>, error: &sqlx::Error) {
    if DB::kind(error) == ErrorKind::ReadOnly {
        close_read_only(session);
    }
}

/// For the helpers of tests: to look into the transaction, and to lend it to a handler.
#[cfg(feature = "testing")]
impl<DB: Backend> OutboxTx<DB> {
    pub(crate) fn outbox(&self) -> &Outbox<DB> {
        &self.outbox
    }

    /// What is written at the commit.
    pub(crate) fn buffered(&self) -> Vec<Outgoing> {
        let messages = self.buffer.take();
        for message in &messages {
            self.buffer.add(message.clone());
        }
        messages
    }

    /// The transaction as a handler works with it, and what else there is of this one.
    pub(crate) fn into_session(self) -> (Session<DB>, Rest<DB>) {
        let Self { session, outbox, buffer } = self;
        (session, Rest { outbox, buffer })
    }

    /// Puts a transaction together again, with what a handler has published.
    pub(crate) fn of_session(session: Session<DB>, rest: Rest<DB>, published: Vec<Outgoing>) -> Self {
        let Rest { outbox, buffer } = rest;
        for message in published {
            buffer.add(message);
        }
        Self { session, outbox, buffer }
    }
}

/// What there is of an [`OutboxTx`] besides its transaction.
#[cfg(feature = "testing")]
pub(crate) struct Rest<DB: Backend> {
    outbox: Outbox<DB>,
    buffer: Buffer,
}

impl<DB: Backend> Deref for OutboxTx<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        &self.session
    }
}

impl<DB: Backend> DerefMut for OutboxTx<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        &mut self.session
    }
}

impl<DB: Backend> fmt::Debug for OutboxTx<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboxTx").field("buffered", &self.buffer.len()).finish_non_exhaustive()
    }
}

buffered_target!(&'t OutboxTx<DB>, &'t mut OutboxTx<DB>, &'t &mut OutboxTx<DB>);
