//! Processes that die at every named point: nothing is lost, doubled, out of order or stranded.

use std::os::unix::process::ExitStatusExt as _;
use std::time::Duration;

use outbox::{Dead, Draft};
use outbox_tests::act::{Act, Does};
use outbox_tests::child::{Consume, Task};
use outbox_tests::{Process, TestBackend, check, eventually};

use crate::{LONG, Scene, on_each_database};

on_each_database!(
    a_consumer_that_dies_anywhere_loses_and_doubles_nothing,
    without_marks_a_consumer_that_dies_anywhere_loses_and_doubles_nothing,
    a_consumer_that_dies_while_it_registers_misses_nothing,
    a_consumer_that_dies_while_it_catches_up_loses_and_doubles_nothing,
    a_publisher_that_dies_leaves_both_halves_or_none,
    an_operator_who_dies_has_moved_each_message_or_not,
);

/// Where a consumer can die, and at which pass.
const CONSUMING: &[&str] = &[
    "claimed:1",
    "claimed:9",
    "moved:2",
    "handler returned:1",
    "handler returned:7",
    "parked:2",
    "failure committed:2",
    "removed:1",
    "removed:6",
    "settled:1",
    "settled:8",
    "committed:1",
    "committed:5",
    // Only after another death.
    "watched:1",
    // Only after a death of what was watched.
    "counted before:1",
    "counted before:2",
];

/// A few keys with a failing head, a follow-up each, a delayed message, and some without a key.
async fn publish<DB: TestBackend>(scene: &Scene<DB>) {
    for number in 0..5 {
        for key in ["a", "b", "c"] {
            let act = match (key, number) {
                ("a", 0) => Act::first(2, Does::Fail("not yet".into())).at("left"),
                ("b", 2) => Act::first(1, Does::Panic("not yet".into())).at("right"),
                ("c", 1) => Act::first(1, Does::Snooze(40)),
                _ => Act::record(),
            };
            scene.tell(&format!("{key}{number}"), key, act.echo()).await;
        }
        scene.publish(Act::record().draft(&format!("free{number}"))).await;
    }
    scene.publish(Act::record().draft("delayed").key("a").deliver_after(Duration::from_millis(300))).await;
}

/// The messages of [`publish`], the echoes of 15 of them, and each effect.
const EFFECTS: i64 = 21 + (21 + 15);

/// Waits for a child to die at its point.
pub(crate) async fn dies(mut child: Process, point: &str) {
    let mut status = None;
    eventually(&format!("death at {point}"), LONG, async || {
        status = child.ended().expect("the system knows its processes");
        status.is_some()
    })
    .await;
    let status = status.expect("it has ended");
    assert_eq!(status.signal(), Some(6), "{point}: it must abort, and ended with {status}");
}

async fn a_consumer_that_dies_anywhere_loses_and_doubles_nothing<DB: TestBackend>() {
    for point in CONSUMING {
        let Some(scene) = Scene::<DB>::new().await else { return };
        scene.registered().await;
        publish(&scene).await;
        // Small groups, so that there are enough of them.
        let consume = || Task::Consume(Consume { pause: 300, group: 3, ..Consume::default() });
        if point.starts_with("counted") || point.starts_with("watched") {
            dies(scene.spawn(consume(), Some("claimed:2")), "claimed").await;
        }
        if point.starts_with("counted") {
            dies(scene.spawn(consume(), Some("watched:1")), "watched").await;
        }
        dies(scene.spawn(consume(), Some(point)), point).await;
        check::holds(&scene.database, point).await;
        let mut survivor = scene.spawn(consume(), None);
        scene.until_done().await;
        check::holds(&scene.database, point).await;
        assert_eq!(scene.database.count("effects").await, EFFECTS, "{point}\n{}", scene.log());
        assert_eq!(scene.database.count("outbox_message").await, 21 + 15, "{point}");
        assert!(survivor.terminate().expect("a child can be terminated").success());
        assert_eq!(scene.database.count("outbox_worker").await, 0, "{point}: all have left or are buried");
    }
}

/// The same without marks, and then by a build that writes them again, as when the option is taken back.
async fn without_marks_a_consumer_that_dies_anywhere_loses_and_doubles_nothing<DB: TestBackend>() {
    for (at, point) in CONSUMING.iter().filter(|point| !point.starts_with("counted")).enumerate() {
        let Some(scene) = Scene::<DB>::new().await else { return };
        scene.registered().await;
        publish(&scene).await;
        let consume = |inbox| Task::Consume(Consume { pause: 300, group: 3, inbox, ..Consume::default() });
        if point.starts_with("watched") {
            dies(scene.spawn(consume(false), Some("claimed:2")), "claimed").await;
        }
        dies(scene.spawn(consume(false), Some(point)), point).await;
        assert_eq!(scene.database.count("outbox_inbox").await, 0, "{point}");
        assert_eq!(check::duplicates(&scene.database).await, 0, "{point}");
        let mut survivor = scene.spawn(consume(at % 2 == 1), None);
        scene.until_done().await;
        assert_eq!(scene.database.count("effects").await, EFFECTS, "{point}\n{}", scene.log());
        assert_eq!(check::duplicates(&scene.database).await, 0, "{point}");
        assert_eq!(check::order_violations(&scene.database).await, 0, "{point}");
        assert_eq!(scene.database.count("outbox_message").await, 21 + 15, "{point}");
        assert!(survivor.terminate().expect("a child can be terminated").success());
    }
}

async fn a_consumer_that_dies_while_it_registers_misses_nothing<DB: TestBackend>() {
    for point in ["subscribed:1", "announced:1", "backfilled:1", "caught up:1"] {
        let Some(scene) = Scene::<DB>::new().await else { return };
        for number in 0..3 {
            scene.tell(&format!("before{number}"), "a", Act::record()).await;
        }
        dies(scene.spawn(Task::Consume(Consume::default()), Some(point)), point).await;
        for number in 0..3 {
            scene.tell(&format!("after{number}"), "a", Act::record()).await;
        }
        let survivor = scene.spawn(Task::Consume(Consume::default()), None);
        eventually("all effects", LONG, async || scene.database.count("effects").await == 12).await;
        drop(survivor);
        check::holds(&scene.database, point).await;
        assert_eq!(scene.database.count("outbox_unrouted").await, 0, "{point}");
    }
}

/// It goes through a history of several batches, of which some was handled by another consumer.
async fn a_consumer_that_dies_while_it_catches_up_loses_and_doubles_nothing<DB: TestBackend>() {
    const HISTORY: i64 = 60;
    for point in ["subscribed:1", "caught up:1", "caught up:3"] {
        let Some(scene) = Scene::<DB>::new().await else { return };
        scene.left_registered().await;
        let tx = scene.outbox.begin().await.expect("begun");
        for number in 0..HISTORY {
            let draft = Act::record().draft(&format!("before{number}")).key(format!("key {}", number % 10));
            tx.publish(draft).expect("accepted");
            // Of a type that nobody wants, so that there are several batches.
            for _ in 0..40 {
                tx.publish(Draft::new("told.nobody", "{}")).expect("accepted");
            }
        }
        tx.commit().await.expect("committed");
        let consume = || Task::Consume(Consume { from_the_beginning: true, ..Consume::default() });
        dies(scene.spawn(consume(), Some(point)), point).await;
        scene.tell("after", "key 1", Act::record()).await;
        let mut survivor = scene.spawn(consume(), None);
        let all = 2 * (HISTORY + 1);
        eventually("all effects", LONG, async || scene.database.count("effects").await >= all).await;
        scene.until_done().await;
        assert!(survivor.terminate().expect("a child can be terminated").success());
        assert_eq!(scene.database.count("effects").await, all, "{point}\n{}", scene.log());
        check::holds(&scene.database, point).await;
        assert_eq!(scene.database.count("outbox_backfill").await, 0, "{point}");
    }
}

async fn a_publisher_that_dies_leaves_both_halves_or_none<DB: TestBackend>() {
    for point in ["publishing:4", "published:4", "publish committed:4"] {
        let Some(scene) = Scene::<DB>::new().await else { return };
        scene.registered().await;
        let publish = || Task::Publish { count: 8, keys: 2 };
        dies(scene.spawn(publish(), Some(point)), point).await;
        let committed = if point == "publish committed:4" { 4 } else { 3 };
        assert_eq!(scene.database.count("business").await, committed, "{point}");
        assert_eq!(scene.database.count("outbox_message").await, committed, "{point}");
        let mut again = scene.spawn(publish(), None);
        eventually("the publisher to end", LONG, async || again.ended().expect("known").is_some()).await;
        let run = scene.both(|_| ()).build().expect("complete").run_until_idle().await.expect("it ran");
        assert_eq!((run.handled, run.remaining), (8 + 8 + 8, 0), "{point}");
        check::holds(&scene.database, point).await;
    }
}

async fn an_operator_who_dies_has_moved_each_message_or_not<DB: TestBackend>() {
    for (task, dies_at) in [(Task::Requeue, "requeue"), (Task::Discard, "discard")] {
        for point in ["operator locked:3", "operator changed:3", "operator committed:3"] {
            let Some(scene) = Scene::<DB>::new().await else { return };
            scene.registered().await;
            for number in 0..5 {
                let key = format!("key {number}");
                let act = Act::first(1, Does::Terminal("broken".into())).at("left");
                scene.tell(&format!("dead{number}"), &key, act).await;
                scene.tell(&format!("behind{number}"), &key, Act::record()).await;
            }
            let run = || async {
                let consumers = scene.both(|_| ()).build().expect("complete");
                consumers.run_until_idle().await.expect("it ran")
            };
            assert_eq!(run().await.dead, 5);
            dies(scene.spawn(task.clone(), Some(point)), point).await;
            let moved = if point == "operator committed:3" { 3 } else { 2 };
            let when = format!("{dies_at} dies at {point}");
            assert_eq!(scene.dead().await, 5 - moved, "{when}");
            if matches!(task, Task::Requeue) {
                check::holds(&scene.database, &when).await;
            }
            let freed = run().await;
            let requeued = if matches!(task, Task::Requeue) { moved } else { 0 };
            assert_eq!(freed.handled, u64::try_from(moved + requeued).expect("small"), "{when}");
            let again = scene.outbox.admin();
            let changed = match task {
                Task::Requeue => again.requeue(&Dead::all()).await,
                _ => again.discard(&Dead::all()).await,
            };
            let changed = changed.expect("nothing is in its way");
            assert_eq!(i64::try_from(changed.messages.len()).expect("small"), 5 - moved, "{when}");
            assert_eq!(run().await.remaining, 0, "{when}");
            check::undone(&scene.database).await;
            assert_eq!(check::order_violations(&scene.database).await, 0, "{when}");
            assert_eq!(check::duplicates(&scene.database).await, 0, "{when}");
        }
    }
}
