//! The attack on SQLite: several processes on one file.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use outbox_tests::{TestDatabase, eventually};
use sqlx::Sqlite;

use crate::check::{self, Numbers};
use crate::publish::{Load, Publishers};
use crate::workers::{Log, Workers};

/// A transaction that comes late holds the whole file, so it is less late here.
pub(crate) const LOAD: Load =
    Load { keys: 100, begins: &["begin immediate"], late: Duration::from_millis(4), backlog: 300, poison: 0 };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn processes_share_one_file_and_nothing_is_lost_doubled_or_out_of_order() {
    let database = TestDatabase::<Sqlite>::migrated().await.expect("SQLite needs no server");
    let log = Log::new("sqlite");
    let mut workers = Workers::start(&database, &log, 3, 1, None);
    let ready = "select count(*) from outbox_subscription where ready";
    eventually("the consumers' registration", Duration::from_mins(1), async || {
        database.number(ready).await >= 4
    })
    .await;

    let publishers = Arc::new(Publishers::new(database.outbox(), LOAD));
    let publishing: Vec<_> = (0..4)
        .map(|_| {
            let publishers = publishers.clone();
            tokio::spawn(async move { publishers.publish().await })
        })
        .collect();
    let (begun, budget) = (Instant::now(), Duration::from_secs(10));
    let mut looks = 0;
    let mut second = tokio::time::interval(Duration::from_secs(1));
    while begun.elapsed() < budget || !check::late_has_begun(&database).await {
        assert!(begun.elapsed() < budget * 8, "the late consumer does not begin");
        second.tick().await;
        if begun.elapsed() > budget.mul_f64(0.4) && !workers.late() {
            workers.add_the_late_consumer();
            workers.kill();
        }
        workers.kill();
        workers.revive();
        publishers.undone.store(check::undone(&database).await, Ordering::Relaxed);
        assert_eq!(check::stranded(&database).await, 0, "stranded while under attack");
        assert_eq!(check::unsettled(&database).await, 0, "effects and marks differ while under attack");
        looks += 1;
        if looks % 4 == 0 {
            workers.stop(Duration::from_millis(300)).await;
        }
    }
    publishers.stop.store(true, Ordering::Relaxed);
    for task in publishing {
        task.await.expect("no publisher panics");
    }
    let limit = Duration::from_mins(2);
    eventually("everything to be handled", limit, async || {
        workers.revive();
        check::undone(&database).await == 0
    })
    .await;

    let mut numbers = Numbers::default();
    let sent = std::mem::take(&mut *publishers.sent.lock().expect("no publisher panics under the lock"));
    numbers.add("processes killed", workers.kills);
    numbers.add("processes stopped with what they held", workers.stops);
    numbers.add("processes ended by themselves", workers.ended);
    publishers.count(&mut numbers);
    workers.terminate();
    let reasons = log.reasons();
    for (reason, count) in &reasons {
        numbers.add(reason, count);
    }
    check::late(&database, &mut numbers).await;
    check::all(&database, &sent, &mut numbers).await;
}
