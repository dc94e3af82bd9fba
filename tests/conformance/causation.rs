//! What a handler publishes says which message it comes from, what all of that has in common, and its trace.

use outbox::__private::{Handler, HandlerReturn as _, HandlerVTable, TypeSet, take_event};
use outbox::{Draft, Envelope, HandlerError, HandlerOptions, Headers, Inboxed, Message, Site};
use outbox_tests::{TestBackend, TestDatabase};

use crate::common::*;

on_each_database!(
    what_a_handler_publishes_is_linked_to_its_message,
    what_is_set_by_hand_wins,
    a_batch_is_no_cause_but_its_members_are,
    what_came_from_elsewhere_can_be_the_cause,
    a_failed_attempt_links_nothing_and_the_next_links_the_same,
);

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn headers(list: &[(&str, &str)]) -> Headers {
    let mut headers = Headers::new();
    for (name, value) in list {
        headers.insert(*name, *value).expect("valid");
    }
    headers
}

/// The headers of the message with this id, as they are stored.
async fn stored<DB: TestBackend>(database: &TestDatabase<DB>, id: &str) -> Headers {
    let sql = format!("select coalesce(headers, '{{}}') from outbox_message where id = '{id}'");
    let rows = database.texts(&sql).await;
    assert_eq!(rows.len(), 1, "{id}");
    serde_json::from_str(&rows[0]).expect("a map of texts")
}

fn shipped(id: &str) -> Draft {
    Draft::new("order.shipped", "{}").aggregate_id(id).id(self::id(id))
}

async fn what_a_handler_publishes_is_linked_to_its_message<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let script = {
        let outbox = outbox.clone();
        Script::<DB>::new(move |ctx| {
            let outbox = outbox.clone();
            Box::pin(async move {
                let id = ctx.metadata().id.to_string();
                match id.as_str() {
                    "first" => {
                        ctx.publish(shipped("by draft"))?;
                        outbox.publish(&*ctx, shipped("by outbox")).await?;
                        ctx.publish_event(Placed::new("by event"))?;
                        outbox.publish_events(&*ctx, [Placed::new("in list")]).await?;
                    }
                    "by draft" => {
                        assert_eq!(ctx.metadata().causation_id(), Some("first"));
                        assert_eq!(ctx.metadata().correlation_id(), Some("first"));
                        ctx.publish(Draft::new("order.archived", "{}").id(self::id("third")))?;
                    }
                    _ => {}
                }
                Ok(())
            })
        })
    };
    let run = || outbox.consumers().handler::<Both>().state(script.clone()).config(patient()).build();
    run().expect("complete").run_until_idle().await.expect("it ran");
    let given = headers(&[("tenant", "acme"), ("traceparent", TRACE), ("tracestate", "a=1,b=2")]);
    publish(&outbox, placed_as("first", "7").headers(given.clone())).await;
    assert_eq!(run().expect("complete").run_until_idle().await.expect("it ran").dead, 0);

    assert_eq!(stored(&database, "first").await, given, "what nobody handled has no cause");
    let links = [
        ("outbox-causation-id", "first"),
        ("outbox-correlation-id", "first"),
        ("traceparent", TRACE),
        ("tracestate", "a=1,b=2"),
    ];
    for id in ["by draft", "by outbox"] {
        assert_eq!(stored(&database, id).await, headers(&links), "{id}");
    }
    for aggregate in ["by event", "in list"] {
        let sql = format!("select headers from outbox_message where aggregate_id = '{aggregate}'");
        let found: Vec<Headers> =
            database.texts(&sql).await.iter().map(|json| serde_json::from_str(json).expect("JSON")).collect();
        assert_eq!(found, [headers(&links)], "{aggregate}");
    }
    let [_, correlation, parent, state] = links;
    let expected = headers(&[("outbox-causation-id", "by draft"), correlation, parent, state]);
    assert_eq!(stored(&database, "third").await, expected);
}

async fn what_is_set_by_hand_wins<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    let given = headers(&[("traceparent", TRACE), ("tracestate", "a=1")]);
    publish(&outbox, placed_as("first", "7").headers(given).correlation_id("request-9")).await;
    let script = Script::<DB>::new(|ctx| {
        Box::pin(async move {
            ctx.publish(shipped("causation").causation_id("mine"))?;
            ctx.publish(shipped("correlation").correlation_id("mine"))?;
            ctx.publish(shipped("as header").headers(headers(&[("outbox-correlation-id", "mine")])))?;
            ctx.publish(shipped("trace").headers(headers(&[("traceparent", "00-mine")])))?;
            let full = headers(&[("full", &"x".repeat(16 * 1024 - 4))]);
            ctx.publish(shipped("full").headers(full))?;
            let refused = ctx.publish(shipped("refused").causation_id("a\r\nb")).expect_err("no header");
            assert_eq!(refused.kind(), outbox::ErrorKind::InvalidMessage);
            Ok(())
        })
    });
    assert_eq!(drain(&outbox, &script).await.handled, 1);
    let all = |causation: &str, correlation: &str| {
        headers(&[
            ("outbox-causation-id", causation),
            ("outbox-correlation-id", correlation),
            ("traceparent", TRACE),
            ("tracestate", "a=1"),
        ])
    };
    assert_eq!(stored(&database, "causation").await, all("mine", "request-9"));
    for id in ["correlation", "as header"] {
        assert_eq!(stored(&database, id).await, all("first", "mine"), "{id}");
    }
    let trace = headers(&[
        ("outbox-causation-id", "first"),
        ("outbox-correlation-id", "request-9"),
        ("traceparent", "00-mine"),
    ]);
    assert_eq!(stored(&database, "trace").await, trace, "no state of another trace");
    // The library's own come on top of what a message may have, and are read back.
    assert_eq!(stored(&database, "full").await.get("outbox-causation-id"), Some("first"));
}

/// Takes batches, and publishes for each member and for the whole.
#[derive(Debug)]
struct Batches;

type Batch = Vec<Envelope<Placed>>;

impl<DB: TestBackend> Handler<DB> for Batches {
    const VTABLE: HandlerVTable<DB> = HandlerVTable {
        name: "batches",
        consumer: "ledger",
        aliases: &[],
        types: TypeSet::One(&PLACED),
        options: HandlerOptions::DEFAULT,
        site: Site::new(module_path!(), file!(), line!()),
        check: |_| Ok(()),
        effect: outbox::Effect::Database,
        batched: true,
        call: |ctx| {
            Box::pin(async {
                let batch = take_event::<Batch, DB>(ctx)?;
                work(ctx, &batch).into_result()
            })
        },
    };
}

fn work<DB: TestBackend>(ctx: &outbox::Context<DB>, batch: &Batch) -> Result<(), HandlerError> {
    ctx.publish(shipped("for all"))?;
    for envelope in batch {
        let of = format!("of {}", envelope.metadata.id);
        ctx.publish(shipped(&of).caused_by(&envelope.metadata))?;
    }
    let event = ctx.draft(&Placed::new("8"))?.id(id("event"));
    ctx.publish(event.caused_by(&batch[0].metadata))?;
    Ok(())
}

async fn a_batch_is_no_cause_but_its_members_are<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    let tx = outbox.begin().await.expect("begun");
    tx.publish(placed_as("a", "7")).expect("accepted");
    tx.publish(placed_as("b", "7").headers(headers(&[("traceparent", TRACE)]))).expect("accepted");
    tx.commit().await.expect("committed");
    let consumers = outbox.consumers().handler::<Batches>().config(patient()).build().expect("complete");
    assert_eq!(consumers.run_once().await.expect("it ran").handled, 2);
    assert!(stored(&database, "for all").await.is_empty());
    let of = |id| headers(&[("outbox-causation-id", id), ("outbox-correlation-id", id)]);
    assert_eq!(stored(&database, "of a").await, of("a"));
    assert_eq!(stored(&database, "event").await, of("a"));
    let mut traced = of("b");
    traced.insert("traceparent", TRACE).expect("valid");
    assert_eq!(stored(&database, "of b").await, traced);
}

async fn what_came_from_elsewhere_can_be_the_cause<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let received = Message::from_json(
        br#"{"id":"theirs","event_type":"order.placed","version":1,"topic":"order","payload":"{}",
             "content_type":"application/json","headers":{"outbox-correlation-id":"request-9"},
             "created_at":"2026-01-31T12:00:00Z"}"#,
    )
    .expect("a message");
    let inbox = outbox.inbox("ledger").await.expect("known");
    let handled = inbox.handle(&received.id, async |tx| {
        tx.publish(shipped("ours").caused_by(&received))?;
        Ok::<_, outbox::Error>(())
    });
    assert_eq!(handled.await.expect("handled"), Inboxed::Processed(()));
    let expected = headers(&[("outbox-causation-id", "theirs"), ("outbox-correlation-id", "request-9")]);
    assert_eq!(stored(&database, "ours").await, expected);
}

async fn a_failed_attempt_links_nothing_and_the_next_links_the_same<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    let outbox = database.outbox();
    register(&outbox).await;
    publish(&outbox, placed_as("first", "7")).await;
    let script = Script::<DB>::new(|ctx| {
        Box::pin(async move {
            let attempt = ctx.metadata().attempt();
            ctx.publish(shipped(&format!("attempt {attempt}")))?;
            if attempt == 1 { Err("not yet".into()) } else { Ok(()) }
        })
    });
    assert_eq!(drain(&outbox, &script).await.retried, 1);
    due_now(&database).await;
    assert_eq!(drain(&outbox, &script).await.handled, 1);
    assert_eq!(database.count("outbox_message").await, 2);
    assert_eq!(stored(&database, "attempt 2").await.get("outbox-causation-id"), Some("first"));
}
