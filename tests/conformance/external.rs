//! Calls outside of transactions: what is called, how often, in which order, and what becomes of it.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::__private::{FromContext as _, HandlerReturn as _, HandlerVTable, take_event};
use outbox::{
    BatchOutcome, ConsumersBuilder, Context, Draft, Effect, Envelope, Handler, HandlerError, HandlerOptions,
    IdempotencyKey, Metadata, OnDead, Outbox, Report, Retry, Site, State, TypeSet,
};
use outbox_tests::{TestBackend, TestDatabase, handler};
use tokio::sync::Barrier;

use crate::common::*;

on_each_database!(
    what_is_published_is_called_once_and_marked,
    nothing_is_held_during_a_call,
    keys_are_called_at_once_and_each_in_its_order,
    no_more_calls_are_made_at_once_than_allowed,
    without_an_order_a_key_is_called_at_once,
    a_failed_call_holds_up_its_key_alone,
    what_a_call_comes_to_is_what_it_says,
    attempts_are_counted_before_their_call,
    a_dead_message_blocks_its_key_or_is_passed_over,
    a_batch_is_one_call,
    a_batch_that_fails_is_called_one_by_one,
    a_batch_names_those_that_failed,
    a_batch_has_no_key_of_its_own,
    the_key_of_a_message_is_the_same_at_every_attempt,
    a_paused_consumer_is_not_called,
    a_handled_message_is_not_called_again,
    handlers_of_both_kinds_are_listed_and_kept_apart,
);

handler!(Inside, consumer "calls", types [SHIPPED], run scripted);
handler!(Nowhere, consumer "calls", types [SHIPPED], run scripted, effect None);

/// Leases that were not given back, and claims that were neither finished nor ended.
pub(crate) const HELD: &str = "select (select count(*) from outbox_lane where leased_by is not null)
                                    + (select count(*) from outbox_inbox where claimed_by is not null)";

/// What was called, outside of every database.
#[derive(Debug, Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<(String, u32)>>>);

impl Log {
    pub(crate) fn note(&self, metadata: &Metadata) {
        let call = (metadata.id.to_string(), metadata.attempt());
        self.0.lock().expect("no panic under the lock").push(call);
    }

    /// The messages in the order of their calls.
    pub(crate) fn ids(&self) -> Vec<String> {
        let calls = self.0.lock().expect("no panic under the lock");
        calls.iter().map(|(id, _)| id.clone()).collect()
    }

    /// The attempts of a message, in the order of its calls.
    pub(crate) fn of(&self, id: &str) -> Vec<u32> {
        let calls = self.0.lock().expect("no panic under the lock");
        calls.iter().filter(|(called, _)| called == id).map(|(_, attempt)| *attempt).collect()
    }
}

/// Notes each call, and then does this.
pub(crate) fn calling<DB, F, Fut>(log: &Log, then: F) -> Script<DB>
where
    DB: TestBackend,
    F: Fn(Metadata) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome> + Send + 'static,
{
    let log = log.clone();
    Script::new(move |ctx: &mut Context<DB>| {
        let metadata = ctx.metadata().clone();
        log.note(&metadata);
        Box::pin(then(metadata))
    })
}

/// The consumer `calls` with this script, not yet built.
pub(crate) fn calls<DB: TestBackend>(outbox: &Outbox<DB>, script: &Script<DB>) -> ConsumersBuilder<DB> {
    outbox.consumers().handler::<Caller>().state(script.clone()).config(quick())
}

/// Calls what is there; what fails is not due again before [`due_now`] says so.
pub(crate) async fn call_all<DB: TestBackend>(outbox: &Outbox<DB>, script: &Script<DB>) -> Report {
    run(calls(outbox, script).config(patient())).await
}

async fn run<DB: TestBackend>(consumers: ConsumersBuilder<DB>) -> Report {
    consumers.build().expect("complete").run_until_idle().await.expect("it ran")
}

/// Makes the consumer `calls` known, with this many lanes for what is published from now on.
pub(crate) async fn with_lanes<DB: TestBackend>(database: &TestDatabase<DB>, lanes: i16) -> Outbox<DB> {
    let outbox = database.outbox();
    assert_eq!(call_all(&outbox, &Script::record()).await.handled, 0);
    database.execute(&format!("update outbox_consumer set lanes = {lanes}")).await;
    outbox
}

/// A message whose payload is not what its type says.
fn broken(id: &str, key: &str) -> Draft {
    Draft::new("order.placed", "{}").aggregate_id(key).id(self::id(id))
}

async fn publish_in_keys<DB: TestBackend>(outbox: &Outbox<DB>, keys: &[&str], each: usize) {
    for number in 0..each {
        for key in keys {
            publish(outbox, placed_as(&format!("{key}{number}"), key)).await;
        }
    }
}

async fn what_is_published_is_called_once_and_marked<DB: TestBackend>(database: TestDatabase<DB>) {
    let (outbox, log) = (with_lanes(&database, 64).await, Log::default());
    publish_in_keys(&outbox, &["a", "b", "c", "d", "e"], 8).await;
    let script = calling(&log, async |_| Ok(()));
    let report = call_all(&outbox, &script).await;
    assert_eq!((report.handled, report.remaining), (40, 0));
    let mut ids = log.ids();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!((ids.len(), log.ids().len()), (40, 40));
    assert_eq!((database.count("outbox_inbox").await, database.number(HELD).await), (40, 0));
    assert_eq!(call_all(&outbox, &script).await.handled, 0);
}

/// Neither a transaction nor a lock: another connection writes the very rows that stand for the call.
async fn nothing_is_held_during_a_call<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = with_lanes(&database, 64).await;
    publish_in_keys(&outbox, &["a", "b", "c"], 2).await;
    let pool = database.another_pool(3).await;
    let seen = Arc::new(AtomicUsize::new(0));
    let counted = seen.clone();
    let script = calling(&Log::default(), move |metadata| {
        let (pool, seen) = (pool.clone(), counted.clone());
        async move {
            let mut conn = pool.acquire().await?;
            let mine = format!("claimed_by is not null and message_id = '{}'", metadata.id);
            DB::execute(&mut conn, &format!("update outbox_inbox set attempts = attempts where {mine}"))
                .await?;
            DB::execute(&mut conn, "update outbox_lane set leased_until = leased_until").await?;
            let mark = format!("select count(*) from outbox_inbox where {mine}");
            assert_eq!(DB::number(&mut conn, &mark).await?, 1);
            let leased = "select count(*) from outbox_lane where leased_by is not null";
            assert!(DB::number(&mut conn, leased).await? > 0);
            seen.fetch_add(1, Ordering::SeqCst);
            Ok(())
        }
    });
    assert_eq!(call_all(&outbox, &script).await.handled, 6);
    assert_eq!((seen.load(Ordering::SeqCst), database.number(HELD).await), (6, 0));
}

/// In one lane, so under one lease: the first calls of three keys wait for each other, and no key is ever called twice at once.
async fn keys_are_called_at_once_and_each_in_its_order<DB: TestBackend>(database: TestDatabase<DB>) {
    let (outbox, log) = (with_lanes(&database, 1).await, Log::default());
    publish_in_keys(&outbox, &["a", "b", "c"], 5).await;
    let (together, busy) = (Arc::new(Barrier::new(3)), Arc::new(Mutex::new(HashMap::new())));
    let script = calling(&log, move |metadata: Metadata| {
        let (together, busy) = (together.clone(), busy.clone());
        async move {
            let key = metadata.key.clone().unwrap_or_default();
            let before = busy.lock().expect("no panic").insert(key.clone(), metadata.id.clone());
            assert_eq!(before, None, "its key is being called");
            if metadata.id.as_str().ends_with('0') {
                together.wait().await;
            }
            tokio::task::yield_now().await;
            busy.lock().expect("no panic").remove(&key);
            Ok(())
        }
    });
    let report = call_all(&outbox, &script).await;
    assert_eq!((report.handled, report.retried), (15, 0));
    for key in ["a", "b", "c"] {
        let of_key: Vec<_> = log.ids().into_iter().filter(|id| id.starts_with(key)).collect();
        let expected: Vec<_> = (0..5).map(|number| format!("{key}{number}")).collect();
        assert_eq!(of_key, expected);
    }
}

/// Pairs wait for each other, so two are called at once; and never a third, over all lanes and executors.
async fn no_more_calls_are_made_at_once_than_allowed<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = with_lanes(&database, 64).await;
    publish_in_keys(&outbox, &["a", "b", "c", "d", "e", "f", "g", "h"], 1).await;
    let (pair, busy, most) = (Arc::new(Barrier::new(2)), Arc::new(AtomicUsize::new(0)), Arc::default());
    let seen: Arc<AtomicUsize> = Arc::clone(&most);
    let script = calling(&Log::default(), move |_| {
        let (pair, busy, most) = (pair.clone(), busy.clone(), seen.clone());
        async move {
            most.fetch_max(busy.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            pair.wait().await;
            busy.fetch_sub(1, Ordering::SeqCst);
            Ok(())
        }
    });
    let consumers = calls(&outbox, &script).options("calls", |options| options.concurrency = 2);
    let running = Running::start(consumers);
    settled(&database).await;
    assert_eq!(running.stop().await.handled, 8);
    assert_eq!(most.load(Ordering::SeqCst), 2);
}

async fn without_an_order_a_key_is_called_at_once<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = with_lanes(&database, 1).await;
    publish_in_keys(&outbox, &["a"], 3).await;
    let together = Arc::new(Barrier::new(3));
    let script = calling(&Log::default(), move |_| {
        let together = together.clone();
        async move {
            together.wait().await;
            Ok(())
        }
    });
    let consumers = calls(&outbox, &script).options("calls", |options| options.ordered = false);
    assert_eq!(run(consumers).await.handled, 3);
}

async fn a_failed_call_holds_up_its_key_alone<DB: TestBackend>(database: TestDatabase<DB>) {
    let (outbox, log) = (with_lanes(&database, 1).await, Log::default());
    publish_in_keys(&outbox, &["a", "b"], 3).await;
    let script = calling(&log, async |metadata: Metadata| match metadata.attempt() {
        1 if metadata.id == id("a0") => Err("not yet".into()),
        _ => Ok(()),
    });
    let report = call_all(&outbox, &script).await;
    assert_eq!((report.handled, report.retried, report.remaining), (3, 1, 3));
    assert_eq!(database.number(HELD).await, 0);
    // What came in the meantime goes behind it too.
    publish(&outbox, placed_as("a3", "a")).await;
    assert_eq!(call_all(&outbox, &script).await.handled, 0);
    due_now(&database).await;
    let report = call_all(&outbox, &script).await;
    assert_eq!((report.handled, report.remaining), (4, 0));
    let of_a: Vec<_> = log.ids().into_iter().filter(|id| id.starts_with('a')).collect();
    assert_eq!(of_a, ["a0", "a0", "a1", "a2", "a3"]);
    assert_eq!(log.of("a0"), [1, 2]);
    let attempts = outbox.admin().attempts(&id("a0"), "calls").await.expect("readable");
    assert_eq!((attempts.len(), attempts[0].number), (1, 1));
}

/// Its state, its attempts, and the text of its error.
async fn what_a_call_comes_to_is_what_it_says<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = with_lanes(&database, 64).await;
    let cases = [
        ("fails", "0|1|not yet"),
        ("panics", "0|1|the handler panicked: as told"),
        (
            "hangs",
            "0|1|the handler did not finish within 300ms, was stopped, and what it called may have happened",
        ),
        ("snoozes", "4|0|"),
        ("is terminal", "2|1|never"),
        ("is gone", "2|1|"),
        ("is broken", "6|0|"),
    ];
    for (name, _) in cases {
        publish(&outbox, if name == "is broken" { broken(name, name) } else { placed_as(name, name) }).await;
    }
    let script = Script::<DB>::new(|ctx| {
        Box::pin(async move {
            let Placed { order, .. } = take_event(ctx)?;
            match &*order {
                "fails" => Err("not yet".into()),
                "panics" => panic!("as told"),
                "hangs" => std::future::pending().await,
                "snoozes" => Err(HandlerError::snooze(Duration::from_hours(1))),
                "is terminal" => Err(HandlerError::terminal("never")),
                _ => Err(HandlerError::http(410, None)),
            }
        })
    });
    let consumers = calls(&outbox, &script).config(patient());
    let consumers = consumers.options("calls", |options| options.timeout = Duration::from_millis(300));
    let report = run(consumers).await;
    assert_eq!((report.retried, report.snoozed, report.dead, report.handled), (3, 1, 3, 0));
    for (name, expected) in cases {
        let sql = format!(
            "select p.state || '|' || p.attempts || '|' || coalesce(p.last_error, '') from outbox_parked p
             join outbox_message m on m.seq = p.seq where m.id = '{name}'"
        );
        let found = database.texts(&sql).await.remove(0);
        assert!(found.starts_with(expected), "{name}: {found}");
    }
    assert_eq!(database.number(HELD).await, 0);
}

/// A message that kills its process has had its attempt: the claim that counts it is committed when the call begins.
async fn attempts_are_counted_before_their_call<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = with_lanes(&database, 64).await;
    publish(&outbox, placed_as("m", "m")).await;
    let pool = database.another_pool(1).await;
    let script = calling(&Log::default(), move |metadata: Metadata| {
        let pool = pool.clone();
        async move {
            let counted = "select attempts from outbox_inbox where message_id = 'm'";
            let sql =
                format!("select count(*) from ({counted}) mark where attempts = {}", metadata.attempt());
            assert_eq!(DB::number(&mut *pool.acquire().await?, &sql).await?, 1);
            if metadata.attempt() < 3 { Err("not yet".into()) } else { Ok(()) }
        }
    });
    for handled in [0, 0, 1] {
        assert_eq!(call_all(&outbox, &script).await.handled, handled);
        due_now(&database).await;
    }
}

async fn a_dead_message_blocks_its_key_or_is_passed_over<DB: TestBackend>(database: TestDatabase<DB>) {
    for (on_dead, handled, remaining) in [(OnDead::Block, 1, 3), (OnDead::Skip, 3, 1)] {
        let (outbox, log) = (with_lanes(&database, 1).await, Log::default());
        let (dead, free) = (format!("a {on_dead:?}"), format!("b {on_dead:?}"));
        for (name, key) in [("dead", &dead), ("behind", &dead), ("last", &dead), ("free", &free)] {
            publish(&outbox, placed_as(&format!("{name} {on_dead:?}"), key)).await;
        }
        let script =
            calling(
                &log,
                async |metadata: Metadata| {
                    if metadata.id.as_str().starts_with("dead") { Err("no".into()) } else { Ok(()) }
                },
            );
        let consumers = calls(&outbox, &script).config(outbox::ConsumerConfig { retry: None, ..quick() });
        let consumers = consumers.options("calls", |options| {
            options.retry = Retry { max_attempts: 1, ..Retry::DEFAULT };
            options.on_dead = on_dead;
        });
        let report = run(consumers).await;
        assert_eq!((report.dead, report.handled, report.remaining), (1, handled, remaining), "{on_dead:?}");
        database.execute("delete from outbox_parked").await;
    }
}

/// Takes batches, and does with them what a test says; notes their sizes.
#[derive(Debug)]
struct Batches;

type Batch = Vec<Envelope<Placed>>;
type Judge = Arc<dyn Fn(&Batch) -> Result<BatchOutcome, HandlerError> + Send + Sync>;

/// What a batch comes to, and the messages of each.
#[derive(Clone)]
struct Judged(Judge, Arc<Mutex<Vec<Vec<String>>>>);

impl fmt::Debug for Judged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Judged")
    }
}

impl Judged {
    fn new(judge: impl Fn(&Batch) -> Result<BatchOutcome, HandlerError> + Send + Sync + 'static) -> Self {
        Self(Arc::new(judge), Arc::default())
    }

    fn batches(&self) -> Vec<Vec<String>> {
        self.1.lock().expect("no panic under the lock").clone()
    }
}

impl<DB: TestBackend> Handler<DB> for Batches {
    const VTABLE: HandlerVTable<DB> = HandlerVTable {
        name: "batches",
        consumer: "calls",
        aliases: &[],
        types: TypeSet::One(&PLACED),
        options: HandlerOptions { batch: 50, ..HandlerOptions::DEFAULT },
        site: Site::new(module_path!(), file!(), line!()),
        check: |_| Ok(()),
        effect: Effect::External,
        batched: true,
        call: |ctx| {
            Box::pin(async {
                let batch = take_event::<Batch, DB>(ctx)?;
                let judged: State<Judged> = State::from_context(ctx)?;
                let ids = batch.iter().map(|envelope| envelope.metadata.id.to_string());
                judged.1.lock().expect("no panic under the lock").push(ids.collect());
                (judged.0)(&batch).into_result()
            })
        },
    };
}

async fn call_batches<DB: TestBackend>(outbox: &Outbox<DB>, judged: &Judged) -> Report {
    run(outbox.consumers().handler::<Batches>().state(judged.clone()).config(patient())).await
}

async fn a_batch_is_one_call<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = with_lanes(&database, 1).await;
    publish_in_keys(&outbox, &["a", "b", "c"], 10).await;
    let judged = Judged::new(|_| Ok(BatchOutcome::new()));
    assert_eq!(call_batches(&outbox, &judged).await.handled, 30);
    let batches = judged.batches();
    assert_eq!((batches.len(), batches[0].len()), (1, 30));
    let of_a: Vec<_> = batches[0].iter().filter(|id| id.starts_with('a')).cloned().collect();
    assert_eq!(of_a, (0..10).map(|number| format!("a{number}")).collect::<Vec<_>>());
    assert_eq!((database.count("outbox_inbox").await, database.number(HELD).await), (30, 0));
}

/// Under the same claims: that the batch has failed is no attempt of its messages.
async fn a_batch_that_fails_is_called_one_by_one<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = with_lanes(&database, 1).await;
    publish_in_keys(&outbox, &["a", "b"], 3).await;
    let judged = Judged::new(|batch| match &batch[..] {
        [one] if one.metadata.id == id("a1") => Err("the culprit".into()),
        [_] => Ok(BatchOutcome::new()),
        _ => Err("one of them".into()),
    });
    let report = call_batches(&outbox, &judged).await;
    assert_eq!((report.handled, report.retried, report.remaining), (4, 1, 2));
    assert_eq!(judged.batches()[0].len(), 6);
    // `a2` waits behind `a1` and is not called.
    let mut alone: Vec<_> = judged.batches()[1..].concat();
    alone.sort_unstable();
    assert_eq!(alone, ["a0", "a1", "b0", "b1", "b2"]);
    let attempts = "select count(*) from outbox_parked where attempts = 1";
    assert_eq!((database.number(attempts).await, database.number(HELD).await), (1, 0));
    due_now(&database).await;
    let judged = Judged::new(|batch| {
        assert!(
            batch.iter().all(|one| one.metadata.attempt() == if one.metadata.id == id("a1") { 2 } else { 1 })
        );
        Ok(BatchOutcome::new())
    });
    assert_eq!(call_batches(&outbox, &judged).await.handled, 2);
}

async fn a_batch_names_those_that_failed<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = with_lanes(&database, 1).await;
    publish_in_keys(&outbox, &["a", "b", "c"], 1).await;
    publish(&outbox, broken("broken", "d")).await;
    let judged = Judged::new(|_| {
        let mut outcome = BatchOutcome::new();
        outcome.fail(&id("b0"), "not this one");
        Ok(outcome)
    });
    let report = call_batches(&outbox, &judged).await;
    assert_eq!((report.handled, report.retried, report.dead), (2, 1, 1));
    assert_eq!(judged.batches(), [["a0", "b0", "c0"]]);
}

async fn a_batch_has_no_key_of_its_own<DB: TestBackend>(database: TestDatabase<DB>) {
    #[derive(Debug)]
    struct Keyed;
    impl<DB: TestBackend> Handler<DB> for Keyed {
        const VTABLE: HandlerVTable<DB> = HandlerVTable {
            call: |ctx| {
                Box::pin(async move { IdempotencyKey::from_context(ctx).map(|_| BatchOutcome::new()) })
            },
            ..<Batches as Handler<DB>>::VTABLE
        };
    }
    let outbox = with_lanes(&database, 1).await;
    publish_in_keys(&outbox, &["a"], 1).await;
    let report = run(outbox.consumers().handler::<Keyed>().config(patient())).await;
    assert_eq!((report.handled, report.retried), (0, 1));
    let error = database.texts("select last_error from outbox_parked").await.remove(0);
    assert!(error.contains("each envelope"), "{error}");
}

async fn the_key_of_a_message_is_the_same_at_every_attempt<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = with_lanes(&database, 64).await;
    publish(&outbox, placed_as("m", "m")).await;
    let keys = Arc::new(Mutex::new(Vec::new()));
    let taken = keys.clone();
    let script = Script::<DB>::new(move |ctx| {
        let taken = taken.clone();
        Box::pin(async move {
            let key = IdempotencyKey::from_context(ctx)?;
            assert_eq!(key, ctx.metadata().idempotency_key());
            taken.lock().expect("no panic under the lock").push(key.to_string());
            if ctx.metadata().attempt() == 1 { Err("not yet".into()) } else { Ok(()) }
        })
    });
    call_all(&outbox, &script).await;
    due_now(&database).await;
    assert_eq!(call_all(&outbox, &script).await.handled, 1);
    let expected = IdempotencyKey::new("calls", &id("m"));
    assert_eq!(*keys.lock().expect("no panic under the lock"), [expected.as_str(), expected.as_str()]);
}

async fn a_paused_consumer_is_not_called<DB: TestBackend>(database: TestDatabase<DB>) {
    let (outbox, log) = (with_lanes(&database, 64).await, Log::default());
    outbox.admin().pause("calls").await.expect("it is known");
    publish(&outbox, placed_as("m", "m")).await;
    let script = calling(&log, async |_| Ok(()));
    assert_eq!(call_all(&outbox, &script).await.handled, 0);
    outbox.admin().resume("calls").await.expect("it is known");
    assert_eq!(call_all(&outbox, &script).await.handled, 1);
    assert_eq!(log.of("m"), [1]);
}

async fn a_handled_message_is_not_called_again<DB: TestBackend>(database: TestDatabase<DB>) {
    let (outbox, log) = (with_lanes(&database, 64).await, Log::default());
    let mark = "insert into outbox_inbox (consumer, message_id) select id, 'm' from outbox_consumer";
    database.execute(mark).await;
    publish(&outbox, placed_as("m", "m")).await;
    let report = call_all(&outbox, &calling(&log, async |_| Ok(()))).await;
    assert_eq!((report.duplicates, report.handled, report.remaining), (1, 0, 0));
    assert!(log.ids().is_empty());
}

async fn handlers_of_both_kinds_are_listed_and_kept_apart<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let consumers = || outbox.consumers().handler::<Caller>();
    let error = consumers().handler::<Inside>().build().expect_err("they cannot run together");
    assert_eq!(error.kind(), outbox::ErrorKind::Registry);
    let text = error.to_string();
    assert!(text.contains("`Caller` (") && text.contains("`Inside` (") && text.contains("`calls`"), "{text}");
    let consumers = consumers().handler::<Nowhere>().handler::<Ledger>().build().expect("these can");
    let effects: Vec<_> = consumers.handlers().iter().map(|handler| (handler.name, handler.effect)).collect();
    let expected = [("Caller", Effect::External), ("Nowhere", Effect::None), ("Ledger", Effect::Database)];
    assert_eq!(effects, expected);
}
