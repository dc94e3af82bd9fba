//! What goes into the statements and comes out of them.

use std::time::{Duration, SystemTime};

use crate::backend::SqlResult;
use crate::message::MessageId;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ConsumerRow {
    pub(crate) id: i16,
    pub(crate) lanes: i16,
    /// The latest of its names.
    pub(crate) name: String,
    /// The one that it was made with.
    pub(crate) first_name: String,
}

/// What became of one message at its publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PublishOutcome {
    Stored,
    /// A message of that id was there; nothing was written.
    Duplicate,
    /// The row that orders the key's publishers does not exist; nothing was written.
    NoOrderSlot,
    /// The transaction's snapshot is older than a registration; nothing was written.
    StaleSnapshot,
}

/// What [`Consuming::cancel`](super::Consuming::cancel) needs to end a statement of a transaction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Running {
    /// The session's number at the server.
    pub(crate) backend: i64,
    /// When the transaction began, where the session may serve others after it.
    pub(crate) began: i64,
}

/// A lane that was just locked.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Claimed {
    pub(crate) lane: i16,
    pub(crate) running: Running,
    /// A process may have died in this lane: how many messages are to run alone, 0 = first the next group.
    pub(crate) suspect: Option<i32>,
}

/// A consumer's lane, held by this transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Lane {
    pub(crate) consumer: i16,
    pub(crate) lane: i16,
}

/// The row of a lane.
#[derive(Debug)]
pub(crate) struct LaneRow {
    /// Who leased it last, and has not given it back.
    pub(crate) leased_by: Option<String>,
    /// Whether that is not over.
    pub(crate) leased: bool,
    /// By what this transaction is found, where it may be on another session than the one before it.
    pub(crate) running: Option<Running>,
}

/// What the inbox says of a message that may be next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    None,
    /// This consumer has handled it.
    Handled,
    /// Somebody who may be alive has claimed it before a call.
    Claimed,
    /// It was claimed so many times, and nobody has it now.
    Left(i32),
}

impl Mark {
    /// From the form in which the statements return it.
    pub(crate) fn of(code: Option<i32>) -> Self {
        match code {
            None => Self::None,
            Some(0) => Self::Handled,
            Some(attempts) if attempts > 0 => Self::Left(attempts),
            Some(_) => Self::Claimed,
        }
    }
}

/// Whether a message could be claimed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageClaim {
    /// It is ours, for this attempt.
    Owned(i32),
    /// Somebody else has it, and may be alive.
    Busy,
    /// It is handled.
    Handled,
}

/// Where a message stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Delivery { seq: i64 },
    Parked(Parked),
}

/// A parked message as it was read; its attempts are part of every statement that changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Parked {
    pub(crate) seq: i64,
    pub(crate) key_hash: i64,
    pub(crate) attempts: i32,
}

impl Place {
    pub(crate) fn seq(self) -> i64 {
        match self {
            Self::Delivery { seq } | Self::Parked(Parked { seq, .. }) => seq,
        }
    }
}

/// A message that may be next, as it was read under the lane's lock.
#[derive(Debug)]
pub(crate) struct Next {
    pub(crate) place: Place,
    /// Failures since the last requeue.
    pub(crate) attempts: i32,
    /// Failures ever.
    pub(crate) total_attempts: i32,
    /// Conflicts with other transactions that its handler has lost.
    pub(crate) conflicts: i32,
    /// It was run alone, and the end of that run was never recorded.
    pub(crate) alone: bool,
    /// It is parked behind an earlier unfinished message of its key, and was read because that one is due.
    pub(crate) waiting: bool,
    /// An earlier unfinished message of the same key is parked.
    pub(crate) blocked: bool,
    pub(crate) mark: Mark,
    /// The hash of its ordering key, which it does not take along where it is parked without an order.
    pub(crate) key_hash: Option<i64>,
    /// `None` where somebody has deleted the message's row, an error where a column holds what it never should: that
    /// is the one message's trouble, and not its lane's.
    pub(crate) message: Option<SqlResult<StoredMessage>>,
}

/// How much of a lane to read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Portion {
    /// Rows of either kind.
    pub(crate) rows: i64,
    /// Parked messages that are due, without what waits behind them.
    pub(crate) due: i64,
    /// Payload bytes of either kind; one message is read whatever its size.
    pub(crate) bytes: i64,
    /// Parked messages count once they have been due for so long.
    pub(crate) patience: Duration,
}

impl Next {
    /// The message's id, where its row is there and says one.
    pub(crate) fn id(&self) -> Option<MessageId> {
        let message = self.message.as_ref()?.as_ref().ok()?;
        MessageId::new(message.id.clone()).ok()
    }

    /// The key under which a delivery stands once it is parked.
    pub(crate) fn parked_key(&self, parking: &Parking) -> i64 {
        self.key_hash.filter(|_| parking.ordered).unwrap_or(-self.place.seq())
    }
}

/// The row of a message.
#[derive(Debug)]
pub(crate) struct StoredMessage {
    pub(crate) id: String,
    pub(crate) event_type: String,
    pub(crate) version: i32,
    pub(crate) topic: String,
    pub(crate) source: Option<String>,
    pub(crate) aggregate_id: Option<String>,
    pub(crate) key: Option<String>,
    pub(crate) payload: Vec<u8>,
    pub(crate) content_type: String,
    pub(crate) headers: Option<String>,
    pub(crate) created_at: SystemTime,
}

/// Why a parked message is not simply next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParkedState {
    /// It failed and is tried again when it is due.
    Retrying,
    /// An earlier message of its key is unfinished.
    Waiting,
    /// It gave up, and its key waits for a person.
    Dead,
    /// It gave up, and its key goes on.
    Skipped,
    /// Not due before a time that its publisher or its handler named.
    Delayed,
    /// This build has no handler for its type, or knows only older versions of it; one that has may take it.
    UnknownType,
    /// Its payload is not what its type says. It waits for a person or a deploy.
    Undecodable,
    /// It is run alone, with its attempt counted: whoever meets it like this knows that it was not survived.
    Alone,
}

impl ParkedState {
    /// The stored form; never to be renumbered.
    pub(crate) const fn code(self) -> i16 {
        match self {
            Self::Retrying => 0,
            Self::Waiting => 1,
            Self::Dead => 2,
            Self::Skipped => 3,
            Self::Delayed => 4,
            Self::UnknownType => 5,
            Self::Undecodable => 6,
            Self::Alone => 7,
        }
    }
}

/// What is written when a message is parked.
#[derive(Debug)]
pub(crate) struct Parking {
    pub(crate) state: ParkedState,
    pub(crate) attempts: i32,
    pub(crate) total_attempts: i32,
    pub(crate) conflicts: i32,
    /// Whether later messages of its key wait for it.
    pub(crate) ordered: bool,
    /// Due after this pause, by the database's clock; `None` = not by itself.
    pub(crate) pause: Option<Duration>,
    pub(crate) error: Option<String>,
}

/// A failed attempt, as it is recorded.
#[derive(Debug)]
pub(crate) struct Attempt<'a> {
    pub(crate) seq: i64,
    pub(crate) number: i32,
    pub(crate) error: &'a str,
    pub(crate) worker: &'a str,
    pub(crate) duration: Duration,
}

/// A failed attempt, as it was recorded.
#[derive(Debug)]
pub(crate) struct AttemptRow {
    pub(crate) number: i32,
    pub(crate) error: String,
    pub(crate) worker: String,
    pub(crate) duration: Duration,
    pub(crate) failed_at: SystemTime,
}

/// Which dead messages are meant: all conditions that are given.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeadFilter {
    pub(crate) consumer: Option<String>,
    pub(crate) event_type: Option<String>,
    pub(crate) message_id: Option<String>,
    pub(crate) error: Option<String>,
}

/// A dead message.
#[derive(Debug)]
pub(crate) struct DeadRow {
    pub(crate) lane: Lane,
    pub(crate) key_hash: i64,
    pub(crate) seq: i64,
    pub(crate) attempts: i32,
    pub(crate) error: Option<String>,
    pub(crate) consumer: String,
    pub(crate) message_id: Option<String>,
    pub(crate) event_type: Option<String>,
}

/// A process that consumes.
#[derive(Debug, Clone)]
pub(crate) struct Worker {
    pub(crate) id: String,
    pub(crate) host: String,
    pub(crate) pid: i64,
    pub(crate) consumers: Vec<i16>,
    /// Whether a pooler stands between it and the server.
    pub(crate) pooled: bool,
}

/// What a process says and asks while it has nothing else to do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Poll<'a> {
    pub(crate) worker: &'a Worker,
    /// Says that the worker is alive, and asks who may not be: has been silent for so long, or is of this host.
    pub(crate) beats: Option<Duration>,
    /// Asks which of the worker's consumers have something runnable.
    pub(crate) asks: bool,
}

/// The answers to a [`Poll`].
#[derive(Debug, Default)]
pub(crate) struct Polled {
    pub(crate) runnable: Vec<i16>,
    pub(crate) others: Vec<WorkerRow>,
    /// Consumers of the process that were dropped: only with a heartbeat.
    pub(crate) gone: Vec<i16>,
}

/// Another process that consumes.
#[derive(Debug)]
pub(crate) struct WorkerRow {
    pub(crate) id: String,
    pub(crate) host: String,
    pub(crate) pid: i64,
    pub(crate) silent: bool,
}
