//! Registering on PostgreSQL.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Postgres, Row as _};

use super::Server;
use crate::backend::{ConsumerRow, Range, Registering, SqlResult};

impl Registering for Postgres {
    const WATERMARK: Option<Duration> = Some(Duration::from_secs(30));

    async fn lock_registry(conn: &mut PgConnection, sql: &Server) -> SqlResult<()> {
        sql.query(&sql.registry_lock).fetch_one(conn).await.map(drop)
    }

    async fn consumer(conn: &mut PgConnection, sql: &Server, name: &str) -> SqlResult<Option<ConsumerRow>> {
        let row = sql.query(&sql.consumer_find).bind(name).fetch_optional(conn).await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(ConsumerRow {
            id: row.try_get("id")?,
            lanes: row.try_get("lanes")?,
            name: row.try_get("name")?,
            first_name: row.try_get("first_name")?,
        }))
    }

    async fn add_consumer(conn: &mut PgConnection, sql: &Server, name: &str, lanes: i16) -> SqlResult<u64> {
        let add = sql.query(&sql.consumer_add).bind(name).bind(lanes);
        Ok(add.execute(conn).await?.rows_affected())
    }

    async fn add_lanes(conn: &mut PgConnection, sql: &Server, name: &str) -> SqlResult<()> {
        sql.query(&sql.consumer_lanes).bind(name).execute(conn).await.map(drop)
    }

    async fn add_name(conn: &mut PgConnection, sql: &Server, name: &str, present: &str) -> SqlResult<u64> {
        let add = sql.query(&sql.consumer_name).bind(name).bind(present);
        Ok(add.execute(conn).await?.rows_affected())
    }

    async fn rename_consumer(
        conn: &mut PgConnection,
        sql: &Server,
        consumer: i16,
        present: &str,
        name: &str,
    ) -> SqlResult<u64> {
        let rename = sql.query(&sql.consumer_rename).bind(consumer).bind(present).bind(name);
        Ok(rename.execute(conn).await?.rows_affected())
    }

    async fn is_subscribed(
        conn: &mut PgConnection,
        sql: &Server,
        consumer: i16,
        event_type: &str,
    ) -> SqlResult<bool> {
        let find = sql.query_scalar(&sql.subscription_find).bind(event_type).bind(consumer);
        let found: i64 = find.fetch_one(conn).await?;
        Ok(found > 0)
    }

    async fn subscribe(
        conn: &mut PgConnection,
        sql: &Server,
        consumer: i16,
        event_type: &str,
        unrouted: bool,
    ) -> SqlResult<u64> {
        let done =
            sql.query(&sql.subscribe).bind(event_type).bind(consumer).bind(unrouted).execute(conn).await?;
        Ok(done.rows_affected())
    }

    async fn unready(conn: &mut PgConnection, sql: &Server, consumer: i16) -> SqlResult<Vec<String>> {
        sql.query_scalar(&sql.unready).bind(consumer).fetch_all(conn).await
    }

    async fn announce(conn: &mut PgConnection, sql: &Server) -> SqlResult<()> {
        sql.query(&sql.announce).execute(conn).await.map(drop)
    }

    async fn ready(conn: &mut PgConnection, sql: &Server, consumer: i16, event_type: &str) -> SqlResult<u64> {
        let ready = sql.query(&sql.ready).bind(consumer).bind(event_type).execute(conn).await?;
        Ok(ready.rows_affected())
    }

    async fn publishers_in_flight(
        conn: &mut PgConnection,
        sql: &Server,
        known: &HashSet<String>,
    ) -> SqlResult<HashSet<String>> {
        let all: Vec<String> = sql.query_scalar(&sql.in_flight).fetch_all(conn).await?;
        Ok(all.into_iter().filter(|transaction| known.is_empty() || known.contains(transaction)).collect())
    }

    async fn in_doubt(conn: &mut PgConnection, sql: &Server) -> SqlResult<Vec<Range>> {
        let rows = sql.query(&sql.in_doubt).fetch_all(conn).await?;
        rows.iter().map(range).collect()
    }

    async fn newest(conn: &mut PgConnection, sql: &Server) -> SqlResult<i64> {
        sql.query_scalar(&sql.newest).fetch_one(conn).await
    }

    async fn raise_watermark(conn: &mut PgConnection, sql: &Server, seq: i64) -> SqlResult<()> {
        sql.query(&sql.watermark).bind(seq).execute(conn).await.map(drop)
    }

    async fn backfill(conn: &mut PgConnection, sql: &Server, event_type: &str, batch: i64) -> SqlResult<u64> {
        let end = sql.query_scalar(&sql.unrouted_end).bind(event_type).bind(batch);
        let end: Option<i64> = end.fetch_one(&mut *conn).await?;
        let Some(end) = end else { return Ok(0) };
        let found: i64 = sql.query_scalar(&sql.backfill).bind(event_type).bind(end).fetch_one(conn).await?;
        Ok(found.unsigned_abs())
    }

    async fn add_ranges(
        conn: &mut PgConnection,
        sql: &Server,
        consumer: i16,
        event_type: &str,
        ranges: &[Range],
        since: Option<SystemTime>,
    ) -> SqlResult<()> {
        sql.query(&sql.range_add)
            .bind(event_type)
            .bind(consumer)
            .bind(ranges.iter().map(|range| range.first).collect::<Vec<_>>())
            .bind(ranges.iter().map(|range| range.last).collect::<Vec<_>>())
            .bind(since.map(DateTime::<Utc>::from))
            .execute(conn)
            .await
            .map(drop)
    }

    async fn next_range(
        conn: &mut PgConnection,
        sql: &Server,
        consumer: i16,
        event_type: &str,
    ) -> SqlResult<Option<(Range, Option<SystemTime>)>> {
        let next = sql.query(&sql.range_next).bind(event_type).bind(consumer);
        let next = next.fetch_optional(conn).await?;
        next.map(|row| {
            Ok((range(&row)?, row.try_get::<Option<DateTime<Utc>>, _>("since")?.map(SystemTime::from)))
        })
        .transpose()
    }

    async fn end_of_batch(
        conn: &mut PgConnection,
        sql: &Server,
        range: Range,
        batch: i64,
    ) -> SqlResult<Option<(i64, u64)>> {
        let end = sql.query(&sql.range_end).bind(range.first).bind(range.last).bind(batch);
        let row = end.fetch_one(conn).await?;
        let count: i64 = row.try_get("messages")?;
        let last: Option<i64> = row.try_get("last_seq")?;
        Ok(last.map(|last| (last, count.unsigned_abs())))
    }

    async fn deliver_range(
        conn: &mut PgConnection,
        sql: &Server,
        consumer: i16,
        event_type: &str,
        range: Range,
        since: Option<SystemTime>,
    ) -> SqlResult<u64> {
        let found: i64 = sql
            .query_scalar(&sql.range_deliver)
            .bind(event_type)
            .bind(consumer)
            .bind(range.first)
            .bind(range.last)
            .bind(since.map(DateTime::<Utc>::from))
            .fetch_one(conn)
            .await?;
        Ok(found.unsigned_abs())
    }

    async fn shrink_range(
        conn: &mut PgConnection,
        sql: &Server,
        consumer: i16,
        event_type: &str,
        first: i64,
        next: Option<i64>,
    ) -> SqlResult<u64> {
        let shrink = match next {
            Some(next) => {
                sql.query(&sql.range_advance).bind(event_type).bind(consumer).bind(first).bind(next)
            }
            None => sql.query(&sql.range_done).bind(event_type).bind(consumer).bind(first),
        };
        Ok(shrink.execute(conn).await?.rows_affected())
    }
}

fn range(row: &PgRow) -> SqlResult<Range> {
    Ok(Range { first: row.try_get("first_seq")?, last: row.try_get("last_seq")? })
}
