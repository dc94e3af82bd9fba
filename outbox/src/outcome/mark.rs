//! What is to become of a message, said by an error that others wrap.

use std::error::Error as StdError;
use std::fmt;
use std::time::Duration;

use super::{Classify, Disposition, HandlerError};
use crate::error::BoxError;

/// An error that says what is to become of the message: a [`HandlerError`] that is an error.
///
/// It keeps its word wherever it goes: in an `anyhow::Error`, under `.context(..)`, in a `Box<dyn Error + Send + Sync>`, as
/// the `#[source]` of another error. Of several in one chain the outermost counts. Its text is that of the error that was
/// marked.
///
/// Made by [`ResultExt`] and [`HandlerError::into_error`].
pub struct Marked(Mark);

/// One layer further in, since `anyhow` hides the type of the outermost.
struct Mark {
    disposition: Disposition,
    source: BoxError,
}

impl Marked {
    pub(super) fn new(error: HandlerError) -> Self {
        Self(Mark { disposition: error.disposition, source: error.source })
    }

    pub(super) fn into_handler_error(self) -> HandlerError {
        HandlerError { disposition: self.0.disposition, source: self.0.source }
    }

    /// The error that was marked.
    #[must_use]
    pub fn inner(&self) -> &(dyn StdError + Send + Sync + 'static) {
        &*self.0.source
    }
}

/// What the outermost mark says.
pub(super) fn find(error: &(dyn StdError + 'static)) -> Option<Disposition> {
    let mut next = Some(error);
    while let Some(cause) = next {
        let mark = cause.downcast_ref::<Marked>().map(|marked| &marked.0);
        if let Some(mark) = mark.or_else(|| cause.downcast_ref()) {
            return Some(mark.disposition);
        }
        next = cause.source();
    }
    None
}

impl fmt::Debug for Marked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Display for Marked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.source.fmt(f)
    }
}

impl StdError for Marked {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&self.0)
    }
}

impl fmt::Debug for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Marked")
            .field("disposition", &self.disposition)
            .field("source", &self.source)
            .finish()
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.disposition {
            Disposition::RetryAfter(pause) => write!(f, "marked for a retry after {pause:?}"),
            Disposition::Terminal => f.write_str("marked as terminal"),
            Disposition::Snooze(pause) => write!(f, "marked as put off for {pause:?}"),
            _ => f.write_str("marked for a retry"),
        }
    }
}

impl StdError for Mark {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        Some(&*self.source)
    }
}

/// Marks errors in passing, `parse(text).or_terminal()?`, also deep inside a function that returns `anyhow::Result`.
pub trait ResultExt<T, E> {
    /// Makes an error terminal.
    ///
    /// # Errors
    /// The error, if there is one.
    fn or_terminal(self) -> Result<T, Marked>
    where
        E: Into<BoxError>;

    /// Makes an error one to be retried after `pause`.
    ///
    /// # Errors
    /// The error, if there is one.
    fn or_retry_after(self, pause: Duration) -> Result<T, Marked>
    where
        E: Into<BoxError>;

    /// Asks the error itself, where it is on its way into another one.
    ///
    /// # Errors
    /// The error, if there is one.
    fn or_classified(self) -> Result<T, Marked>
    where
        E: Classify;
}

impl<T, E> ResultExt<T, E> for Result<T, E> {
    fn or_terminal(self) -> Result<T, Marked>
    where
        E: Into<BoxError>,
    {
        self.map_err(|error| HandlerError::terminal(error).into_error())
    }

    fn or_retry_after(self, pause: Duration) -> Result<T, Marked>
    where
        E: Into<BoxError>,
    {
        self.map_err(|error| HandlerError::retry_after(pause, error).into_error())
    }

    fn or_classified(self) -> Result<T, Marked>
    where
        E: Classify,
    {
        self.map_err(|error| HandlerError::classified(error).into_error())
    }
}
