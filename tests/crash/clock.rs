//! A process whose clock is wrong: every time is the database's.

use std::process::Command;
use std::time::{Duration, Instant};

use outbox_tests::act::{Act, Does};
use outbox_tests::child::{Consume, Task};
use outbox_tests::{Process, TestBackend, check, eventually};

use crate::external::{LEASE, calling, lease_end};
use crate::{LONG, Scene, show};

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

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_are_over_when_the_database_says_so_on_postgres() {
    leases_are_over_when_the_database_says_so::<sqlx::Postgres>().await;
}

#[cfg(feature = "mysql")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leases_are_over_when_the_database_says_so_on_mysql() {
    leases_are_over_when_the_database_says_so::<sqlx::MySql>().await;
}

/// A process whose clock is wrong by so much; `None`, and said, where there is nothing to make it wrong with.
fn wrong<DB: TestBackend>(scene: &Scene<DB>, offset: &str, task: Task) -> Option<Process> {
    // The program itself would stand between us and the process, which would outlive it.
    let asked = Command::new("faketime").args(["-f", offset, "printenv", "LD_PRELOAD"]).output();
    let Ok(library) = asked else {
        show("SKIPPED: no faketime is installed, so no clock is wrong");
        return None;
    };
    let library = String::from_utf8(library.stdout).expect("a path is text");
    let [program, orders] = scene.command(task);
    let mut command = Command::new(program);
    command.arg(orders).env("LD_PRELOAD", library.trim()).env("FAKETIME", offset);
    command.env("DONT_FAKE_MONOTONIC", "1");
    Some(Process::start(&mut command).expect("the child was built"))
}

async fn leases_are_over_when_the_database_says_so<DB: TestBackend>() {
    for offset in ["-3h", "+3h"] {
        let Some(scene) = Scene::<DB>::new().await else { return };
        scene.calls_registered().await;
        let Some(mut first) = wrong(&scene, offset, calling(100)) else { return };
        let runs = |id: &str| scene.runs.of_message(id, "calls").len();
        scene.tell("held", "held", Act::first(1, Does::Hang)).await;
        eventually("a call", LONG, async || runs("held") == 1).await;
        let begun = lease_end(&scene).await;

        // One of each side beside it, until it has renewed its lease for long: they call others and leave this one alone.
        let other = if offset == "-3h" { "+3h" } else { "-3h" };
        let Some(_other) = wrong(&scene, other, calling(100)) else { return };
        let _right = scene.spawn(calling(100), None);
        scene.tell("free", "free", Act::record()).await;
        eventually("a call of the others", LONG, async || runs("free") == 1).await;
        eventually("renewals", LONG, async || lease_end(&scene).await >= begun + LEASE * 2).await;
        assert_eq!(runs("held"), 1, "{offset}: called again while its lease was renewed");

        let end = lease_end(&scene).await;
        first.kill().expect("a child can be killed");
        eventually("the takeover", LONG, async || runs("held") == 2).await;
        let now = scene.database.number(now::<DB>()).await.unsigned_abs();
        assert!(Duration::from_micros(now) >= end, "{offset}: taken over too early");
        scene.until_done().await;
    }
}

/// The time since 1970, in microseconds.
fn now<DB: TestBackend>() -> &'static str {
    match DB::NAME {
        "MySQL" => "select timestampdiff(microsecond, '1970-01-01', utc_timestamp(6))",
        _ => "select (extract(epoch from clock_timestamp()) * 1000000)::bigint",
    }
}

/// SQLite's clock is that of the process, so there is nothing to compare.
async fn a_process_with_a_wrong_clock_is_neither_early_nor_late<DB: TestBackend>() {
    for offset in ["-3h", "+3h"] {
        let Some(scene) = Scene::<DB>::new().await else { return };
        scene.registered().await;
        let consume = Task::Consume(Consume { pause: 700, max_attempts: 3, ..Consume::default() });
        let Some(wrong) = wrong(&scene, offset, consume) else { return };
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
