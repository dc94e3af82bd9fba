//! Keeping the tables small on MySQL.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::{MySql, MySqlConnection, Row as _, SqlStr, query, query_scalar, raw_sql};

use super::{Server, optional_text, repeated, text};
use crate::backend::{
    Ages, Lane, Maintaining, Maintenance, OldDead, Position, Positions, Range, RemovedMessages, SqlResult,
    micros, statement,
};

/// How many values a list has at most.
const LIST: usize = 500;

impl Maintaining for MySql {
    async fn try_lock_registry(conn: &mut MySqlConnection, sql: &Server) -> SqlResult<bool> {
        Ok(query(sql.registry_try.clone()).fetch_optional(conn).await?.is_some())
    }

    async fn end_of_messages(
        conn: &mut MySqlConnection,
        sql: &Server,
        range: Range,
        limit: i64,
        age: Option<Duration>,
    ) -> SqlResult<Option<i64>> {
        let (end, age) = (query_scalar(sql.message_batch.clone()), age.map(micros));
        end.bind(age).bind(age).bind(range.first - 1).bind(range.last).bind(limit).fetch_one(conn).await
    }

    async fn remove_messages(
        conn: &mut MySqlConnection,
        sql: &Server,
        range: Range,
        ages: Ages,
        guarded: bool,
    ) -> SqlResult<RemovedMessages> {
        let find = query(sql.message_prunable.clone())
            .bind(range.first - 1)
            .bind(range.last)
            .bind(ages.delivered.map(micros))
            .bind(ages.unrouted.map(micros))
            .bind(!guarded);
        let mut found = BTreeMap::new();
        let mut ids = Vec::new();
        for row in find.fetch_all(&mut *conn).await? {
            ids.push(row.try_get::<Vec<u8>, _>("id")?);
            let unrouted = row.try_get::<i64, _>("unrouted")? != 0;
            let event_type = unrouted.then(|| text(&row, "event_type")).transpose()?;
            found.insert(row.try_get::<i64, _>("seq")?, event_type);
        }
        let mut removed = RemovedMessages::default();
        if found.is_empty() {
            return Ok(removed);
        }
        let consumers = query(sql.consumers.clone()).bind(i16::MIN).bind(None::<&str>).bind(None::<&str>);
        let consumers = consumers.fetch_all(&mut *conn).await?;
        for ids in ids.chunks(LIST) {
            let locking = statement(repeated(&sql.message_lock, ids.len(), |_, each| each.to_owned()));
            let mut lock = query_scalar(locking).persistent(false);
            for id in ids {
                lock = lock.bind(id);
            }
            let seqs: Vec<i64> = lock.fetch_all(&mut *conn).await?;
            if seqs.is_empty() {
                continue;
            }
            removed.found += seqs.len();
            let remove = raw_sql(of(&sql.message_prune, &seqs));
            removed.removed += remove.execute(&mut *conn).await?.rows_affected();
            for consumer in &consumers {
                let remove = query(of(&sql.attempt_prune, &seqs)).persistent(false);
                remove.bind(consumer.try_get::<i16, _>("id")?).execute(&mut *conn).await?;
            }
            let mut unrouted = BTreeMap::<&str, Vec<i64>>::new();
            for seq in seqs {
                if let Some(Some(event_type)) = found.get(&seq) {
                    unrouted.entry(event_type).or_default().push(seq);
                }
            }
            for (event_type, seqs) in unrouted {
                let gone = query(of(&sql.unrouted_prune, &seqs)).persistent(false);
                removed.unrouted += gone.bind(event_type).execute(&mut *conn).await?.rows_affected();
            }
        }
        Ok(removed)
    }

    async fn end_of_marks(
        conn: &mut MySqlConnection,
        sql: &Server,
        range: Range,
        limit: i64,
        age: Duration,
    ) -> SqlResult<Option<i64>> {
        let end = query_scalar(sql.mark_batch.clone()).bind(range.first - 1).bind(range.last);
        end.bind(micros(age)).bind(limit).fetch_one(conn).await
    }

    async fn remove_old_marks(
        conn: &mut MySqlConnection,
        sql: &Server,
        range: Range,
        age: Duration,
        guarded: bool,
    ) -> SqlResult<u64> {
        let find = query(sql.mark_prunable.clone()).bind(range.first - 1).bind(range.last);
        let find = find.bind(micros(age)).bind(micros(age)).bind(!guarded);
        let mut found = BTreeMap::<i16, Vec<Vec<u8>>>::new();
        for row in find.fetch_all(&mut *conn).await? {
            found.entry(row.try_get("consumer")?).or_default().push(row.try_get("message_id")?);
        }
        let mut removed = 0;
        for (consumer, ids) in found {
            for ids in ids.chunks(LIST) {
                let removing = statement(repeated(&sql.mark_prune, ids.len(), |_, each| each.to_owned()));
                let mut remove = query(removing).persistent(false);
                for id in ids {
                    remove = remove.bind(id);
                }
                removed += remove.bind(consumer).execute(&mut *conn).await?.rows_affected();
            }
        }
        Ok(removed)
    }

    async fn old_dead(
        conn: &mut MySqlConnection,
        sql: &Server,
        age: Duration,
        limit: i64,
    ) -> SqlResult<Vec<OldDead>> {
        let rows = query(sql.dead_old.clone()).bind(micros(age)).bind(limit).fetch_all(conn).await?;
        let dead = rows.iter().map(|row| {
            Ok(OldDead {
                lane: Lane { consumer: row.try_get("consumer")?, lane: row.try_get("lane")? },
                key_hash: row.try_get("key_hash")?,
                seq: row.try_get("seq")?,
            })
        });
        dead.collect()
    }

    async fn discard_old(
        conn: &mut MySqlConnection,
        sql: &Server,
        dead: OldDead,
        age: Duration,
    ) -> SqlResult<u64> {
        let discard = query(sql.discard_old.clone()).bind(dead.lane.consumer).bind(dead.lane.lane);
        let discard = discard.bind(dead.key_hash).bind(dead.seq).bind(micros(age));
        Ok(discard.execute(conn).await?.rows_affected())
    }

    async fn lock_maintenance(
        conn: &mut MySqlConnection,
        sql: &Server,
        every: Duration,
    ) -> SqlResult<Option<Maintenance>> {
        let row = query(sql.maintenance_lock.clone()).bind(micros(every)).fetch_optional(conn).await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(Maintenance {
            holder: optional_text(&row, "holder")?,
            due: row.try_get::<i64, _>("due")? != 0,
            positions: Positions {
                messages: Position {
                    front: row.try_get("message_front")?,
                    again: row.try_get("message_again")?,
                },
                marks: Position { front: row.try_get("mark_front")?, again: row.try_get("mark_again")? },
            },
        }))
    }

    async fn add_maintenance(conn: &mut MySqlConnection, sql: &Server) -> SqlResult<u64> {
        Ok(query(sql.maintenance_add.clone()).execute(conn).await?.rows_affected())
    }

    async fn start_maintenance(conn: &mut MySqlConnection, sql: &Server, holder: &str) -> SqlResult<u64> {
        Ok(query(sql.maintenance_start.clone()).bind(holder).execute(conn).await?.rows_affected())
    }

    async fn move_maintenance(
        conn: &mut MySqlConnection,
        sql: &Server,
        holder: &str,
        positions: Positions,
    ) -> SqlResult<u64> {
        let Positions { messages, marks } = positions;
        let moved = query(sql.maintenance_move.clone()).bind(messages.front).bind(messages.again);
        let moved = moved.bind(marks.front).bind(marks.again).bind(holder);
        Ok(moved.execute(conn).await?.rows_affected())
    }

    async fn end_maintenance(
        conn: &mut MySqlConnection,
        sql: &Server,
        holder: &str,
        error: Option<&str>,
    ) -> SqlResult<u64> {
        let end = query(sql.maintenance_end.clone()).bind(error).bind(error).bind(error).bind(holder);
        Ok(end.execute(conn).await?.rows_affected())
    }
}

/// A statement about the messages of these numbers.
fn of(sql: &SqlStr, seqs: &[i64]) -> SqlStr {
    let number = |at: usize, each: &str| each.replace("/*number*/0", &seqs[at].to_string());
    statement(repeated(sql, seqs.len(), number))
}
