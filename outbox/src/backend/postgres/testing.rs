//! What tests need of PostgreSQL.

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{Connection as _, PgConnection, PgPool, Postgres, SqlStr, query, raw_sql};
use uuid::Uuid;

use super::consuming::message;
use crate::backend::{SqlResult, Storage, StoredMessage, Testing, micros, statement};
use crate::config::{Shift, Tables};

/// How long the database's end is waited for.
const PATIENCE: Duration = Duration::from_secs(30);

impl Testing for Postgres {
    const CLOCK: Shift =
        Shift { query: include_str!("../sql/postgres/testing/clock_read.sql"), unit: ("", "") };

    type Keep = Keep;

    async fn create(server: Option<&str>) -> SqlResult<(Keep, PgPool)> {
        let server: PgConnectOptions = server.unwrap_or_default().parse()?;
        let name = format!("outbox_test_{}", Uuid::now_v7().simple());
        // Of template0, to which nobody can be connected: a database that somebody uses cannot be copied.
        administer(&server, format!("create database {name} template template0")).await?;
        let keep = Keep { server: server.clone(), name: name.clone() };
        let pool = PgPoolOptions::new().connect_with(server.database(&name)).await?;
        Ok((keep, pool))
    }

    async fn make_clock(conn: &mut PgConnection, tables: &Tables) -> SqlResult<()> {
        raw_sql(rendered(tables, include_str!("../sql/postgres/testing/clock_make.sql")))
            .execute(conn)
            .await
            .map(drop)
    }

    async fn advance_clock(conn: &mut PgConnection, tables: &Tables, by: Duration) -> SqlResult<u64> {
        let sql = rendered(tables, include_str!("../sql/postgres/testing/clock_advance.sql"));
        Ok(query(sql).bind(micros(by)).execute(conn).await?.rows_affected())
    }

    async fn messages(conn: &mut PgConnection, tables: &Tables) -> SqlResult<Vec<StoredMessage>> {
        let sql = rendered(tables, include_str!("../sql/postgres/testing/messages.sql"));
        let rows = query(sql).fetch_all(conn).await?;
        rows.iter().filter_map(|row| message(row).transpose()).collect()
    }
}

fn rendered(tables: &Tables, sql: &str) -> SqlStr {
    statement(tables.render(sql, &Postgres::names()))
}

async fn administer(server: &PgConnectOptions, sql: String) -> SqlResult<()> {
    let mut conn = PgConnection::connect_with(server).await?;
    raw_sql(statement(sql)).execute(&mut conn).await?;
    conn.close().await
}

/// Drops its database, whoever is still connected to it.
#[derive(Debug)]
pub(crate) struct Keep {
    server: PgConnectOptions,
    name: String,
}

impl Drop for Keep {
    fn drop(&mut self) {
        let (server, sql) =
            (self.server.clone(), format!("drop database if exists {} with (force)", self.name));
        // A thread of its own: the test's runtime may be this thread's, or be ending.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().ok()?;
            let work = async { tokio::time::timeout(PATIENCE, administer(&server, sql)).await };
            runtime.block_on(work).ok()?.ok()
        });
        // A database that stays behind is in nobody's way.
        let _ = dropping.join();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The statements that say or ask when something is due.
    const TIMED: &[&str] = &[
        "publish_one",
        "publish_many",
        "publish_statement",
        "claim",
        "claim_unlocked",
        "read",
        "park_delivery",
        "park_again",
        "wake_next",
        "requeue",
        "poll",
        "tell",
        "lock_lane",
        "find",
        "lease",
        "lease_renew",
        "claim_message",
        "claim_end",
        "message_batch",
        "message_prune",
        "mark_batch",
        "mark_prune",
        "dead_old",
        "discard_old",
    ];

    #[test]
    fn only_a_moved_clock_is_in_the_statements_and_only_where_something_is_due() {
        let tables = Tables::new("", "app_").expect("valid");
        let plain = Postgres::render(&tables, &Postgres::names()).all();
        let moved = Postgres::render(&tables.with_clock(Postgres::CLOCK), &Postgres::names()).all();
        for ((name, plain), (_, moved)) in plain.iter().zip(&moved) {
            let (plain, moved) = (plain.as_str(), moved.as_str());
            assert!(!plain.contains("/*now*/") && !plain.contains("test_clock"), "{name}");
            assert_eq!(moved.contains("app_outbox_test_clock"), TIMED.contains(name), "{name}");
            assert_eq!(moved == plain, !TIMED.contains(name), "{name}");
        }
    }
}
