//! Leases: who has a lane while no transaction is open, what happens when that changes, and what the checks are for.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outbox::__private::{Controls, FromContext as _};
use outbox::{Config, ConsumerConfig, ConsumersBuilder, Notice, Outbox, Report, Retry, Shutdown};
use outbox_tests::{TestBackend, TestDatabase, eventually, handler};
use tokio::sync::Notify;

use crate::common::*;
use crate::external::{HELD, Log, call_all, calling, calls, with_lanes};

on_each_database!(
    a_lease_is_renewed_for_as_long_as_a_call_takes,
    a_blocked_runtime_keeps_its_leases,
    a_lane_is_anothers_once_its_lease_is_over_and_not_before,
    a_lost_lease_writes_nothing,
    without_the_checks_a_lost_lease_writes_over_its_successor,
    without_renewals_a_long_call_loses_its_lease,
    another_has_claimed_the_message_and_keeps_it,
    a_stopping_process_gives_its_lanes_back,
    a_process_that_cuts_its_calls_off_gives_its_lanes_back,
    a_process_that_finishes_its_calls_is_alive_meanwhile,
    transactions_leave_leased_lanes_alone,
    leases_leave_locked_lanes_alone,
    a_consumer_that_changes_its_kind_goes_on_where_it_was,
    attempts_that_were_lost_are_bounded_and_recorded,
    what_somebody_else_has_claimed_comes_back_later,
);

handler!(Within, consumer "calls", types [PLACED], run scripted);

const LEASED: &str = "select count(*) from outbox_lane where leased_by is not null";
const LEASE: Duration = Duration::from_millis(1_200);

/// The consumer `calls` with short leases, not yet built.
fn leasing<DB: TestBackend>(outbox: &Outbox<DB>, script: &Script<DB>) -> ConsumersBuilder<DB> {
    calls(outbox, script).options("calls", |options| options.lease = LEASE)
}

/// It makes one call at once, so it does not take its own lane over while it is in that.
fn only_one<DB: TestBackend>(consumers: ConsumersBuilder<DB>) -> ConsumersBuilder<DB> {
    consumers.options("calls", |options| options.concurrency = 1)
}

/// Another process's view, with these guards.
async fn guarded<DB: TestBackend>(database: &TestDatabase<DB>, controls: Controls) -> Outbox<DB> {
    Outbox::with_config(database.another_pool(3).await, Config { controls, ..Config::default() })
}

/// A call that waits until it is let go, and says that it has begun.
#[derive(Debug, Clone, Default)]
struct Gate {
    begun: Arc<AtomicBool>,
    open: Arc<Notify>,
}

impl Gate {
    fn script<DB: TestBackend>(&self, log: &Log) -> Script<DB> {
        let gate = self.clone();
        calling(log, move |_| {
            let gate = gate.clone();
            async move {
                gate.begun.store(true, Ordering::SeqCst);
                gate.open.notified().await;
                Ok(())
            }
        })
    }

    async fn begun(&self) {
        eventually("a call", LONG, async || self.begun.load(Ordering::SeqCst)).await;
    }

    fn open(&self) {
        self.open.notify_one();
    }
}

/// The time at which the lease ends, as text, to be compared with itself.
async fn lease_end<DB: TestBackend>(database: &TestDatabase<DB>) -> String {
    let sql = "select concat(leased_until, '') from outbox_lane where leased_by is not null";
    database.texts(sql).await.pop().unwrap_or_default()
}

/// Waits until the lease has been renewed so many times.
async fn renewed<DB: TestBackend>(database: &TestDatabase<DB>, times: usize) {
    for _ in 0..times {
        let before = lease_end(database).await;
        eventually("a renewal", LONG, async || {
            let now = lease_end(database).await;
            !now.is_empty() && now != before
        })
        .await;
    }
}

async fn a_lease_is_renewed_for_as_long_as_a_call_takes<DB: TestBackend>(database: TestDatabase<DB>) {
    let (outbox, log, gate) = (with_lanes(&database, 1).await, Log::default(), Gate::default());
    publish(&outbox, placed_as("m", "m")).await;
    let first = Running::start(leasing(&outbox, &gate.script(&log)));
    gate.begun().await;
    let second = Running::start(leasing(&elsewhere(&database).await, &gate.script(&log)));
    // Each renewal comes a third of a lease after the one before: so this is longer than one.
    renewed(&database, 4).await;
    gate.open();
    settled(&database).await;
    assert_eq!((first.stop().await.handled, second.stop().await.handled), (1, 0));
    assert_eq!((log.of("m"), database.number(HELD).await), (vec![1], 0));
}

/// The only thread of the runtime is blocked by a handler, for longer than a lease.
async fn a_blocked_runtime_keeps_its_leases<DB: TestBackend>(database: TestDatabase<DB>) {
    let (outbox, log) = (with_lanes(&database, 1).await, Log::default());
    publish(&outbox, placed_as("m", "m")).await;
    let (begun, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
    let (says, ends) = (begun.clone(), done.clone());
    let blocks = calling(&log, move |_| {
        let (begun, done) = (says.clone(), ends.clone());
        async move {
            begun.store(true, Ordering::SeqCst);
            while !done.load(Ordering::SeqCst) {
                std::thread::park_timeout(Duration::from_millis(5));
            }
            Ok(())
        }
    });
    let address = database.address().to_owned();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let blocked = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async {
            let outbox = Outbox::<DB>::new(DB::connect(&address, 3).await.expect("it is there"));
            let consumers = leasing(&outbox, &blocks).build().expect("complete");
            consumers.run_until(async { drop(stopped.await) }).await.expect("it ran")
        })
    });
    eventually("a call", LONG, async || begun.load(Ordering::SeqCst)).await;
    let second = Running::start(leasing(&elsewhere(&database).await, &calling(&log, async |_| Ok(()))));
    renewed(&database, 4).await;
    done.store(true, Ordering::SeqCst);
    settled(&database).await;
    stop.send(()).expect("it still runs");
    assert_eq!(blocked.join().expect("no panic").handled, 1);
    assert_eq!((second.stop().await.handled, log.of("m")), (0, vec![1]));
}

/// The lease of a process that died: nobody calls before its end, and one does after it.
async fn a_lane_is_anothers_once_its_lease_is_over_and_not_before<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    let (outbox, log) = (with_lanes(&database, 1).await, Log::default());
    publish(&outbox, placed_as("m", "m")).await;
    let now =
        by_database::<DB, _>("cast(unixepoch('subsec') * 1000000 as integer)", "now()", "utc_timestamp(6)");
    let hour = by_database::<DB, _>("3600000000", "interval '1 hour'", "interval 1 hour");
    let end = |end: String| {
        format!("update outbox_lane set leased_by = 'dead', leased_until = {end} where lane = 0")
    };
    database.execute(&end(format!("{now} + {hour}"))).await;
    let script = calling(&log, async |_| Ok(()));
    let all = [elsewhere(&database).await, elsewhere(&database).await, outbox];
    for outbox in &all {
        assert_eq!(call_all(outbox, &script).await.remaining, 1);
    }
    assert!(log.ids().is_empty());
    database.execute(&end(format!("{now} - {hour}"))).await;
    let running: Vec<_> = all.iter().map(|outbox| Running::start(calls(outbox, &script))).collect();
    settled(&database).await;
    let mut handled = 0;
    for running in running {
        handled += running.stop().await.handled;
    }
    assert_eq!((handled, log.of("m"), database.number(HELD).await), (1, vec![1], 0));
}

/// Two real owners: the first does not renew, and comes back from its call when the second is in its own.
async fn two_owners<DB: TestBackend>(
    database: &TestDatabase<DB>,
    controls: Controls,
) -> (Report, Report, Log, bool) {
    let (outbox, log) = (with_lanes(database, 1).await, Log::default());
    publish(&outbox, placed_as("m", "m")).await;
    let (first, second) = (Gate::default(), Gate::default());
    let late = guarded(database, Controls { renewals: false, ..controls }).await;
    let mut notices = late.notices();
    let of_late = Running::start(only_one(leasing(&late, &first.script(&log))));
    first.begun().await;
    let of_other = Running::start(calls(&elsewhere(database).await, &second.script(&log)));
    second.begun().await;
    first.open();
    // The first has looked at its lane once it says something.
    let said = tokio::time::timeout(LONG, notices.next()).await.expect("it settles, or does not");
    let lost = matches!(said, Some(Notice::LeaseLost { messages: 1, .. }));
    let untouched = database.number("select count(*) from outbox_delivery").await == 1
        && database.number("select count(*) from outbox_inbox where claimed_by is not null").await == 1;
    second.open();
    let waits = async || database.count("outbox_delivery").await == 0;
    eventually("the message to be gone", LONG, waits).await;
    let late = of_late.stop().await;
    assert_eq!(late.leases_lost, u64::from(lost));
    (late, of_other.stop().await, log, untouched)
}

async fn a_lost_lease_writes_nothing<DB: TestBackend>(database: TestDatabase<DB>) {
    let (late, other, log, untouched) = two_owners(&database, Controls::ALL).await;
    assert!(untouched, "what is another's is left to it");
    assert_eq!((late.handled, late.leases_lost, other.handled), (0, 1, 1));
    // The second call is another attempt, of a message whose first one nobody saw end.
    assert_eq!(log.of("m"), [1, 2]);
    assert_eq!((database.number(HELD).await, database.count("outbox_inbox").await), (0, 1));
}

async fn without_the_checks_a_lost_lease_writes_over_its_successor<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    let off = Controls { lease_check: false, claim_check: false, ..Controls::ALL };
    let (late, _, log, untouched) = two_owners(&database, off).await;
    assert!(!untouched, "nothing but these checks keeps it off");
    assert_eq!((late.handled, late.leases_lost, log.of("m")), (1, 0, vec![1, 2]));
}

async fn without_renewals_a_long_call_loses_its_lease<DB: TestBackend>(database: TestDatabase<DB>) {
    let (outbox, log, gate) = (with_lanes(&database, 1).await, Log::default(), Gate::default());
    publish(&outbox, placed_as("m", "m")).await;
    let late = guarded(&database, Controls { renewals: false, ..Controls::ALL }).await;
    let first = Running::start(only_one(leasing(&late, &gate.script(&log))));
    gate.begun().await;
    let second = Running::start(calls(&outbox, &calling(&log, async |_| Ok(()))));
    settled(&database).await;
    gate.open();
    let (first, second) = (first.stop().await, second.stop().await);
    assert_eq!((first.handled, first.leases_lost, second.handled), (0, 1, 1));
    assert_eq!(log.of("m"), [1, 2]);
}

/// The lane is still ours, and the message is not: each of the two checks is enough.
async fn another_has_claimed_the_message_and_keeps_it<DB: TestBackend>(database: TestDatabase<DB>) {
    for (name, controls, left) in
        [("checked", Controls::ALL, 1), ("not checked", Controls { claim_check: false, ..Controls::ALL }, 0)]
    {
        let (log, gate) = (Log::default(), Gate::default());
        with_lanes(&database, 1).await;
        publish(&database.outbox(), placed_as(name, name)).await;
        let outbox = guarded(&database, controls).await;
        let running = Running::start(leasing(&outbox, &gate.script(&log)));
        gate.begun().await;
        let far = by_database::<DB, _>(
            "9000000000000000",
            "now() + interval '1 hour'",
            "utc_timestamp(6) + interval 1 hour",
        );
        database
            .execute(&format!(
                "update outbox_inbox set claimed_by = 'another', claimed_until = {far}
                 where claimed_by is not null"
            ))
            .await;
        gate.open();
        let report = running.stop().await;
        assert_eq!(report.handled, 1 - left, "{name}");
        let found = database.count("outbox_delivery").await + database.count("outbox_parked").await;
        assert_eq!((i64::try_from(left).expect("small"), log.of(name)), (found, vec![1]), "{name}");
        database
            .execute("delete from outbox_inbox; delete from outbox_parked; delete from outbox_delivery")
            .await;
    }
}

/// What is called is finished, what is queued has had no attempt, and the lane is free at once.
async fn a_stopping_process_gives_its_lanes_back<DB: TestBackend>(database: TestDatabase<DB>) {
    let (outbox, log, begun) =
        (with_lanes(&database, 1).await, Log::default(), Arc::new(AtomicBool::new(false)));
    for name in ["m0", "m1", "m2"] {
        publish(&outbox, placed_as(name, "m")).await;
    }
    let (noted, says) = (log.clone(), begun.clone());
    let script = Script::<DB>::new(move |ctx| {
        noted.note(ctx.metadata());
        says.store(true, Ordering::SeqCst);
        Box::pin(async move {
            Shutdown::from_context(ctx)?.requested().await;
            Ok(())
        })
    });
    let consumers = calls(&outbox, &script).options("calls", |o| o.lease = Duration::from_hours(1));
    let running = Running::start(consumers);
    eventually("a call", LONG, async || begun.load(Ordering::SeqCst)).await;
    assert_eq!((running.stop().await.handled, database.number(HELD).await), (1, 0));
    let report = call_all(&outbox, &calling(&log, async |_| Ok(()))).await;
    assert_eq!((report.handled, log.ids().join(" ")), (2, "m0 m1 m2".to_owned()));
    assert_eq!((log.of("m1"), log.of("m2")), (vec![1], vec![1]));
}

async fn a_process_that_cuts_its_calls_off_gives_its_lanes_back<DB: TestBackend>(database: TestDatabase<DB>) {
    let (outbox, log, gate) = (with_lanes(&database, 1).await, Log::default(), Gate::default());
    publish(&outbox, placed_as("m", "m")).await;
    let config = ConsumerConfig { shutdown_grace: Duration::from_millis(50), ..quick() };
    let consumers = calls(&outbox, &gate.script(&log)).config(config);
    let running = Running::start(consumers.options("calls", |o| o.lease = Duration::from_hours(1)));
    gate.begun().await;
    running.stop().await;
    assert_eq!(database.number(LEASED).await, 0);
    // The call may have been made, so it was an attempt.
    assert_eq!(call_all(&outbox, &calling(&log, async |_| Ok(()))).await.handled, 1);
    assert_eq!((log.of("m"), database.number(HELD).await), (vec![1, 2], 0));
}

async fn a_process_that_finishes_its_calls_is_alive_meanwhile<DB: TestBackend>(database: TestDatabase<DB>) {
    let (outbox, log, gate) = (with_lanes(&database, 1).await, Log::default(), Gate::default());
    publish(&outbox, placed_as("m", "m")).await;
    let running = Running::start(calls(&outbox, &gate.script(&log)));
    gate.begun().await;
    let ended = tokio::spawn(running.stop());
    let heard = async || database.texts("select concat(heartbeat_at, '') from outbox_worker").await;
    // The first may have been on its way when it was told to stop.
    for _ in 0..3 {
        let before = heard().await;
        eventually("a heartbeat", LONG, async || {
            let now = heard().await;
            now.len() == 1 && now != before
        })
        .await;
    }
    gate.open();
    assert_eq!(ended.await.expect("no panic").handled, 1);
    assert_eq!(database.count("outbox_worker").await, 0, "it said good-bye");
}

/// The same consumer in a build whose handler writes in its transaction, beside one that calls.
async fn transactions_leave_leased_lanes_alone<DB: TestBackend>(database: TestDatabase<DB>) {
    let (outbox, log, gate) = (with_lanes(&database, 1).await, Log::default(), Gate::default());
    publish(&outbox, placed_as("m", "m")).await;
    let running = Running::start(leasing(&outbox, &gate.script(&log)));
    gate.begun().await;
    let within = elsewhere(&database).await;
    let script = Script::<DB>::record();
    let consumers = || within.consumers().handler::<Within>().state(script.clone()).config(quick());
    let report = consumers().build().expect("complete").run_until_idle().await.expect("it ran");
    assert_eq!((report.handled, report.remaining, database.count("effects").await), (0, 1, 0));
    gate.open();
    settled(&database).await;
    assert_eq!((running.stop().await.handled, database.count("effects").await), (1, 0));
}

async fn leases_leave_locked_lanes_alone<DB: TestBackend>(database: TestDatabase<DB>) {
    let (outbox, log, gate) = (with_lanes(&database, 1).await, Log::default(), Gate::default());
    publish(&outbox, placed_as("m", "m")).await;
    let within = {
        let gate = gate.clone();
        Script::<DB>::new(move |ctx| {
            let gate = gate.clone();
            Box::pin(async move {
                gate.begun.store(true, Ordering::SeqCst);
                gate.open.notified().await;
                record(ctx).await
            })
        })
    };
    let consumers = outbox.consumers().handler::<Within>().state(within).config(quick());
    let running = Running::start(consumers);
    gate.begun().await;
    let script = calling(&log, async |_| Ok(()));
    let beside = if is_postgres::<DB>() || is_mysql::<DB>() {
        call_all(&elsewhere(&database).await, &script).await
    } else {
        // The file has one writer: whoever wants to lease a lane waits for it.
        Report::default()
    };
    gate.open();
    settled(&database).await;
    assert_eq!((running.stop().await.handled, beside.handled), (1, 0));
    assert!(log.ids().is_empty());
}

/// A claim that a dead process left does not keep its message from being handled in a transaction, and the other way round.
async fn a_consumer_that_changes_its_kind_goes_on_where_it_was<DB: TestBackend>(database: TestDatabase<DB>) {
    let (outbox, log) = (with_lanes(&database, 1).await, Log::default());
    for name in ["m0", "m1"] {
        publish(&outbox, placed_as(name, name)).await;
    }
    let left = "insert into outbox_inbox (consumer, message_id, claimed_by, attempts)
                select id, 'm0', 'dead', 2 from outbox_consumer";
    database.execute(left).await;
    let consumers = outbox.consumers().handler::<Within>().state(Script::<DB>::record()).config(patient());
    let report = consumers.build().expect("complete").run_until_idle().await.expect("it ran");
    assert_eq!((report.handled, report.remaining), (2, 0));
    let effects = database.effects().await;
    let of_first = effects.iter().find(|effect| effect.message_id == "m0").expect("handled");
    assert_eq!(of_first.worker, "attempt 3");
    publish(&outbox, placed_as("m2", "m2")).await;
    assert_eq!(call_all(&outbox, &calling(&log, async |_| Ok(()))).await.handled, 1);
    assert_eq!((log.ids(), database.number(HELD).await), (vec!["m2".to_owned()], 0));
}

/// Calls whose processes died: each was an attempt, and the last is not repeated.
async fn attempts_that_were_lost_are_bounded_and_recorded<DB: TestBackend>(database: TestDatabase<DB>) {
    let (outbox, log) = (with_lanes(&database, 1).await, Log::default());
    for name in ["hopeless", "behind", "hopeful"] {
        publish(&outbox, placed_as(name, if name == "hopeful" { "b" } else { "a" })).await;
    }
    for (name, attempts) in [("hopeless", 3), ("hopeful", 2)] {
        let left = format!(
            "insert into outbox_inbox (consumer, message_id, claimed_by, attempts)
             select id, '{name}', 'dead', {attempts} from outbox_consumer"
        );
        database.execute(&left).await;
    }
    let script = calling(&log, async |_| Ok(()));
    let consumers = calls(&outbox, &script).config(ConsumerConfig { retry: None, ..quick() });
    let consumers =
        consumers.options("calls", |options| options.retry = Retry { max_attempts: 3, ..Retry::DEFAULT });
    let report = consumers.build().expect("complete").run_until_idle().await.expect("it ran");
    assert_eq!((report.dead, report.handled, report.remaining), (1, 1, 2));
    assert_eq!((log.ids(), log.of("hopeful")), (vec!["hopeful".to_owned()], vec![3]));
    let error = database.texts("select last_error from outbox_parked where state = 2").await.remove(0);
    assert!(error.contains("worker was lost"), "{error}");
    for (name, number) in [("hopeless", 3), ("hopeful", 2)] {
        let attempts = outbox.admin().attempts(&id(name), "calls").await.expect("readable");
        assert_eq!((attempts.len(), attempts[0].number), (1, number), "{name}");
    }
    assert_eq!(database.number(HELD).await, 0);
    // An operator lets it begin anew.
    outbox.admin().requeue(&outbox::Dead::all()).await.expect("requeued");
    assert_eq!(call_all(&outbox, &script).await.handled, 2);
    assert_eq!(log.of("hopeless"), [1]);
}

/// A claim with a time of its own, by somebody who is at the message outside of the lanes.
async fn what_somebody_else_has_claimed_comes_back_later<DB: TestBackend>(database: TestDatabase<DB>) {
    let (outbox, log) = (with_lanes(&database, 1).await, Log::default());
    for name in ["m", "n"] {
        publish(&outbox, placed_as(name, name)).await;
    }
    let far = by_database::<DB, _>(
        "9000000000000000",
        "now() + interval '1 hour'",
        "utc_timestamp(6) + interval 1 hour",
    );
    let claim = format!(
        "insert into outbox_inbox (consumer, message_id, claimed_by, claimed_until, attempts)
         select id, 'm', 'another', {far}, 1 from outbox_consumer"
    );
    database.execute(&claim).await;
    let script = calling(&log, async |_| Ok(()));
    let report = call_all(&outbox, &script).await;
    assert_eq!((report.handled, report.parked, log.ids().join(" ")), (1, 1, "n".to_owned()));
    // It is given up, and then taken over.
    let past =
        by_database::<DB, _>("1", "now() - interval '1 second'", "utc_timestamp(6) - interval 1 second");
    database.execute(&format!("update outbox_inbox set claimed_until = {past} where message_id = 'm'")).await;
    due_now(&database).await;
    assert_eq!(call_all(&outbox, &script).await.handled, 1);
    assert_eq!((log.of("m"), database.number(HELD).await), (vec![2], 0));
}
