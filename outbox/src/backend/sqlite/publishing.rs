//! Publishing on SQLite.

use chrono::{DateTime, Utc};
use sqlx::{Sqlite, SqliteConnection, query_scalar, raw_sql};

use super::Sql;
use crate::backend::{PublishOutcome, Publishing, SqlResult, delivery, micros};
use crate::controls::Controls;
use crate::draft::{DeliverAt, Outgoing};
use crate::export::{Parameter, Statement};

impl Publishing for Sqlite {
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

    fn export(sql: &Sql, message: &Outgoing) -> Vec<Statement> {
        let text = |text: &str| Parameter::Text(Some(text.to_owned()));
        let optional = |text: &Option<String>| Parameter::Text(text.clone());
        let (at, after) = delivery(message);
        let parameters = vec![
            text(message.id.as_str()),
            text(&message.event_type),
            Parameter::Int(Some(message.version)),
            text(&message.topic),
            optional(&message.source),
            optional(&message.aggregate_id),
            Parameter::Text(message.key.as_ref().map(|key| key.text.clone())),
            Parameter::Int(Some(message.slot)),
            Parameter::BigInt(message.key.as_ref().map(|key| key.hash)),
            Parameter::Bytes(Some(message.payload.clone())),
            text(&message.content_type),
            optional(&message.headers),
            Parameter::BigInt(at),
            Parameter::BigInt(after),
        ];
        vec![Statement::new(sql.publish_statement.as_str(), parameters).storing()]
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
