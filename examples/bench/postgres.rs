//! PostgreSQL: a schema for each run.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use outbox::{Config, Outbox, Tables};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Pool, Postgres};

use crate::args::Args;
use crate::database::{Counters, Database, Side, alike};
use crate::verify::Effect;

/// What speed depends on.
const SETTINGS: &[&str] = &[
    "server_version",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "wal_level",
    "wal_sync_method",
    "commit_delay",
    "shared_buffers",
    "max_wal_size",
    "checkpoint_timeout",
    "autovacuum",
    "track_io_timing",
    "default_transaction_isolation",
];

impl Database for Postgres {
    const BEGIN: &'static str = "begin";
    const PIN: &'static str = "begin isolation level repeatable read";
    /// BEGIN.
    const UNREPORTED: i64 = 1;

    type Keep = ();

    async fn create(args: &Args, _: bool) -> anyhow::Result<((), String)> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let schema = format!("outbox_bench_{}_{number}", std::process::id());
        let mut conn = PgConnection::connect_with(&options(args)?).await.context("cannot connect")?;
        let sql = format!("drop schema if exists {schema} cascade; create schema {schema}");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await.context("cannot make a schema")?;
        conn.close().await?;
        Ok(((), schema))
    }

    async fn connect(args: &Args, place: &str, _: bool) -> anyhow::Result<Pool<Self>> {
        let options = options(args)?.options([("search_path", place)]);
        let pool = PgPoolOptions::new().max_connections(u32::from(args.executors) + 4);
        Ok(pool.connect_with(options).await?)
    }

    fn outbox(pool: Pool<Self>, place: &str) -> anyhow::Result<Outbox<Self>> {
        let tables = Tables::new(place, "")?;
        Ok(Outbox::with_config(pool, Config { tables, ..Config::default() }))
    }

    async fn create_tables(conn: &mut PgConnection) -> sqlx::Result<()> {
        let sql = "
            create table bench_effect (id bigint generated always as identity primary key, consumer smallint not null,
                                       message bigint not null, msg_key bigint not null);
            create table bench_raw (like bench_effect including all);
            create table bench_follow_up (like bench_effect including all);
            create table bench_event (seq bigint generated always as identity primary key, id text not null unique,
                                      event_type text not null, aggregate_id text, payload bytea not null,
                                      created_at timestamptz not null default now());
            create table bench_hot (id bigint primary key, n bigint not null);
            insert into bench_hot (id, n) select i, 0 from generate_series(0, 199) i;";
        sqlx::raw_sql(sql).execute(conn).await.map(drop)
    }

    async fn remove(args: &Args, place: &str) -> anyhow::Result<()> {
        let mut conn = PgConnection::connect_with(&options(args)?).await?;
        let sql = format!("drop schema {place} cascade");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await?;
        Ok(conn.close().await?)
    }

    async fn insert_many(conn: &mut PgConnection, side: Side, effects: &[Effect]) -> sqlx::Result<()> {
        let sql = match side {
            Side::Outbox => {
                "insert into bench_effect (consumer, message, msg_key)
                 select c, m, k from unnest($1::smallint[], $2::bigint[], $3::bigint[]) with ordinality u(c, m, k, o)
                 order by o"
            }
            Side::Raw => {
                "insert into bench_raw (consumer, message, msg_key)
                 select c, m, k from unnest($1::smallint[], $2::bigint[], $3::bigint[]) with ordinality u(c, m, k, o)
                 order by o"
            }
        };
        let consumers: Vec<i16> = effects.iter().map(|effect| effect.consumer).collect();
        let messages: Vec<i64> = effects.iter().map(|effect| effect.message).collect();
        let keys: Vec<i64> = effects.iter().map(|effect| effect.key).collect();
        sqlx::query(sql).bind(consumers).bind(messages).bind(keys).execute(conn).await.map(drop)
    }

    async fn insert_history(conn: &mut PgConnection, count: i64) -> sqlx::Result<()> {
        let sql = "
            insert into outbox_message (id, event_type, version, topic, aggregate_id, msg_key, key_hash, slot,
                                        payload, payload_size, content_type)
            select 'history-' || i, 'bench.history', 1, 'bench', i % 5000, 'bench' || chr(31) || i % 5000, i % 5000,
                   i % 65536, convert_to('{\"message\":' || i || ',\"key\":' || i % 5000 || '}', 'UTF8'), 25,
                   'application/json'
            from generate_series(1, $1) i";
        sqlx::query(sql).bind(count).execute(&mut *conn).await?;
        let sql = "
            insert into outbox_inbox (consumer, message_id)
            select c.id, m.id from outbox_message m cross join outbox_consumer c
            where m.event_type = 'bench.history' and c.name <> 'follower'";
        sqlx::query(sql).execute(conn).await.map(drop)
    }

    async fn insert_parked(conn: &mut PgConnection, count: i64) -> sqlx::Result<()> {
        let sql = "
            insert into outbox_parked (consumer, lane, key_hash, seq, state, attempts, total_attempts, due_at,
                                       last_error, first_failed_at)
            select c.id, i % c.lanes, -1000000000000 - i, 1000000000000 + i, 0, 1, 1, now() + interval '1 hour',
                   'parked by the benchmark', now()
            from generate_series(1, $1) i cross join outbox_consumer c where c.name = 'c0'";
        sqlx::query(sql).bind(count).execute(conn).await.map(drop)
    }

    async fn counters(conn: &mut PgConnection, _: &str) -> anyhow::Result<Counters> {
        // The server's processes hand in what they have counted at their end, and each second while they are idle.
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        let sql = "select xact_commit, (pg_current_wal_insert_lsn() - '0/0')::bigint
                   from pg_stat_database where datname = current_database()";
        let (commits, bytes) = sqlx::query_as(sql).fetch_one(conn).await?;
        Ok(Counters { commits: Some(commits), wal_bytes: Some(bytes) })
    }

    async fn server_process(conn: &mut PgConnection) -> Option<u32> {
        let backend: i32 = sqlx::query_scalar("select pg_backend_pid()").fetch_one(conn).await.ok()?;
        crate::cpu::parent(u32::try_from(backend).ok()?, "postgres")
    }

    async fn settings(conn: &mut PgConnection) -> anyhow::Result<BTreeMap<String, String>> {
        let sql = "select name, setting || coalesce(' ' || unit, '') from pg_settings where name = any($1)";
        let rows: Vec<(String, String)> = sqlx::query_as(sql).bind(SETTINGS).fetch_all(conn).await?;
        Ok(rows.into_iter().collect())
    }

    fn is_conflict(error: &sqlx::Error) -> bool {
        let code = error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
        matches!(code.as_deref(), Some("40001" | "40P01" | "55P03"))
    }

    alike!("$1", "$1, $2, $3", "$1, $2, $3, $4");
}

fn options(args: &Args) -> anyhow::Result<PgConnectOptions> {
    let url = args.database_url.as_deref().context("--backend postgres needs --database-url")?;
    url.parse().context("--database-url is no URL of PostgreSQL")
}
