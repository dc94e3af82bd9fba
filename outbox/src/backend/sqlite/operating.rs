//! What operators do, on SQLite.

use std::time::Duration;

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Sqlite, SqliteConnection, query, query_scalar};

use super::{Sql, json, time};
use crate::backend::{
    AttemptRow, DeadFilter, DeadRow, Lane, Operating, Poll, Polled, SqlResult, WorkerRow, micros,
};

impl Operating for Sqlite {
    async fn set_paused(
        conn: &mut SqliteConnection,
        sql: &Sql,
        consumer: &str,
        paused: bool,
    ) -> SqlResult<u64> {
        let changed = query(sql.pause.clone()).bind(consumer).bind(paused).execute(conn).await?;
        Ok(changed.rows_affected())
    }

    async fn dead(
        conn: &mut SqliteConnection,
        sql: &Sql,
        filter: &DeadFilter,
        behind: (i16, i64),
        limit: i64,
    ) -> SqlResult<Vec<DeadRow>> {
        let rows = query(sql.dead_find.clone())
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
        conn: &mut SqliteConnection,
        sql: &Sql,
        lane: Lane,
        key_hash: i64,
        seq: i64,
    ) -> SqlResult<u64> {
        let requeue = query(sql.requeue.clone()).bind(lane.consumer).bind(lane.lane).bind(key_hash).bind(seq);
        let requeued = requeue.execute(&mut *conn).await?.rows_affected();
        if requeued > 0 {
            let behind = query(sql.behind.clone()).bind(lane.consumer).bind(lane.lane);
            behind.bind(key_hash).bind(seq).execute(conn).await?;
        }
        Ok(requeued)
    }

    async fn discard(
        conn: &mut SqliteConnection,
        sql: &Sql,
        lane: Lane,
        key_hash: i64,
        seq: i64,
    ) -> SqlResult<u64> {
        let discard = query(sql.discard.clone()).bind(lane.consumer).bind(lane.lane).bind(key_hash).bind(seq);
        Ok(discard.execute(conn).await?.rows_affected())
    }

    async fn attempts(
        conn: &mut SqliteConnection,
        sql: &Sql,
        message_id: &str,
        consumer: &str,
    ) -> SqlResult<Vec<AttemptRow>> {
        let rows = query(sql.attempts.clone()).bind(message_id).bind(consumer).fetch_all(conn).await?;
        rows.iter().map(attempt).collect()
    }

    async fn poll(conn: &mut SqliteConnection, sql: &Sql, poll: Poll<'_>) -> SqlResult<Polled> {
        let mut polled = Polled::default();
        if let Some(silent_after) = poll.beats {
            query(sql.worker_beat.clone())
                .bind(&poll.worker.id)
                .bind(&poll.worker.host)
                .bind(poll.worker.pid)
                .bind(env!("CARGO_PKG_VERSION"))
                .bind(json(&poll.worker.consumers))
                .bind(poll.worker.pooled)
                .execute(&mut *conn)
                .await?;
            let workers = query(sql.workers.clone())
                .bind(&poll.worker.id)
                .bind(&poll.worker.host)
                .bind(micros(silent_after))
                .fetch_all(&mut *conn)
                .await?;
            polled.others = workers.iter().map(worker).collect::<SqlResult<_>>()?;
            let present = query_scalar(sql.present.clone()).bind(json(&poll.worker.consumers));
            let present: Vec<i16> = present.fetch_all(&mut *conn).await?;
            let consumers = poll.worker.consumers.iter().copied();
            polled.gone = consumers.filter(|consumer| !present.contains(consumer)).collect();
        }
        if poll.asks {
            let runnable = query_scalar(sql.runnable.clone()).bind(json(&poll.worker.consumers));
            polled.runnable = runnable.fetch_all(conn).await?;
        }
        Ok(polled)
    }

    async fn orphans(conn: &mut SqliteConnection, sql: &Sql, but: &[i16]) -> SqlResult<Vec<String>> {
        query_scalar(sql.orphans.clone()).bind(json(but)).fetch_all(conn).await
    }

    async fn remove_worker(conn: &mut SqliteConnection, sql: &Sql, worker: &str) -> SqlResult<u64> {
        Ok(query(sql.worker_remove.clone()).bind(worker).execute(conn).await?.rows_affected())
    }

    async fn bury(conn: &mut SqliteConnection, sql: &Sql, worker: &str) -> SqlResult<u64> {
        query(sql.worker_suspects.clone()).bind(worker).execute(&mut *conn).await?;
        Self::remove_worker(conn, sql, worker).await
    }
}

fn dead(row: &SqliteRow) -> SqlResult<DeadRow> {
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

fn attempt(row: &SqliteRow) -> SqlResult<AttemptRow> {
    Ok(AttemptRow {
        number: row.try_get("number")?,
        error: row.try_get("error")?,
        worker: row.try_get("worker")?,
        duration: Duration::from_micros(row.try_get::<i64, _>("duration_us")?.unsigned_abs()),
        failed_at: time(row.try_get("failed_at")?),
    })
}

fn worker(row: &SqliteRow) -> SqlResult<WorkerRow> {
    Ok(WorkerRow {
        id: row.try_get("id")?,
        host: row.try_get("host")?,
        pid: row.try_get("pid")?,
        silent: row.try_get("silent")?,
    })
}
