//! Operators at work while messages are being delivered.

use std::time::Duration;

use outbox::{Dead, HandlerOptions, MessageId, OnDead};
use outbox_tests::act::{Act, Does};
use outbox_tests::{TestBackend, check, eventually};

use crate::{LONG, Running, Scene, on_each_database};

on_each_database!(
    only_what_is_dead_moves,
    operators_choose_by_consumer_type_error_and_message,
    a_dry_run_changes_nothing_and_a_limit_is_kept,
    what_waited_follows_in_order,
    several_dead_of_one_key_come_back_in_order,
    operators_at_once_move_each_message_once,
    an_operator_beside_consumers_doubles_and_strands_nothing,
);

async fn idle<DB: TestBackend>(scene: &Scene<DB>, change: impl Fn(&mut HandlerOptions)) -> outbox::Report {
    scene.both(change).build().expect("complete").run_until_idle().await.expect("nothing is in its way")
}

fn ids(changed: &outbox::Changed) -> Vec<String> {
    changed.messages.iter().map(|letter| letter.message_id.clone().expect("its row is there")).collect()
}

fn id(id: &str) -> MessageId {
    MessageId::new(id).expect("valid")
}

fn ends(text: &str) -> Act {
    Act::first(1, Does::Terminal(text.into())).at("left")
}

/// What is waiting, retrying, delayed or being handled stays as it is, whatever an operator asks for.
async fn only_what_is_dead_moves<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.left_registered().await;
    scene.tell("dead", "a", ends("broken")).await;
    scene.tell("behind", "a", Act::record()).await;
    scene.tell("retrying", "b", Act::first(1, Does::Fail("later".into()))).await;
    scene.publish(Act::record().draft("delayed").deliver_after(Duration::from_hours(1))).await;
    let slow = |options: &mut HandlerOptions| options.retry = outbox::Retry::every(Duration::from_hours(1));
    let left = scene.left(slow).build().expect("complete");
    left.run_until_idle().await.expect("nothing is in its way");
    scene.tell("running", "c", Act::always(Does::Wait)).await;
    let running = Running::start(scene.left(slow));
    scene.until_run("running").await;
    let admin = scene.outbox.admin();
    for name in ["behind", "retrying", "delayed", "running"] {
        let which = Dead::all().message(&id(name));
        let changed = admin.requeue(&which).await.expect("nothing to do");
        assert_eq!((changed.messages.len(), changed.skipped), (0, 0), "{name}");
        assert_eq!(admin.discard(&which).await.expect("nothing to do").messages, [], "{name}");
    }
    if DB::NAME == "SQLite" {
        // Its one writer is the handler that waits.
        scene.runs.open();
        scene.until_effect("running").await;
    }
    let changed = admin.requeue(&Dead::all()).await.expect("requeued");
    assert_eq!(ids(&changed), ["dead"]);
    scene.until_effect("behind").await;
    scene.runs.open();
    scene.until_effect("running").await;
    running.end().await;
    assert_eq!(scene.runs.of_message("running", "left").len(), 1);
    assert_eq!(check::undone(&scene.database).await, 2, "one retries in an hour, one is delayed for as long");
    check::holds(&scene.database, "requeued").await;
}

async fn operators_choose_by_consumer_type_error_and_message<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.registered().await;
    scene.tell("one", "a", Act::first(1, Does::Terminal("no stock".into()))).await;
    scene.tell("two", "b", Act::first(1, Does::Terminal("no money, 100% sure_".into()))).await;
    let report = idle(&scene, |_| ()).await;
    assert_eq!(report.dead, 4);
    let admin = scene.outbox.admin();
    let found = async |which: Dead| admin.dead(&which).await.expect("readable").len();
    assert_eq!(found(Dead::all()).await, 4);
    assert_eq!(found(Dead::all().consumer("left")).await, 2);
    assert_eq!(found(Dead::all().consumer("nobody")).await, 0);
    assert_eq!(found(Dead::all().event_type("told")).await, 4);
    assert_eq!(found(Dead::all().event_type("told.echo")).await, 0);
    assert_eq!(found(Dead::all().message(&id("one"))).await, 2);
    assert_eq!(found(Dead::all().error("no m")).await, 2);
    // A part of the text, and no pattern.
    assert_eq!(found(Dead::all().error("100% sure_")).await, 2);
    assert_eq!(found(Dead::all().error("no%stock")).await, 0);
    assert_eq!(found(Dead::all().error("no_stock")).await, 0);
    assert_eq!(found(Dead::all().error("'; drop table outbox_parked; --")).await, 0);
    let narrow = Dead::all().consumer("right").event_type("told").error("stock").message(&id("one"));
    let changed = admin.requeue(&narrow).await.expect("requeued");
    assert_eq!(ids(&changed), ["one"]);
    let letter = &changed.messages[0];
    assert_eq!((letter.consumer.as_str(), letter.attempts), ("right", 1));
    assert_eq!((letter.event_type.as_deref(), letter.error.as_deref()), (Some("told"), Some("no stock")));
    let report = idle(&scene, |_| ()).await;
    assert_eq!((report.handled, found(Dead::all()).await), (1, 3));
    let discarded = admin.discard(&Dead::all().consumer("left")).await.expect("discarded");
    assert_eq!(ids(&discarded), ["one", "two"]);
    assert_eq!(found(Dead::all()).await, 1);
}

async fn a_dry_run_changes_nothing_and_a_limit_is_kept<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.left_registered().await;
    for number in 0..7 {
        scene.tell(&format!("dead{number}"), &format!("key {number}"), ends("broken")).await;
    }
    scene.left(|_| ()).build().expect("complete").run_until_idle().await.expect("it ran");
    let admin = scene.outbox.admin();
    let state =
        "select cast(seq as char(20)) || ' ' || cast(state as char(20)) || ' ' || cast(attempts as char(20))
                 from outbox_parked order by seq";
    let before = scene.database.texts(state).await;
    let dry = Dead::all().dry_run();
    assert_eq!(ids(&admin.requeue(&dry).await.expect("readable")).len(), 7);
    assert_eq!(
        ids(&admin.discard(&dry.clone().limit(3)).await.expect("readable")),
        ["dead0", "dead1", "dead2"]
    );
    assert_eq!(scene.database.texts(state).await, before);
    assert_eq!(admin.requeue(&Dead::all().limit(0)).await.expect("nothing").messages, []);
    assert_eq!(ids(&admin.discard(&Dead::all().limit(2)).await.expect("discarded")), ["dead0", "dead1"]);
    assert_eq!(ids(&admin.requeue(&Dead::all().limit(2)).await.expect("requeued")), ["dead2", "dead3"]);
    assert_eq!(ids(&admin.requeue(&Dead::all()).await.expect("requeued")).len(), 3);
    scene.left(|_| ()).build().expect("complete").run_until_idle().await.expect("it ran");
    assert_eq!(check::undone(&scene.database).await, 0);
    assert_eq!(scene.database.count("effects").await, 5);
}

async fn what_waited_follows_in_order<DB: TestBackend>() {
    for discard in [false, true] {
        let Some(scene) = Scene::<DB>::new().await else { return };
        scene.left_registered().await;
        scene.tell("head", "a", ends("broken")).await;
        for number in 0..4 {
            // The second of them fails once more on the way.
            let act = if number == 1 { Act::first(1, Does::Fail("not yet".into())) } else { Act::record() };
            scene.tell(&format!("behind{number}"), "a", act).await;
        }
        let running = Running::start(scene.left(|_| ()));
        scene.until_dead(1).await;
        // While more of the key is published and delivered.
        let more = async {
            for number in 4..10 {
                scene.tell(&format!("behind{number}"), "a", Act::record()).await;
            }
        };
        let admin = scene.outbox.admin();
        let change = async {
            if discard { admin.discard(&Dead::all()).await } else { admin.requeue(&Dead::all()).await }
        };
        let ((), changed) = tokio::join!(more, change);
        assert_eq!(changed.expect("changed").messages.len(), 1);
        scene.until_done().await;
        running.end().await;
        let order = scene.database.texts("select message_id from effects order by id").await;
        let mut expected: Vec<String> = (0..10).map(|number| format!("behind{number}")).collect();
        if !discard {
            expected.insert(0, "head".to_owned());
        }
        assert_eq!(order, expected);
    }
}

/// Skipped ones of a key are all dead at once; requeued together, they are a queue again.
async fn several_dead_of_one_key_come_back_in_order<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.left_registered().await;
    let skip = |options: &mut HandlerOptions| {
        options.on_dead = OnDead::Skip;
        options.retry.base = Duration::from_millis(200);
        options.retry.max = Duration::from_millis(200);
    };
    let left = || scene.left(skip).build().expect("complete");
    // The first fails again when it comes back; the second must still wait for it.
    scene.tell("first", "a", Act::first(3 + 1, Does::Fail("broken".into()))).await;
    scene.tell("second", "a", ends("broken")).await;
    scene.tell("third", "a", ends("broken")).await;
    let running = Running::start(scene.left(skip));
    scene.until_dead(3).await;
    running.end().await;
    scene.tell("fourth", "a", Act::record()).await;
    let changed = scene.outbox.admin().requeue(&Dead::all()).await.expect("requeued");
    assert_eq!(changed.messages.len(), 3);
    assert_eq!(check::stranded(&scene.database).await, 0);
    let report = left().run_until_idle().await.expect("it ran");
    assert_eq!((report.handled, report.retried), (0, 1), "the others wait for the first");
    let running = Running::start(scene.left(skip));
    scene.until_done().await;
    running.end().await;
    let order = scene.database.texts("select message_id from effects order by id").await;
    assert_eq!(order, ["first", "second", "third", "fourth"]);
}

async fn operators_at_once_move_each_message_once<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.left_registered().await;
    for number in 0..40 {
        scene.tell(&format!("dead{number}"), &format!("key {}", number % 20), ends("broken")).await;
    }
    let skip = |options: &mut HandlerOptions| options.on_dead = OnDead::Skip;
    scene.left(skip).build().expect("complete").run_until_idle().await.expect("it ran");
    assert_eq!(scene.dead().await, 40);
    let running = Running::start(scene.left(skip));
    let operators: Vec<_> = (0..4)
        .map(|number| {
            let admin = scene.outbox.admin();
            tokio::spawn(async move {
                let which = Dead::all();
                if number == 3 { admin.discard(&which).await } else { admin.requeue(&which).await }
            })
        })
        .collect();
    let (mut moved, mut discarded, mut skipped) = (0, 0, 0);
    for (number, operator) in operators.into_iter().enumerate() {
        let changed = operator.await.expect("no panic").expect("nothing is in its way");
        moved += changed.messages.len();
        skipped += changed.skipped;
        discarded += if number == 3 { changed.messages.len() } else { 0 };
    }
    assert_eq!(moved, 40, "each by one of them; {skipped} were somebody else's");
    scene.until_done().await;
    let report = running.end().await;
    let requeued = u64::try_from(40 - discarded).expect("small");
    assert_eq!((report.handled, report.dead), (requeued, 0));
    assert_eq!(scene.database.count("effects").await, 40 - i64::try_from(discarded).expect("small"));
    assert_eq!(check::duplicates(&scene.database).await, 0);
}

async fn an_operator_beside_consumers_doubles_and_strands_nothing<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.registered().await;
    let running: Vec<_> = (0..2).map(|_| Running::start(scene.both(|o| o.retry.max_attempts = 1))).collect();
    let publish = async {
        for number in 0..60 {
            let act = match number % 4 {
                0 => Act::first(2, Does::Fail("broken".into())).at("left"),
                1 => Act::first(1, Does::Terminal("broken".into())).at("right"),
                _ => Act::record(),
            };
            scene.tell(&format!("m{number}"), &format!("key {}", number % 5), act.echo()).await;
        }
    };
    let admin = scene.outbox.admin();
    let mut moved = 0;
    let operate = async {
        eventually("all effects", LONG, async || {
            assert_eq!(check::stranded(&scene.database).await, 0);
            moved += admin.requeue(&Dead::all()).await.expect("requeued").messages.len();
            scene.database.count("effects").await == 60 + 60 + 60
        })
        .await;
    };
    tokio::join!(publish, operate);
    scene.until_done().await;
    for worker in running {
        worker.end().await;
    }
    check::holds(&scene.database, "all done").await;
    assert_eq!(moved, 15 * 2 + 15, "each death was one requeue");
}
