//! An order is paid, and three consumers hear of it. No server: SQLite in a file.
//!
//! `cargo run --example quickstart` prints what happens and checks it.
#![allow(clippy::print_stdout, reason = "an example talks")]

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{bail, ensure};
use outbox::{Context, Envelope, Outbox, OutboxEvent, State, outbox_handler};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use sqlx::{Sqlite, SqliteConnection, SqlitePool, query, query_as, query_scalar};

/// Its type on the wire is `order.paid`, its topic `order`, and its aggregate the order.
#[derive(Debug, Serialize, Deserialize, OutboxEvent)]
struct OrderPaid {
    order_id: i64,
    cents: i64,
}

/// Published by a handler, in the commit of that handler.
#[derive(Debug, Serialize, Deserialize, OutboxEvent)]
struct ParcelPacked {
    order_id: i64,
}

/// A consumer that writes: its rows and its inbox mark are one commit.
#[outbox_handler(consumer = "billing")]
async fn book_payment(paid: OrderPaid, db: &mut SqliteConnection) -> Result<(), sqlx::Error> {
    println!("billing    books {} cents for order {}", paid.cents, paid.order_id);
    query("insert into ledger (order_id, cents) values (?, ?)")
        .bind(paid.order_id)
        .bind(paid.cents)
        .execute(db)
        .await?;
    Ok(())
}

/// Another consumer of the same event, with progress of its own. It publishes an event of its own.
#[outbox_handler(consumer = "warehouse")]
async fn pack_parcel(paid: Envelope<OrderPaid>, ctx: &mut Context<Sqlite>) -> anyhow::Result<()> {
    println!("warehouse  packs order {} (message {})", paid.order_id, paid.metadata.id);
    query("insert into parcels (order_id) values (?)").bind(paid.order_id).execute(&mut **ctx).await?;
    ctx.publish_event(ParcelPacked { order_id: paid.order_id })?;
    Ok(())
}

/// A handler that fails is rolled back and tried again: here twice, after 20 and 40 ms. Order 8 does not wait for 7.
#[outbox_handler(consumer = "points", retry(max_attempts = 5, base = "20ms"))]
async fn credit_points(paid: Envelope<OrderPaid>, db: &mut SqliteConnection) -> anyhow::Result<()> {
    query("insert into points (order_id) values (?)").bind(paid.order_id).execute(db).await?;
    let attempt = paid.metadata.attempt();
    if paid.order_id == 7 && attempt < 3 {
        println!("points     attempt {attempt} for order 7 fails, and what it wrote is gone");
        bail!("the points service is away");
    }
    println!("points     attempt {attempt} for order {} succeeds", paid.order_id);
    Ok(())
}

/// A handler without a database runs in no transaction: the place for mail and HTTP, which happen at least once.
#[outbox_handler(consumer = "counter")]
async fn count_parcels(_packed: ParcelPacked, parcels: State<Parcels>) {
    parcels.0.fetch_add(1, Ordering::Relaxed);
}

#[derive(Clone, Default)]
struct Parcels(Arc<AtomicU32>);

/// The business code: the order and its event are one transaction.
async fn pay(outbox: &Outbox<Sqlite>, order_id: i64, cents: i64) -> anyhow::Result<()> {
    outbox
        .transaction(async |tx| {
            query("insert into orders (id, cents) values (?, ?)")
                .bind(order_id)
                .bind(cents)
                .execute(&mut **tx)
                .await?;
            tx.publish_event(OrderPaid { order_id, cents })?;
            if cents < 0 {
                bail!("order {order_id}: nobody pays {cents} cents");
            }
            Ok(())
        })
        .await
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let dir = tempfile::tempdir()?;
    let pool = database(&dir.path().join("quickstart.db")).await?;
    let outbox = Outbox::new(pool.clone());
    outbox.migrate().await?;

    pay(&outbox, 7, 1999).await?;
    pay(&outbox, 8, 250).await?;
    println!("service    saved orders 7 and 8, each with its event");

    // Rolled back: the order does not exist, and neither does its event.
    let refused = pay(&outbox, 9, -1).await;
    println!("service    rolled back: {}", refused.expect_err("it was refused"));

    // Every handler of this program. A service would call `run()`, which ends at SIGTERM or Ctrl-C.
    let parcels = Parcels::default();
    let (mut handled, mut retried) = (0, 0);
    loop {
        let consumers = outbox.consumers().registered().state(parcels.clone()).build()?;
        let report = consumers.run_until_idle().await?;
        println!("outbox     handled {} messages, {} remain", report.handled, report.remaining);
        (handled, retried) = (handled + report.handled, retried + report.retried);
        if report.remaining == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }

    let ledger: Vec<(i64, i64)> =
        query_as("select order_id, cents from ledger order by order_id").fetch_all(&pool).await?;
    ensure!(ledger == [(7, 1999), (8, 250)], "each payment is booked once: {ledger:?}");
    let packed: i64 = query_scalar("select count(*) from parcels").fetch_one(&pool).await?;
    ensure!(packed == 2, "each parcel is packed once: {packed}");
    ensure!(parcels.0.load(Ordering::Relaxed) == 2, "each parcel is counted");
    let points: Vec<i64> =
        query_scalar("select order_id from points order by order_id").fetch_all(&pool).await?;
    ensure!(points == [7, 8], "points are credited once, whatever failed before: {points:?}");
    ensure!(
        (handled, retried) == (8, 2),
        "2 orders × 3 consumers, 2 parcels, 2 failures: {handled} {retried}"
    );
    let messages: i64 = query_scalar("select count(*) from outbox_message").fetch_one(&pool).await?;
    ensure!(messages == 4, "the event of order 9 never existed: {messages}");
    println!(
        "checked    2 orders, 4 messages, each handled once by each of its consumers; nothing of order 9"
    );
    Ok(())
}

async fn database(path: &std::path::Path) -> anyhow::Result<SqlitePool> {
    let options = SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(true)
        .journal_mode(SqliteJournalMode::Wal);
    let pool = SqlitePoolOptions::new().connect_with(options).await?;
    sqlx::raw_sql(
        "create table orders (id integer primary key, cents integer not null);
         create table ledger (order_id integer not null, cents integer not null);
         create table points (order_id integer not null);
         create table parcels (order_id integer not null);",
    )
    .execute(&pool)
    .await?;
    Ok(pool)
}
