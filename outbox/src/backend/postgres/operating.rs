//! What operators do, on PostgreSQL.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Postgres, Row};

use super::Server;
use crate::backend::{
    AttemptRow, DeadFilter, DeadRow, Lane, Operating, Poll, Polled, SqlResult, WorkerRow, micros,
};

impl Operating for Postgres {
    async fn set_paused(
        conn: &mut PgConnection,
        sql: &Server,
        consumer: &str,
        paused: bool,
    ) -> SqlResult<u64> {
        let changed = sql.query(&sql.pause).bind(consumer).bind(paused).execute(conn).await?;
        Ok(changed.rows_affected())
    }

    async fn dead(
        conn: &mut PgConnection,
        sql: &Server,
        filter: &DeadFilter,
        behind: (i16, i64),
        limit: i64,
    ) -> SqlResult<Vec<DeadRow>> {
        let rows = sql
            .query(&sql.dead_find)
            .bind(filter.consumer.as_deref())
            .bind(filter.event_type.as_deref())
            .bind(filter.message_id.as_deref())
            .bind(filter.error.as_deref())
            .bind(behind.0)
            .bind(behind.1)
            .bind(limit)
            .fetch_all(conn)
            .await?;
        rows.iter().map(dead).collect()
    }

    async fn requeue(
        conn: &mut PgConnection,
        sql: &Server,
        lane: Lane,
        key_hash: i64,
        seq: i64,
    ) -> SqlResult<u64> {
        let requeue = sql.query(&sql.requeue).bind(lane.consumer).bind(lane.lane).bind(key_hash).bind(seq);
        let requeued = requeue.execute(&mut *conn).await?.rows_affected();
        if requeued > 0 {
            let behind = sql.query(&sql.behind).bind(lane.consumer).bind(lane.lane);
            behind.bind(key_hash).bind(seq).execute(conn).await?;
        }
        Ok(requeued)
    }

    async fn discard(
        conn: &mut PgConnection,
        sql: &Server,
        lane: Lane,
        key_hash: i64,
        seq: i64,
    ) -> SqlResult<u64> {
        let discard = sql.query(&sql.discard).bind(lane.consumer).bind(lane.lane).bind(key_hash).bind(seq);
        Ok(discard.execute(conn).await?.rows_affected())
    }

    async fn attempts(
        conn: &mut PgConnection,
        sql: &Server,
        message_id: &str,
        consumer: &str,
    ) -> SqlResult<Vec<AttemptRow>> {
        let rows = sql.query(&sql.attempts).bind(message_id).bind(consumer).fetch_all(conn).await?;
        rows.iter().map(attempt).collect()
    }

    async fn poll(conn: &mut PgConnection, sql: &Server, poll: Poll<'_>) -> SqlResult<Polled> {
        let rows = sql
            .query(&sql.poll)
            .bind(&poll.worker.id)
            .bind(&poll.worker.host)
            .bind(poll.worker.pid)
            .bind(env!("CARGO_PKG_VERSION"))
            .bind(&poll.worker.consumers)
            .bind(poll.beats.map(micros))
            .bind(poll.asks)
            .bind(poll.worker.pooled)
            .fetch_all(conn)
            .await?;
        let mut polled = Polled::default();
        for row in &rows {
            match (row.try_get("consumer")?, row.try_get("gone")?) {
                (Some(consumer), true) => polled.gone.push(consumer),
                (Some(consumer), false) => polled.runnable.push(consumer),
                (None, _) => polled.others.push(worker(row)?),
            }
        }
        Ok(polled)
    }

    async fn orphans(conn: &mut PgConnection, sql: &Server, but: &[i16]) -> SqlResult<Vec<String>> {
        sql.query_scalar(&sql.orphans).bind(but).fetch_all(conn).await
    }

    async fn remove_worker(conn: &mut PgConnection, sql: &Server, worker: &str) -> SqlResult<u64> {
        Ok(sql.query(&sql.worker_remove).bind(worker).execute(conn).await?.rows_affected())
    }

    async fn bury(conn: &mut PgConnection, sql: &Server, worker: &str) -> SqlResult<u64> {
        let buried: i64 = sql.query_scalar(&sql.worker_bury).bind(worker).fetch_one(conn).await?;
        Ok(buried.unsigned_abs())
    }
}

fn dead(row: &PgRow) -> SqlResult<DeadRow> {
    Ok(DeadRow {
        lane: Lane { consumer: row.try_get("consumer")?, lane: row.try_get("lane")? },
        key_hash: row.try_get("key_hash")?,
        seq: row.try_get("seq")?,
        attempts: row.try_get("attempts")?,
        error: row.try_get("last_error")?,
        consumer: row.try_get("name")?,
        message_id: row.try_get("id")?,
        event_type: row.try_get("event_type")?,
    })
}

fn attempt(row: &PgRow) -> SqlResult<AttemptRow> {
    Ok(AttemptRow {
        number: row.try_get("number")?,
        error: row.try_get("error")?,
        worker: row.try_get("worker")?,
        duration: Duration::from_micros(row.try_get::<i64, _>("duration_us")?.unsigned_abs()),
        failed_at: SystemTime::from(row.try_get::<DateTime<Utc>, _>("failed_at")?),
    })
}

fn worker(row: &PgRow) -> SqlResult<WorkerRow> {
    Ok(WorkerRow {
        id: row.try_get("id")?,
        host: row.try_get("host")?,
        pid: row.try_get("pid")?,
        silent: row.try_get("silent")?,
    })
}
