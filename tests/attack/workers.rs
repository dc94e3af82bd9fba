//! Worker processes, and what is done to them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use outbox_tests::worker::{Chaos, GivesUp, Plan};
use outbox_tests::{Process, TestBackend, TestDatabase};

/// The processes of a run.
#[derive(Debug)]
pub(crate) struct Workers {
    plan: Plan,
    processes: Vec<Process>,
    pub(crate) kills: usize,
    pub(crate) ended: usize,
    pub(crate) stops: usize,
}

impl Workers {
    pub(crate) fn start<DB: TestBackend>(
        database: &TestDatabase<DB>,
        log: &Log,
        count: usize,
        executors: usize,
        gives_up: Option<GivesUp>,
    ) -> Self {
        let plan = Plan {
            database: DB::NAME.to_owned(),
            address: database.address().to_owned(),
            log: log.path.clone(),
            late: false,
            executors,
            idle: 700,
            chaos: Chaos::ATTACK,
            gives_up,
        };
        let processes = (0..count).map(|_| spawn(&plan)).collect();
        Self { plan, processes, kills: 0, ended: 0, stops: 0 }
    }

    /// From now on a process that starts runs the fourth consumer too.
    pub(crate) fn add_the_late_consumer(&mut self) {
        self.plan.late = true;
    }

    pub(crate) fn late(&self) -> bool {
        self.plan.late
    }

    /// Kills one and starts another.
    pub(crate) fn kill(&mut self) {
        let victim = fastrand::usize(0..self.processes.len());
        // One whose connection was cut at its start has ended with an error, and an orchestrator starts it again.
        if !self.processes[victim].is_running().expect("the system knows its processes") {
            self.ended += 1;
        }
        self.processes[victim].kill().expect("a child can be killed");
        self.processes[victim] = spawn(&self.plan);
        self.kills += 1;
    }

    /// Makes one stand still, with all that it holds.
    pub(crate) async fn stop(&mut self, pause: Duration) {
        let victim = fastrand::choice(&self.processes).expect("there are some");
        victim.stop().expect("a child can be stopped");
        tokio::time::sleep(pause).await; // sleep-ok: how long it stands still is what is tested
        victim.resume().expect("a child can go on");
        self.stops += 1;
    }

    /// Starts those again that ended by themselves.
    pub(crate) fn revive(&mut self) {
        for process in &mut self.processes {
            if !process.is_running().expect("the system knows its processes") {
                *process = spawn(&self.plan);
                self.ended += 1;
            }
        }
    }

    /// Ends all as an orchestrator would.
    pub(crate) fn terminate(mut self) {
        for process in &mut self.processes {
            if !process.is_running().expect("the system knows its processes") {
                continue;
            }
            let status = process.terminate().expect("a child can be terminated");
            assert!(status.success(), "a worker ended with {status}; see {}", self.plan.log.display());
        }
    }
}

/// Cuts one of their connections, whatever it is doing; false where there is none.
pub(crate) async fn cut<DB: TestBackend>(database: &TestDatabase<DB>) -> bool {
    match DB::NAME {
        #[cfg(feature = "postgres")]
        "PostgreSQL" => {
            let cut = format!(
                "select count(*) from (
                     select pg_terminate_backend(pid)
                     from pg_stat_activity
                     where datname = current_database() and application_name = '{}'
                     order by random() limit 1) cut",
                outbox_tests::postgres::WORKER_APPLICATION
            );
            database.number(&cut).await > 0
        }
        #[cfg(feature = "mysql")]
        "MySQL" => {
            let some = format!(
                "select cast(p.id as char) from information_schema.processlist p join {} w on w.id = p.id
                 order by rand() limit 1",
                outbox_tests::mysql::WORKER_CONNECTIONS
            );
            let some = database.texts(&some).await;
            let Some(connection) = some.first() else { return false };
            // It may have ended by itself since.
            DB::execute(&mut *database.connection().await, &format!("kill {connection}")).await.is_ok()
        }
        _ => false,
    }
}

fn spawn(plan: &Plan) -> Process {
    let plan = serde_json::to_string(plan).expect("a plan is JSON");
    Process::spawn(env!("CARGO_BIN_EXE_outbox-test-worker"), &[&plan]).expect("the worker was built")
}

/// What the workers have logged.
#[derive(Debug)]
pub(crate) struct Log {
    path: PathBuf,
}

impl Log {
    /// An empty file among the test's build artefacts, where it can be read after a failure.
    pub(crate) fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("attack-{name}.log"));
        std::fs::write(&path, "").expect("the folder for temporary files can be written");
        Self { path }
    }

    /// How often which error was met, and for what reasons handlers failed.
    pub(crate) fn reasons(&self) -> BTreeMap<String, usize> {
        let text = std::fs::read_to_string(&self.path).expect("the log can be read");
        let mut reasons = BTreeMap::new();
        for line in text.lines() {
            let (_, after) = line.split_once("error=").unwrap_or_default();
            let reason: String =
                after.split([':', ';']).next().unwrap_or_default().chars().take(90).collect();
            let level = line.split_whitespace().nth(1).unwrap_or_default();
            if !reason.is_empty() {
                *reasons.entry(format!("{level} {reason}")).or_default() += 1;
            }
        }
        reasons
    }
}
