//! Databases for tests: fresh, of one test's own, and gone at its end.

#[cfg(feature = "mysql")]
pub mod mysql;
#[cfg(feature = "postgres")]
pub mod postgres;
mod sqlite;

use std::fmt;

use outbox::{Backend, Config, Outbox};
use sqlx::Pool;

/// What tests need from a database beyond what the library does, written once for each.
///
/// SQL that is given to it is the same on all of them; only what differs has a method of its own.
pub trait TestBackend: Backend {
    /// A query that takes about 50 ms.
    const SLOW_QUERY: &'static str;

    /// Keeps the database, and removes it when dropped.
    type Keep: Send + Sync;

    /// Makes an empty database. `None` where there is no server for it, which was said on stderr.
    fn create() -> impl Future<Output = Option<(Self::Keep, String)>> + Send;

    /// Connects to a database that [`create`](Self::create) has made, also from another process.
    fn connect(address: &str, size: u32) -> impl Future<Output = sqlx::Result<Pool<Self>>> + Send;

    /// Makes the tables `effects`, which has no unique key, and `business`.
    fn create_ledger(conn: &mut Self::Connection) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Runs statements without parameters.
    fn execute(conn: &mut Self::Connection, sql: &str) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// The one number that a query returns.
    fn number(conn: &mut Self::Connection, sql: &str) -> impl Future<Output = sqlx::Result<i64>> + Send;

    /// The texts in the first column of a query.
    fn texts(
        conn: &mut Self::Connection,
        sql: &str,
    ) -> impl Future<Output = sqlx::Result<Vec<String>>> + Send;

    /// Executes what was exported; the number of affected rows.
    fn execute_statement(
        conn: &mut Self::Connection,
        statement: &outbox::Statement,
    ) -> impl Future<Output = sqlx::Result<u64>> + Send;

    /// Records that a handler ran, in its transaction.
    fn insert_effect(
        conn: &mut Self::Connection,
        effect: &Effect,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// All effects in the order in which they were written.
    fn effects(conn: &mut Self::Connection) -> impl Future<Output = sqlx::Result<Vec<Effect>>> + Send;
}

/// A row of the table `effects`: what a handler leaves behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Effect {
    /// The message that was handled.
    pub message_id: String,
    /// For which consumer.
    pub consumer: String,
    /// The message's ordering key.
    pub key: Option<String>,
    /// Who handled it.
    pub worker: String,
}

/// A database that exists as long as this value.
pub struct TestDatabase<DB: TestBackend> {
    // The order of the fields is the order of their drops: no connection outlives the database.
    pool: Pool<DB>,
    address: String,
    _keep: DB::Keep,
}

impl<DB: TestBackend> TestDatabase<DB> {
    /// A database without any table. `None` where there is no server for it: return from the test.
    ///
    /// # Panics
    /// When the database cannot be made, or when there is no server and `OUTBOX_REQUIRE_SERVERS` is 1.
    pub async fn empty() -> Option<Self> {
        let (keep, address) = DB::create().await?;
        let pool = DB::connect(&address, 10).await.expect("a database that was just made can be reached");
        Some(Self { pool, address, _keep: keep })
    }

    /// A database with the ledger and the outbox's tables.
    ///
    /// # Panics
    /// As [`empty`](Self::empty).
    pub async fn migrated() -> Option<Self> {
        let database = Self::empty().await?;
        database.outbox().migrate().await.expect("the tables can be made");
        let mut conn = database.connection().await;
        DB::create_ledger(&mut conn).await.expect("the ledger can be made");
        Some(database)
    }

    /// A pool of ten connections.
    #[must_use]
    pub fn pool(&self) -> &Pool<DB> {
        &self.pool
    }

    /// What another process needs to [`connect`](TestBackend::connect).
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The outbox with its default settings.
    #[must_use]
    pub fn outbox(&self) -> Outbox<DB> {
        Outbox::new(self.pool.clone())
    }

    /// An outbox with settings of one's own.
    #[must_use]
    pub fn outbox_with(&self, config: Config) -> Outbox<DB> {
        Outbox::with_config(self.pool.clone(), config)
    }

    /// A connection of the pool, outside of any transaction.
    ///
    /// # Panics
    /// When the pool has none to give.
    pub async fn connection(&self) -> sqlx::pool::PoolConnection<DB> {
        self.pool.acquire().await.expect("the pool has a connection")
    }

    /// Runs statements without parameters.
    ///
    /// # Panics
    /// When the database refuses them.
    pub async fn execute(&self, sql: &str) {
        DB::execute(&mut *self.connection().await, sql).await.unwrap_or_else(|error| refused(sql, &error));
    }

    /// The one number that a query returns.
    ///
    /// # Panics
    /// When it does not.
    pub async fn number(&self, sql: &str) -> i64 {
        DB::number(&mut *self.connection().await, sql).await.unwrap_or_else(|error| refused(sql, &error))
    }

    /// The texts in the first column of a query.
    ///
    /// # Panics
    /// When it has none.
    pub async fn texts(&self, sql: &str) -> Vec<String> {
        DB::texts(&mut *self.connection().await, sql).await.unwrap_or_else(|error| refused(sql, &error))
    }

    /// The number of rows of a table.
    ///
    /// # Panics
    /// When there is no such table.
    pub async fn count(&self, table: &str) -> i64 {
        self.number(&format!("select count(*) from {table}")).await
    }

    /// All effects in the order in which they were written.
    ///
    /// # Panics
    /// When the ledger is missing.
    pub async fn effects(&self) -> Vec<Effect> {
        DB::effects(&mut *self.connection().await).await.expect("the ledger can be read")
    }

    /// Another pool on this database, as another process would have it.
    ///
    /// # Panics
    /// When it cannot connect.
    pub async fn another_pool(&self, size: u32) -> Pool<DB> {
        DB::connect(&self.address, size).await.expect("the database can be reached")
    }
}

impl<DB: TestBackend> fmt::Debug for TestDatabase<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestDatabase")
            .field("kind", &<DB as sqlx::Database>::NAME)
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

fn refused<T>(sql: &str, error: &sqlx::Error) -> T {
    panic!("{error}\nin: {sql}")
}

/// The methods that read alike on all databases, and that sqlx offers for each alone. Statements without a name, which would be
/// somebody else's behind a pooler.
macro_rules! alike {
    () => {
        async fn execute(conn: &mut Self::Connection, sql: &str) -> sqlx::Result<()> {
            sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(conn).await.map(drop)
        }

        async fn number(conn: &mut Self::Connection, sql: &str) -> sqlx::Result<i64> {
            sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).persistent(false).fetch_one(conn).await
        }

        async fn texts(conn: &mut Self::Connection, sql: &str) -> sqlx::Result<Vec<String>> {
            sqlx::query_scalar(sqlx::AssertSqlSafe(sql)).persistent(false).fetch_all(conn).await
        }

        executes!();

        async fn insert_effect(
            conn: &mut Self::Connection,
            effect: &crate::database::Effect,
        ) -> sqlx::Result<()> {
            sqlx::query("insert into effects (message_id, consumer, msg_key, worker) values ($1, $2, $3, $4)")
                .bind(&effect.message_id)
                .bind(&effect.consumer)
                .bind(&effect.key)
                .bind(&effect.worker)
                .persistent(false)
                .execute(conn)
                .await
                .map(drop)
        }

        async fn effects(conn: &mut Self::Connection) -> sqlx::Result<Vec<crate::database::Effect>> {
            let rows =
                sqlx::query_as("select message_id, consumer, msg_key, worker from effects order by id");
            let rows: Vec<(String, String, Option<String>, String)> =
                rows.persistent(false).fetch_all(conn).await?;
            let effects = rows.into_iter().map(|(message_id, consumer, key, worker)| {
                crate::database::Effect { message_id, consumer, key, worker }
            });
            Ok(effects.collect())
        }
    };
}
use alike;

/// The same for what was exported, which is in each database's own words.
macro_rules! executes {
    () => {
        async fn execute_statement(
            conn: &mut Self::Connection,
            statement: &outbox::Statement,
        ) -> sqlx::Result<u64> {
            let sql = sqlx::AssertSqlSafe(statement.sql.clone());
            if statement.parameters.is_empty() {
                return sqlx::raw_sql(sql).execute(conn).await.map(|done| done.rows_affected());
            }
            let mut query = sqlx::query(sql);
            for parameter in &statement.parameters {
                query = match parameter.clone() {
                    outbox::Parameter::Text(text) => query.bind(text),
                    outbox::Parameter::Int(number) => query.bind(number),
                    outbox::Parameter::BigInt(number) => query.bind(number),
                    outbox::Parameter::Bytes(bytes) => query.bind(bytes),
                };
            }
            query.execute(conn).await.map(|done| done.rows_affected())
        }
    };
}
use executes;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use outbox::{Context, Draft, EventMeta, HandlerError};

    use super::*;
    use crate::{eventually, handler};

    static PAID: EventMeta = EventMeta::new("order.paid", 1, "order", None, &[], "Paid");

    async fn record<DB: TestBackend>(ctx: &mut Context<DB>) -> Result<(), HandlerError> {
        let metadata = ctx.metadata().clone();
        let effect = Effect {
            message_id: metadata.id.to_string(),
            consumer: metadata.consumer().to_owned(),
            key: metadata.key.clone(),
            worker: "rig".to_owned(),
        };
        DB::insert_effect(ctx, &effect).await?;
        Ok(())
    }

    handler!(Record, consumer "ledger", types [PAID], run record);

    async fn the_rig_runs_a_handler<DB: TestBackend>() {
        let Some(database) = TestDatabase::<DB>::migrated().await else { return };
        let outbox = database.outbox();
        let tx = outbox.begin().await.expect("begun");
        let id = tx.publish(Draft::new("order.paid", "{}").aggregate_id("7")).expect("accepted");
        tx.commit().await.expect("committed");
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let consumers = outbox.consumers().handler::<Record>().build().expect("complete");
        let running = tokio::spawn(consumers.run_until(async { drop(stopped.await) }));
        eventually("an effect", Duration::from_secs(20), async || database.count("effects").await > 0).await;
        stop.send(()).expect("still running");
        running.await.expect("no panic").expect("it ran");
        let effects = database.effects().await;
        assert_eq!(effects.len(), 1);
        assert_eq!(effects[0].message_id, id.as_str());
        assert_eq!(effects[0].key.as_deref(), Some("order\u{1f}7"));
        assert_eq!(database.texts("select event_type from outbox_message").await, ["order.paid"]);
    }

    #[tokio::test]
    async fn the_rig_runs_a_handler_on_sqlite() {
        the_rig_runs_a_handler::<sqlx::Sqlite>().await;
    }

    #[cfg(feature = "mysql")]
    #[tokio::test]
    async fn the_rig_runs_a_handler_on_mysql() {
        the_rig_runs_a_handler::<sqlx::MySql>().await;
    }

    #[cfg(feature = "postgres")]
    #[tokio::test]
    async fn the_rig_runs_a_handler_on_postgres() {
        the_rig_runs_a_handler::<sqlx::Postgres>().await;
    }
}
