//! Who is alive, and what to do about a process that died in the middle of something.
//!
//! A death needs no help: the database rolls back and frees the lanes. But a message that kills its process would
//! kill the next one too, without a trace. So each process has a row with a heartbeat. One that falls silent, or whose
//! process is gone from this host, is taken for dead, and the next message in each of its consumers' lanes runs alone,
//! with its attempt counted before. At most `max_attempts` such runs, and it is dead like any other. A process runs one
//! message alone at a time, so that its death has one culprit; and a message whose run nobody saw end stays marked,
//! whatever else in its lane succeeds.

use std::path::Path;
use std::time::Duration;

use uuid::Uuid;

use crate::backend::{Backend, SqlResult, Worker, WorkerRow};
use crate::error::{Error, Result};
use crate::publish::Outbox;
use crate::session::Session;

/// How often a process says that it is alive.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(1);

/// How long a process may be silent until others take it for dead. A mistake costs a few slower transactions.
pub(crate) const SILENCE: Duration = Duration::from_secs(3);

/// This process, as it starts now. The id is new each time, whatever the host or the process is called.
pub(crate) fn this_process(consumers: Vec<i16>, pooled: bool) -> Worker {
    Worker { id: Uuid::now_v7().to_string(), host: host(), pid: std::process::id().into(), consumers, pooled }
}

/// Says which consumers nobody looks after while their messages pile up: those whose handler is gone, or not running.
pub(crate) async fn name_orphans<DB: Backend>(
    outbox: &Outbox<DB>,
    session: &mut Session<DB>,
    worker: &Worker,
) -> Result<()> {
    let asked = async {
        session.enter(outbox.sql()).await?;
        let orphans = DB::orphans(session, outbox.sql(), &worker.consumers).await?;
        session.leave().await?;
        Ok(orphans)
    };
    let orphans = asked
        .await
        .map_err(|error| Error::database(DB::kind(&error), "look for consumers that nobody runs", error))?;
    for consumer in orphans {
        tracing::warn!(
            consumer,
            "messages wait for a consumer that no running process has a handler for: run one that has, or drop the consumer \
             (`outbox.admin().drop_consumer(..)`) if it is not needed any more"
        );
    }
    Ok(())
}

/// Takes those for dead that are: the next message of each of their lanes runs alone.
pub(crate) async fn bury<DB: Backend>(
    outbox: &Outbox<DB>,
    session: &mut Session<DB>,
    worker: &Worker,
    others: &[WorkerRow],
) -> Result<()> {
    for other in others.iter().filter(|other| is_dead(other, &worker.host)) {
        let buried = bury_one(outbox, session, other).await;
        session.rollback().await;
        let buried = buried.map_err(|error| {
            Error::database(DB::kind(&error), "look after a process that ended without a word", error)
        })?;
        if buried > 0 {
            tracing::warn!(
                worker = %other.id,
                host = %other.host,
                pid = other.pid,
                "a process ended without a word; the next message of each of its lanes runs alone"
            );
        }
    }
    Ok(())
}

async fn bury_one<DB: Backend>(
    outbox: &Outbox<DB>,
    session: &mut Session<DB>,
    other: &WorkerRow,
) -> SqlResult<u64> {
    session.begin(DB::begin_registration()).await?;
    let buried = DB::bury(session, outbox.sql(), &other.id).await?;
    session.commit().await?;
    Ok(buried)
}

/// Says that this process ends in order.
pub(crate) async fn leave<DB: Backend>(outbox: &Outbox<DB>, session: &mut Session<DB>, worker: &Worker) {
    let leave = async {
        session.begin(DB::begin_registration()).await?;
        DB::remove_worker(session, outbox.sql(), &worker.id).await?;
        session.commit().await
    };
    if let Err(error) = leave.await {
        tracing::debug!(error = %error, "could not say good-bye; others will notice");
    }
    session.rollback().await;
}

fn is_dead(other: &WorkerRow, host: &str) -> bool {
    other.silent || (other.host == host && !exists(other.pid))
}

/// Whether a process of that number runs on this host; yes where it cannot be known.
fn exists(pid: i64) -> bool {
    known_to(Path::new("/proc"), pid)
}

/// The first process is always there, unless those of other users are hidden.
fn known_to(processes: &Path, pid: i64) -> bool {
    !processes.join("1").exists() || processes.join(pid.to_string()).exists()
}

/// The host's name with the boot that it belongs to: a process number means nothing after a restart, nor in another
/// container.
fn host() -> String {
    let read = |path| std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default();
    let name = read("/proc/sys/kernel/hostname");
    let namespace =
        std::fs::read_link("/proc/self/ns/pid").map(|link| link.display().to_string()).unwrap_or_default();
    format!("{name} {} {namespace}", read("/proc/sys/kernel/random/boot_id")).trim().to_owned()
}

#[cfg(all(test, feature = "testing"))]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_cannot_be_seen_is_taken_for_alive() {
        let processes = tempfile::tempdir().expect("a folder");
        let known = |pid| known_to(processes.path(), pid);
        assert!(known(1) && known(7), "there is no such file system, or everything in it is hidden");
        for pid in ["1", "7"] {
            std::fs::create_dir(processes.path().join(pid)).expect("made");
        }
        assert!(known(1) && known(7) && !known(8));
    }
}
