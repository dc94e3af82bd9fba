//! What is known of the handlers before anything runs.

use outbox::{Envelope, Outbox, outbox_handler};
use sqlx::Sqlite;
use sqlx::sqlite::SqlitePoolOptions;

use crate::OrderPlaced;

#[outbox_handler(manual, consumer = "billing", group = 3)]
async fn one(_: OrderPlaced) {}

#[outbox_handler(manual, consumer = "search", batch = 7)]
async fn many(_: Vec<Envelope<OrderPlaced>>) {}

fn outbox() -> Outbox<Sqlite> {
    Outbox::new(SqlitePoolOptions::new().connect_lazy("sqlite::memory:").expect("an address"))
}

#[tokio::test]
async fn expected_consumers_are_missed_before_anything_runs() {
    let consumers = || outbox().consumers().handler::<one>().handler::<many>();
    let expecting = |names: &[&str]| consumers().expect_consumers(names.to_vec()).build().map(drop);
    expecting(&[]).expect("nothing is expected");
    expecting(&["search", "billing"]).expect("both are there");
    let error = expecting(&["stock", "search", "mail"]).expect_err("two are missing");
    assert_eq!(error.kind(), outbox::ErrorKind::Registry);
    let text = error.to_string();
    assert!(text.contains("`stock`, `mail`") && text.contains("`billing`, `search`"), "{text}");
    assert!(text.contains("use its_name as _;"), "{text}");
    let nothing = outbox().consumers().expect_consumers(["stock"]).build().expect_err("nothing at all");
    assert!(nothing.to_string().contains("`stock`; those that have one: none"), "{nothing}");
}

#[tokio::test]
async fn a_listing_says_all_of_a_handler() {
    let builder = outbox().consumers().handler::<many>().handler::<one>();
    let consumers =
        builder.options("billing", |options| options.retry.max_attempts = 2).build().expect("complete");
    let handlers = consumers.handlers();
    let [one, many] = &*handlers else { panic!("two: {handlers:?}") };
    assert_eq!((one.consumer, one.name, &*one.event_types), ("billing", "one", &["order.placed"][..]));
    assert_eq!((one.batched, one.options.group, one.options.retry.max_attempts), (false, 3, 2));
    assert_eq!((many.consumer, many.batched, many.options.batch), ("search", true, 7));
    assert_eq!((one.site.file, one.site.module), (file!(), module_path!()));
}

#[tokio::test]
async fn two_copies_of_a_handler_are_one() {
    let consumers = outbox().consumers().handler::<one>().handler::<one>().build().expect("the same twice");
    assert_eq!(consumers.handlers().len(), 1);
}
