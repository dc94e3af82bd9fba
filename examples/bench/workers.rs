//! The consumers of a run: in this process, or in some that it starts.

use std::process::Stdio;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, bail, ensure};
use outbox::{Notice, Outbox};
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::args::Args;
use crate::database::{Database, Place};
use crate::handlers;

/// What a process is to do.
#[derive(Debug, Serialize, Deserialize)]
struct Plan {
    args: Args,
    address: String,
    executors: u16,
    /// Whether it tells when it handled which message.
    sample: bool,
}

/// A message and when it was handled, after the commit: microseconds since 1970, so that processes can compare.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) message_id: String,
    pub(crate) at: i64,
}

pub(crate) fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_micros()).unwrap_or(i64::MAX)
}

/// The consumers: prepared, then started, then stopped.
pub(crate) enum Crew<DB: Database> {
    Waiting(Outbox<DB>, Args, bool),
    Here(oneshot::Sender<()>, JoinHandle<anyhow::Result<Vec<Sample>>>),
    Children(Vec<Worker>),
}

impl<DB: Database> Crew<DB> {
    pub(crate) async fn start(place: &Place<DB>, args: &Args, sample: bool) -> anyhow::Result<Self> {
        if args.processes == 1 {
            return Ok(Self::Waiting(place.outbox.clone(), args.clone(), sample));
        }
        let mut workers = Vec::new();
        for number in 0..args.processes {
            let more = u16::from(number < args.executors % args.processes);
            let executors = args.executors / args.processes + more;
            let plan = Plan { args: args.clone(), address: place.address.clone(), executors, sample };
            workers.push(Worker::start(&plan).await?);
        }
        Ok(Self::Children(workers))
    }

    pub(crate) async fn go(&mut self) -> anyhow::Result<()> {
        match self {
            Self::Waiting(outbox, args, sample) => {
                let (outbox, args, sample) = (outbox.clone(), args.clone(), *sample);
                let (stop, stopped) = oneshot::channel::<()>();
                let work = async move {
                    work(&outbox, &args, args.executors, sample, async { drop(stopped.await) }).await
                };
                *self = Self::Here(stop, tokio::spawn(work));
            }
            Self::Here(..) => bail!("the consumers run already"),
            Self::Children(workers) => {
                for worker in workers {
                    worker.say("go").await?;
                }
            }
        }
        Ok(())
    }

    /// Ends them; what they have handled and when, if they were to say.
    pub(crate) async fn stop(self) -> anyhow::Result<Vec<Sample>> {
        match self {
            Self::Waiting(..) => Ok(Vec::new()),
            Self::Here(stop, task) => {
                // It may have ended by itself, with an error.
                let _ = stop.send(());
                task.await?
            }
            Self::Children(workers) => {
                let mut samples = Vec::new();
                for worker in workers {
                    samples.extend(worker.stop().await?);
                }
                Ok(samples)
            }
        }
    }
}

async fn work<DB: Database>(
    outbox: &Outbox<DB>,
    args: &Args,
    executors: u16,
    sample: bool,
    stop: impl Future<Output = ()>,
) -> anyhow::Result<Vec<Sample>> {
    let mut listening = None;
    if sample {
        let mut notices = outbox.notices();
        let (end, mut ended) = oneshot::channel::<()>();
        let listen = async move {
            let mut samples = Vec::new();
            loop {
                tokio::select! {
                    biased;
                    notice = notices.next() => match notice {
                        Some(Notice::Handled { message_id, .. }) => {
                            samples.push(Sample { message_id: message_id.to_string(), at: now() });
                        }
                        Some(_) => {}
                        None => return samples,
                    },
                    _ = &mut ended => return samples,
                }
            }
        };
        listening = Some((end, tokio::spawn(listen)));
    }
    handlers::consumers(outbox, args, executors)?.run_until(stop).await?;
    match listening {
        None => Ok(Vec::new()),
        Some((end, listener)) => {
            drop(end);
            Ok(listener.await?)
        }
    }
}

/// Another process of this program.
#[derive(Debug)]
pub(crate) struct Worker {
    child: Child,
    orders: ChildStdin,
    answers: Lines<BufReader<ChildStdout>>,
}

impl Worker {
    async fn start(plan: &Plan) -> anyhow::Result<Self> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["--worker", "--backend", plan.args.backend.name()]);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut child = command.spawn()?;
        let orders = child.stdin.take().context("a child was started without a pipe")?;
        let answers = child.stdout.take().context("a child was started without a pipe")?;
        let mut worker = Self { child, orders, answers: BufReader::new(answers).lines() };
        worker.say(&serde_json::to_string(plan)?).await?;
        let answer = worker.hear().await?;
        ensure!(answer == "ready", "a worker said {answer:?}");
        Ok(worker)
    }

    async fn say(&mut self, line: &str) -> anyhow::Result<()> {
        Ok(self.orders.write_all(format!("{line}\n").as_bytes()).await?)
    }

    async fn hear(&mut self) -> anyhow::Result<String> {
        self.answers.next_line().await?.context("a worker has ended before its time")
    }

    async fn stop(mut self) -> anyhow::Result<Vec<Sample>> {
        self.say("stop").await?;
        let samples = serde_json::from_str(&self.hear().await?)?;
        let status = self.child.wait().await?;
        ensure!(status.success(), "a worker ended with {status}");
        Ok(samples)
    }
}

/// The other end: does as it is told on stdin, which ends when its parent does.
pub(crate) async fn obey<DB: Database>() -> anyhow::Result<()> {
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    let plan =
        orders.next_line().await?.context("no plan on stdin; a worker is started by another process")?;
    let plan: Plan = serde_json::from_str(&plan)?;
    let pool = DB::connect(&plan.args, &plan.address, false).await?;
    let outbox = DB::outbox(pool, &plan.address)?;
    println!("ready");
    ensure!(orders.next_line().await?.as_deref() == Some("go"), "the benchmark was broken off");
    let stop = async { drop(orders.next_line().await) };
    let samples = work(&outbox, &plan.args, plan.executors, plan.sample, stop).await?;
    println!("{}", serde_json::to_string(&samples)?);
    Ok(())
}
