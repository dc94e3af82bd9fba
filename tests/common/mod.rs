//! What the themes share: an event, handlers that do what a test tells them, runs that a test ends.

use std::borrow::Cow;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use outbox::__private::{Codec, Codecs, FromContext as _};
use outbox::{
    BoxFuture, Config, ConsumerConfig, Consumers, ConsumersBuilder, Context, DecodeEvent, Draft, EventMeta,
    HandlerError, Message, MessageId, Outbox, OutboxEvent, Report, Retention, State, TypeSet,
};
use outbox_tests::{Effect, TestBackend, TestDatabase, eventually, handler};
use serde::{Deserialize, Serialize};
use sqlx::Pool;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// Ten times what anything here should take.
pub(crate) const LONG: Duration = Duration::from_secs(30);

pub(crate) static PLACED: EventMeta = EventMeta::new("order.placed", 1, "order", None, &[], "Placed");
pub(crate) static SHIPPED: EventMeta = EventMeta::new("order.shipped", 1, "order", None, &[], "Shipped");

/// An event written by hand: of the type [`PLACED`], ordered by its order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Placed {
    pub(crate) order: String,
    pub(crate) amount: f64,
}

impl Placed {
    pub(crate) fn new(order: impl Into<String>) -> Self {
        Self { order: order.into(), amount: 1.5 }
    }
}

impl OutboxEvent for Placed {
    const TYPES: TypeSet = TypeSet::One(&PLACED);

    fn meta(&self) -> &'static EventMeta {
        &PLACED
    }

    fn aggregate_id(&self) -> Option<Cow<'_, str>> {
        Some(Cow::Borrowed(&self.order))
    }

    fn encode(&self, codec: &dyn Codec) -> outbox::Result<Vec<u8>> {
        outbox::codec::encode(self, codec)
    }
}

impl DecodeEvent for Placed {
    fn decode(message: &Message, codecs: &Codecs) -> outbox::Result<Self> {
        outbox::codec::decode(&message.payload, &message.content_type, codecs)
    }
}

/// A message of the type [`PLACED`] in the order `order`.
pub(crate) fn placed(order: &str) -> Draft {
    Draft::new("order.placed", format!("{{\"order\":\"{order}\",\"amount\":1.5}}")).aggregate_id(order)
}

/// The same with an id of its own.
pub(crate) fn placed_as(id: &str, order: &str) -> Draft {
    placed(order).id(self::id(id))
}

pub(crate) fn id(id: &str) -> MessageId {
    MessageId::new(id).expect("a valid id")
}

/// What a handler does, given to the consumers as their state.
pub(crate) struct Script<DB: TestBackend>(Arc<Run<DB>>);

type Run<DB> = dyn for<'a> Fn(&'a mut Context<DB>) -> BoxFuture<'a, Outcome> + Send + Sync;

pub(crate) type Outcome = Result<(), HandlerError>;

impl<DB: TestBackend> Script<DB> {
    pub(crate) fn new<F>(run: F) -> Self
    where
        F: for<'a> Fn(&'a mut Context<DB>) -> BoxFuture<'a, Outcome> + Send + Sync + 'static,
    {
        Self(Arc::new(run))
    }

    /// Leaves an effect for each message.
    pub(crate) fn record() -> Self {
        Self::new(|ctx| Box::pin(record(ctx)))
    }
}

impl<DB: TestBackend> Clone for Script<DB> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<DB: TestBackend> fmt::Debug for Script<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Script")
    }
}

pub(crate) async fn scripted<DB: TestBackend>(ctx: &mut Context<DB>) -> Outcome {
    let script = State::<Script<DB>>::from_context(ctx)?;
    (script.0)(ctx).await
}

handler!(pub(crate) Ledger, consumer "ledger", types [PLACED], run scripted);
handler!(pub(crate) Books, consumer "books", alias "ledger", types [PLACED], run scripted);
handler!(pub(crate) Audit, consumer "audit", types [PLACED], run scripted);
handler!(pub(crate) Shipping, consumer "shipping", types [SHIPPED], run scripted);
handler!(pub(crate) Caller, consumer "calls", types [PLACED], run scripted, effect External);
handler!(pub(crate) Both, consumer "ledger", types [PLACED, SHIPPED], run scripted);

/// Leaves an effect.
pub(crate) async fn record<DB: TestBackend>(ctx: &mut Context<DB>) -> Outcome {
    let effect = effect(ctx);
    DB::insert_effect(ctx, &effect).await?;
    Ok(())
}

pub(crate) fn effect<DB: TestBackend>(ctx: &Context<DB>) -> Effect {
    let metadata = ctx.metadata();
    Effect {
        message_id: metadata.id.to_string(),
        consumer: metadata.consumer().to_owned(),
        key: metadata.key.clone(),
        worker: format!("attempt {}", metadata.attempt()),
    }
}

/// Settings with short pauses.
pub(crate) fn quick() -> ConsumerConfig {
    ConsumerConfig {
        poll_interval: Duration::from_millis(20),
        retry: Some(outbox::Retry::every(Duration::from_millis(50))),
        // At a random time of the first minute, which has no place in most tests.
        retention: Retention::FOREVER,
        ..ConsumerConfig::default()
    }
}

/// Settings under which nothing that failed is tried again while a test runs.
pub(crate) fn patient() -> ConsumerConfig {
    ConsumerConfig { retry: Some(outbox::Retry::every(Duration::from_hours(1))), ..quick() }
}

/// The consumer `ledger` with this script, not yet built.
pub(crate) fn ledger<DB: TestBackend>(outbox: &Outbox<DB>, script: &Script<DB>) -> ConsumersBuilder<DB> {
    outbox.consumers().handler::<Ledger>().state(script.clone()).config(quick())
}

/// Handles what is there with the consumer `ledger`; what fails is not due again before [`due_now`] says so.
pub(crate) async fn drain<DB: TestBackend>(outbox: &Outbox<DB>, script: &Script<DB>) -> Report {
    let consumers = ledger(outbox, script).config(patient()).build().expect("complete");
    consumers.run_until_idle().await.expect("it ran")
}

/// Makes due whatever waits for its time.
pub(crate) async fn due_now<DB: TestBackend>(database: &TestDatabase<DB>) {
    let now = by_database::<DB, _>("0", "now()", "utc_timestamp(6)");
    database.execute(&format!("update outbox_parked set due_at = {now} where due_at is not null")).await;
}

/// Makes the consumer `ledger` known, so that what is published is its from now on.
pub(crate) async fn register<DB: TestBackend>(outbox: &Outbox<DB>) {
    assert_eq!(drain(outbox, &Script::record()).await.handled, 0);
}

/// Publishes in a transaction of its own.
pub(crate) async fn publish<DB: TestBackend>(outbox: &Outbox<DB>, draft: Draft) -> MessageId {
    let tx = outbox.begin().await.expect("begun");
    let id = tx.publish(draft).expect("accepted");
    tx.commit().await.expect("committed");
    id
}

/// Consumers that run until the test ends them.
#[derive(Debug)]
pub(crate) struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<outbox::Result<Report>>,
}

impl Running {
    pub(crate) fn start<DB: TestBackend>(consumers: ConsumersBuilder<DB>) -> Self {
        Self::run(consumers.build().expect("complete"))
    }

    pub(crate) fn run<DB: TestBackend>(consumers: Consumers<DB>) -> Self {
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(consumers.run_until(async { drop(stopped.await) }));
        Self { stop, task }
    }

    pub(crate) async fn stop(self) -> Report {
        // It may have ended by an error, which is the more interesting news.
        let _ = self.stop.send(());
        self.task.await.expect("no panic").expect("it ran")
    }

    /// Drops the run's future wherever it is.
    pub(crate) async fn abort(self) {
        self.task.abort();
        assert!(self.task.await.expect_err("aborted").is_cancelled());
    }
}

/// Waits until nothing is left to deliver, not even what was parked.
pub(crate) async fn settled<DB: TestBackend>(database: &TestDatabase<DB>) {
    // In one statement: a message that moves from one table to the other is in neither by two.
    let left = "select (select count(*) from outbox_delivery) + (select count(*) from outbox_parked)";
    eventually("everything to be settled", LONG, async || database.number(left).await == 0).await;
}

/// Waits for this many effects.
pub(crate) async fn effects<DB: TestBackend>(database: &TestDatabase<DB>, count: i64) {
    let what = format!("{count} effects");
    eventually(&what, LONG, async || database.count("effects").await >= count).await;
}

/// The messages that left an effect for the consumer, in the order of the effects.
pub(crate) async fn handled_by<DB: TestBackend>(database: &TestDatabase<DB>, consumer: &str) -> Vec<String> {
    let effects = database.effects().await;
    effects.into_iter().filter(|e| e.consumer == consumer).map(|e| e.message_id).collect()
}

pub(crate) async fn handled<DB: TestBackend>(database: &TestDatabase<DB>) -> Vec<String> {
    handled_by(database, "ledger").await
}

/// Whether this is PostgreSQL, where SQL has to differ.
pub(crate) fn is_postgres<DB: TestBackend>() -> bool {
    <DB as sqlx::Database>::NAME == "PostgreSQL"
}

/// Whether this is MySQL or MariaDB.
pub(crate) fn is_mysql<DB: TestBackend>() -> bool {
    <DB as sqlx::Database>::NAME == "MySQL"
}

/// One of three values, by the database.
pub(crate) fn by_database<DB: TestBackend, T>(sqlite: T, postgres: T, mysql: T) -> T {
    match <DB as sqlx::Database>::NAME {
        "PostgreSQL" => postgres,
        "MySQL" => mysql,
        _ => sqlite,
    }
}

/// Another process's view: an outbox with a pool of its own.
pub(crate) async fn elsewhere<DB: TestBackend>(database: &TestDatabase<DB>) -> Outbox<DB> {
    let pool: Pool<DB> = database.another_pool(3).await;
    Outbox::with_config(pool, Config::default())
}

/// The whole of an error: its text and those of its causes.
pub(crate) fn whole(error: &outbox::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

/// Waits until a connection to this database waits for a lock, where the database can say so.
pub(crate) async fn somebody_waits<DB: TestBackend>(database: &TestDatabase<DB>) {
    let waiting = by_database::<DB, _>(
        "select 1",
        "select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'",
        "select count(*) from information_schema.innodb_trx t \
         join information_schema.processlist p on p.id = t.trx_mysql_thread_id \
         where t.trx_state = 'LOCK WAIT' and p.db = database()",
    );
    // InnoDB tells anew only after a tenth of a second in which nobody has asked.
    let mut look = tokio::time::interval(Duration::from_millis(if is_mysql::<DB>() { 150 } else { 1 }));
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    eventually("somebody to wait for a lock", LONG, async || {
        look.tick().await;
        database.number(waiting).await > 0
    })
    .await;
}
