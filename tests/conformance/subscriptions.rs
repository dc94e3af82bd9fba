//! What a consumer gets that was published before it subscribed, and what was in flight meanwhile.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime};

use outbox::{ConsumersBuilder, Draft, Outbox, StartFrom};
use outbox_tests::{TestBackend, TestDatabase, check, eventually};

use crate::child;
use crate::common::*;

on_each_database!(
    what_is_committed_beside_and_after_a_registration_reaches_a_second_consumer,
    from_the_beginning_everything_comes_in_order,
    from_now_on_nothing_of_before_comes,
    since_a_time_what_is_older_does_not_come,
    what_a_start_begins_from_counts_once,
    processes_that_catch_up_at_once_double_nothing,
);

fn audit<DB: TestBackend>(outbox: &Outbox<DB>, start_from: StartFrom) -> ConsumersBuilder<DB> {
    let consumers = outbox.consumers().handler::<Audit>().state(Script::<DB>::record()).config(quick());
    consumers.options("audit", move |options| options.start_from = start_from)
}

async fn audited<DB: TestBackend>(outbox: &Outbox<DB>, start_from: StartFrom) -> u64 {
    let consumers = audit(outbox, start_from).build().expect("complete");
    consumers.run_until_idle().await.expect("it ran").handled
}

/// Whether the second consumer is there for all to see.
const SUBSCRIBED: &str = "select count(*) from outbox_subscription s join outbox_consumer c on c.id = s.consumer where c.name = 'audit'";

async fn what_is_committed_beside_and_after_a_registration_reaches_a_second_consumer<DB: TestBackend>(
    database: TestDatabase<DB>,
) {
    const TASKS: usize = 3;
    register(&database.outbox()).await;
    let stop: Arc<AtomicBool> = Arc::default();
    let mut publishers = Vec::new();
    for task in 0..TASKS {
        let (outbox, looks, stop) =
            (elsewhere(&database).await, database.another_pool(1).await, stop.clone());
        publishers.push(tokio::spawn(async move {
            let mut after = BTreeSet::new();
            for n in 0..2_000 {
                if stop.load(Ordering::SeqCst) {
                    break;
                }
                let id = format!("task-{task}-{n}");
                let draft = Draft::new("order.placed", "{}").id(self::id(&id));
                // Keys of one's own and shared ones, and none.
                let draft = match n % 3 {
                    0 => draft.aggregate_id(task.to_string()),
                    1 => draft.aggregate_id("shared"),
                    _ => draft,
                };
                let mut tx = outbox.pool().begin().await.expect("begun");
                if let Err(error) = outbox.publish(&mut tx, draft).await {
                    assert!(error.is_transient(), "{error:?}");
                    continue;
                }
                let mut conn = looks.acquire().await.expect("connected");
                let known = DB::number(&mut conn, SUBSCRIBED).await.expect("counted") > 0;
                drop(conn);
                tx.commit().await.expect("committed");
                if known {
                    after.insert(id);
                }
                let pause = Duration::from_millis(3);
                tokio::time::sleep(pause).await; // sleep-ok: others publish and register too
            }
            after
        }));
    }
    let mut process = child("publish until", &database, &[]);
    let enough = async || database.count("outbox_message").await > 10;
    eventually("publishers to be at work", LONG, enough).await;
    let second = Running::start(audit(&elsewhere(&database).await, StartFrom::Unrouted));
    eventually("the second consumer to be at work", LONG, async || {
        database.number("select count(*) from effects where consumer = 'audit'").await > 5
    })
    .await;
    stop.store(true, Ordering::SeqCst);
    let mut expected = BTreeSet::new();
    for publisher in publishers {
        expected.append(&mut publisher.await.expect("no panic"));
    }
    tokio::task::spawn_blocking(move || process.terminate()).await.expect("no panic").expect("terminated");
    expected.extend(database.texts("select message_id from business").await);
    let left = "select (select count(*) from outbox_delivery d join outbox_consumer c on c.id = d.consumer where c.name = 'audit') \
                     + (select count(*) from outbox_parked)";
    eventually("all of it", LONG, async || database.number(left).await == 0).await;
    second.stop().await;
    let got = handled_by(&database, "audit").await;
    let distinct: BTreeSet<_> = got.iter().cloned().collect();
    assert_eq!(got.len(), distinct.len(), "nothing is doubled");
    let missing: Vec<_> = expected.difference(&distinct).collect();
    assert!(missing.is_empty(), "{} of {}: {missing:?}", missing.len(), expected.len());
    assert_eq!(check::order_violations(&database).await, 0);
    assert_eq!(database.count("outbox_unrouted").await, 0);
}

/// A history of several batches, some of it handled by another consumer, some of no consumer, some without a key.
async fn history<DB: TestBackend>(outbox: &Outbox<DB>) {
    register(outbox).await;
    let publish_many = async |name: &str, count: usize, event_type: &str| {
        let tx = outbox.begin().await.expect("begun");
        for n in 0..count {
            let draft = Draft::new(event_type, "{}").id(id(&format!("{name}-{n:04}")));
            let draft = if n % 5 == 4 { draft } else { draft.aggregate_id(format!("{}", n % 7)) };
            tx.publish(draft).expect("accepted");
        }
        tx.commit().await.expect("committed")
    };
    publish_many("done", 60, "order.placed").await;
    drain(outbox, &Script::new(|_| Box::pin(async { Ok(()) }))).await;
    publish_many("of another type", 2_100, "order.other").await;
    publish_many("waiting", 60, "order.placed").await;
    publish(outbox, placed_as("delayed", "1").deliver_after(Duration::from_hours(1))).await;
}

async fn in_order<DB: TestBackend>(database: &TestDatabase<DB>) {
    let mut by_key: std::collections::BTreeMap<String, Vec<String>> = std::collections::BTreeMap::new();
    for effect in database.effects().await {
        by_key.entry(effect.key.unwrap_or(effect.message_id.clone())).or_default().push(effect.message_id);
    }
    for (key, ids) in by_key {
        assert!(ids.is_sorted(), "key {key}: {ids:?}");
    }
}

async fn from_the_beginning_everything_comes_in_order<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    history(&outbox).await;
    assert_eq!(audited(&outbox, StartFrom::Beginning).await, 120);
    in_order(&database).await;
    assert_eq!(database.count("outbox_backfill").await, 0);
    assert_eq!(database.count("outbox_unrouted").await, 2_100);
    due_now(&database).await;
    assert_eq!(audited(&outbox, StartFrom::Beginning).await, 1);
    publish(&outbox, placed("new")).await;
    assert_eq!(audited(&outbox, StartFrom::Beginning).await, 1);
    assert_eq!(check::duplicates(&database).await, 0);
}

async fn from_now_on_nothing_of_before_comes<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    publish(&outbox, placed_as("before", "7")).await;
    assert_eq!(audited(&outbox, StartFrom::Now).await, 0);
    publish(&outbox, placed_as("after", "7")).await;
    assert_eq!(audited(&outbox, StartFrom::Now).await, 1);
    // It is still kept for one that wants it.
    assert_eq!(database.count("outbox_unrouted").await, 1);
    assert_eq!(drain(&outbox, &Script::record()).await.handled, 1);
    assert_eq!(handled(&database).await, ["before"]);
    assert_eq!(handled_by(&database, "audit").await, ["after"]);
}

async fn since_a_time_what_is_older_does_not_come<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    for (id, order) in [("old", "7"), ("unrouted", "7"), ("newer", "7"), ("newest", "8")] {
        if id == "newer" {
            drain(&outbox, &Script::record()).await;
        }
        publish(&outbox, placed_as(id, order)).await;
    }
    let hours_ago = |hours: i64| {
        by_database::<DB, _>(
            format!("created_at - {hours} * 3600000000"),
            format!("created_at - {hours} * interval '1 hour'"),
            format!("created_at - interval {hours} hour"),
        )
    };
    database.execute("delete from outbox_delivery; delete from outbox_parked").await;
    for (id, hours) in [("old", 5), ("unrouted", 2), ("newer", 1)] {
        let sql = format!("update outbox_message set created_at = {} where id = '{id}'", hours_ago(hours));
        database.execute(&sql).await;
    }
    // One that nobody has got, and that is wanted.
    database
        .execute("insert into outbox_unrouted (event_type, seq) select event_type, seq from outbox_message where id in ('old', 'unrouted')")
        .await;
    let since = StartFrom::since(SystemTime::now() - Duration::from_hours(3));
    assert_eq!(audited(&outbox, since).await, 3);
    assert_eq!(handled_by(&database, "audit").await.iter().filter(|id| *id == "old").count(), 0);
    let left = "select m.id from outbox_unrouted u join outbox_message m on m.seq = u.seq";
    assert_eq!(database.texts(left).await, ["old"]);
    publish(&outbox, placed_as("after", "7")).await;
    assert_eq!(audited(&outbox, since).await, 1);
    let seven: Vec<_> =
        handled_by(&database, "audit").await.into_iter().filter(|id| id != "newest").collect();
    assert_eq!(seven, ["unrouted", "newer", "after"]);
}

async fn what_a_start_begins_from_counts_once<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    register(&outbox).await;
    publish(&outbox, placed_as("before", "7")).await;
    assert_eq!(audited(&outbox, StartFrom::Now).await, 0);
    for later in [StartFrom::Beginning, StartFrom::Unrouted, StartFrom::Since(Duration::ZERO)] {
        assert_eq!(audited(&outbox, later).await, 0, "{later:?}");
    }
    let forever = outbox.consumers().handler::<Audit>().state(Script::<DB>::record());
    let forever =
        forever.options("audit", |options| options.start_from = StartFrom::Since(Duration::MAX)).build();
    assert!(forever.expect_err("beyond all calendars").to_string().contains("`start_from`"));
}

async fn processes_that_catch_up_at_once_double_nothing<DB: TestBackend>(database: TestDatabase<DB>) {
    let outbox = database.outbox();
    history(&outbox).await;
    let mut running = Vec::new();
    for _ in 0..3 {
        running.push(Running::start(audit(&elsewhere(&database).await, StartFrom::Beginning)));
    }
    for n in 0..10 {
        let published = outbox.transaction(async |tx| {
            tx.publish(placed_as(&format!("x beside-{n:04}"), "1"))?;
            Ok::<_, outbox::Error>(())
        });
        published.await.expect("published");
    }
    let audited = "select count(*) from effects where consumer = 'audit'";
    eventually("all of it", LONG, async || database.number(audited).await >= 130).await;
    for running in running {
        running.stop().await;
    }
    assert_eq!(database.number(audited).await, 130);
    assert_eq!(check::duplicates(&database).await, 0);
    in_order(&database).await;
}
