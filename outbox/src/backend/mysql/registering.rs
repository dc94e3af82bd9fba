//! Registering on MySQL.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use sqlx::mysql::MySqlRow;
use sqlx::{Connection as _, MySql, MySqlConnection, Row as _, query, query_scalar, raw_sql};

use super::publishing::GATES;
use super::{LOCK_WAIT_TIMEOUT, Server, number, text, with_numbers};
use crate::backend::{ConsumerRow, Range, Registering, SqlResult, Storage as _};
use crate::key::SLOTS;

/// How many rows one look at the slots locks, for as long as it takes.
const LOOK: u32 = 1_024;

impl Registering for MySql {
    const WATERMARK: Option<Duration> = Some(Duration::from_mins(5));

    async fn lock_registry(conn: &mut MySqlConnection, sql: &Server) -> SqlResult<()> {
        query(sql.registry_lock.clone()).fetch_one(conn).await.map(drop)
    }

    async fn consumer(
        conn: &mut MySqlConnection,
        sql: &Server,
        name: &str,
    ) -> SqlResult<Option<ConsumerRow>> {
        let row = query(sql.consumer_find.clone()).bind(name).fetch_optional(conn).await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(ConsumerRow {
            id: row.try_get("id")?,
            lanes: row.try_get("lanes")?,
            name: text(&row, "name")?,
            first_name: text(&row, "first_name")?,
        }))
    }

    async fn add_consumer(
        conn: &mut MySqlConnection,
        sql: &Server,
        name: &str,
        lanes: i16,
    ) -> SqlResult<u64> {
        let add = query(sql.consumer_add.clone()).bind(name).bind(name).bind(lanes);
        Ok(add.execute(conn).await?.rows_affected())
    }

    async fn add_lanes(conn: &mut MySqlConnection, sql: &Server, name: &str) -> SqlResult<()> {
        query(sql.consumer_lanes.clone()).bind(name).execute(conn).await.map(drop)
    }

    async fn add_name(conn: &mut MySqlConnection, sql: &Server, name: &str, present: &str) -> SqlResult<u64> {
        let add = query(sql.consumer_name.clone()).bind(name).bind(present);
        Ok(add.execute(conn).await?.rows_affected())
    }

    async fn rename_consumer(
        conn: &mut MySqlConnection,
        sql: &Server,
        consumer: i16,
        present: &str,
        name: &str,
    ) -> SqlResult<u64> {
        let rename = query(sql.consumer_rename.clone()).bind(name).bind(consumer).bind(present);
        Ok(rename.execute(conn).await?.rows_affected())
    }

    async fn is_subscribed(
        conn: &mut MySqlConnection,
        sql: &Server,
        consumer: i16,
        event_type: &str,
    ) -> SqlResult<bool> {
        let find = query_scalar(sql.subscription_find.clone()).bind(event_type).bind(consumer);
        let found: i64 = find.fetch_one(conn).await?;
        Ok(found > 0)
    }

    async fn subscribe(
        conn: &mut MySqlConnection,
        sql: &Server,
        consumer: i16,
        event_type: &str,
        unrouted: bool,
    ) -> SqlResult<u64> {
        let subscribe = query(sql.subscribe.clone()).bind(event_type).bind(consumer).bind(unrouted);
        Ok(subscribe.bind(event_type).bind(consumer).execute(conn).await?.rows_affected())
    }

    async fn unready(conn: &mut MySqlConnection, sql: &Server, consumer: i16) -> SqlResult<Vec<String>> {
        let rows = query(sql.unready.clone()).bind(consumer).fetch_all(conn).await?;
        rows.iter().map(|row| text(row, "event_type")).collect()
    }

    /// A publish reads the subscriptions as they are now, however old its snapshot is.
    async fn announce(_: &mut MySqlConnection, _: &Server) -> SqlResult<()> {
        Ok(())
    }

    async fn ready(
        conn: &mut MySqlConnection,
        sql: &Server,
        consumer: i16,
        event_type: &str,
    ) -> SqlResult<u64> {
        let ready = query(sql.ready.clone()).bind(consumer).bind(event_type).execute(conn).await?;
        Ok(ready.rows_affected())
    }

    /// The slots that are held, as the names of the transactions that hold them. Nobody stands in line for a slot here,
    /// so nobody waits behind; but for one of them, in case it is never free at the moment of a look.
    async fn publishers_in_flight(
        conn: &mut MySqlConnection,
        sql: &Server,
        known: &HashSet<String>,
    ) -> SqlResult<HashSet<String>> {
        let looks: Vec<Vec<u32>> = if known.is_empty() {
            (0..SLOTS + GATES).step_by(LOOK as usize).map(|from| (from..from + LOOK).collect()).collect()
        } else {
            let known: Vec<u32> = known.iter().filter_map(|slot| slot.parse().ok()).collect();
            known.chunks(LOOK as usize / 4).map(<[u32]>::to_vec).collect()
        };
        let mut held = HashSet::new();
        for look in looks {
            let mut tx = conn.begin_with(Self::begin_registration()).await?;
            let free: Vec<i32> = if known.is_empty() {
                let range = query_scalar(sql.in_flight.clone()).bind(look[0]).bind(look[0] + LOOK);
                range.fetch_all(&mut *tx).await?
            } else {
                raw_sql(with_numbers(&sql.in_flight_known, &look))
                    .fetch_all(&mut *tx)
                    .await?
                    .iter()
                    .map(|row| row.try_get(0))
                    .collect::<SqlResult<_>>()?
            };
            tx.rollback().await?;
            let free: HashSet<u32> = free.iter().map(|slot| slot.unsigned_abs()).collect();
            held.extend(look.into_iter().filter(|slot| !free.contains(slot)));
        }
        let queue = held.iter().copied().find(|slot| *slot < SLOTS).filter(|_| !known.is_empty());
        if let Some(slot) = queue {
            let mut tx = conn.begin_with(Self::begin_registration()).await?;
            match query(sql.in_flight_wait.clone()).bind(slot).fetch_optional(&mut *tx).await {
                Ok(_) => drop(held.remove(&slot)),
                Err(error) if number(&error) == Some(LOCK_WAIT_TIMEOUT) => {}
                Err(error) => return Err(error),
            }
            tx.rollback().await?;
        }
        Ok(held.iter().map(ToString::to_string).collect())
    }

    async fn in_doubt(conn: &mut MySqlConnection, sql: &Server) -> SqlResult<Vec<Range>> {
        let rows = query(sql.in_doubt.clone()).fetch_all(conn).await?;
        rows.iter().map(range).collect()
    }

    async fn newest(conn: &mut MySqlConnection, sql: &Server) -> SqlResult<i64> {
        query_scalar(sql.newest.clone()).fetch_one(conn).await
    }

    async fn raise_watermark(conn: &mut MySqlConnection, sql: &Server, seq: i64) -> SqlResult<()> {
        query(sql.watermark.clone()).bind(seq).bind(seq).execute(conn).await.map(drop)
    }

    async fn backfill(
        conn: &mut MySqlConnection,
        sql: &Server,
        event_type: &str,
        batch: i64,
    ) -> SqlResult<u64> {
        let end = query_scalar(sql.unrouted_end.clone()).bind(event_type).bind(event_type).bind(batch);
        let end: Option<i64> = end.fetch_one(&mut *conn).await?;
        let Some(end) = end else { return Ok(0) };
        query(sql.backfill.clone()).bind(event_type).bind(end).execute(&mut *conn).await?;
        query(sql.backfill_delayed.clone()).bind(event_type).bind(end).execute(&mut *conn).await?;
        let taken = query(sql.backfill_taken.clone()).bind(event_type).bind(end).execute(conn).await?;
        Ok(taken.rows_affected())
    }

    async fn add_ranges(
        conn: &mut MySqlConnection,
        sql: &Server,
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
                .bind(since.map(DateTime::<Utc>::from))
                .execute(&mut *conn)
                .await?;
        }
        Ok(())
    }

    async fn next_range(
        conn: &mut MySqlConnection,
        sql: &Server,
        consumer: i16,
        event_type: &str,
    ) -> SqlResult<Option<(Range, Option<SystemTime>)>> {
        let next = query(sql.range_next.clone()).bind(event_type).bind(consumer);
        let next = next.fetch_optional(conn).await?;
        next.map(|row| {
            Ok((range(&row)?, row.try_get::<Option<DateTime<Utc>>, _>("since")?.map(SystemTime::from)))
        })
        .transpose()
    }

    async fn end_of_batch(
        conn: &mut MySqlConnection,
        sql: &Server,
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
        conn: &mut MySqlConnection,
        sql: &Server,
        consumer: i16,
        event_type: &str,
        range: Range,
        since: Option<SystemTime>,
    ) -> SqlResult<u64> {
        let since = since.map(DateTime::<Utc>::from);
        let mut found = 0;
        for statement in [&sql.range_deliver, &sql.range_delay] {
            let deliver =
                query(statement.clone()).bind(consumer).bind(range.first).bind(range.last).bind(event_type);
            let delivered = deliver.bind(since).bind(since);
            found += delivered.execute(&mut *conn).await?.rows_affected();
        }
        if found > 0 {
            let routed = query(sql.range_routed.clone()).bind(event_type).bind(range.first).bind(range.last);
            routed.bind(since).bind(since).execute(conn).await?;
        }
        Ok(found)
    }

    async fn shrink_range(
        conn: &mut MySqlConnection,
        sql: &Server,
        consumer: i16,
        event_type: &str,
        first: i64,
        next: Option<i64>,
    ) -> SqlResult<u64> {
        let shrink = match next {
            Some(next) => {
                query(sql.range_advance.clone()).bind(next).bind(event_type).bind(consumer).bind(first)
            }
            None => query(sql.range_done.clone()).bind(event_type).bind(consumer).bind(first),
        };
        Ok(shrink.execute(conn).await?.rows_affected())
    }
}

fn range(row: &MySqlRow) -> SqlResult<Range> {
    Ok(Range { first: row.try_get("first_seq")?, last: row.try_get("last_seq")? })
}
