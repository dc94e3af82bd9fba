//! One handler in a transaction of the test's.

use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::{Duration, SystemTime};

use tokio_util::sync::CancellationToken;

use crate::attempt::{Attempt, Began, Returned, after_handler};
use crate::backend::{Backend, Mark, Next, ParkedState, Place, Running};
use crate::codec::Codecs;
use crate::connections::Connections;
use crate::draft::Outgoing;
use crate::event::OutboxEvent;
use crate::handler::{Handler, HandlerVTable, Metadata, States};
use crate::message::Message;
use crate::outcome::HandlerError;
use crate::parked;
use crate::publish::Outbox;
use crate::session::Session;
use crate::transaction::OutboxTx;

/// One run of a handler on an event, in a transaction of the test's: no consumer is registered, nothing is stored of the
/// event, and nothing is committed.
///
/// The handler is named by its function, as in `.handler::<book_payment>()`. Its policies, its timeout and the guards
/// around it are those of production: what a failed handler wrote is taken back, and what it published is dropped.
///
/// ```
/// # #[cfg(all(feature = "sqlite", feature = "macros"))]
/// # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
/// # use outbox::testing::{TestOutbox, handle};
/// # use outbox::{Context, OutboxEvent, assert_published, outbox_handler};
/// # use sqlx::Sqlite;
/// # #[derive(serde::Serialize, serde::Deserialize, OutboxEvent)]
/// # #[outbox(type = "order.paid")]
/// # struct OrderPaid { order_id: u64 }
/// # #[derive(serde::Serialize, serde::Deserialize, OutboxEvent)]
/// # #[outbox(type = "payment.booked")]
/// # struct PaymentBooked { order_id: u64 }
/// #[outbox_handler(consumer = "billing")]
/// async fn book_payment(paid: OrderPaid, ctx: &mut Context<Sqlite>) -> outbox::Result<()> {
///     ctx.publish_event(PaymentBooked { order_id: paid.order_id })?;
///     Ok(())
/// }
///
/// # let outbox = TestOutbox::sqlite().await?;
/// let tx = outbox.begin().await?;
/// let (outcome, published, tx) = handle::<book_payment>(OrderPaid { order_id: 7 }).run(tx).await;
/// assert!(outcome.is_handled(), "{outcome:?}");
/// assert_published!(&published, PaymentBooked, |booked| booked.order_id == 7);
/// tx.rollback().await?;
/// # Ok::<(), outbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn handle<H>(event: impl OutboxEvent) -> Handle<H, impl OutboxEvent> {
    Handle { event, attempt: 1, states: States::default(), handler: PhantomData }
}

/// A run of a handler that is about to begin; see [`handle`].
#[must_use = "nothing happens without `run`"]
pub struct Handle<H, E> {
    event: E,
    attempt: u32,
    states: States,
    handler: PhantomData<fn() -> H>,
}

impl<H, E: OutboxEvent> Handle<H, E> {
    /// Which attempt it is, from 1. The first.
    pub fn attempt(self, attempt: u32) -> Self {
        Self { attempt: attempt.max(1), ..self }
    }

    /// A value that the handler takes as `State<T>`.
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.states.insert(value);
        self
    }

    /// Runs the handler, and returns what would become of the message, what the handler has published, and the
    /// transaction.
    ///
    /// What it wrote and published is in the transaction: seen by queries and by `assert_published!(&mut tx, ..)`, and
    /// there for good after a commit.
    ///
    /// # Panics
    /// Where it cannot be run: the handler does not take the event, a `State` is missing, the event cannot be published.
    /// And where it ended the transaction, which is gone then; on MySQL a handler that is cut off at its timeout does.
    pub async fn run<DB: Backend>(self, tx: OutboxTx<DB>) -> (Outcome, FollowUps, OutboxTx<DB>)
    where
        H: Handler<DB>,
    {
        let handler = H::VTABLE;
        let outbox = tx.outbox().clone();
        let metadata = self.metadata(&handler, &outbox);
        if let Err(state) = (handler.check)(&self.states) {
            panic!("the handler `{}` takes a `State<{state}>`; give it with `.state(..)`", handler.name);
        }
        let (mut session, rest) = tx.into_session();
        let next = next(self.attempt);
        let call = call(&mut session, &outbox, &handler, metadata, &self.states).await;
        let (outcome, follow_ups) = match call {
            Ok(follow_ups) => (Outcome::Handled, follow_ups),
            Err(error) => {
                let parking = parked::after_failure::<DB>(&next, &error, &handler.options);
                (Outcome::of(parking.state, parking.pause, parking.error), Vec::new())
            }
        };
        let messages = follow_ups.iter().map(as_message).collect();
        let published = FollowUps { messages, codecs: outbox.codecs().clone() };
        (outcome, published, OutboxTx::of_session(session, rest, follow_ups))
    }

    fn metadata<DB: Backend>(&self, handler: &HandlerVTable<DB>, outbox: &Outbox<DB>) -> Metadata {
        let event_type = self.event.meta().event_type;
        assert!(
            handler.types.find(event_type).is_some(),
            "the handler `{}` does not take `{event_type}`; it takes {}",
            handler.name,
            handler.types.all().iter().map(|meta| meta.event_type).collect::<Vec<_>>().join(", ")
        );
        let message = outbox.encode(&self.event).unwrap_or_else(|error| panic!("{error}"));
        Metadata::new(as_message(&message), handler.consumer.into(), handler.consumer.into(), self.attempt)
    }
}

impl<H, E> fmt::Debug for Handle<H, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("attempt", &self.attempt).finish_non_exhaustive()
    }
}

/// Runs the handler as an executor does, behind the guard; on an error everything it did is taken back.
async fn call<DB: Backend>(
    session: &mut Session<DB>,
    outbox: &Outbox<DB>,
    handler: &HandlerVTable<DB>,
    metadata: Metadata,
    states: &States,
) -> Result<Vec<Outgoing>, HandlerError> {
    let (sql, controls) = (outbox.sql(), outbox.config().controls());
    let armed = DB::arm(session, sql, false, controls).await;
    let guard = armed.unwrap_or_else(|error| panic!("the transaction cannot be used: {error}"));
    let (connections, stop) = (Connections::new(outbox, 1, None, false), CancellationToken::new());
    let attempt = Attempt {
        outbox,
        connections: &connections,
        states,
        window: Duration::ZERO,
        stop: &stop,
        // Of a statement that still runs the end is waited for.
        running: Running { backend: 0, began: 0 },
    };
    let began = Began::now(handler);
    let error = match attempt.call(session, handler, vec![metadata]).await {
        Returned::Well { follow_ups, failed } => match failed.into_iter().next() {
            Some((_, error)) => error,
            None => match DB::disarm(session, sql, &guard).await {
                Ok(()) => return Ok(follow_ups),
                Err(error) => after_handler::<DB>(error),
            },
        },
        Returned::Failed(error) => error,
        Returned::Dropped(error) if !DB::SAFE_TO_DROP => {
            // Nothing that comes on this connection can be believed any more.
            session.close();
            panic!("{error}, and a transaction on {} goes with that", DB::DATABASE);
        }
        Returned::Dropped(error) => {
            guard.interrupt();
            // It meets the answer of the statement that was interrupted; what follows is judged by the next.
            let _ = DB::undo(session, sql).await;
            guard.resume();
            error
        }
    };
    let ended = |error: HandlerError| -> ! { panic!("{error}") };
    let error = attempt.take_back(session, &guard, began, error).await.unwrap_or_else(|error| ended(error));
    if let Err(lost) = DB::disarm(session, sql, &guard).await {
        ended(after_handler::<DB>(lost));
    }
    Err(error)
}

/// A message that is met for this attempt.
fn next(attempt: u32) -> Next {
    let attempts = i32::try_from(attempt - 1).unwrap_or(i32::MAX);
    Next {
        place: Place::Delivery { seq: 0 },
        attempts,
        total_attempts: attempts,
        conflicts: 0,
        alone: false,
        waiting: false,
        blocked: false,
        mark: Mark::None,
        key_hash: None,
        message: None,
    }
}

/// A message before it is stored, as those are that were.
pub(super) fn as_message(message: &Outgoing) -> Message {
    let headers =
        message.headers.as_deref().map(|json| serde_json::from_str(json).expect("it was written here"));
    Message {
        id: message.id.clone(),
        event_type: message.event_type.clone(),
        version: message.version.unsigned_abs(),
        topic: message.topic.clone(),
        source: message.source.clone(),
        aggregate_id: message.aggregate_id.clone(),
        key: message.key.as_ref().map(|key| key.text.clone()),
        payload: message.payload.clone(),
        content_type: message.content_type.clone(),
        headers: headers.unwrap_or_default(),
        created_at: SystemTime::now(),
    }
}

/// What would become of the message after a run of its handler.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The handler succeeded.
    Handled,
    /// It failed, and would be tried again.
    Retrying {
        /// After this pause, which the policy varies at random.
        pause: Duration,
        /// The error with its causes.
        error: String,
    },
    /// The handler put it off, which counts as no attempt.
    Snoozed {
        /// For this long.
        pause: Duration,
    },
    /// It gave up: by a terminal error, by the last attempt, or since the event cannot be read.
    Dead {
        /// The error with its causes.
        error: String,
    },
    /// It would be put aside without an attempt, for a build that knows the event's version.
    Parked {
        /// Why.
        error: String,
    },
}

impl Outcome {
    fn of(state: ParkedState, pause: Option<Duration>, error: Option<String>) -> Self {
        let (pause, error) = (pause.unwrap_or_default(), error.unwrap_or_default());
        match state {
            ParkedState::Delayed => Self::Snoozed { pause },
            ParkedState::UnknownType => Self::Parked { error },
            ParkedState::Dead | ParkedState::Skipped | ParkedState::Undecodable => Self::Dead { error },
            _ => Self::Retrying { pause, error },
        }
    }

    /// Whether the handler succeeded.
    #[must_use]
    pub fn is_handled(&self) -> bool {
        *self == Self::Handled
    }

    /// The error, if there is one.
    #[must_use]
    pub fn error(&self) -> Option<&str> {
        match self {
            Self::Retrying { error, .. } | Self::Dead { error } | Self::Parked { error } => Some(error),
            Self::Handled | Self::Snoozed { .. } => None,
        }
    }
}

/// What a handler has published, in that order; nothing where it failed. It derefs to the messages, and assertions take
/// it by reference.
#[derive(Debug, Clone)]
pub struct FollowUps {
    messages: Vec<Message>,
    codecs: Codecs,
}

impl FollowUps {
    pub(super) fn messages(&self) -> &[Message] {
        &self.messages
    }

    pub(super) fn codecs(&self) -> &Codecs {
        &self.codecs
    }
}

impl Deref for FollowUps {
    type Target = [Message];

    fn deref(&self) -> &[Message] {
        &self.messages
    }
}
