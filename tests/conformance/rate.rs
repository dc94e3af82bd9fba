//! A consumer's rate: how many messages a process handles in a time at most.
//!
//! Only upper bounds are measured: they hold on a slow machine as well.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use outbox::__private::{HandlerReturn, HandlerVTable};
use outbox::{
    ConsumerConfig, ConsumersBuilder, Draft, ErrorKind, Handler, HandlerOptions, Outbox, Rate, Site, TypeSet,
};
use outbox_tests::{TestBackend, TestDatabase, eventually};

use crate::common::*;

on_each_database!(
    no_more_is_handled_than_the_rate_allows,
    no_more_is_called_than_the_rate_allows,
    nothing_is_held_and_nothing_counted_while_messages_wait,
    no_lease_is_kept_while_messages_wait,
    a_consumer_that_waits_keeps_no_other_waiting,
    a_failed_batch_is_called_one_by_one_within_the_rate,
    a_group_that_a_process_may_have_died_of_keeps_to_the_rate,
    a_rate_of_nothing_is_refused,
);

const RATE: Rate = Rate::per_second(200);
/// What may be handled at once.
const AT_ONCE: u32 = 20;
const MESSAGES: u32 = 120;

/// One message, and then none while a test runs.
const ONE: Rate = Rate { messages: 1, per: Duration::from_hours(24) };

fn limited<DB: TestBackend>(
    builder: ConsumersBuilder<DB>,
    consumer: &str,
    rate: Rate,
) -> ConsumersBuilder<DB> {
    builder.options(consumer, |options| options.rate = Some(rate))
}

async fn publish_many<DB: TestBackend>(outbox: &Outbox<DB>) {
    let tx = outbox.begin().await.expect("begun");
    for n in 0..MESSAGES {
        tx.publish(placed_as(&n.to_string(), &format!("{}", n % 11))).expect("accepted");
    }
    tx.commit().await.expect("committed");
}

/// Handles all messages by this consumer, and compares the time with its rate.
async fn at_most<DB: TestBackend>(consumers: ConsumersBuilder<DB>) {
    let consumers = consumers.build().expect("complete");
    let since = Instant::now();
    let report = consumers.run_until_idle().await.expect("it ran");
    let took = since.elapsed();
    assert_eq!((report.handled, report.retried, report.remaining), (MESSAGES.into(), 0, 0));
    let least = RATE.per * (MESSAGES - AT_ONCE) / RATE.messages;
    assert!(took >= least, "{MESSAGES} messages in {took:?}: at {RATE} they take at least {least:?}");
}

async fn no_more_is_handled_than_the_rate_allows<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    publish_many(&outbox).await;
    at_most(limited(ledger(&outbox, &Script::record()), "ledger", RATE)).await;
    assert_eq!(database.count("effects").await, i64::from(MESSAGES));
}

async fn no_more_is_called_than_the_rate_allows<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    publish_many(&outbox).await;
    let calls: Arc<AtomicUsize> = Arc::default();
    let script = {
        let calls = calls.clone();
        Script::<DB>::new(move |_| {
            calls.fetch_add(1, Ordering::SeqCst);
            Box::pin(async { Ok(()) })
        })
    };
    let consumers = outbox.consumers().handler::<Caller>().state(script).config(quick());
    at_most(limited(consumers, "calls", RATE)).await;
    assert_eq!(calls.load(Ordering::SeqCst), MESSAGES as usize);
}

/// Three messages that nothing of a key keeps apart.
async fn publish_three<DB: TestBackend>(outbox: &Outbox<DB>) {
    for n in 0..3 {
        publish(outbox, placed_as(&n.to_string(), &n.to_string())).await;
    }
}

async fn nothing_is_held_and_nothing_counted_while_messages_wait<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    let outbox = database.outbox();
    publish_three(&outbox).await;
    let running = Running::start(limited(ledger(&outbox, &Script::record()), "ledger", ONE));
    effects(&database, 1).await;
    // Each lane can be had, again and again, and the file's lock.
    for _ in 0..20 {
        database.execute("update outbox_lane set lane = lane").await;
    }
    // What is published now is stored, and waits as well; a second process has a rate of its own.
    publish(&outbox, placed_as("another", "9")).await;
    let second =
        Running::start(limited(ledger(&elsewhere(&database).await, &Script::record()), "ledger", ONE));
    effects(&database, 2).await;
    assert_eq!(running.stop().await.handled + second.stop().await.handled, 2);
    assert_eq!((database.count("outbox_delivery").await, database.count("outbox_parked").await), (2, 0));
    assert_eq!(database.count("outbox_attempt").await, 0);
    // Without the rate they go on, at their first attempt.
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 2);
    let attempts = database.texts("select distinct worker from effects").await;
    assert_eq!(attempts, ["attempt 1"]);
}

async fn no_lease_is_kept_while_messages_wait<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    publish_three(&outbox).await;
    let script = || Script::<DB>::new(|_| Box::pin(async { Ok(()) }));
    let consumers = outbox.consumers().handler::<Caller>().state(script()).config(quick());
    let running = Running::start(limited(consumers, "calls", ONE));
    let done = "select (select count(*) from outbox_inbox where claimed_by is null) * 100
                     - (select count(*) from outbox_lane where leased_by is not null)";
    eventually("one call, and no lease", LONG, async || database.number(done).await == 100).await;
    assert_eq!(running.stop().await.handled, 1);
    assert_eq!(database.count("outbox_inbox").await, 1, "no claim is left");
    let consumers = outbox.consumers().handler::<Caller>().state(script()).config(quick());
    let report = consumers.build().expect("complete").run_until_idle().await.expect("it ran");
    assert_eq!((report.handled, report.remaining), (2, 0));
}

async fn a_consumer_that_waits_keeps_no_other_waiting<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    publish_many(&outbox).await;
    let consumers = ledger(&outbox, &Script::record()).handler::<Audit>();
    // With one executor, which must not be kept by the one that waits.
    let consumers = consumers.config(ConsumerConfig { executors: 1, ..quick() });
    let running = Running::start(limited(consumers, "ledger", ONE));
    let of = |consumer: &str| format!("select count(*) from effects where consumer = '{consumer}'");
    let audited = async || database.number(&of("audit")).await == i64::from(MESSAGES);
    eventually("the other consumer to be done", LONG, audited).await;
    eventually("one of the limited", LONG, async || database.number(&of("ledger")).await == 1).await;
    running.stop().await;
    assert_eq!(database.number(&of("ledger")).await, 1);
}

#[derive(Debug)]
struct Batches;

impl<DB: TestBackend> Handler<DB> for Batches {
    const VTABLE: HandlerVTable<DB> = HandlerVTable {
        name: "batches",
        consumer: "calls",
        aliases: &[],
        types: TypeSet::One(&PLACED),
        options: HandlerOptions { batch: 50, rate: Some(RATE), ..HandlerOptions::DEFAULT },
        site: Site::new(module_path!(), file!(), line!()),
        check: |_| Ok(()),
        batched: true,
        effect: outbox::Effect::External,
        call: |ctx| Box::pin(async { HandlerReturn::into_result(scripted(ctx).await) }),
    };
}

async fn a_failed_batch_is_called_one_by_one_within_the_rate<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let tx = outbox.begin().await.expect("begun");
    for _ in 0..MESSAGES {
        tx.publish(Draft::new("order.placed", "{}")).expect("accepted");
    }
    tx.commit().await.expect("committed");
    let calls: Arc<AtomicUsize> = Arc::default();
    let script = {
        let calls = calls.clone();
        Script::<DB>::new(move |_| {
            // Now a batch, and then one of it: every fourth call fails.
            let fails = calls.fetch_add(1, Ordering::SeqCst).is_multiple_of(4);
            Box::pin(async move { if fails { Err("not like this".into()) } else { Ok(()) } })
        })
    };
    let consumers = outbox.consumers().handler::<Batches>().state(script);
    // By chance a message may be in many of those that fail.
    let retry = outbox::Retry { max_attempts: 1_000, ..outbox::Retry::every(Duration::ZERO) };
    let consumers = consumers.config(ConsumerConfig { retry: Some(retry), ..quick() });
    let since = Instant::now();
    let report = consumers.build().expect("complete").run_until_idle().await.expect("it ran");
    let took = since.elapsed();
    assert_eq!((report.handled, report.dead, report.remaining), (MESSAGES.into(), 0, 0));
    assert!(took >= RATE.per * (MESSAGES - AT_ONCE) / RATE.messages, "{took:?}");
    assert_eq!(database.number("select count(*) from outbox_inbox where claimed_by is not null").await, 0);
}

async fn a_group_that_a_process_may_have_died_of_keeps_to_the_rate<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    let outbox = database.outbox();
    register(&outbox).await;
    publish_many(&outbox).await;
    database
        .execute("insert into outbox_suspect (consumer, lane, alone) select consumer, lane, lane % 3 from outbox_lane")
        .await;
    at_most(limited(ledger(&outbox, &Script::record()), "ledger", RATE)).await;
    assert_eq!(database.count("effects").await, i64::from(MESSAGES));
}

async fn a_rate_of_nothing_is_refused<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    for nothing in [Rate::per_second(0), Rate { messages: 1, per: Duration::ZERO }] {
        let consumers = limited(ledger(&outbox, &Script::record()), "ledger", nothing);
        let error = consumers.build().expect_err("nothing would be handled");
        assert_eq!(error.kind(), ErrorKind::Registry);
        assert!(error.to_string().contains("`rate`"), "{error}");
    }
}
