//! Handlers that hang, panic, break their transaction or lose it.

use std::time::{Duration, Instant};

use outbox::{Dead, HandlerOptions, MessageId};
use outbox_tests::act::{Act, Does};
use outbox_tests::{TestBackend, check, eventually};

use crate::{LONG, Running, Scene, on_each_database};

on_each_database!(
    a_statement_that_runs_at_the_timeout_is_cancelled,
    a_statement_that_a_handler_left_behind_counts_as_its_own_time,
    a_handler_that_never_returns_is_ended,
    panics_leave_room_for_the_others,
    a_failed_statement_that_was_swallowed_is_a_failed_attempt,
    what_a_handler_sets_on_its_connection_does_not_stop_its_lane,
    a_shutdown_does_not_wait_for_a_statement_beyond_its_grace,
);

/// A query that takes minutes.
fn endless<DB: TestBackend>() -> String {
    match DB::NAME {
        "SQLite" => {
            "with recursive n(i) as (values (1) union all select i + 1 from n where i < 100000000000) \
                     select cast(max(i) as text) from n"
                .to_owned()
        }
        "MySQL" => "select cast(sleep(300) as char)".to_owned(),
        _ => "select pg_sleep(300)::text".to_owned(),
    }
}

fn short(options: &mut HandlerOptions) {
    options.timeout = Duration::from_millis(200);
}

async fn a_statement_that_runs_at_the_timeout_is_cancelled<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.left_registered().await;
    // An application with one connection: the consumers have their own.
    let small = outbox::Outbox::new(scene.database.another_pool(1).await);
    let consumers = small.consumers().handler::<outbox_tests::act::Left>().options("left", |options| {
        crate::at_once(options);
        short(options);
    });
    let config = outbox::ConsumerConfig { executors: 1, ..outbox::ConsumerConfig::default() };
    let running = Running::start(consumers.config(config).state(scene.runs.clone()));
    let begun = Instant::now();
    scene.tell("slow", "a", Act::first(1, Does::Query(endless::<DB>()))).await;
    scene.tell("behind", "a", Act::record()).await;
    scene.tell("beside", "c", Act::record()).await;
    scene.until_effect("beside").await;
    scene.until_done().await;
    assert!(begun.elapsed() < Duration::from_secs(20), "done after {:?}", begun.elapsed());
    running.end().await;
    check::holds(&scene.database, "all done").await;
    let runs: Vec<u32> = scene.runs.of_message("slow", "left").iter().map(|run| run.attempt).collect();
    assert_eq!(runs, [1, 2], "the timeout was an attempt");
    let id = MessageId::new("slow").expect("valid");
    let attempts = scene.outbox.admin().attempts(&id, "left").await.expect("readable");
    assert_eq!(attempts.len(), 1);
    assert!(attempts[0].error.contains("did not finish within 200ms"), "{attempts:?}");
    assert!(attempts[0].duration < Duration::from_secs(5), "{attempts:?}");
}

async fn a_statement_that_a_handler_left_behind_counts_as_its_own_time<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.left_registered().await;
    for id in ["before", "leaves", "next"] {
        let act = match id {
            "leaves" => Act::always(Does::Leave(endless::<DB>(), 50)),
            _ => Act::record(),
        };
        scene.tell(id, id, act).await;
    }
    // Where a connection has to be ended, another executor may take the lane before the failure is recorded, and run it once more.
    let config = outbox::ConsumerConfig { executors: 1, ..outbox::ConsumerConfig::default() };
    let running = Running::start(
        scene
            .left(|options| {
                short(options);
                options.retry.max_attempts = 1;
            })
            .config(config),
    );
    scene.until_dead(1).await;
    scene.until_effect("before").await;
    scene.until_effect("next").await;
    let report = running.end().await;
    assert_eq!((report.handled, report.dead, report.retried), (2, 1, 0), "the neighbours had no failure");
    check::holds(&scene.database, "one is dead").await;
    let id = MessageId::new("leaves").expect("valid");
    let attempts = scene.outbox.admin().attempts(&id, "left").await.expect("readable");
    assert_eq!(attempts.len(), 1);
    assert!(attempts[0].error.contains("still ran when the handler's 200ms were over"), "{attempts:?}");
}

async fn a_handler_that_never_returns_is_ended<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.left_registered().await;
    // Where a connection has to be ended, another executor may take the lane before the failure is recorded, and run it once more.
    let executors = if DB::NAME == "MySQL" { 1 } else { outbox::ConsumerConfig::default().executors };
    let config = outbox::ConsumerConfig { executors, ..outbox::ConsumerConfig::default() };
    let running = Running::start(scene.left(short).config(config));
    scene.tell("hangs", "a", Act::always(Does::Hang)).await;
    scene.tell("beside", "c", Act::record()).await;
    scene.until_effect("beside").await;
    scene.until_dead(1).await;
    let report = running.end().await;
    assert_eq!((report.dead, report.retried), (1, 2));
    assert_eq!(scene.runs.of_message("hangs", "left").len(), 3);
    check::holds(&scene.database, "one is dead").await;
}

async fn panics_leave_room_for_the_others<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.registered().await;
    for number in 0..100 {
        let act = Act::always(Does::Panic("over".into())).at("left");
        scene.publish(act.draft(&format!("bad{number}"))).await;
        scene.publish(Act::record().draft(&format!("good{number}"))).await;
    }
    let running = Running::start(scene.left(|options| options.retry.max_attempts = 1));
    scene.until_dead(100).await;
    let good = "select count(*) from effects where message_id like 'good%' and consumer = 'left'";
    eventually("the good ones", LONG, async || scene.database.number(good).await == 100).await;
    let report = running.end().await;
    assert_eq!((report.handled, report.dead), (100, 100));
    check::holds(&scene.database, "half of them are dead").await;
    let letters = scene.outbox.admin().dead(&Dead::all().error("the handler panicked: as told: over")).await;
    assert_eq!(letters.expect("readable").len(), 100);
}

async fn a_failed_statement_that_was_swallowed_is_a_failed_attempt<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.left_registered().await;
    let running = Running::start(scene.left(|_| ()));
    scene.tell("swallows", "a", Act::first(1, Does::Swallow("select no_such_function()".into()))).await;
    scene.tell("behind", "a", Act::record()).await;
    scene.until_done().await;
    let report = running.end().await;
    check::holds(&scene.database, "all done").await;
    // The transactions of the others survive a failed statement.
    let failed = u64::from(DB::NAME == "PostgreSQL");
    assert_eq!((report.handled, report.retried), (2, failed));
}

/// Whatever a handler sets for its transaction may hit the library's own statements behind it: that is a failed
/// attempt like any other, and the message does not keep its lane for ever.
async fn what_a_handler_sets_on_its_connection_does_not_stop_its_lane<DB: TestBackend>() {
    // And whether it always hits.
    let settings: &[(&str, bool)] = match DB::NAME {
        "SQLite" => &[("pragma query_only = on", true)],
        "MySQL" => &[
            // Refused, and returned as the handler's error.
            ("set transaction read only", true),
            ("set session transaction read only", false),
            ("set session innodb_lock_wait_timeout = 1", false),
            ("set session sql_mode = 'ansi_quotes,no_backslash_escapes'", false),
            ("set names latin1", false),
            ("use information_schema", false),
            ("set autocommit = 0", false),
            ("create temporary table outbox_delivery (seq bigint)", false),
        ],
        _ => &[
            ("set transaction read only", false),
            ("set local role pg_monitor", true),
            ("set role pg_monitor", true),
            ("set local statement_timeout = 1", false),
            ("set statement_timeout = 1", false),
            ("set local search_path = nowhere", false),
            ("create temporary table outbox_delivery (seq bigint)", false),
        ],
    };
    for (setting, hits) in settings {
        let Some(scene) = Scene::<DB>::new().await else { return };
        scene.left_registered().await;
        // A second executor might take the lane that was lost and be done before the failure is recorded.
        let config = outbox::ConsumerConfig { executors: 1, ..outbox::ConsumerConfig::default() };
        // In a group nobody could tell whose doing it was: the messages would come back one by one, and this one without
        // what it does the first time only.
        let running = Running::start(scene.left(|options| options.group = 1).config(config));
        scene.tell("sets", "a", Act::first(1, Does::Execute((*setting).to_owned()))).await;
        for number in 0..3 {
            scene.tell(&format!("behind{number}"), "a", Act::record()).await;
        }
        eventually(setting, LONG, async || check::undone(&scene.database).await == 0).await;
        let report = running.end().await;
        check::holds(&scene.database, setting).await;
        assert_eq!((report.handled, report.dead), (4, 0), "{setting}");
        assert!(report.retried == 1 || (!hits && report.retried == 0), "{setting}: {report:?}");
    }
}

async fn a_shutdown_does_not_wait_for_a_statement_beyond_its_grace<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.left_registered().await;
    let config = outbox::ConsumerConfig {
        shutdown_grace: Duration::from_millis(200),
        poll_interval: Duration::from_millis(20),
        ..outbox::ConsumerConfig::default()
    };
    let running = Running::start(scene.left(|_| ()).config(config));
    scene.tell("slow", "a", Act::first(1, Does::Query(endless::<DB>()))).await;
    scene.until_run("slow").await;
    let begun = Instant::now();
    let ended = tokio::time::timeout(LONG, running.end()).await;
    assert!(ended.is_ok(), "the shutdown must not wait for the statement");
    assert!(begun.elapsed() < Duration::from_secs(10), "ended after {:?}", begun.elapsed());
    // A server looks twice a second whether its client is still there.
    let running = Running::start(scene.left(|_| ()));
    scene.until_done().await;
    assert_eq!(running.end().await.handled, 1);
    check::holds(&scene.database, "all done").await;
}

/// Conflicts need a database with several writers.
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod conflicts {
    use super::*;

    const TABLE: &str =
        "create table fight (id int not null primary key); insert into fight (id) values (1), (2)";

    /// Locks two things in an order, long enough apart for the other to do the same.
    fn fight<DB: TestBackend>(first: &str, second: &str) -> Does {
        Does::Query(if DB::NAME == "MySQL" {
            let order = if first < second { "asc" } else { "desc" };
            format!(
                "select cast(sleep(0.05) as char) from fight force index (primary) where id > 0
                 order by id {order} for update"
            )
        } else {
            format!(
                "with first as (select pg_advisory_xact_lock(hashtext('{first}'))),
                      pause as (select pg_sleep(0.05) from first)
                 select pg_advisory_xact_lock(hashtext('{second}'))::text from pause"
            )
        })
    }

    async fn the_loser_of_a_deadlock_is_delivered_without_an_attempt<DB: TestBackend>() {
        let Some(scene) = Scene::<DB>::new().await else { return };
        scene.database.execute(TABLE).await;
        scene.registered().await;
        for number in 0..6 {
            let fights = |first, second| Act::first(20, fight::<DB>(first, second));
            scene.tell(&format!("x{number}"), &format!("x{number}"), fights("x", "y")).await;
            scene.tell(&format!("y{number}"), &format!("y{number}"), fights("y", "x")).await;
        }
        let running = Running::start(scene.left(|options| options.retry.max_attempts = 1));
        let done = "select count(*) from effects where consumer = 'left'";
        eventually("all effects", LONG, async || scene.database.number(done).await == 12).await;
        let report = running.end().await;
        assert_eq!(report.dead, 0, "with one attempt each, none was counted");
        assert!(report.retried > 0, "some have lost");
        assert!(scene.runs.all().iter().all(|run| run.attempt == 1));
    }

    async fn a_lock_that_never_comes_is_an_attempt_only_after_many_tries<DB: TestBackend>() {
        let Some(scene) = Scene::<DB>::new().await else { return };
        scene.database.execute(TABLE).await;
        scene.registered().await;
        let (hold, sql) = if DB::NAME == "MySQL" {
            ("update fight set id = 7 where id = 1", "select id from fight where id = 1 for update nowait")
        } else {
            (
                "lock table business in access exclusive mode",
                "set local lock_timeout = 5; insert into business (message_id) values ('never')",
            )
        };
        let mut holder = scene.database.pool().begin().await.expect("begun");
        DB::execute(&mut holder, hold).await.expect("nobody uses it");
        scene.tell("endless", "a", Act::always(Does::Execute(sql.into())).at("left")).await;
        scene.tell("beside", "c", Act::record()).await;
        let running = Running::start(scene.left(|options| options.retry.max_attempts = 2));
        scene.until_dead(1).await;
        running.end().await;
        let runs = scene.runs.of_message("endless", "left").len();
        assert_eq!(runs, 20, "ten tries are one attempt, and there were two");
        assert_eq!(scene.effects_of("beside").await, 1);
        drop(holder);
        let changed = scene.outbox.admin().requeue(&Dead::all()).await.expect("requeued");
        assert_eq!(changed.messages.len(), 1);
    }

    macro_rules! on_servers {
        ($feature:literal $module:ident $database:ident) => {
            #[cfg(feature = $feature)]
            mod $module {
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn the_loser_of_a_deadlock_is_delivered_without_an_attempt() {
                    super::the_loser_of_a_deadlock_is_delivered_without_an_attempt::<sqlx::$database>().await;
                }

                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn a_lock_that_never_comes_is_an_attempt_only_after_many_tries() {
                    super::a_lock_that_never_comes_is_an_attempt_only_after_many_tries::<sqlx::$database>()
                        .await;
                }
            }
        };
    }
    on_servers!("postgres" postgres Postgres);
    on_servers!("mysql" mysql MySql);
}
