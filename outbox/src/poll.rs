//! The poll: what tells the executors that there is something to claim, and others that this process is alive.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio_util::sync::CancellationToken;

use crate::alive;
use crate::backend::{Backend, Poll, Polled};
use crate::backfill::Watermark;
use crate::error::{Error, ErrorKind, Result};
use crate::executor::{Engine, unpanicked};
use crate::trouble::Trouble;

/// How much later than its interval a poll may come, so that processes which started together do not stay together.
const JITTER: f64 = 0.2;

/// How often a process that starts says that it is alive, while it loses conflicts.
const GREETINGS: u32 = 10;

/// The longest interval: for ever, to a process.
const LONGEST: Duration = Duration::from_hours(10_000);

impl<DB: Backend> Engine<DB> {
    /// Asks the database for all consumers at once: at start, at each ring of this process, and at the interval. A
    /// heartbeat is due once a second and goes with a question, in one statement where the database can do that; only
    /// where questions are rare it goes alone. While a run ends, and where there is
    /// nobody to be woken (`asking`), there are heartbeats only, until that is `over`.
    pub(crate) async fn poll(self: Arc<Self>, asking: bool, over: CancellationToken) {
        let (wake, stop) = (self.dispatch.outbox.wake(), &self.dispatch.stop);
        let mut here = asking.then(|| wake.here(&self.worker.consumers));
        let mut rung = wake.listen();
        let mut trouble = Trouble::new("poll");
        let interval = self.dispatch.config.poll_interval.min(LONGEST);
        let mut watermark = Watermark::new::<DB>();
        let (mut ask, mut beat) = (Instant::now(), Instant::now() + alive::HEARTBEAT);
        loop {
            let since = Instant::now();
            if stop.is_cancelled() {
                here = None;
            }
            let (asks, beats) = (here.is_some() && ask <= since, beat <= since);
            let asked = unpanicked(self.ask(asks, beats, Some(&mut watermark))).await;
            let now = Instant::now();
            // A stream of rings takes no more than half of the time.
            let mut rest = now - since;
            match asked {
                Ok(runnable) => {
                    trouble.over();
                    let consumers = self.worker.consumers.iter().enumerate();
                    let marked = consumers.filter(|(_, id)| runnable.contains(id));
                    marked.for_each(|(index, _)| self.ready.mark(index));
                    if asks {
                        ask = now + interval.mul_f64(1.0 + JITTER * fastrand::f64());
                    }
                    if beats {
                        beat = now + alive::HEARTBEAT;
                    }
                }
                Err(error) if error.kind() == ErrorKind::Registry => {
                    tracing::error!(%error, "stopping");
                    self.dispatch.refuse(error);
                    rest = alive::HEARTBEAT;
                }
                Err(error) => {
                    rest = trouble.met(&error);
                    ask = now;
                }
            }
            let next = match here {
                None => beat,
                Some(_) if interval > alive::HEARTBEAT => ask.min(beat),
                Some(_) => ask,
            };
            let wait = async {
                tokio::time::sleep(rest).await;
                tokio::select! {
                    () = tokio::time::sleep_until(next.into()) => false,
                    heard = rung.changed(), if here.is_some() => heard.is_ok(),
                    () = stop.cancelled(), if here.is_some() => false,
                }
            };
            match over.run_until_cancelled(wait).await {
                None => return,
                Some(true) => ask = Instant::now(),
                Some(false) => (),
            }
        }
    }

    /// Says that this process is alive, before it does anything. Others that start at the same moment may be in the way.
    pub(crate) async fn greet(&self) -> Result<()> {
        let mut trouble = Trouble::new("start");
        let mut left = GREETINGS;
        loop {
            left -= 1;
            match self.ask(false, true, None).await {
                Err(error) if error.kind() == ErrorKind::Conflict && left > 0 => {
                    tokio::time::sleep(trouble.met(&error)).await;
                }
                asked => return asked.map(drop),
            }
        }
    }

    /// Says that this process is alive, looks after those that are not, and asks for work.
    pub(crate) async fn ask(
        &self,
        asks: bool,
        beats: bool,
        watermark: Option<&mut Watermark>,
    ) -> Result<Vec<i16>> {
        let (outbox, worker) = (&self.dispatch.outbox, &self.worker);
        let mut session = self.dispatch.connections.reserve().await?;
        let poll = Poll { worker, beats: beats.then_some(alive::SILENCE), asks };
        let asked = async {
            let polled = async {
                session.enter(outbox.sql()).await?;
                let polled = DB::poll(&mut session, outbox.sql(), poll).await?;
                session.leave().await?;
                Ok(polled)
            };
            let Polled { runnable, others, gone } =
                polled.await.map_err(|error| Error::database(DB::kind(&error), "look for work", error))?;
            alive::bury(outbox, &mut session, worker, &others).await?;
            if let Some(gone) = self.consumers.iter().find(|consumer| gone.contains(&consumer.row.id)) {
                return Err(dropped(&gone.row.name));
            }
            if let Some(watermark) = watermark {
                watermark.look(outbox, &mut session).await?;
            }
            Ok(runnable)
        };
        let asked: Result<Vec<i16>> = asked.await;
        if let Err(error) = &asked
            && error.kind() != ErrorKind::Conflict
            && !self.dispatch.connections.borrowed()
        {
            // A new connection may reach a server that works, or the one that takes writes now.
            session.close();
        }
        asked
    }
}

fn dropped(consumer: &str) -> Error {
    Error::new(
        ErrorKind::Registry,
        format!(
            "consumer `{consumer}` was dropped while this process was away; start it again, and it is a new consumer, or without the \
             handler"
        ),
    )
}
