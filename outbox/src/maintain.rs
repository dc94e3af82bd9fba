//! The service that keeps the tables small: of all processes that run, one at a time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::backend::{Backend, Positions};
use crate::error::{Error, ErrorKind, Result};
use crate::executor::{Engine, unpanicked};
use crate::prune::{Pruned, Pruner};
use crate::settle::expect_one;

/// How many rows a batch looks at.
const CHUNK: i64 = 1_000;

/// How much later than its interval a run may come, so that processes which started together do not stay together.
const JITTER: f64 = 0.2;

/// The longest interval: for ever, to a process.
const LONGEST: Duration = Duration::from_hours(10_000);

impl<DB: Backend> Engine<DB> {
    /// Prunes now and then, until the engine stops; a batch that this interrupts is rolled back.
    pub(crate) async fn maintain(self: Arc<Self>) {
        if self.dispatch.config.retention.is_off() {
            return;
        }
        let interval = self.dispatch.config.maintenance_interval.min(LONGEST);
        let work = async {
            let mut rest = interval.mul_f64(fastrand::f64());
            loop {
                tokio::time::sleep(rest).await;
                if let Err(error) = unpanicked(self.prune(interval)).await {
                    let cause = std::error::Error::source(&error).map(ToString::to_string);
                    tracing::warn!(error = %error, cause, "could not prune; it is tried again later");
                }
                rest = interval.mul_f64(1.0 + JITTER * fastrand::f64());
            }
        };
        self.dispatch.stop.run_until_cancelled(work).await;
    }

    /// One run, unless another process is at it, or has been in the meantime.
    async fn prune(&self, interval: Duration) -> Result<()> {
        let (dispatch, holder) = (&self.dispatch, self.worker.id.as_str());
        let begun = match self.begin_pruning(interval / 2).await {
            Err(error) if error.kind() == ErrorKind::Conflict => false,
            begun => begun?,
        };
        if !begun {
            return Ok(());
        }
        let mut run = Pruner {
            outbox: &dispatch.outbox,
            pool: dispatch.connections.maintenance(),
            retention: &dispatch.config.retention,
            chunk: CHUNK,
            dry_run: false,
            until: Some(Instant::now() + interval.mul_f64(0.75)),
            holder: Some(holder),
            positions: Positions::default(),
            done: Pruned::default(),
        };
        let ran = run.run().await;
        let Pruned { delivered, unrouted, dead, marks, complete } = run.done;
        tracing::debug!(delivered, unrouted, dead, marks, complete, "pruned");
        let ended = self.end_pruning(ran.as_ref().err()).await;
        ran.and(ended)
    }

    /// Who prunes is said by a row, and each batch asks it under its lock: the clock only keeps runs apart.
    async fn begin_pruning(&self, every: Duration) -> Result<bool> {
        let (outbox, sql) = (&self.dispatch.outbox, self.dispatch.outbox.sql());
        let mut tx =
            outbox.begin_on(self.dispatch.connections.maintenance(), DB::begin_maintenance()).await?;
        let row = DB::lock_maintenance(&mut tx, sql, every).await.map_err(failed::<DB>)?;
        let Some(row) = row else {
            // Somebody is at it, or nobody ever can be.
            if DB::add_maintenance(&mut tx, sql).await.map_err(failed::<DB>)? > 0 {
                tx.commit().await?;
                tracing::warn!(
                    "`outbox_maintenance` had no row, as after a restore of the tables without what is in them; it was made \
                     again, and pruning begins with the oldest messages"
                );
            }
            return Ok(false);
        };
        if !row.due {
            return Ok(false);
        }
        let started = DB::start_maintenance(&mut tx, sql, &self.worker.id).await.map_err(failed::<DB>)?;
        expect_one(outbox, started, "begin to prune")?;
        tx.commit().await?;
        Ok(true)
    }

    /// Says how it ended, unless another process has taken over.
    async fn end_pruning(&self, error: Option<&Error>) -> Result<()> {
        let outbox = &self.dispatch.outbox;
        let mut tx =
            outbox.begin_on(self.dispatch.connections.maintenance(), DB::begin_maintenance()).await?;
        let error = error.map(ToString::to_string);
        DB::end_maintenance(&mut tx, outbox.sql(), &self.worker.id, error.as_deref())
            .await
            .map_err(failed::<DB>)?;
        tx.commit().await.map(drop)
    }
}

fn failed<DB: Backend>(error: sqlx::Error) -> Error {
    Error::database(DB::kind(&error), "look at who prunes", error)
}
