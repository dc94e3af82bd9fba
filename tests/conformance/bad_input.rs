//! What breaks a rule is refused before anything is written, with the same answer everywhere.

use std::borrow::Cow;

use outbox::__private::Codec;
use outbox::{Config, Draft, ErrorKind, EventMeta, Headers, MessageId, OutboxEvent, TypeSet};
use outbox_tests::{TestBackend, TestDatabase};
use serde::Serialize;

use crate::common::*;

on_each_database!(
    a_draft_that_breaks_a_rule_is_refused_and_the_transaction_goes_on,
    one_bad_event_refuses_its_whole_list,
    numbers_that_are_none_are_refused_with_their_path,
    ids_and_headers_are_checked_when_they_are_made,
    the_limits_themselves_are_stored_and_come_back,
    longer_keys_are_refused_and_never_cut,
);

fn broken() -> Vec<(&'static str, Draft)> {
    let long = "x".repeat(256);
    let fine = || Draft::new("order.placed", "{}");
    vec![
        ("an empty type", Draft::new("", "{}")),
        ("a type with a space", Draft::new("order placed", "{}")),
        ("a type with a wildcard", Draft::new("order.*", "{}")),
        ("a type with an umlaut", Draft::new("bestellung.geändert", "{}")),
        ("a type with a NUL", Draft::new("order\0placed", "{}")),
        ("a long type", Draft::new(long.clone(), "{}")),
        ("version 0", fine().version(0)),
        ("a version beyond the column", fine().version(u32::MAX)),
        ("an empty topic", fine().topic("")),
        ("a long topic", fine().topic(long.clone())),
        ("a topic with a NUL", fine().topic("a\0b")),
        ("a topic with the separator of keys", fine().topic("a\u{1f}b")),
        ("an empty aggregate", fine().aggregate_id("")),
        ("an aggregate with a NUL", fine().aggregate_id("7\0")),
        ("a long aggregate", fine().aggregate_id(long.clone())),
        ("an empty key", fine().key("")),
        ("a key with a NUL", fine().key("\0")),
        ("a long key", fine().key(long.clone())),
        ("an empty source", fine().source("")),
        ("a source with a NUL", fine().source("s\0")),
        ("a long source", fine().source(long.clone())),
        ("an empty content type", fine().content_type("")),
        ("a content type with a NUL", fine().content_type("a\0/b")),
        ("a long content type", fine().content_type(long)),
        ("a large payload", Draft::new("order.placed", vec![b'x'; 1024 * 1024 + 1])),
    ]
}

async fn a_draft_that_breaks_a_rule_is_refused_and_the_transaction_goes_on<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    let outbox = database.outbox();
    register(&outbox).await;
    let mut tx = database.pool().begin().await.expect("begun");
    let buffering = outbox.begin();
    for (what, draft) in broken() {
        let error = outbox.publish(&mut tx, draft).await.expect_err(what);
        assert_eq!(error.kind(), ErrorKind::InvalidMessage, "{what}: {error}");
        assert!(!error.is_transient(), "{what}");
        assert_eq!(error.sqlstate(), None, "the database was not asked about {what}");
    }
    outbox.publish(&mut tx, placed_as("good", "7")).await.expect("the transaction is as good as before");
    tx.commit().await.expect("committed");

    let tx = buffering.await.expect("begun");
    for (what, draft) in broken() {
        assert_eq!(tx.publish(draft).expect_err(what).kind(), ErrorKind::InvalidMessage, "{what}");
    }
    tx.publish(placed_as("also good", "7")).expect("accepted");
    assert_eq!(tx.commit().await.expect("committed").len(), 1);
    drain(&outbox, &Script::record()).await;
    assert_eq!(handled(&database).await, ["good", "also good"]);
    assert_eq!(database.count("outbox_message").await, 2);
}

async fn one_bad_event_refuses_its_whole_list<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let mut tx = database.pool().begin().await.expect("begun");
    let list = [Placed::new("7"), Placed::new(""), Placed::new("8")];
    let error = outbox.publish_events(&mut tx, &list).await.expect_err("an empty aggregate id");
    assert_eq!(error.kind(), ErrorKind::InvalidMessage);
    outbox.publish_events(&mut tx, &list[..1]).await.expect("published");
    tx.commit().await.expect("committed");
    let tx = outbox.begin().await.expect("begun");
    outbox.publish_events(&tx, &list).await.expect_err("an empty aggregate id");
    assert_eq!(tx.commit().await.expect("committed"), []);
    assert_eq!(database.count("outbox_message").await, 1);
}

#[derive(Debug, Serialize)]
struct Measured {
    points: Vec<Point>,
}

#[derive(Debug, Serialize)]
struct Point {
    at: f64,
    exact: Option<f32>,
}

static MEASURED: EventMeta = EventMeta::new("measured", 1, "measured", None, &[], "Measured");

impl OutboxEvent for Measured {
    const TYPES: TypeSet = TypeSet::One(&MEASURED);

    fn meta(&self) -> &'static EventMeta {
        &MEASURED
    }

    fn aggregate_id(&self) -> Option<Cow<'_, str>> {
        None
    }

    fn encode(&self, codec: &dyn Codec) -> outbox::Result<Vec<u8>> {
        outbox::codec::encode(self, codec)
    }
}

async fn numbers_that_are_none_are_refused_with_their_path<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let mut tx = database.pool().begin().await.expect("begun");
    let measured = |at, exact| Measured { points: vec![Point { at: 0.0, exact: None }, Point { at, exact }] };
    for (bad, path) in [
        (measured(f64::NAN, None), "points[1].at"),
        (measured(f64::NEG_INFINITY, None), "points[1].at"),
        (measured(0.0, Some(f32::NAN)), "points[1].exact"),
        (measured(0.0, Some(f32::INFINITY)), "points[1].exact"),
    ] {
        let error = outbox.publish_event(&mut tx, &bad).await.expect_err(path);
        assert_eq!(error.kind(), ErrorKind::Encode);
        assert!(whole(&error).contains(path), "{}", whole(&error));
    }
    let extreme = measured(f64::MAX, Some(f32::MIN_POSITIVE));
    outbox.publish_event(&mut tx, extreme).await.expect("finite, however extreme");
    tx.commit().await.expect("committed");
    assert_eq!(database.count("outbox_message").await, 1);
}

async fn ids_and_headers_are_checked_when_they_are_made<DB: TestBackend>(database: TestDatabase<DB>) {
    for bad in ["", "a\0b", &"x".repeat(256)] {
        assert_eq!(MessageId::new(bad).expect_err(bad).kind(), ErrorKind::InvalidMessage);
    }
    let mut headers = Headers::new();
    for (name, value) in [
        ("", "x"),
        ("a b", "x"),
        ("a\r\nb", "x"),
        ("ü", "x"),
        ("CE-id", "x"),
        ("outbox-id", "x"),
        ("cloudEvents:id", "x"),
        ("tenant", "a\0b"),
        ("tenant", "a\r\nx: y"),
        (&"n".repeat(256), "x"),
        ("tenant", &"v".repeat(16 * 1024)),
    ] {
        let error = headers.insert(name, value).expect_err(name);
        assert_eq!(error.kind(), ErrorKind::InvalidMessage, "{name:?}");
    }
    assert!(headers.is_empty());
    // What is left of them can be published.
    let outbox = database.outbox();
    publish(&outbox, placed("7").headers(headers)).await;
    assert_eq!(database.number("select count(*) from outbox_message where headers is null").await, 1);
}

async fn the_limits_themselves_are_stored_and_come_back<DB: TestBackend>(database: TestDatabase<DB>) {
    const MOST: usize = 4 * 1024 * 1024;
    let outbox = database.outbox_with(Config { max_payload: MOST, ..Config::default() });
    register(&outbox).await;
    // 255 bytes each: astral characters of four bytes, and three bytes more.
    let full = |first: char| format!("{first}{}", "🚀".repeat(63)) + "ab";
    assert_eq!(full('i').len(), 255);
    let mut headers = Headers::new();
    headers.insert("n".repeat(255), "v".repeat(16 * 1024 - 255)).expect("exactly the most");
    let payload: Vec<u8> = (0..MOST).map(|n| u8::try_from(n % 251).expect("small")).collect();
    let draft = Draft::new("order.placed", payload.clone())
        .id(id(&full('i')))
        .topic(full('t'))
        .aggregate_id(full('a'))
        .key(full('k'))
        .source(full('s'))
        .content_type(full('c'))
        .version(i32::MAX.unsigned_abs())
        .headers(headers.clone());
    publish(&outbox, draft.clone()).await;
    // The longest type there may be; nobody takes it.
    publish(&outbox, Draft::new("x".repeat(255), "{}")).await;
    // The key that topic and aggregate make may be longer than either.
    let draft = Draft::new("order.placed", "{}").topic(full('t')).aggregate_id(full('a'));
    publish(&outbox, draft.id(id("long key"))).await;

    let script = Script::<DB>::new(move |ctx| {
        let (headers, payload) = (headers.clone(), payload.clone());
        Box::pin(async move {
            let message = ctx.metadata().clone();
            if message.id.as_str() == "long key" {
                assert_eq!(message.key.as_deref(), Some(&*format!("{}\u{1f}{}", full('t'), full('a'))));
            } else {
                assert_eq!(message.id.as_str(), full('i'));
                assert_eq!(message.topic, full('t'));
                assert_eq!(message.aggregate_id, Some(full('a')));
                assert_eq!(message.key, Some(full('k')));
                assert_eq!(message.source, Some(full('s')));
                assert_eq!(message.content_type, full('c'));
                assert_eq!(message.version, i32::MAX.unsigned_abs());
                assert_eq!(message.headers, headers);
                assert!(message.payload == payload, "the payload came back changed");
            }
            record(ctx).await
        })
    });
    let report = drain(&outbox, &script).await;
    assert_eq!((report.handled, report.remaining), (2, 0));
    assert_eq!(database.count("outbox_unrouted").await, 1);
    // The inbox mark has the whole id too.
    assert_eq!(
        database.number("select count(*) from outbox_inbox where octet_length(message_id) = 255").await,
        1
    );
}

async fn longer_keys_are_refused_and_never_cut<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    for length in [256, 1_024, 5_000] {
        let mut tx = database.pool().begin().await.expect("begun");
        let long = "k".repeat(length);
        for draft in [placed("7").key(&long), placed(&long), placed("7").topic(&long)] {
            let error = outbox.publish(&mut tx, draft).await.expect_err("too long");
            assert_eq!(error.kind(), ErrorKind::InvalidMessage);
            assert!(error.to_string().contains(&format!("{length} bytes, and 255 is the most")), "{error}");
        }
    }
    // Two of 255 bytes that differ in the last one are two.
    let stem = "k".repeat(254);
    for end in ["a", "b"] {
        publish(&outbox, placed(&format!("{stem}{end}")).id(id(&format!("{stem}{end}")))).await;
    }
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 2);
    assert_eq!(database.number("select count(distinct key_hash) from outbox_message").await, 2);
    assert_eq!(database.count("outbox_inbox").await, 2);
}
