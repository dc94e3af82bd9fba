//! The clock of a test.

use std::fmt;
use std::time::Duration;

use super::database::TestBackend;
use crate::error::{Error, ErrorKind, Result};
use crate::publish::Outbox;

/// The clock by which everything of a [`TestOutbox`](super::TestOutbox) is due: retries, snoozes, delayed messages.
///
/// It goes as the database's does, and ahead of it by what it was [advanced](Self::advance). It is the library's clock
/// only: `now()` in your own statements is the database's.
pub struct Clock<DB: TestBackend> {
    outbox: Outbox<DB>,
}

impl<DB: TestBackend> Clock<DB> {
    pub(super) fn new(outbox: &Outbox<DB>) -> Self {
        Self { outbox: outbox.clone() }
    }

    /// Moves the clock ahead, to the microsecond, and wakes the consumers that run.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable), [`Conflict`](ErrorKind::Conflict) where a transaction that writes was left
    /// open on SQLite, [`Database`](ErrorKind::Database).
    pub async fn advance(&self, by: Duration) -> Result<()> {
        let failed = |error| Error::database(DB::kind(&error), "move the clock of a test", error);
        let mut conn = self.outbox.pool().acquire().await.map_err(failed)?;
        let moved = DB::advance_clock(&mut conn, &self.outbox.config().tables, by).await.map_err(failed)?;
        if moved != 1 {
            return Err(Error::new(
                ErrorKind::Database,
                format!("the table of the test's clock has {moved} rows, and one was made"),
            ));
        }
        self.outbox.wake().committed();
        Ok(())
    }
}

impl<DB: TestBackend> Clone for Clock<DB> {
    fn clone(&self) -> Self {
        Self::new(&self.outbox)
    }
}

impl<DB: TestBackend> fmt::Debug for Clock<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("database", &DB::DATABASE).finish_non_exhaustive()
    }
}
