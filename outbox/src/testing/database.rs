//! A database for one test.

use std::fmt;
use std::ops::Deref;

use sqlx::Pool;

use super::clock::Clock;
use crate::backend::{Backend, Testing};
use crate::config::Config;
use crate::error::{Error, Result};
use crate::publish::Outbox;

/// A database that can be made for a test. Sealed.
#[expect(private_bounds, reason = "sealed: the statements are the library's own")]
pub trait TestBackend: Backend + Testing {
    /// The environment variable that names the server; `None` where none is needed.
    const SERVER: Option<&'static str>;
}

#[cfg(feature = "sqlite")]
impl TestBackend for sqlx::Sqlite {
    const SERVER: Option<&'static str> = None;
}

#[cfg(feature = "postgres")]
impl TestBackend for sqlx::Postgres {
    const SERVER: Option<&'static str> = Some("OUTBOX_TEST_POSTGRES_URL");
}

#[cfg(feature = "mysql")]
impl TestBackend for sqlx::MySql {
    const SERVER: Option<&'static str> = Some("OUTBOX_TEST_MYSQL_URL");
}

/// An outbox in a fresh, migrated database of its own, which is gone when this is dropped.
///
/// It derefs to the [`Outbox`]. On SQLite the database is a file in a temporary folder, on the others a database that is
/// created on the server; so tests run beside each other, and what they commit is real.
///
/// ```
/// # #[cfg(feature = "sqlite")]
/// # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
/// use outbox::Draft;
/// use outbox::testing::TestOutbox;
///
/// let outbox = TestOutbox::sqlite().await?;
/// let mut tx = outbox.begin().await?;
/// outbox.publish(&mut tx, Draft::new("order.paid", "{}")).await?;
/// tx.commit().await?;
/// # Ok::<(), outbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TestOutbox<DB: TestBackend> {
    // Before what removes the database: no connection outlives it.
    outbox: Outbox<DB>,
    _keep: DB::Keep,
}

#[cfg(feature = "sqlite")]
impl TestOutbox<sqlx::Sqlite> {
    /// A database in a file of its own.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn sqlite() -> Result<Self> {
        Self::create(None, Config::default()).await
    }
}

#[cfg(feature = "postgres")]
impl TestOutbox<sqlx::Postgres> {
    /// A database of its own on the server that `url` names. Its user may create databases.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn postgres(url: &str) -> Result<Self> {
        Self::create(Some(url), Config::default()).await
    }
}

#[cfg(feature = "mysql")]
impl TestOutbox<sqlx::MySql> {
    /// A database of its own on the server that `url` names, MySQL or MariaDB. Its user may create databases.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub async fn mysql(url: &str) -> Result<Self> {
        Self::create(Some(url), Config::default()).await
    }
}

impl<DB: TestBackend> TestOutbox<DB> {
    /// A database with settings of one's own; on the server that the URL names, where the database has one. Of the
    /// settings' `tables` only the prefix can differ from the default: a new database has no other schema.
    ///
    /// # Errors
    /// [`Unavailable`](crate::ErrorKind::Unavailable) and [`Database`](crate::ErrorKind::Database) where the server is
    /// not there or the user may not create databases, and those of [`Outbox::migrate`].
    pub async fn create(server: Option<&str>, config: Config) -> Result<Self> {
        let failed = |error| Error::database(DB::kind(&error), "make a database for a test", error);
        let (keep, pool) = DB::create(server).await.map_err(failed)?;
        let config = Config { tables: config.tables.with_clock(DB::CLOCK), ..config };
        let outbox = Outbox::with_config(pool, config);
        let made = Self { outbox, _keep: keep };
        made.migrate().await?;
        let mut conn = made.pool().acquire().await.map_err(failed)?;
        DB::make_clock(&mut conn, &made.config().tables).await.map_err(failed)?;
        drop(conn);
        Ok(made)
    }

    /// The outbox, to keep a clone of.
    #[must_use]
    pub fn outbox(&self) -> &Outbox<DB> {
        &self.outbox
    }

    /// The pool.
    #[must_use]
    pub fn pool(&self) -> &Pool<DB> {
        self.outbox.pool()
    }

    /// The clock by which everything is due.
    #[must_use]
    pub fn clock(&self) -> Clock<DB> {
        Clock::new(&self.outbox)
    }
}

impl<DB: TestBackend> Deref for TestOutbox<DB> {
    type Target = Outbox<DB>;

    fn deref(&self) -> &Outbox<DB> {
        &self.outbox
    }
}

impl<DB: TestBackend> fmt::Debug for TestOutbox<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestOutbox").field("outbox", &self.outbox).finish_non_exhaustive()
    }
}
