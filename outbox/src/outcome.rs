//! What a handler may return, and what its failure means.

use std::fmt;
use std::time::Duration;

use crate::error::BoxError;
use crate::message::MessageId;

mod classify;
mod mark;

pub use self::classify::{
    AsItIs, ByItself, Classification, Classify, Returned, UnlessClassified, WhenClassified,
};
pub use self::mark::{Marked, ResultExt};

/// What a failed handler returns. Any error becomes one by `?`.
///
/// Deliberately not a [`std::error::Error`] itself, so that it can be made from every error;
/// [`into_error`](Self::into_error) makes one of it.
pub struct HandlerError {
    pub(crate) disposition: Disposition,
    pub(crate) source: BoxError,
}

/// What is to become of the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disposition {
    /// Tried again after the policy's pause.
    Retry,
    /// Tried again after this pause, if it is longer than the policy's.
    RetryAfter(Duration),
    /// Dead at once.
    Terminal,
    /// Put back for this long, which is no failure.
    Snooze(Duration),
    /// The payload is at fault: parked until a person or a deploy sees to it.
    Undecodable,
    /// This build is too old for the message: put back for one that is not.
    NewerVersion,
    /// The connection was lost, which is nobody's fault until it happens again and again.
    Disconnected,
}

impl HandlerError {
    /// A failure that no retry can mend: the message is dead at once.
    pub fn terminal(error: impl Into<BoxError>) -> Self {
        Self { disposition: Disposition::Terminal, source: error.into() }
    }

    /// A failure to be retried after `pause`, or after the policy's own pause where that is longer; at most the
    /// policy's `max`.
    pub fn retry_after(pause: Duration, error: impl Into<BoxError>) -> Self {
        Self { disposition: Disposition::RetryAfter(pause), source: error.into() }
    }

    /// Not now: the message comes back after `pause`, and no attempt is counted. Its key waits for it.
    #[must_use]
    pub fn snooze(pause: Duration) -> Self {
        Self { disposition: Disposition::Snooze(pause), source: "snoozed".into() }
    }

    /// The same as an error, for functions that return `anyhow::Result` or an error of their own.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use outbox::HandlerError;
    /// fn charge(status: u16) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    ///     match status {
    ///         200 => Ok(()),
    ///         _ => Err(HandlerError::http(status, None).into_error().into()),
    ///     }
    /// }
    /// ```
    #[must_use]
    pub fn into_error(self) -> Marked {
        Marked::new(self)
    }

    /// The answer of somebody that the handler called, as its status says: 408, 425, 429 and 5xx are retried, after
    /// `retry_after` where it was given; 410 and every other status are terminal.
    ///
    /// The retried ones are those of RFC 9110, sections 15.5.9 and 15.6, RFC 8470, section 5.2, and RFC 6585,
    /// section 4.
    #[must_use]
    pub fn http(status: u16, retry_after: Option<Duration>) -> Self {
        let error = format!("the answer was HTTP status {status}");
        match (status, retry_after) {
            (408 | 425 | 429 | 500..=599, Some(pause)) => Self::retry_after(pause, error),
            (408 | 425 | 429 | 500..=599, None) => error.into(),
            _ => Self::terminal(error),
        }
    }
}

impl<E: Into<BoxError>> From<E> for HandlerError {
    /// Keeps what a [`Marked`] error among its causes says; the outermost counts. Without one it is to be retried.
    fn from(error: E) -> Self {
        match error.into().downcast::<Marked>() {
            Ok(marked) => marked.into_handler_error(),
            Err(source) => Self { disposition: mark::find(&*source).unwrap_or(Disposition::Retry), source },
        }
    }
}

impl fmt::Debug for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl fmt::Display for HandlerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

/// Which messages of a batch have failed; the others have succeeded.
///
/// What the handler wrote stands, so it must have written nothing for a message that it reports here. A later message of the
/// same key cannot succeed beside a failed one: report it too, or the whole batch is taken back and run one by one.
#[derive(Debug, Default)]
pub struct BatchOutcome {
    failed: Vec<(MessageId, HandlerError)>,
}

impl BatchOutcome {
    /// All have succeeded so far.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// The message of that id has failed; of several errors for one message the first counts.
    pub fn fail(&mut self, id: &MessageId, error: impl Into<HandlerError>) {
        self.failed.push((id.clone(), error.into()));
    }

    pub(crate) fn into_failed(self) -> Vec<(MessageId, HandlerError)> {
        self.failed
    }
}

/// What a handler may return: nothing, or a result with any error; a batch handler also which messages have failed.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a handler cannot return `{Self}`",
    label = "neither `()` nor `Result<(), E>`",
    note = "`E` can be any error: `anyhow::Error`, `Box<dyn Error + Send + Sync>`, or a type that implements `std::error::Error`",
    note = "a handler of a `Vec` can return a `BatchOutcome` in place of `()`"
)]
pub trait HandlerReturn {
    /// The outcome.
    fn into_result(self) -> Result<BatchOutcome, HandlerError>;
}

impl HandlerReturn for () {
    fn into_result(self) -> Result<BatchOutcome, HandlerError> {
        Ok(BatchOutcome::new())
    }
}

impl HandlerReturn for BatchOutcome {
    fn into_result(self) -> Result<BatchOutcome, HandlerError> {
        Ok(self)
    }
}

impl<T: Succeeded, E: Into<HandlerError>> HandlerReturn for Result<T, E> {
    fn into_result(self) -> Result<BatchOutcome, HandlerError> {
        self.map(T::into_outcome).map_err(Into::into)
    }
}

/// What stands in a handler's `Ok`.
#[doc(hidden)]
#[diagnostic::on_unimplemented(
    message = "a handler cannot return a `Result` of `{Self}`",
    label = "neither `()` nor `BatchOutcome`"
)]
pub trait Succeeded {
    /// The outcome.
    fn into_outcome(self) -> BatchOutcome;
}

impl Succeeded for () {
    fn into_outcome(self) -> BatchOutcome {
        BatchOutcome::new()
    }
}

impl Succeeded for BatchOutcome {
    fn into_outcome(self) -> BatchOutcome {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_says_whether_a_retry_can_help() {
        let pause = Duration::from_secs(7);
        for status in [408, 425, 429, 500, 502, 503, 599] {
            assert_eq!(HandlerError::http(status, None).disposition, Disposition::Retry);
            assert_eq!(HandlerError::http(status, Some(pause)).disposition, Disposition::RetryAfter(pause));
        }
        for status in [200, 301, 400, 401, 404, 409, 410, 422, 600] {
            assert_eq!(HandlerError::http(status, Some(pause)).disposition, Disposition::Terminal);
        }
    }
}
