//! Generated code at work: events through a database, handlers with every kind of parameter.

use std::marker::PhantomData;
use std::sync::{Arc, Mutex};

use outbox::{Context, Envelope, HandlerError, Metadata, OutboxEvent, State, outbox_handler};
use outbox_tests::TestDatabase;
use sqlx::{Sqlite, SqliteConnection};

use crate::{OrderPaid, OrderPlaced, Usd};

#[derive(Debug, OutboxEvent)]
#[outbox(union)]
enum AnyOrder {
    Placed(OrderPlaced),
    Paid(OrderPaid<Usd>),
}

type Seen = Arc<Mutex<Vec<String>>>;

#[outbox_handler(consumer = "stock", manual)]
async fn reserve(
    paid: Envelope<OrderPaid<Usd>>,
    first_order: State<u64>,
    ctx: &mut Context<Sqlite>,
    meta: Metadata,
) -> Result<(), HandlerError> {
    if meta.attempt() != 1 || paid.metadata.aggregate_id.as_deref() != Some("order-7") {
        return Err("not what was published".into());
    }
    ctx.publish_event(OrderPlaced { order_id: *first_order + paid.order_id })?;
    Ok(())
}

#[outbox_handler(consumer = "ledger", manual)]
async fn book(paid: OrderPaid<Usd>, db: &mut SqliteConnection) -> sqlx::Result<()> {
    sqlx::query("insert into business (message_id) values (?)")
        .bind(paid.cents.to_string())
        .execute(db)
        .await?;
    Ok(())
}

#[outbox_handler(consumer = "audit", manual)]
async fn audit(event: AnyOrder, meta: Metadata, seen: State<Seen>) {
    let order = match event {
        AnyOrder::Placed(placed) => placed.order_id,
        AnyOrder::Paid(paid) => paid.order_id,
    };
    seen.lock().expect("no panic before").push(format!("{} {order}", meta.event_type));
}

#[tokio::test]
async fn handlers_get_what_their_parameters_say() {
    let Some(database) = TestDatabase::<Sqlite>::migrated().await else { return };
    let (outbox, seen) = (database.outbox(), Seen::default());
    let mut tx = outbox.begin().await.expect("a transaction");
    let paid = OrderPaid::<Usd> { order_id: 7, cents: 1999, currency: PhantomData };
    outbox.publish_event(&mut tx, &paid).await.expect("published");
    tx.commit().await.expect("committed");
    let consumers = outbox.consumers().handler::<reserve>().handler::<book>().handler::<audit>();
    let consumers = consumers.state(100_u64).state(seen.clone()).build().expect("they fit together");
    let report = consumers.run_until_idle().await.expect("a database that answers");
    assert_eq!((report.handled, report.remaining), (4, 0));
    assert_eq!(*seen.lock().expect("no panic"), ["order.paid.usd 7", "order.placed 107"]);
    let booked: String = sqlx::query_scalar("select message_id from business")
        .fetch_one(database.pool())
        .await
        .expect("one row");
    assert_eq!(booked, "1999");
}
