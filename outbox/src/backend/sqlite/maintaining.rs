//! Keeping the tables small on SQLite.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::{Row as _, Sqlite, SqliteConnection, query, query_scalar};

use super::{Sql, json};
use crate::backend::{
    Ages, Lane, Maintaining, Maintenance, OldDead, Position, Positions, Range, RemovedMessages, SqlResult,
    micros,
};

impl Maintaining for Sqlite {
    /// The transaction holds the file's write lock.
    async fn try_lock_registry(_: &mut SqliteConnection, _: &Sql) -> SqlResult<bool> {
        Ok(true)
    }

    async fn end_of_messages(
        conn: &mut SqliteConnection,
        sql: &Sql,
        range: Range,
        limit: i64,
        age: Option<Duration>,
    ) -> SqlResult<Option<i64>> {
        let end = query_scalar(sql.message_batch.clone()).bind(range.first - 1).bind(range.last);
        end.bind(limit).bind(age.map(micros)).fetch_one(conn).await
    }

    async fn remove_messages(
        conn: &mut SqliteConnection,
        sql: &Sql,
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
        let (mut seqs, mut unrouted) = (Vec::new(), BTreeMap::<String, Vec<i64>>::new());
        for row in find.fetch_all(&mut *conn).await? {
            let seq: i64 = row.try_get("seq")?;
            seqs.push(seq);
            if row.try_get("unrouted")? {
                unrouted.entry(row.try_get("event_type")?).or_default().push(seq);
            }
        }
        let mut removed = RemovedMessages { found: seqs.len(), ..RemovedMessages::default() };
        if seqs.is_empty() {
            return Ok(removed);
        }
        let seqs = json(&seqs);
        removed.removed =
            query(sql.message_prune.clone()).bind(&seqs).execute(&mut *conn).await?.rows_affected();
        query(sql.attempt_prune.clone()).bind(&seqs).execute(&mut *conn).await?;
        for (event_type, seqs) in unrouted {
            let gone = query(sql.unrouted_prune.clone()).bind(event_type).bind(json(&seqs));
            removed.unrouted += gone.execute(&mut *conn).await?.rows_affected();
        }
        Ok(removed)
    }

    async fn end_of_marks(
        conn: &mut SqliteConnection,
        sql: &Sql,
        range: Range,
        limit: i64,
        age: Duration,
    ) -> SqlResult<Option<i64>> {
        let end = query_scalar(sql.mark_batch.clone()).bind(range.first - 1).bind(range.last);
        end.bind(limit).bind(micros(age)).fetch_one(conn).await
    }

    async fn remove_old_marks(
        conn: &mut SqliteConnection,
        sql: &Sql,
        range: Range,
        age: Duration,
        guarded: bool,
    ) -> SqlResult<u64> {
        let remove = query(sql.mark_prune.clone()).bind(range.first - 1).bind(range.last);
        Ok(remove.bind(micros(age)).bind(!guarded).execute(conn).await?.rows_affected())
    }

    async fn old_dead(
        conn: &mut SqliteConnection,
        sql: &Sql,
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
        conn: &mut SqliteConnection,
        sql: &Sql,
        dead: OldDead,
        age: Duration,
    ) -> SqlResult<u64> {
        let discard = query(sql.discard_old.clone()).bind(dead.lane.consumer).bind(dead.lane.lane);
        let discard = discard.bind(dead.key_hash).bind(dead.seq).bind(micros(age));
        Ok(discard.execute(conn).await?.rows_affected())
    }

    async fn lock_maintenance(
        conn: &mut SqliteConnection,
        sql: &Sql,
        every: Duration,
    ) -> SqlResult<Option<Maintenance>> {
        let row = query(sql.maintenance_lock.clone()).bind(micros(every)).fetch_optional(conn).await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(Maintenance {
            holder: row.try_get("holder")?,
            due: row.try_get("due")?,
            positions: Positions {
                messages: Position {
                    front: row.try_get("message_front")?,
                    again: row.try_get("message_again")?,
                },
                marks: Position { front: row.try_get("mark_front")?, again: row.try_get("mark_again")? },
            },
        }))
    }

    async fn add_maintenance(conn: &mut SqliteConnection, sql: &Sql) -> SqlResult<u64> {
        Ok(query(sql.maintenance_add.clone()).execute(conn).await?.rows_affected())
    }

    async fn start_maintenance(conn: &mut SqliteConnection, sql: &Sql, holder: &str) -> SqlResult<u64> {
        Ok(query(sql.maintenance_start.clone()).bind(holder).execute(conn).await?.rows_affected())
    }

    async fn move_maintenance(
        conn: &mut SqliteConnection,
        sql: &Sql,
        holder: &str,
        positions: Positions,
    ) -> SqlResult<u64> {
        let Positions { messages, marks } = positions;
        let moved = query(sql.maintenance_move.clone()).bind(holder);
        let moved = moved.bind(messages.front).bind(messages.again).bind(marks.front).bind(marks.again);
        Ok(moved.execute(conn).await?.rows_affected())
    }

    async fn end_maintenance(
        conn: &mut SqliteConnection,
        sql: &Sql,
        holder: &str,
        error: Option<&str>,
    ) -> SqlResult<u64> {
        let end = query(sql.maintenance_end.clone()).bind(holder).bind(error);
        Ok(end.execute(conn).await?.rows_affected())
    }
}
