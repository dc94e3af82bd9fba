//! One opaque error for everything the library reports, and the kinds to branch on.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::fmt;

/// Any error that a handler may return and the library may carry.
pub type BoxError = Box<dyn StdError + Send + Sync + 'static>;

/// A result whose error is [`Error`] unless another is named.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, to what, and what to do next.
///
/// `Display` prints this error alone and never its cause; the cause is its
/// [`source`](StdError::source), so that an error reporter prints each once.
pub struct Error(Box<Inner>);

struct Inner {
    kind: ErrorKind,
    message: Cow<'static, str>,
    sqlstate: Option<String>,
    source: Option<BoxError>,
}

/// The kinds of [`Error`], for branching.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// A setting is not usable: an identifier with a quote in it, a limit of zero.
    Config,
    /// The message breaks a rule and was refused before anything was written: too long, too large, a NUL
    /// byte, a reserved header.
    InvalidMessage,
    /// The event could not be serialized, or holds a number that could not be read back.
    Encode,
    /// The payload could not be turned into the event.
    Decode,
    /// The message is of a version of its type that this build does not know.
    NewerVersion,
    /// A publish on a connection that has no transaction open.
    NotInTransaction,
    /// An earlier statement of this transaction failed, so the database refuses every further one until it is
    /// rolled back.
    TransactionAborted,
    /// The transaction began before something that it must know of. Roll it back and run it again.
    StaleTransaction,
    /// The database chose this transaction as the loser of a conflict (deadlock, serialization failure, lock
    /// timeout). Roll it back and run it again.
    Conflict,
    /// The database takes no writes: a standby, a read-only session or file.
    ReadOnly,
    /// The database cannot be reached, is starting or stopping, or is out of connections, memory or disk.
    Unavailable,
    /// The connection was lost while a transaction of yours was being committed: it may have happened, or not. Look; or run it
    /// again with message ids of your own, of which a second publish stores nothing.
    OutcomeUnknown,
    /// The outbox's tables are missing or older than this build.
    NotMigrated,
    /// The database server or library lacks something that is needed.
    Unsupported,
    /// The handlers do not fit together: two of one name, a missing state, none at all.
    Registry,
    /// There is nothing of that name.
    NotFound,
    /// Rows changed under a lock that should have kept them: a second guard stopped the work, and it was
    /// rolled back. Please report it.
    Guard,
    /// Any other error of the database.
    Database,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, message: impl Into<Cow<'static, str>>) -> Self {
        Self(Box::new(Inner { kind, message: message.into(), sqlstate: None, source: None }))
    }

    pub(crate) fn with_source(mut self, source: impl Into<BoxError>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// An error of the database while `doing` something; `kind` and `hint` come from the backend, which knows
    /// its own codes.
    pub(crate) fn database(kind: ErrorKind, doing: impl fmt::Display, source: sqlx::Error) -> Self {
        let sqlstate =
            source.as_database_error().and_then(sqlx::error::DatabaseError::code).map(Cow::into_owned);
        let message = match advice(kind) {
            Some(advice) => format!("could not {doing}: {advice}"),
            None => format!("could not {doing}"),
        };
        let mut error = Self::new(kind, message);
        // What the database said, and not sqlx's error around it: that one prints it and returns it as its source too.
        error.0.source = Some(match source {
            sqlx::Error::Database(database) => database.into_error(),
            other => other.into(),
        });
        error.0.sqlstate = sqlstate;
        error
    }

    /// The kind of this error.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The database's own code for the error under this one: SQLSTATE on PostgreSQL, the extended result
    /// code on SQLite.
    #[must_use]
    pub fn sqlstate(&self) -> Option<&str> {
        self.0.sqlstate.as_deref()
    }

    /// Whether the same transaction, rolled back and run again from its beginning, may well succeed.
    ///
    /// It says nothing of the single statement: that one stays failed. Of an [`OutcomeUnknown`](ErrorKind::OutcomeUnknown) it says
    /// no: run again, it might happen twice.
    #[must_use]
    pub fn is_transient(&self) -> bool {
        matches!(self.0.kind, ErrorKind::StaleTransaction | ErrorKind::Conflict | ErrorKind::Unavailable)
    }
}

/// What to do about an error of the database, where the kind alone tells.
fn advice(kind: ErrorKind) -> Option<&'static str> {
    Some(match kind {
        ErrorKind::TransactionAborted => {
            "an earlier statement of this transaction failed; roll it back, or run that statement in a savepoint"
        }
        ErrorKind::StaleTransaction => {
            "another connection has written since this transaction first read, or held the write lock for longer than \
             the busy timeout; roll it back and run it again, on SQLite begun by `outbox.begin()` or \
             `begin_with(\"BEGIN IMMEDIATE\")`"
        }
        ErrorKind::Conflict => {
            "the database ended a conflict at this transaction's cost; roll it back and run it again"
        }
        ErrorKind::ReadOnly => "the database is read-only; connect to the primary, or make the file writable",
        ErrorKind::Unavailable => "the database cannot be reached, or has no room left",
        ErrorKind::OutcomeUnknown => {
            "the connection was lost meanwhile, so it may have happened or not; look, or run it again with message ids of your \
             own, of which a second publish stores nothing"
        }
        ErrorKind::NotMigrated => {
            "the outbox's tables are missing in this database and schema; run `outbox.migrate().await` before"
        }
        _ => return None,
    })
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Error");
        out.field("kind", &self.0.kind).field("message", &self.0.message);
        if let Some(source) = &self.0.source {
            out.field("source", source);
        }
        out.finish()
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_deref().map(|e| e as _)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn display_never_repeats_the_cause() {
        let error =
            Error::database(ErrorKind::Unavailable, "publish `order.paid`", sqlx::Error::PoolTimedOut);
        let cause = error.source().expect("has a cause").to_string();
        assert!(!error.to_string().contains(&cause));
        assert_eq!(
            error.to_string(),
            "could not publish `order.paid`: the database cannot be reached, or has no room left"
        );
        assert!(error.is_transient());
    }

    #[test]
    fn an_error_is_one_pointer_wide() {
        assert_eq!(size_of::<Error>(), size_of::<usize>());
    }
}
