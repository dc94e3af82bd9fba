//! What `#[outbox::test]` expands to.

use sqlx::Pool;

use super::clock::Clock;
use super::database::{TestBackend, TestOutbox};
use crate::config::Config;
use crate::publish::Outbox;

/// What a test function can take: [`Outbox<DB>`], [`Pool<DB>`] and [`Clock<DB>`], all of one database.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot be a parameter of a test",
    label = "not given to a test",
    note = "allowed are `Outbox<DB>`, `sqlx::Pool<DB>` and `outbox::testing::Clock<DB>`, where `DB` is `Sqlite`, `Postgres` \
            or `MySql` with its feature of `outbox`"
)]
pub trait Fixture: Sized {
    /// The database that is made for the test.
    type Database: TestBackend;

    /// The parameter.
    fn take(database: &TestOutbox<Self::Database>) -> Self;
}

impl<DB: TestBackend> Fixture for Outbox<DB> {
    type Database = DB;

    fn take(database: &TestOutbox<DB>) -> Self {
        database.outbox().clone()
    }
}

impl<DB: TestBackend> Fixture for Pool<DB> {
    type Database = DB;

    fn take(database: &TestOutbox<DB>) -> Self {
        database.pool().clone()
    }
}

impl<DB: TestBackend> Fixture for Clock<DB> {
    type Database = DB;

    fn take(database: &TestOutbox<DB>) -> Self {
        database.clock()
    }
}

/// Makes a database and a runtime, and runs a test with them.
///
/// # Panics
/// Where the database cannot be made, saying what is missing; and with the test.
#[doc(hidden)]
pub fn run<DB: TestBackend, R>(test: impl AsyncFnOnce(&TestOutbox<DB>) -> R) -> R {
    let server = DB::SERVER.map(|variable| {
        std::env::var(variable).unwrap_or_else(|_| {
            panic!(
                "a test on {} needs a server, on which it makes a database of its own; set {variable} to its URL",
                DB::DATABASE
            )
        })
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime can be made").block_on(async {
        match TestOutbox::create(server.as_deref(), Config::default()).await {
            Ok(database) => test(&database).await,
            Err(error) => panic!("{}", crate::testing::assertions::with_causes(&error)),
        }
    })
}
