//! Publishing on MySQL.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use sqlx::mysql::MySqlArguments;
use sqlx::query::Query;
use sqlx::{MySql, MySqlConnection, SqlStr, query, raw_sql};

use super::{Server, is_duplicate, repeated, with_numbers};
use crate::backend::{PublishOutcome, Publishing, SqlResult, delivery, micros, statement};
use crate::controls::Controls;
use crate::draft::{DeliverAt, Outgoing};
use crate::export::{Parameter, Statement};
use crate::key::SLOTS;

/// Behind the slots stand the gates, which are held by those who publish nothing ordered.
pub(super) const GATES: u32 = 1_024;

/// How many messages go in one statement. The optimizers give up on lists of more than a few hundred.
const ROWS: usize = 64;

/// How many bytes of payloads and headers. A packet that is larger than the server allows costs the connection: the default is
/// 16 MiB, and 4 MiB is met too.
const BYTES: usize = 2 * 1024 * 1024;

impl Publishing for MySql {
    async fn publish_one(
        conn: &mut MySqlConnection,
        sql: &Server,
        message: &Outgoing,
        controls: Controls,
    ) -> SqlResult<PublishOutcome> {
        if !lock(conn, sql, &[message], controls).await? {
            return Ok(PublishOutcome::NoOrderSlot);
        }
        let stored = insert(conn, sql, &[message]).await?;
        Ok(if stored { PublishOutcome::Stored } else { PublishOutcome::Duplicate })
    }

    /// As [`publish_one`](Self::publish_one), statement by statement, for clients that send no packet of several. Each that
    /// fails is an error, and no one can be left out: the next would find no values, no slot, or no message.
    fn export(sql: &Server, message: &Outgoing) -> Vec<Statement> {
        let bytes = |text: &str| Parameter::Bytes(Some(text.as_bytes().to_vec()));
        let optional = |text: &Option<String>| Parameter::Bytes(text.clone().map(String::into_bytes));
        let (at, after) = delivery(message);
        let values = vec![
            bytes(message.id.as_str()),
            bytes(&message.event_type),
            Parameter::Int(Some(message.version)),
            bytes(&message.topic),
            optional(&message.source),
            optional(&message.aggregate_id),
            Parameter::Bytes(message.key.as_ref().map(|key| key.text.clone().into_bytes())),
            Parameter::BigInt(message.key.as_ref().map(|key| key.hash)),
            Parameter::Int(Some(message.slot)),
            Parameter::Bytes(Some(message.payload.clone())),
            bytes(&message.content_type),
            optional(&message.headers),
            Parameter::BigInt(at),
            Parameter::BigInt(after),
        ];
        let lock = if message.key.is_some() {
            with_numbers(&sql.publish_statement, [message.slot.unsigned_abs()])
        } else {
            with_numbers(&sql.publish_gate, [gate(message)])
        };
        let mut statements = parts(sql.publish_begin.as_str());
        statements.push(Statement::new(for_each(&sql.publish_values, 1).as_str(), values));
        statements.extend(parts(lock.as_str()));
        statements.extend(parts(for_each(&sql.publish_many, 1).as_str()));
        statements
    }

    async fn publish_many(
        conn: &mut MySqlConnection,
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
            if !lock(conn, sql, chunk, controls).await? {
                return Ok(vec![PublishOutcome::NoOrderSlot; messages.len()]);
            }
            if insert(conn, sql, chunk).await? {
                stored.extend(chunk.iter().map(|message| message.id.as_str()));
                continue;
            }
            // One of them is there already, and the database does not say which.
            for message in chunk {
                if insert(conn, sql, &[message]).await? {
                    stored.insert(message.id.as_str());
                }
            }
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

/// What a message holds that has no order.
fn gate(message: &Outgoing) -> u32 {
    message.slot.unsigned_abs() % GATES + SLOTS
}

/// The statements of a text, without their comments. No value of anybody's is in one of the library's.
fn parts(text: &str) -> Vec<Statement> {
    let lines: Vec<_> = text.lines().filter(|line| !line.starts_with("--")).collect();
    let text = lines.join("\n");
    let parts = text.split(';').map(str::trim).filter(|part| !part.is_empty());
    let statement = |part: &str| {
        let statement = Statement::new(part, Vec::new());
        if part.starts_with("insert into") && part.contains("outbox_message (") {
            statement.storing()
        } else {
            statement
        }
    };
    parts.map(statement).collect()
}

/// Locks the slots of these messages, or a gate where none of them is ordered; false where a row is missing.
async fn lock(
    conn: &mut MySqlConnection,
    sql: &Server,
    messages: &[&Outgoing],
    controls: Controls,
) -> SqlResult<bool> {
    let mut slots: Vec<i32> = messages
        .iter()
        .filter(|message| message.key.is_some() && controls.order_lock)
        .map(|message| message.slot)
        .collect();
    slots.dedup();
    let (lock, rows) = if slots.is_empty() {
        (with_numbers(&sql.lock_gate, [gate(messages[0])]), 1)
    } else {
        (with_numbers(&sql.lock_slots, &slots), slots.len())
    };
    let lock = statement(format!("{}{}", sql.publish_begin.as_str(), lock.as_str()));
    Ok(raw_sql(lock).fetch_all(conn).await?.len() == rows)
}

/// Stores these messages with their deliveries; false, and nothing is stored, where one of their ids is there.
async fn insert(conn: &mut MySqlConnection, sql: &Server, messages: &[&Outgoing]) -> SqlResult<bool> {
    // Few shapes: each is one more to prepare and to keep.
    let shape = [1, 8, ROWS].into_iter().find(|shape| *shape >= messages.len()).unwrap_or(ROWS);
    let mut values = query(for_each(&sql.publish_values, shape));
    for at in 0..shape {
        values = bind(values, messages.get(at).copied());
    }
    values.execute(&mut *conn).await?;
    match raw_sql(for_each(&sql.publish_many, messages.len())).execute(&mut *conn).await {
        Ok(_) => Ok(true),
        Err(error) if is_duplicate(&error) => Ok(false),
        Err(error) => {
            // Part of it may be done. Where this fails the whole transaction is gone.
            let _ = raw_sql(sql.publish_undo.clone()).execute(conn).await;
            Err(error)
        }
    }
}

/// The session's variables of one message, or of none, in the order of `publish_values`.
fn bind<'q>(
    values: Query<'q, MySql, MySqlArguments>,
    message: Option<&'q Outgoing>,
) -> Query<'q, MySql, MySqlArguments> {
    // As bytes, which no character set of the connection can change.
    fn bytes(text: &str) -> &[u8] {
        text.as_bytes()
    }
    values
        .bind(message.map(|m| bytes(m.id.as_str())))
        .bind(message.map(|m| bytes(&m.event_type)))
        .bind(message.map(|m| m.version))
        .bind(message.map(|m| bytes(&m.topic)))
        .bind(message.and_then(|m| m.source.as_deref()).map(bytes))
        .bind(message.and_then(|m| m.aggregate_id.as_deref()).map(bytes))
        .bind(message.and_then(|m| m.key.as_ref()).map(|key| bytes(&key.text)))
        .bind(message.and_then(|m| m.key.as_ref()).map(|key| key.hash))
        .bind(message.map(|m| m.slot))
        .bind(message.map(|m| m.payload.as_slice()))
        .bind(message.map(|m| bytes(&m.content_type)))
        .bind(message.and_then(|m| m.headers.as_deref()).map(bytes))
        .bind(match message.and_then(|m| m.deliver) {
            Some(DeliverAt::Time(time)) => Some(DateTime::<Utc>::from(time).timestamp_micros()),
            _ => None,
        })
        .bind(match message.and_then(|m| m.deliver) {
            Some(DeliverAt::After(pause)) => Some(micros(pause)),
            _ => None,
        })
}

/// A statement with what stands between its marks once for each message.
fn for_each(sql: &SqlStr, messages: usize) -> SqlStr {
    let sql = repeated(sql, messages, |number, each| {
        let each = each.replace("@outbox_0_", &format!("@outbox_{number}_"));
        each.replace("/*number*/0", &number.to_string())
    });
    statement(sql.replace("/*count*/0", &messages.to_string()))
}

/// Pieces that one packet can carry.
fn chunks<'a>(messages: &'a [&'a Outgoing]) -> impl Iterator<Item = &'a [&'a Outgoing]> {
    let mut rest = messages;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = rest.iter().take(ROWS).take_while(|message| {
            bytes += message.payload.len() + message.headers.as_ref().map_or(0, String::len);
            bytes <= BYTES
        });
        let (chunk, behind) = rest.split_at(fits.count().max(1).min(rest.len()));
        rest = behind;
        (!chunk.is_empty()).then_some(chunk)
    })
}
