//! The library's own tables: made, brought up to date, checked at start, printed.

use crate::backend::{Backend, Migration};
use crate::error::{Error, ErrorKind, Result};
use crate::finish::Finish;
use crate::publish::Outbox;
use crate::session::Session;

/// What [`Outbox::migrate`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Migrated {
    /// Versions that ran now, oldest first; empty where there was nothing to do.
    pub applied: Vec<i32>,
    /// The version that the schema has.
    pub version: i32,
}

/// How the database's schema compares with what this build needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum SchemaStatus {
    /// The tables are not there.
    Missing,
    /// Older than this build needs.
    Outdated {
        /// The schema's version.
        version: i32,
    },
    /// As this build needs it, or newer: migrations only add, so that the replicas of a rolling deploy can differ.
    Ready {
        /// The schema's version.
        version: i32,
    },
}

impl<DB: Backend> Outbox<DB> {
    /// Makes the tables or brings them up to date, in one transaction. Safe to run at every start and from any
    /// number of processes at once: one works, the others wait and find nothing to do.
    ///
    /// # Errors
    /// [`Unsupported`](ErrorKind::Unsupported) for a server that is too old, [`ReadOnly`](ErrorKind::ReadOnly),
    /// [`Unavailable`](ErrorKind::Unavailable), and [`Database`](ErrorKind::Database) where the role may not create
    /// tables or the schema does not exist.
    pub async fn migrate(&self) -> Result<Migrated> {
        let pool = self.pool().clone();
        let outbox = self.clone();
        Finish::new(async move {
            let conn =
                pool.acquire().await.map_err(|e| Error::database(DB::kind(&e), "connect to migrate", e))?;
            let mut session = Session::new(conn, true);
            let migrated = outbox.migrate_on(&mut session).await;
            session.rollback().await;
            if session.is_open() && DB::unlock_schema(&mut session, outbox.sql()).await.is_err() {
                session.close();
            }
            migrated
        })
        .await
    }

    async fn migrate_on(&self, session: &mut Session<DB>) -> Result<Migrated> {
        let failed = |error| Self::not_migrated("migrate the outbox's tables".to_owned(), error);
        session.begin(DB::begin_write()).await.map_err(failed)?;
        if let Some(reason) = DB::unsupported(session, self.sql()).await.map_err(failed)? {
            return Err(Error::new(ErrorKind::Unsupported, reason));
        }
        DB::lock_schema(session, self.sql()).await.map_err(failed)?;
        let found = DB::schema_version(session, self.sql()).await.map_err(failed)?.unwrap_or(0);
        let mut applied = Vec::new();
        for migration in DB::MIGRATIONS.iter().filter(|migration| migration.version > found) {
            let step = |error| {
                let what = format!("run the outbox's migration {} ({})", migration.version, migration.name);
                Self::not_migrated(what, error)
            };
            DB::run(session, self.rendered(migration)).await.map_err(step)?;
            applied.push(migration.version);
        }
        session.commit().await.map_err(failed)?;
        Ok(Migrated { version: applied.last().copied().unwrap_or(found), applied })
    }

    /// Where the tables are to be made, a missing table is no advice, but a missing schema is.
    fn not_migrated(doing: String, error: sqlx::Error) -> Error {
        match DB::kind(&error) {
            ErrorKind::NotMigrated => {
                let advice = "the schema of its `Tables` is not there: create it (on SQLite, attach a database of that name)";
                Error::database(ErrorKind::Config, format!("{doing}: {advice}"), error)
            }
            kind => Error::database(kind, doing, error),
        }
    }

    fn rendered(&self, migration: &Migration) -> sqlx::SqlStr {
        let names = DB::names_of(&self.pool().connect_options());
        crate::backend::statement(self.config().tables.render(migration.sql, &names))
    }

    /// All migrations as SQL with this outbox's schema and prefix, for a migration tool of one's own. The text records
    /// its versions, so [`migrate`](Self::migrate) finds nothing to do after it.
    #[must_use]
    pub fn schema_sql(&self) -> String {
        let steps = DB::MIGRATIONS.iter().map(|migration| migration.sql);
        let texts = std::iter::once(DB::MIGRATION_TABLE).chain(steps);
        texts.map(|sql| self.config().tables.render(sql, &DB::names())).collect::<Vec<_>>().join("\n")
    }

    /// Compares the database's schema with what this build needs.
    ///
    /// # Errors
    /// [`Unavailable`](ErrorKind::Unavailable) and [`Database`](ErrorKind::Database).
    pub async fn schema_status(&self) -> Result<SchemaStatus> {
        let failed =
            |error| Error::database(DB::kind(&error), "read the version of the outbox's tables", error);
        let mut conn = self.reader().await.map_err(failed)?;
        self.schema_status_on(&mut conn).await
    }

    pub(crate) async fn schema_status_on(&self, conn: &mut DB::Connection) -> Result<SchemaStatus> {
        let failed =
            |error| Error::database(DB::kind(&error), "read the version of the outbox's tables", error);
        let newest = DB::MIGRATIONS.last().expect("there is a first migration").version;
        Ok(match DB::schema_version(conn, self.sql()).await.map_err(failed)? {
            None => SchemaStatus::Missing,
            Some(version) if version < newest => SchemaStatus::Outdated { version },
            Some(version) => SchemaStatus::Ready { version },
        })
    }

    /// Fails where this build cannot work with the schema.
    pub(crate) async fn require_schema(&self, conn: &mut DB::Connection) -> Result<()> {
        let problem = match self.schema_status_on(conn).await? {
            SchemaStatus::Ready { .. } => return Ok(()),
            SchemaStatus::Missing => "the outbox's tables are missing in this database and schema".to_owned(),
            SchemaStatus::Outdated { version } => {
                let newest = DB::MIGRATIONS.last().expect("there is a first migration").version;
                format!("the outbox's tables are version {version}, and this build needs {newest}")
            }
        };
        Err(Error::new(
            ErrorKind::NotMigrated,
            format!("{problem}; run `outbox.migrate().await` before (it is safe to run at every start)"),
        ))
    }
}
