//! Messages that share a transaction: none of them is hurt by another, and each counts by itself.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outbox::__private::{HandlerReturn as _, HandlerVTable, take_event};
use outbox::{
    BatchOutcome, ConsumerConfig, Context, Draft, Envelope, Handler, HandlerError, HandlerOptions, MessageId,
    Site, TypeSet,
};
use outbox_tests::{Effect, TestBackend, TestDatabase};

use crate::common::*;

on_each_database!(
    a_group_is_one_transaction_and_a_group_of_one_is_not,
    a_failure_costs_its_neighbours_nothing,
    a_handler_that_failed_runs_once_for_each_attempt,
    what_a_failed_handler_published_goes_with_it,
    nothing_passes_what_was_left_for_later,
    a_slow_handler_does_not_keep_others_uncommitted,
    a_batch_is_one_call,
    a_batch_names_what_has_failed,
    a_batch_that_fails_runs_one_by_one,
    a_message_that_cannot_be_read_does_not_spoil_its_batch,
    nothing_in_a_batch_passes_a_failed_one_of_its_key,
    a_batch_is_bounded_by_bytes,
);

/// Which message saw how many effects of others committed.
type Seen = Arc<Mutex<BTreeMap<String, i64>>>;

async fn a_group_is_one_transaction_and_a_group_of_one_is_not<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    for (group, expected) in [(100, [0, 0, 0]), (1, [3, 4, 5])] {
        for n in 0..3 {
            publish(&outbox, placed_as(&format!("{group}-{n}"), "7")).await;
        }
        let seen = Seen::default();
        let script = {
            let (pool, seen) = (database.pool().clone(), seen.clone());
            Script::<DB>::new(move |ctx| {
                let (pool, seen) = (pool.clone(), seen.clone());
                Box::pin(async move {
                    record(ctx).await?;
                    let mut other = pool.acquire().await?;
                    let committed = DB::number(&mut other, "select count(*) from effects").await?;
                    let id = ctx.metadata().id.to_string();
                    seen.lock().expect("no panic under the lock").insert(id, committed);
                    Ok(())
                })
            })
        };
        let config = ConsumerConfig { group_window: LONG, ..quick() };
        let consumers =
            ledger(&outbox, &script).config(config).options("ledger", |options| options.group = group);
        let report = consumers.build().expect("complete").run_until_idle().await.expect("it ran");
        assert_eq!(report.handled, 3);
        let seen: Vec<_> = seen.lock().expect("no panic under the lock").values().copied().collect();
        assert_eq!(seen, expected, "group = {group}");
    }
}

/// How often each message ran.
type Runs = Arc<Mutex<BTreeMap<String, usize>>>;

/// Counts the runs, leaves an effect, and fails where `fails` says so by id and attempt.
fn counting<DB: TestBackend>(runs: &Runs, fails: fn(&str, u32) -> bool) -> Script<DB> {
    let runs = runs.clone();
    Script::new(move |ctx: &mut Context<DB>| {
        let runs = runs.clone();
        Box::pin(async move {
            let (id, attempt) = (ctx.metadata().id.to_string(), ctx.metadata().attempt());
            *runs.lock().expect("no panic under the lock").entry(id.clone()).or_default() += 1;
            record(ctx).await?;
            if fails(&id, attempt) { Err("as planned".into()) } else { Ok(()) }
        })
    })
}

async fn a_failure_costs_its_neighbours_nothing<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    for n in 0..12 {
        publish(&outbox, placed_as(&format!("{n:02}"), &(n % 6).to_string())).await;
    }
    let runs = Runs::default();
    let report = drain(&outbox, &counting::<DB>(&runs, |id, _| id == "03" || id == "10")).await;
    // 09 is of the key of 03, and 10 of that of 04.
    assert_eq!((report.handled, report.retried, report.remaining), (9, 2, 3));
    assert_eq!(database.count("effects").await, 9);
    assert_eq!(database.count("outbox_inbox").await, 9);
    assert_eq!(database.count("outbox_attempt").await, 2);
    let attempts = database.texts("select attempts || '|' || state from outbox_parked order by seq").await;
    assert_eq!(attempts, ["1|0", "0|1", "1|0"]);
    due_now(&database).await;
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 3);
    let handled = handled(&database).await;
    let of_three: Vec<_> = handled.iter().filter(|id| *id == "03" || *id == "09").collect();
    assert_eq!(of_three, ["03", "09"]);
}

async fn a_handler_that_failed_runs_once_for_each_attempt<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    for n in 0..8 {
        publish(&outbox, placed_as(&n.to_string(), &n.to_string())).await;
    }
    let runs = Runs::default();
    let report = drain(&outbox, &counting::<DB>(&runs, |id, _| id == "5" || id == "6")).await;
    assert_eq!((report.handled, report.retried), (6, 2));
    let runs = runs.lock().expect("no panic under the lock");
    assert_eq!((runs["5"], runs["6"]), (1, 1), "{runs:?}");
}

async fn what_a_failed_handler_published_goes_with_it<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    for n in 0..6 {
        publish(&outbox, placed_as(&n.to_string(), &n.to_string())).await;
    }
    let script = Script::<DB>::new(|ctx| {
        Box::pin(async move {
            let id = ctx.metadata().id.to_string();
            record(ctx).await?;
            ctx.publish(Draft::new("echo", "{}").id(MessageId::new(format!("echo of {id}"))?))?;
            if id == "4" { Err("as planned".into()) } else { Ok(()) }
        })
    });
    assert_eq!(drain(&outbox, &script).await.handled, 5);
    let echoes = database.texts("select id from outbox_message where event_type = 'echo' order by id").await;
    assert_eq!(echoes, ["0", "1", "2", "3", "5"].map(|id| format!("echo of {id}")));
}

/// Retries take half of a group's places, and what waits behind one that was left out must be left out too.
async fn nothing_passes_what_was_left_for_later<DB: TestBackend>(database: TestDatabase<DB>) {
    const KEYS: usize = 12;
    let outbox = database.outbox();
    register(&outbox).await;
    for n in 0..KEYS * 4 {
        publish(&outbox, placed_as(&format!("{n:02}"), &(n % KEYS).to_string())).await;
    }
    let fails = |_: &str, attempt| attempt == 1 || fastrand::u8(0..4) == 0;
    let runs = Runs::default();
    let config = ConsumerConfig { retry: Some(outbox::Retry::every(Duration::ZERO)), ..quick() };
    let consumers = ledger(&outbox, &counting::<DB>(&runs, fails)).config(config);
    let consumers = consumers.options("ledger", |options| options.group = 3);
    let running = Running::start(consumers);
    settled(&database).await;
    running.stop().await;
    let effects = database.effects().await;
    assert_eq!(effects.len(), KEYS * 4);
    for key in 0..KEYS {
        let of_key: Vec<_> = effects
            .iter()
            .map(|e| e.message_id.as_str())
            .filter(|id| id.parse::<usize>().is_ok_and(|n| n % KEYS == key))
            .collect();
        assert!(of_key.is_sorted(), "{of_key:?}");
    }
}

async fn a_slow_handler_does_not_keep_others_uncommitted<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    for n in 0..3 {
        publish(&outbox, placed_as(&n.to_string(), "7")).await;
    }
    let seen = Seen::default();
    let script = {
        let (pool, seen) = (database.pool().clone(), seen.clone());
        Script::<DB>::new(move |ctx| {
            let (pool, seen) = (pool.clone(), seen.clone());
            Box::pin(async move {
                let mut other = pool.acquire().await?;
                let committed = DB::number(&mut other, "select count(*) from effects").await?;
                drop(other);
                let id = ctx.metadata().id.to_string();
                seen.lock().expect("no panic under the lock").insert(id, committed);
                record(ctx).await?;
                tokio::time::sleep(Duration::from_millis(40)).await; // sleep-ok: longer than a group's window
                Ok(())
            })
        })
    };
    assert_eq!(drain(&outbox, &script).await.handled, 3);
    let seen: Vec<_> = seen.lock().expect("no panic under the lock").values().copied().collect();
    assert_eq!(seen, [0, 1, 2]);
}

/// Takes whole batches, and does with them what a test says.
#[derive(Debug)]
struct Batches;

type Batch = Vec<Envelope<Placed>>;

impl<DB: TestBackend> Handler<DB> for Batches {
    const VTABLE: HandlerVTable<DB> = HandlerVTable {
        name: "batches",
        consumer: "ledger",
        aliases: &[],
        types: TypeSet::One(&PLACED),
        options: HandlerOptions { batch: 50, ..HandlerOptions::DEFAULT },
        site: Site::new(module_path!(), file!(), line!()),
        check: |_| Ok(()),
        effect: outbox::Effect::Database,
        batched: true,
        call: |ctx| {
            Box::pin(async {
                let batch = take_event::<Batch, DB>(ctx)?;
                work(ctx, &batch).await.into_result()
            })
        },
    };
}

/// Leaves an effect that names the batch for each message, and fails those whose order says so.
async fn work<DB: TestBackend>(ctx: &mut Context<DB>, batch: &Batch) -> Result<BatchOutcome, HandlerError> {
    let mut outcome = BatchOutcome::new();
    let ids: Vec<_> = batch.iter().map(|envelope| envelope.metadata.id.to_string()).collect();
    for Envelope { event, metadata } in batch {
        if event.amount < 0.0 && metadata.attempt() == 1 {
            outcome.fail(&metadata.id, "refused");
            continue;
        }
        let effect = Effect {
            message_id: metadata.id.to_string(),
            consumer: metadata.consumer().to_owned(),
            key: metadata.key.clone(),
            worker: ids.join(" "),
        };
        DB::insert_effect(ctx, &effect).await?;
    }
    match batch.iter().find(|envelope| envelope.event.amount > 100.0) {
        Some(_) if batch.len() > 1 || batch[0].metadata.attempt() == 1 => Err("too much".into()),
        _ => Ok(outcome),
    }
}

fn worth(id: &str, order: &str, amount: f64) -> Draft {
    let payload = format!("{{\"order\":\"{order}\",\"amount\":{amount:?}}}");
    Draft::new("order.placed", payload).aggregate_id(order).id(self::id(id))
}

/// Publishes them in one transaction, handles what can be handled, and returns the effects with their batches.
async fn batches<DB: TestBackend>(database: &TestDatabase<DB>, drafts: Vec<Draft>) -> Vec<(String, String)> {
    batches_with(database, drafts, |_| ()).await
}

async fn batches_with<DB: TestBackend>(
    database: &TestDatabase<DB>,
    drafts: Vec<Draft>,
    change: fn(&mut HandlerOptions),
) -> Vec<(String, String)> {
    let outbox = database.outbox();
    register(&outbox).await;
    let tx = outbox.begin().await.expect("begun");
    for draft in drafts {
        tx.publish(draft).expect("accepted");
    }
    tx.commit().await.expect("committed");
    let config = ConsumerConfig { group_window: LONG, ..patient() };
    let consumers = outbox.consumers().handler::<Batches>().config(config).options("ledger", change);
    consumers.build().expect("complete").run_until_idle().await.expect("it ran");
    database.effects().await.into_iter().map(|effect| (effect.message_id, effect.worker)).collect()
}

fn pairs(of: &[(&str, &str)]) -> Vec<(String, String)> {
    of.iter().map(|(id, batch)| ((*id).to_owned(), (*batch).to_owned())).collect()
}

async fn a_batch_is_one_call<DB: TestBackend>(database: TestDatabase<DB>) {
    let drafts = (10..40).map(|n| worth(&n.to_string(), "7", 1.0)).collect();
    let effects = batches(&database, drafts).await;
    assert_eq!(effects.len(), 30);
    assert!(effects.iter().all(|(_, batch)| batch.split(' ').count() == 30), "{effects:?}");
    assert!(effects.is_sorted());
}

async fn a_batch_names_what_has_failed<DB: TestBackend>(database: TestDatabase<DB>) {
    let drafts =
        vec![worth("a", "7", 1.0), worth("b", "7", -1.0), worth("c", "7", -1.0), worth("d", "7", -1.0)];
    let effects = batches(&database, drafts).await;
    assert_eq!(effects, pairs(&[("a", "a b c d")]));
    let parked = database.texts("select attempts || '|' || state from outbox_parked order by seq").await;
    assert_eq!(parked, ["1|0", "1|0", "1|0"]);
    assert_eq!(database.count("outbox_attempt").await, 3);
    // Each has failed by itself, and they come back in their order.
    due_now(&database).await;
    let outbox = database.outbox();
    let consumers = outbox.consumers().handler::<Batches>().config(patient());
    let report = consumers.build().expect("complete").run_until_idle().await.expect("it ran");
    assert_eq!((report.handled, report.remaining), (3, 0));
    assert_eq!(handled(&database).await, ["a", "b", "c", "d"]);
}

async fn a_batch_that_fails_runs_one_by_one<DB: TestBackend>(database: TestDatabase<DB>) {
    let drafts =
        vec![worth("a", "1", 1.0), worth("b", "2", 101.0), worth("c", "3", 1.0), worth("d", "2", 1.0)];
    let mut effects = batches(&database, drafts).await;
    // Two keys may have two lanes, which have no order.
    effects.sort();
    assert_eq!(effects, pairs(&[("a", "a"), ("c", "c")]));
    let parked = database.texts("select attempts || '|' || state from outbox_parked order by seq").await;
    assert_eq!(parked, ["1|0", "0|1"]);
}

async fn a_message_that_cannot_be_read_does_not_spoil_its_batch<DB: TestBackend>(database: TestDatabase<DB>) {
    let broken = |id: &str| Draft::new("order.placed", "{").aggregate_id("7").id(self::id(id));
    let drafts = vec![broken("x"), worth("a", "7", 1.0), broken("y"), worth("b", "7", 1.0)];
    // All of one key, so that they are in one lane.
    let effects = batches_with(&database, drafts, |options| options.ordered = false).await;
    assert_eq!(effects, pairs(&[("a", "a b"), ("b", "a b")]));
    let parked = database.texts("select attempts || '|' || state from outbox_parked order by seq").await;
    assert_eq!(parked, ["0|6", "0|6"]);
}

async fn nothing_in_a_batch_passes_a_failed_one_of_its_key<DB: TestBackend>(database: TestDatabase<DB>) {
    let drafts = vec![worth("a", "7", -1.0), worth("b", "7", 1.0), worth("c", "8", 1.0)];
    let effects = batches(&database, drafts).await;
    // Taken back as a whole, and run one by one.
    assert_eq!(effects, pairs(&[("c", "c")]));
    let parked = database.texts("select attempts || '|' || state from outbox_parked order by seq").await;
    assert_eq!(parked, ["1|0", "0|1"]);
}

async fn a_batch_is_bounded_by_bytes<DB: TestBackend>(database: TestDatabase<DB>) {
    let large = "x".repeat(1_000_000);
    let payload = format!("{{\"order\":\"{large}\",\"amount\":1.0}}");
    let draft = |n: u32| Draft::new("order.placed", payload.clone()).aggregate_id("7").id(id(&n.to_string()));
    let effects = batches(&database, (10..30).map(draft).collect()).await;
    assert_eq!(effects.len(), 20);
    let largest = effects.iter().map(|(_, batch)| batch.split(' ').count()).max();
    assert_eq!(largest, Some(9), "8 MiB are reached with the ninth");
}
