//! Working on lanes on SQLite.

use std::time::Duration;

use sqlx::sqlite::SqliteRow;
use sqlx::{Row, Sqlite, SqliteConnection, query, query_scalar};

use super::{Sql, json, time};
use crate::backend::{
    Attempt, Claimed, Consuming, Lane, LaneRow, Mark, Next, Parked, ParkedState, Parking, Place, Portion,
    Running, SqlResult, StoredMessage, micros,
};
use crate::controls::Controls;

impl Consuming for Sqlite {
    async fn claim(
        conn: &mut SqliteConnection,
        sql: &Sql,
        consumer: i16,
        lanes: &[i16],
        _: bool,
        patience: Duration,
        _: Controls,
    ) -> SqlResult<Option<Claimed>> {
        let claim = query(sql.claim.clone()).bind(consumer).bind(micros(patience)).bind(json(lanes));
        let claimed = claim.fetch_optional(conn).await?;
        claimed.map(|row| claimed_lane(&row)).transpose()
    }

    /// The transaction began as the file's writer, which is more than the lane.
    async fn lock_lane(conn: &mut SqliteConnection, sql: &Sql, lane: Lane) -> SqlResult<Option<LaneRow>> {
        let found =
            query(sql.lock_lane.clone()).bind(lane.consumer).bind(lane.lane).fetch_optional(conn).await?;
        found.map(|row| lane_row(&row)).transpose()
    }

    async fn read(
        conn: &mut SqliteConnection,
        sql: &Sql,
        lane: Lane,
        portion: Portion,
    ) -> SqlResult<Vec<Next>> {
        let read = query(sql.read.clone())
            .bind(lane.consumer)
            .bind(lane.lane)
            .bind(portion.rows)
            .bind(portion.due)
            .bind(portion.bytes)
            .bind(micros(portion.patience));
        read.fetch_all(conn).await?.iter().map(next).collect()
    }

    async fn find(
        conn: &mut SqliteConnection,
        sql: &Sql,
        lane: Lane,
        key_hash: i64,
        seq: i64,
    ) -> SqlResult<Option<Next>> {
        let find = query(sql.find.clone()).bind(lane.consumer).bind(lane.lane).bind(key_hash).bind(seq);
        find.fetch_optional(conn).await?.map(|row| next(&row)).transpose()
    }

    async fn settle_deliveries(
        conn: &mut SqliteConnection,
        sql: &Sql,
        lane: Lane,
        seqs: &[i64],
        marks: Option<&[&str]>,
    ) -> SqlResult<u64> {
        let settle =
            query(sql.settle_deliveries.clone()).bind(lane.consumer).bind(lane.lane).bind(json(seqs));
        let settled = settle.execute(&mut *conn).await?.rows_affected();
        if let Some(ids) = marks.filter(|_| usize::try_from(settled) == Ok(seqs.len())) {
            query(sql.mark.clone()).bind(lane.consumer).bind(json(ids)).execute(conn).await?;
        }
        Ok(settled)
    }

    async fn settle_parked(
        conn: &mut SqliteConnection,
        sql: &Sql,
        lane: Lane,
        parked: Parked,
        mark: Option<&str>,
    ) -> SqlResult<u64> {
        let settle = query(sql.settle_parked.clone())
            .bind(lane.consumer)
            .bind(lane.lane)
            .bind(parked.key_hash)
            .bind(parked.seq)
            .bind(parked.attempts);
        let settled = settle.execute(&mut *conn).await?.rows_affected();
        if let Some(id) = mark.filter(|_| settled > 0) {
            query(sql.mark.clone()).bind(lane.consumer).bind(json(&[id])).execute(conn).await?;
        }
        Ok(settled)
    }

    async fn move_behind(conn: &mut SqliteConnection, sql: &Sql, lane: Lane, seqs: &[i64]) -> SqlResult<u64> {
        let copy = query(sql.move_behind.clone()).bind(lane.consumer).bind(lane.lane).bind(json(seqs));
        let copied = copy.execute(&mut *conn).await?.rows_affected();
        let removed = Self::settle_deliveries(conn, sql, lane, seqs, None).await?;
        Ok(copied.min(removed))
    }

    async fn park(
        conn: &mut SqliteConnection,
        sql: &Sql,
        lane: Lane,
        place: Place,
        parking: &Parking,
    ) -> SqlResult<u64> {
        let park = match place {
            Place::Delivery { seq } => {
                query(sql.park_delivery.clone()).bind(lane.consumer).bind(lane.lane).bind(seq)
            }
            Place::Parked(Parked { seq, key_hash, attempts }) => query(sql.park_again.clone())
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
        let parked = park.execute(&mut *conn).await?.rows_affected();
        match place {
            Place::Delivery { seq } if parked > 0 => {
                Self::settle_deliveries(conn, sql, lane, &[seq], None).await
            }
            _ => Ok(parked),
        }
    }

    async fn wake_next(conn: &mut SqliteConnection, sql: &Sql, lane: Lane, key_hash: i64) -> SqlResult<u64> {
        let woken = query(sql.wake_next.clone())
            .bind(lane.consumer)
            .bind(lane.lane)
            .bind(key_hash)
            .execute(conn)
            .await?;
        Ok(woken.rows_affected())
    }

    async fn record_attempt(
        conn: &mut SqliteConnection,
        sql: &Sql,
        consumer: i16,
        attempt: &Attempt<'_>,
        keep: i32,
    ) -> SqlResult<()> {
        query(sql.attempt_add.clone())
            .bind(consumer)
            .bind(attempt.seq)
            .bind(attempt.number)
            .bind(attempt.error)
            .bind(attempt.worker)
            .bind(micros(attempt.duration))
            .execute(&mut *conn)
            .await?;
        if attempt.number > keep {
            let trim = query(sql.attempt_trim.clone()).bind(consumer).bind(attempt.seq);
            trim.bind(attempt.number - keep).execute(conn).await?;
        }
        Ok(())
    }

    async fn clear_suspect(conn: &mut SqliteConnection, sql: &Sql, lane: Lane) -> SqlResult<()> {
        let clear = query(sql.suspect_clear.clone()).bind(lane.consumer).bind(lane.lane);
        clear.execute(conn).await.map(drop)
    }

    async fn set_suspect(conn: &mut SqliteConnection, sql: &Sql, lane: Lane, alone: i32) -> SqlResult<u64> {
        let set = query(sql.suspect_set.clone()).bind(lane.consumer).bind(lane.lane).bind(alone);
        Ok(set.execute(conn).await?.rows_affected())
    }

    /// The guard's hook does it.
    async fn cancel(_: &mut SqliteConnection, _: &Sql, _: Running) -> SqlResult<()> {
        Ok(())
    }

    async fn remaining(
        conn: &mut SqliteConnection,
        sql: &Sql,
        consumers: &[i16],
        limit: i64,
    ) -> SqlResult<i64> {
        query_scalar(sql.remaining.clone()).bind(json(consumers)).bind(limit).fetch_one(conn).await
    }
}

fn next(row: &SqliteRow) -> SqlResult<Next> {
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

pub(super) fn message(row: &SqliteRow) -> SqlResult<Option<StoredMessage>> {
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
        created_at: time(row.try_get("created_at")?),
    }))
}

fn claimed_lane(row: &SqliteRow) -> SqlResult<Claimed> {
    Ok(Claimed {
        lane: row.try_get("lane")?,
        running: Running { backend: row.try_get("backend")?, began: 0 },
        suspect: row.try_get("suspect")?,
    })
}

fn lane_row(row: &SqliteRow) -> SqlResult<LaneRow> {
    let (leased_by, leased) = (row.try_get("leased_by")?, row.try_get("leased")?);
    Ok(LaneRow { leased_by, leased, running: None })
}
