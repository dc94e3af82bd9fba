//! The statements, and the way by which they reach the server.
//!
//! Behind a pooler that lends its servers for a transaction at a time, what is said outside of one may be said to another server
//! than what was said before: a statement's text and its values, a setting, a `LISTEN`.

use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::postgres::{PgArguments, PgConnectOptions, PgRow};
use sqlx::query::{Query, QueryScalar};
use sqlx::{ConnectOptions as _, PgConnection, Postgres, SqlStr, query, query_scalar, raw_sql};

use super::Sql;
use crate::backend::SqlResult;
use crate::config::{Names, Tables};

/// A setting of nobody's, by which a connection of ours is known to have reached the server: a pooler refuses the
/// options of a connection, or ignores them.
pub(super) const DIRECT: (&str, &str) = ("outbox.direct", "on");

/// A prepared statement has the name that the driver gave it, which other connections of the pooler give to theirs.
const NAMES_MEET: &str = "a pooler stands between the consumers and the server, and passes on the names of prepared statements, \
                          which sqlx gives to others as well; have the pooler keep them apart (PgBouncer 1.21 and newer: \
                          max_prepared_statements above 0), or connect with `PgConnectOptions::statement_cache_capacity(0)`";

pub(crate) struct Server {
    sql: Sql,
    /// Statements are prepared once for a connection. Without names each is prepared anew: sqlx gives every other statement a
    /// name, whatever its cache may hold.
    named: AtomicBool,
    /// A connection may be another session of the server for each transaction.
    pooled: AtomicBool,
}

impl std::ops::Deref for Server {
    type Target = Sql;

    fn deref(&self) -> &Sql {
        &self.sql
    }
}

impl Server {
    pub(super) fn render(tables: &Tables, names: &Names) -> Self {
        let sql = Sql::render(tables, names);
        Self { sql, named: AtomicBool::new(true), pooled: AtomicBool::new(false) }
    }

    /// Whoever lets the driver keep no statements connects through what cannot keep them.
    pub(super) fn adapt(&self, options: &PgConnectOptions) {
        let url = options.to_url_lossy();
        let capacity = url.query_pairs().find(|(name, _)| name == "statement-cache-capacity");
        self.named.store(capacity.is_none_or(|(_, capacity)| capacity != "0"), Ordering::Relaxed);
    }

    pub(super) fn query(&self, statement: &SqlStr) -> Query<'static, Postgres, PgArguments> {
        query(statement.clone()).persistent(self.is_named())
    }

    pub(super) fn query_scalar<T>(&self, statement: &SqlStr) -> QueryScalar<'static, Postgres, T, PgArguments>
    where
        (T,): for<'r> sqlx::FromRow<'r, PgRow>,
    {
        query_scalar(statement.clone()).persistent(self.is_named())
    }

    pub(super) fn is_named(&self) -> bool {
        self.named.load(Ordering::Relaxed)
    }

    pub(super) fn is_pooled(&self) -> bool {
        self.pooled.load(Ordering::Relaxed)
    }

    pub(super) fn set_pooled(&self, pooled: bool) {
        self.pooled.store(pooled, Ordering::Relaxed);
    }

    /// Why statements cannot be prepared by this way, if they cannot. In a transaction, which is aborted where that shows.
    pub(super) async fn names_meet(&self, conn: &mut PgConnection) -> SqlResult<Option<String>> {
        if !self.is_pooled() || !self.is_named() {
            return Ok(None);
        }
        match query_scalar(self.prepared_names.clone()).fetch_one(&mut *conn).await {
            Ok(false) => Ok(None),
            Ok(true) => {
                sqlx::Connection::clear_cached_statements(conn).await?;
                Ok(Some(NAMES_MEET.to_owned()))
            }
            // Duplicate_prepared_statement: another's, on this server.
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some("42P05") => {
                Ok(Some(NAMES_MEET.to_owned()))
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether a connection by [`DIRECT`] has reached the server. As text, which needs no preparing.
pub(super) async fn is_direct(conn: &mut PgConnection) -> SqlResult<bool> {
    let row =
        raw_sql("select coalesce(current_setting('outbox.direct', true), '') = 'on'").fetch_one(conn).await?;
    sqlx::Row::try_get(&row, 0)
}
