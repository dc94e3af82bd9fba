//! Publishing: an [`Outbox`] writes messages in your own transaction.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};

use sqlx::{Pool, Transaction};
use sqlx_core::transaction::TransactionManager as _;

use crate::backend::{Backend, PublishOutcome, SqlResult};
use crate::codec::Codecs;
use crate::config::Config;
use crate::draft::{Draft, Outgoing};
use crate::error::{Error, ErrorKind, Result};
use crate::event::OutboxEvent;
use crate::export::Export;
use crate::finish::Finish;
use crate::message::{Message, MessageId};
use crate::notice::{Notice, Notices, Notifier};
use crate::session::Session;
use crate::wake::Wake;

/// A boxed future that can be sent between threads.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// An outbox: the tables in one database, reached through the application's pool. Cheap to clone.
///
/// ```
/// # use outbox::{Draft, Outbox};
/// # async fn example(pool: sqlx::SqlitePool) -> Result<(), Box<dyn std::error::Error>> {
/// let outbox = Outbox::new(pool);
/// outbox.migrate().await?;
///
/// let mut tx = outbox.begin().await?;
/// sqlx::query("update orders set paid = 1 where id = 7").execute(&mut *tx).await?;
/// outbox.publish(&mut tx, Draft::new("order.paid", r#"{"order_id":7}"#).aggregate_id("7")).await?;
/// tx.commit().await?; // the order is paid and the message exists, or neither
/// # Ok(()) }
/// ```
pub struct Outbox<DB: Backend>(Arc<Shared<DB>>);

struct Shared<DB: Backend> {
    pool: Pool<DB>,
    sql: Arc<DB::Sql>,
    config: Config,
    codecs: Codecs,
    wake: Wake<DB>,
    notifier: Notifier,
}

/// What became of a publish.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Published {
    /// The message is stored, and will exist once the transaction commits.
    Stored(MessageId),
    /// A message of this id exists already; nothing was written, and it will be delivered once.
    Duplicate(MessageId),
    /// The message is checked and encoded, and is written right before the commit.
    Buffered(MessageId),
}

impl Published {
    /// The message's id, whatever became of it.
    #[must_use]
    pub fn id(&self) -> &MessageId {
        match self {
            Self::Stored(id) | Self::Duplicate(id) | Self::Buffered(id) => id,
        }
    }
}

impl<DB: Backend> Outbox<DB> {
    /// An outbox with default settings. Connects to nothing yet.
    #[must_use]
    pub fn new(pool: Pool<DB>) -> Self {
        Self::with_config(pool, Config::default())
    }

    /// An outbox with settings of one's own.
    #[must_use]
    pub fn with_config(pool: Pool<DB>, config: Config) -> Self {
        let options = pool.connect_options();
        let (codecs, sql) = (config.codecs(), Arc::new(DB::render(&config.tables, &DB::names_of(&options))));
        DB::adapt(&sql, &options);
        Self(Arc::new(Shared {
            wake: Wake::new(pool.clone(), sql.clone(), config.clone()),
            sql,
            pool,
            config,
            codecs,
            notifier: Notifier::new(),
        }))
    }

    /// The application's pool.
    #[must_use]
    pub fn pool(&self) -> &Pool<DB> {
        &self.0.pool
    }

    /// The settings.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.0.config
    }

    /// Listens to what happens in this process, from now on.
    ///
    /// This is for what may be lost: metrics, a cache, a page that somebody looks at. It is fast, it is told after the
    /// commit, and it ends with the process; what must happen is done by a handler.
    ///
    /// ```
    /// # use outbox::{Notice, Outbox};
    /// # fn example(outbox: &Outbox<sqlx::Sqlite>) {
    /// # fn refresh(order: Option<&str>) {}
    /// let mut notices = outbox.notices();
    /// tokio::spawn(async move {
    ///     while let Some(notice) = notices.next().await {
    ///         if let Notice::Stored { messages } = notice {
    ///             for message in messages.iter().filter(|message| message.event_type == "order.paid") {
    ///                 refresh(message.aggregate_id.as_deref());
    ///             }
    ///         }
    ///     }
    /// });
    /// # }
    /// ```
    #[must_use]
    pub fn notices(&self) -> Notices {
        self.0.notifier.listen()
    }

    pub(crate) fn notify(&self, notice: impl FnOnce() -> Notice) {
        self.0.notifier.notify(notice);
    }

    /// One of the application's connections, to read something. What was [begun](Session::enter) ends with the session.
    pub(crate) async fn reader(&self) -> SqlResult<Session<DB>> {
        let outbox = self.clone();
        Finish::new(async move {
            let mut session = outbox.session().await?;
            session.enter(outbox.sql()).await?;
            Ok(session)
        })
        .await
    }

    /// One of the application's connections, outside of transactions.
    pub(crate) async fn session(&self) -> SqlResult<Session<DB>> {
        Ok(Session::new(self.pool().acquire().await?, true))
    }

    pub(crate) fn sql(&self) -> &DB::Sql {
        &self.0.sql
    }

    pub(crate) fn codecs(&self) -> &Codecs {
        &self.0.codecs
    }

    pub(crate) fn wake(&self) -> &Wake<DB> {
        &self.0.wake
    }

    /// Publishes an event, or a reference to one, in `target`'s transaction.
    ///
    /// On `&mut Transaction` it is written at once; on an [`OutboxTx`](crate::OutboxTx) or a handler's
    /// [`Context`](crate::Context) it is checked and encoded now and written right before the commit. The event
    /// is encoded at the call, so the future borrows the target only.
    ///
    /// Publish last: an ordered message makes later publishers of its key wait until this transaction ends.
    ///
    /// # Errors
    /// [`Encode`](ErrorKind::Encode) and [`InvalidMessage`](ErrorKind::InvalidMessage), before anything is
    /// written; [`TransactionAborted`](ErrorKind::TransactionAborted),
    /// [`StaleTransaction`](ErrorKind::StaleTransaction), [`Conflict`](ErrorKind::Conflict),
    /// [`ReadOnly`](ErrorKind::ReadOnly), [`NotMigrated`](ErrorKind::NotMigrated),
    /// [`Unavailable`](ErrorKind::Unavailable) and [`Database`](ErrorKind::Database) from the database. After
    /// any of these the transaction should be rolled back.
    pub fn publish_event<'t, T, E>(&self, target: T, event: E) -> BoxFuture<'t, Result<Published>>
    where
        T: PublishTarget<'t, DB>,
        E: OutboxEvent,
    {
        one(target.accept(self.clone(), self.encode(&event).map(|message| vec![message])))
    }

    /// Publishes many events of one Rust type: one statement, outcomes in the order given, and an empty list
    /// touches nothing.
    ///
    /// Ordered messages of one key keep their order. Every key in the list is held until the transaction ends,
    /// so publish thousands of keys in several transactions.
    ///
    /// # Errors
    /// As [`publish_event`](Self::publish_event); one refused event refuses the whole list.
    pub fn publish_events<'t, T, I>(&self, target: T, events: I) -> BoxFuture<'t, Result<Vec<Published>>>
    where
        T: PublishTarget<'t, DB>,
        I: IntoIterator<Item: OutboxEvent>,
    {
        let messages = events.into_iter().map(|event| self.encode(&event)).collect();
        target.accept(self.clone(), messages)
    }

    /// Publishes an untyped message.
    ///
    /// # Errors
    /// As [`publish_event`](Self::publish_event).
    pub fn publish<'t, T>(&self, target: T, draft: Draft) -> BoxFuture<'t, Result<Published>>
    where
        T: PublishTarget<'t, DB>,
    {
        one(target.accept(self.clone(), self.check(draft).map(|message| vec![message])))
    }

    /// Publishes on a bare connection, for code that has no `Transaction` at hand.
    ///
    /// # Errors
    /// [`NotInTransaction`](ErrorKind::NotInTransaction) when sqlx knows of no transaction on the connection;
    /// otherwise as [`publish_event`](Self::publish_event).
    pub fn publish_on<'t, E: OutboxEvent>(
        &self,
        conn: &'t mut DB::Connection,
        event: E,
    ) -> BoxFuture<'t, Result<Published>> {
        if DB::TransactionManager::get_transaction_depth(conn) > 0 {
            return self.publish_on_unchecked(conn, event);
        }
        let error = Error::new(
            ErrorKind::NotInTransaction,
            format!(
                "an event of type `{}` was published on a connection without a transaction, where it would exist \
                 whether or not your change does; begin one, or use `publish_on_unchecked` after a BEGIN of your own",
                event.meta().event_type
            ),
        );
        Box::pin(std::future::ready(Err(error)))
    }

    /// [`publish_on`](Self::publish_on) without its check: sqlx does not see a `BEGIN` that was sent as SQL.
    ///
    /// # Errors
    /// As [`publish_event`](Self::publish_event).
    pub fn publish_on_unchecked<'t, E: OutboxEvent>(
        &self,
        conn: &'t mut DB::Connection,
        event: E,
    ) -> BoxFuture<'t, Result<Published>> {
        let message = self.encode(&event);
        let outbox = self.clone();
        Box::pin(async move { Ok(outbox.store_unseen(conn, &[message?]).await?.remove(0)) })
    }

    /// A draft of an event, encoded now: to give it an id of its own, a delay, or other headers.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use outbox::{MessageId, Outbox, OutboxEvent};
    /// # async fn example<E: OutboxEvent>(outbox: &Outbox<sqlx::Sqlite>, paid: E) -> outbox::Result<()> {
    /// let mut tx = outbox.begin().await?;
    /// let draft = outbox.draft(&paid)?.id(MessageId::new("payment-311")?).deliver_after(Duration::from_secs(60));
    /// outbox.publish(&mut tx, draft).await?;
    /// tx.commit().await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Encode`](ErrorKind::Encode), and [`InvalidMessage`](ErrorKind::InvalidMessage) for its headers.
    pub fn draft<E: OutboxEvent>(&self, event: &E) -> Result<Draft> {
        Draft::of(event, self.codecs())
    }

    pub(crate) fn encode<E: OutboxEvent>(&self, event: &E) -> Result<Outgoing> {
        self.check(self.draft(event)?)
    }

    pub(crate) fn check(&self, draft: Draft) -> Result<Outgoing> {
        draft.check(self.config().max_payload, self.config().new_id)
    }

    /// A publish for another client of the same database, in whose transaction it is to be executed: as text and values, checked
    /// and encoded as by [`publish_event`](Self::publish_event). See [`Export`]. On SQLite begin that transaction as BEGIN IMMEDIATE.
    ///
    /// What the database refuses is an error of a statement; PostgreSQL says `outbox: …` in its text (22P02). Where that is a snapshot
    /// which is older than a registration, run the transaction again.
    ///
    /// ```
    /// # use outbox::{Outbox, OutboxEvent, Parameter};
    /// # struct Client;
    /// # impl Client { fn execute(&mut self, _: &str, _: &[Parameter]) -> Result<u64, outbox::Error> { Ok(1) } fn commit(self) -> Result<(), outbox::Error> { Ok(()) } }
    /// # fn example<E: OutboxEvent>(outbox: &Outbox<sqlx::Sqlite>, mut tx: Client, paid: E) -> Result<(), outbox::Error> {
    /// let publish = outbox.export_event(&paid)?;
    /// for statement in &publish.statements {
    ///     let affected = tx.execute(&statement.sql, &statement.parameters)?;
    ///     statement.check(affected)?;
    /// }
    /// tx.commit()?;
    /// outbox.wake_consumers(); // else they find it by polling
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`Encode`](ErrorKind::Encode) and [`InvalidMessage`](ErrorKind::InvalidMessage).
    pub fn export_event<E: OutboxEvent>(&self, event: &E) -> Result<Export> {
        Ok(self.export_message(self.encode(event)?))
    }

    /// [`export_event`](Self::export_event) of an untyped message.
    ///
    /// # Errors
    /// [`InvalidMessage`](ErrorKind::InvalidMessage).
    pub fn export(&self, draft: Draft) -> Result<Export> {
        Ok(self.export_message(self.check(draft)?))
    }

    fn export_message(&self, message: Outgoing) -> Export {
        let statements = DB::export(self.sql(), &message);
        Export { id: message.id, statements }
    }

    /// Lets consumers look for work, here and in other processes: after a commit that the outbox had no part in. Without it they find the
    /// work by polling.
    pub fn wake_consumers(&self) {
        self.wake().committed();
    }

    /// [`store`](Self::store) in a transaction whose commit we do not see.
    async fn store_unseen(&self, conn: &mut DB::Connection, messages: &[Outgoing]) -> Result<Vec<Published>> {
        let published = self.store(conn, messages).await?;
        if published.iter().any(|published| matches!(published, Published::Stored(_))) {
            self.wake().written();
        }
        Ok(published)
    }

    /// Writes messages in the transaction that `conn` is in.
    pub(crate) async fn store(
        &self,
        conn: &mut DB::Connection,
        messages: &[Outgoing],
    ) -> Result<Vec<Published>> {
        let outcomes = self.try_store(conn, messages).await?;
        messages
            .iter()
            .zip(outcomes)
            .map(|(message, outcome)| match outcome {
                PublishOutcome::Stored => Ok(Published::Stored(message.id.clone())),
                PublishOutcome::Duplicate => Ok(Published::Duplicate(message.id.clone())),
                PublishOutcome::NoOrderSlot => Err(Error::new(
                    ErrorKind::NotMigrated,
                    "rows that the outbox's migration wrote are missing (as after a restore of the schema alone), so \
                     publishers could not be ordered; restore them, or drop the tables and run `outbox.migrate().await`",
                )),
                PublishOutcome::StaleSnapshot => Err(Error::new(
                    ErrorKind::StaleTransaction,
                    "a consumer registered after this transaction took its snapshot, and would miss the message; \
                     roll back and run the transaction again",
                )),
            })
            .collect()
    }

    async fn try_store(
        &self,
        conn: &mut DB::Connection,
        messages: &[Outgoing],
    ) -> Result<Vec<PublishOutcome>> {
        let (sql, controls) = (self.sql(), self.config().controls());
        let stored = match messages {
            [] => return Ok(Vec::new()),
            [one] => DB::publish_one(conn, sql, one, controls).await.map(|outcome| vec![outcome]),
            many => DB::publish_many(conn, sql, many, controls).await,
        };
        stored.map_err(|error| {
            let kind = match DB::kind(&error) {
                // With one writer, a transaction that is refused at its first write began as a reader.
                ErrorKind::Conflict if DB::SINGLE_WRITER => ErrorKind::StaleTransaction,
                kind => kind,
            };
            let what = match messages {
                [one] => format!("publish an event of type `{}`", one.event_type),
                many => format!("publish {} events", many.len()),
            };
            Error::database(kind, what, error)
        })
    }
}

impl<DB: Backend> Clone for Outbox<DB> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<DB: Backend> fmt::Debug for Outbox<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox").field("database", &DB::DATABASE).field("config", self.config()).finish()
    }
}

/// Where an event can be published: `&mut sqlx::Transaction`, and `&` or `&mut` of an
/// [`OutboxTx`](crate::OutboxTx) or a handler's [`Context`](crate::Context). Sealed.
///
/// A pool or a bare connection is none of these, since the event would not be part of any change.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no transaction to publish in",
    label = "expected `&mut Transaction`, `&OutboxTx` or `&Context`",
    note = "an event is published in the transaction that makes its change: `&mut tx` of `pool.begin()` or `outbox.begin()`; \
            for a bare connection inside a transaction there is `publish_on`"
)]
#[expect(private_bounds, reason = "sealed")]
pub trait PublishTarget<'t, DB: Backend>: Accept<'t, DB> {}

/// The working half of [`PublishTarget`].
pub(crate) trait Accept<'t, DB: Backend> {
    fn accept(
        self,
        outbox: Outbox<DB>,
        messages: Result<Vec<Outgoing>>,
    ) -> BoxFuture<'t, Result<Vec<Published>>>;
}

impl<'t, DB: Backend> PublishTarget<'t, DB> for &'t mut Transaction<'_, DB> {}

impl<'t, DB: Backend> Accept<'t, DB> for &'t mut Transaction<'_, DB> {
    fn accept(
        self,
        outbox: Outbox<DB>,
        messages: Result<Vec<Outgoing>>,
    ) -> BoxFuture<'t, Result<Vec<Published>>> {
        // The connection, not the transaction: its lifetime is shorter than the transaction's own.
        let conn: &'t mut DB::Connection = self;
        Box::pin(async move { outbox.store_unseen(conn, &messages?).await })
    }
}

/// Messages that wait for the end of their transaction, in the order of their publishes.
#[derive(Debug, Default)]
pub(crate) struct Buffer {
    messages: Mutex<Vec<Outgoing>>,
    /// What they are published because of.
    cause: Option<Arc<Message>>,
}

impl Buffer {
    pub(crate) fn caused_by(cause: Option<Arc<Message>>) -> Self {
        Self { cause, ..Self::default() }
    }

    pub(crate) fn add(&self, mut message: Outgoing) -> MessageId {
        if let Some(cause) = &self.cause {
            message.link(cause);
        }
        let id = message.id.clone();
        self.lock().push(message);
        id
    }

    /// [`add`](Self::add) for the publishing methods, which share one form with targets that do write.
    pub(crate) fn accept<'t>(
        &self,
        messages: Result<Vec<Outgoing>>,
    ) -> BoxFuture<'t, Result<Vec<Published>>> {
        let add = |message| Published::Buffered(self.add(message));
        Box::pin(std::future::ready(messages.map(|messages| messages.into_iter().map(add).collect())))
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Drops what was buffered since the buffer had this length.
    pub(crate) fn truncate(&self, len: usize) {
        self.lock().truncate(len);
    }

    pub(crate) fn take(&self) -> Vec<Outgoing> {
        std::mem::take(&mut *self.lock())
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Outgoing>> {
        // Nothing that can panic runs under the lock, and a handler's panic elsewhere leaves whole messages.
        self.messages.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Makes references to what has a field `buffer` into targets. Both forms, so that `&tx` and `&mut tx` read alike; and
/// `&tx` also where `tx` is itself the `&mut` that a closure or a handler was given.
macro_rules! buffered_target {
    ($($target:ty),*) => {$(
        impl<'t, DB: Backend> crate::publish::PublishTarget<'t, DB> for $target {}

        impl<'t, DB: Backend> crate::publish::Accept<'t, DB> for $target {
            fn accept(
                self,
                _: Outbox<DB>,
                messages: crate::error::Result<Vec<crate::draft::Outgoing>>,
            ) -> crate::publish::BoxFuture<'t, crate::error::Result<Vec<crate::publish::Published>>> {
                self.buffer.accept(messages)
            }
        }
    )*};
}
pub(crate) use buffered_target;

/// The only outcome of a list of one.
fn one(many: BoxFuture<'_, Result<Vec<Published>>>) -> BoxFuture<'_, Result<Published>> {
    Box::pin(async move { many.await.map(|mut outcomes| outcomes.remove(0)) })
}
