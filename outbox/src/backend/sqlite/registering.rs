//! Registering on SQLite.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use sqlx::sqlite::SqliteRow;
use sqlx::{Row as _, Sqlite, SqliteConnection, query, query_scalar};

use super::{Sql, time};
use crate::backend::{ConsumerRow, Range, Registering, SqlResult};

impl Registering for Sqlite {
    const WATERMARK: Option<Duration> = None;

    /// The write lock of the file excludes other registrations.
    async fn lock_registry(_: &mut SqliteConnection, _: &Sql) -> SqlResult<()> {
        Ok(())
    }

    async fn consumer(conn: &mut SqliteConnection, sql: &Sql, name: &str) -> SqlResult<Option<ConsumerRow>> {
        let row = query(sql.consumer_find.clone()).bind(name).fetch_optional(conn).await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(ConsumerRow {
            id: row.try_get("id")?,
            lanes: row.try_get("lanes")?,
            name: row.try_get("name")?,
            first_name: row.try_get("first_name")?,
        }))
    }

    async fn add_consumer(conn: &mut SqliteConnection, sql: &Sql, name: &str, lanes: i16) -> SqlResult<u64> {
        let add = query(sql.consumer_add.clone()).bind(name).bind(lanes);
        Ok(add.execute(conn).await?.rows_affected())
    }

    async fn add_lanes(conn: &mut SqliteConnection, sql: &Sql, name: &str) -> SqlResult<()> {
        query(sql.consumer_lanes.clone()).bind(name).execute(conn).await.map(drop)
    }

    async fn add_name(conn: &mut SqliteConnection, sql: &Sql, name: &str, present: &str) -> SqlResult<u64> {
        let add = query(sql.consumer_name.clone()).bind(name).bind(present);
        Ok(add.execute(conn).await?.rows_affected())
    }

    async fn rename_consumer(
        conn: &mut SqliteConnection,
        sql: &Sql,
        consumer: i16,
        present: &str,
        name: &str,
    ) -> SqlResult<u64> {
        let rename = query(sql.consumer_rename.clone()).bind(consumer).bind(present).bind(name);
        Ok(rename.execute(conn).await?.rows_affected())
    }

    async fn is_subscribed(
        conn: &mut SqliteConnection,
        sql: &Sql,
        consumer: i16,
        event_type: &str,
    ) -> SqlResult<bool> {
        let find = query_scalar(sql.subscription_find.clone()).bind(event_type).bind(consumer);
        let found: i64 = find.fetch_one(conn).await?;
        Ok(found > 0)
    }

    async fn subscribe(
        conn: &mut SqliteConnection,
        sql: &Sql,
        consumer: i16,
        event_type: &str,
        unrouted: bool,
    ) -> SqlResult<u64> {
        let done =
            query(sql.subscribe.clone()).bind(event_type).bind(consumer).bind(unrouted).execute(conn).await?;
        Ok(done.rows_affected())
    }

    async fn unready(conn: &mut SqliteConnection, sql: &Sql, consumer: i16) -> SqlResult<Vec<String>> {
        query_scalar(sql.unready.clone()).bind(consumer).fetch_all(conn).await
    }

    /// Nobody publishes beside a registration: a transaction that read before it cannot write any more.
    async fn announce(_: &mut SqliteConnection, _: &Sql) -> SqlResult<()> {
        Ok(())
    }

    async fn ready(
        conn: &mut SqliteConnection,
        sql: &Sql,
        consumer: i16,
        event_type: &str,
    ) -> SqlResult<u64> {
        let ready = query(sql.ready.clone()).bind(consumer).bind(event_type).execute(conn).await?;
        Ok(ready.rows_affected())
    }

    async fn publishers_in_flight(
        _: &mut SqliteConnection,
        _: &Sql,
        _: &HashSet<String>,
    ) -> SqlResult<HashSet<String>> {
        Ok(HashSet::new())
    }

    async fn in_doubt(_: &mut SqliteConnection, _: &Sql) -> SqlResult<Vec<Range>> {
        Ok(Vec::new())
    }

    async fn newest(conn: &mut SqliteConnection, sql: &Sql) -> SqlResult<i64> {
        query_scalar(sql.newest.clone()).fetch_one(conn).await
    }

    async fn raise_watermark(_: &mut SqliteConnection, _: &Sql, _: i64) -> SqlResult<()> {
        Ok(())
    }

    async fn backfill(
        conn: &mut SqliteConnection,
        sql: &Sql,
        event_type: &str,
        batch: i64,
    ) -> SqlResult<u64> {
        let end = query_scalar(sql.unrouted_end.clone()).bind(event_type).bind(batch);
        let end: Option<i64> = end.fetch_one(&mut *conn).await?;
        let Some(end) = end else { return Ok(0) };
        query(sql.backfill.clone()).bind(event_type).bind(end).execute(&mut *conn).await?;
        query(sql.backfill_delayed.clone()).bind(event_type).bind(end).execute(&mut *conn).await?;
        let taken = query(sql.backfill_taken.clone()).bind(event_type).bind(end).execute(conn).await?;
        Ok(taken.rows_affected())
    }

    async fn add_ranges(
        conn: &mut SqliteConnection,
        sql: &Sql,
        consumer: i16,
        event_type: &str,
        ranges: &[Range],
        since: Option<SystemTime>,
    ) -> SqlResult<()> {
        for range in ranges {
            query(sql.range_add.clone())
                .bind(event_type)
                .bind(consumer)
                .bind(range.first)
                .bind(range.last)
                .bind(since.map(|time| DateTime::<Utc>::from(time).timestamp_micros()))
                .execute(&mut *conn)
                .await?;
        }
        Ok(())
    }

    async fn next_range(
        conn: &mut SqliteConnection,
        sql: &Sql,
        consumer: i16,
        event_type: &str,
    ) -> SqlResult<Option<(Range, Option<SystemTime>)>> {
        let next = query(sql.range_next.clone()).bind(event_type).bind(consumer);
        let next = next.fetch_optional(conn).await?;
        next.map(|row| Ok((range(&row)?, row.try_get::<Option<i64>, _>("since")?.map(time)))).transpose()
    }

    async fn end_of_batch(
        conn: &mut SqliteConnection,
        sql: &Sql,
        range: Range,
        batch: i64,
    ) -> SqlResult<Option<(i64, u64)>> {
        let end = query(sql.range_end.clone()).bind(range.first).bind(range.last).bind(batch);
        let row = end.fetch_one(conn).await?;
        let count: i64 = row.try_get("messages")?;
        let last: Option<i64> = row.try_get("last_seq")?;
        Ok(last.map(|last| (last, count.unsigned_abs())))
    }

    async fn deliver_range(
        conn: &mut SqliteConnection,
        sql: &Sql,
        consumer: i16,
        event_type: &str,
        range: Range,
        since: Option<SystemTime>,
    ) -> SqlResult<u64> {
        let since = since.map(|time| DateTime::<Utc>::from(time).timestamp_micros());
        let mut found = 0;
        for statement in [&sql.range_deliver, &sql.range_delay] {
            let deliver =
                query(statement.clone()).bind(event_type).bind(consumer).bind(range.first).bind(range.last);
            let delivered = deliver.bind(since);
            found += delivered.execute(&mut *conn).await?.rows_affected();
        }
        if found > 0 {
            let routed = query(sql.range_routed.clone()).bind(event_type).bind(range.first).bind(range.last);
            routed.bind(since).execute(conn).await?;
        }
        Ok(found)
    }

    async fn shrink_range(
        conn: &mut SqliteConnection,
        sql: &Sql,
        consumer: i16,
        event_type: &str,
        first: i64,
        next: Option<i64>,
    ) -> SqlResult<u64> {
        let shrink = match next {
            Some(next) => {
                query(sql.range_advance.clone()).bind(event_type).bind(consumer).bind(first).bind(next)
            }
            None => query(sql.range_done.clone()).bind(event_type).bind(consumer).bind(first),
        };
        Ok(shrink.execute(conn).await?.rows_affected())
    }
}

fn range(row: &SqliteRow) -> SqlResult<Range> {
    Ok(Range { first: row.try_get("first_seq")?, last: row.try_get("last_seq")? })
}
