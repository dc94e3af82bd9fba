//! Listing consumers and letting them go, on PostgreSQL.

use std::time::Duration;

use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Postgres, Row as _};

use super::Server;
use crate::backend::{AliveRow, Lane, ListedRow, Removing, SqlResult, micros};

impl Removing for Postgres {
    async fn consumers(conn: &mut PgConnection, sql: &Server) -> SqlResult<Vec<ListedRow>> {
        let rows = sql.query(&sql.consumer_list).fetch_all(conn).await?;
        let listed = |row: &PgRow| {
            Ok(ListedRow {
                id: row.try_get("id")?,
                name: row.try_get("name")?,
                paused: row.try_get("paused")?,
            })
        };
        rows.iter().map(listed).collect()
    }

    async fn subscriptions(conn: &mut PgConnection, sql: &Server) -> SqlResult<Vec<(i16, String)>> {
        let rows = sql.query(&sql.subscriptions).fetch_all(conn).await?;
        rows.iter().map(|row| Ok((row.try_get("consumer")?, row.try_get("event_type")?))).collect()
    }

    async fn all_names(conn: &mut PgConnection, sql: &Server) -> SqlResult<Vec<(i16, String)>> {
        let rows = sql.query(&sql.names).fetch_all(conn).await?;
        rows.iter().map(|row| Ok((row.try_get("consumer")?, row.try_get("name")?))).collect()
    }

    async fn alive(
        conn: &mut PgConnection,
        sql: &Server,
        silence: Duration,
    ) -> SqlResult<Vec<(i16, AliveRow)>> {
        let rows = sql.query(&sql.workers_alive).bind(micros(silence)).fetch_all(conn).await?;
        let alive = |row: &PgRow| {
            let (id, host, version) = (row.try_get("id")?, row.try_get("host")?, row.try_get("version")?);
            let (pid, pooled) = (row.try_get("pid")?, row.try_get("pooled")?);
            Ok((row.try_get("consumer")?, AliveRow { id, host, pid, version, pooled }))
        };
        rows.iter().map(alive).collect()
    }

    async fn unsubscribe(
        conn: &mut PgConnection,
        sql: &Server,
        consumer: i16,
        event_type: &str,
    ) -> SqlResult<u64> {
        let ranges = sql.query(&sql.ranges_remove).bind(event_type).bind(consumer);
        ranges.execute(&mut *conn).await?;
        let removed = sql.query(&sql.unsubscribe).bind(event_type).bind(consumer);
        Ok(removed.execute(conn).await?.rows_affected())
    }

    async fn remove_consumer(conn: &mut PgConnection, sql: &Server, consumer: i16) -> SqlResult<u64> {
        let noted = sql.query(&sql.dropped_add).bind(consumer).execute(&mut *conn).await?;
        sql.query(&sql.names_remove).bind(consumer).execute(&mut *conn).await?;
        sql.query(&sql.consumer_remove).bind(consumer).execute(conn).await?;
        Ok(noted.rows_affected())
    }

    async fn dropped(conn: &mut PgConnection, sql: &Server, name: &str) -> SqlResult<Vec<(i16, i16)>> {
        let rows = sql.query(&sql.dropped_find).bind(name).fetch_all(conn).await?;
        rows.iter().map(|row| Ok((row.try_get("id")?, row.try_get("lanes")?))).collect()
    }

    async fn dropped_names(conn: &mut PgConnection, sql: &Server) -> SqlResult<Vec<String>> {
        let rows = sql.query(&sql.dropped_names).fetch_all(conn).await?;
        rows.iter().map(|row| row.try_get("name")).collect()
    }

    async fn finish_drop(conn: &mut PgConnection, sql: &Server, consumer: i16) -> SqlResult<u64> {
        Ok(sql.query(&sql.dropped_done).bind(consumer).execute(conn).await?.rows_affected())
    }

    async fn remove_deliveries(
        conn: &mut PgConnection,
        sql: &Server,
        lane: Lane,
        batch: i64,
    ) -> SqlResult<u64> {
        let remove = sql.query(&sql.deliveries_remove).bind(lane.consumer).bind(lane.lane).bind(batch);
        Ok(remove.execute(conn).await?.rows_affected())
    }

    async fn remove_parked(conn: &mut PgConnection, sql: &Server, lane: Lane, batch: i64) -> SqlResult<u64> {
        let remove = sql.query(&sql.parked_remove).bind(lane.consumer).bind(lane.lane).bind(batch);
        Ok(remove.execute(conn).await?.rows_affected())
    }

    async fn remove_lane(conn: &mut PgConnection, sql: &Server, lane: Lane) -> SqlResult<u64> {
        sql.query(&sql.suspect_clear).bind(lane.consumer).bind(lane.lane).execute(&mut *conn).await?;
        let remove = sql.query(&sql.lane_remove).bind(lane.consumer).bind(lane.lane);
        Ok(remove.execute(conn).await?.rows_affected())
    }

    async fn remove_attempts(
        conn: &mut PgConnection,
        sql: &Server,
        consumer: i16,
        batch: i64,
    ) -> SqlResult<u64> {
        let remove = sql.query(&sql.attempts_remove).bind(consumer).bind(batch);
        Ok(remove.execute(conn).await?.rows_affected())
    }

    async fn remove_marks(
        conn: &mut PgConnection,
        sql: &Server,
        consumer: i16,
        batch: i64,
    ) -> SqlResult<u64> {
        let remove = sql.query(&sql.marks_remove).bind(consumer).bind(batch);
        Ok(remove.execute(conn).await?.rows_affected())
    }

    async fn end_of_deliveries(
        conn: &mut PgConnection,
        sql: &Server,
        lane: Lane,
        behind: i64,
        batch: i64,
    ) -> SqlResult<Option<i64>> {
        let end = sql.query_scalar(&sql.deliveries_end).bind(lane.consumer).bind(lane.lane);
        end.bind(behind).bind(batch).fetch_one(conn).await
    }

    async fn remove_deliveries_of(
        conn: &mut PgConnection,
        sql: &Server,
        lane: Lane,
        event_type: &str,
        (behind, end): (i64, i64),
    ) -> SqlResult<u64> {
        let remove = sql.query(&sql.deliveries_unsubscribe).bind(lane.consumer).bind(lane.lane);
        let remove = remove.bind(behind).bind(end).bind(event_type);
        Ok(remove.execute(conn).await?.rows_affected())
    }

    async fn parked_part(
        conn: &mut PgConnection,
        sql: &Server,
        lane: Lane,
        event_type: &str,
        (key_hash, seq): (i64, i64),
        batch: i64,
    ) -> SqlResult<Vec<(i64, i64, bool)>> {
        let part = sql.query(&sql.parked_part).bind(lane.consumer).bind(lane.lane).bind(event_type);
        let rows = part.bind(key_hash).bind(seq).bind(batch).fetch_all(conn).await?;
        rows.iter()
            .map(|row| Ok((row.try_get("key_hash")?, row.try_get("seq")?, row.try_get("meant")?)))
            .collect()
    }

    async fn remove_one_parked(
        conn: &mut PgConnection,
        sql: &Server,
        lane: Lane,
        key_hash: i64,
        seq: i64,
    ) -> SqlResult<u64> {
        let forget = sql.query(&sql.attempts_forget).bind(lane.consumer).bind(seq);
        forget.execute(&mut *conn).await?;
        let remove = sql.query(&sql.parked_unsubscribe).bind(lane.consumer).bind(lane.lane);
        Ok(remove.bind(key_hash).bind(seq).execute(conn).await?.rows_affected())
    }
}
