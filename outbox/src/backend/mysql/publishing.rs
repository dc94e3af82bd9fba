//! Registering and publishing on MySQL.

use std::collections::HashSet;

use chrono::{DateTime, Utc};
use sqlx::mysql::MySqlArguments;
use sqlx::query::Query;
use sqlx::{Connection as _, MySql, MySqlConnection, Row as _, SqlStr, query, query_scalar, raw_sql};

use super::{LOCK_WAIT_TIMEOUT, Server, is_duplicate, number, repeated, text, with_numbers};
use crate::backend::{ConsumerRow, PublishOutcome, Publishing, SqlResult, Storage as _, micros, statement};
use crate::controls::Controls;
use crate::draft::{DeliverAt, Outgoing};
use crate::key::SLOTS;

/// Behind the slots stand the gates, which are held by those who publish nothing ordered.
const GATES: u32 = 1_024;

/// How many rows one look at the slots locks, for as long as it takes.
const LOOK: u32 = 1_024;

/// How many messages go in one statement. The optimizers give up on lists of more than a few hundred.
const ROWS: usize = 64;

/// How many bytes: a packet has 16 MiB by default, and one that is larger costs the connection.
const BYTES: usize = 4 * 1024 * 1024;

impl Publishing for MySql {
    async fn lock_registry(conn: &mut MySqlConnection, sql: &Server) -> SqlResult<()> {
        query(sql.registry_lock.clone()).fetch_one(conn).await.map(drop)
    }

    async fn consumer(
        conn: &mut MySqlConnection,
        sql: &Server,
        name: &str,
    ) -> SqlResult<Option<ConsumerRow>> {
        let row = query(sql.consumer_find.clone()).bind(name).fetch_optional(conn).await?;
        let Some(row) = row else { return Ok(None) };
        Ok(Some(ConsumerRow {
            id: row.try_get("id")?,
            lanes: row.try_get("lanes")?,
            name: text(&row, "name")?,
            first_name: text(&row, "first_name")?,
        }))
    }

    async fn add_consumer(
        conn: &mut MySqlConnection,
        sql: &Server,
        name: &str,
        lanes: i16,
    ) -> SqlResult<u64> {
        let add = query(sql.consumer_add.clone()).bind(name).bind(name).bind(lanes);
        Ok(add.execute(conn).await?.rows_affected())
    }

    async fn add_lanes(conn: &mut MySqlConnection, sql: &Server, name: &str) -> SqlResult<()> {
        query(sql.consumer_lanes.clone()).bind(name).execute(conn).await.map(drop)
    }

    async fn add_name(conn: &mut MySqlConnection, sql: &Server, name: &str, present: &str) -> SqlResult<u64> {
        let add = query(sql.consumer_name.clone()).bind(name).bind(present);
        Ok(add.execute(conn).await?.rows_affected())
    }

    async fn rename_consumer(
        conn: &mut MySqlConnection,
        sql: &Server,
        consumer: i16,
        present: &str,
        name: &str,
    ) -> SqlResult<u64> {
        let rename = query(sql.consumer_rename.clone()).bind(name).bind(consumer).bind(present);
        Ok(rename.execute(conn).await?.rows_affected())
    }

    async fn subscribe(
        conn: &mut MySqlConnection,
        sql: &Server,
        consumer: i16,
        event_type: &str,
    ) -> SqlResult<u64> {
        let subscribe = query(sql.subscribe.clone()).bind(event_type).bind(consumer);
        Ok(subscribe.bind(event_type).bind(consumer).execute(conn).await?.rows_affected())
    }

    async fn unready(conn: &mut MySqlConnection, sql: &Server, consumer: i16) -> SqlResult<Vec<String>> {
        let rows = query(sql.unready.clone()).bind(consumer).fetch_all(conn).await?;
        rows.iter().map(|row| text(row, "event_type")).collect()
    }

    /// A publish reads the subscriptions as they are now, however old its snapshot is.
    async fn announce(_: &mut MySqlConnection, _: &Server) -> SqlResult<()> {
        Ok(())
    }

    /// The slots that are held, as the names of the transactions that hold them. Nobody stands in line for a slot here,
    /// so nobody waits behind; but for one of them, in case it is never free at the moment of a look.
    async fn publishers_in_flight(
        conn: &mut MySqlConnection,
        sql: &Server,
        known: &HashSet<String>,
    ) -> SqlResult<HashSet<String>> {
        let looks: Vec<Vec<u32>> = if known.is_empty() {
            (0..SLOTS + GATES).step_by(LOOK as usize).map(|from| (from..from + LOOK).collect()).collect()
        } else {
            let known: Vec<u32> = known.iter().filter_map(|slot| slot.parse().ok()).collect();
            known.chunks(LOOK as usize / 4).map(<[u32]>::to_vec).collect()
        };
        let mut held = HashSet::new();
        for look in looks {
            let mut tx = conn.begin_with(Self::begin_registration()).await?;
            let free: Vec<i32> = if known.is_empty() {
                let range = query_scalar(sql.in_flight.clone()).bind(look[0]).bind(look[0] + LOOK);
                range.fetch_all(&mut *tx).await?
            } else {
                raw_sql(with_numbers(&sql.in_flight_known, &look))
                    .fetch_all(&mut *tx)
                    .await?
                    .iter()
                    .map(|row| row.try_get(0))
                    .collect::<SqlResult<_>>()?
            };
            tx.rollback().await?;
            let free: HashSet<u32> = free.iter().map(|slot| slot.unsigned_abs()).collect();
            held.extend(look.into_iter().filter(|slot| !free.contains(slot)));
        }
        let queue = held.iter().copied().find(|slot| *slot < SLOTS).filter(|_| !known.is_empty());
        if let Some(slot) = queue {
            let mut tx = conn.begin_with(Self::begin_registration()).await?;
            match query(sql.in_flight_wait.clone()).bind(slot).fetch_optional(&mut *tx).await {
                Ok(_) => drop(held.remove(&slot)),
                Err(error) if number(&error) == Some(LOCK_WAIT_TIMEOUT) => {}
                Err(error) => return Err(error),
            }
            tx.rollback().await?;
        }
        Ok(held.iter().map(ToString::to_string).collect())
    }

    async fn backfill(conn: &mut MySqlConnection, sql: &Server, event_type: &str) -> SqlResult<u64> {
        query(sql.backfill.clone()).bind(event_type).execute(&mut *conn).await?;
        query(sql.backfill_delayed.clone()).bind(event_type).execute(&mut *conn).await?;
        let taken = query(sql.backfill_taken.clone()).bind(event_type).execute(conn).await?;
        Ok(taken.rows_affected())
    }

    async fn ready(
        conn: &mut MySqlConnection,
        sql: &Server,
        consumer: i16,
        event_type: &str,
    ) -> SqlResult<()> {
        query(sql.ready.clone()).bind(consumer).bind(event_type).execute(conn).await.map(drop)
    }

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
        let gate = messages[0].slot.unsigned_abs() % GATES + SLOTS;
        (with_numbers(&sql.lock_gate, [gate]), 1)
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
            bytes += message.payload.len();
            bytes <= BYTES
        });
        let (chunk, behind) = rest.split_at(fits.count().max(1).min(rest.len()));
        rest = behind;
        (!chunk.is_empty()).then_some(chunk)
    })
}
