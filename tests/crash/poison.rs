//! Messages that kill their process.

use std::time::{Duration, Instant};

use outbox::Dead;
use outbox_tests::act::{Act, Does};
use outbox_tests::child::{Consume, Task};
use outbox_tests::{Process, TestBackend, check, eventually};

use crate::{LONG, Scene, on_each_database};

on_each_database!(
    a_message_that_kills_its_process_is_dead_after_its_attempts,
    a_message_that_kills_every_process_of_a_fleet_is_dead_after_its_attempts,
    a_survivor_takes_over_from_a_process_that_was_killed,
    what_was_being_handled_when_a_process_was_killed_is_not_blamed_twice,
);

const ATTEMPTS: u32 = 3;

/// Starts processes again that have died, as an orchestrator does.
struct Supervisor {
    task: Task,
    processes: Vec<Process>,
    deaths: usize,
}

impl Supervisor {
    fn start<DB: TestBackend>(scene: &Scene<DB>, count: usize) -> Self {
        let task = Task::Consume(Consume { max_attempts: ATTEMPTS, ..Consume::default() });
        let processes = (0..count).map(|_| scene.spawn(task.clone(), None)).collect();
        Self { task, processes, deaths: 0 }
    }

    fn look<DB: TestBackend>(&mut self, scene: &Scene<DB>) {
        for process in &mut self.processes {
            if process.ended().expect("the system knows its processes").is_some() {
                self.deaths += 1;
                *process = scene.spawn(self.task.clone(), None);
            }
        }
    }
}

async fn kills<DB: TestBackend>(processes: usize) {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.registered().await;
    for number in 0..10 {
        scene.tell(&format!("early{number}"), &format!("key {number}"), Act::record()).await;
    }
    scene.tell("killer", "killed", Act::always(Does::Abort).at("left")).await;
    for number in 0..3 {
        scene.tell(&format!("behind{number}"), "killed", Act::record()).await;
    }
    for number in 0..10 {
        scene.tell(&format!("late{number}"), &format!("key {number}"), Act::record()).await;
    }
    let mut supervisor = Supervisor::start(&scene, processes);
    eventually("the killer to be dead, and its neighbours handled", LONG, async || {
        supervisor.look(&scene);
        scene.dead().await == 1 && check::undone(&scene.database).await == 1 + 3
    })
    .await;
    check::holds(&scene.database, "the killer is dead").await;

    let kills = scene.runs.of_message("killer", "left").len();
    let bound = usize::try_from(ATTEMPTS).expect("small") + processes + 1;
    let allowed = "alone, one surprise a process, and one in a group that is watched";
    assert!(kills <= bound, "{kills} runs, where are allowed: {ATTEMPTS} {allowed}");
    assert_eq!(supervisor.deaths, kills, "each run was a death, and nothing else was");
    let letters = scene.outbox.admin().dead(&Dead::all()).await.expect("readable");
    assert_eq!((letters[0].message_id.as_deref(), letters[0].attempts), (Some("killer"), ATTEMPTS));
    let reason = letters[0].error.clone().unwrap_or_default();
    assert!(reason.contains("worker was lost"), "{reason}");
    let id = outbox::MessageId::new("killer").expect("valid");
    let attempts = scene.outbox.admin().attempts(&id, "left").await.expect("readable");
    let numbers: Vec<u32> = attempts.iter().map(|attempt| attempt.number).collect();
    assert_eq!(numbers, [1, 2, 3], "each run that was counted can be read: {attempts:?}");

    // The other consumer is done with all of it, and the key goes on once a person has decided.
    assert_eq!(scene.effects_of("killer").await, 1);
    scene.outbox.admin().discard(&Dead::all()).await.expect("discarded");
    eventually("what waited", LONG, async || {
        supervisor.look(&scene);
        check::undone(&scene.database).await == 0
    })
    .await;
    assert_eq!(supervisor.deaths, kills);
    assert_eq!(check::order_violations(&scene.database).await, 0);
}

async fn a_message_that_kills_its_process_is_dead_after_its_attempts<DB: TestBackend>() {
    kills::<DB>(1).await;
}

async fn a_message_that_kills_every_process_of_a_fleet_is_dead_after_its_attempts<DB: TestBackend>() {
    kills::<DB>(2).await;
}

async fn a_survivor_takes_over_from_a_process_that_was_killed<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.registered().await;
    let consume = Task::Consume(Consume { max_attempts: ATTEMPTS, ..Consume::default() });
    let mut first = scene.spawn(consume.clone(), None);
    scene.tell("held", "a", Act::first(1, Does::Hang).at("left")).await;
    scene.until_run("held").await;
    let _second = scene.spawn(consume, None);
    let killed = Instant::now();
    first.kill().expect("a child can be killed");
    for number in 0..5 {
        scene.tell(&format!("behind{number}"), "a", Act::record()).await;
    }
    scene.until_done().await;
    assert!(killed.elapsed() < Duration::from_secs(20), "taken over after {:?}", killed.elapsed());
    check::holds(&scene.database, "taken over").await;
    assert_eq!(scene.database.count("effects").await, 12);
}

/// A kill is not a failure of what ran: it is run alone once, succeeds, and then nothing is slow any more.
async fn what_was_being_handled_when_a_process_was_killed_is_not_blamed_twice<DB: TestBackend>() {
    let Some(scene) = Scene::<DB>::new().await else { return };
    scene.registered().await;
    let consume = Task::Consume(Consume { max_attempts: 1, ..Consume::default() });
    let mut first = scene.spawn(consume.clone(), None);
    scene.tell("held", "a", Act::first(1, Does::Hang).at("left")).await;
    scene.until_run("held").await;
    first.kill().expect("a child can be killed");
    let _second = scene.spawn(consume, None);
    scene.until_done().await;
    assert_eq!(scene.dead().await, 0);
    let attempts: Vec<u32> = scene.runs.of_message("held", "left").iter().map(|run| run.attempt).collect();
    assert_eq!(attempts, [1, 1]);
    // Nothing is suspect in a lane that has been worked on since.
    scene.tell("later", "a", Act::record()).await;
    scene.until_done().await;
    let sql = "select count(*) from outbox_suspect s join outbox_message m on m.id = 'held'
               join outbox_consumer c on c.id = s.consumer and s.lane = m.slot % c.lanes";
    assert_eq!(scene.database.number(sql).await, 0);
}
