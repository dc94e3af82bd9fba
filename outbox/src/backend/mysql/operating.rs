//! What operators do, on MySQL.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use sqlx::mysql::MySqlRow;
use sqlx::{MySql, MySqlConnection, Row as _, query, query_scalar, raw_sql};

use super::{Server, list, optional_text, text};
use crate::backend::{
    AttemptRow, DeadFilter, DeadRow, Lane, Operating, ParkedState, Poll, Polled, SqlResult, WorkerRow, micros,
};

/// The states of what is dead, each of which has a part of `dead_find`.
const STATES: [ParkedState; 3] = [ParkedState::Dead, ParkedState::Skipped, ParkedState::Undecodable];

impl Operating for MySql {
    async fn set_paused(
        conn: &mut MySqlConnection,
        sql: &Server,
        consumer: &str,
        paused: bool,
    ) -> SqlResult<u64> {
        let changed = query(sql.pause.clone()).bind(paused).bind(consumer).execute(conn).await?;
        Ok(changed.rows_affected())
    }

    async fn dead(
        conn: &mut MySqlConnection,
        sql: &Server,
        filter: &DeadFilter,
        behind: (i16, i64),
        limit: i64,
    ) -> SqlResult<Vec<DeadRow>> {
        let name = filter.consumer.as_deref();
        let consumers = query(sql.consumers.clone()).bind(behind.0).bind(name).bind(name);
        let mut found = Vec::new();
        for consumer in consumers.fetch_all(&mut *conn).await? {
            let (id, name): (i16, _) = (consumer.try_get("id")?, text(&consumer, "name")?);
            let behind = if id == behind.0 { behind.1 } else { i64::MIN };
            let left = limit - i64::try_from(found.len()).unwrap_or(limit);
            let mut find = query(sql.dead_find.clone());
            for _ in STATES {
                find = find.bind(id).bind(behind);
                for condition in [&filter.event_type, &filter.message_id, &filter.error] {
                    find = find.bind(condition.as_deref()).bind(condition.as_deref());
                }
                find = find.bind(left);
            }
            for row in find.bind(left).fetch_all(&mut *conn).await? {
                found.push(dead(&row, &name)?);
            }
            if i64::try_from(found.len()).is_ok_and(|found| found >= limit) {
                break;
            }
        }
        Ok(found)
    }

    async fn requeue(
        conn: &mut MySqlConnection,
        sql: &Server,
        lane: Lane,
        key_hash: i64,
        seq: i64,
    ) -> SqlResult<u64> {
        let mut requeue = query(sql.requeue.clone());
        for _ in 0..2 {
            requeue = requeue.bind(lane.consumer).bind(lane.lane).bind(key_hash).bind(seq);
        }
        let requeued = requeue.execute(&mut *conn).await?.rows_affected();
        if requeued > 0 {
            let behind = query(sql.behind.clone()).bind(lane.consumer).bind(lane.lane);
            behind.bind(key_hash).bind(seq).execute(conn).await?;
        }
        Ok(requeued)
    }

    async fn discard(
        conn: &mut MySqlConnection,
        sql: &Server,
        lane: Lane,
        key_hash: i64,
        seq: i64,
    ) -> SqlResult<u64> {
        let discard = query(sql.discard.clone()).bind(lane.consumer).bind(lane.lane).bind(key_hash).bind(seq);
        Ok(discard.execute(conn).await?.rows_affected())
    }

    async fn attempts(
        conn: &mut MySqlConnection,
        sql: &Server,
        message_id: &str,
        consumer: &str,
    ) -> SqlResult<Vec<AttemptRow>> {
        let rows = query(sql.attempts.clone()).bind(message_id).bind(consumer).fetch_all(conn).await?;
        rows.iter().map(attempt).collect()
    }

    async fn poll(conn: &mut MySqlConnection, sql: &Server, poll: Poll<'_>) -> SqlResult<Polled> {
        let mut polled = Polled::default();
        raw_sql(sql.autocommit.clone()).execute(&mut *conn).await?;
        if let Some(silent_after) = poll.beats {
            query(sql.worker_beat.clone())
                .bind(&poll.worker.id)
                .bind(&poll.worker.host)
                .bind(poll.worker.pid)
                .bind(env!("CARGO_PKG_VERSION"))
                .bind(list(&poll.worker.consumers))
                .bind(poll.worker.pooled)
                .execute(&mut *conn)
                .await?;
            let workers = query(sql.workers.clone()).bind(micros(silent_after)).bind(&poll.worker.id);
            let workers = workers.bind(&poll.worker.host).fetch_all(&mut *conn).await?;
            polled.others = workers.iter().map(worker).collect::<SqlResult<_>>()?;
            let present = query_scalar(sql.present.clone()).bind(list(&poll.worker.consumers));
            let present: Vec<i16> = present.fetch_all(&mut *conn).await?;
            let consumers = poll.worker.consumers.iter().copied();
            polled.gone = consumers.filter(|consumer| !present.contains(consumer)).collect();
        }
        if poll.asks {
            let runnable = query_scalar(sql.runnable.clone()).bind(list(&poll.worker.consumers));
            polled.runnable = runnable.fetch_all(conn).await?;
        }
        Ok(polled)
    }

    async fn orphans(conn: &mut MySqlConnection, sql: &Server, but: &[i16]) -> SqlResult<Vec<String>> {
        let orphans = query(sql.orphans.clone()).bind(list(but)).fetch_all(conn).await?;
        orphans.iter().map(|row| text(row, "name")).collect()
    }

    async fn remove_worker(conn: &mut MySqlConnection, sql: &Server, worker: &str) -> SqlResult<u64> {
        Ok(query(sql.worker_remove.clone()).bind(worker).execute(conn).await?.rows_affected())
    }

    async fn bury(conn: &mut MySqlConnection, sql: &Server, worker: &str) -> SqlResult<u64> {
        if query(sql.worker_lock.clone()).bind(worker).fetch_optional(&mut *conn).await?.is_none() {
            return Ok(0);
        }
        query(sql.worker_suspects.clone()).bind(worker).execute(&mut *conn).await?;
        Self::remove_worker(conn, sql, worker).await
    }
}

fn dead(row: &MySqlRow, consumer: &str) -> SqlResult<DeadRow> {
    Ok(DeadRow {
        lane: Lane { consumer: row.try_get("consumer")?, lane: row.try_get("lane")? },
        key_hash: row.try_get("key_hash")?,
        seq: row.try_get("seq")?,
        attempts: row.try_get("attempts")?,
        error: optional_text(row, "last_error")?,
        consumer: consumer.to_owned(),
        message_id: optional_text(row, "id")?,
        event_type: optional_text(row, "event_type")?,
    })
}

fn attempt(row: &MySqlRow) -> SqlResult<AttemptRow> {
    Ok(AttemptRow {
        number: row.try_get("number")?,
        error: text(row, "error")?,
        worker: text(row, "worker")?,
        duration: Duration::from_micros(row.try_get::<i64, _>("duration_us")?.unsigned_abs()),
        failed_at: SystemTime::from(row.try_get::<DateTime<Utc>, _>("failed_at")?),
    })
}

fn worker(row: &MySqlRow) -> SqlResult<WorkerRow> {
    Ok(WorkerRow {
        id: text(row, "id")?,
        host: text(row, "host")?,
        pid: row.try_get("pid")?,
        silent: row.try_get::<i64, _>("silent")? != 0,
    })
}
