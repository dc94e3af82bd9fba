//! Registering and publishing on SQLite.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use sqlx::{Row, Sqlite, SqliteConnection, query, query_scalar, raw_sql};

use super::Sql;
use crate::backend::{ConsumerRow, PublishOutcome, Publishing, SqlResult, micros};
use crate::controls::Controls;
use crate::draft::{DeliverAt, Outgoing};

impl Publishing for Sqlite {
    /// The write lock of the file excludes other registrations.
    async fn lock_registry(_: &mut SqliteConnection, _: &Sql) -> SqlResult<()> {
        Ok(())
    }

    async fn consumer(conn: &mut SqliteConnection, sql: &Sql, name: &str) -> SqlResult<Option<ConsumerRow>> {
        let row = query(sql.consumer_find.clone()).bind(name).fetch_optional(conn).await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(ConsumerRow {
            id: row.try_get("id")?,
            lanes: row.try_get("lanes")?,
            name: row.try_get("name")?,
            first_name: row.try_get("first_name")?,
        }))
    }

    async fn add_consumer(conn: &mut SqliteConnection, sql: &Sql, name: &str, lanes: i16) -> SqlResult<u64> {
        let add = query(sql.consumer_add.clone()).bind(name).bind(lanes);
        Ok(add.execute(conn).await?.rows_affected())
    }

    async fn add_lanes(conn: &mut SqliteConnection, sql: &Sql, name: &str) -> SqlResult<()> {
        query(sql.consumer_lanes.clone()).bind(name).execute(conn).await.map(drop)
    }

    async fn add_name(conn: &mut SqliteConnection, sql: &Sql, name: &str, present: &str) -> SqlResult<u64> {
        let add = query(sql.consumer_name.clone()).bind(name).bind(present);
        Ok(add.execute(conn).await?.rows_affected())
    }

    async fn rename_consumer(
        conn: &mut SqliteConnection,
        sql: &Sql,
        consumer: i16,
        present: &str,
        name: &str,
    ) -> SqlResult<u64> {
        let rename = query(sql.consumer_rename.clone()).bind(consumer).bind(present).bind(name);
        Ok(rename.execute(conn).await?.rows_affected())
    }

    async fn subscribe(
        conn: &mut SqliteConnection,
        sql: &Sql,
        consumer: i16,
        event_type: &str,
    ) -> SqlResult<u64> {
        let done = query(sql.subscribe.clone()).bind(event_type).bind(consumer).execute(conn).await?;
        Ok(done.rows_affected())
    }

    async fn unready(conn: &mut SqliteConnection, sql: &Sql, consumer: i16) -> SqlResult<Vec<String>> {
        query_scalar(sql.unready.clone()).bind(consumer).fetch_all(conn).await
    }

    /// Nobody publishes beside a registration: a transaction that read before it cannot write any more.
    async fn announce(_: &mut SqliteConnection, _: &Sql) -> SqlResult<()> {
        Ok(())
    }

    async fn publishers_in_flight(
        _: &mut SqliteConnection,
        _: &Sql,
        _: &HashSet<String>,
    ) -> SqlResult<HashSet<String>> {
        Ok(HashSet::new())
    }

    async fn backfill(conn: &mut SqliteConnection, sql: &Sql, event_type: &str) -> SqlResult<u64> {
        query(sql.backfill.clone()).bind(event_type).execute(&mut *conn).await?;
        query(sql.backfill_delayed.clone()).bind(event_type).execute(&mut *conn).await?;
        let taken = query(sql.backfill_taken.clone()).bind(event_type).execute(conn).await?;
        Ok(taken.rows_affected())
    }

    async fn ready(conn: &mut SqliteConnection, sql: &Sql, consumer: i16, event_type: &str) -> SqlResult<()> {
        query(sql.ready.clone()).bind(consumer).bind(event_type).execute(conn).await.map(drop)
    }

    async fn publish_one(
        conn: &mut SqliteConnection,
        sql: &Sql,
        message: &Outgoing,
        _: Controls,
    ) -> SqlResult<PublishOutcome> {
        let (deliver_at, deliver_after) = match message.deliver {
            Some(DeliverAt::Time(time)) => (Some(DateTime::<Utc>::from(time).timestamp_micros()), None),
            Some(DeliverAt::After(pause)) => (None, Some(micros(pause))),
            None => (None, None),
        };
        let stored: Option<i64> = query_scalar(sql.publish_one.clone())
            .bind(message.id.as_str())
            .bind(&message.event_type)
            .bind(message.version)
            .bind(&message.topic)
            .bind(message.source.as_deref())
            .bind(message.aggregate_id.as_deref())
            .bind(message.key.as_ref().map(|key| key.text.as_str()))
            .bind(message.slot)
            .bind(message.key.as_ref().map(|key| key.hash))
            .bind(message.payload.as_slice())
            .bind(&message.content_type)
            .bind(message.headers.as_deref())
            .bind(deliver_at)
            .bind(deliver_after)
            .fetch_optional(conn)
            .await?;
        Ok(if stored.is_some() { PublishOutcome::Stored } else { PublishOutcome::Duplicate })
    }

    async fn publish_many(
        conn: &mut SqliteConnection,
        sql: &Sql,
        messages: &[Outgoing],
        controls: Controls,
    ) -> SqlResult<Vec<PublishOutcome>> {
        // In process a statement a message costs no round trip, and it is prepared once. The savepoint makes the
        // call one: a failure writes nothing.
        raw_sql("savepoint outbox_publish").execute(&mut *conn).await?;
        let mut outcomes = Vec::with_capacity(messages.len());
        for message in messages {
            match Self::publish_one(conn, sql, message, controls).await {
                Ok(outcome) => outcomes.push(outcome),
                Err(error) => {
                    raw_sql("rollback to savepoint outbox_publish; release savepoint outbox_publish")
                        .execute(conn)
                        .await?;
                    return Err(error);
                }
            }
        }
        raw_sql("release savepoint outbox_publish").execute(conn).await?;
        Ok(outcomes)
    }
}
