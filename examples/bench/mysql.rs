//! MySQL and MariaDB: a database for each run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::Context as _;
use outbox::Outbox;
use sqlx::mysql::{MySqlConnectOptions, MySqlDatabaseError, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, Connection as _, MySql, MySqlConnection, Pool, Row as _};

use crate::args::Args;
use crate::database::{Counters, Database, Side, alike};
use crate::verify::Effect;

/// What speed depends on. Neither server has all of them.
const SETTINGS: &str = "
    show global variables where variable_name in (
        'version', 'version_comment', 'innodb_flush_log_at_trx_commit', 'innodb_flush_method', 'innodb_doublewrite',
        'innodb_buffer_pool_size', 'innodb_log_file_size', 'innodb_redo_log_capacity', 'innodb_autoinc_lock_mode',
        'log_bin', 'sync_binlog', 'binlog_format', 'transaction_isolation', 'tx_isolation')";

impl Database for MySql {
    const BEGIN: &'static str = "start transaction";
    const PIN: &'static str =
        "set transaction isolation level repeatable read; start transaction with consistent snapshot";
    const UNREPORTED: i64 = 0;

    type Keep = ();

    async fn create(args: &Args, _: bool) -> anyhow::Result<((), String)> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let database = format!("outbox_bench_{}_{number}", std::process::id());
        let mut conn = MySqlConnection::connect_with(&options(args)?).await.context("cannot connect")?;
        let sql = format!("drop database if exists {database}; create database {database}");
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut conn).await.context("cannot make a database")?;
        conn.close().await?;
        Ok(((), database))
    }

    async fn connect(args: &Args, place: &str, _: bool) -> anyhow::Result<Pool<Self>> {
        let pool = MySqlPoolOptions::new().max_connections(u32::from(args.executors) + 4);
        Ok(pool.connect_with(options(args)?.database(place)).await?)
    }

    fn outbox(pool: Pool<Self>, _: &str) -> anyhow::Result<Outbox<Self>> {
        Ok(Outbox::new(pool))
    }

    async fn create_tables(conn: &mut MySqlConnection) -> sqlx::Result<()> {
        let sql = "
            create table bench_effect (id bigint not null auto_increment primary key, consumer smallint not null,
                                       message bigint not null, msg_key bigint not null) engine = InnoDB;
            create table bench_raw like bench_effect;
            create table bench_follow_up like bench_effect;
            create table bench_event (seq bigint not null auto_increment primary key, id varchar(255) not null unique,
                                      event_type varchar(255) not null, aggregate_id varchar(255), payload longblob not null,
                                      created_at datetime(6) not null default current_timestamp(6)) engine = InnoDB;
            create table bench_hot (id bigint not null primary key, n bigint not null) engine = InnoDB;
            insert into bench_hot (id, n)
            with recursive n(i) as (select 0 union all select i + 1 from n where i < 199) select i, 0 from n;";
        sqlx::raw_sql(sql).execute(conn).await.map(drop)
    }

    async fn remove(args: &Args, place: &str) -> anyhow::Result<()> {
        let mut conn = MySqlConnection::connect_with(&options(args)?).await?;
        sqlx::raw_sql(AssertSqlSafe(format!("drop database {place}"))).execute(&mut conn).await?;
        Ok(conn.close().await?)
    }

    async fn insert_many(conn: &mut MySqlConnection, side: Side, effects: &[Effect]) -> sqlx::Result<()> {
        let table = match side {
            Side::Outbox => "bench_effect",
            Side::Raw => "bench_raw",
        };
        let mut sql = format!("insert into {table} (consumer, message, msg_key) values ");
        for (at, Effect { consumer, message, key }) in effects.iter().enumerate() {
            let comma = if at > 0 { ", " } else { "" };
            write!(sql, "{comma}({consumer}, {message}, {key})").expect("a string takes everything");
        }
        if effects.is_empty() {
            return Ok(());
        }
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(conn).await.map(drop)
    }

    async fn insert_history(conn: &mut MySqlConnection, count: i64) -> sqlx::Result<()> {
        // The order slots, squared, are numbers to count by.
        let sql = "
            insert into outbox_message (id, event_type, version, topic, aggregate_id, msg_key, key_hash, slot,
                                        payload, payload_size, content_type)
            select concat('history-', i), 'bench.history', 1, 'bench', i % 5000, concat('bench', char(31), i % 5000),
                   i % 5000, i % 65536, concat('{\"message\":', i, ',\"key\":', i % 5000, '}'), 25, 'application/json'
            from (select a.slot * 65536 + b.slot + 1 as i
                  from outbox_order_slot a straight_join outbox_order_slot b
                  where a.slot * 65536 < ? and b.slot < 65536) n
            where i <= ?";
        sqlx::query(sql).bind(count).bind(count).execute(&mut *conn).await?;
        let sql = "
            insert into outbox_inbox (consumer, message_id)
            select c.id, m.id from outbox_message m cross join outbox_consumer c
            where m.event_type = 'bench.history' and c.name <> 'follower'";
        sqlx::raw_sql(sql).execute(conn).await.map(drop)
    }

    async fn insert_parked(conn: &mut MySqlConnection, count: i64) -> sqlx::Result<()> {
        let sql = "
            insert into outbox_parked (consumer, lane, key_hash, seq, state, attempts, total_attempts, due_at,
                                       last_error, first_failed_at)
            select c.id, i % c.lanes, -1000000000000 - i, 1000000000000 + i, 0, 1, 1,
                   utc_timestamp(6) + interval 1 hour, 'parked by the benchmark', utc_timestamp(6)
            from (select a.slot * 65536 + b.slot + 1 as i
                  from outbox_order_slot a straight_join outbox_order_slot b
                  where a.slot * 65536 < ? and b.slot < 65536) n
            cross join outbox_consumer c
            where c.name = 'c0' and i <= ?";
        sqlx::query(sql).bind(count).bind(count).execute(conn).await.map(drop)
    }

    /// Commits are those that somebody has sent; a statement outside of a transaction is none.
    async fn counters(conn: &mut MySqlConnection, _: &str) -> anyhow::Result<Counters> {
        let sql = "show global status
                   where variable_name in ('Com_commit', 'Com_xa_commit', 'Innodb_os_log_written')";
        let counted = table(conn, sql).await?;
        let number = |name: &str| counted.get(name)?.parse::<i64>().ok();
        let commits = number("Com_commit").zip(number("Com_xa_commit")).map(|(own, xa)| own + xa);
        Ok(Counters { commits, wal_bytes: number("Innodb_os_log_written") })
    }

    async fn server_process(conn: &mut MySqlConnection) -> Option<u32> {
        let sql = "show global variables where variable_name in ('hostname', 'datadir', 'pid_file')";
        let server = table(conn, sql).await.ok()?;
        let here = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
        if server.get("hostname").map(String::as_str) != Some(here.trim()) {
            return None;
        }
        let file = Path::new(server.get("datadir")?).join(server.get("pid_file")?);
        let process = std::fs::read_to_string(file).ok()?.trim().parse().ok()?;
        Some(process).filter(|process| crate::cpu::is_named(*process, &["mariadbd", "mysqld"]))
    }

    async fn settings(conn: &mut MySqlConnection) -> anyhow::Result<BTreeMap<String, String>> {
        Ok(table(conn, SETTINGS).await?)
    }

    fn is_conflict(error: &sqlx::Error) -> bool {
        let error =
            error.as_database_error().and_then(|error| error.try_downcast_ref::<MySqlDatabaseError>());
        // Lock wait timeout, deadlock, a row that is newer than the snapshot.
        error.is_some_and(|error| [1205, 1213, 1020].contains(&error.number()))
    }

    alike!("?", "?, ?, ?", "?, ?, ?, ?");
}

/// Names and their values.
async fn table(conn: &mut MySqlConnection, sql: &'static str) -> sqlx::Result<BTreeMap<String, String>> {
    let rows = sqlx::raw_sql(sql).fetch_all(conn).await?;
    rows.iter().map(|row| Ok((row.try_get(0)?, row.try_get(1)?))).collect()
}

fn options(args: &Args) -> anyhow::Result<MySqlConnectOptions> {
    let url = args.database_url.as_deref().context("--backend mysql needs --database-url")?;
    url.parse().context("--database-url is no URL of MySQL")
}
