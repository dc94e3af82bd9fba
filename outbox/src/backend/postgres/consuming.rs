//! Working on lanes on PostgreSQL.

use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Postgres, Row};

use super::Server;
use crate::backend::{
    Attempt, Claimed, Consuming, Lane, LaneRow, Mark, Next, Parked, ParkedState, Parking, Place, Portion,
    Running, SqlResult, StoredMessage, micros,
};
use crate::controls::Controls;

impl Consuming for Postgres {
    async fn claim(
        conn: &mut PgConnection,
        sql: &Server,
        consumer: i16,
        lanes: &[i16],
        suspects: bool,
        patience: Duration,
        controls: Controls,
    ) -> SqlResult<Option<Claimed>> {
        let claim = if controls.lane_lock { &sql.claim } else { &sql.claim_unlocked };
        let claim = sql.query(claim).bind(consumer).bind(lanes).bind(suspects).bind(micros(patience));
        let claimed = claim.fetch_optional(conn).await?;
        claimed.map(|row| claimed_lane(&row)).transpose()
    }

    async fn lock_lane(conn: &mut PgConnection, sql: &Server, lane: Lane) -> SqlResult<Option<LaneRow>> {
        let locked =
            sql.query(&sql.lock_lane).bind(lane.consumer).bind(lane.lane).fetch_optional(conn).await?;
        locked.map(|row| lane_row(&row)).transpose()
    }

    async fn read(
        conn: &mut PgConnection,
        sql: &Server,
        lane: Lane,
        portion: Portion,
    ) -> SqlResult<Vec<Next>> {
        let read = sql
            .query(&sql.read)
            .bind(lane.consumer)
            .bind(lane.lane)
            .bind(portion.rows)
            .bind(portion.due)
            .bind(portion.bytes)
            .bind(micros(portion.patience));
        read.fetch_all(conn).await?.iter().map(next).collect()
    }

    async fn find(
        conn: &mut PgConnection,
        sql: &Server,
        lane: Lane,
        key_hash: i64,
        seq: i64,
    ) -> SqlResult<Option<Next>> {
        let find = sql.query(&sql.find).bind(lane.consumer).bind(lane.lane).bind(key_hash).bind(seq);
        find.fetch_optional(conn).await?.map(|row| next(&row)).transpose()
    }

    async fn settle_deliveries(
        conn: &mut PgConnection,
        sql: &Server,
        lane: Lane,
        seqs: &[i64],
        marks: Option<&[&str]>,
    ) -> SqlResult<u64> {
        let settle = sql.query_scalar(&sql.settle_deliveries).bind(lane.consumer).bind(lane.lane);
        settle.bind(seqs).bind(marks).fetch_one(conn).await.map(i64::unsigned_abs)
    }

    async fn settle_parked(
        conn: &mut PgConnection,
        sql: &Server,
        lane: Lane,
        parked: Parked,
        mark: Option<&str>,
    ) -> SqlResult<u64> {
        let settle = sql
            .query_scalar(&sql.settle_parked)
            .bind(lane.consumer)
            .bind(lane.lane)
            .bind(parked.key_hash)
            .bind(parked.seq)
            .bind(parked.attempts)
            .bind(mark);
        settle.fetch_one(conn).await.map(i64::unsigned_abs)
    }

    async fn move_behind(conn: &mut PgConnection, sql: &Server, lane: Lane, seqs: &[i64]) -> SqlResult<u64> {
        let moved = sql.query(&sql.move_behind).bind(lane.consumer).bind(lane.lane).bind(seqs);
        Ok(moved.execute(conn).await?.rows_affected())
    }

    async fn park(
        conn: &mut PgConnection,
        sql: &Server,
        lane: Lane,
        place: Place,
        parking: &Parking,
    ) -> SqlResult<u64> {
        let park = match place {
            Place::Delivery { seq } => {
                sql.query(&sql.park_delivery).bind(lane.consumer).bind(lane.lane).bind(seq)
            }
            Place::Parked(Parked { seq, key_hash, attempts }) => sql
                .query(&sql.park_again)
                .bind(lane.consumer)
                .bind(lane.lane)
                .bind(key_hash)
                .bind(seq)
                .bind(attempts),
        };
        let park = park
            .bind(parking.state.code())
            .bind(parking.attempts)
            .bind(parking.total_attempts)
            .bind(parking.conflicts)
            .bind(parking.pause.map(micros))
            .bind(parking.error.as_deref());
        let park = match place {
            Place::Delivery { .. } => park.bind(parking.ordered),
            Place::Parked(_) => park,
        };
        let parked = park.execute(conn).await?;
        Ok(parked.rows_affected())
    }

    async fn wake_next(conn: &mut PgConnection, sql: &Server, lane: Lane, key_hash: i64) -> SqlResult<u64> {
        let woken = sql
            .query(&sql.wake_next)
            .bind(lane.consumer)
            .bind(lane.lane)
            .bind(key_hash)
            .execute(conn)
            .await?;
        Ok(woken.rows_affected())
    }

    async fn record_attempt(
        conn: &mut PgConnection,
        sql: &Server,
        consumer: i16,
        attempt: &Attempt<'_>,
        keep: i32,
    ) -> SqlResult<()> {
        sql.query(&sql.attempt_add)
            .bind(consumer)
            .bind(attempt.seq)
            .bind(attempt.number)
            .bind(attempt.error)
            .bind(attempt.worker)
            .bind(micros(attempt.duration))
            .execute(&mut *conn)
            .await?;
        if attempt.number > keep {
            let trim = sql.query(&sql.attempt_trim).bind(consumer).bind(attempt.seq);
            trim.bind(attempt.number - keep).execute(conn).await?;
        }
        Ok(())
    }

    async fn clear_suspect(conn: &mut PgConnection, sql: &Server, lane: Lane) -> SqlResult<()> {
        let clear = sql.query(&sql.suspect_clear).bind(lane.consumer).bind(lane.lane);
        clear.execute(conn).await.map(drop)
    }

    async fn set_suspect(conn: &mut PgConnection, sql: &Server, lane: Lane, alone: i32) -> SqlResult<u64> {
        let set = sql.query(&sql.suspect_set).bind(lane.consumer).bind(lane.lane).bind(alone);
        Ok(set.execute(conn).await?.rows_affected())
    }

    async fn cancel(conn: &mut PgConnection, sql: &Server, running: Running) -> SqlResult<()> {
        let cancel = if sql.is_pooled() {
            sql.query(&sql.cancel_pooled).bind(running.backend).bind(running.began)
        } else {
            sql.query(&sql.cancel).bind(running.backend)
        };
        cancel.execute(conn).await.map(drop)
    }

    async fn remaining(
        conn: &mut PgConnection,
        sql: &Server,
        consumers: &[i16],
        limit: i64,
    ) -> SqlResult<i64> {
        sql.query_scalar(&sql.remaining).bind(consumers).bind(limit).fetch_one(conn).await
    }
}

fn next(row: &PgRow) -> SqlResult<Next> {
    let seq = row.try_get("seq")?;
    let attempts = row.try_get("attempts")?;
    let state: i16 = row.try_get("state")?;
    let parked = row.try_get("parked")?;
    let place = if parked {
        Place::Parked(Parked { seq, key_hash: row.try_get("key_hash")?, attempts })
    } else {
        Place::Delivery { seq }
    };
    Ok(Next {
        place,
        attempts,
        total_attempts: row.try_get("total_attempts")?,
        conflicts: row.try_get("conflicts")?,
        alone: parked && state == ParkedState::Alone.code(),
        waiting: parked && state == ParkedState::Waiting.code(),
        blocked: row.try_get("blocked")?,
        mark: Mark::of(row.try_get("mark")?),
        key_hash: row.try_get("key_hash")?,
        message: message(row).transpose(),
    })
}

pub(super) fn message(row: &PgRow) -> SqlResult<Option<StoredMessage>> {
    let Some(id) = row.try_get("id")? else { return Ok(None) };
    Ok(Some(StoredMessage {
        id,
        event_type: row.try_get("event_type")?,
        version: row.try_get("version")?,
        topic: row.try_get("topic")?,
        source: row.try_get("source")?,
        aggregate_id: row.try_get("aggregate_id")?,
        key: row.try_get("msg_key")?,
        payload: row.try_get("payload")?,
        content_type: row.try_get("content_type")?,
        headers: row.try_get("headers")?,
        created_at: SystemTime::from(row.try_get::<DateTime<Utc>, _>("created_at")?),
    }))
}

fn claimed_lane(row: &PgRow) -> SqlResult<Claimed> {
    Ok(Claimed { lane: row.try_get("lane")?, running: running(row)?, suspect: row.try_get("suspect")? })
}

fn lane_row(row: &PgRow) -> SqlResult<LaneRow> {
    Ok(LaneRow {
        leased_by: row.try_get("leased_by")?,
        leased: row.try_get("leased")?,
        running: Some(running(row)?),
    })
}

fn running(row: &PgRow) -> SqlResult<Running> {
    Ok(Running { backend: row.try_get::<i32, _>("backend")?.into(), began: row.try_get("began")? })
}
