//! A file in a folder of its own.

use std::time::Duration;

use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{Sqlite, SqlitePool};
use tempfile::TempDir;

use super::{TestBackend, alike, executes};

impl TestBackend for Sqlite {
    const SLOW_QUERY: &'static str = "with recursive n(i) as (values (1) union all select i + 1 from n where i < 500000) select max(i) from n";

    type Keep = TempDir;

    async fn create() -> Option<(TempDir, String)> {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let path = folder.path().join("test.db").to_str().expect("temporary paths are UTF-8").to_owned();
        Some((folder, path))
    }

    async fn connect(address: &str, size: u32) -> sqlx::Result<SqlitePool> {
        let options = SqliteConnectOptions::new()
            .filename(address)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(Duration::from_secs(5));
        SqlitePoolOptions::new().max_connections(size).connect_with(options).await
    }

    async fn create_ledger(conn: &mut Self::Connection) -> sqlx::Result<()> {
        let sql = "create table effects (id integer primary key autoincrement, message_id text not null, \
                   consumer text not null, msg_key text, worker text not null); \
                   create table business (message_id text not null)";
        Self::execute(conn, sql).await
    }

    alike!();
}
