//! Listing consumers and letting them go, on MySQL.

use std::time::Duration;

use sqlx::mysql::MySqlRow;
use sqlx::{MySql, MySqlConnection, Row as _, query, query_scalar};

use super::{Server, text};
use crate::backend::{AliveRow, Consuming as _, Lane, ListedRow, Removing, SqlResult, micros};

impl Removing for MySql {
    async fn consumers(conn: &mut MySqlConnection, sql: &Server) -> SqlResult<Vec<ListedRow>> {
        let rows = query(sql.consumer_list.clone()).fetch_all(conn).await?;
        let listed = |row: &MySqlRow| {
            Ok(ListedRow { id: row.try_get("id")?, name: text(row, "name")?, paused: row.try_get("paused")? })
        };
        rows.iter().map(listed).collect()
    }

    async fn subscriptions(conn: &mut MySqlConnection, sql: &Server) -> SqlResult<Vec<(i16, String)>> {
        let rows = query(sql.subscriptions.clone()).fetch_all(conn).await?;
        rows.iter().map(|row| Ok((row.try_get("consumer")?, text(row, "event_type")?))).collect()
    }

    async fn all_names(conn: &mut MySqlConnection, sql: &Server) -> SqlResult<Vec<(i16, String)>> {
        let rows = query(sql.names.clone()).fetch_all(conn).await?;
        rows.iter().map(|row| Ok((row.try_get("consumer")?, text(row, "name")?))).collect()
    }

    async fn alive(
        conn: &mut MySqlConnection,
        sql: &Server,
        silence: Duration,
    ) -> SqlResult<Vec<(i16, AliveRow)>> {
        let rows = query(sql.workers_alive.clone()).bind(micros(silence)).fetch_all(conn).await?;
        let alive = |row: &MySqlRow| {
            let (id, host, version) = (text(row, "id")?, text(row, "host")?, text(row, "version")?);
            let (pid, pooled) = (row.try_get("pid")?, row.try_get("pooled")?);
            Ok((row.try_get("consumer")?, AliveRow { id, host, pid, version, pooled }))
        };
        rows.iter().map(alive).collect()
    }

    async fn unsubscribe(
        conn: &mut MySqlConnection,
        sql: &Server,
        consumer: i16,
        event_type: &str,
    ) -> SqlResult<u64> {
        let ranges = query(sql.ranges_remove.clone()).bind(event_type).bind(consumer);
        ranges.execute(&mut *conn).await?;
        let removed = query(sql.unsubscribe.clone()).bind(event_type).bind(consumer);
        Ok(removed.execute(conn).await?.rows_affected())
    }

    async fn remove_consumer(conn: &mut MySqlConnection, sql: &Server, consumer: i16) -> SqlResult<u64> {
        let noted = query(sql.dropped_add.clone()).bind(consumer).execute(&mut *conn).await?;
        query(sql.names_remove.clone()).bind(consumer).execute(&mut *conn).await?;
        query(sql.consumer_remove.clone()).bind(consumer).execute(conn).await?;
        Ok(noted.rows_affected())
    }

    async fn dropped(conn: &mut MySqlConnection, sql: &Server, name: &str) -> SqlResult<Vec<(i16, i16)>> {
        let rows = query(sql.dropped_find.clone()).bind(name).fetch_all(conn).await?;
        rows.iter().map(|row| Ok((row.try_get("id")?, row.try_get("lanes")?))).collect()
    }

    async fn dropped_names(conn: &mut MySqlConnection, sql: &Server) -> SqlResult<Vec<String>> {
        let rows = query(sql.dropped_names.clone()).fetch_all(conn).await?;
        rows.iter().map(|row| text(row, "name")).collect()
    }

    async fn finish_drop(conn: &mut MySqlConnection, sql: &Server, consumer: i16) -> SqlResult<u64> {
        Ok(query(sql.dropped_done.clone()).bind(consumer).execute(conn).await?.rows_affected())
    }

    async fn remove_deliveries(
        conn: &mut MySqlConnection,
        sql: &Server,
        lane: Lane,
        batch: i64,
    ) -> SqlResult<u64> {
        match Self::end_of_deliveries(conn, sql, lane, i64::MIN, batch).await? {
            Some(end) => Self::remove_deliveries_of(conn, sql, lane, "*", (i64::MIN, end)).await,
            None => Ok(0),
        }
    }

    async fn remove_parked(
        conn: &mut MySqlConnection,
        sql: &Server,
        lane: Lane,
        batch: i64,
    ) -> SqlResult<u64> {
        let remove = query(sql.parked_remove.clone()).bind(lane.consumer).bind(lane.lane).bind(batch);
        Ok(remove.execute(conn).await?.rows_affected())
    }

    async fn remove_lane(conn: &mut MySqlConnection, sql: &Server, lane: Lane) -> SqlResult<u64> {
        query(sql.suspect_clear.clone()).bind(lane.consumer).bind(lane.lane).execute(&mut *conn).await?;
        let remove = query(sql.lane_remove.clone()).bind(lane.consumer).bind(lane.lane);
        Ok(remove.execute(conn).await?.rows_affected())
    }

    async fn remove_attempts(
        conn: &mut MySqlConnection,
        sql: &Server,
        consumer: i16,
        batch: i64,
    ) -> SqlResult<u64> {
        let remove = query(sql.attempts_remove.clone()).bind(consumer).bind(batch);
        Ok(remove.execute(conn).await?.rows_affected())
    }

    async fn remove_marks(
        conn: &mut MySqlConnection,
        sql: &Server,
        consumer: i16,
        batch: i64,
    ) -> SqlResult<u64> {
        let remove = query(sql.marks_remove.clone()).bind(consumer).bind(batch);
        Ok(remove.execute(conn).await?.rows_affected())
    }

    async fn end_of_deliveries(
        conn: &mut MySqlConnection,
        sql: &Server,
        lane: Lane,
        behind: i64,
        batch: i64,
    ) -> SqlResult<Option<i64>> {
        let end = query_scalar(sql.deliveries_end.clone()).bind(lane.consumer).bind(lane.lane);
        end.bind(behind).bind(batch).fetch_one(conn).await
    }

    async fn remove_deliveries_of(
        conn: &mut MySqlConnection,
        sql: &Server,
        lane: Lane,
        event_type: &str,
        (behind, end): (i64, i64),
    ) -> SqlResult<u64> {
        let found = query_scalar(sql.deliveries_unsubscribe.clone()).bind(lane.consumer).bind(lane.lane);
        let found = found.bind(behind).bind(end).bind(event_type).bind(event_type);
        let found: Vec<i64> = found.fetch_all(&mut *conn).await?;
        Self::settle_deliveries(conn, sql, lane, &found, None).await
    }

    async fn parked_part(
        conn: &mut MySqlConnection,
        sql: &Server,
        lane: Lane,
        event_type: &str,
        (key_hash, seq): (i64, i64),
        batch: i64,
    ) -> SqlResult<Vec<(i64, i64, bool)>> {
        let part = query(sql.parked_part.clone())
            .bind(event_type)
            .bind(event_type)
            .bind(lane.consumer)
            .bind(lane.lane);
        let rows = part.bind(key_hash).bind(key_hash).bind(seq).bind(batch).fetch_all(conn).await?;
        rows.iter()
            .map(|row| {
                Ok((row.try_get("key_hash")?, row.try_get("seq")?, row.try_get::<i64, _>("meant")? != 0))
            })
            .collect()
    }

    async fn remove_one_parked(
        conn: &mut MySqlConnection,
        sql: &Server,
        lane: Lane,
        key_hash: i64,
        seq: i64,
    ) -> SqlResult<u64> {
        let forget = query(sql.attempts_forget.clone()).bind(lane.consumer).bind(seq);
        forget.execute(&mut *conn).await?;
        let remove = query(sql.parked_unsubscribe.clone()).bind(lane.consumer).bind(lane.lane);
        Ok(remove.bind(key_hash).bind(seq).execute(conn).await?.rows_affected())
    }
}
