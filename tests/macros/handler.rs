//! `#[outbox_handler]`: what is registered, and for which database.

use std::io;
use std::marker::PhantomData;
use std::time::Duration;

use outbox::__private::{HandlerEntry, HandlerVTable, States, inventory};
use outbox::{
    Backend, Context, Effect, Envelope, Handler, HandlerError, HandlerOptions, IdempotencyKey, Metadata,
    OnDead, OutboxEvent, Retry, StartFrom, State, outbox_handler,
};
use sqlx::{Sqlite, SqliteConnection};

use crate::{Currency, Eur, OrderPaid, OrderPlaced, Usd};

#[derive(Debug, OutboxEvent)]
#[outbox(union)]
enum AnyOrder {
    Placed(OrderPlaced),
    Usd(OrderPaid<Usd>),
    Eur(OrderPaid<Eur>),
}

struct Mailer(u8);

fn vtable<H: Handler<Sqlite>>() -> HandlerVTable<Sqlite> {
    H::VTABLE
}

fn types(vtable: &HandlerVTable<Sqlite>) -> Vec<&'static str> {
    vtable.types.all().iter().map(|meta| meta.event_type).collect()
}

#[outbox_handler]
async fn by_default(_: OrderPaid<Usd>) {}

#[outbox_handler(consumer = "billing")]
pub(crate) async fn book_payment(
    paid: Envelope<OrderPaid<Usd>>,
    db: &mut SqliteConnection,
) -> anyhow::Result<()> {
    sqlx::query("insert into ledger(order_id) values (?)")
        .bind(i64::try_from(paid.order_id)?)
        .execute(db)
        .await?;
    Ok(())
}

/// Parameters in another order, patterns in place of names, an explicit lifetime.
#[outbox_handler(consumer = "receipts")]
#[expect(clippy::needless_lifetimes, reason = "to see that it may be written")]
async fn send_receipt<'a>(
    OrderPlaced { order_id: _ }: OrderPlaced,
    ctx: &'a mut Context<Sqlite>,
    mailer: State<Mailer>,
    mut metadata: Metadata,
    _: State<String>,
) -> Result<(), HandlerError> {
    ctx.publish_event(OrderPlaced { order_id: 1 })?;
    metadata = metadata.clone();
    drop((metadata, mailer));
    Ok(())
}

#[outbox_handler(consumer = "audit")]
async fn audit(event: AnyOrder, meta: Metadata) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    let _ = (event, meta);
    Ok(())
}

#[outbox_handler(consumer = "rates", instances(<Usd>, <Eur>))]
async fn track_rate<C>(_: OrderPaid<C>) -> Result<(), io::Error>
where
    C: Currency,
{
    Ok(())
}

#[outbox_handler(instances(<Usd, 3, Sqlite>,))]
async fn counted<C: Currency, const N: usize, DB: Backend>(_: OrderPaid<C>, _: &mut Context<DB>) {}

#[outbox_handler(manual)]
async fn by_hand<C: Currency>(_: OrderPaid<C>) {}

#[outbox_handler(crate = crate::event::facade::library)]
async fn r#async(_: OrderPlaced) {}

#[outbox_handler]
#[cfg(any())]
async fn absent(_: NoSuchEvent, _: &mut NoSuchDatabase) {}

fn registered() -> Vec<(&'static str, &'static str)> {
    let entries = inventory::iter::<HandlerEntry>().filter_map(HandlerEntry::of::<Sqlite>);
    let mut found: Vec<_> = entries.map(|entry| (entry.consumer, entry.name)).collect();
    found.sort_unstable();
    found
}

#[test]
fn handlers_register_themselves_under_the_consumer_that_they_name() {
    #[outbox_handler]
    async fn in_a_function(_: OrderPlaced) {}
    assert_eq!(
        registered(),
        [
            ("async", "async"),
            ("audit", "audit"),
            ("billing", "book_payment"),
            ("by_default", "by_default"),
            ("counted", "counted"),
            ("in_a_function", "in_a_function"),
            ("rates", "track_rate"),
            ("rates", "track_rate"),
            ("receipts", "send_receipt"),
        ]
    );
}

#[cfg(feature = "postgres")]
#[test]
fn a_handler_without_a_database_is_registered_for_each() {
    let entries = inventory::iter::<HandlerEntry>().filter_map(HandlerEntry::of::<sqlx::Postgres>);
    let mut names: Vec<_> = entries.map(|entry| entry.name).collect();
    names.sort_unstable();
    assert_eq!(names, ["async", "audit", "by_default", "in_a_function", "track_rate", "track_rate"]);
}

#[test]
fn a_handler_takes_the_types_of_its_event() {
    assert_eq!(types(&vtable::<book_payment>()), ["order.paid.usd"]);
    assert_eq!(types(&vtable::<track_rate<Eur>>()), ["order.paid.eur"]);
    assert_eq!(types(&vtable::<by_hand<Eur>>()), ["order.paid.eur"]);
    assert_eq!(types(&vtable::<audit>()), ["order.placed", "order.paid.usd", "order.paid.eur"]);
}

#[test]
fn a_handler_knows_where_it_is_written() {
    let site = vtable::<book_payment>().site;
    assert_eq!((site.module, site.file), (module_path!(), file!()));
    assert!(site.line > vtable::<by_default>().site.line);
}

#[test]
fn a_missing_state_is_found_before_the_first_message() {
    let check = |vtable: HandlerVTable<Sqlite>| (vtable.check)(&States::default());
    assert_eq!(check(vtable::<audit>()), Ok(()));
    assert_eq!(check(vtable::<send_receipt>()), Err(std::any::type_name::<Mailer>()));
}

#[tokio::test]
async fn the_function_can_be_called() {
    let event = || OrderPaid::<Eur> { order_id: 1, cents: 2, currency: PhantomData };
    track_rate(event()).await.expect("handled");
    by_hand(event()).await;
    r#async(OrderPlaced { order_id: 1 }).await;
    assert_eq!(State::new(Mailer(3)).0, 3);
}

#[outbox_handler(
    manual,
    consumer = "strict",
    retry(max_attempts = 3, base = "250ms", multiplier = 1.5, max = "2m", jitter = 0),
    timeout = "90s",
    on_dead = "skip",
    ordered = false,
    concurrency = 4,
    lease = "1m",
    start_from = "2026-01-31T12:00:00.5Z"
)]
async fn with_policies(_: OrderPlaced) {}

#[outbox_handler(manual, retry(max = "1h"), on_dead = "block")]
async fn with_some_policies(_: OrderPlaced) {}

#[test]
fn policies_are_constants_and_defaults_hold_beside_them() {
    let all = HandlerOptions {
        retry: Retry {
            max_attempts: 3,
            base: Duration::from_millis(250),
            multiplier: 1.5,
            max: Duration::from_mins(2),
            jitter: 0.0,
        },
        timeout: Duration::from_secs(90),
        on_dead: OnDead::Skip,
        ordered: false,
        concurrency: 4,
        lease: Duration::from_mins(1),
        start_from: StartFrom::Since(Duration::new(1_769_860_800, 500_000_000)),
        ..HandlerOptions::DEFAULT
    };
    assert_eq!(vtable::<with_policies>().options, all);
    let some = HandlerOptions {
        retry: Retry { max: Duration::from_hours(1), ..Retry::DEFAULT },
        ..HandlerOptions::DEFAULT
    };
    assert_eq!(vtable::<with_some_policies>().options, some);
    assert_eq!(vtable::<by_default>().options, HandlerOptions::DEFAULT);
}

#[outbox_handler(manual, effect = "none")]
async fn without_effect(_: OrderPlaced) {}

#[outbox_handler(manual, effect = "external")]
async fn with_an_effect_outside(_: OrderPlaced, _: IdempotencyKey) {}

#[test]
fn who_is_given_no_transaction_is_external_unless_it_says_otherwise() {
    let effects = [
        vtable::<book_payment>().effect,
        vtable::<send_receipt>().effect,
        vtable::<by_default>().effect,
        vtable::<with_an_effect_outside>().effect,
        vtable::<of_some_types_in_batches>().effect,
        vtable::<without_effect>().effect,
    ];
    let (database, external) = (Effect::Database, Effect::External);
    assert_eq!(effects, [database, database, external, external, external, Effect::None]);
}

#[outbox_handler(manual, types = ["order.paid.eur", "order.placed"])]
async fn of_some_types(event: AnyOrder) {
    let _ = event;
}

#[outbox_handler(manual, types = ["order.paid.eur"])]
async fn of_some_generic_types<C: Currency>(paid: OrderPaid<C>) {
    let _ = paid;
}

#[outbox_handler(manual, types = ["order.placed"], batch = 7)]
async fn of_some_types_in_batches(batch: Vec<Envelope<AnyOrder>>) {
    drop(batch);
}

#[test]
fn a_handler_may_take_some_of_its_events_types() {
    assert_eq!(types(&vtable::<of_some_types>()), ["order.paid.eur", "order.placed"]);
    assert!(vtable::<of_some_types>().types.find("paid-eur").is_some(), "aliases go with their type");
    assert!(vtable::<of_some_types>().types.find("order.paid.usd").is_none());
    assert_eq!(types(&vtable::<of_some_generic_types<Eur>>()), ["order.paid.eur"]);
    let in_batches = vtable::<of_some_types_in_batches>();
    assert_eq!((types(&in_batches), in_batches.batched), (vec!["order.placed"], true));
    assert_eq!(in_batches.options.batch, 7);
}
