//! PostgreSQL, 14 or newer.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgDatabaseError};
use sqlx::{PgConnection, Postgres, SqlStr, query_as, raw_sql};

use super::{Backend, Begin, Guard, Migration, SqlResult, Storage, statement, statements};
use crate::config::{Names, Tables};
use crate::controls::Controls;
use crate::error::ErrorKind;

use self::server::Server;

mod consuming;
mod leasing;
mod maintaining;
mod operating;
#[cfg(test)]
mod plans;
mod publishing;
mod registering;
mod removing;
mod server;
mod signalling;
#[cfg(feature = "testing")]
mod testing;

impl Backend for Postgres {}

statements!("postgres":
    consumer_list, subscriptions, names, workers_alive, unsubscribe, ranges_remove, names_remove, dropped_add, consumer_remove,
    dropped_find, dropped_names, dropped_done, lane_remove, deliveries_remove, parked_remove, attempts_remove, marks_remove,
    deliveries_end, deliveries_unsubscribe, parked_part, parked_unsubscribe, attempts_forget,
    subscription_find, range_add, range_next, range_end, range_advance, range_done, range_deliver, newest, unrouted_end, in_doubt, watermark,
    migration_table, schema_exists, schema_version, schema_lock,
    registry_lock, registry_share, consumer_add, consumer_lanes, consumer_find, consumer_name, consumer_rename, subscribe, unready, announce, in_flight, backfill,
    ready,
    publish_routed, publish_one, publish_many, publish_statement,
    claim, claim_unlocked, lock_lane, read, find, settle_deliveries, settle_parked, move_behind, park_delivery,
    park_again, wake_next, remaining,
    arm, arm_unguarded, advance, undo, disarm, disarm_unguarded, cancel, cancel_pooled, prepared_names,
    lease, lease_renew, lease_end, claim_message, claim_find, claim_done, claim_end,
    attempt_add, attempt_trim, attempts, pause, dead_find, requeue, behind, discard,
    poll, orphans, worker_remove, worker_bury, suspect_clear, suspect_set,
    tell, test_ears,
    registry_try, message_batch, message_prune, attempt_prune, unrouted_prune, mark_batch, mark_prune, dead_old, discard_old,
    maintenance_lock, maintenance_add, maintenance_start, maintenance_move, maintenance_end,
);

/// The schema of the tables when none is configured.
const DEFAULT_SCHEMA: &str = "public";

/// Planner settings under which the lanes' statements keep their plans whatever the tables look like; back to
/// the session's own before a handler runs. A scan that is taken although it is off has a cost of 10^10, which
/// would have every execution compiled by LLVM first: 100 ms and more.
const PLANNER: &str = "set local enable_seqscan = off; set local enable_bitmapscan = off; \
                       set local enable_sort = off; set local plan_cache_mode = force_generic_plan; \
                       set local jit = off";

impl Storage for Postgres {
    const DATABASE: &'static str = "PostgreSQL";
    const LANES: i16 = 64;
    const LEASED_LANES: i16 = 64;
    const SINGLE_WRITER: bool = false;
    const SAFE_TO_DROP: bool = true;
    const MIGRATION_TABLE: &'static str = include_str!("sql/postgres/migration_table.sql");
    const MIGRATIONS: &'static [Migration] =
        &[Migration { version: 1, name: "core", sql: include_str!("sql/postgres/migrations/0001_core.sql") }];

    fn names() -> Names {
        Names { quote: '"', schema: Some(DEFAULT_SCHEMA.to_owned()) }
    }

    type Sql = Server;

    fn render(tables: &Tables, names: &Names) -> Server {
        Server::render(tables, names)
    }

    fn adapt(sql: &Server, options: &PgConnectOptions) {
        sql.adapt(options);
    }

    fn kind(error: &sqlx::Error) -> ErrorKind {
        let sqlx::Error::Database(database) = error else {
            return super::kind_without_code(error);
        };
        kind_of_code(database.code().as_deref(), database.message())
    }

    fn kind_of_cause(cause: &(dyn std::error::Error + 'static)) -> Option<ErrorKind> {
        let error = cause.downcast_ref::<PgDatabaseError>()?;
        Some(kind_of_code(Some(error.code()), error.message()))
    }

    async fn run(conn: &mut PgConnection, statements: SqlStr) -> SqlResult<()> {
        raw_sql(statements).execute(conn).await.map(drop)
    }

    async fn assert_usable(conn: &mut PgConnection) -> SqlResult<()> {
        raw_sql("select 1").execute(conn).await.map(drop)
    }

    fn is_private_memory(_: &PgConnectOptions) -> bool {
        false
    }

    const POOLABLE: bool = true;

    async fn is_direct(conn: &mut PgConnection) -> SqlResult<bool> {
        server::is_direct(conn).await
    }

    fn is_pooled(sql: &Server) -> bool {
        sql.is_pooled()
    }

    fn set_pooled(sql: &Server, pooled: bool) {
        sql.set_pooled(pooled);
    }

    fn stands_alone(sql: &Server) -> bool {
        sql.is_named() && !sql.is_pooled()
    }

    /// Outside the transactions that say READ WRITE, our own sessions write nothing: what a handler does after
    /// it rolled our transaction back fails instead of being committed statement by statement. Not where it would be a
    /// session of somebody else's next.
    fn own_options(options: PgConnectOptions, pooled: bool, controls: Controls) -> PgConnectOptions {
        if pooled {
            return options;
        }
        let options = options.options([server::DIRECT]);
        if controls.commit_guard {
            options.options([("default_transaction_read_only", "on")])
        } else {
            options
        }
    }

    /// The planner's settings can stay on for good here, and what polls need not be told twice. Its statements are transactions
    /// of their own, which a server's stricter default would let fail beside one another.
    fn reserve_options(options: PgConnectOptions, pooled: bool) -> PgConnectOptions {
        if pooled {
            return options;
        }
        options.options([
            ("default_transaction_read_only", "off"),
            ("default_transaction_isolation", "read committed"),
            ("enable_seqscan", "off"),
            ("enable_bitmapscan", "off"),
            ("enable_sort", "off"),
            ("plan_cache_mode", "force_generic_plan"),
            ("jit", "off"),
        ])
    }

    fn begin_write() -> SqlStr {
        statement("begin".to_owned())
    }

    fn begin_registration() -> SqlStr {
        statement(format!("begin isolation level read committed read write; {PLANNER}"))
    }

    fn begin_work(_: &Server, idle: Duration, _: Controls) -> Begin {
        // READ COMMITTED whatever the server's default: the read after the claim must see what was committed
        // before the lock was granted. A handler's time is limited by its own option, and a role's limit must not end what settles
        // its message. The interval bounds how long a dead client's lane stays locked while a
        // statement of its runs.
        statement(format!(
            "begin isolation level read committed read write; \
             set local statement_timeout = 0; \
             set local client_connection_check_interval = '500ms'; \
             set local idle_in_transaction_session_timeout = {}; {PLANNER}",
            idle.as_millis().min(i32::MAX as u128),
        ))
        .into()
    }

    async fn arm(
        conn: &mut PgConnection,
        sql: &Server,
        shared: bool,
        controls: Controls,
    ) -> SqlResult<Guard> {
        let statements = if controls.commit_guard { &sql.arm } else { &sql.arm_unguarded };
        raw_sql(hasty(shared, statements)).execute(conn).await?;
        Ok(Guard { rows: controls.commit_guard, armed: None, interrupted: None, in_flight: false })
    }

    async fn disarm(conn: &mut PgConnection, sql: &Server, guard: &Guard) -> SqlResult<()> {
        let statements = if guard.rows { &sql.disarm } else { &sql.disarm_unguarded };
        raw_sql(statements.clone()).execute(conn).await.map(drop)
    }

    async fn advance(conn: &mut PgConnection, sql: &Server, shared: bool) -> SqlResult<()> {
        raw_sql(hasty(shared, &sql.advance)).execute(conn).await.map(drop)
    }

    async fn undo(conn: &mut PgConnection, sql: &Server) -> SqlResult<()> {
        raw_sql(sql.undo.clone()).execute(conn).await.map(drop)
    }

    async fn unsupported(conn: &mut PgConnection, sql: &Server) -> SqlResult<Option<String>> {
        if let Some(reason) = sql.names_meet(conn).await? {
            return Ok(Some(reason));
        }
        let ask =
            query_as("select current_setting('server_version_num')::int, current_setting('server_encoding')");
        let (version, encoding): (i32, String) = ask.persistent(sql.is_named()).fetch_one(conn).await?;
        Ok(if version < 140_000 {
            Some(format!("PostgreSQL 14 is the oldest supported, and this server is {}", version / 10_000))
        } else if encoding != "UTF8" {
            // There would be texts that cannot be stored, those of errors among them.
            Some(format!("the database's encoding is {encoding}, and must be UTF8"))
        } else {
            None
        })
    }

    async fn lock_schema(conn: &mut PgConnection, sql: &Server) -> SqlResult<()> {
        sql.query(&sql.schema_lock).execute(&mut *conn).await?;
        raw_sql(sql.migration_table.clone()).execute(conn).await.map(drop)
    }

    async fn unlock_schema(_: &mut PgConnection, _: &Server) -> SqlResult<()> {
        Ok(())
    }

    async fn schema_version(conn: &mut PgConnection, sql: &Server) -> SqlResult<Option<i32>> {
        if !sql.query_scalar(&sql.schema_exists).fetch_one(&mut *conn).await? {
            return Ok(None);
        }
        sql.query_scalar(&sql.schema_version).fetch_one(conn).await
    }
}

/// The statements, with a short limit for waiting on locks where several messages share the transaction: the locks of
/// those before are held meanwhile.
fn hasty(shared: bool, statements: &SqlStr) -> SqlStr {
    if shared {
        statement(format!("set local lock_timeout = '20ms'; {}", statements.as_str()))
    } else {
        statements.clone()
    }
}

fn kind_of_code(code: Option<&str>, message: &str) -> ErrorKind {
    match code {
        Some("40001" | "40P01" | "55P03") => ErrorKind::Conflict,
        Some("25P02") => ErrorKind::TransactionAborted,
        // A standby refuses READ WRITE at BEGIN as a feature that it does not have.
        Some("25006") => ErrorKind::ReadOnly,
        Some("0A000") if message.contains("recovery") => ErrorKind::ReadOnly,
        Some("42P01" | "42703" | "3F000") => ErrorKind::NotMigrated,
        // Class 53: no disk, no memory, no connection is left.
        Some(code) if code.starts_with("53") => ErrorKind::Unavailable,
        Some("57P01" | "57P02" | "57P03" | "57P05" | "25P03") => ErrorKind::Unavailable,
        Some(code) if code.starts_with("08") => ErrorKind::Unavailable,
        _ => ErrorKind::Database,
    }
}

#[cfg(test)]
mod tests {
    use sqlx::{Connection as _, Executor as _};

    use super::*;

    /// Sent as text, several statements in one round trip.
    const TEXTS: [&str; 6] = ["arm", "arm_unguarded", "advance", "undo", "disarm", "disarm_unguarded"];

    #[tokio::test]
    async fn every_statement_prepares_with_names_of_ones_own() {
        let Ok(url) = std::env::var("OUTBOX_TEST_POSTGRES_URL") else {
            assert!(std::env::var_os("OUTBOX_REQUIRE_SERVERS").is_none(), "no PostgreSQL is given");
            eprintln!("SKIPPED postgres: OUTBOX_TEST_POSTGRES_URL is not set");
            return;
        };
        let tables = Tables::new("outbox_prepare", "app_").expect("valid");
        let sql = Postgres::render(&tables, &Postgres::names());
        let mut conn = PgConnection::connect(&url).await.expect("connects");
        // Nothing of this test is ever committed.
        let mut tx = conn.begin().await.expect("begins");
        raw_sql("create schema outbox_prepare").execute(&mut *tx).await.expect("makes a schema");
        Postgres::lock_schema(&mut tx, &sql).await.expect("makes the table of migrations");
        for migration in Postgres::MIGRATIONS {
            let rendered = statement(tables.render(migration.sql, &Postgres::names()));
            Postgres::run(&mut tx, rendered).await.expect(migration.name);
        }
        for (name, statement) in sql.all() {
            if TEXTS.contains(&name) {
                continue;
            }
            (&mut *tx).prepare(statement).await.expect(name);
        }
        let guard = Postgres::arm(&mut tx, &sql, true, Controls::ALL).await.expect("arm");
        Postgres::advance(&mut tx, &sql, true).await.expect("advance");
        Postgres::undo(&mut tx, &sql).await.expect("undo");
        Postgres::disarm(&mut tx, &sql, &guard).await.expect("disarm");
    }
}
