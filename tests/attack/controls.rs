//! Each guard switched off: the same checks must find what it prevents.
//!
//! A check that cannot fail shows nothing. What happens by chance is tried until it has happened; only a bound far
//! above that makes it a failure.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use outbox::__private::{Controls, FromContext as _};
use outbox::{
    Config, ConsumerConfig, Context, Draft, ErrorKind, HandlerError, MessageId, Outbox, Report, State,
};
use outbox_tests::worker::{Chaos, PLACED, Third, misbehave};
use outbox_tests::{Effect, TestBackend, TestDatabase, handler};

use crate::check;
use crate::publish::{Load, Publishers};

/// How long something is tried that happens within a second or two.
const BOUND: Duration = Duration::from_mins(1);

fn with<DB: TestBackend>(database: &TestDatabase<DB>, controls: Controls) -> Outbox<DB> {
    database.outbox_with(Config { controls, ..Config::default() })
}

fn eager() -> ConsumerConfig {
    ConsumerConfig {
        poll_interval: Duration::from_millis(5),
        retry: Some(outbox::Retry::every(Duration::ZERO)),
        ..ConsumerConfig::default()
    }
}

/// Runs the well-behaved consumer until nothing is runnable.
async fn handle<DB: TestBackend>(outbox: &Outbox<DB>) -> outbox::Result<Report> {
    let consumers = outbox.consumers().handler::<Third>().state(Chaos::default()).config(eager());
    consumers.build()?.run_until_idle().await
}

/// What a run of publishers and consumers found.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Orders {
    numbered: usize,
    handled: i64,
}

/// Publishes a few keys from many transactions that commit late, and handles them at the same time, until both
/// orders are violated or the time is over.
async fn orders<DB: TestBackend>(database: &TestDatabase<DB>, controls: Controls, time: Duration) -> Orders {
    // Little backlog: what is committed must be handled while an earlier number is still to be committed.
    const LOAD: Load =
        Load { keys: 10, begins: &["begin"], late: Duration::from_millis(40), backlog: 20, poison: 0 };
    let outbox = with(database, controls);
    handle(&outbox).await.expect("nothing is in its way");
    let publishers = Arc::new(Publishers::new(outbox.clone(), LOAD));
    let publishing: Vec<_> = (0..6)
        .map(|_| {
            let publishers = publishers.clone();
            tokio::spawn(async move { publishers.publish().await })
        })
        .collect();
    let consumers = outbox.consumers().handler::<Third>().state(Chaos::default()).config(eager());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let running = consumers.build().expect("complete").run_until(async { drop(stopped.await) });
    let running = tokio::spawn(running);
    let (begun, mut found) = (Instant::now(), Orders::default());
    let mut look = tokio::time::interval(Duration::from_millis(50));
    while begun.elapsed() < time && (found.numbered == 0 || found.handled == 0) {
        look.tick().await;
        publishers.undone.store(check::undone(database).await, Ordering::Relaxed);
        let sent = publishers.sent.lock().expect("no publisher panics under the lock").clone();
        found.numbered = check::commit_order_violations(database, &sent).await;
        found.handled = check::order_violations(database).await;
    }
    publishers.stop.store(true, Ordering::Relaxed);
    for task in publishing {
        task.await.expect("no publisher panics");
    }
    stop.send(()).expect("the consumers still run");
    running.await.expect("no consumer panics").expect("the consumers ran");
    found
}

/// Two processes' worth of executors on a few messages of one key.
async fn race<DB: TestBackend>(database: &TestDatabase<DB>, outbox: &Outbox<DB>) -> Vec<ErrorKind> {
    publish(outbox, 12).await;
    let mut errors = Vec::new();
    while check::undone(database).await > 0 {
        let runs = (0..2).map(|_| {
            let outbox = outbox.clone();
            tokio::spawn(async move { handle(&outbox).await })
        });
        for run in runs.collect::<Vec<_>>() {
            errors.extend(run.await.expect("no handler panics").err().map(|error| error.kind()));
        }
    }
    errors
}

async fn publish<DB: TestBackend>(outbox: &Outbox<DB>, count: usize) {
    let tx = outbox.begin().await.expect("begun");
    for _ in 0..count {
        tx.publish(Draft::new(PLACED.event_type, "{}").aggregate_id("one")).expect("accepted");
    }
    tx.commit().await.expect("committed");
}

/// Handles a message, lets it be pruned, and lets it arrive again.
async fn effects_of_two_arrivals<DB: TestBackend>(controls: Controls) -> Option<i64> {
    let database = TestDatabase::<DB>::migrated().await?;
    let outbox = with(&database, controls);
    for _ in 0..2 {
        let tx = outbox.begin().await.expect("begun");
        let again = MessageId::new("received").expect("valid");
        tx.publish(Draft::new(PLACED.event_type, "{}").id(again)).expect("accepted");
        tx.commit().await.expect("committed");
        handle(&outbox).await.expect("nothing is in its way");
        assert_eq!(check::undone(&database).await, 0);
        database.execute("delete from outbox_message").await;
    }
    Some(database.count("effects").await)
}

async fn marks_recognise_a_second_arrival<DB: TestBackend>() {
    let Some(marked) = effects_of_two_arrivals::<DB>(Controls::ALL).await else { return };
    let unmarked = effects_of_two_arrivals::<DB>(Controls { inbox_marks: false, ..Controls::ALL }).await;
    assert_eq!((marked, unmarked), (1, Some(2)));
}

/// Ends the transaction at its first attempt, and writes once more.
async fn end<DB: TestBackend>(ctx: &mut Context<DB>) -> Result<(), HandlerError> {
    let metadata = ctx.metadata().clone();
    let effect = Effect {
        message_id: metadata.id.to_string(),
        consumer: metadata.consumer().to_owned(),
        key: None,
        worker: String::new(),
    };
    DB::insert_effect(ctx, &effect).await?;
    if metadata.attempt() == 1 {
        let ending: State<&'static str> = State::from_context(ctx)?;
        let refused = DB::execute(ctx, *ending).await.is_err();
        // MySQL refuses an ending and nothing more: what is written behind it is part of the transaction.
        if !refused || DB::NAME != "MySQL" {
            let _ = DB::insert_effect(ctx, &effect).await;
        }
    }
    Ok(())
}

handler!(Ends, consumer "ends", types [PLACED], run end);

async fn effects_of_an_ending<DB: TestBackend>(ending: &'static str, controls: Controls) -> Option<i64> {
    let database = TestDatabase::<DB>::migrated().await?;
    let outbox = with(&database, controls);
    publish(&outbox, 1).await;
    let begun = Instant::now();
    loop {
        let consumers = outbox.consumers().handler::<Ends>().state(ending).config(eager());
        let run = consumers.build().expect("complete").run_until_idle().await;
        if run.expect("the handler's failure is not the engine's").remaining == 0 {
            return Some(database.count("effects").await);
        }
        assert!(begun.elapsed() < BOUND, "a message that succeeds at its second attempt is done");
    }
}

async fn the_guard_takes_back_what_a_handler_commits<DB: TestBackend>() {
    for ending in ["commit", "rollback"] {
        let Some(guarded) = effects_of_an_ending::<DB>(ending, Controls::ALL).await else { return };
        let off = Controls { commit_guard: false, ..Controls::ALL };
        let unguarded = effects_of_an_ending::<DB>(ending, off).await.expect("the server was there");
        assert_eq!(guarded, 1, "{ending}");
        assert!(unguarded > 1, "{ending}: {unguarded} effects without the guard");
    }
}

mod sqlite {
    use sqlx::Sqlite;

    use super::*;

    #[tokio::test]
    async fn marks_recognise_a_second_arrival() {
        super::marks_recognise_a_second_arrival::<Sqlite>().await;
    }

    #[tokio::test]
    async fn the_guard_takes_back_what_a_handler_commits() {
        super::the_guard_takes_back_what_a_handler_commits::<Sqlite>().await;
    }

    /// Begins to write when its transaction is no longer young.
    async fn think<DB: TestBackend>(ctx: &mut Context<DB>) -> Result<(), HandlerError> {
        tokio::time::sleep(Duration::from_millis(5)).await; // sleep-ok: others must have time to write
        misbehave(ctx).await
    }

    handler!(Thinks, consumer "thinks", types [PLACED], run think);

    async fn handle_slowly(outbox: &Outbox<Sqlite>) -> outbox::Result<Report> {
        let consumers = outbox.consumers().handler::<Thinks>().state(Chaos::default()).config(eager());
        consumers.build()?.run_until_idle().await
    }

    /// Two consumers and two publishers, each with a pool of its own, until an error or until the time is over.
    async fn errors(controls: Controls, time: Duration) -> Vec<String> {
        let database = TestDatabase::<Sqlite>::migrated().await.expect("SQLite needs no server");
        let stop = Arc::new(AtomicBool::new(false));
        let mut tasks = Vec::new();
        for consumes in [true, true, false, false] {
            let pool = database.another_pool(2).await;
            let outbox = Outbox::with_config(pool, Config { controls, ..Config::default() });
            let stop = stop.clone();
            tasks.push(tokio::spawn(async move {
                let mut errors = Vec::new();
                while !stop.load(Ordering::Relaxed) {
                    if !consumes {
                        publish(&outbox, 3).await;
                        // A backlog that grows would take far longer than the test to be handled.
                        let mut look = tokio::time::interval(Duration::from_millis(10));
                        while !stop.load(Ordering::Relaxed) && backlog(&outbox).await > 50 {
                            look.tick().await;
                        }
                        continue;
                    }
                    let trouble = match handle_slowly(&outbox).await {
                        Ok(report) if report.retried == 0 => continue,
                        Ok(report) => format!("{} attempts of a handler that does not fail", report.retried),
                        Err(error) => format!("{:?}", error.kind()),
                    };
                    errors.push(trouble);
                    stop.store(true, Ordering::Relaxed);
                }
                errors
            }));
        }
        let begun = Instant::now();
        outbox_tests::eventually("an error, or the end of the time", BOUND * 2, async || {
            begun.elapsed() > time || stop.load(Ordering::Relaxed)
        })
        .await;
        stop.store(true, Ordering::Relaxed);
        let mut errors = Vec::new();
        for task in tasks {
            errors.extend(task.await.expect("no task panics"));
        }
        assert!(check::duplicates(&database).await == 0 && check::order_violations(&database).await == 0);
        errors
    }

    async fn backlog(outbox: &Outbox<Sqlite>) -> i64 {
        let mut conn = outbox.pool().acquire().await.expect("the pool has a connection");
        Sqlite::number(&mut conn, "select count(*) from outbox_delivery").await.expect("it can be counted")
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn only_a_transaction_that_begins_as_a_writer_can_wait_for_others() {
        assert_eq!(errors(Controls::ALL, Duration::from_secs(3)).await, Vec::<String>::new());
        let deferred = errors(Controls { immediate: false, ..Controls::ALL }, BOUND).await;
        crate::show(&format!("SQLite, begun as a reader: {deferred:?}"));
        assert!(!deferred.is_empty());
    }
}

/// The controls of databases with several writers.
macro_rules! on_servers {
    ($($name:ident),+ $(,)?) => {
        on_servers!(@ "postgres" postgres Postgres: $($name),+);
        on_servers!(@ "mysql" mysql MySql: $($name),+);
    };
    (@ $feature:literal $module:ident $database:ident: $($name:ident),+) => {
        #[cfg(feature = $feature)]
        mod $module {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $name() {
                    super::$name::<sqlx::$database>().await;
                }
            )+
        }
    };
}

on_servers!(
    marks_recognise_a_second_arrival,
    the_guard_takes_back_what_a_handler_commits,
    the_order_lock_makes_the_numbers_follow_the_commits,
    without_lane_lock_row_counts_and_marks_messages_are_handled_twice,
    the_lane_lock_alone_prevents_duplicates,
    the_row_counts_alone_prevent_duplicates_and_say_that_the_lane_lock_failed,
    without_the_lane_lock_one_lane_is_enough_to_be_seen,
);

async fn the_order_lock_makes_the_numbers_follow_the_commits<DB: TestBackend>() {
    let Some(database) = TestDatabase::<DB>::migrated().await else { return };
    let locked = orders(&database, Controls::ALL, Duration::from_secs(5)).await;
    assert_eq!(locked, Orders::default());
    let database = TestDatabase::<DB>::migrated().await.expect("the server was there");
    let unlocked = orders(&database, Controls { order_lock: false, ..Controls::ALL }, BOUND).await;
    crate::show(&format!("{}, without the order lock: {unlocked:?}", DB::NAME));
    assert!(unlocked.numbered > 0 && unlocked.handled > 0, "{unlocked:?}");
}

/// Races until `done`; the errors met.
async fn races<DB: TestBackend>(
    database: &TestDatabase<DB>,
    controls: Controls,
    time: Duration,
    mut done: impl AsyncFnMut(&[ErrorKind]) -> bool,
) -> Vec<ErrorKind> {
    let outbox = with(database, controls);
    handle(&outbox).await.expect("nothing is in its way");
    let (begun, mut errors) = (Instant::now(), Vec::new());
    while begun.elapsed() < time && !done(&errors).await {
        errors.extend(race(database, &outbox).await);
    }
    errors
}

async fn without_lane_lock_row_counts_and_marks_messages_are_handled_twice<DB: TestBackend>() {
    let Some(database) = TestDatabase::<DB>::migrated().await else { return };
    let off = Controls { lane_lock: false, row_counts: false, inbox_marks: false, ..Controls::ALL };
    races(&database, off, BOUND, async |_| check::duplicates(&database).await > 0).await;
    let found = check::duplicates(&database).await;
    crate::show(&format!("{}, without lane lock, row counts and marks: {found} duplicates", DB::NAME));
    assert!(found > 0);
}

async fn the_lane_lock_alone_prevents_duplicates<DB: TestBackend>() {
    let Some(database) = TestDatabase::<DB>::migrated().await else { return };
    let off = Controls { row_counts: false, inbox_marks: false, ..Controls::ALL };
    let errors = races(&database, off, Duration::from_secs(3), async |_| false).await;
    assert_eq!(errors, []);
    assert_eq!(check::duplicates(&database).await, 0);
    assert_eq!(check::order_violations(&database).await, 0);
}

async fn the_row_counts_alone_prevent_duplicates_and_say_that_the_lane_lock_failed<DB: TestBackend>() {
    let Some(database) = TestDatabase::<DB>::migrated().await else { return };
    let off = Controls { lane_lock: false, inbox_marks: false, ..Controls::ALL };
    let found = async |errors: &[ErrorKind]| errors.contains(&ErrorKind::Guard);
    let errors = races(&database, off, BOUND, found).await;
    assert!(errors.contains(&ErrorKind::Guard), "{errors:?}");
    assert_eq!(check::duplicates(&database).await, 0);
}

async fn without_the_lane_lock_one_lane_is_enough_to_be_seen<DB: TestBackend>() {
    let Some(database) = TestDatabase::<DB>::migrated().await else { return };
    let off = Controls { lane_lock: false, ..Controls::ALL };
    handle(&with(&database, off)).await.expect("nothing is in its way");
    database.execute("update outbox_consumer set lanes = 1").await;
    let found = async |errors: &[ErrorKind]| {
        errors.contains(&ErrorKind::Guard) || check::order_violations(&database).await > 0
    };
    let errors = races(&database, off, BOUND, found).await;
    let violations = check::order_violations(&database).await;
    let guards = errors.iter().filter(|kind| **kind == ErrorKind::Guard).count();
    crate::show(&format!(
        "{}, one lane without its lock: {violations} out of order, {guards} counts that did not match",
        DB::NAME
    ));
    assert!(violations > 0 || guards > 0, "{errors:?}");
    assert_eq!(check::duplicates(&database).await, 0);
}
