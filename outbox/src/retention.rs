//! How long what has been dealt with is kept.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};

const DAY: Duration = Duration::from_hours(24);

/// How long messages and inbox marks are kept; each may be off, `None`, and kept for good.
///
/// Ages are told by the database's clock. Whatever its age, a message stays as long as a consumer may still get it: it is waiting, has
/// failed, is dead and may be requeued, or a new consumer still looks through the history of its type.
///
/// ```
/// # use std::time::Duration;
/// # use outbox::{ConsumerConfig, Retention};
/// let month = Duration::from_hours(30 * 24);
/// let retention = Retention { delivered: Some(month), marks: Some(2 * month), ..Retention::default() };
/// let config = ConsumerConfig { retention, ..ConsumerConfig::default() };
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retention {
    /// Messages that all their consumers are done with, since their publish. 7 days.
    ///
    /// A consumer that starts from the `beginning` gets what is there.
    pub delivered: Option<Duration>,
    /// Messages that no consumer was subscribed to, since their publish. 90 days.
    pub unrouted: Option<Duration>,
    /// Dead messages, since they died. 90 days; then they are discarded, and what waited behind them goes on. The message itself goes
    /// when no other consumer may get it any more.
    pub dead: Option<Duration>,
    /// The marks that a consumer has handled a message, since then. 30 days.
    ///
    /// For so long a message that is published or received again under its id is no second effect. The mark of a message that is still
    /// there stays.
    pub marks: Option<Duration>,
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            delivered: Some(7 * DAY),
            unrouted: Some(90 * DAY),
            dead: Some(90 * DAY),
            marks: Some(30 * DAY),
        }
    }
}

impl Retention {
    /// Everything is kept for good.
    pub const FOREVER: Self = Self { delivered: None, unrouted: None, dead: None, marks: None };

    pub(crate) fn is_off(&self) -> bool {
        *self == Self::FOREVER
    }

    /// The age at which messages are looked at.
    pub(crate) fn messages(&self) -> Option<Duration> {
        self.delivered.or(self.unrouted)
    }

    pub(crate) fn check(&self) -> Result<()> {
        let refuse = |text: String| Err(Error::new(ErrorKind::Config, text));
        if let (Some(delivered), Some(marks)) = (self.delivered, self.marks)
            && marks <= delivered
        {
            return refuse(format!(
                "`retention.marks` is {marks:?} and `retention.delivered` {delivered:?}: a message that is published again under its \
                 id would have a second effect; keep marks for longer than delivered messages"
            ));
        }
        if let (Some(delivered), Some(unrouted)) = (self.delivered, self.unrouted)
            && unrouted < delivered
        {
            return refuse(format!(
                "`retention.unrouted` is {unrouted:?} and `retention.delivered` {delivered:?}: what nobody has got would go before what \
                 everybody has; make `unrouted` as long as `delivered` at least"
            ));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_contradicts_itself_is_refused_with_the_number_to_change() {
        let retention = Retention::default();
        retention.check().expect("the defaults fit together");
        Retention::FOREVER.check().expect("off");
        for (wrong, number) in [
            (Retention { marks: Some(7 * DAY), ..retention }, "`retention.marks` is 604800s"),
            (Retention { delivered: Some(31 * DAY), ..retention }, "keep marks for longer"),
            (Retention { unrouted: Some(6 * DAY), ..retention }, "`retention.unrouted` is 518400s"),
        ] {
            let error = wrong.check().expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Config);
            assert!(error.to_string().contains(number), "{error}");
        }
        Retention { delivered: None, ..retention }.check().expect("marks of what is there stay anyway");
        Retention { marks: None, ..retention }.check().expect("marks for good");
    }
}
