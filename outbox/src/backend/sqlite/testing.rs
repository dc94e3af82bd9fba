//! What tests need of SQLite.

use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{SqlStr, Sqlite, SqliteConnection, SqlitePool, query, raw_sql};
use tempfile::TempDir;

use super::consuming::message;
use crate::backend::{SqlResult, Storage, StoredMessage, Testing, micros, statement};
use crate::config::{Shift, Tables};

impl Testing for Sqlite {
    const CLOCK: Shift =
        Shift { query: include_str!("../sql/sqlite/testing/clock_read.sql"), unit: ("", "") };

    type Keep = TempDir;

    /// A file, since a database in memory exists in one connection only: a test could not look at it while it has a
    /// transaction open.
    async fn create(_: Option<&str>) -> SqlResult<(TempDir, SqlitePool)> {
        let folder = tempfile::tempdir()?;
        let options = SqliteConnectOptions::new()
            .filename(folder.path().join("outbox.db"))
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(Duration::from_secs(30));
        let pool = SqlitePoolOptions::new().connect_with(options).await?;
        Ok((folder, pool))
    }

    async fn make_clock(conn: &mut SqliteConnection, tables: &Tables) -> SqlResult<()> {
        raw_sql(rendered(tables, include_str!("../sql/sqlite/testing/clock_make.sql")))
            .execute(conn)
            .await
            .map(drop)
    }

    async fn advance_clock(conn: &mut SqliteConnection, tables: &Tables, by: Duration) -> SqlResult<u64> {
        let sql = rendered(tables, include_str!("../sql/sqlite/testing/clock_advance.sql"));
        Ok(query(sql).bind(micros(by)).execute(conn).await?.rows_affected())
    }

    async fn messages(conn: &mut SqliteConnection, tables: &Tables) -> SqlResult<Vec<StoredMessage>> {
        let sql = rendered(tables, include_str!("../sql/sqlite/testing/messages.sql"));
        let rows = query(sql).fetch_all(conn).await?;
        rows.iter().filter_map(|row| message(row).transpose()).collect()
    }
}

fn rendered(tables: &Tables, sql: &str) -> SqlStr {
    statement(tables.render(sql, &Sqlite::names()))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The statements that say or ask when something is due.
    const TIMED: &[&str] = &[
        "publish_one",
        "publish_statement",
        "runnable",
        "claim",
        "read",
        "park_delivery",
        "park_again",
        "wake_next",
        "requeue",
        "lock_lane",
        "find",
        "lease",
        "lease_renew",
        "claim_message",
        "claim_end",
        "message_batch",
        "message_prunable",
        "mark_batch",
        "mark_prune",
        "dead_old",
        "discard_old",
    ];

    #[test]
    fn only_a_moved_clock_is_in_the_statements_and_only_where_something_is_due() {
        let tables = Tables::new("", "app_").expect("valid");
        let plain = Sqlite::render(&tables, &Sqlite::names()).all();
        let moved = Sqlite::render(&tables.with_clock(Sqlite::CLOCK), &Sqlite::names()).all();
        for ((name, plain), (_, moved)) in plain.iter().zip(&moved) {
            let (plain, moved) = (plain.as_str(), moved.as_str());
            assert!(!plain.contains("/*now*/") && !plain.contains("test_clock"), "{name}");
            assert_eq!(moved.contains("app_outbox_test_clock"), TIMED.contains(name), "{name}");
            assert_eq!(moved == plain, !TIMED.contains(name), "{name}");
        }
    }
}
