//! Runs that end by themselves, for a cron: within bounds, never two at once, several steps in one.

use std::fmt;
use std::fs::{File, OpenOptions, TryLockError};
use std::panic::AssertUnwindSafe;
use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::FutureExt as _;

use crate::backend::Backend;
use crate::budget::Budget;
use crate::consumer::{Consumers, Report};
use crate::error::{BoxError, Error, ErrorKind, Result};
use crate::session::panic_text;
use crate::signals::Signals;

/// Where a run ends at the latest. Without bounds it ends when nothing is due.
///
/// ```
/// # use std::time::Duration;
/// # use outbox::Bounds;
/// # async fn example(outbox: &outbox::Outbox<sqlx::Sqlite>) -> outbox::Result<()> {
/// let bounds = Bounds { time: Some(Duration::from_secs(50)), messages: Some(10_000) };
/// let report = outbox.consumers().registered().build()?.run_within(bounds).await?;
/// println!("{} handled, {} remain", report.handled, report.remaining);
/// # Ok(()) }
/// ```
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Bounds {
    /// After this time no further message is begun; what has begun is finished. It is told by a clock that is never set.
    pub time: Option<Duration>,
    /// No more messages than these are handled, those that fail included.
    pub messages: Option<u64>,
}

impl<DB: Backend> Consumers<DB> {
    /// [`run_until_idle`](Self::run_until_idle) within bounds. SIGTERM and SIGINT (Ctrl-C) end it too: what has begun is finished.
    /// It removes nothing that is old: see the last step of [`Sweep`].
    ///
    /// # Errors
    /// As [`run_until`](Self::run_until), at any time.
    pub async fn run_within(self, bounds: Bounds) -> Result<Report> {
        let began = Instant::now();
        let mut signals = Signals::new()?;
        let over = async {
            tokio::select! {
                () = signals.next() => tracing::info!("stopping: finishing what is being handled"),
                () = elapsed(began, bounds.time) => {}
            }
        };
        self.idle_or(Budget::of(bounds.messages), over).await
    }
}

async fn elapsed(began: Instant, time: Option<Duration>) {
    match time {
        Some(time) => tokio::time::sleep(time.saturating_sub(began.elapsed())).await,
        None => std::future::pending().await,
    }
}

/// Held while a run goes on that must not overlap with another of this machine: a lock on a file. The system takes it back when the
/// process ends, however it ends; the file stays.
///
/// ```
/// # use outbox::{Bounds, RunLock};
/// # async fn example(outbox: &outbox::Outbox<sqlx::Sqlite>) -> outbox::Result<()> {
/// let Some(_lock) = RunLock::try_acquire("/run/lock/outbox")? else {
///     return Ok(()); // the last run is not over
/// };
/// outbox.consumers().registered().build()?.run_within(Bounds::default()).await?;
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct RunLock {
    _file: File,
}

impl RunLock {
    /// The lock, or `None` while somebody else has it. The file is made where it is missing.
    ///
    /// # Errors
    /// [`Config`](ErrorKind::Config) where the file cannot be opened, or its file system has no locks.
    pub fn try_acquire(path: impl AsRef<Path>) -> Result<Option<Self>> {
        let path = path.as_ref();
        let failed = |cause: std::io::Error| {
            let text = format!("could not lock `{}`, which keeps runs apart", path.display());
            Error::new(ErrorKind::Config, text).with_source(cause)
        };
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(path).map_err(failed)?;
        match file.try_lock() {
            Ok(()) => Ok(Some(Self { _file: file })),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(cause)) => Err(failed(cause)),
        }
    }
}

/// Steps of one run that share its bounds and cannot stop each other: a step that fails or panics is noted, and the next one runs.
///
/// ```
/// # use outbox::{Bounds, Prune, Retention, Sweep};
/// # async fn example(outbox: outbox::Outbox<sqlx::Sqlite>) -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// let mut sweep = Sweep::new(Bounds { messages: Some(10_000), ..Bounds::default() });
/// let consumers = outbox.consumers().registered().build()?;
/// sweep
///     .step("deliver", async |bounds| {
///         let report = consumers.run_within(bounds).await?;
///         Ok::<_, outbox::Error>(report.handled + report.retried + report.dead)
///     })
///     .await;
/// sweep
///     .step("forget old sessions", async |bounds| {
///         let sql = "delete from sessions where id in (select id from sessions where seen < date('now', '-90 days') limit $1)";
///         let most = bounds.messages.map_or(10_000, |most| i64::try_from(most).unwrap_or(i64::MAX));
///         sqlx::query(sql).bind(most).execute(outbox.pool()).await.map(|done| done.rows_affected())
///     })
///     .await;
/// sweep
///     .step("prune", async |bounds| {
///         // Only processes that go on do it by themselves.
///         let mut prune = Prune::older_than(Retention::default());
///         if let Some(time) = bounds.time {
///             prune = prune.budget(time);
///         }
///         outbox.admin().prune(&prune).await.map(|pruned| pruned.delivered)
///     })
///     .await;
/// println!("{sweep}");
/// sweep.finish()
/// # }
/// ```
#[derive(Debug)]
pub struct Sweep {
    began: Instant,
    bounds: Bounds,
    steps: Vec<(String, Step)>,
}

/// What became of a step.
#[derive(Debug)]
enum Step {
    /// It used so much of the bounds.
    Done(u64),
    Failed(BoxError),
    /// Nothing was left for it.
    Skipped,
}

impl Sweep {
    /// Begins now.
    #[must_use]
    pub fn new(bounds: Bounds) -> Self {
        Self { began: Instant::now(), bounds, steps: Vec::new() }
    }

    /// Runs a step with what is left of the bounds, unless that is nothing. It returns how many messages or rows it used.
    pub async fn step<E: Into<BoxError>>(
        &mut self,
        name: impl Into<String>,
        work: impl AsyncFnOnce(Bounds) -> Result<u64, E>,
    ) {
        let left = Bounds {
            time: self.bounds.time.map(|time| time.saturating_sub(self.began.elapsed())),
            messages: self.bounds.messages,
        };
        let step = if left.time == Some(Duration::ZERO) || left.messages == Some(0) {
            Step::Skipped
        } else {
            match AssertUnwindSafe(work(left)).catch_unwind().await {
                Ok(Ok(used)) => Step::Done(used),
                Ok(Err(error)) => Step::Failed(error.into()),
                Err(panic) => Step::Failed(format!("it panicked: {}", panic_text(&*panic)).into()),
            }
        };
        if let (Step::Done(used), Some(messages)) = (&step, &mut self.bounds.messages) {
            *messages = messages.saturating_sub(*used);
        }
        self.steps.push((name.into(), step));
    }

    /// The end.
    ///
    /// # Errors
    /// Where a step has failed. The text names all that have; the source is the error of the first.
    pub fn finish(self) -> Result<(), BoxError> {
        let count = self.steps.len();
        let failed = self.steps.into_iter().filter_map(|(name, step)| match step {
            Step::Failed(error) => Some((name, error)),
            _ => None,
        });
        let (names, errors): (Vec<_>, Vec<_>) = failed.unzip();
        let text = format!("{} of {count} steps failed: {}", names.len(), names.join(", "));
        match errors.into_iter().next() {
            Some(first) => Err(StepsFailed { text, first }.into()),
            None => Ok(()),
        }
    }
}

#[derive(Debug)]
struct StepsFailed {
    text: String,
    first: BoxError,
}

impl fmt::Display for StepsFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for StepsFailed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&*self.first)
    }
}

impl fmt::Display for Sweep {
    /// A line for each step.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = "";
        for (name, step) in &self.steps {
            f.write_str(std::mem::replace(&mut line, "\n"))?;
            match step {
                Step::Done(used) => write!(f, "{name}: {used}")?,
                Step::Failed(error) => write!(f, "{name}: failed: {error}")?,
                Step::Skipped => write!(f, "{name}: skipped, nothing was left of the bounds")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn steps_share_the_bounds_and_cannot_stop_each_other() {
        let mut sweep = Sweep::new(Bounds { time: Some(Duration::from_hours(1)), messages: Some(10) });
        let mut given = Vec::new();
        let mut note = |bounds: Bounds| given.push(bounds.messages);
        sweep
            .step("first", async |bounds| {
                note(bounds);
                Ok::<_, BoxError>(4)
            })
            .await;
        sweep.step("fails", async |_| Err::<u64, BoxError>("no such table".into())).await;
        sweep.step("panics", async |_| -> Result<u64, BoxError> { panic!("out of {}", "bounds") }).await;
        sweep
            .step("last", async |bounds| {
                note(bounds);
                Ok::<_, BoxError>(7)
            })
            .await;
        sweep
            .step("late", async |bounds| {
                note(bounds);
                Ok::<_, BoxError>(1)
            })
            .await;
        assert_eq!(given, [Some(10), Some(6)]);
        assert_eq!(
            sweep.to_string(),
            "first: 4\nfails: failed: no such table\npanics: failed: it panicked: out of bounds\nlast: 7\n\
             late: skipped, nothing was left of the bounds"
        );
        let error = sweep.finish().expect_err("two have failed");
        assert_eq!(error.to_string(), "2 of 5 steps failed: fails, panics");
        assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("no such table"));
    }

    #[tokio::test]
    async fn a_step_is_not_begun_when_the_time_is_over() {
        let mut sweep = Sweep::new(Bounds { time: Some(Duration::ZERO), messages: None });
        sweep.step("late", async |_| -> Result<u64, BoxError> { panic!("it began") }).await;
        assert!(sweep.to_string().contains("skipped"));
        sweep.finish().expect("nothing has failed");
    }

    #[test]
    fn one_at_a_time_has_the_lock() {
        let folder = tempfile::tempdir().expect("a temporary folder can be made");
        let path = folder.path().join("lock");
        let first = RunLock::try_acquire(&path).expect("made").expect("free");
        assert!(RunLock::try_acquire(&path).expect("there").is_none());
        drop(first);
        assert!(RunLock::try_acquire(&path).expect("there").is_some());
        let error = RunLock::try_acquire(folder.path().join("no/such")).expect_err("no such folder");
        assert_eq!(error.kind(), ErrorKind::Config);
        assert!(error.to_string().contains("no/such"), "{error}");
    }
}
