//! What differs between the databases, and the tables that a run has.

use std::collections::BTreeMap;

use outbox::Outbox;
use sqlx::{Pool, Transaction};

use crate::args::Args;
use crate::handlers;
use crate::verify::Effect;

/// The rows that `update-hot` fights for.
pub(crate) const HOT_ROWS: i64 = 200;

/// Whose effects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    Outbox,
    Raw,
}

/// What a database has counted; `None` where it does not say.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Counters {
    pub(crate) commits: Option<i64>,
    /// What was written to the write-ahead log, or the redo log.
    pub(crate) wal_bytes: Option<i64>,
}

/// A database of the benchmark. A new one is a file with this and an arm in `main`.
pub(crate) trait Database: outbox::Backend {
    /// Begins a transaction that writes.
    const BEGIN: &'static str;
    /// Begins one that keeps the snapshot of its first query.
    const PIN: &'static str;
    /// The statements of a transaction that sqlx does not report: see `count`.
    const UNREPORTED: i64;

    /// Removes what was made when it is dropped, as far as that can be done then.
    type Keep: Send + Sync;

    /// Makes a place without tables, and says where it is. `counting` = so that [`counters`](Self::counters) can count.
    async fn create(args: &Args, counting: bool) -> anyhow::Result<(Self::Keep, String)>;

    /// Connects to a place, also from another process.
    async fn connect(args: &Args, place: &str, counting: bool) -> anyhow::Result<Pool<Self>>;

    /// The outbox at a place.
    fn outbox(pool: Pool<Self>, place: &str) -> anyhow::Result<Outbox<Self>>;

    /// Makes the application's tables.
    async fn create_tables(conn: &mut Self::Connection) -> sqlx::Result<()>;

    /// Removes a place.
    async fn remove(args: &Args, place: &str) -> anyhow::Result<()>;

    /// The smallest thing that can be asked for.
    fn nothing(conn: &mut Self::Connection) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// The handlers' insert.
    fn insert(
        conn: &mut Self::Connection,
        side: Side,
        effect: Effect,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// The handlers' update of one hot row.
    fn update_hot(conn: &mut Self::Connection, row: i64) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// What the raw loop writes in place of a follow-up.
    fn insert_follow_up(
        conn: &mut Self::Connection,
        effect: Effect,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// What an outbox that is written by hand inserts.
    fn insert_event(
        conn: &mut Self::Connection,
        effect: Effect,
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Many of the handlers' inserts in one statement.
    fn insert_many(
        conn: &mut Self::Connection,
        side: Side,
        effects: &[Effect],
    ) -> impl Future<Output = sqlx::Result<()>> + Send;

    /// Stores so many messages that are handled and marked.
    async fn insert_history(conn: &mut Self::Connection, count: i64) -> sqlx::Result<()>;

    /// Parks so many messages of keys of their own for an hour.
    async fn insert_parked(conn: &mut Self::Connection, count: i64) -> sqlx::Result<()>;

    /// The one number that a query returns.
    async fn number(conn: &mut Self::Connection, sql: &'static str) -> sqlx::Result<i64>;

    /// The effects in the order in which they were written.
    async fn effects(conn: &mut Self::Connection, side: Side) -> sqlx::Result<Vec<Effect>>;

    /// The payloads of an event type in the order of their publishes.
    async fn payloads(conn: &mut Self::Connection, event_type: &str) -> sqlx::Result<Vec<Vec<u8>>>;

    /// What has been counted until now.
    async fn counters(conn: &mut Self::Connection, place: &str) -> anyhow::Result<Counters>;

    /// The id of the server's process, if it runs on this machine.
    async fn server_process(conn: &mut Self::Connection) -> Option<u32>;

    /// The settings that speed depends on, and the version.
    async fn settings(conn: &mut Self::Connection) -> anyhow::Result<BTreeMap<String, String>>;

    /// Whether a transaction should be run again.
    fn is_conflict(error: &sqlx::Error) -> bool;
}

/// Tables of one's own, until the end of [`with`](Self::with).
pub(crate) struct Place<DB: Database> {
    pub(crate) pool: Pool<DB>,
    pub(crate) outbox: Outbox<DB>,
    pub(crate) address: String,
}

impl<DB: Database> Place<DB> {
    /// Makes the tables, registers the consumers, and removes everything in the end, however that comes.
    pub(crate) async fn with<R>(
        args: &Args,
        counting: bool,
        run: impl AsyncFnOnce(&Self) -> anyhow::Result<R>,
    ) -> anyhow::Result<R> {
        let (keep, address) = DB::create(args, counting).await?;
        let ran = async {
            let pool = DB::connect(args, &address, counting).await?;
            let place = Self { outbox: DB::outbox(pool.clone(), &address)?, pool, address: address.clone() };
            DB::create_tables(&mut *place.pool.acquire().await?).await?;
            place.outbox.migrate().await?;
            handlers::register(&place.outbox, args).await?;
            let ran = run(&place).await;
            place.pool.close().await;
            ran
        }
        .await;
        let removed = DB::remove(args, &address).await;
        drop(keep);
        let ran = ran?;
        removed?;
        Ok(ran)
    }

    /// A transaction that keeps everything which is deleted from now on, where that is asked for.
    pub(crate) async fn pin(&self, args: &Args) -> anyhow::Result<Option<Transaction<'static, DB>>> {
        if !args.pinned_snapshot {
            return Ok(None);
        }
        let mut tx = self.pool.begin_with(DB::PIN).await?;
        DB::number(&mut tx, "select count(*) from bench_hot").await?;
        Ok(Some(tx))
    }

    /// The one number that a query returns.
    pub(crate) async fn number(&self, sql: &'static str) -> anyhow::Result<i64> {
        Ok(DB::number(&mut *self.pool.acquire().await?, sql).await?)
    }
}

/// The methods that read alike on all databases but for their parameters, and that sqlx offers for each alone.
macro_rules! alike {
    ($one:literal, $three:literal, $four:literal) => {
        async fn nothing(conn: &mut Self::Connection) -> sqlx::Result<()> {
            sqlx::query("select 1").execute(conn).await.map(drop)
        }

        async fn insert(conn: &mut Self::Connection, side: Side, effect: Effect) -> sqlx::Result<()> {
            let sql = match side {
                Side::Outbox => {
                    concat!("insert into bench_effect (consumer, message, msg_key) values (", $three, ")")
                }
                Side::Raw => {
                    concat!("insert into bench_raw (consumer, message, msg_key) values (", $three, ")")
                }
            };
            let insert = sqlx::query(sql).bind(effect.consumer).bind(effect.message).bind(effect.key);
            insert.execute(conn).await.map(drop)
        }

        async fn update_hot(conn: &mut Self::Connection, row: i64) -> sqlx::Result<()> {
            sqlx::query(concat!("update bench_hot set n = n + 1 where id = ", $one))
                .bind(row)
                .execute(conn)
                .await
                .map(drop)
        }

        async fn insert_follow_up(conn: &mut Self::Connection, effect: Effect) -> sqlx::Result<()> {
            let sql =
                concat!("insert into bench_follow_up (consumer, message, msg_key) values (", $three, ")");
            let insert = sqlx::query(sql).bind(effect.consumer).bind(effect.message).bind(effect.key);
            insert.execute(conn).await.map(drop)
        }

        async fn insert_event(conn: &mut Self::Connection, effect: Effect) -> sqlx::Result<()> {
            let Effect { message, key, .. } = effect;
            let payload = serde_json::to_vec(&crate::handlers::Happened { message, key });
            let sql = concat!(
                "insert into bench_event (id, event_type, aggregate_id, payload) values (",
                $four,
                ")"
            );
            sqlx::query(sql)
                .bind(uuid::Uuid::now_v7().to_string())
                .bind("bench.happened")
                .bind(key.to_string())
                .bind(payload.expect("numbers are JSON"))
                .execute(conn)
                .await
                .map(drop)
        }

        async fn number(conn: &mut Self::Connection, sql: &'static str) -> sqlx::Result<i64> {
            sqlx::query_scalar(sql).fetch_one(conn).await
        }

        async fn effects(conn: &mut Self::Connection, side: Side) -> sqlx::Result<Vec<Effect>> {
            let sql = match side {
                Side::Outbox => "select consumer, message, msg_key from bench_effect order by id",
                Side::Raw => "select consumer, message, msg_key from bench_raw order by id",
            };
            let rows: Vec<(i16, i64, i64)> = sqlx::query_as(sql).fetch_all(conn).await?;
            Ok(rows.into_iter().map(|(consumer, message, key)| Effect { consumer, message, key }).collect())
        }

        async fn payloads(conn: &mut Self::Connection, event_type: &str) -> sqlx::Result<Vec<Vec<u8>>> {
            let sql =
                concat!("select payload from outbox_message where event_type = ", $one, " order by seq");
            sqlx::query_scalar(sql).bind(event_type).fetch_all(conn).await
        }
    };
}
pub(crate) use alike;
