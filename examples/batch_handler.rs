//! A handler that takes many messages at once and writes them with one statement; one of them fails by itself. No server:
//! SQLite in memory.
//!
//! `cargo run --example batch_handler` prints what happens and checks it.
#![allow(clippy::print_stdout, reason = "an example talks")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, ensure};
use outbox::{
    BatchOutcome, Dead, Envelope, HandlerError, Outbox, OutboxEvent, ResultExt as _, State, outbox_handler,
};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{QueryBuilder, Sqlite, SqliteConnection, query_scalar};

const ORDERS: i64 = 500;

#[derive(Debug, Serialize, Deserialize, OutboxEvent)]
struct OrderPlaced {
    order_id: i64,
    /// In cents, as the shop wrote it.
    amount: String,
}

#[derive(Debug, Serialize, Deserialize, OutboxEvent)]
struct OrderCancelled {
    order_id: i64,
}

#[derive(Debug, OutboxEvent)]
#[outbox(union)]
enum AnyOrder {
    Placed(OrderPlaced),
    Cancelled(OrderCancelled),
}

/// How often the handler was called.
struct Calls(Arc<AtomicU64>);

/// No retry makes a number of it. The mark is found under the context.
fn cents(order: &OrderPlaced) -> anyhow::Result<i64> {
    order.amount.parse().or_terminal().with_context(|| format!("order {} has no amount", order.order_id))
}

/// Many messages, one statement. What it reports as failed it has not written.
#[outbox_handler(consumer = "search", batch = 100)]
async fn index(
    batch: Vec<Envelope<OrderPlaced>>,
    calls: State<Calls>,
    db: &mut SqliteConnection,
) -> Result<BatchOutcome, HandlerError> {
    calls.0.fetch_add(1, Ordering::Relaxed);
    let mut outcome = BatchOutcome::new();
    let mut rows = Vec::new();
    for order in &batch {
        match cents(order) {
            Ok(cents) => rows.push((order.order_id, cents)),
            Err(error) => outcome.fail(&order.metadata.id, error),
        }
    }
    println!("search     {:3} orders in one call, {} of them good", batch.len(), rows.len());
    if !rows.is_empty() {
        let mut insert = QueryBuilder::<Sqlite>::new("insert into search_index (order_id, cents) ");
        insert.push_values(rows, |mut row, (order, cents)| {
            row.push_bind(order).push_bind(cents);
        });
        insert.build().execute(db).await?;
    }
    Ok(outcome)
}

/// Of its event's types it takes one; the other is not delivered to its consumer.
#[outbox_handler(consumer = "refunds", types = ["order.cancelled"])]
async fn refund(event: AnyOrder, db: &mut SqliteConnection) -> anyhow::Result<()> {
    let AnyOrder::Cancelled(order) = event else { anyhow::bail!("never delivered") };
    sqlx::query("insert into refund (order_id) values (?)").bind(order.order_id).execute(db).await?;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // A database in memory belongs to its connection.
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await?;
    let tables = "create table search_index (order_id integer primary key, cents integer not null);
                  create table refund (order_id integer primary key)";
    sqlx::raw_sql(tables).execute(&pool).await?;
    let outbox: Outbox<Sqlite> = Outbox::new(pool.clone());
    outbox.migrate().await?;

    outbox
        .transaction(async |tx| {
            for order_id in 1..=ORDERS {
                let amount = if order_id == 7 { "a lot".to_owned() } else { (order_id * 100).to_string() };
                tx.publish_event(OrderPlaced { order_id, amount })?;
            }
            tx.publish_event(OrderCancelled { order_id: 8 })?;
            anyhow::Ok(())
        })
        .await?;

    let calls = Arc::new(AtomicU64::new(0));
    let consumers = outbox
        .consumers()
        .registered()
        .expect_consumers(["search", "refunds"])
        .state(Calls(calls.clone()))
        .build()?;
    for handler in consumers.handlers() {
        let how = if handler.batched {
            format!("{} at once", handler.options.batch)
        } else {
            "one by one".to_owned()
        };
        println!(
            "registered {} of {} takes {}, {how}",
            handler.name,
            handler.consumer,
            handler.event_types.join(", ")
        );
    }
    let report = consumers.run_until_idle().await?;
    // One order is dead, and one more message was handled: the refund.
    let good = u64::try_from(ORDERS)?;
    ensure!((report.handled, report.dead) == (good, 1), "all but one: {report:?}");

    let calls = calls.load(Ordering::Relaxed);
    ensure!(calls < 50, "{ORDERS} orders in far fewer calls: {calls}");
    let indexed: i64 = query_scalar("select count(*) from search_index").fetch_one(&pool).await?;
    let refunded: i64 = query_scalar("select count(*) from refund").fetch_one(&pool).await?;
    ensure!((indexed, refunded) == (ORDERS - 1, 1), "each good one once: {indexed}, {refunded}");
    let dead = outbox.admin().dead(&Dead::all()).await?;
    let [letter] = &*dead else { anyhow::bail!("one is dead, not {dead:?}") };
    let error = letter.error.as_deref().unwrap_or_default();
    ensure!(
        letter.attempts == 1 && error.contains("order 7 has no amount"),
        "at once, since marked: {letter:?}"
    );
    println!("dead       {error}");
    println!("checked    {indexed} orders indexed in {calls} calls, 1 dead, 1 refunded");
    Ok(())
}
