//! SQLite: a new file for each run.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use outbox::Outbox;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{Pool, Sqlite, SqliteConnection};
use tempfile::TempDir;

use crate::args::Args;
use crate::database::{Counters, Database, Side, alike};
use crate::verify::Effect;

impl Database for Sqlite {
    const BEGIN: &'static str = "begin immediate";
    const PIN: &'static str = "begin";
    /// BEGIN and COMMIT.
    const UNREPORTED: i64 = 2;

    type Keep = TempDir;

    async fn create(args: &Args, _: bool) -> anyhow::Result<(TempDir, String)> {
        let folder = match &args.database_url {
            Some(url) => tempfile::tempdir_in(folder(url)),
            None => tempfile::tempdir(),
        };
        let folder = folder.context("no folder can be made for the database")?;
        let path =
            folder.path().join("bench.db").to_str().context("the folder's path is not UTF-8")?.to_owned();
        Ok((folder, path))
    }

    async fn connect(args: &Args, place: &str, counting: bool) -> anyhow::Result<Pool<Self>> {
        let mut options = SqliteConnectOptions::new()
            .filename(place)
            .create_if_missing(true)
            .journal_mode(SqliteJournalMode::Wal)
            .busy_timeout(Duration::from_mins(1));
        if counting {
            // The log is counted, so nothing of it may go.
            options = options.pragma("wal_autocheckpoint", "0");
        }
        let pool = SqlitePoolOptions::new().min_connections(1).max_connections(u32::from(args.executors) + 4);
        Ok(pool.connect_with(options).await?)
    }

    fn outbox(pool: Pool<Self>, _: &str) -> anyhow::Result<Outbox<Self>> {
        Ok(Outbox::new(pool))
    }

    async fn create_tables(conn: &mut SqliteConnection) -> sqlx::Result<()> {
        let sql = "
            create table bench_effect (id integer primary key autoincrement, consumer integer not null,
                                       message integer not null, msg_key integer not null);
            create table bench_raw (id integer primary key autoincrement, consumer integer not null,
                                    message integer not null, msg_key integer not null);
            create table bench_follow_up (id integer primary key autoincrement, consumer integer not null,
                                          message integer not null, msg_key integer not null);
            create table bench_event (seq integer primary key autoincrement, id text not null unique,
                                      event_type text not null, aggregate_id text, payload blob not null,
                                      created_at text not null default current_timestamp);
            create table bench_hot (id integer primary key, n integer not null);
            insert into bench_hot (id, n)
            with recursive n(i) as (values (0) union all select i + 1 from n where i < 199) select i, 0 from n;";
        sqlx::raw_sql(sql).execute(conn).await.map(drop)
    }

    async fn remove(_: &Args, _: &str) -> anyhow::Result<()> {
        Ok(())
    }

    async fn insert_many(conn: &mut SqliteConnection, side: Side, effects: &[Effect]) -> sqlx::Result<()> {
        let rows: Vec<(i16, i64, i64)> =
            effects.iter().map(|effect| (effect.consumer, effect.message, effect.key)).collect();
        let rows = serde_json::to_string(&rows).expect("numbers are JSON");
        let sql = match side {
            Side::Outbox => {
                "insert into bench_effect (consumer, message, msg_key)
                 select value ->> 0, value ->> 1, value ->> 2 from json_each($1) order by key"
            }
            Side::Raw => {
                "insert into bench_raw (consumer, message, msg_key)
                 select value ->> 0, value ->> 1, value ->> 2 from json_each($1) order by key"
            }
        };
        sqlx::query(sql).bind(rows).execute(conn).await.map(drop)
    }

    async fn insert_history(conn: &mut SqliteConnection, count: i64) -> sqlx::Result<()> {
        let sql = "
            insert into outbox_message (id, event_type, version, topic, aggregate_id, msg_key, key_hash, slot,
                                        payload, payload_size, content_type)
            with recursive n(i) as (select 1 where $1 > 0 union all select i + 1 from n where i < $1)
            select 'history-' || i, 'bench.history', 1, 'bench', i % 5000, 'bench' || char(31) || i % 5000, i % 5000,
                   i % 65536, cast('{\"message\":' || i || ',\"key\":' || i % 5000 || '}' as blob), 25,
                   'application/json'
            from n";
        sqlx::query(sql).bind(count).execute(&mut *conn).await?;
        let sql = "
            insert into outbox_inbox (consumer, message_id)
            select c.id, m.id from outbox_message m cross join outbox_consumer c
            where m.event_type = 'bench.history' and c.name <> 'follower';
            delete from outbox_unrouted";
        sqlx::raw_sql(sql).execute(conn).await.map(drop)
    }

    async fn insert_parked(conn: &mut SqliteConnection, count: i64) -> sqlx::Result<()> {
        let sql = "
            insert into outbox_parked (consumer, lane, key_hash, seq, state, attempts, total_attempts, due_at,
                                       last_error, first_failed_at)
            with recursive n(i) as (select 1 where $1 > 0 union all select i + 1 from n where i < $1)
            select c.id, i % c.lanes, -1000000000000 - i, 1000000000000 + i, 0, 1, 1,
                   (unixepoch() + 3600) * 1000000, 'parked by the benchmark', unixepoch() * 1000000
            from n cross join outbox_consumer c where c.name = 'c0'";
        sqlx::query(sql).bind(count).execute(conn).await.map(drop)
    }

    async fn counters(_: &mut SqliteConnection, place: &str) -> anyhow::Result<Counters> {
        let log = std::fs::read(format!("{place}-wal")).context("the write-ahead log cannot be read")?;
        let commits = commits(&log).context("the write-ahead log is not as SQLite describes it")?;
        let bytes = i64::try_from(log.len())?;
        Ok(Counters { commits: Some(commits), wal_bytes: Some(bytes) })
    }

    async fn server_process(_: &mut SqliteConnection) -> Option<u32> {
        None
    }

    async fn settings(conn: &mut SqliteConnection) -> anyhow::Result<BTreeMap<String, String>> {
        let mut settings = BTreeMap::new();
        let version: String = sqlx::query_scalar("select sqlite_version()").fetch_one(&mut *conn).await?;
        settings.insert("version".to_owned(), version);
        let journal: String = sqlx::query_scalar("pragma journal_mode").fetch_one(&mut *conn).await?;
        settings.insert("journal_mode".to_owned(), journal);
        for (name, sql) in [
            ("synchronous", "pragma synchronous"),
            ("page_size", "pragma page_size"),
            ("cache_size", "pragma cache_size"),
        ] {
            let value: i64 = sqlx::query_scalar(sql).fetch_one(&mut *conn).await?;
            settings.insert(name.to_owned(), value.to_string());
        }
        Ok(settings)
    }

    fn is_conflict(error: &sqlx::Error) -> bool {
        let code = error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
        matches!(code.as_deref(), Some("5" | "6" | "517"))
    }

    alike!("$1", "$1, $2, $3", "$1, $2, $3, $4");
}

/// The folder of a URL, of a path, or of a file.
fn folder(url: &str) -> PathBuf {
    let path = url.strip_prefix("sqlite:").unwrap_or(url);
    let path = Path::new(path.strip_prefix("//").unwrap_or(path).split('?').next().unwrap_or_default());
    match path.parent() {
        Some(parent) if !path.is_dir() => parent.to_owned(),
        _ => path.to_owned(),
    }
}

/// The commits in a write-ahead log from which nothing has gone: the frames that say how large the database is now.
///
/// <https://www.sqlite.org/fileformat2.html#the_write_ahead_log>
fn commits(log: &[u8]) -> Option<i64> {
    const HEADER: usize = 32;
    const FRAME: usize = 24;
    let word = |bytes: &[u8]| Some(u32::from_be_bytes(bytes.get(..4)?.try_into().ok()?));
    let page = usize::try_from(word(log.get(8..)?)?).ok()?;
    let frames = log.get(HEADER..)?.chunks_exact(FRAME + page);
    let commits = frames.filter(|frame| word(&frame[4..]).is_some_and(|pages| pages != 0));
    i64::try_from(commits.count()).ok()
}
