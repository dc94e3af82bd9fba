//! Errors of the application that know themselves what they mean for a message.

use std::time::Duration;

use super::{Disposition, HandlerError};
use crate::error::BoxError;

/// Says what an error means for the message, once for all handlers that return it.
///
/// `#[outbox_handler]` sees the type in `Result<(), E>` and asks it. An error that goes into another type by `?` is not asked
/// any more; [`or_classified`](super::ResultExt::or_classified) asks it before.
///
/// ```
/// # use std::fmt;
/// use outbox::{Classification, Classify};
///
/// #[derive(Debug)]
/// enum PaymentError {
///     CardRefused,
///     Unreachable,
/// }
/// # impl fmt::Display for PaymentError {
/// #     fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result { fmt::Debug::fmt(self, f) }
/// # }
/// # impl std::error::Error for PaymentError {}
///
/// impl Classify for PaymentError {
///     fn classify(&self) -> Classification {
///         match self {
///             Self::CardRefused => Classification::Terminal,
///             Self::Unreachable => Classification::Retry,
///         }
///     }
/// }
/// ```
pub trait Classify: Into<BoxError> {
    /// What the error means.
    fn classify(&self) -> Classification;
}

/// What an error means for the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Classification {
    /// Tried again after the policy's pause.
    Retry,
    /// Tried again after this pause, or after the policy's own where that is longer; at most the policy's `max`.
    RetryAfter(Duration),
    /// Dead at once: no retry can mend it.
    Terminal,
    /// Put back for this long, without an attempt.
    Snooze(Duration),
    /// What a [`Marked`](super::Marked) error among its causes says; without one it is tried again.
    BySource,
}

impl HandlerError {
    /// What the error itself says that it is.
    pub fn classified(error: impl Classify) -> Self {
        let disposition = match error.classify() {
            Classification::Retry => Disposition::Retry,
            Classification::RetryAfter(pause) => Disposition::RetryAfter(pause),
            Classification::Terminal => Disposition::Terminal,
            Classification::Snooze(pause) => Disposition::Snooze(pause),
            Classification::BySource => return error.into().into(),
        };
        Self { disposition, source: error.into() }
    }
}

/// What a handler returned, for choosing by its type: a method of it is looked for before one of a reference to it.
#[doc(hidden)]
#[derive(Debug)]
pub struct Returned<'a, R>(pub &'a R);

/// Chosen where the error implements [`Classify`].
#[doc(hidden)]
pub trait WhenClassified {
    /// How to go on.
    fn how(&self) -> ByItself {
        ByItself
    }
}

impl<T, E: Classify> WhenClassified for Returned<'_, Result<T, E>> {}

/// Chosen otherwise.
#[doc(hidden)]
pub trait UnlessClassified {
    /// How to go on.
    fn how(&self) -> AsItIs {
        AsItIs
    }
}

impl<R> UnlessClassified for &Returned<'_, R> {}

#[doc(hidden)]
#[derive(Debug)]
pub struct ByItself;

impl ByItself {
    /// Asks the error.
    ///
    /// # Errors
    /// The error, if there is one.
    pub fn classified<T, E: Classify>(self, returned: Result<T, E>) -> Result<T, HandlerError> {
        returned.map_err(HandlerError::classified)
    }
}

#[doc(hidden)]
#[derive(Debug)]
pub struct AsItIs;

impl AsItIs {
    /// Changes nothing.
    pub fn classified<R>(self, returned: R) -> R {
        returned
    }
}
