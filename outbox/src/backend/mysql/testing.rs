//! What tests need of MySQL.

use std::time::Duration;

use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{Connection as _, MySql, MySqlConnection, MySqlPool, Row as _, SqlStr, query, raw_sql};
use uuid::Uuid;

use super::consuming::message;
use crate::backend::{SqlResult, Storage, StoredMessage, Testing, micros, statement};
use crate::config::{Shift, Tables};

/// How long the database's end is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

impl Testing for MySql {
    const CLOCK: Shift = Shift {
        query: include_str!("../sql/mysql/testing/clock_read.sql"),
        unit: ("interval ", " microsecond"),
    };

    type Keep = Keep;

    async fn create(server: Option<&str>) -> SqlResult<(Keep, MySqlPool)> {
        let server: MySqlConnectOptions = server.unwrap_or_default().parse()?;
        let name = format!("outbox_test_{}", Uuid::now_v7().simple());
        let mut conn = MySqlConnection::connect_with(&server).await?;
        raw_sql(statement(format!("create database {name}"))).execute(&mut conn).await?;
        conn.close().await?;
        let keep = Keep { server: server.clone(), name: name.clone() };
        let pool = MySqlPoolOptions::new().connect_with(server.database(&name)).await?;
        Ok((keep, pool))
    }

    async fn make_clock(conn: &mut MySqlConnection, tables: &Tables) -> SqlResult<()> {
        raw_sql(rendered(tables, include_str!("../sql/mysql/testing/clock_make.sql")))
            .execute(conn)
            .await
            .map(drop)
    }

    async fn advance_clock(conn: &mut MySqlConnection, tables: &Tables, by: Duration) -> SqlResult<u64> {
        let sql = rendered(tables, include_str!("../sql/mysql/testing/clock_advance.sql"));
        Ok(query(sql).bind(micros(by)).execute(conn).await?.rows_affected())
    }

    async fn messages(conn: &mut MySqlConnection, tables: &Tables) -> SqlResult<Vec<StoredMessage>> {
        let sql = rendered(tables, include_str!("../sql/mysql/testing/messages.sql"));
        let rows = query(sql).fetch_all(conn).await?;
        rows.iter().filter_map(|row| message(row).transpose()).collect()
    }
}

fn rendered(tables: &Tables, sql: &str) -> SqlStr {
    statement(tables.render(sql, &MySql::names()))
}

/// Drops its database, whoever is still connected to it.
#[derive(Debug)]
pub(crate) struct Keep {
    server: MySqlConnectOptions,
    name: String,
}

impl Drop for Keep {
    fn drop(&mut self) {
        let (server, name) = (self.server.clone(), self.name.clone());
        // A thread of its own: the test's runtime may be this thread's, or be ending.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
            let work = async { tokio::time::timeout(PATIENCE, drop_database(&server, &name)).await };
            runtime.block_on(work).ok()?.ok()
        });
        // A database that stays behind is in nobody's way.
        let _ = dropping.join();
    }
}

/// Ends those who are connected to it first: a transaction that is open there would be waited for.
async fn drop_database(server: &MySqlConnectOptions, name: &str) -> SqlResult<()> {
    let mut conn = MySqlConnection::connect_with(server).await?;
    for row in raw_sql("show full processlist").fetch_all(&mut conn).await? {
        // The two servers have numbers of two kinds for it.
        let id =
            row.try_get::<i64, _>("Id").or_else(|_| row.try_get::<u64, _>("Id").map(u64::cast_signed))?;
        if row.try_get::<Option<String>, _>("db")?.as_deref() == Some(name) {
            // It may have gone by itself.
            let _ = raw_sql(statement(format!("kill {id}"))).execute(&mut conn).await;
        }
    }
    raw_sql(statement(format!("drop database if exists {name}"))).execute(&mut conn).await?;
    conn.close().await
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The statements that say or ask when something is due.
    const TIMED: &[&str] = &[
        "publish_many",
        "runnable",
        "claim",
        "due",
        "park_delivery",
        "park_again",
        "wake_next",
        "requeue",
        "claim_lane",
        "lock_lane",
        "read",
        "read_parked",
        "find",
        "lease",
        "lease_renew",
        "claim_message",
        "claim_end",
        "message_batch",
        "message_prunable",
        "mark_batch",
        "mark_prunable",
        "dead_old",
        "discard_old",
    ];

    #[test]
    fn only_a_moved_clock_is_in_the_statements_and_only_where_something_is_due() {
        let tables = Tables::new("", "app_").expect("valid");
        let plain = MySql::render(&tables, &MySql::names());
        let moved = MySql::render(&tables.with_clock(MySql::CLOCK), &MySql::names());
        for ((name, plain), (_, moved)) in plain.all().iter().zip(&moved.all()) {
            let (plain, moved) = (plain.as_str(), moved.as_str());
            assert!(!plain.contains("/*now*/") && !plain.contains("test_clock"), "{name}");
            assert_eq!(moved.contains("app_outbox_test_clock"), TIMED.contains(name), "{name}");
            assert_eq!(moved == plain, !TIMED.contains(name), "{name}");
        }
    }
}
