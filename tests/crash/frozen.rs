//! Processes that stand still with everything that they hold, and wake up late.

use outbox_tests::act::{Act, Does};
use outbox_tests::child::{Consume, Task};
use outbox_tests::{check, eventually};

use crate::{LONG, Scene};

/// A transaction may be left alone for a second.
fn consume() -> Task {
    Task::Consume(Consume { timeout: 700, idle_grace: 300, ..Consume::default() })
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_stops_in_a_handler_keeps_nothing_on_postgres() {
    a_process_that_stops_in_a_handler_keeps_nothing_and_its_late_work_does_nothing::<sqlx::Postgres>().await;
}

#[cfg(feature = "mysql")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_stops_in_a_handler_keeps_nothing_on_mysql() {
    a_process_that_stops_in_a_handler_keeps_nothing_and_its_late_work_does_nothing::<sqlx::MySql>().await;
}

#[cfg(any(feature = "postgres", feature = "mysql"))]
async fn a_process_that_stops_in_a_handler_keeps_nothing_and_its_late_work_does_nothing<
    DB: outbox_tests::TestBackend,
>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.registered().await;
    let frozen = scene.spawn(consume(), None);
    // It waits without a statement, until both it and the next one may go on.
    scene.tell("held", "a", Act::first(1, Does::Wait).at("left").echo()).await;
    scene.until_run("held").await;
    frozen.stop().expect("a child can be stopped");
    for number in 0..3 {
        scene.tell(&format!("behind{number}"), "a", Act::record()).await;
    }
    let others = scene.spawn(consume(), None);
    scene.until_done().await;
    check::holds(&scene.database, "the others went on").await;
    let before = (scene.database.count("effects").await, scene.database.count("outbox_message").await);
    assert_eq!(before, (4 + 4 + 1, 5));

    scene.runs.open();
    frozen.resume().expect("a child can go on");
    // It works again, and alone.
    let pid = frozen.id();
    drop(others);
    scene.tell("after", "a", Act::record()).await;
    scene.until_done().await;
    assert_eq!(scene.runs.of_message("after", "left")[0].pid, pid, "{}", scene.log());
    check::holds(&scene.database, "all done").await;
    let after = (scene.database.count("effects").await, scene.database.count("outbox_message").await);
    assert_eq!(after, (before.0 + 2, before.1 + 1), "what it had held was not done again");
    assert_eq!(scene.effects_of("held-echo").await, 1);
}

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_stops_while_idle_is_in_nobodys_way_on_postgres() {
    idle::<sqlx::Postgres>().await;
}

#[cfg(feature = "mysql")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_stops_while_idle_is_in_nobodys_way_on_mysql() {
    idle::<sqlx::MySql>().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_that_stops_while_idle_is_in_nobodys_way_on_sqlite() {
    idle::<sqlx::Sqlite>().await;
}

async fn idle<DB: outbox_tests::TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.registered().await;
    let frozen = scene.spawn(consume(), None);
    let others = scene.spawn(consume(), None);
    eventually("both to be alive", LONG, async || scene.database.count("outbox_worker").await == 2).await;
    scene.tell("first", "a", Act::record()).await;
    scene.until_done().await;
    scene.stop_between_writes(&frozen).await;
    for number in 0..10 {
        scene.tell(&format!("m{number}"), &format!("key {}", number % 3), Act::record()).await;
    }
    let silent = format!("select count(*) from outbox_worker where pid = {}", frozen.id());
    scene.until_done().await;
    eventually("it to be taken for dead", LONG, async || scene.database.number(&silent).await == 0).await;
    frozen.resume().expect("a child can go on");
    drop(others);
    scene.tell("after", "a", Act::record()).await;
    scene.until_done().await;
    eventually("it to be alive again", LONG, async || scene.database.number(&silent).await == 1).await;
    check::holds(&scene.database, "all done").await;
    assert_eq!(scene.database.count("effects").await, 24);
}
