//! SQLite, 3.42 or newer; the bundled one is.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use sqlx::error::DatabaseError;
use sqlx::sqlite::{SqliteConnectOptions, SqliteError};
use sqlx::{SqlStr, Sqlite, SqliteConnection, query_scalar, raw_sql};

use super::{Backend, Begin, Guard, Migration, SqlResult, Storage, statement, statements};
use crate::config::{Names, Tables};
use crate::controls::Controls;
use crate::error::ErrorKind;

mod consuming;
mod leasing;
mod maintaining;
mod operating;
#[cfg(test)]
mod plans;
mod publishing;
mod registering;
mod removing;
mod signalling;
#[cfg(feature = "testing")]
mod testing;

impl Backend for Sqlite {}

statements!("sqlite":
    consumer_list, subscriptions, names, workers_alive, unsubscribe, ranges_remove, names_remove, dropped_add, consumer_remove,
    dropped_find, dropped_names, dropped_done, lane_remove, deliveries_remove, attempts_remove, marks_remove,
    deliveries_end, deliveries_unsubscribe, parked_part, parked_unsubscribe, attempts_forget,
    present,
    subscription_find, range_add, range_next, range_end, range_advance, range_done, range_deliver, newest, unrouted_end, range_delay, range_routed,
    migration_table, schema_exists, schema_version,
    consumer_add, consumer_lanes, consumer_find, consumer_name, consumer_rename, subscribe, unready, backfill, backfill_taken, ready,
    backfill_delayed, publish_one, publish_statement,
    runnable, claim, lock_lane, read, find, settle_deliveries, settle_parked, mark, move_behind, park_delivery, park_again,
    wake_next, remaining,
    arm, advance, undo, disarm,
    lease, lease_renew, lease_end, claim_message, claim_find, claim_done, claim_end,
    attempt_add, attempt_trim, attempts, pause, dead_find, requeue, behind, discard,
    worker_beat, orphans, worker_remove, workers, worker_suspects, suspect_clear, suspect_set,
    data_version,
    message_batch, message_prunable, message_prune, attempt_prune, unrouted_prune, mark_batch, mark_prune, dead_old, discard_old,
    maintenance_lock, maintenance_add, maintenance_start, maintenance_move, maintenance_end,
);

/// How many virtual machine instructions a statement runs between two looks at whether it was interrupted: well
/// under a millisecond.
const INSTRUCTIONS: i32 = 1_000;

impl Storage for Sqlite {
    const DATABASE: &'static str = "SQLite";
    const LANES: i16 = 1;
    const LEASED_LANES: i16 = 64;
    const SINGLE_WRITER: bool = true;
    const SAFE_TO_DROP: bool = true;
    const MIGRATION_TABLE: &'static str = include_str!("sql/sqlite/migration_table.sql");
    const MIGRATIONS: &'static [Migration] =
        &[Migration { version: 1, name: "core", sql: include_str!("sql/sqlite/migrations/0001_core.sql") }];

    fn names() -> Names {
        Names { quote: '"', schema: Some("main".to_owned()) }
    }

    type Sql = Sql;

    fn render(tables: &Tables, names: &Names) -> Sql {
        Sql::render(tables, names)
    }

    fn kind(error: &sqlx::Error) -> ErrorKind {
        match error {
            sqlx::Error::Database(database) => kind_of_database(&**database),
            _ => super::kind_without_code(error),
        }
    }

    fn kind_of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<ErrorKind> {
        Some(kind_of_database(cause.downcast_ref::<SqliteError>()?))
    }

    async fn run(conn: &mut SqliteConnection, statements: SqlStr) -> SqlResult<()> {
        raw_sql(statements).execute(conn).await.map(drop)
    }

    async fn assert_usable(conn: &mut SqliteConnection) -> SqlResult<()> {
        raw_sql("select 1").execute(conn).await.map(drop)
    }

    fn is_private_memory(options: &SqliteConnectOptions) -> bool {
        let name = options.get_filename().to_string_lossy();
        // sqlx keeps `mode=memory` in a field without a getter, and its `to_url_lossy` panics for `file:` names.
        let in_memory = format!("{options:?}").contains("in_memory: true");
        in_memory || name.is_empty() || name == ":memory:" || name.contains("mode=memory")
    }

    fn own_options(options: SqliteConnectOptions, _: bool, _: Controls) -> SqliteConnectOptions {
        options
    }

    fn reserve_options(options: SqliteConnectOptions, _: bool) -> SqliteConnectOptions {
        options
    }

    /// As a writer at once. A deferred transaction that has read cannot become one after another has written,
    /// and no time spent waiting would help it.
    fn begin_write() -> SqlStr {
        statement("begin immediate".to_owned())
    }

    fn begin_registration() -> SqlStr {
        Self::begin_write()
    }

    fn begin_work(_: &Sql, _: Duration, controls: Controls) -> Begin {
        if controls.immediate { Self::begin_write().into() } else { statement("begin".to_owned()).into() }
    }

    /// SQLite asks the hook before each commit, also that of a single statement outside a transaction, and a
    /// refusal rolls back. So neither a handler's COMMIT nor what it writes after a ROLLBACK becomes durable.
    async fn arm(conn: &mut SqliteConnection, sql: &Sql, _: bool, controls: Controls) -> SqlResult<Guard> {
        raw_sql(sql.arm.clone()).execute(&mut *conn).await?;
        let interrupted = Arc::new(AtomicBool::new(false));
        let guard = Guard {
            rows: false,
            armed: controls.commit_guard.then(|| Arc::new(AtomicBool::new(true))),
            interrupted: Some(interrupted.clone()),
            in_flight: false,
        };
        let mut handle = conn.lock_handle().await?;
        handle.set_progress_handler(INSTRUCTIONS, move || !interrupted.load(Ordering::Relaxed));
        if let Some(armed) = guard.armed.clone() {
            handle.set_commit_hook(move || !armed.load(Ordering::Relaxed));
        }
        Ok(guard)
    }

    async fn disarm(conn: &mut SqliteConnection, sql: &Sql, guard: &Guard) -> SqlResult<()> {
        raw_sql(sql.disarm.clone()).execute(&mut *conn).await?;
        let mut handle = conn.lock_handle().await?;
        handle.remove_progress_handler();
        if guard.armed.is_some() {
            handle.remove_commit_hook();
        }
        Ok(())
    }

    async fn advance(conn: &mut SqliteConnection, sql: &Sql, _: bool) -> SqlResult<()> {
        raw_sql(sql.advance.clone()).execute(conn).await.map(drop)
    }

    async fn undo(conn: &mut SqliteConnection, sql: &Sql) -> SqlResult<()> {
        raw_sql(sql.undo.clone()).execute(conn).await.map(drop)
    }

    async fn unsupported(conn: &mut SqliteConnection, _: &Sql) -> SqlResult<Option<String>> {
        let version: String = query_scalar("select sqlite_version()").fetch_one(conn).await?;
        let mut parts = version.split('.').map(|part| part.parse().unwrap_or(0));
        let number = (parts.next().unwrap_or(0), parts.next().unwrap_or(0));
        Ok((number < (3, 42)).then(|| format!("SQLite 3.42 is the oldest supported, and this is {version}")))
    }

    async fn lock_schema(conn: &mut SqliteConnection, sql: &Sql) -> SqlResult<()> {
        raw_sql(sql.migration_table.clone()).execute(conn).await.map(drop)
    }

    async fn unlock_schema(_: &mut SqliteConnection, _: &Sql) -> SqlResult<()> {
        Ok(())
    }

    async fn schema_version(conn: &mut SqliteConnection, sql: &Sql) -> SqlResult<Option<i32>> {
        if !query_scalar(sql.schema_exists.clone()).fetch_one(&mut *conn).await? {
            return Ok(None);
        }
        query_scalar(sql.schema_version.clone()).fetch_one(conn).await
    }
}

fn kind_of_database(error: &dyn DatabaseError) -> ErrorKind {
    const SNAPSHOT: i32 = 517;
    let code: i32 = error.code().and_then(|code| code.parse().ok()).unwrap_or(0);
    // The primary code is the low byte of an extended one.
    match code & 0xff {
        _ if code == SNAPSHOT => ErrorKind::StaleTransaction,
        5 | 6 => ErrorKind::Conflict,
        8 => ErrorKind::ReadOnly,
        // What cannot be read or opened, and a full disk.
        10 | 13 | 14 => ErrorKind::Unavailable,
        1 if error.message().contains("no such table") => ErrorKind::NotMigrated,
        1 if error.message().contains("unknown database") => ErrorKind::NotMigrated,
        1 if error.message().contains("has no column") => ErrorKind::NotMigrated,
        _ => ErrorKind::Database,
    }
}

/// A list as one parameter: SQLite has no arrays, and reads JSON.
fn json(list: &[impl Serialize]) -> String {
    serde_json::to_string(list).expect("numbers and texts are JSON")
}

fn time(micros: i64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(micros.unsigned_abs())
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection as _, Executor as _};

    use super::*;

    #[tokio::test]
    async fn every_statement_prepares_with_names_of_ones_own() {
        let tables = Tables::new("", "app_").expect("valid");
        let sql = Sqlite::render(&tables, &Sqlite::names());
        let mut conn = SqliteConnection::connect("sqlite::memory:").await.expect("opens");
        Sqlite::lock_schema(&mut conn, &sql).await.expect("makes the table of migrations");
        for migration in Sqlite::MIGRATIONS {
            let rendered = statement(tables.render(migration.sql, &Sqlite::names()));
            Sqlite::run(&mut conn, rendered).await.expect(migration.name);
        }
        for (name, statement) in sql.all() {
            conn.prepare(statement).await.expect(name);
        }
    }
}
