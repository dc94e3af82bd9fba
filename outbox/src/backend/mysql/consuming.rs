//! Working on lanes on MySQL.

use std::collections::HashSet;
use std::time::{Duration, SystemTime};

use chrono::{DateTime, Utc};
use sqlx::mysql::MySqlRow;
use sqlx::{MySql, MySqlConnection, Row as _, SqlStr, query, query_scalar, raw_sql};

use super::{
    LOCK_WAIT_TIMEOUT, Server, is_duplicate, list, number, optional_text, repeated, text, with_numbers,
};
use crate::backend::{
    Attempt, Claimed, Consuming, Lane, LaneRow, Mark, Next, Parked, ParkedState, Parking, Place, Portion,
    Running, SqlResult, StoredMessage, micros, statement,
};
use crate::controls::Controls;

/// How many numbers go in one statement. The optimizers give up on lists of more than a few hundred.
const LIST: usize = 256;

impl Consuming for MySql {
    async fn claim(
        conn: &mut MySqlConnection,
        sql: &Server,
        consumer: i16,
        lanes: &[i16],
        suspects: bool,
        patience: Duration,
        controls: Controls,
    ) -> SqlResult<Option<Claimed>> {
        let runnable = query_scalar(sql.claim.clone()).bind(consumer).bind(suspects).bind(micros(patience));
        let runnable: HashSet<i16> = runnable.fetch_all(&mut *conn).await?.into_iter().collect();
        let claim = if controls.lane_lock { &sql.claim_lane } else { &sql.claim_unlocked };
        for lane in lanes.iter().filter(|lane| runnable.contains(lane)) {
            let claim = query(claim.clone()).bind(consumer).bind(lane);
            if let Some(row) = claim.fetch_optional(&mut *conn).await? {
                return claimed_lane(&row).map(Some);
            }
        }
        Ok(None)
    }

    async fn lock_lane(conn: &mut MySqlConnection, sql: &Server, lane: Lane) -> SqlResult<Option<LaneRow>> {
        loop {
            let lock = query(sql.lock_lane.clone()).bind(lane.consumer).bind(lane.lane);
            match lock.fetch_optional(&mut *conn).await {
                // The statement alone is over, and the transaction goes on: whoever holds the lane may take his time.
                Err(error) if number(&error) == Some(LOCK_WAIT_TIMEOUT) => {}
                locked => return locked?.map(|row| lane_row(&row)).transpose(),
            }
        }
    }

    async fn read(
        conn: &mut MySqlConnection,
        sql: &Server,
        lane: Lane,
        portion: Portion,
    ) -> SqlResult<Vec<Next>> {
        let due = query(sql.due.clone()).bind(lane.consumer).bind(lane.lane);
        let due = due.bind(micros(portion.patience)).bind(portion.due).fetch_all(&mut *conn).await?;
        let mut heads: Vec<(i64, i64)> = Vec::with_capacity(due.len());
        for row in due {
            let (key, seq): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
            // What is due behind one that is due is read with it.
            match heads.iter_mut().find(|(known, _)| *known == key) {
                Some((_, first)) => *first = seq.min(*first),
                None => heads.push((key, seq)),
            }
        }
        let mut read = Vec::new();
        if !heads.is_empty() {
            let parked = raw_sql(behind(&sql.read_parked, lane, &heads, portion));
            read = parked.fetch_all(&mut *conn).await?.iter().map(next).collect::<SqlResult<_>>()?;
        }
        let delivered = query(sql.read.clone()).bind(lane.consumer).bind(lane.lane);
        let delivered = delivered.bind(portion.rows).bind(portion.bytes).fetch_all(conn).await?;
        for row in &delivered {
            read.push(next(row)?);
        }
        Ok(read)
    }

    async fn find(
        conn: &mut MySqlConnection,
        sql: &Server,
        lane: Lane,
        key_hash: i64,
        seq: i64,
    ) -> SqlResult<Option<Next>> {
        let find = query(sql.find.clone()).bind(lane.consumer).bind(lane.lane).bind(key_hash).bind(seq);
        find.fetch_optional(conn).await?.map(|row| next(&row)).transpose()
    }

    async fn settle_deliveries(
        conn: &mut MySqlConnection,
        sql: &Server,
        lane: Lane,
        seqs: &[i64],
        marks: Option<&[&str]>,
    ) -> SqlResult<u64> {
        let mut settled = 0;
        for part in seqs.chunks(LIST) {
            let settle = raw_sql(in_lane(&sql.settle_deliveries, lane, part));
            settled += settle.execute(&mut *conn).await?.rows_affected();
        }
        if marks.is_some() && usize::try_from(settled) == Ok(seqs.len()) {
            let mut marked = 0;
            for part in seqs.chunks(LIST) {
                let mark = raw_sql(in_lane(&sql.mark_all, lane, part));
                marked += mark.execute(&mut *conn).await?.rows_affected();
            }
            // A message that somebody has deleted meanwhile would have no mark.
            settled = settled.min(marked);
        }
        Ok(settled)
    }

    async fn settle_parked(
        conn: &mut MySqlConnection,
        sql: &Server,
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
            query(sql.mark.clone()).bind(lane.consumer).bind(id).execute(conn).await?;
        }
        Ok(settled)
    }

    async fn move_behind(
        conn: &mut MySqlConnection,
        sql: &Server,
        lane: Lane,
        seqs: &[i64],
    ) -> SqlResult<u64> {
        let mut copied = 0;
        for part in seqs.chunks(LIST) {
            let copy = raw_sql(in_lane(&sql.move_behind, lane, part));
            copied += copy.execute(&mut *conn).await?.rows_affected();
        }
        let removed = Self::settle_deliveries(conn, sql, lane, seqs, None).await?;
        Ok(copied.min(removed))
    }

    async fn park(
        conn: &mut MySqlConnection,
        sql: &Server,
        lane: Lane,
        place: Place,
        parking: &Parking,
    ) -> SqlResult<u64> {
        let park = match place {
            Place::Delivery { .. } => query(sql.park_delivery.clone()).bind(parking.ordered),
            Place::Parked(_) => query(sql.park_again.clone()),
        };
        let park = park
            .bind(parking.state.code())
            .bind(parking.attempts)
            .bind(parking.total_attempts)
            .bind(parking.conflicts)
            .bind(parking.pause.map(micros))
            .bind(parking.error.as_deref())
            .bind(parking.error.as_deref())
            .bind(parking.state.code())
            .bind(lane.consumer)
            .bind(lane.lane);
        let park = match place {
            Place::Delivery { seq } => park.bind(seq),
            Place::Parked(Parked { seq, key_hash, attempts }) => park.bind(key_hash).bind(seq).bind(attempts),
        };
        let parked = park.execute(&mut *conn).await?.rows_affected();
        match place {
            Place::Delivery { seq } if parked > 0 => {
                Self::settle_deliveries(conn, sql, lane, &[seq], None).await
            }
            _ => Ok(parked),
        }
    }

    async fn wake_next(
        conn: &mut MySqlConnection,
        sql: &Server,
        lane: Lane,
        key_hash: i64,
    ) -> SqlResult<u64> {
        let mut wake = query(sql.wake_next.clone());
        for _ in 0..2 {
            wake = wake.bind(lane.consumer).bind(lane.lane).bind(key_hash);
        }
        Ok(wake.execute(conn).await?.rows_affected())
    }

    async fn record_attempt(
        conn: &mut MySqlConnection,
        sql: &Server,
        consumer: i16,
        attempt: &Attempt<'_>,
        keep: i32,
    ) -> SqlResult<()> {
        let added = query(sql.attempt_add.clone())
            .bind(consumer)
            .bind(attempt.seq)
            .bind(attempt.number)
            .bind(attempt.error)
            .bind(attempt.worker)
            .bind(micros(attempt.duration))
            .execute(&mut *conn)
            .await;
        match added {
            Err(error) if is_duplicate(&error) => {}
            added => {
                added?;
            }
        }
        if attempt.number > keep {
            let trim = query(sql.attempt_trim.clone()).bind(consumer).bind(attempt.seq);
            trim.bind(attempt.number - keep).execute(conn).await?;
        }
        Ok(())
    }

    async fn clear_suspect(conn: &mut MySqlConnection, sql: &Server, lane: Lane) -> SqlResult<()> {
        let clear = query(sql.suspect_clear.clone()).bind(lane.consumer).bind(lane.lane);
        clear.execute(conn).await.map(drop)
    }

    async fn set_suspect(conn: &mut MySqlConnection, sql: &Server, lane: Lane, alone: i32) -> SqlResult<u64> {
        let set = query(sql.suspect_set.clone()).bind(alone).bind(lane.consumer).bind(lane.lane);
        Ok(set.execute(conn).await?.rows_affected())
    }

    async fn cancel(conn: &mut MySqlConnection, sql: &Server, running: Running) -> SqlResult<()> {
        raw_sql(with_numbers(&sql.cancel, [running.backend])).execute(conn).await.map(drop)
    }

    async fn remaining(
        conn: &mut MySqlConnection,
        sql: &Server,
        consumers: &[i16],
        limit: i64,
    ) -> SqlResult<i64> {
        let consumers = list(consumers);
        let count = query_scalar(sql.remaining.clone()).bind(&consumers).bind(limit);
        count.bind(&consumers).bind(limit).bind(limit).fetch_one(conn).await
    }
}

/// `read_parked` for these keys, from these numbers on.
fn behind(sql: &SqlStr, lane: Lane, heads: &[(i64, i64)], portion: Portion) -> SqlStr {
    let sql = repeated(sql, heads.len(), |at, each| {
        let (key, seq) = heads[at];
        let each = each.replace("/*key*/0", &key.to_string()).replace("/*seq*/0", &seq.to_string());
        each.replace("/*number*/0", &at.to_string())
    });
    let sql = sql.replace("/*rows*/0", &portion.rows.to_string());
    let sql = sql.replace("/*bytes*/0", &portion.bytes.to_string());
    let sql = sql.replace("/*consumer*/0", &lane.consumer.to_string());
    statement(sql.replace("/*lane*/0", &lane.lane.to_string()))
}

/// A statement about messages of a lane. As text, since each length of a list would be one more to prepare.
fn in_lane(sql: &SqlStr, lane: Lane, seqs: &[i64]) -> SqlStr {
    let sql = with_numbers(sql, seqs);
    let sql = sql.as_str().replace("/*consumer*/0", &lane.consumer.to_string());
    statement(sql.replace("/*lane*/0", &lane.lane.to_string()))
}

fn next(row: &MySqlRow) -> SqlResult<Next> {
    let seq = row.try_get("seq")?;
    let attempts = row.try_get("attempts")?;
    let state: i16 = row.try_get("state")?;
    let parked = flag(row, "parked")?;
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
        blocked: flag(row, "blocked")?,
        mark: Mark::of(row.try_get("mark")?),
        key_hash: row.try_get("key_hash")?,
        message: message(row).transpose(),
    })
}

/// What is true or false is a number of one size or another.
fn flag(row: &MySqlRow, column: &str) -> SqlResult<bool> {
    Ok(row.try_get::<i64, _>(column)? != 0)
}

pub(super) fn message(row: &MySqlRow) -> SqlResult<Option<StoredMessage>> {
    let Some(id) = optional_text(row, "id")? else { return Ok(None) };
    Ok(Some(StoredMessage {
        id,
        event_type: text(row, "event_type")?,
        version: row.try_get("version")?,
        topic: text(row, "topic")?,
        source: optional_text(row, "source")?,
        aggregate_id: optional_text(row, "aggregate_id")?,
        key: optional_text(row, "msg_key")?,
        payload: row.try_get("payload")?,
        content_type: text(row, "content_type")?,
        headers: optional_text(row, "headers")?,
        created_at: SystemTime::from(row.try_get::<DateTime<Utc>, _>("created_at")?),
    }))
}

fn claimed_lane(row: &MySqlRow) -> SqlResult<Claimed> {
    Ok(Claimed {
        lane: row.try_get("lane")?,
        running: Running { backend: i64::try_from(row.try_get::<u64, _>("backend")?).unwrap_or(0), began: 0 },
        suspect: row.try_get("suspect")?,
    })
}

fn lane_row(row: &MySqlRow) -> SqlResult<LaneRow> {
    let (leased_by, leased) = (optional_text(row, "leased_by")?, flag(row, "leased")?);
    Ok(LaneRow { leased_by, leased, running: None })
}
