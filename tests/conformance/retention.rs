//! What is old and of no more use is removed, and nothing else is, whatever goes on beside.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outbox::__private::Controls;
use outbox::{
    Config, ConsumerConfig, Dead, Draft, ErrorKind, HandlerError, OnDead, Outbox, Prune, Pruned, Retention,
    StartFrom,
};
use outbox_tests::{TestBackend, TestDatabase, check, eventually};
use sqlx::Connection as _;

use crate::common::*;

on_each_database!(
    what_all_are_done_with_goes_and_what_may_be_needed_stays,
    what_nobody_was_subscribed_to_is_kept_for_longer,
    what_is_dead_for_long_goes_and_what_waited_goes_on,
    marks_go_by_their_age_but_not_while_their_message_is_there,
    each_age_may_be_off,
    what_had_to_stay_goes_when_it_may,
    a_budget_and_a_chunk_are_kept_to,
    settings_that_contradict_each_other_are_refused,
    processes_that_run_prune_one_at_a_time,
    a_missing_row_of_who_prunes_is_made_again,
    what_cannot_be_pruned_is_said,
    a_registration_and_pruning_keep_each_other_out,
    pruning_beside_everything_loses_nothing,
    without_its_guard_pruning_loses_messages,
);

const DAY: Duration = Duration::from_hours(24);

/// A time so many days before the database's present.
fn days_ago<DB: TestBackend>(days: u32) -> String {
    by_database::<DB, _>(
        format!("cast((unixepoch() - {days} * 86400) * 1000000 as integer)"),
        format!("now() - interval '{days} days'"),
        format!("utc_timestamp(6) - interval {days} day"),
    )
}

/// Everything is that old.
async fn age<DB: TestBackend>(database: &TestDatabase<DB>, days: u32) {
    let then = days_ago::<DB>(days);
    database.execute(&format!("update outbox_message set created_at = {then}")).await;
    database.execute(&format!("update outbox_inbox set processed_at = {then}")).await;
    database.execute(&format!("update outbox_parked set dead_at = {then} where dead_at is not null")).await;
}

async fn ids<DB: TestBackend>(database: &TestDatabase<DB>) -> Vec<String> {
    let id = by_database::<DB, _>("id", "id", "cast(id as char)");
    database.texts(&format!("select {id} from outbox_message order by seq")).await
}

async fn prune<DB: TestBackend>(outbox: &Outbox<DB>, retention: Retention) -> Pruned {
    let prune = Prune::older_than(retention);
    let before = outbox.admin().prune(&prune.clone().dry_run()).await.expect("tried");
    let pruned = outbox.admin().prune(&prune).await.expect("pruned");
    assert!(pruned.complete && before.complete);
    assert_eq!((before.dead, before.unrouted), (pruned.dead, pruned.unrouted));
    // What only goes because something else went before is not counted.
    assert!(before.delivered <= pruned.delivered && before.marks <= pruned.marks, "{before:?} {pruned:?}");
    pruned
}

/// Fails as the message's id says.
fn by_id<DB: TestBackend>() -> Script<DB> {
    Script::<DB>::new(|ctx| {
        Box::pin(async move {
            let id = ctx.metadata().id.to_string();
            if id.starts_with("dead") {
                return Err(HandlerError::terminal("no use"));
            }
            if id.starts_with("failed") {
                return Err("not yet".into());
            }
            record(ctx).await
        })
    })
}

async fn audit_subscribes<DB: TestBackend>(outbox: &Outbox<DB>) {
    let audit = outbox.consumers().handler::<Audit>().state(Script::<DB>::record()).config(quick());
    audit.build().expect("complete").run_until_idle().await.expect("it ran");
}

async fn what_all_are_done_with_goes_and_what_may_be_needed_stays<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    let outbox = database.outbox();
    register(&outbox).await;
    for id in ["done-1", "done-2", "failed", "dead"] {
        publish(&outbox, placed_as(id, id)).await;
    }
    publish(&outbox, placed_as("behind", "failed")).await;
    publish(&outbox, placed_as("put off", "put off").deliver_after(DAY)).await;
    drain(&outbox, &by_id()).await;
    audit_subscribes(&outbox).await;
    publish(&outbox, placed_as("of one", "1")).await;
    drain(&outbox, &by_id()).await;
    assert!(database.count("outbox_attempt").await >= 2);
    age(&database, 8).await;
    publish(&outbox, placed_as("young", "2")).await;
    let attempts = database.count("outbox_attempt").await;
    let marks = database.count("outbox_inbox").await;
    let pruned = prune(&outbox, Retention::default()).await;
    assert_eq!((pruned.delivered, pruned.unrouted, pruned.dead, pruned.marks), (2, 0, 0, 0));
    assert_eq!(ids(&database).await, ["failed", "dead", "behind", "put off", "of one", "young"]);
    assert_eq!(database.count("outbox_attempt").await, attempts, "of what is there");
    assert_eq!(database.count("outbox_inbox").await, marks);
    // Nothing of it is lost: the rest of it is handled, and then it may go as well, with its attempts.
    due_now(&database).await;
    outbox.admin().requeue(&Dead::all()).await.expect("requeued");
    drain(&outbox, &Script::record()).await;
    audit_subscribes(&outbox).await;
    let expected =
        BTreeSet::from(["done-1", "done-2", "failed", "dead", "behind", "put off", "of one", "young"]);
    assert_eq!(handled(&database).await.iter().map(String::as_str).collect::<BTreeSet<_>>(), expected);
    assert_eq!(prune(&outbox, Retention::default()).await.delivered, 5);
    assert_eq!(ids(&database).await, ["young"]);
    assert_eq!(database.count("outbox_attempt").await, 0);
}

async fn what_nobody_was_subscribed_to_is_kept_for_longer<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    publish(&outbox, placed_as("waits", "1")).await;
    publish(&outbox, Draft::new("misspelt", "{}").id(id("lost"))).await;
    age(&database, 89).await;
    assert_eq!(prune(&outbox, Retention::default()).await.unrouted, 0);
    assert_eq!(ids(&database).await, ["waits", "lost"]);
    // A consumer that comes gets what is left of its type.
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 1);
    age(&database, 91).await;
    let pruned = prune(&outbox, Retention::default()).await;
    assert_eq!((pruned.delivered, pruned.unrouted), (1, 1));
    assert_eq!(ids(&database).await, [] as [&str; 0]);
    assert_eq!(database.count("outbox_unrouted").await, 0);
}

async fn what_is_dead_for_long_goes_and_what_waited_goes_on<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    for (id, order) in [("dead-1", "1"), ("behind", "1"), ("dead-2", "2"), ("done", "3")] {
        publish(&outbox, placed_as(id, order)).await;
    }
    drain(&outbox, &by_id()).await;
    age(&database, 89).await;
    assert_eq!(prune(&outbox, Retention::default()).await.dead, 0);
    age(&database, 91).await;
    // Since it died, not since it was published.
    outbox.admin().requeue(&Dead::all().message(&id("dead-2"))).await.expect("requeued");
    drain(&outbox, &by_id()).await;
    assert_eq!(prune(&outbox, Retention::default()).await.dead, 1);
    assert_eq!(ids(&database).await, ["behind", "dead-2"]);
    assert_eq!(drain(&outbox, &by_id()).await.handled, 1, "what stood behind it");
    assert_eq!(handled(&database).await, ["done", "behind"]);
}

async fn marks_go_by_their_age_but_not_while_their_message_is_there<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    let outbox = database.outbox();
    register(&outbox).await;
    for n in 0..7 {
        publish(&outbox, placed_as(&format!("gone-{n}"), "1")).await;
    }
    drain(&outbox, &Script::record()).await;
    age(&database, 8).await;
    assert_eq!(prune(&outbox, Retention::default()).await.delivered, 7);
    // The message of one is there, since another consumer has not handled it.
    audit_subscribes(&outbox).await;
    publish(&outbox, placed_as("kept", "1")).await;
    drain(&outbox, &Script::record()).await;
    age(&database, 29).await;
    assert_eq!(prune(&outbox, Retention::default()).await.marks, 0);
    // For so long a message under its id is no second effect.
    publish(&outbox, placed_as("gone-0", "1")).await;
    assert_eq!(drain(&outbox, &Script::record()).await.duplicates, 1);
    audit_subscribes(&outbox).await;
    age(&database, 31).await;
    publish(&outbox, placed_as("kept too", "1")).await;
    drain(&outbox, &Script::record()).await;
    database.execute(&format!("update outbox_inbox set processed_at = {}", days_ago::<DB>(31))).await;
    let pruned = prune(&outbox, Retention { delivered: None, ..Retention::default() }).await;
    assert_eq!(
        (pruned.delivered, pruned.marks),
        (0, 6),
        "their messages are gone, and those of the others are not"
    );
    let left = prune(&outbox, Retention::default()).await;
    assert_eq!(left.delivered, 2, "all but what the other consumer waits for");
    assert_eq!(database.texts("select cast(message_id as char(20)) from outbox_inbox").await.len(), 1);
}

async fn each_age_may_be_off<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    publish(&outbox, placed_as("done", "1")).await;
    publish(&outbox, placed_as("dead", "2")).await;
    publish(&outbox, Draft::new("misspelt", "{}").id(id("lost"))).await;
    drain(&outbox, &by_id()).await;
    age(&database, 1_000).await;
    let all = Retention::default();
    let pruned = prune(&outbox, Retention::FOREVER).await;
    assert_eq!((pruned.delivered, pruned.unrouted, pruned.dead, pruned.marks), (0, 0, 0, 0));
    let pruned = prune(&outbox, Retention { unrouted: None, dead: None, marks: None, ..all }).await;
    assert_eq!((pruned.delivered, pruned.unrouted, pruned.dead, pruned.marks), (1, 0, 0, 0));
    let pruned = prune(&outbox, Retention { delivered: None, dead: None, marks: None, ..all }).await;
    assert_eq!((pruned.delivered, pruned.unrouted, pruned.dead, pruned.marks), (0, 1, 0, 0));
    let pruned = prune(&outbox, Retention { delivered: None, unrouted: None, dead: None, ..all }).await;
    assert_eq!((pruned.delivered, pruned.unrouted, pruned.dead, pruned.marks), (0, 0, 0, 1));
    let pruned = prune(&outbox, Retention { delivered: None, ..all }).await;
    assert_eq!((pruned.delivered, pruned.unrouted, pruned.dead, pruned.marks), (0, 0, 1, 0));
    assert_eq!(ids(&database).await, ["dead"], "handled or not, messages are kept for good");
}

/// The service of a process that runs, with nothing but that to do.
fn service(interval: Duration) -> ConsumerConfig {
    ConsumerConfig { maintenance_interval: interval, retention: Retention::default(), ..quick() }
}

const OFTEN: Duration = Duration::from_millis(200);

async fn what_had_to_stay_goes_when_it_may<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    for id in ["dead", "done", "dead-too"] {
        publish(&outbox, placed_as(id, id)).await;
    }
    drain(&outbox, &by_id()).await;
    age(&database, 8).await;
    let running = Running::start(ledger(&outbox, &Script::record()).config(service(OFTEN)));
    eventually("the first to go", LONG, async || database.count("outbox_message").await == 2).await;
    // The walk is behind them.
    assert_eq!(ids(&database).await, ["dead", "dead-too"]);
    outbox.admin().requeue(&Dead::all().message(&id("dead"))).await.expect("requeued");
    eventually("it to go", LONG, async || database.count("outbox_message").await == 1).await;
    assert_eq!(handled(&database).await, ["done", "dead"]);
    age(&database, 91).await;
    eventually("all to go", LONG, async || {
        database.count("outbox_message").await == 0 && database.count("outbox_inbox").await == 0
    })
    .await;
    running.stop().await;
    assert_eq!(database.count("outbox_parked").await, 0);
}

async fn a_budget_and_a_chunk_are_kept_to<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    let tx = outbox.begin().await.expect("begun");
    for n in 0..25 {
        tx.publish(placed(&n.to_string())).expect("accepted");
    }
    tx.commit().await.expect("committed");
    drain(&outbox, &Script::record()).await;
    age(&database, 8).await;
    let all = Prune::older_than(Retention::default()).chunk(10);
    let pruned = outbox.admin().prune(&all.clone().budget(Duration::ZERO)).await.expect("pruned");
    assert!(!pruned.complete && pruned.delivered == 0, "{pruned:?}");
    let error = outbox.admin().prune(&all.clone().chunk(0)).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Config);
    let pruned = outbox.admin().prune(&all.budget(LONG)).await.expect("pruned");
    assert!(pruned.complete && pruned.delivered == 25, "{pruned:?}");
}

async fn settings_that_contradict_each_other_are_refused<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    let retention = Retention { marks: Some(DAY), ..Retention::default() };
    let error = outbox.admin().prune(&Prune::older_than(retention)).await.expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Config);
    assert!(error.to_string().contains("`retention.marks` is 86400s"), "{error}");
    let config = ConsumerConfig { retention, ..quick() };
    let error = ledger(&outbox, &Script::record()).config(config).build().expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Config);
    let error =
        ledger(&outbox, &Script::record()).config(service(Duration::ZERO)).build().expect_err("refused");
    assert_eq!(error.kind(), ErrorKind::Config);
}

async fn processes_that_run_prune_one_at_a_time<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    let tx = outbox.begin().await.expect("begun");
    for n in 0..3_000 {
        tx.publish(placed(&n.to_string())).expect("accepted");
    }
    tx.commit().await.expect("committed");
    drain(&outbox, &Script::new(|_| Box::pin(async { Ok(()) }))).await;
    age(&database, 40).await;
    let mut running = Vec::new();
    for _ in 0..3 {
        let elsewhere = elsewhere(&database).await;
        running.push(Running::start(ledger(&elsewhere, &Script::record()).config(service(OFTEN))));
    }
    eventually("all to go", LONG, async || {
        database.count("outbox_message").await + database.count("outbox_inbox").await == 0
    })
    .await;
    eventually("a run to end well", LONG, async || {
        database
            .number("select count(*) from outbox_maintenance where holder is not null and succeeded_at is not null")
            .await
            == 1
    })
    .await;
    for running in running {
        running.stop().await;
    }
    assert_eq!(
        database.number("select count(*) from outbox_maintenance where last_error is not null").await,
        0
    );
    let front = "select count(*) from outbox_maintenance where message_front >= 3000 and mark_front > 0";
    assert_eq!(database.number(front).await, 1);
}

/// As after a restore of the tables without what is in them.
async fn a_missing_row_of_who_prunes_is_made_again<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    publish(&outbox, placed_as("old", "1")).await;
    drain(&outbox, &Script::record()).await;
    age(&database, 91).await;
    database.execute("delete from outbox_maintenance").await;
    let running = [
        Running::start(ledger(&outbox, &Script::record()).config(service(OFTEN))),
        Running::start(ledger(&elsewhere(&database).await, &Script::record()).config(service(OFTEN))),
    ];
    eventually("the message to go", LONG, async || database.count("outbox_message").await == 0).await;
    for running in running {
        running.stop().await;
    }
    assert_eq!(database.count("outbox_maintenance").await, 1);
}

async fn what_cannot_be_pruned_is_said<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    publish(&outbox, placed_as("dead", "1")).await;
    drain(&outbox, &by_id()).await;
    let running = Running::start(ledger(&outbox, &Script::record()).config(service(OFTEN)));
    eventually("it to begin", LONG, async || {
        database.number("select count(*) from outbox_maintenance where succeeded_at is not null").await == 1
    })
    .await;
    database.execute("delete from outbox_lane").await;
    age(&database, 91).await;
    let said = "select count(*) from outbox_maintenance where failed_at is not null and last_error like '%has no row%'";
    eventually("it to be said", LONG, async || database.number(said).await == 1).await;
    running.stop().await;
}

/// Somebody is about to look through the history, and has not committed that yet.
async fn a_registration_and_pruning_keep_each_other_out<DB: TestBackend>(database: TestDatabase<DB>) {
    if by_database::<DB, _>(true, false, false) {
        // One writer: the file's lock keeps them apart, and there is none of the registry's.
        return;
    }
    let outbox = database.outbox();
    register(&outbox).await;
    publish(&outbox, placed_as("done", "1")).await;
    drain(&outbox, &Script::record()).await;
    age(&database, 8).await;
    let mut conn = database.connection().await;
    let registering = async |conn: &mut DB::Connection| {
        DB::execute(conn, "select version from outbox_registry for update").await.expect("locked");
        let range = "insert into outbox_backfill (event_type, consumer, first_seq, last_seq) values ('order.placed', 7, 1, 100)";
        DB::execute(conn, range).await.expect("written");
    };
    let all = Prune::older_than(Retention::default());
    let mut tx = conn.begin().await.expect("begun");
    registering(&mut tx).await;
    let error = outbox.admin().prune(&all).await.expect_err("it has to wait");
    assert_eq!(error.kind(), ErrorKind::Conflict);
    assert!(error.to_string().contains("a consumer is being registered"), "{error}");
    tx.commit().await.expect("committed");
    assert_eq!(outbox.admin().prune(&all).await.expect("pruned").delivered, 0);
    assert_eq!(ids(&database).await, ["done"], "it is still to be looked through");
    database.execute("delete from outbox_backfill").await;
    // Without the lock it is gone before that can be seen.
    let controls = Controls { prune_lock: false, ..Controls::ALL };
    let unlocked = database.outbox_with(Config { controls, ..Config::default() });
    let mut tx = conn.begin().await.expect("begun");
    registering(&mut tx).await;
    assert_eq!(unlocked.admin().prune(&all).await.expect("pruned").delivered, 1);
    tx.commit().await.expect("committed");
    assert_eq!(ids(&database).await, [] as [&str; 0]);
}

/// Everything that is done with goes at once, while some fail, die and are requeued, ids are published again, and a second consumer
/// comes that begins with what is there.
async fn pruning_beside_everything_loses_nothing<DB: TestBackend>(database: TestDatabase<DB>) {
    const PUBLISHERS: usize = 3;
    const EACH: usize = 60;
    let outbox = database.outbox();
    register(&outbox).await;
    let dies = Script::<DB>::new(|ctx| {
        Box::pin(async move {
            let (id, attempt) = (ctx.metadata().id.to_string(), ctx.metadata().attempt());
            let last = id.as_bytes().last().copied().unwrap_or_default();
            match (last, attempt) {
                (b'3', 1) => Err("once more".into()),
                // Requeued, its attempts begin again; what it did before is recorded beside.
                (b'7', 1) if fastrand::bool() => Err(HandlerError::terminal("dead for now")),
                _ => record(ctx).await,
            }
        })
    });
    let config = ConsumerConfig { retry: Some(outbox::Retry::every(Duration::from_millis(5))), ..quick() };
    let running = Running::start(
        ledger(&outbox, &dies).config(config).options("ledger", |options| options.on_dead = OnDead::Block),
    );
    let stop: Arc<AtomicBool> = Arc::default();
    let mut publishers = Vec::new();
    for task in 0..PUBLISHERS {
        let outbox = outbox.clone();
        publishers.push(tokio::spawn(async move {
            let mut published = BTreeSet::new();
            for n in 0..EACH {
                let tx = outbox.begin().await.expect("begun");
                // Those of the last part are published again, and have their place in the index to themselves: InnoDB locks what
                // stands beside a removed entry.
                for part in if task == 0 { ["1", "2", "z"] } else { ["1", "2", "3"] } {
                    let id = if part == "z" { format!("z-{n}") } else { format!("{task}-{part}-{n}") };
                    tx.publish(placed_as(&id, &(n % 5).to_string())).expect("accepted");
                    published.insert(id);
                }
                tx.commit().await.expect("committed");
                if task == 0 && n > 3 {
                    // Ids that may be there, or be removed now, in either order.
                    let mut ids = [n - 1, n - 2, n - 3];
                    if n % 2 == 0 {
                        ids.reverse();
                    }
                    let mut tx = outbox.pool().begin().await.expect("begun");
                    for n in ids {
                        let again = Draft::new("order.placed", "{}").id(id(&format!("z-{n}")));
                        outbox.publish(&mut tx, again).await.expect("it is there, or it is new");
                    }
                    tx.commit().await.expect("committed");
                }
            }
            published
        }));
    }
    let mut operators = Vec::new();
    for operator in 0..3 {
        let (outbox, stop) = (outbox.clone(), stop.clone());
        operators.push(tokio::spawn(async move {
            let admin = outbox.admin();
            // Marks are kept, as they would be for longer.
            let at_once = Retention { delivered: Some(Duration::ZERO), ..Retention::default() };
            let mut delivered = 0;
            while !stop.load(Ordering::SeqCst) {
                if operator == 0 {
                    admin.requeue(&Dead::all()).await.expect("requeued");
                } else {
                    match admin.prune(&Prune::older_than(at_once).chunk(20)).await {
                        Ok(pruned) => delivered += pruned.delivered,
                        Err(error) => assert_eq!(error.kind(), ErrorKind::Conflict, "{error:?}"),
                    }
                }
                let pause = Duration::from_millis(5);
                tokio::time::sleep(pause).await; // sleep-ok: between two rounds
            }
            delivered
        }));
    }
    eventually("some to be handled", LONG, async || database.count("effects").await > 30).await;
    let audit = outbox.consumers().handler::<Audit>().state(Script::<DB>::record()).config(quick());
    let second = Running::start(audit.options("audit", |options| options.start_from = StartFrom::Beginning));
    let mut published = BTreeSet::new();
    for publisher in publishers {
        published.append(&mut publisher.await.expect("no deadlock"));
    }
    // A message that is gone too early is parked as one that cannot be read.
    let left = "select (select count(*) from outbox_delivery) + (select count(*) from outbox_parked where state not in (1, 6))";
    eventually("all to be settled", LONG * 2, async || database.number(left).await == 0).await;
    stop.store(true, Ordering::SeqCst);
    let mut pruned = 0;
    for operator in operators {
        pruned += operator.await.expect("no deadlock");
    }
    running.stop().await;
    second.stop().await;
    assert!(pruned > 0, "something was pruned beside");
    let handled = handled(&database).await;
    let distinct: BTreeSet<_> = handled.iter().cloned().collect();
    assert_eq!(handled.len(), distinct.len(), "nothing is doubled");
    assert_eq!(distinct, published);
    assert_eq!(check::order_violations(&database).await, 0);
    let second: Vec<_> = handled_by(&database, "audit").await;
    assert_eq!(second.len(), second.iter().collect::<BTreeSet<_>>().len(), "nothing is doubled");
    assert_eq!(database.count("outbox_parked").await, 0, "no message was gone before its time");
}

async fn without_its_guard_pruning_loses_messages<DB: TestBackend>(database: TestDatabase<DB>) {
    let lost = async |controls| {
        let outbox = database.outbox_with(Config { controls, ..Config::default() });
        for n in 0..3 {
            publish(&outbox, placed_as(&format!("{n}"), "1")).await;
        }
        age(&database, 8).await;
        outbox.admin().prune(&Prune::older_than(Retention::default())).await.expect("pruned");
        3 - drain(&outbox, &Script::record()).await.handled
    };
    register(&database.outbox()).await;
    assert_eq!(lost(Controls { prune_guard: false, ..Controls::ALL }).await, 3);
    database.execute("delete from outbox_parked").await;
    assert_eq!(lost(Controls::ALL).await, 0);
    // Marks of messages that come once more.
    let marks = async |controls| {
        let outbox = database.outbox_with(Config { controls, ..Config::default() });
        age(&database, 31).await;
        let retention = Retention { delivered: None, ..Retention::default() };
        outbox.admin().prune(&Prune::older_than(retention)).await.expect("pruned");
        database.count("outbox_inbox").await
    };
    assert_eq!(marks(Controls::ALL).await, 3);
    assert_eq!(marks(Controls { prune_guard: false, ..Controls::ALL }).await, 0);
}
