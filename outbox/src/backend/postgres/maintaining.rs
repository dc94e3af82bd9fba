//! Keeping the tables small on PostgreSQL.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::{PgConnection, Postgres, Row as _, SqlStr};

use super::Server;
use crate::backend::{
    Ages, Lane, Maintaining, Maintenance, OldDead, Position, Positions, Range, RemovedMessages, SqlResult,
    Storage as _, micros,
};

impl Maintaining for Postgres {
    /// READ COMMITTED and with settled plans, whatever the application's connections have.
    fn begin_maintenance() -> SqlStr {
        Self::begin_registration()
    }

    async fn try_lock_registry(conn: &mut PgConnection, sql: &Server) -> SqlResult<bool> {
        Ok(sql.query(&sql.registry_try).fetch_optional(conn).await?.is_some())
    }

    async fn end_of_messages(
        conn: &mut PgConnection,
        sql: &Server,
        range: Range,
        limit: i64,
        age: Option<Duration>,
    ) -> SqlResult<Option<i64>> {
        let end = sql.query_scalar(&sql.message_batch).bind(range.first - 1).bind(range.last);
        end.bind(limit).bind(age.map(micros)).fetch_one(conn).await
    }

    async fn remove_messages(
        conn: &mut PgConnection,
        sql: &Server,
        range: Range,
        ages: Ages,
        guarded: bool,
    ) -> SqlResult<RemovedMessages> {
        let remove = sql
            .query(&sql.message_prune)
            .bind(range.first - 1)
            .bind(range.last)
            .bind(ages.delivered.map(micros))
            .bind(ages.unrouted.map(micros))
            .bind(!guarded);
        let (mut seqs, mut unrouted) = (Vec::new(), BTreeMap::<String, Vec<i64>>::new());
        for row in remove.fetch_all(&mut *conn).await? {
            let seq = row.try_get("seq")?;
            seqs.push(seq);
            if row.try_get("unrouted")? {
                unrouted.entry(row.try_get("event_type")?).or_default().push(seq);
            }
        }
        let mut removed = RemovedMessages { found: seqs.len(), removed: seqs.len() as u64, unrouted: 0 };
        if !seqs.is_empty() {
            sql.query(&sql.attempt_prune).bind(seqs).execute(&mut *conn).await?;
        }
        for (event_type, seqs) in unrouted {
            let gone = sql.query(&sql.unrouted_prune).bind(event_type).bind(seqs);
            removed.unrouted += gone.execute(&mut *conn).await?.rows_affected();
        }
        Ok(removed)
    }

    async fn end_of_marks(
        conn: &mut PgConnection,
        sql: &Server,
        range: Range,
        limit: i64,
        age: Duration,
    ) -> SqlResult<Option<i64>> {
        let end = sql.query_scalar(&sql.mark_batch).bind(range.first - 1).bind(range.last);
        end.bind(limit).bind(micros(age)).fetch_one(conn).await
    }

    async fn remove_old_marks(
        conn: &mut PgConnection,
        sql: &Server,
        range: Range,
        age: Duration,
        guarded: bool,
    ) -> SqlResult<u64> {
        let remove = sql.query(&sql.mark_prune).bind(range.first - 1).bind(range.last);
        Ok(remove.bind(micros(age)).bind(!guarded).execute(conn).await?.rows_affected())
    }

    async fn old_dead(
        conn: &mut PgConnection,
        sql: &Server,
        age: Duration,
        limit: i64,
    ) -> SqlResult<Vec<OldDead>> {
        let rows = sql.query(&sql.dead_old).bind(micros(age)).bind(limit).fetch_all(conn).await?;
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
        conn: &mut PgConnection,
        sql: &Server,
        dead: OldDead,
        age: Duration,
    ) -> SqlResult<u64> {
        let discard = sql.query(&sql.discard_old).bind(dead.lane.consumer).bind(dead.lane.lane);
        let discard = discard.bind(dead.key_hash).bind(dead.seq).bind(micros(age));
        Ok(discard.execute(conn).await?.rows_affected())
    }

    async fn lock_maintenance(
        conn: &mut PgConnection,
        sql: &Server,
        every: Duration,
    ) -> SqlResult<Option<Maintenance>> {
        let row = sql.query(&sql.maintenance_lock).bind(micros(every)).fetch_optional(conn).await?;
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

    async fn add_maintenance(conn: &mut PgConnection, sql: &Server) -> SqlResult<u64> {
        Ok(sql.query(&sql.maintenance_add).execute(conn).await?.rows_affected())
    }

    async fn start_maintenance(conn: &mut PgConnection, sql: &Server, holder: &str) -> SqlResult<u64> {
        Ok(sql.query(&sql.maintenance_start).bind(holder).execute(conn).await?.rows_affected())
    }

    async fn move_maintenance(
        conn: &mut PgConnection,
        sql: &Server,
        holder: &str,
        positions: Positions,
    ) -> SqlResult<u64> {
        let Positions { messages, marks } = positions;
        let moved = sql.query(&sql.maintenance_move).bind(holder);
        let moved = moved.bind(messages.front).bind(messages.again).bind(marks.front).bind(marks.again);
        Ok(moved.execute(conn).await?.rows_affected())
    }

    async fn end_maintenance(
        conn: &mut PgConnection,
        sql: &Server,
        holder: &str,
        error: Option<&str>,
    ) -> SqlResult<u64> {
        let end = sql.query(&sql.maintenance_end).bind(holder).bind(error);
        Ok(end.execute(conn).await?.rows_affected())
    }
}
