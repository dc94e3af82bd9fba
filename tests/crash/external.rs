//! Callers that die, stand still or are killed again and again: every message is called, in the order of its key, by one
//! process at a time, and a second time only where the end of the first call was not settled.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use outbox::Dead;
use outbox_tests::act::{Act, Does, Run};
use outbox_tests::child::{Call, Task};
use outbox_tests::{Process, TestBackend, check, eventually};

use crate::kill::dies;
use crate::{LONG, Scene, on_each_database};

on_each_database!(
    a_caller_that_dies_anywhere_leaves_nothing_uncalled,
    what_was_under_way_is_taken_over_when_its_lease_is_over_and_not_before,
    a_call_that_kills_its_process_is_dead_after_its_attempts,
    a_caller_that_stood_still_for_longer_than_its_lease_writes_nothing,
    a_caller_that_is_asked_to_end_gives_its_lanes_back,
    callers_that_are_killed_again_and_again_call_everything_in_order,
);

/// Where a caller can die, and at which pass.
const CALLING: &[&str] = &[
    "claimed lane:1",
    "leased:1",
    "leased:3",
    "call returned:1",
    "call returned:4",
    "call settled:1",
    "call settled:4",
    "call committed:1",
    "call committed:5",
];

pub(crate) const LEASE: Duration = Duration::from_millis(1_500);

pub(crate) fn calling(max_attempts: u32) -> Task {
    let lease = u64::try_from(LEASE.as_millis()).expect("small");
    Task::Call(Call { lease, max_attempts, pause: 100, group: 3 })
}

/// Messages that were called after a later one of their key: their ids are the key and a number.
fn out_of_order(runs: &[Run]) -> Vec<String> {
    let mut last: BTreeMap<&str, usize> = BTreeMap::new();
    let mut found = Vec::new();
    for run in runs {
        let Some((key, number)) = run.message_id.split_once('-') else { continue };
        let number = number.parse().expect("a number");
        if last.insert(key, number).is_some_and(|before| before > number) {
            found.push(run.message_id.clone());
        }
    }
    found
}

async fn handled<DB: TestBackend>(scene: &Scene<DB>) -> i64 {
    scene.database.number("select count(*) from outbox_inbox where claimed_by is null").await
}

async fn leased<DB: TestBackend>(scene: &Scene<DB>) -> i64 {
    scene.database.number("select count(*) from outbox_lane where leased_by is not null").await
}

async fn a_caller_that_dies_anywhere_leaves_nothing_uncalled<DB: TestBackend>() {
    for point in CALLING {
        let Some(scene) = Scene::<DB>::new().await else { return };
        scene.calls_registered().await;
        for number in 0..4 {
            for key in ["a", "b", "c"] {
                let act = match (key, number) {
                    ("a", 0) => Act::first(1, Does::Fail("not yet".into())),
                    ("b", 1) => Act::first(1, Does::Panic("not yet".into())),
                    ("c", 2) => Act::first(1, Does::Snooze(50)),
                    _ => Act::record(),
                };
                scene.tell(&format!("{key}-{number}"), key, act).await;
            }
        }
        dies(scene.spawn(calling(100), Some(point)), point).await;
        assert_eq!(check::stranded(&scene.database).await, 0, "{point}");
        let first = scene.runs.all();
        let mut survivor = scene.spawn(calling(100), None);
        scene.until_done().await;
        let runs = scene.runs.all();
        assert_eq!(handled(&scene).await, 12, "{point}\n{}", scene.log());
        assert_eq!(out_of_order(&runs), Vec::<String>::new(), "{point}: {runs:?}");
        // Three are called twice for their own sake, and what was under way at the death is called again.
        let again = runs.len() - 12 - 3;
        assert!(
            again <= 3 && runs.len() >= 15,
            "{point}: {} runs, {} before the death",
            runs.len(),
            first.len()
        );
        assert_eq!(scene.dead().await, 0, "{point}");
        assert!(survivor.terminate().expect("a child can be terminated").success());
        assert_eq!(leased(&scene).await, 0, "{point}");
    }
}

/// When the lease ends that is there, since 1970, by the database's clock.
pub(crate) async fn lease_end<DB: TestBackend>(scene: &Scene<DB>) -> Duration {
    let micros = match DB::NAME {
        "SQLite" => "leased_until",
        "MySQL" => "timestampdiff(microsecond, '1970-01-01', leased_until)",
        _ => "(extract(epoch from leased_until) * 1000000)::bigint",
    };
    let sql = format!("select max({micros}) from outbox_lane where leased_by is not null");
    Duration::from_micros(scene.database.number(&sql).await.unsigned_abs())
}

async fn what_was_under_way_is_taken_over_when_its_lease_is_over_and_not_before<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.calls_registered().await;
    let mut first = scene.spawn(calling(100), None);
    scene.tell("held", "held", Act::first(1, Does::Hang)).await;
    let runs = |id: &str| scene.runs.of_message(id, "calls");
    eventually("a call", LONG, async || !runs("held").is_empty()).await;
    // It may be renewed until the kill, and ends later then.
    let end = lease_end(&scene).await;
    let _second = scene.spawn(calling(100), None);
    first.kill().expect("a child can be killed");
    // Others are not held up by it.
    scene.tell("free", "free", Act::record()).await;
    eventually("a call of the survivor", LONG, async || !runs("free").is_empty()).await;
    eventually("the takeover", LONG, async || runs("held").len() == 2).await;
    let taken = runs("held")[1].at;
    assert!(taken >= end, "taken over {:?} too early", end.saturating_sub(taken));
    scene.until_done().await;
    let attempts: Vec<u32> = runs("held").iter().map(|run| run.attempt).collect();
    assert_eq!((attempts, handled(&scene).await), (vec![1, 2], 2));
}

async fn a_call_that_kills_its_process_is_dead_after_its_attempts<DB: TestBackend>() {
    const ATTEMPTS: u32 = 3;
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.calls_registered().await;
    for number in 0..10 {
        scene.tell(&format!("early{number}-0"), &format!("early{number}"), Act::record()).await;
    }
    scene.tell("killer-0", "killer", Act::always(Does::Abort)).await;
    scene.tell("killer-1", "killer", Act::record()).await;
    for number in 0..10 {
        scene.tell(&format!("late{number}-0"), &format!("late{number}"), Act::record()).await;
    }
    let mut processes: Vec<Process> = (0..2).map(|_| scene.spawn(calling(ATTEMPTS), None)).collect();
    eventually("the killer to be dead, and its neighbours called", LONG, async || {
        for process in &mut processes {
            if process.ended().expect("the system knows its processes").is_some() {
                *process = scene.spawn(calling(ATTEMPTS), None);
            }
        }
        scene.dead().await == 1 && check::undone(&scene.database).await == 2
    })
    .await;
    let kills = scene.runs.of_message("killer-0", "calls");
    let attempts: Vec<u32> = kills.iter().map(|run| run.attempt).collect();
    assert_eq!((attempts, handled(&scene).await), (vec![1, 2, 3], 20));
    let letters = scene.outbox.admin().dead(&Dead::all()).await.expect("readable");
    assert_eq!((letters[0].message_id.as_deref(), letters[0].attempts), (Some("killer-0"), ATTEMPTS));
    let id = outbox::MessageId::new("killer-0").expect("valid");
    let recorded = scene.outbox.admin().attempts(&id, "calls").await.expect("readable");
    let numbers: Vec<u32> = recorded.iter().map(|attempt| attempt.number).collect();
    assert_eq!(numbers, [1, 2, 3], "each call can be read: {recorded:?}");
}

async fn a_caller_that_stood_still_for_longer_than_its_lease_writes_nothing<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.calls_registered().await;
    let mut first = scene.spawn(calling(100), None);
    scene.tell("held-0", "held", Act::first(1, Does::Wait)).await;
    scene.tell("held-1", "held", Act::record()).await;
    let runs = |id: &str| scene.runs.of_message(id, "calls");
    eventually("a call", LONG, async || !runs("held-0").is_empty()).await;
    scene.stop_between_writes(&first).await;
    let mut second = scene.spawn(calling(100), None);
    scene.until_done().await;
    assert_eq!((runs("held-0").len(), runs("held-1").len()), (2, 1));
    first.resume().expect("a child can be resumed");
    scene.runs.open();
    eventually("the first to notice", LONG, async || scene.log().contains("lease lost")).await;
    assert_eq!((handled(&scene).await, check::undone(&scene.database).await), (2, 0));
    // It goes on with what comes next.
    scene.tell("held-2", "held", Act::record()).await;
    scene.until_done().await;
    for process in [&mut first, &mut second] {
        assert!(process.terminate().expect("a child can be terminated").success());
    }
    assert_eq!((out_of_order(&scene.runs.all()), leased(&scene).await), (Vec::new(), 0));
}

async fn a_caller_that_is_asked_to_end_gives_its_lanes_back<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.calls_registered().await;
    let hour = Task::Call(Call { lease: 3_600_000, max_attempts: 100, pause: 100, group: 100 });
    let mut first = scene.spawn(hour.clone(), None);
    for number in 0..5 {
        scene.tell(&format!("m-{number}"), "m", Act::first(1, Does::Wait)).await;
    }
    eventually("a call", LONG, async || !scene.runs.of_message("m-0", "calls").is_empty()).await;
    let ended = std::thread::spawn(move || first.terminate());
    eventually("the request to be heard", LONG, async || scene.log().contains("stopping")).await;
    scene.runs.open();
    assert!(ended.join().expect("no panic").expect("a child can be terminated").success());
    assert_eq!((leased(&scene).await, handled(&scene).await), (0, 1));
    let _second = scene.spawn(hour, None);
    scene.until_done().await;
    let attempts: Vec<u32> = scene.runs.all().iter().map(|run| run.attempt).collect();
    assert_eq!(attempts, [1; 5], "what was not called has had no attempt");
}

async fn callers_that_are_killed_again_and_again_call_everything_in_order<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.calls_registered().await;
    let mut processes: Vec<Process> = (0..3).map(|_| scene.spawn(calling(1_000), None)).collect();
    let (begun, mut kills, mut number) = (Instant::now(), 0, 0);
    // On a busy machine it takes longer until something has happened.
    while begun.elapsed() < Duration::from_secs(10) || kills < 4 {
        for key in 0..12 {
            let act = if fastrand::u8(0..10) == 0 {
                Act::first(1, Does::Fail("as the dice fell".into()))
            } else {
                Act::record()
            };
            scene.tell(&format!("key{key}-{number}"), &format!("key {key}"), act).await;
        }
        number += 1;
        if number % 4 == 0 {
            let process = &mut processes[fastrand::usize(0..3)];
            process.kill().expect("a child can be killed");
            *process = scene.spawn(calling(1_000), None);
            kills += 1;
        }
        assert_eq!(check::stranded(&scene.database).await, 0, "stranded while under attack");
    }
    eventually("everything to be called", LONG * 2, async || check::undone(&scene.database).await == 0).await;
    let (runs, messages) = (scene.runs.all(), i64::from(number * 12));
    crate::show(&format!(
        "{}: {messages} messages, {} calls, {kills} kills, {} lost leases",
        DB::NAME,
        runs.len(),
        scene.log().matches("lease lost").count()
    ));
    assert_eq!((handled(&scene).await, scene.database.count("outbox_message").await), (messages, messages));
    let mut called: Vec<_> = runs.iter().map(|run| run.message_id.as_str()).collect();
    called.sort_unstable();
    called.dedup();
    assert_eq!(i64::try_from(called.len()).expect("small"), messages, "every message was called");
    assert_eq!(out_of_order(&runs), Vec::<String>::new());
}
