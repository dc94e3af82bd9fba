//! Events that change: other names, other shapes, and builds of two ages beside each other.

use outbox::{Context, Dead, Draft, Envelope, HandlerError, Notice, Outbox, OutboxEvent, outbox_handler};
use outbox_tests::{TestBackend, TestDatabase};
use serde::{Deserialize, Serialize};

use crate::common::*;

on_each_database!(
    a_renamed_event_is_read_by_its_type_and_by_its_alias,
    older_versions_are_led_to_the_present_one,
    a_payload_that_no_longer_fits_is_dead_until_the_reading_is_mended,
    a_newer_version_waits_for_a_build_that_knows_it,
    a_newer_version_is_put_back_whatever_the_policy_for_the_dead,
    builds_of_two_versions_share_the_work,
);

/// The build of last year.
mod old {
    use super::{
        Context, Deserialize, Envelope, HandlerError, OutboxEvent, Serialize, TestBackend, outbox_handler,
        record,
    };

    #[derive(Debug, Serialize, Deserialize, OutboxEvent)]
    #[outbox(type = "order.placed", aggregate = "{order}")]
    pub(super) struct PlacedOrder {
        pub(super) order: String,
        pub(super) euros: u32,
    }

    #[outbox_handler(manual, consumer = "ledger")]
    pub(super) async fn book<DB: TestBackend>(
        placed: Envelope<PlacedOrder>,
        ctx: &mut Context<DB>,
    ) -> Result<(), HandlerError> {
        super::note(ctx, placed.euros * 100, &placed.order).await
    }

    #[outbox_handler(manual, consumer = "ledger", on_dead = "skip", ordered = false)]
    pub(super) async fn skip<DB: TestBackend>(
        _: PlacedOrder,
        ctx: &mut Context<DB>,
    ) -> Result<(), HandlerError> {
        record(ctx).await
    }
}

/// This year's: another name, another shape. Both were in use before.
mod new {
    use super::{Context, Deserialize, HandlerError, OutboxEvent, Serialize, TestBackend, outbox_handler};

    #[derive(Debug, Serialize, Deserialize, OutboxEvent)]
    #[outbox(alias = "order.placed", aggregate = "{order}", topic = "order", version = 3)]
    #[outbox(upcast(1 => super::old::PlacedOrder, 2 => V2))]
    pub(super) struct PurchaseMade {
        pub(super) order: String,
        pub(super) cents: u32,
        #[serde(default)]
        pub(super) note: String,
    }

    #[derive(Debug, Deserialize)]
    pub(super) struct V2 {
        order: String,
        amount: u32,
    }

    impl From<super::old::PlacedOrder> for V2 {
        fn from(old: super::old::PlacedOrder) -> Self {
            Self { order: old.order, amount: old.euros * 100 }
        }
    }

    impl From<V2> for PurchaseMade {
        fn from(old: V2) -> Self {
            Self { order: old.order, cents: old.amount, note: String::new() }
        }
    }

    #[outbox_handler(manual, consumer = "ledger")]
    pub(super) async fn book<DB: TestBackend>(
        made: PurchaseMade,
        ctx: &mut Context<DB>,
    ) -> Result<(), HandlerError> {
        super::note(ctx, made.cents, &made.order).await
    }
}

/// Reads what the first build could not.
mod mended {
    use super::{Context, Deserialize, HandlerError, OutboxEvent, Serialize, TestBackend, outbox_handler};

    #[derive(Debug, Serialize, Deserialize, OutboxEvent)]
    #[outbox(type = "order.placed", aggregate = "{order}")]
    pub(super) struct Placed {
        order: String,
        euros: Option<u32>,
        cents: Option<u32>,
    }

    #[outbox_handler(manual, consumer = "ledger")]
    pub(super) async fn book<DB: TestBackend>(
        placed: Placed,
        ctx: &mut Context<DB>,
    ) -> Result<(), HandlerError> {
        let cents = placed.cents.or(placed.euros.map(|euros| euros * 100));
        super::note(ctx, cents.unwrap_or_default(), &placed.order).await
    }
}

/// Leaves an effect, and what was read.
async fn note<DB: TestBackend>(ctx: &mut Context<DB>, cents: u32, order: &str) -> Outcome {
    let id = ctx.metadata().id.clone();
    DB::execute(ctx, &format!("insert into business (message_id) values ('{id}: {cents} of {order}')"))
        .await?;
    record(ctx).await
}

fn placed(id: &str, order: &str, version: u32, payload: &str) -> Draft {
    let payload = format!("{{\"order\":\"{order}\",{payload}}}");
    Draft::new("order.placed", payload).aggregate_id(order).version(version).id(super::common::id(id))
}

async fn old_build<DB: TestBackend>(outbox: &Outbox<DB>) -> outbox::Report {
    let consumers = outbox.consumers().handler::<old::book<DB>>().config(patient());
    consumers.build().expect("complete").run_until_idle().await.expect("it ran")
}

async fn new_build<DB: TestBackend>(outbox: &Outbox<DB>) -> outbox::Report {
    let consumers = outbox.consumers().handler::<new::book<DB>>().config(patient());
    consumers.build().expect("complete").run_until_idle().await.expect("it ran")
}

async fn read<DB: TestBackend>(database: &TestDatabase<DB>) -> Vec<String> {
    let mut read = database.texts("select message_id from business").await;
    read.sort();
    read
}

async fn a_renamed_event_is_read_by_its_type_and_by_its_alias<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    old_build(&outbox).await;
    let tx = outbox.begin().await.expect("begun");
    tx.publish_event(old::PlacedOrder { order: "7".into(), euros: 3 }).expect("accepted");
    tx.publish_event(new::PurchaseMade { order: "7".into(), cents: 5, note: String::new() })
        .expect("accepted");
    tx.commit().await.expect("committed");
    let report = new_build(&outbox).await;
    assert_eq!((report.handled, report.remaining), (2, 0));
    let names = "select distinct event_type from outbox_message order by event_type";
    assert_eq!(database.texts(names).await, ["order.placed", "purchase.made"]);
    let read = read(&database).await;
    assert!(read.iter().any(|read| read.ends_with(": 300 of 7")), "{read:?}");
    assert!(read.iter().any(|read| read.ends_with(": 5 of 7")), "{read:?}");
    // One order, under both names.
    assert_eq!(database.number("select count(distinct key_hash) from outbox_message").await, 1);
}

async fn older_versions_are_led_to_the_present_one<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    new_build(&outbox).await;
    for draft in [
        placed("v1", "a", 1, r#""euros":3"#),
        placed("v2", "b", 2, r#""amount":450"#),
        placed("v3", "c", 3, r#""cents":7,"note":"x""#),
        placed("v3 before its note", "d", 3, r#""cents":8"#),
    ] {
        publish(&outbox, draft).await;
    }
    let report = new_build(&outbox).await;
    assert_eq!((report.handled, report.dead, report.remaining), (4, 0, 0));
    let expected = ["v1: 300 of a", "v2: 450 of b", "v3 before its note: 8 of d", "v3: 7 of c"];
    assert_eq!(read(&database).await, expected);
}

const PARKED: &str =
    "select coalesce(last_error, '') || '|' || attempts || '|' || state from outbox_parked order by seq";

async fn a_payload_that_no_longer_fits_is_dead_until_the_reading_is_mended<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    let outbox = database.outbox();
    old_build(&outbox).await;
    let bad = [
        (placed("missing", "a", 1, r#""cents":300"#), "euros"),
        (placed("another type", "b", 1, r#""euros":"3""#), "`euros`"),
        (placed("out of range", "c", 1, r#""euros":-3"#), "`euros`"),
        (placed("null", "d", 1, r#""euros":null"#), "`euros`"),
    ];
    for (draft, _) in &bad {
        publish(&outbox, draft.clone()).await;
    }
    publish(&outbox, placed("a field more", "e", 1, r#""euros":3,"more":[{}]"#)).await;
    publish(&outbox, placed("behind", "a", 1, r#""euros":3"#)).await;
    let report = old_build(&outbox).await;
    assert_eq!((report.handled, report.dead, report.retried, report.remaining), (1, 4, 0, 5));
    let parked = database.texts(PARKED).await;
    for (found, (_, path)) in parked.iter().zip(&bad) {
        assert!(found.contains("PlacedOrder") && found.contains(path), "{path}: {found}");
        assert!(found.ends_with("|0|6"), "no attempt is counted: {found}");
    }
    assert!(parked[4].ends_with("|0|1"), "its key waits: {parked:?}");

    // A build that reads two of them: what waits behind goes on, the others are dead again.
    let all = Dead::all();
    assert_eq!(outbox.admin().dead(&all).await.expect("listed").len(), 4);
    publish(&outbox, placed("later", "a", 1, r#""euros":4"#)).await;
    let requeued = outbox.admin().requeue(&all).await.expect("requeued");
    assert_eq!((requeued.messages.len(), requeued.skipped), (4, 0));
    let consumers = outbox.consumers().handler::<mended::book<DB>>().config(patient());
    let report = consumers.build().expect("complete").run_until_idle().await.expect("it ran");
    assert_eq!((report.handled, report.dead, report.remaining), (4, 2, 2));
    let expected = [
        "a field more: 300 of e",
        "behind: 300 of a",
        "later: 400 of a",
        "missing: 300 of a",
        "null: 0 of d",
    ];
    assert_eq!(read(&database).await, expected);
    let order: Vec<_> = database.effects().await.into_iter().map(|effect| effect.message_id).collect();
    let of_a: Vec<_> = order.iter().filter(|id| ["missing", "behind", "later"].contains(&&***id)).collect();
    assert_eq!(of_a, ["missing", "behind", "later"]);
}

async fn a_newer_version_waits_for_a_build_that_knows_it<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    old_build(&outbox).await;
    let mut notices = outbox.notices();
    // It would fit, and may mean something else.
    publish(&outbox, placed("newer", "a", 3, r#""euros":1,"cents":150"#)).await;
    publish(&outbox, placed("behind", "a", 1, r#""euros":3"#)).await;
    publish(&outbox, placed("beside", "b", 1, r#""euros":4"#)).await;
    let report = old_build(&outbox).await;
    assert_eq!((report.handled, report.parked, report.retried, report.dead), (1, 1, 0, 0));
    assert_eq!((report.remaining, read(&database).await), (2, vec!["beside: 400 of b".to_owned()]));
    let parked = database.texts(PARKED).await;
    assert!(parked[0].contains("version 3 of `order.placed`"), "{parked:?}");
    assert!(parked[0].contains("PlacedOrder` of this build is version 1"), "{parked:?}");
    assert!(parked[0].ends_with("|0|5") && parked[1].ends_with("|0|1"), "{parked:?}");
    // Not for ever: whichever build comes by in a moment has another look.
    assert_eq!(database.number("select count(*) from outbox_parked where due_at is not null").await, 1);
    let said = async {
        loop {
            match notices.next().await.expect("the outbox lives") {
                Notice::UnknownType { message_id, event_type, .. } => return (message_id, event_type),
                notice => assert!(!matches!(notice, Notice::Dead { .. }), "{notice:?}"),
            }
        }
    };
    let said = tokio::time::timeout(LONG, said).await.expect("it was said");
    assert_eq!(said, (id("newer"), "order.placed".to_owned()));

    due_now(&database).await;
    let report = new_build(&outbox).await;
    assert_eq!((report.handled, report.remaining), (2, 0));
    assert_eq!(read(&database).await, ["behind: 300 of a", "beside: 400 of b", "newer: 150 of a"]);
    let effects = database.effects().await;
    let order: Vec<_> = effects.iter().map(|effect| (&*effect.message_id, &*effect.worker)).collect();
    assert_eq!(order, [("beside", "attempt 1"), ("newer", "attempt 1"), ("behind", "attempt 1")]);
}

async fn a_newer_version_is_put_back_whatever_the_policy_for_the_dead<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    let outbox = database.outbox();
    let skip = async || {
        let consumers = outbox.consumers().handler::<old::skip<DB>>().config(patient());
        consumers.build().expect("complete").run_until_idle().await.expect("it ran")
    };
    skip().await;
    publish(&outbox, placed("newer", "a", 2, r#""euros":1"#)).await;
    publish(&outbox, placed("unreadable", "a", 1, r#""cents":1"#)).await;
    publish(&outbox, placed("after both", "a", 1, r#""euros":3"#)).await;
    let report = skip().await;
    // `ordered = false`: nothing waits behind it.
    assert_eq!((report.handled, report.parked, report.dead), (1, 1, 1));
    assert_eq!(handled(&database).await, ["after both"]);
    let mut states = database.texts("select concat(state, '') from outbox_parked order by seq").await;
    states.sort();
    assert_eq!(states, ["3", "5"], "one is skipped, and one is put back");
}

async fn builds_of_two_versions_share_the_work<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    old_build(&outbox).await;
    for n in 0..20 {
        let order = (n % 4).to_string();
        let draft = if n < 10 {
            placed(&format!("{n:02}"), &order, 1, r#""euros":1"#)
        } else {
            placed(&format!("{n:02}"), &order, 3, r#""cents":100"#)
        };
        publish(&outbox, draft).await;
    }
    let other = elsewhere(&database).await;
    let old = Running::start(outbox.consumers().handler::<old::book<DB>>().config(quick()));
    let new = Running::start(other.consumers().handler::<new::book<DB>>().config(quick()));
    effects(&database, 10).await;
    // The deploy is through.
    let old = old.stop().await;
    due_now(&database).await;
    settled(&database).await;
    let new = new.stop().await;
    assert_eq!(old.handled + new.handled, 20, "{old:?} {new:?}");
    assert_eq!((old.dead, old.retried, new.dead, new.retried), (0, 0, 0, 0));
    for order in 0..4 {
        let of = format!(" of {order}");
        let mine: Vec<_> = read(&database).await.into_iter().filter(|read| read.ends_with(&of)).collect();
        assert_eq!(mine.len(), 5, "{mine:?}");
        let effects = database.effects().await;
        assert!(effects.iter().all(|effect| effect.worker == "attempt 1"), "{effects:?}");
        let key = format!("order\u{1f}{order}");
        let ids: Vec<_> =
            effects.iter().filter(|e| e.key.as_ref() == Some(&key)).map(|e| &e.message_id).collect();
        assert!(ids.len() == 5 && ids.is_sorted(), "in the order of their commits: {ids:?}");
    }
}
