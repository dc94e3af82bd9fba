//! Generic events, one handler for several, an older version, a borrowed publish. No server: SQLite in memory.
//!
//! `cargo run --example generic_events` prints what happens and checks it.
#![allow(clippy::print_stdout, reason = "an example talks")]

use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use anyhow::ensure;
use outbox::{Draft, DynEvent, Metadata, Outbox, OutboxEvent, State, outbox_handler};
use serde::{Deserialize, Serialize};
use sqlx::sqlite::SqlitePoolOptions;
use sqlx::{Sqlite, SqliteConnection, query, query_as};

trait Currency: Send + Sync + 'static {
    const CODE: &'static str;
}

#[derive(Debug)]
struct Usd;

#[derive(Debug)]
struct Eur;

impl Currency for Usd {
    const CODE: &'static str = "usd";
}

impl Currency for Eur {
    const CODE: &'static str = "eur";
}

/// One Rust type, and an event type for each currency: `order.paid.usd`, `order.paid.eur`. The marker has no part in
/// the payload, and `bound = ""` keeps serde from asking it for `Serialize`.
#[derive(Debug, Serialize, Deserialize, OutboxEvent)]
#[serde(bound = "")]
#[outbox(type = "order.paid.{C::CODE}", version = 2, upcast(1 => OrderPaidV1))]
struct OrderPaid<C: Currency> {
    order_id: u64,
    cents: i64,
    #[serde(skip)]
    currency: PhantomData<C>,
}

impl<C: Currency> OrderPaid<C> {
    fn new(order_id: u64, cents: i64) -> Self {
        Self { order_id, cents, currency: PhantomData }
    }
}

/// What version 1 stored: whole units, whatever the currency.
#[derive(Debug, Deserialize)]
struct OrderPaidV1 {
    order_id: u64,
    amount: i64,
}

impl<C: Currency> From<OrderPaidV1> for OrderPaid<C> {
    fn from(old: OrderPaidV1) -> Self {
        Self::new(old.order_id, old.amount * 100)
    }
}

/// An event type for each variant: `order.opened` and `order.cancelled`.
#[derive(Debug, Serialize, Deserialize, OutboxEvent)]
#[serde(tag = "kind")]
enum OrderEvent {
    Opened { order_id: u64 },
    Cancelled { order_id: u64, why: String },
}

/// Published without a copy of its text …
#[derive(Serialize, OutboxEvent)]
#[outbox(type = "order.noted")]
struct NewNote<'a> {
    order_id: u64,
    text: &'a str,
}

/// … and handled as what owns it. The name on the wire is the same.
#[derive(Debug, Serialize, Deserialize, OutboxEvent)]
struct OrderNoted {
    order_id: u64,
    text: String,
}

/// One handler, several events.
#[derive(Debug, OutboxEvent)]
#[outbox(union)]
enum AnyOrder {
    Event(OrderEvent),
    Usd(OrderPaid<Usd>),
    Eur(OrderPaid<Eur>),
    Noted(OrderNoted),
}

#[derive(Clone, Default)]
struct Journal(Arc<Mutex<Vec<String>>>);

/// Takes everything that happens to an order, in the order in which it happened.
#[outbox_handler(consumer = "journal")]
async fn write_journal(event: AnyOrder, meta: Metadata, journal: State<Journal>) {
    let line = match event {
        AnyOrder::Event(OrderEvent::Opened { order_id }) => format!("order {order_id} was opened"),
        AnyOrder::Event(OrderEvent::Cancelled { order_id, why }) => {
            format!("order {order_id} was cancelled: {why}")
        }
        AnyOrder::Usd(paid) => format!("order {} was paid in dollars", paid.order_id),
        AnyOrder::Eur(paid) => format!("order {} was paid in euros", paid.order_id),
        AnyOrder::Noted(noted) => format!("order {}: {}", noted.order_id, noted.text),
    };
    println!("journal    {:16} {line}", meta.event_type);
    journal.0.lock().expect("nobody panicked").push(line);
}

/// Generic over the currency, and registered for each that is listed.
#[outbox_handler(consumer = "ledger", instances(<Usd>, <Eur>))]
async fn book<C: Currency>(
    paid: OrderPaid<C>,
    meta: Metadata,
    db: &mut SqliteConnection,
) -> Result<(), sqlx::Error> {
    println!("ledger     books {} cents of {}, stored as version {}", paid.cents, C::CODE, meta.version);
    query("insert into ledger (currency, cents) values (?, ?)")
        .bind(C::CODE)
        .bind(paid.cents)
        .execute(db)
        .await?;
    Ok(())
}

#[tokio::main]
async fn main() -> anyhow::Result<()> {
    // A database in memory belongs to its connection.
    let pool = SqlitePoolOptions::new().max_connections(1).connect("sqlite::memory:").await?;
    sqlx::raw_sql("create table ledger (currency text not null, cents integer not null)")
        .execute(&pool)
        .await?;
    let outbox: Outbox<Sqlite> = Outbox::new(pool.clone());
    outbox.migrate().await?;

    let text = String::from("leave it at the neighbour's");
    outbox
        .transaction(async |tx| {
            // Events of different types as one list.
            let happened: [&dyn DynEvent; 3] = [
                &OrderEvent::Opened { order_id: 7 },
                &OrderPaid::<Usd>::new(7, 1999),
                &NewNote { order_id: 7, text: &text },
            ];
            outbox.publish_events(&mut *tx, happened).await?;
            tx.publish_event(OrderPaid::<Eur>::new(7, 250))?;
            // What a build of last year has left: version 1.
            let old = Draft::new("order.paid.eur", r#"{"order_id":7,"amount":3}"#).version(1);
            tx.publish(old.aggregate_id("7"))?;
            tx.publish_event(OrderEvent::Cancelled { order_id: 7, why: "too late".into() })?;
            anyhow::Ok(())
        })
        .await?;

    let journal = Journal::default();
    let consumers = outbox.consumers().registered().state(journal.clone()).build()?;
    for handler in consumers.handlers() {
        println!(
            "registered {} of {} takes {}",
            handler.name,
            handler.consumer,
            handler.event_types.join(", ")
        );
    }
    let report = consumers.run_until_idle().await?;
    ensure!((report.handled, report.remaining) == (9, 0), "6 entries, 3 bookings: {report:?}");

    let lines = journal.0.lock().expect("nobody panicked").clone();
    let expected = [
        "order 7 was opened",
        "order 7 was paid in dollars",
        "order 7: leave it at the neighbour's",
        "order 7 was paid in euros",
        "order 7 was paid in euros",
        "order 7 was cancelled: too late",
    ];
    ensure!(lines == expected, "everything about an order, in its order: {lines:?}");
    let sql = "select currency, sum(cents) from ledger group by currency order by currency";
    let ledger: Vec<(String, i64)> = query_as(sql).fetch_all(&pool).await?;
    let expected = [("eur".to_owned(), 250 + 300), ("usd".to_owned(), 1999)];
    ensure!(ledger == expected, "each currency by a handler of its own, version 1 in cents: {ledger:?}");
    let types: Vec<_> = outbox::event_types().iter().map(|meta| meta.event_type).collect();
    let expected =
        ["order.cancelled", "order.noted", "order.noted", "order.opened", "order.paid.eur", "order.paid.usd"];
    ensure!(types == expected, "the catalogue of the program: {types:?}");
    println!(
        "checked    6 messages of {} types, each handled once by each of its consumers",
        types.len() - 1
    );
    Ok(())
}
