//! Notices: a stream of what happens, for metrics, logs and tests of one's own.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::broadcast;

use crate::draft::Outgoing;
use crate::message::MessageId;

/// How many notices a listener may be behind before it misses some.
const CAPACITY: usize = 1_024;

/// Something that happened in this process, after the commit that made it true.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Notice {
    /// Messages were stored by an [`OutboxTx`](crate::OutboxTx) or by a handler. What is published on a foreign
    /// transaction is not noticed, since its commit cannot be seen.
    Stored {
        /// The messages.
        messages: Vec<Stored>,
    },
    /// A handler succeeded.
    Handled {
        /// The consumer.
        consumer: Arc<str>,
        /// The message.
        message_id: MessageId,
        /// Which attempt it was, from 1.
        attempt: u32,
        /// How long the handler took.
        duration: Duration,
    },
    /// A handler failed, and the message is tried again.
    AttemptFailed {
        /// The consumer.
        consumer: Arc<str>,
        /// The message.
        message_id: MessageId,
        /// Which attempt it was, from 1.
        attempt: u32,
        /// The error with its causes.
        error: String,
        /// How long the handler took.
        duration: Duration,
        /// The pause before the next attempt.
        again_in: Option<Duration>,
    },
    /// A handler put its message off, without an attempt.
    Snoozed {
        /// The consumer.
        consumer: Arc<str>,
        /// The message.
        message_id: MessageId,
        /// For how long.
        pause: Option<Duration>,
    },
    /// A message gave up.
    Dead {
        /// The consumer.
        consumer: Arc<str>,
        /// The message.
        message_id: MessageId,
        /// Which attempt was the last, from 1; 0 where none was made, since the payload could not be read.
        attempt: u32,
        /// The error with its causes.
        error: String,
        /// The ordering key whose later messages now wait.
        blocked_key: Option<String>,
    },
    /// A message was handled before, by its inbox mark, and did not run again.
    Duplicate {
        /// The consumer.
        consumer: Arc<str>,
        /// The message.
        message_id: Option<MessageId>,
    },
    /// An external consumer's lane is another worker's: this process did not renew its lease in time. What was under way is handled
    /// there, perhaps for the second time.
    LeaseLost {
        /// The consumer.
        consumer: Arc<str>,
        /// How many messages were under way.
        messages: usize,
    },
    /// No handler in this build takes the type, or this version of it; the message was put back for one that has.
    UnknownType {
        /// The consumer.
        consumer: Arc<str>,
        /// The message.
        message_id: MessageId,
        /// Its type.
        event_type: String,
    },
}

/// A message that was stored.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stored {
    /// Its id.
    pub id: MessageId,
    /// The type of its event.
    pub event_type: String,
    /// What it is about.
    pub aggregate_id: Option<String>,
}

impl From<Outgoing> for Stored {
    fn from(message: Outgoing) -> Self {
        Self { id: message.id, event_type: message.event_type, aggregate_id: message.aggregate_id }
    }
}

/// A listener to [`Notice`]s, from [`Outbox::notices`](crate::Outbox::notices) on.
#[derive(Debug)]
pub struct Notices(broadcast::Receiver<Notice>);

impl Notices {
    /// The next notice; `None` once the outbox and all its clones are gone.
    ///
    /// A listener that falls more than 1 024 notices behind misses the oldest: nothing waits for it.
    pub async fn next(&mut self) -> Option<Notice> {
        loop {
            match self.0.recv().await {
                Ok(notice) => return Some(notice),
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return None,
            }
        }
    }
}

/// Where notices are sent from.
#[derive(Debug)]
pub(crate) struct Notifier(broadcast::Sender<Notice>);

impl Notifier {
    pub(crate) fn new() -> Self {
        Self(broadcast::Sender::new(CAPACITY))
    }

    pub(crate) fn listen(&self) -> Notices {
        Notices(self.0.subscribe())
    }

    /// Made only where somebody listens.
    pub(crate) fn notify(&self, notice: impl FnOnce() -> Notice) {
        if self.0.receiver_count() > 0 {
            // The last listener may have gone in between.
            let _ = self.0.send(notice());
        }
    }
}
