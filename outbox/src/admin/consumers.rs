//! The consumers of a database, as operators see them.

use crate::alive::SILENCE;
use crate::backend::{AliveRow, Backend};
use crate::error::{Error, Result};

use super::Admin;

/// A consumer of a database, with or without a process that runs it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerInfo {
    /// Its present name.
    pub name: String,
    /// Every name that leads to it, the present one included, sorted.
    pub names: Vec<String>,
    /// The event types that it subscribes to, sorted; `*` stands for all.
    pub event_types: Vec<String>,
    /// Whether it is paused.
    pub paused: bool,
    /// The processes that run it: those that have said within the last 3 s, by the database's clock, that they are alive.
    pub workers: Vec<WorkerInfo>,
}

impl ConsumerInfo {
    /// Whether messages are delivered to it, and no process is there to handle them.
    #[must_use]
    pub fn is_orphaned(&self) -> bool {
        self.workers.is_empty() && !self.event_types.is_empty()
    }
}

/// A process that runs consumers.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct WorkerInfo {
    /// The start of the process: another one has another id.
    pub id: String,
    /// The host, with its boot and its process namespace.
    pub host: String,
    /// The number of the process there.
    pub pid: i64,
    /// The version of the library.
    pub version: String,
    /// Whether a pooler stands between it and its PostgreSQL server, and what is said
    /// [there](crate::databases#behind-a-pooler) is weaker.
    pub pooled: bool,
}

impl<DB: Backend> Admin<DB> {
    /// All consumers of the database, sorted by name.
    ///
    /// # Errors
    /// As [`dead`](Self::dead).
    pub async fn consumers(&self) -> Result<Vec<ConsumerInfo>> {
        let failed = |error| Error::database(DB::kind(&error), "list the consumers", error);
        let (sql, mut conn) = (self.outbox.sql(), self.outbox.reader().await.map_err(failed)?);
        let rows = DB::consumers(&mut conn, sql).await.map_err(failed)?;
        let names = DB::all_names(&mut conn, sql).await.map_err(failed)?;
        let types = DB::subscriptions(&mut conn, sql).await.map_err(failed)?;
        let mut workers = DB::alive(&mut conn, sql, SILENCE).await.map_err(failed)?;
        let of = |all: &[(i16, String)], id| {
            all.iter().filter(|(of, _)| *of == id).map(|(_, text)| text.clone()).collect()
        };
        let listed = rows.into_iter().map(|row| ConsumerInfo {
            names: of(&names, row.id),
            event_types: of(&types, row.id),
            paused: row.paused,
            workers: workers
                .extract_if(.., |(of, _)| *of == row.id)
                .map(|(_, worker)| worker.into())
                .collect(),
            name: row.name,
        });
        Ok(listed.collect())
    }
}

impl From<AliveRow> for WorkerInfo {
    fn from(row: AliveRow) -> Self {
        Self { id: row.id, host: row.host, pid: row.pid, version: row.version, pooled: row.pooled }
    }
}
