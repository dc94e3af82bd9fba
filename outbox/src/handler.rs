//! Handlers: what a function may take and return, and the form in which it is registered.

use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use tokio_util::sync::CancellationToken;

use crate::backend::Backend;
use crate::codec::Codecs;
use crate::draft::{Draft, Outgoing};
use crate::error::{Error, ErrorKind, Result};
use crate::event::{DecodeEvent, OutboxEvent, TypeSet};
use crate::idempotency::IdempotencyKey;
use crate::message::{Message, MessageId};
use crate::options::{Effect, HandlerOptions};
use crate::outcome::{BatchOutcome, Disposition, HandlerError};
use crate::publish::{BoxFuture, Buffer, Outbox, buffered_target};
use crate::session::Session;

/// What a handler works with: the connection whose open transaction also holds the inbox mark, and a way to
/// publish in that transaction.
///
/// It derefs to the connection; `&mut **ctx` runs queries. `Acquire::begin` on it opens a savepoint.
pub struct Context<DB: Backend> {
    session: Session<DB>,
    outbox: Outbox<DB>,
    /// One, or those of a batch.
    messages: Vec<Metadata>,
    batched: bool,
    /// Those of a batch that could not be decoded.
    refused: Vec<(usize, HandlerError)>,
    states: States,
    shutdown: Shutdown,
    buffer: Buffer,
}

/// What a call leaves behind.
pub(crate) struct Left<DB: Backend> {
    pub(crate) session: Session<DB>,
    pub(crate) follow_ups: Vec<Outgoing>,
    pub(crate) refused: Vec<(usize, HandlerError)>,
}

impl<DB: Backend> Context<DB> {
    pub(crate) fn new(
        session: Session<DB>,
        outbox: Outbox<DB>,
        messages: Vec<Metadata>,
        batched: bool,
        states: States,
        shutdown: Shutdown,
    ) -> Self {
        // A batch is many causes.
        let cause = if batched { None } else { messages.first().map(|metadata| metadata.message.clone()) };
        let buffer = Buffer::caused_by(cause);
        Self { session, outbox, messages, batched, refused: Vec::new(), states, shutdown, buffer }
    }

    pub(crate) fn into_parts(self) -> Left<DB> {
        Left { follow_ups: self.buffer.take(), session: self.session, refused: self.refused }
    }

    /// Publishes an event with this handler's commit. If the handler fails, so it never existed.
    ///
    /// What is published on a context, in any way, is linked to the message that is handled by its [headers](crate::Headers). The
    /// handler of a batch says of which member: `ctx.publish(ctx.draft(&event)?.caused_by(&envelope.metadata))`. What it
    /// publishes otherwise has no cause.
    ///
    /// # Errors
    /// [`Encode`](crate::ErrorKind::Encode) and [`InvalidMessage`](crate::ErrorKind::InvalidMessage).
    pub fn publish_event<E: OutboxEvent>(&self, event: E) -> Result<MessageId> {
        Ok(self.buffer.add(self.outbox.encode(&event)?))
    }

    /// Publishes an untyped message with this handler's commit.
    ///
    /// # Errors
    /// [`InvalidMessage`](crate::ErrorKind::InvalidMessage).
    pub fn publish(&self, draft: Draft) -> Result<MessageId> {
        Ok(self.buffer.add(self.outbox.check(draft)?))
    }

    /// A draft of an event, as [`Outbox::draft`].
    ///
    /// # Errors
    /// [`Encode`](crate::ErrorKind::Encode), and [`InvalidMessage`](crate::ErrorKind::InvalidMessage) for its headers.
    pub fn draft<E: OutboxEvent>(&self, event: &E) -> Result<Draft> {
        self.outbox.draft(event)
    }

    /// The message that is handled, and which attempt this is; of a batch the first.
    #[must_use]
    pub fn metadata(&self) -> &Metadata {
        &self.messages[0]
    }
}

impl<DB: Backend> Deref for Context<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        &self.session
    }
}

impl<DB: Backend> DerefMut for Context<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        &mut self.session
    }
}

impl<DB: Backend> fmt::Debug for Context<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("messages", &self.messages).finish_non_exhaustive()
    }
}

buffered_target!(&'t Context<DB>, &'t mut Context<DB>, &'t &mut Context<DB>);

/// The message behind an event, and the delivery that is being worked on. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Metadata {
    message: Arc<Message>,
    consumer: Arc<str>,
    /// The consumer's first name, which its keys are made from.
    keyed: Arc<str>,
    attempt: u32,
}

impl Metadata {
    /// `keyed` is the name that the consumer was made with.
    pub(crate) fn new(message: Message, consumer: Arc<str>, keyed: Arc<str>, attempt: u32) -> Self {
        Self { message: Arc::new(message), consumer, keyed, attempt }
    }

    pub(crate) fn with_attempt(&self, attempt: u32) -> Self {
        Self { attempt, ..self.clone() }
    }

    /// The consumer on whose behalf the handler runs.
    #[must_use]
    pub fn consumer(&self) -> &str {
        &self.consumer
    }

    pub(crate) fn consumer_arc(&self) -> Arc<str> {
        self.consumer.clone()
    }

    /// Which attempt this is, from 1.
    #[must_use]
    pub fn attempt(&self) -> u32 {
        self.attempt
    }
}

impl Metadata {
    /// A key to pass on to whoever is called, so that a call that is repeated counts once.
    #[must_use]
    pub fn idempotency_key(&self) -> IdempotencyKey {
        IdempotencyKey::new(&self.keyed, &self.message.id)
    }
}

impl Deref for Metadata {
    type Target = Message;

    fn deref(&self) -> &Message {
        &self.message
    }
}

/// An event together with its [`Metadata`]. It derefs to the event.
#[derive(Debug, Clone)]
pub struct Envelope<E> {
    /// The event.
    pub event: E,
    /// Its message.
    pub metadata: Metadata,
}

impl<E> Deref for Envelope<E> {
    type Target = E;

    fn deref(&self) -> &E {
        &self.event
    }
}

/// A shared value that was given to the consumers' builder with `.state(..)`. It derefs to the value.
#[derive(Debug)]
pub struct State<T: ?Sized>(Arc<T>);

impl<T: ?Sized> State<T> {
    /// A state by hand, for calling a handler in a test.
    pub fn new(value: impl Into<Arc<T>>) -> Self {
        Self(value.into())
    }
}

impl<T: ?Sized> Clone for State<T> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<T: ?Sized> Deref for State<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.0
    }
}

/// Whether this process is told to stop: for a handler that takes long, to end early where it can.
///
/// A stopping process begins nothing more and waits for its handlers, for
/// [`shutdown_grace`](crate::ConsumerConfig::shutdown_grace) at most; those that are still running then are rolled back, and
/// their messages handled later. A handler that ends early returns [`HandlerError::snooze`], which costs no attempt.
///
/// Its default is never requested, for calling a handler in a test.
#[derive(Debug, Clone, Default)]
pub struct Shutdown(CancellationToken);

impl Shutdown {
    pub(crate) fn new(stop: CancellationToken) -> Self {
        Self(stop)
    }

    /// Whether the process is told to stop.
    #[must_use]
    pub fn is_requested(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Waits until it is.
    pub async fn requested(&self) {
        self.0.cancelled().await;
    }
}

/// Shared values by type. Cheap to clone.
#[doc(hidden)]
#[derive(Clone, Default)]
pub struct States(Arc<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>);

impl States {
    pub(crate) fn insert<T: Send + Sync + 'static>(&mut self, value: T) {
        Arc::make_mut(&mut self.0).insert(TypeId::of::<T>(), Arc::new(value));
    }

    fn get<T: Send + Sync + 'static>(&self) -> Option<Arc<T>> {
        self.0.get(&TypeId::of::<T>()).and_then(|state| state.clone().downcast().ok())
    }
}

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("States").field("count", &self.0.len()).finish()
    }
}

/// The first parameter of a handler: an event, or an [`Envelope`] of one.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be the event parameter of a handler",
    label = "not an event that can be received",
    note = "the first parameter is an event, `Envelope<Event>`, or for batches `Vec<Envelope<Event>>`; the event needs `#[derive(OutboxEvent, serde::Deserialize)]`"
)]
pub trait EventParam: Sized + Send + 'static {
    /// The types that the handler gets.
    const TYPES: TypeSet;
    /// Whether it takes several messages at once.
    const BATCHED: bool = false;

    /// Reads the event of this delivery. Those of a batch that cannot be read are left out and named in `refused`.
    fn take(
        messages: &[Metadata],
        codecs: &Codecs,
        refused: &mut Vec<(usize, HandlerError)>,
    ) -> Result<Self, HandlerError>;
}

impl<E: DecodeEvent> EventParam for E {
    const TYPES: TypeSet = E::TYPES;

    fn take(
        messages: &[Metadata],
        codecs: &Codecs,
        _: &mut Vec<(usize, HandlerError)>,
    ) -> Result<Self, HandlerError> {
        E::decode(&messages[0], codecs).map_err(undecodable)
    }
}

impl<E: DecodeEvent> EventParam for Envelope<E> {
    const TYPES: TypeSet = E::TYPES;

    fn take(
        messages: &[Metadata],
        codecs: &Codecs,
        _: &mut Vec<(usize, HandlerError)>,
    ) -> Result<Self, HandlerError> {
        let metadata = messages[0].clone();
        Ok(Self { event: E::decode(&metadata, codecs).map_err(undecodable)?, metadata })
    }
}

impl<E: DecodeEvent> EventParam for Vec<Envelope<E>> {
    const TYPES: TypeSet = E::TYPES;
    const BATCHED: bool = true;

    fn take(
        messages: &[Metadata],
        codecs: &Codecs,
        refused: &mut Vec<(usize, HandlerError)>,
    ) -> Result<Self, HandlerError> {
        let mut batch = Self::with_capacity(messages.len());
        for (at, metadata) in messages.iter().enumerate() {
            match E::decode(metadata, codecs) {
                Ok(event) => batch.push(Envelope { event, metadata: metadata.clone() }),
                Err(error) => refused.push((at, undecodable(error))),
            }
        }
        if batch.is_empty() { Err("no message of the batch can be decoded".into()) } else { Ok(batch) }
    }
}

/// The `BATCHED` of the event of a handler that says `batch`.
///
/// # Panics
/// In the const evaluator, so as a compile error, if it takes no `Vec`.
#[doc(hidden)]
#[must_use]
pub const fn batched(batched: bool) -> bool {
    assert!(
        batched,
        "`batch` is for a handler that takes several messages at once\n\nhelp: its first parameter is then a \
         `Vec<Envelope<Event>>`; for how many share a transaction say `group`"
    );
    batched
}

/// The payload is at fault, or this build, and not the handler.
fn undecodable(error: Error) -> HandlerError {
    let disposition = match error.kind() {
        ErrorKind::NewerVersion => Disposition::NewerVersion,
        _ => Disposition::Undecodable,
    };
    HandlerError { disposition, source: error.into() }
}

/// Reads a handler's first parameter.
#[doc(hidden)]
pub fn take_event<P: EventParam, DB: Backend>(ctx: &mut Context<DB>) -> Result<P, HandlerError> {
    P::take(&ctx.messages, ctx.outbox.codecs(), &mut ctx.refused)
}

/// The `&mut` parameter of a handler: `Context<DB>` or the database's connection.
///
/// The database is a parameter, since a bound that has one is not checked where a handler is written: another type
/// is reported once, where the handler is registered, and not by every use of it.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`&mut {Self}` cannot be a parameter of a handler",
    label = "neither a context nor a connection of its database",
    note = "allowed are `&mut Context<DB>`, `&mut SqliteConnection`, `&mut PgConnection` and `&mut MySqlConnection`, each with its database's feature of `outbox`"
)]
pub trait MutParam<DB: Backend> {
    /// Lends the parameter.
    fn borrow(ctx: &mut Context<DB>) -> &mut Self;
}

impl<DB: Backend> MutParam<DB> for Context<DB> {
    fn borrow(ctx: &mut Self) -> &mut Self {
        ctx
    }
}

#[cfg(feature = "mysql")]
#[diagnostic::do_not_recommend]
impl MutParam<sqlx::MySql> for sqlx::MySqlConnection {
    fn borrow(ctx: &mut Context<sqlx::MySql>) -> &mut Self {
        ctx
    }
}

#[cfg(feature = "postgres")]
#[diagnostic::do_not_recommend]
impl MutParam<sqlx::Postgres> for sqlx::PgConnection {
    fn borrow(ctx: &mut Context<sqlx::Postgres>) -> &mut Self {
        ctx
    }
}

#[cfg(feature = "sqlite")]
#[diagnostic::do_not_recommend]
impl MutParam<sqlx::Sqlite> for sqlx::SqliteConnection {
    fn borrow(ctx: &mut Context<sqlx::Sqlite>) -> &mut Self {
        ctx
    }
}

/// Any other parameter of a handler, owned: [`State`], [`Metadata`], [`IdempotencyKey`] and [`Shutdown`].
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of a handler",
    label = "not an extractor",
    note = "allowed are the event first, then `State<T>`, `Metadata`, `IdempotencyKey`, `Shutdown`, and one of `&mut Context<DB>` or `&mut` of a connection"
)]
pub trait FromContext<DB: Backend>: Sized + Send {
    /// Fails, naming what is missing, where [`from_context`](Self::from_context) could not succeed.
    fn check(states: &States) -> Result<(), &'static str>;

    /// Takes the parameter.
    fn from_context(ctx: &Context<DB>) -> Result<Self, HandlerError>;
}

impl<DB: Backend> FromContext<DB> for Metadata {
    fn check(_: &States) -> Result<(), &'static str> {
        Ok(())
    }

    fn from_context(ctx: &Context<DB>) -> Result<Self, HandlerError> {
        Ok(ctx.metadata().clone())
    }
}

impl<DB: Backend> FromContext<DB> for IdempotencyKey {
    fn check(_: &States) -> Result<(), &'static str> {
        Ok(())
    }

    fn from_context(ctx: &Context<DB>) -> Result<Self, HandlerError> {
        if ctx.batched {
            return Err("a batch has no `IdempotencyKey`, since another attempt may be another batch; use that of each \
                        envelope, `envelope.metadata.idempotency_key()`"
                .into());
        }
        Ok(ctx.metadata().idempotency_key())
    }
}

impl<DB: Backend> FromContext<DB> for Shutdown {
    fn check(_: &States) -> Result<(), &'static str> {
        Ok(())
    }

    fn from_context(ctx: &Context<DB>) -> Result<Self, HandlerError> {
        Ok(ctx.shutdown.clone())
    }
}

impl<DB: Backend, T: Send + Sync + 'static> FromContext<DB> for State<T> {
    fn check(states: &States) -> Result<(), &'static str> {
        states.get::<T>().map(drop).ok_or(std::any::type_name::<T>())
    }

    fn from_context(ctx: &Context<DB>) -> Result<Self, HandlerError> {
        ctx.states.get().map(Self).ok_or_else(|| format!("no state `{}`", std::any::type_name::<T>()).into())
    }
}

/// Where a handler is written, for messages to people and for telling two copies of one apart from two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub struct Site {
    /// The module's path.
    pub module: &'static str,
    /// The file, as the compiler named it.
    pub file: &'static str,
    /// The line.
    pub line: u32,
}

impl Site {
    /// For generated code.
    #[doc(hidden)]
    #[must_use]
    pub const fn new(module: &'static str, file: &'static str, line: u32) -> Self {
        Self { module, file, line }
    }
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// The future of one call.
#[doc(hidden)]
pub type HandlerFuture<'a> = BoxFuture<'a, Result<BatchOutcome, HandlerError>>;

/// A handler as data, for one database.
#[doc(hidden)]
pub struct HandlerVTable<DB: Backend> {
    /// The function's name.
    pub name: &'static str,
    /// The consumer that it handles for.
    pub consumer: &'static str,
    /// What the consumer was called before.
    pub aliases: &'static [&'static str],
    /// The types that it takes.
    pub types: TypeSet,
    /// Whether it takes several messages at once.
    pub batched: bool,
    /// Where it has its effect.
    pub effect: Effect,
    /// Its policies.
    pub options: HandlerOptions,
    /// Where it is written.
    pub site: Site,
    /// Fails, naming the type, where a `State` is missing.
    pub check: fn(&States) -> Result<(), &'static str>,
    /// Runs it.
    pub call: for<'a> fn(&'a mut Context<DB>) -> HandlerFuture<'a>,
}

impl<DB: Backend> Clone for HandlerVTable<DB> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<DB: Backend> Copy for HandlerVTable<DB> {}

impl<DB: Backend> fmt::Debug for HandlerVTable<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerVTable")
            .field("consumer", &self.consumer)
            .field("name", &self.name)
            .field("site", &self.site)
            .finish_non_exhaustive()
    }
}

/// Implemented by `#[outbox_handler]` for the type that has the function's name.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an outbox handler for `{DB}`",
    note = "annotate the function with `#[outbox_handler]`; its `&mut` parameter decides the database"
)]
pub trait Handler<DB: Backend> {
    /// The handler as data.
    #[doc(hidden)]
    const VTABLE: HandlerVTable<DB>;
}
