//! The policies of a handler.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::rate::Rate;
use crate::retry::Retry;

/// The policies of a handler: what `#[outbox_handler(..)]` says, or the defaults.
///
/// ```
/// # use std::time::Duration;
/// # use outbox::{HandlerOptions, Retry};
/// let options = HandlerOptions {
///     retry: Retry { max_attempts: 3, ..Retry::DEFAULT },
///     timeout: Duration::from_secs(5),
///     ..HandlerOptions::DEFAULT
/// };
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct HandlerOptions {
    /// When a failed message is tried again, and how often.
    pub retry: Retry,
    /// How long one attempt may take; then it is ended, rolled back, and counted as failed. 30 s.
    ///
    /// Of an [external](Effect::External) handler the future is dropped and nothing is rolled back: what it called may have
    /// happened.
    pub timeout: Duration,
    /// What a dead message means for the later ones of its key. They wait.
    pub on_dead: OnDead,
    /// Whether later messages of a key wait for a failed one. They do.
    pub ordered: bool,
    /// How many messages share a transaction at most. 100; it begins with 16 and grows where transactions come out full.
    ///
    /// Messages of one transaction also share what belongs to it besides the tables: `SET LOCAL`, temporary tables, `now()`,
    /// advisory locks. A handler that sets such state says 1.
    pub group: u32,
    /// How many messages a handler that takes a `Vec` gets in one call at most. 100.
    pub batch: u32,
    /// How many calls an [external](Effect::External) consumer makes at once in a process; the handler that allows the most
    /// decides. 16.
    pub concurrency: u32,
    /// How long the lanes of an [external](Effect::External) consumer are leased; the handler that wants the longest decides.
    /// 30 s.
    ///
    /// A process that lives renews its leases, so calls may take longer. What a process was at when it died is taken over when
    /// its leases have ended, so this long its keys wait.
    pub lease: Duration,
    /// What a consumer gets that was published before it was there. What nobody has got.
    ///
    /// It counts when the consumer subscribes to an event type for the first time in a database, and changes nothing later.
    pub start_from: StartFrom,
    /// How many messages the consumer handles at most in a process; the handler that allows the least decides. No limit.
    ///
    /// All executors of the process share it, and other processes do not know of it: where four run, the database sees four
    /// times as many. A tenth of a second's worth may be handled at once, so that messages can share a transaction. What has to
    /// wait stays where it is: nothing is held meanwhile, and no attempt is counted. A message that fails counts at each attempt.
    pub rate: Option<Rate>,
    /// Whether a message that was handled leaves its mark in the inbox. It does.
    ///
    /// Without marks a delivery still has its effect once: what removes it is in the handler's transaction, and is counted. What is
    /// not recognised any more is a message that arrives a second time: republished under its id when its row is gone,
    /// or brought to [`Outbox::inbox`](crate::Outbox::inbox) by somebody else. [External](Effect::External) consumers need the inbox
    /// for their claims.
    pub inbox: bool,
}

/// What a consumer gets that was published before it subscribed. What is published or committed after that it gets in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StartFrom {
    /// What no consumer was subscribed to. So it can be published before the first start of its consumer, and another consumer
    /// replays no history.
    Unrouted,
    /// Everything of its types that is still stored, in the order of each key, before anything new.
    Beginning,
    /// Nothing.
    Now,
    /// What was published since then, by the database's clock, as `created_at` of a message says; the time since the beginning of
    /// 1970, UTC. On PostgreSQL a message is published when its transaction begins.
    Since(Duration),
}

impl StartFrom {
    /// [`Since`](Self::Since) that time; the beginning of 1970 for an earlier one.
    ///
    /// ```
    /// # use std::time::{Duration, SystemTime};
    /// # use outbox::StartFrom;
    /// let last_week = StartFrom::since(SystemTime::now() - Duration::from_hours(7 * 24));
    /// ```
    #[must_use]
    pub fn since(time: SystemTime) -> Self {
        Self::Since(time.duration_since(UNIX_EPOCH).unwrap_or_default())
    }
}

/// The end of the year 9999: what all databases can compare with.
const LAST_TIME: Duration = Duration::from_secs(253_402_300_799);

/// Where a handler has its effect, and so how it is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// In the database, through its `&mut` parameter: once, in the transaction that settles the message.
    Database,
    /// Outside of it: mail, HTTP, a broker, a file. It runs in no transaction, and at least once.
    External,
    /// Nowhere that matters: it may be repeated for a neighbour's sake, so it shares transactions with others.
    None,
}

/// What becomes of a key whose message has died.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnDead {
    /// Its later messages wait until the dead one is requeued or discarded.
    Block,
    /// Its later messages go on.
    Skip,
}

impl HandlerOptions {
    /// The defaults.
    pub const DEFAULT: Self = Self {
        retry: Retry::DEFAULT,
        timeout: Duration::from_secs(30),
        on_dead: OnDead::Block,
        ordered: true,
        group: 100,
        batch: 100,
        concurrency: 16,
        lease: Duration::from_secs(30),
        start_from: StartFrom::Unrouted,
        rate: None,
        inbox: true,
    };

    /// Why the options make no sense, if they do not.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        match self {
            Self { timeout: Duration::ZERO, .. } => Some("`timeout` is 0"),
            Self { group: 0, .. } => Some("`group` is 0"),
            Self { batch: 0, .. } => Some("`batch` is 0"),
            Self { concurrency: 0, .. } => Some("`concurrency` is 0"),
            Self { lease: Duration::ZERO, .. } => Some("`lease` is 0"),
            Self { start_from: StartFrom::Since(time), .. } if *time > LAST_TIME => {
                Some("`start_from` is after the year 9999")
            }
            Self { rate: Some(rate), .. } if rate.is_nothing() => Some("`rate` lets nothing through"),
            _ => self.retry.problem(),
        }
    }
}

impl Default for HandlerOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}
