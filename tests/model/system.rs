//! The library, taken through the same steps.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use outbox::__private::{Codec, FromContext as _, take_event};
use outbox::testing::TestOutbox;
use outbox::{
    Admin, Config, ConsumersBuilder, Context, Dead, Draft, EventMeta, HandlerError, MessageId, OnDead,
    OutboxEvent, Prune, Report, Retention, Retry, StartFrom, State, TypeSet,
};
use outbox_tests::{Effect, handler};
use serde::{Deserialize, Serialize};
use tokio::sync::Notify;

use crate::reference::{ATTEMPTS, CONSUMERS, Counts, Line, Reference};
use crate::steps::{Does, Order, Step};

/// What handlers say that panic.
pub(crate) const PANIC: &str = "as the order says";

const HOUR: Duration = Duration::from_hours(1);

/// A database that both the library's test helpers and the suites' know.
pub(crate) trait Database: outbox::testing::TestBackend + outbox_tests::TestBackend {}

impl<DB: outbox::testing::TestBackend + outbox_tests::TestBackend> Database for DB {}

static PLACED: EventMeta = EventMeta::new("order.placed", 1, "order", None, &[], "Placed");
static ECHOED: EventMeta = EventMeta::new("order.echoed", 1, "order", None, &[], "Echoed");

handler!(First, consumer "first", types [PLACED], run act);
handler!(Second, consumer "second", types [PLACED, ECHOED], run act);
handler!(Third, consumer "third", types [PLACED], run act);

/// What a message says.
#[derive(Debug, Serialize, Deserialize)]
struct Told {
    does: Does,
    echo: bool,
}

impl OutboxEvent for Told {
    const TYPES: TypeSet = TypeSet::Any(&[TypeSet::One(&PLACED), TypeSet::One(&ECHOED)]);

    fn meta(&self) -> &'static EventMeta {
        &PLACED
    }

    fn aggregate_id(&self) -> Option<Cow<'_, str>> {
        None
    }

    fn encode(&self, codec: &dyn Codec) -> outbox::Result<Vec<u8>> {
        outbox::codec::encode(self, codec)
    }
}

impl outbox::DecodeEvent for Told {
    fn decode(message: &outbox::Message, codecs: &outbox::codec::Codecs) -> outbox::Result<Self> {
        outbox::codec::decode(&message.payload, &message.content_type, codecs)
    }
}

/// What the handlers of a run share.
#[derive(Debug, Default)]
struct Around {
    mended: bool,
    /// How many calls there are until one hangs.
    calls: AtomicI64,
    hangs: Notify,
}

async fn act<DB: outbox_tests::TestBackend>(ctx: &mut Context<DB>) -> Result<(), HandlerError> {
    let around: State<Arc<Around>> = State::from_context(ctx)?;
    let told: Told = take_event(ctx)?;
    let metadata = ctx.metadata().clone();
    if metadata.consumer() == "first" && told.echo {
        let payload = serde_json::to_vec(&Told { does: Does::Succeed, echo: false })?;
        let id = MessageId::new(format!("{}-echo", metadata.id))?;
        let mut echo = Draft::new(ECHOED.event_type, payload).id(id);
        if let Some(key) = &metadata.key {
            echo = echo.key(key);
        }
        ctx.publish(echo)?;
    }
    let effect = Effect {
        message_id: metadata.id.to_string(),
        consumer: metadata.consumer().to_owned(),
        key: metadata.key.clone(),
        worker: String::new(),
    };
    DB::insert_effect(ctx, &effect).await?;
    if around.calls.fetch_sub(1, Ordering::Relaxed) == 1 {
        around.hangs.notify_one();
        std::future::pending::<()>().await;
    }
    let failed = metadata.attempt() - 1;
    match told.does {
        Does::Fail(times) if failed < u32::from(times) => return Err("not yet".into()),
        Does::Panic if failed == 0 => panic!("{PANIC}"),
        Does::End if failed == 0 => DB::execute(ctx, "commit").await?,
        Does::FailOn if !around.mended => return Err("not before it is mended".into()),
        Does::GiveUp if !around.mended => return Err(HandlerError::terminal("not before it is mended")),
        _ => {}
    }
    Ok(())
}

pub(crate) struct System<DB: Database> {
    outbox: TestOutbox<DB>,
    mended: std::cell::Cell<bool>,
    from: std::cell::Cell<StartFrom>,
}

impl<DB: Database> System<DB> {
    pub(crate) async fn new(server: Option<&str>) -> Self {
        let outbox = TestOutbox::create(server, Config::default()).await.expect("a database can be made");
        let mut conn = outbox.pool().acquire().await.expect("the pool has a connection");
        <DB as outbox_tests::TestBackend>::create_ledger(&mut conn).await.expect("the ledger can be made");
        Self { outbox, mended: false.into(), from: StartFrom::Unrouted.into() }
    }

    /// Takes a step on both sides. An error says where they differ.
    pub(crate) async fn take(&self, step: &Step, reference: &mut Reference) -> Result<(), String> {
        reference.take(step);
        match step {
            Step::Publish(orders) => self.publish(orders, reference, true).await,
            Step::TakeBack(orders) => self.publish(orders, reference, false).await,
            Step::Wait => self.outbox.clock().advance(HOUR).await.expect("the clock moves"),
            Step::Mend => self.mended.set(true),
            Step::Prune => {
                let at_once = Some(Duration::from_micros(1));
                let prune = Prune::older_than(Retention { delivered: at_once, ..Retention::FOREVER });
                self.admin().prune(&prune).await.expect("pruned");
            }
            Step::Requeue => drop(self.admin().requeue(&Dead::all()).await.expect("requeued")),
            Step::RequeueOne(which) => self.change_one(*which, true, reference).await,
            Step::Discard(which) => self.change_one(*which, false, reference).await,
            Step::Pause(number) | Step::Resume(number) => {
                let (consumer, admin) = (CONSUMERS[usize::from(*number)], self.admin());
                let paused = match step {
                    Step::Pause(_) => admin.pause(consumer).await,
                    _ => admin.resume(consumer).await,
                };
                // Nobody has run yet.
                assert!(paused.is_ok() || reference.is_empty(), "{paused:?}");
            }
            Step::Die(calls) => {
                self.die(*calls, reference).await;
                self.run(reference, false).await?;
            }
            Step::Run => self.run(reference, true).await?,
            Step::Join(from) => {
                if !reference.has_third() {
                    self.from.set(*from);
                }
                reference.join(from);
                self.run(reference, true).await?;
            }
        }
        self.compare(reference).await
    }

    fn admin(&self) -> Admin<DB> {
        self.outbox.admin()
    }

    async fn publish(&self, orders: &[Order], reference: &mut Reference, commits: bool) {
        let tx = self.outbox.begin().await.expect("begun");
        let ids = reference.ids(orders.len());
        for (id, order) in ids.iter().zip(orders) {
            let payload = serde_json::to_vec(&Told { does: order.does, echo: order.echo }).expect("JSON");
            let mut draft = Draft::new(PLACED.event_type, payload);
            draft = draft.id(MessageId::new(id.as_str()).expect("a valid id"));
            if let Some(key) = order.key {
                draft = draft.key(format!("key-{key}"));
            }
            if order.delayed {
                draft = draft.deliver_after(HOUR);
            }
            tx.publish(draft).expect("accepted");
        }
        if !commits {
            return tx.rollback().await.expect("rolled back");
        }
        tx.commit().await.expect("committed");
        for (id, order) in ids.into_iter().zip(orders) {
            reference.publish(id, order.clone());
        }
    }

    async fn change_one(&self, which: u8, requeue: bool, reference: &mut Reference) {
        let dead = reference.dead();
        let dead_count = dead.len();
        let chosen = dead.into_iter().nth(usize::from(which) % dead_count.max(1));
        let Some((number, id)) = chosen else { return };
        let message = MessageId::new(id.as_str()).expect("a valid id");
        let which = Dead::all().consumer(CONSUMERS[number]).message(&message);
        let changed =
            if requeue { self.admin().requeue(&which).await } else { self.admin().discard(&which).await };
        assert_eq!(changed.expect("changed").messages.len(), 1, "{id} is dead");
        reference.change_one(number, &id, requeue);
    }

    fn consumers(&self, around: Arc<Around>, third: bool) -> ConsumersBuilder<DB> {
        let consumers = self.outbox.consumers().handler::<First>().handler::<Second>();
        let mut consumers = if third { consumers.handler::<Third>() } else { consumers };
        for consumer in &CONSUMERS[..if third { 3 } else { 2 }] {
            let from = self.from.get();
            consumers = consumers.options(consumer, |options| {
                options.retry = Retry { max_attempts: u32::from(ATTEMPTS), ..Retry::every(HOUR) };
                if *consumer == "second" {
                    options.on_dead = OnDead::Skip;
                } else if *consumer == "third" {
                    options.start_from = from;
                }
            });
        }
        consumers.state(around)
    }

    async fn run(&self, reference: &mut Reference, counted: bool) -> Result<(), String> {
        let around = Arc::new(Around { mended: self.mended.get(), ..Around::default() });
        let ran = self.consumers(around, reference.has_third()).drain().await;
        let expected = reference.run();
        let Report { handled, retried, dead, remaining, .. } = ran.map_err(|error| format!("{error}"))?;
        let found = Counts { handled, retried, dead, remaining };
        if counted { same("what the run did", &found, &expected) } else { Ok(()) }
    }

    /// Runs, and is gone in the middle of so manieth call.
    async fn die(&self, calls: u8, reference: &Reference) {
        let around =
            Around { mended: self.mended.get(), calls: i64::from(calls).into(), ..Around::default() };
        let around = Arc::new(around);
        let run = self.consumers(around.clone(), reference.has_third()).drain();
        tokio::select! {
            _ = run => {}
            () = around.hangs.notified() => {}
        }
        // It said no good-bye, and is not found dead later: that would count an attempt.
        let mut conn = self.outbox.pool().acquire().await.expect("the pool has a connection");
        <DB as outbox_tests::TestBackend>::execute(&mut conn, "delete from outbox_worker")
            .await
            .expect("removed");
    }

    async fn compare(&self, reference: &Reference) -> Result<(), String> {
        let mut conn = self.outbox.pool().acquire().await.expect("the pool has a connection");
        let effects = <DB as outbox_tests::TestBackend>::effects(&mut conn).await.expect("read");
        let mut done: BTreeMap<(usize, Line), Vec<String>> = BTreeMap::new();
        for effect in effects {
            let consumer = CONSUMERS.iter().position(|name| *name == effect.consumer).expect("one of them");
            let line = reference.line(&effect.message_id).ok_or("an effect of what was never published")?;
            done.entry((consumer, line)).or_default().push(effect.message_id);
        }
        let id = if <DB as sqlx::Database>::NAME == "MySQL" { "cast(id as char)" } else { "id" };
        let sql = format!("select {id} from outbox_message");
        let stored = <DB as outbox_tests::TestBackend>::texts(&mut conn, &sql).await.expect("read");
        same("what is stored", &stored.into_iter().collect(), &reference.stored())?;
        same("what was handled", &done, &reference.done())?;
        let dead = self.admin().dead(&Dead::all()).await.expect("read").into_iter().map(|letter| {
            let consumer = CONSUMERS.iter().position(|name| *name == letter.consumer).expect("one of them");
            (consumer, letter.message_id.unwrap_or_default())
        });
        same("what is dead", &dead.collect(), &reference.dead())
    }
}

fn same<T: Debug + PartialEq>(what: &str, found: &T, expected: &T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what}\n   found {found:?}\nexpected {expected:?}")) }
}
