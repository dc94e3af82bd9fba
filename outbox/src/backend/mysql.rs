//! MySQL, 8.0.14 or newer, and MariaDB, 10.6 or newer: what both can do.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlDatabaseError, MySqlRow};
use sqlx::{MySql, MySqlConnection, Row as _, SqlStr, query, query_scalar, raw_sql};
use uuid::Uuid;

use super::{Backend, Begin, End, Guard, Migration, SqlResult, Storage, statement, statements};
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

impl Backend for MySql {}

statements!("mysql":
    consumer_list, subscriptions, names, workers_alive, unsubscribe, ranges_remove, names_remove, dropped_add, consumer_remove,
    dropped_find, dropped_names, dropped_done, lane_remove, parked_remove, attempts_remove, marks_remove,
    deliveries_end, deliveries_unsubscribe, parked_part, parked_unsubscribe, attempts_forget,
    present,
    subscription_find, range_add, range_next, range_end, range_advance, range_done, range_deliver, newest, unrouted_end, range_delay, range_routed, in_doubt, watermark,
    migration_table, schema_exists, schema_version, schema_lock, schema_unlock, server, autocommit,
    registry_lock, consumer_add, consumer_lanes, consumer_find, consumer_name, consumer_rename, subscribe, unready, ready,
    in_flight, in_flight_known, in_flight_wait, backfill, backfill_delayed, backfill_taken,
    publish_begin, lock_slots, lock_gate, publish_values, publish_many, publish_statement, publish_gate, publish_undo,
    claim, claim_lane, claim_unlocked, lock_lane, due, read_parked, read, find, settle_deliveries, settle_parked, mark, mark_all, move_behind, park_delivery, park_again,
    wake_next, remaining,
    arm, advance, undo, disarm, cancel,
    lease, lease_renew, lease_end, claim_message, claim_find, claim_done, claim_end,
    attempt_add, attempt_trim, attempts, pause, consumers, dead_find, requeue, behind, discard,
    worker_beat, orphans, worker_remove, workers, runnable, worker_suspects, worker_lock, suspect_clear, suspect_set,
    registry_try, message_batch, message_prunable, message_lock, message_prune, attempt_prune, unrouted_prune, mark_batch, mark_prunable, mark_prune,
    dead_old, discard_old,
    maintenance_lock, maintenance_add, maintenance_start, maintenance_move, maintenance_end,
);

/// The statements, and what the server has turned out to lack.
#[derive(Debug)]
pub(crate) struct Server {
    sql: Sql,
    /// Galera has no XA transactions.
    no_xa: AtomicBool,
}

impl std::ops::Deref for Server {
    type Target = Sql;

    fn deref(&self) -> &Sql {
        &self.sql
    }
}

/// The number of the error of a statement that has waited for so long.
const LOCK_WAIT_TIMEOUT: u16 = 1205;

/// How long a statement of ours waits for a row; and no transaction is open that nobody has begun.
const OURS: &str = "set session autocommit = 1, innodb_lock_wait_timeout = 1";

impl Storage for MySql {
    const DATABASE: &'static str = "MySQL";
    const LANES: i16 = 64;
    const LEASED_LANES: i16 = 64;
    const SINGLE_WRITER: bool = false;
    const SAFE_TO_DROP: bool = false;
    const MIGRATION_TABLE: &'static str = include_str!("sql/mysql/migration_table.sql");
    const MIGRATIONS: &'static [Migration] =
        &[Migration { version: 1, name: "core", sql: include_str!("sql/mysql/migrations/0001_core.sql") }];

    fn names() -> Names {
        Names { quote: '`', schema: None }
    }

    /// With the database, so that a handler's USE leads nothing of ours astray.
    fn names_of(options: &MySqlConnectOptions) -> Names {
        Names { quote: '`', schema: options.get_database().map(str::to_owned) }
    }

    type Sql = Server;

    fn render(tables: &Tables, names: &Names) -> Server {
        Server { sql: Sql::render(tables, names), no_xa: AtomicBool::new(false) }
    }

    fn kind(error: &sqlx::Error) -> ErrorKind {
        match number(error) {
            Some(number) => {
                let message = error.as_database_error().map(sqlx::error::DatabaseError::message);
                kind_of_number(number, message.unwrap_or_default())
            }
            None => super::kind_without_code(error),
        }
    }

    fn kind_of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<ErrorKind> {
        let error = cause.downcast_ref::<MySqlDatabaseError>()?;
        Some(kind_of_number(error.number(), error.message()))
    }

    async fn run(conn: &mut MySqlConnection, statements: SqlStr) -> SqlResult<()> {
        raw_sql(statements).execute(conn).await.map(drop)
    }

    /// A savepoint that cannot be released shows that a deadlock or an implicit commit has ended the transaction: COMMIT
    /// would be answered with success.
    async fn assert_usable(conn: &mut MySqlConnection) -> SqlResult<()> {
        Self::run(conn, statement("savepoint outbox_publish; release savepoint outbox_publish".to_owned()))
            .await
    }

    fn is_private_memory(_: &MySqlConnectOptions) -> bool {
        false
    }

    fn own_options(options: MySqlConnectOptions, _: bool, _: Controls) -> MySqlConnectOptions {
        options
    }

    fn reserve_options(options: MySqlConnectOptions, _: bool) -> MySqlConnectOptions {
        options
    }

    fn begin_write() -> SqlStr {
        statement("start transaction".to_owned())
    }

    fn begin_registration() -> SqlStr {
        statement(format!(
            "{OURS}; set transaction isolation level read committed, read write; start transaction"
        ))
    }

    /// With a COMMIT, which START TRANSACTION implies and which would be too late: a session without autocommit is always in a
    /// transaction, whose level cannot be changed any more.
    fn begin_operation() -> SqlStr {
        statement(
            "commit; set transaction isolation level read committed, read write; start transaction"
                .to_owned(),
        )
    }

    /// As an XA transaction, in which the server refuses whatever would end it: COMMIT, ROLLBACK, BEGIN, and the
    /// statements that commit by themselves. After a deadlock it refuses everything, where another transaction would
    /// go on statement by statement. Without XA the session commits nothing by itself instead.
    ///
    /// READ COMMITTED, since the read after the claim must see what was committed before the lock was granted, and
    /// since the stricter levels lock the gaps into which publishers insert. The server has no time limit that belongs
    /// to a transaction, so the session's is set and taken back.
    fn begin_work(sql: &Server, idle: Duration, controls: Controls) -> Begin {
        let seconds = idle.as_millis().div_ceil(1_000).clamp(1, 31_536_000);
        let set = format!(
            "{OURS}, session wait_timeout = {seconds}; \
             set transaction isolation level read committed, read write"
        );
        let done = "set session wait_timeout = default";
        if controls.commit_guard && !sql.no_xa.load(Ordering::Relaxed) {
            let id = Uuid::now_v7().simple();
            Begin {
                begin: statement(format!("{set}; xa start 'outbox-{id}'")),
                end: Some(End {
                    commit: statement(format!(
                        "xa end 'outbox-{id}'; xa commit 'outbox-{id}' one phase; {done}"
                    )),
                    rollback: statement(format!("xa end 'outbox-{id}'; xa rollback 'outbox-{id}'; {done}")),
                    abandon: statement(format!("xa rollback 'outbox-{id}'; {done}")),
                }),
            }
        } else {
            let (off, on) = if controls.commit_guard {
                ("; set session autocommit = 0", ", autocommit = 1")
            } else {
                ("", "")
            };
            Begin {
                begin: statement(format!("{set}{off}; start transaction")),
                end: Some(End {
                    commit: statement(format!("commit; {done}{on}")),
                    rollback: statement(format!("rollback; {done}{on}")),
                    abandon: statement(format!("rollback; {done}{on}")),
                }),
            }
        }
    }

    /// Without XA a handler can commit in the middle, which is noticed at its end: it must be known whose it was.
    fn may_share(sql: &Server) -> bool {
        !sql.no_xa.load(Ordering::Relaxed)
    }

    async fn arm(conn: &mut MySqlConnection, sql: &Server, _: bool, _: Controls) -> SqlResult<Guard> {
        raw_sql(sql.arm.clone()).execute(conn).await?;
        Ok(Guard::default())
    }

    async fn disarm(conn: &mut MySqlConnection, sql: &Server, _: &Guard) -> SqlResult<()> {
        raw_sql(sql.disarm.clone()).execute(conn).await.map(drop)
    }

    async fn advance(conn: &mut MySqlConnection, sql: &Server, _: bool) -> SqlResult<()> {
        raw_sql(sql.advance.clone()).execute(conn).await.map(drop)
    }

    async fn undo(conn: &mut MySqlConnection, sql: &Server) -> SqlResult<()> {
        raw_sql(sql.undo.clone()).execute(conn).await.map(drop)
    }

    async fn unsupported(conn: &mut MySqlConnection, sql: &Server) -> SqlResult<Option<String>> {
        let rows = raw_sql(sql.server.clone()).fetch_all(conn).await?;
        let mut settings = Vec::with_capacity(rows.len());
        for row in rows {
            settings.push((text(&row, "Variable_name")?, text(&row, "Value")?));
        }
        let setting = |name: &str| {
            settings.iter().find(|(variable, _)| variable == name).map_or("", |(_, value)| value.as_str())
        };
        sql.no_xa.store(setting("wsrep_on") == "ON", Ordering::Relaxed);
        Ok(too_old(setting("version"))
            .or_else(|| without_transactions(setting("innodb")))
            .or_else(|| unfit(setting("log_bin"), setting("binlog_format"))))
    }

    async fn lock_schema(conn: &mut MySqlConnection, sql: &Server) -> SqlResult<()> {
        const SECONDS: i64 = 60;
        let mut locked = None;
        while locked != Some(1) {
            let lock = query_scalar(sql.schema_lock.clone()).bind(lock_name(sql)).bind(SECONDS);
            locked = lock.fetch_one(&mut *conn).await?;
        }
        raw_sql(sql.migration_table.clone()).execute(conn).await.map(drop)
    }

    async fn unlock_schema(conn: &mut MySqlConnection, sql: &Server) -> SqlResult<()> {
        query(sql.schema_unlock.clone()).bind(lock_name(sql)).fetch_one(conn).await.map(drop)
    }

    async fn schema_version(conn: &mut MySqlConnection, sql: &Server) -> SqlResult<Option<i32>> {
        const NO_SUCH_TABLE: u16 = 1146;
        match raw_sql(sql.schema_exists.clone()).execute(&mut *conn).await {
            Ok(_) => query_scalar(sql.schema_version.clone()).fetch_one(conn).await,
            Err(error) if number(&error) == Some(NO_SUCH_TABLE) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// The lock belongs to the server and not to a database: its name is the table's, wherever that is.
fn lock_name(sql: &Server) -> &str {
    sql.schema_version.as_str()
}

/// `10.11.6-MariaDB`, `8.0.36-28`, `8.4.0`.
fn too_old(version: &str) -> Option<String> {
    let mut parts = version.split(['.', '-']).map(|part| part.parse::<u32>().unwrap_or(0));
    let found = std::array::from_fn::<u32, 3, _>(|_| parts.next().unwrap_or(0));
    let (name, oldest, shown) = if version.contains("MariaDB") {
        ("MariaDB", [10, 6, 0], "10.6")
    } else {
        ("MySQL", [8, 0, 14], "8.0.14")
    };
    (found < oldest).then(|| format!("{name} {shown} is the oldest supported, and this server is {version}"))
}

/// The tables name their engine, and a server may take another one in silence.
fn without_transactions(innodb: &str) -> Option<String> {
    (!["YES", "DEFAULT"].contains(&innodb)).then(|| {
        "the server has no InnoDB, without which a message could be stored and its change rolled back; enable it"
            .to_owned()
    })
}

/// In a log of statements, those under READ COMMITTED and those that skip locked rows cannot be repeated.
fn unfit(log_bin: &str, binlog_format: &str) -> Option<String> {
    (log_bin == "ON" && binlog_format == "STATEMENT").then(|| {
        "the server's binlog_format is STATEMENT, under which it refuses transactions at READ COMMITTED; set it to ROW or \
         MIXED"
            .to_owned()
    })
}

fn number(error: &sqlx::Error) -> Option<u16> {
    error.as_database_error()?.try_downcast_ref::<MySqlDatabaseError>().map(MySqlDatabaseError::number)
}

/// A row with that unique key is there already; the statement changed nothing, and the transaction goes on.
fn is_duplicate(error: &sqlx::Error) -> bool {
    number(error) == Some(1062)
}

fn kind_of_number(number: u16, message: &str) -> ErrorKind {
    match number {
        // Lock wait timeout, deadlock, a row that is newer than the snapshot, NOWAIT, and XA's names for the first two.
        LOCK_WAIT_TIMEOUT | 1213 | 1020 | 3572 | 1613 | 1614 => ErrorKind::Conflict,
        // Its own savepoint is gone, and with it the transaction.
        1305 if message.contains("outbox_publish") => ErrorKind::TransactionAborted,
        1290 | 1792 | 1836 | 1874 if number != 1290 || message.contains("read") => ErrorKind::ReadOnly,
        1046 | 1049 | 1054 | 1146 => ErrorKind::NotMigrated,
        // Disk or table full, out of memory; too many connections, shutting down, disconnected, killed, idle for too long, a
        // cluster's node not ready.
        1021
        | 1037
        | 1038
        | 1041
        | 1114
        | 1040
        | 1042
        | 1043
        | 1047
        | 1053
        | 1077..=1081
        | 1129
        | 1152
        | 1158..=1161
        | 1184
        | 1203
        | 1226
        | 1927
        | 3169
        | 4031 => ErrorKind::Unavailable,
        _ => ErrorKind::Database,
    }
}

/// A text, stored as one or as bytes: sqlx gives the latter as bytes only.
fn text(row: &MySqlRow, column: &str) -> SqlResult<String> {
    let bytes = row.try_get(column)?;
    String::from_utf8(bytes)
        .map_err(|error| sqlx::Error::ColumnDecode { index: column.to_owned(), source: error.into() })
}

/// [`text`] that may be null.
fn optional_text(row: &MySqlRow, column: &str) -> SqlResult<Option<String>> {
    let there: Option<&[u8]> = row.try_get(column)?;
    there.map(|_| text(row, column)).transpose()
}

/// Numbers as one parameter, for `find_in_set`.
fn list(consumers: &[i16]) -> String {
    consumers.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// A statement with these numbers in place of its own `/*numbers*/0`.
fn with_numbers<N: std::fmt::Display>(sql: &SqlStr, numbers: impl IntoIterator<Item = N>) -> SqlStr {
    let numbers: Vec<_> = numbers.into_iter().map(|number| number.to_string()).collect();
    statement(sql.as_str().replace("/*numbers*/0", &numbers.join(", ")))
}

/// What stands between the marks of a statement once for each of `count`, with what its mark says or a comma between.
fn repeated(sql: &SqlStr, count: usize, render: impl Fn(usize, &str) -> String) -> String {
    let mut parts = sql.as_str().split("/*each");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let marked =
            part.split_once("*/").and_then(|(between, rest)| Some((between, rest.split_once("/*end*/")?)));
        let (between, (each, behind)) = marked.expect("each mark of the library's statements has its end");
        for number in 0..count {
            if number > 0 {
                text.push_str(if between.is_empty() { "," } else { between });
                text.push(' ');
            }
            text.push_str(&render(number, each));
        }
        text.push_str(behind);
    }
    text
}

#[cfg(test)]
mod tests {
    use sqlx::Executor as _;

    use super::plans::Place;
    use super::*;

    /// Sent as text: several statements in one round trip, or no statement that can be prepared.
    const TEXTS: [&str; 5] = ["advance", "cancel", "publish_begin", "publish_many", "server"];

    #[tokio::test]
    async fn every_statement_prepares_with_names_of_ones_own() {
        let Some(Place { mut conn, tables, schema }) = Place::make("prepare").await else { return };
        let sql = MySql::render(&tables, &MySql::names());
        for (name, statement) in sql.all() {
            if TEXTS.contains(&name) {
                continue;
            }
            conn.prepare(statement).await.expect(name);
        }
        MySql::run(&mut conn, statement(format!("drop database {schema}"))).await.expect("dropped");
    }

    #[test]
    fn a_log_of_statements_is_refused_where_there_is_one() {
        assert!(unfit("ON", "STATEMENT").is_some_and(|reason| reason.contains("binlog_format")));
        for fit in [("OFF", "STATEMENT"), ("ON", "ROW"), ("ON", "MIXED"), ("", "")] {
            assert_eq!(unfit(fit.0, fit.1), None, "{fit:?}");
        }
    }

    #[test]
    fn a_server_without_transactions_is_refused() {
        for refused in ["NO", "DISABLED", ""] {
            assert!(
                without_transactions(refused).is_some_and(|reason| reason.contains("InnoDB")),
                "{refused}"
            );
        }
        for fit in ["YES", "DEFAULT"] {
            assert_eq!(without_transactions(fit), None);
        }
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        for version in
            ["10.6.0-MariaDB", "10.11.19-MariaDB-0+deb12u1", "11.4.2-MariaDB", "8.0.14", "8.0.36-28", "9.1.0"]
        {
            assert_eq!(too_old(version), None, "{version}");
        }
        for version in ["10.5.23-MariaDB", "5.7.44", "8.0.13", "8.0.11-TiDB-v7.5.0", ""] {
            assert!(too_old(version).is_some(), "{version}");
        }
    }
}
