//! A process whose clock is wrong: every time is the database's.

use std::process::Command;
use std::time::{Duration, Instant};

use outbox_tests::act::{Act, Does};
use outbox_tests::child::{Consume, Task};
use outbox_tests::{Process, TestBackend, check};

use crate::{Scene, show};

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_with_a_wrong_clock_is_neither_early_nor_late_on_postgres() {
    a_process_with_a_wrong_clock_is_neither_early_nor_late::<sqlx::Postgres>().await;
}

#[cfg(feature = "mysql")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_process_with_a_wrong_clock_is_neither_early_nor_late_on_mysql() {
    a_process_with_a_wrong_clock_is_neither_early_nor_late::<sqlx::MySql>().await;
}

/// SQLite's clock is that of the process, so there is nothing to compare.
async fn a_process_with_a_wrong_clock_is_neither_early_nor_late<DB: TestBackend>() {
    if Command::new("faketime").arg("--version").output().is_err() {
        show("SKIPPED: no faketime is installed, so no clock is wrong");
        return;
    }
    for offset in ["-3h", "+3h"] {
        let Some(scene) = Scene::<DB>::new().await else { return };
        scene.registered().await;
        let consume = Task::Consume(Consume { pause: 700, max_attempts: 3, ..Consume::default() });
        let mut command = Command::new("faketime");
        command.args(["-f", offset]).args(scene.command(consume));
        let wrong = Process::start(&mut command).expect("faketime is there");
        let begun = Instant::now();
        scene.tell("fails", "a", Act::first(2, Does::Fail("not yet".into())).at("left")).await;
        scene.publish(Act::record().draft("delayed").deliver_after(Duration::from_millis(700))).await;
        scene.publish(Act::record().draft("sleeps").key("b")).await;
        scene.until_done().await;
        let took = begun.elapsed();
        assert!(took >= Duration::from_millis(1_400), "{offset}: two pauses were over after {took:?}");
        assert!(took < Duration::from_secs(30), "{offset}: {took:?}");
        check::holds(&scene.database, offset).await;
        let wrong_by = |table: &str, column: &str| {
            let seconds = if DB::NAME == "MySQL" {
                format!("timestampdiff(second, {column}, utc_timestamp(6))")
            } else {
                format!("extract(epoch from {column} - now())")
            };
            format!("select count(*) from {table} where abs({seconds}) > 600")
        };
        let failed = wrong_by("outbox_attempt", "failed_at");
        assert_eq!(scene.database.number(&failed).await, 0, "{offset}: attempts are dated by the database");
        let beats = wrong_by("outbox_worker", "heartbeat_at");
        assert_eq!(scene.database.number(&beats).await, 0, "{offset}: so are heartbeats");
        let run = scene.runs.of_message("fails", "left").remove(0);
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970");
        assert!(run.at.abs_diff(now) > Duration::from_hours(2), "{offset}: the clock was not wrong");
        drop(wrong);
    }
}
