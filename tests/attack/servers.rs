//! The attack on a server: several processes, each with several executors.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use outbox_tests::{TestBackend, TestDatabase, eventually};

use crate::check::{self, Numbers};
use crate::publish::{Load, Publishers};
use crate::soak;
use crate::workers::{self, Log, Workers};

/// What is published on PostgreSQL.
#[cfg(feature = "postgres")]
pub(crate) const POSTGRES: Load = Load {
    keys: 300,
    begins: &[
        "begin isolation level read committed",
        "begin isolation level repeatable read",
        "begin isolation level serializable",
    ],
    late: Duration::from_millis(40),
    backlog: 1_500,
    poison: 0,
};

/// What is published on MySQL.
#[cfg(feature = "mysql")]
pub(crate) const MYSQL: Load = Load {
    keys: 300,
    begins: &[
        "set transaction isolation level read committed; begin",
        "set transaction isolation level repeatable read; start transaction with consistent snapshot",
        "set transaction isolation level serializable; begin",
    ],
    late: Duration::from_millis(40),
    backlog: 1_500,
    poison: 0,
};

#[cfg(feature = "postgres")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_doubled_or_out_of_order_on_postgres() {
    nothing_is_lost_doubled_or_out_of_order::<sqlx::Postgres>("postgres", POSTGRES).await;
}

#[cfg(feature = "mysql")]
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_lost_doubled_or_out_of_order_on_mysql() {
    nothing_is_lost_doubled_or_out_of_order::<sqlx::MySql>("mysql", MYSQL).await;
}

async fn nothing_is_lost_doubled_or_out_of_order<DB: TestBackend>(name: &str, load: Load) {
    let Some(database) = TestDatabase::<DB>::migrated().await else { return };
    let log = Log::new(name);
    let mut workers = Workers::start(&database, &log, 4, 3, None);
    let three = "select count(*) from outbox_subscription where ready";
    eventually("the consumers' registration", Duration::from_mins(1), async || {
        database.number(three).await >= 4
    })
    .await;

    let publishers = Arc::new(Publishers::new(database.outbox(), load));
    let publishing: Vec<_> = (0..8)
        .map(|_| {
            let publishers = publishers.clone();
            tokio::spawn(async move { publishers.publish().await })
        })
        .collect();

    let (begun, budget) = (Instant::now(), soak::lasts(Duration::from_secs(16)));
    let (mut looks, mut lost) = (0, 0);
    let mut second = tokio::time::interval(Duration::from_secs(1));
    while begun.elapsed() < budget || !check::late_has_begun(&database).await {
        assert!(begun.elapsed() < budget * 8, "the late consumer does not begin");
        second.tick().await;
        if begun.elapsed() > budget.mul_f64(0.4) && !workers.late() {
            workers.add_the_late_consumer();
            // Several die while they register it.
            for _ in 0..4 {
                workers.kill();
                let pause = Duration::from_millis(fastrand::u64(20..120));
                tokio::time::sleep(pause).await; // sleep-ok: a process must be killed while it registers
            }
        }
        workers.kill();
        workers.revive();
        for _ in 0..3 {
            lost += usize::from(workers::cut(&database).await);
        }
        publishers.undone.store(check::undone(&database).await, Ordering::Relaxed);
        assert_eq!(check::stranded(&database).await, 0, "stranded while under attack");
        assert_eq!(check::unsettled(&database).await, 0, "effects and marks differ while under attack");
        looks += 1;
        if looks % 4 == 0 {
            workers.stop(Duration::from_millis(1_200)).await;
        }
    }
    publishers.stop.store(true, Ordering::Relaxed);
    for task in publishing {
        task.await.expect("no publisher panics");
    }
    let drained = Instant::now();
    let limit = Duration::from_mins(2);
    eventually("everything to be handled", limit, async || {
        workers.revive();
        check::undone(&database).await == 0
    })
    .await;

    assert!(lost > 0, "no connection was cut");
    let mut numbers = Numbers::default();
    let sent = std::mem::take(&mut *publishers.sent.lock().expect("no publisher panics under the lock"));
    numbers.add("processes killed", workers.kills);
    numbers.add("processes stopped for longer than their transaction may idle", workers.stops);
    numbers.add("connections cut", lost);
    publishers.count(&mut numbers);
    numbers.add("looks at the states under attack", looks);
    numbers.add("seconds until all was handled", drained.elapsed().as_secs());
    numbers.add("processes ended by themselves", workers.ended);
    let workers_broken = workers.kills + workers.stops;
    workers.terminate();
    let reasons = log.reasons();
    for (reason, count) in &reasons {
        numbers.add(reason, count);
    }
    let out_of_order = check::order_violations(&database).await
        + check::count(check::commit_order_violations(&database, &sent).await);
    let broken = workers_broken + lost;
    soak::note(&database, DB::NAME, broken, 0, out_of_order).await;
    check::late(&database, &mut numbers).await;
    check::all(&database, &sent, &mut numbers).await;
    let guarded = reasons.keys().any(|reason| reason.contains("rows were in the expected state"));
    assert!(!guarded, "the lane lock alone must do\n{numbers}");
}
