//! Publishing on PostgreSQL.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use sqlx::postgres::PgRow;
use sqlx::{PgConnection, Postgres, Row, SqlStr};

use super::Server;
use crate::backend::{PublishOutcome, Publishing, SqlResult, delivery, micros};
use crate::controls::Controls;
use crate::draft::{DeliverAt, Outgoing};
use crate::export::{Parameter, Statement};

impl Publishing for Postgres {
    async fn publish_one(
        conn: &mut PgConnection,
        sql: &Server,
        message: &Outgoing,
        controls: Controls,
    ) -> SqlResult<PublishOutcome> {
        let publish = |statement: &SqlStr| {
            sql.query(statement)
                .bind(message.id.as_str())
                .bind(&message.event_type)
                .bind(message.version)
                .bind(&message.topic)
                .bind(message.source.as_deref())
                .bind(message.aggregate_id.as_deref())
                .bind(message.key.as_ref().map(|key| key.text.as_str()))
                .bind(message.slot)
                .bind(message.key.is_some() && controls.order_lock)
                .bind(message.key.as_ref().map(|key| key.hash))
                .bind(message.payload.as_slice())
                .bind(&message.content_type)
                .bind(message.headers.as_deref())
        };
        if message.deliver.is_none()
            && publish(&sql.publish_routed).execute(&mut *conn).await?.rows_affected() > 0
        {
            return Ok(PublishOutcome::Stored);
        }
        let publish = |locked: bool| {
            publish(&sql.publish_one).bind(deliver_at(message)).bind(deliver_after(message)).bind(locked)
        };
        let mut row = publish(false).fetch_one(&mut *conn).await?;
        if whole_outcome(&row)? == Some(PublishOutcome::StaleSnapshot) && lock_registry(conn, sql).await? {
            row = publish(true).fetch_one(conn).await?;
        }
        Ok(match whole_outcome(&row)? {
            Some(refused) => refused,
            None if row.try_get("stored")? => PublishOutcome::Stored,
            None => PublishOutcome::Duplicate,
        })
    }

    fn export(sql: &Server, message: &Outgoing) -> Vec<Statement> {
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
        conn: &mut PgConnection,
        sql: &Server,
        messages: &[Outgoing],
        controls: Controls,
    ) -> SqlResult<Vec<PublishOutcome>> {
        let mut ids = HashSet::new();
        let mut order: Vec<&Outgoing> =
            messages.iter().filter(|message| ids.insert(message.id.as_str())).collect();
        // Stable, so that messages of a key stay in the order of their publishes; and over all chunks, so that
        // the locks are taken in one order.
        order.sort_by_key(|message| message.slot);
        let mut stored = HashSet::new();
        for chunk in chunks(&order) {
            let mut row = publish_chunk(conn, sql, chunk, controls, false).await?;
            if whole_outcome(&row)? == Some(PublishOutcome::StaleSnapshot) && lock_registry(conn, sql).await?
            {
                row = publish_chunk(conn, sql, chunk, controls, true).await?;
            }
            if let Some(refused) = whole_outcome(&row)? {
                return Ok(vec![refused; messages.len()]);
            }
            stored.extend(row.try_get::<Vec<String>, _>("stored")?);
        }
        // Of two with one id in the same call the first was stored.
        Ok(messages
            .iter()
            .map(|message| {
                if stored.remove(message.id.as_str()) {
                    PublishOutcome::Stored
                } else {
                    PublishOutcome::Duplicate
                }
            })
            .collect())
    }
}

/// Waits for the registration that made a publish stale, so that the next statement sees what it subscribed. False
/// where the snapshot of the transaction cannot: under the stricter levels the answer stays, and is the caller's to
/// hear. A registration that died before its commit leaves nothing to wait for, and nothing that could be missed.
async fn lock_registry(conn: &mut PgConnection, sql: &Server) -> SqlResult<bool> {
    match sql.query(&sql.registry_share).fetch_one(conn).await {
        Ok(_) => Ok(true),
        Err(error) if error.as_database_error().is_some_and(|e| e.code().as_deref() == Some("40001")) => {
            Ok(false)
        }
        Err(error) => Err(error),
    }
}

/// The refusal of a whole publish, if it was refused.
fn whole_outcome(row: &PgRow) -> SqlResult<Option<PublishOutcome>> {
    // Null where the registry's row is missing, as after a restore without data.
    let fresh: Option<bool> = row.try_get("fresh")?;
    Ok(if !row.try_get::<bool, _>("ordered")? || fresh.is_none() {
        Some(PublishOutcome::NoOrderSlot)
    } else if fresh == Some(false) {
        Some(PublishOutcome::StaleSnapshot)
    } else {
        None
    })
}

/// Pieces that one statement can carry: neither too many rows to build nor too many bytes to hold twice.
fn chunks<'a>(messages: &'a [&'a Outgoing]) -> impl Iterator<Item = &'a [&'a Outgoing]> {
    const ROWS: usize = 5_000;
    const BYTES: usize = 16 * 1024 * 1024;
    let mut rest = messages;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = rest.iter().take(ROWS).take_while(|message| {
            bytes += message.payload.len();
            bytes <= BYTES
        });
        let (chunk, behind) = rest.split_at(fits.count().max(1).min(rest.len()));
        rest = behind;
        (!chunk.is_empty()).then_some(chunk)
    })
}

async fn publish_chunk(
    conn: &mut PgConnection,
    sql: &Server,
    messages: &[&Outgoing],
    controls: Controls,
    locked: bool,
) -> SqlResult<PgRow> {
    fn column<'a, T>(messages: &[&'a Outgoing], field: impl Fn(&'a Outgoing) -> T) -> Vec<T> {
        messages.iter().map(|message| field(message)).collect()
    }
    let mut locks: Vec<i32> = messages
        .iter()
        .filter(|message| message.key.is_some() && controls.order_lock)
        .map(|message| message.slot)
        .collect();
    locks.dedup();
    sql.query(&sql.publish_many)
        .bind(column(messages, |m| m.id.as_str()))
        .bind(column(messages, |m| m.event_type.as_str()))
        .bind(column(messages, |m| m.version))
        .bind(column(messages, |m| m.topic.as_str()))
        .bind(column(messages, |m| m.source.as_deref()))
        .bind(column(messages, |m| m.aggregate_id.as_deref()))
        .bind(column(messages, |m| m.key.as_ref().map(|key| key.text.as_str())))
        .bind(column(messages, |m| m.slot))
        .bind(locks)
        .bind(column(messages, |m| m.key.as_ref().map(|key| key.hash)))
        .bind(column(messages, |m| m.payload.as_slice()))
        .bind(column(messages, |m| m.content_type.as_str()))
        .bind(column(messages, |m| m.headers.as_deref()))
        .bind(column(messages, deliver_at))
        .bind(column(messages, deliver_after))
        .bind(locked)
        .fetch_one(conn)
        .await
}

fn deliver_at(message: &Outgoing) -> Option<DateTime<Utc>> {
    match message.deliver {
        Some(DeliverAt::Time(time)) => Some(time.into()),
        _ => None,
    }
}

fn deliver_after(message: &Outgoing) -> Option<i64> {
    match message.deliver {
        Some(DeliverAt::After(pause)) => Some(micros(pause)),
        _ => None,
    }
}
