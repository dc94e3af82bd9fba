//! What a failure means arrives wherever in the handler's error it is said.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use outbox::{
    BatchOutcome, Classification, Classify, Context, Envelope, HandlerError, Metadata, ResultExt as _, Retry,
    Shutdown, State, outbox_handler,
};
use outbox_tests::{TestBackend, TestDatabase};
use tokio::sync::Notify;

use crate::common::*;

on_each_database!(
    marks_are_found_through_context_and_sources,
    errors_that_classify_themselves_are_asked,
    a_mark_of_one_in_a_batch_is_its_own,
    a_handler_hears_that_the_process_stops,
);

/// What became of each message: its id, the state it is parked in, its attempts, and whether it comes back late.
async fn fates<DB: TestBackend>(database: &TestDatabase<DB>) -> Vec<String> {
    let late = by_database::<DB, _>(
        "p.due_at > (unixepoch() + 1800) * 1000000",
        "p.due_at > now() + interval '30 minutes'",
        "p.due_at > utc_timestamp(6) + interval 30 minute",
    );
    let fates = format!(
        "select m.id || ': ' || case p.state when 0 then 'retried' when 2 then 'dead' when 4 then 'snoozed' else '?' end \
         || ' after ' || p.attempts || case when {late} then ', late' else '' end \
         from outbox_parked p join outbox_message m on m.seq = p.seq order by m.seq"
    );
    database.texts(&fates).await
}

/// A long pause, which nothing asks for by itself.
const LATER: Duration = Duration::from_hours(1);

#[derive(Debug)]
struct Refused(Option<anyhow::Error>);

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("refused")
    }
}

impl std::error::Error for Refused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.0.as_ref().map(AsRef::as_ref)
    }
}

fn parse(text: &str) -> anyhow::Result<u8> {
    Ok(text.parse::<u8>().or_terminal()?)
}

/// Fails as the event's order says, somewhere deep inside.
fn fail(order: &str) -> anyhow::Result<()> {
    match order {
        "terminal" => parse("no number").map(drop)?,
        "terminal in context" => {
            parse("no number").context("reading the amount").context("reading the order")?;
        }
        "terminal as a source" => Err(Refused(Some(parse("").expect_err("no number"))))?,
        "terminal as a source in context" => {
            Err(Refused(Some(parse("").context("inside").expect_err("no number")))).context("outside")?;
        }
        "retried after" => Err("busy").or_retry_after(LATER).context("asking the bank")?,
        "snoozed" => Err(HandlerError::snooze(LATER).into_error()).context("at night")?,
        "http 404" => Err(HandlerError::http(404, None).into_error()).context("asking the bank")?,
        "http 503" => Err(HandlerError::http(503, Some(LATER)).into_error()).context("asking the bank")?,
        "the outermost" => Err(Refused(Some(parse("").expect_err("no number")))).or_retry_after(LATER)?,
        _ => anyhow::bail!("nothing is said"),
    }
    Ok(())
}

#[outbox_handler(consumer = "ledger", manual)]
async fn by_anyhow<DB: TestBackend>(placed: Placed, _: &mut Context<DB>) -> anyhow::Result<()> {
    fail(&placed.order).context("the handler")
}

#[outbox_handler(consumer = "boxed", manual)]
async fn by_box<DB: TestBackend>(
    placed: Placed,
    _: &mut Context<DB>,
) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    Ok(fail(&placed.order)?)
}

#[outbox_handler(consumer = "converted", manual)]
async fn by_handler_error<DB: TestBackend>(placed: Placed, _: &mut Context<DB>) -> Result<(), HandlerError> {
    Ok(fail(&placed.order)?)
}

#[outbox_handler(consumer = "wrapped", manual)]
async fn by_source<DB: TestBackend>(placed: Placed, _: &mut Context<DB>) -> Result<(), Refused> {
    fail(&placed.order).map_err(|error| Refused(Some(error)))
}

/// One pause for all that is retried without another, and a longest that leaves room for what is asked for.
fn retry() -> Retry {
    Retry {
        base: Duration::from_mins(10),
        multiplier: 1.0,
        max: Duration::from_hours(5),
        jitter: 0.0,
        ..Retry::DEFAULT
    }
}

const FATES: [&str; 10] = [
    "terminal: dead after 1",
    "terminal in context: dead after 1",
    "terminal as a source: dead after 1",
    "terminal as a source in context: dead after 1",
    "retried after: retried after 1, late",
    "snoozed: snoozed after 0, late",
    "http 404: dead after 1",
    "http 503: retried after 1, late",
    "the outermost: retried after 1, late",
    "nothing said: retried after 1",
];

async fn marks_are_found_through_context_and_sources<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let builders = || {
        [
            outbox.consumers().handler::<by_anyhow<DB>>(),
            outbox.consumers().handler::<by_box<DB>>(),
            outbox.consumers().handler::<by_handler_error<DB>>(),
            outbox.consumers().handler::<by_source<DB>>(),
        ]
    };
    for builder in builders() {
        builder.build().expect("complete").run_once().await.expect("registered");
    }
    for fate in FATES {
        let (order, _) = fate.split_once(": ").expect("an id and its fate");
        publish(&outbox, placed_as(order, order)).await;
    }
    for builder in builders() {
        let config = outbox::ConsumerConfig { retry: Some(retry()), ..quick() };
        let consumers = builder.config(config).build().expect("complete");
        let report = consumers.run_until_idle().await.expect("it ran");
        assert_eq!((report.dead, report.retried, report.snoozed), (5, 4, 1), "{report:?}");
        assert_eq!(fates(&database).await, FATES);
        let errors =
            database.texts("select last_error from outbox_parked where last_error is not null").await;
        assert!(errors.iter().all(|error| !error.is_empty()), "{errors:?}");
        database.execute("delete from outbox_parked").await;
    }
}

#[derive(Debug)]
struct Classified {
    order: String,
    cause: Option<anyhow::Error>,
}

impl fmt::Display for Classified {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("as it says")
    }
}

impl std::error::Error for Classified {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        self.cause.as_ref().map(AsRef::as_ref)
    }
}

impl Classify for Classified {
    fn classify(&self) -> Classification {
        match &*self.order {
            "terminal" => Classification::Terminal,
            "retried after" => Classification::RetryAfter(LATER),
            "snoozed" => Classification::Snooze(LATER),
            "retried whatever its cause" => Classification::Retry,
            _ => Classification::BySource,
        }
    }
}

fn classified(order: &str) -> Classified {
    let cause = (order == "retried whatever its cause" || order == "terminal by its cause")
        .then(|| parse("").expect_err("no number"));
    Classified { order: order.to_owned(), cause }
}

#[outbox_handler(consumer = "ledger", manual)]
async fn classifies<DB: TestBackend>(placed: Placed, _: &mut Context<DB>) -> Result<(), Classified> {
    Err(classified(&placed.order))
}

/// On its way into another error it is asked where that is said.
#[outbox_handler(consumer = "asks", manual)]
async fn classifies_on_the_way<DB: TestBackend>(placed: Placed, _: &mut Context<DB>) -> anyhow::Result<()> {
    Err(classified(&placed.order)).or_classified().context("on the way")
}

#[outbox_handler(consumer = "batches", manual)]
async fn classifies_batches<DB: TestBackend>(
    batch: Vec<Envelope<Placed>>,
    _: &mut Context<DB>,
) -> Result<BatchOutcome, Classified> {
    Err(classified(&batch[0].order))
}

async fn errors_that_classify_themselves_are_asked<DB: TestBackend>(database: TestDatabase<DB>) {
    const FATES: [&str; 6] = [
        "terminal: dead after 1",
        "retried after: retried after 1, late",
        "snoozed: snoozed after 0, late",
        "retried whatever its cause: retried after 1",
        "terminal by its cause: dead after 1",
        "nothing said: retried after 1",
    ];
    let outbox = database.outbox();
    let builders = || {
        [
            outbox.consumers().handler::<classifies<DB>>(),
            outbox.consumers().handler::<classifies_on_the_way<DB>>(),
            outbox.consumers().handler::<classifies_batches<DB>>(),
        ]
    };
    for builder in builders() {
        builder.build().expect("complete").run_once().await.expect("registered");
    }
    for fate in FATES {
        let (order, _) = fate.split_once(": ").expect("an id and its fate");
        publish(&outbox, placed_as(order, order)).await;
    }
    for builder in builders() {
        let config = outbox::ConsumerConfig { retry: Some(retry()), ..quick() };
        let consumers = builder.config(config).build().expect("complete");
        consumers.run_until_idle().await.expect("it ran");
        assert_eq!(fates(&database).await, FATES);
        database.execute("delete from outbox_parked").await;
    }
}

#[outbox_handler(consumer = "ledger", manual, batch = 50)]
async fn by_batch<DB: TestBackend>(batch: Vec<Envelope<Placed>>, _: &mut Context<DB>) -> BatchOutcome {
    let mut outcome = BatchOutcome::new();
    for placed in &batch {
        if let Err(error) = fail(&placed.order) {
            outcome.fail(&placed.metadata.id, error);
        }
    }
    outcome
}

async fn a_mark_of_one_in_a_batch_is_its_own<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let consumers = || {
        let config = outbox::ConsumerConfig { retry: Some(retry()), ..quick() };
        outbox.consumers().handler::<by_batch<DB>>().config(config).build().expect("complete")
    };
    consumers().run_once().await.expect("registered");
    for fate in FATES {
        let (order, _) = fate.split_once(": ").expect("an id and its fate");
        publish(&outbox, placed_as(order, order)).await;
    }
    consumers().run_until_idle().await.expect("it ran");
    assert_eq!(fates(&database).await, FATES);
}

#[outbox_handler(consumer = "ledger", manual)]
async fn stops_early<DB: TestBackend>(
    _: Placed,
    meta: Metadata,
    shutdown: Shutdown,
    started: State<Arc<Notify>>,
    ctx: &mut Context<DB>,
) -> Result<(), HandlerError> {
    record(ctx).await?;
    if meta.id.as_str() == "long" {
        let before = shutdown.is_requested();
        started.notify_one();
        // The one that waits for it ends by nothing else.
        shutdown.requested().await;
        assert!(!before && shutdown.is_requested(), "it was not yet, and is now");
        return Err(HandlerError::snooze(LATER));
    }
    Ok(())
}

async fn a_handler_hears_that_the_process_stops<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let started = Arc::new(Notify::new());
    let builder = || {
        let builder = outbox.consumers().handler::<stops_early<DB>>().state(started.clone()).config(quick());
        builder.options("ledger", |options| options.timeout = Duration::from_hours(1))
    };
    builder().build().expect("complete").run_once().await.expect("registered");
    publish(&outbox, placed_as("short", "1")).await;
    let running = Running::start(builder());
    effects(&database, 1).await;
    publish(&outbox, placed_as("long", "2")).await;
    tokio::time::timeout(LONG, started.notified()).await.expect("it is taken up");
    let report = running.stop().await;
    assert_eq!((report.handled, report.snoozed, report.retried), (1, 1, 0), "{report:?}");
    assert_eq!(handled(&database).await, ["short"]);
    assert_eq!(fates(&database).await, ["long: snoozed after 0, late"]);
}
