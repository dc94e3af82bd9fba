//! Messages that tell their handler what to do, for the suites in which handlers fail.

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use outbox::__private::{Codec, Codecs, FromContext as _, take_event};
use outbox::{
    Context, DecodeEvent, Draft, EventMeta, HandlerError, Message, MessageId, Metadata, OutboxEvent, State,
    TypeSet,
};
use serde::{Deserialize, Serialize};

use crate::{Effect, TestBackend, handler};

/// What both consumers take.
pub static TOLD: EventMeta = EventMeta::new("told", 1, "told", None, &[], "Act");
/// What the left consumer publishes for an act that says so, and the right one takes too.
pub static ECHOED: EventMeta = EventMeta::new("told.echo", 1, "told", None, &[], "Act");

handler!(
    /// Does what it is told.
    pub Left, consumer "left", types [TOLD], run act
);
handler!(
    /// Does what it is told, and takes the echoes.
    pub Right, consumer "right", types [TOLD, ECHOED], run act
);

handler!(
    /// Does what it is told, outside of transactions.
    pub Calls, consumer "calls", types [TOLD], run call, effect External
);

/// What a handler is to do with a message, after it has left its effect.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Act {
    /// What to do.
    pub does: Does,
    /// In how many of its runs, counted over all processes; afterwards it is only recorded.
    pub runs: usize,
    /// At which consumer; at the others it is only recorded.
    pub at: Option<String>,
    /// Whether the left consumer publishes an echo.
    pub echo: bool,
}

/// What a handler can be told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Does {
    /// Nothing more.
    Record,
    /// Fail with this text.
    Fail(String),
    /// Fail for good.
    Terminal(String),
    /// Fail, and ask for so many milliseconds.
    RetryAfter(u64),
    /// Put it off for so many milliseconds.
    Snooze(u64),
    /// Fail as a call with that answer, and so many milliseconds asked for.
    Http(u16, Option<u64>),
    /// Panic.
    Panic(String),
    /// End the process.
    Abort,
    /// Never return.
    Hang,
    /// Wait until [`Runs::open`] was called.
    Wait,
    /// Run a statement, and return its error.
    Execute(String),
    /// Run a statement, whatever becomes of it.
    Swallow(String),
    /// Begin a statement, drop its future after so many milliseconds, and succeed.
    Leave(String, u64),
    /// Run a query that returns a text, and return its error inside one of the application's own.
    Query(String),
}

impl Act {
    /// An act in every run.
    #[must_use]
    pub fn always(does: Does) -> Self {
        Self { does, runs: usize::MAX, at: None, echo: false }
    }

    /// An act in the first runs.
    #[must_use]
    pub fn first(runs: usize, does: Does) -> Self {
        Self { runs, ..Self::always(does) }
    }

    /// Nothing but an effect.
    #[must_use]
    pub fn record() -> Self {
        Self::always(Does::Record)
    }

    /// For one consumer only.
    #[must_use]
    pub fn at(mut self, consumer: &str) -> Self {
        self.at = Some(consumer.to_owned());
        self
    }

    /// With an echo.
    #[must_use]
    pub fn echo(mut self) -> Self {
        self.echo = true;
        self
    }

    /// A message of this id, unordered unless it is given a key.
    ///
    /// # Panics
    /// When the id is not valid.
    #[must_use]
    pub fn draft(&self, id: &str) -> Draft {
        let payload = serde_json::to_vec(self).expect("an act is JSON");
        Draft::new(TOLD.event_type, payload).id(MessageId::new(id).expect("a valid id"))
    }
}

impl OutboxEvent for Act {
    const TYPES: TypeSet = TypeSet::Any(&[TypeSet::One(&TOLD), TypeSet::One(&ECHOED)]);

    fn meta(&self) -> &'static EventMeta {
        &TOLD
    }

    fn aggregate_id(&self) -> Option<Cow<'_, str>> {
        None
    }

    fn encode(&self, codec: &dyn Codec) -> outbox::Result<Vec<u8>> {
        outbox::codec::encode(self, codec)
    }
}

impl DecodeEvent for Act {
    fn decode(message: &Message, codecs: &Codecs) -> outbox::Result<Self> {
        outbox::codec::decode(&message.payload, &message.content_type, codecs)
    }
}

/// Does what the message says, and notes before everything else that it runs.
///
/// # Errors
/// As it is told.
///
/// # Panics
/// As it is told.
pub async fn act<DB: TestBackend>(ctx: &mut Context<DB>) -> Result<(), HandlerError> {
    let runs: State<Runs> = State::from_context(ctx)?;
    let metadata = ctx.metadata().clone();
    let run = runs.begin(&metadata)?;
    let act: Act = take_event(ctx)?;
    let effect = Effect {
        message_id: metadata.id.to_string(),
        consumer: metadata.consumer().to_owned(),
        key: metadata.key.clone(),
        worker: std::process::id().to_string(),
    };
    DB::insert_effect(ctx, &effect).await?;
    if act.echo && metadata.consumer() == "left" {
        let payload = serde_json::to_vec(&Act::record())?;
        let mut echo =
            Draft::new(ECHOED.event_type, payload).id(MessageId::new(format!("{}-echo", metadata.id))?);
        if let Some(key) = &metadata.key {
            echo = echo.key(key);
        }
        ctx.publish(echo)?;
    }
    let here = act.at.as_deref().is_none_or(|at| at == metadata.consumer());
    if !here || run > act.runs {
        return Ok(());
    }
    match act.does {
        Does::Record => {}
        Does::Fail(text) => return Err(text.into()),
        Does::Terminal(text) => return Err(HandlerError::terminal(text)),
        Does::RetryAfter(millis) => return Err(HandlerError::retry_after(millis_of(millis), "later")),
        Does::Snooze(millis) => return Err(HandlerError::snooze(millis_of(millis))),
        Does::Http(status, retry_after) => {
            return Err(HandlerError::http(status, retry_after.map(millis_of)));
        }
        Does::Panic(text) => panic!("as told: {text}"),
        Does::Abort => std::process::abort(),
        Does::Hang => std::future::pending().await,
        Does::Wait => runs.opened().await,
        Does::Execute(sql) => DB::execute(ctx, &sql).await?,
        Does::Swallow(sql) => drop(DB::execute(ctx, &sql).await),
        Does::Leave(sql, millis) => {
            // Elapsed is what is wanted; a statement that ends before leaves nothing behind.
            let _ = tokio::time::timeout(millis_of(millis), DB::execute(ctx, &sql)).await;
        }
        Does::Query(sql) => {
            DB::texts(ctx, &sql)
                .await
                .map_err(|error| anyhow::Error::from(error).context("the billing failed"))?;
        }
    }
    Ok(())
}

/// Does what the message says, in no transaction: whatever needs none. The run is its effect.
///
/// # Errors
/// As it is told.
///
/// # Panics
/// As it is told.
pub async fn call<DB: TestBackend>(ctx: &mut Context<DB>) -> Result<(), HandlerError> {
    let runs: State<Runs> = State::from_context(ctx)?;
    let run = runs.begin(&ctx.metadata().clone())?;
    let act: Act = take_event(ctx)?;
    if run > act.runs {
        return Ok(());
    }
    match act.does {
        Does::Record => {}
        Does::Fail(text) => return Err(text.into()),
        Does::Terminal(text) => return Err(HandlerError::terminal(text)),
        Does::RetryAfter(millis) => return Err(HandlerError::retry_after(millis_of(millis), "later")),
        Does::Snooze(millis) => return Err(HandlerError::snooze(millis_of(millis))),
        Does::Http(status, retry_after) => {
            return Err(HandlerError::http(status, retry_after.map(millis_of)));
        }
        Does::Panic(text) => panic!("as told: {text}"),
        Does::Abort => std::process::abort(),
        Does::Hang => std::future::pending().await,
        Does::Wait => runs.opened().await,
        Does::Execute(_) | Does::Swallow(_) | Does::Leave(..) | Does::Query(_) => {
            return Err("there is no transaction".into());
        }
    }
    Ok(())
}

fn millis_of(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// A file that says what ran, kept outside of every transaction. Processes share it.
#[derive(Debug, Clone)]
pub struct Runs(PathBuf);

/// One run of a handler.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The message.
    pub message_id: String,
    /// For which consumer.
    pub consumer: String,
    /// Which attempt it was told to be.
    pub attempt: u32,
    /// The process.
    pub pid: u32,
    /// When it began, since 1970, by this machine's clock.
    pub at: Duration,
}

impl Runs {
    /// An empty record in a folder.
    #[must_use]
    pub fn new(folder: &Path) -> Self {
        Self(folder.join("runs"))
    }

    /// Where it is, for another process.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// What another process has made.
    #[must_use]
    pub fn of(path: PathBuf) -> Self {
        Self(path)
    }

    /// Notes a run, and says the how manieth it is of its message and consumer.
    fn begin(&self, metadata: &Metadata) -> std::io::Result<usize> {
        let at = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let (id, consumer, attempt) = (&metadata.id, metadata.consumer(), metadata.attempt());
        let line = format!("{id}\t{consumer}\t{attempt}\t{}\t{at}\n", std::process::id());
        // One write of a short line: processes that append at once do not mix their lines.
        OpenOptions::new().append(true).create(true).open(&self.0)?.write_all(line.as_bytes())?;
        Ok(self.of_message(id.as_str(), consumer).len())
    }

    /// All runs, in the order of their beginnings.
    ///
    /// # Panics
    /// When somebody else wrote to the file.
    #[must_use]
    pub fn all(&self) -> Vec<Run> {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        let runs = text.lines().map(|line| {
            let parts: Vec<&str> = line.split('\t').collect();
            let [message_id, consumer, attempt, pid, at] = parts[..] else { panic!("{line:?} is no run") };
            Run {
                message_id: message_id.to_owned(),
                consumer: consumer.to_owned(),
                attempt: attempt.parse().expect("an attempt"),
                pid: pid.parse().expect("a pid"),
                at: Duration::from_micros(at.parse().expect("a time")),
            }
        });
        runs.collect()
    }

    /// The runs of one message at one consumer.
    #[must_use]
    pub fn of_message(&self, message_id: &str, consumer: &str) -> Vec<Run> {
        let mut runs = self.all();
        runs.retain(|run| run.message_id == message_id && run.consumer == consumer);
        runs
    }

    /// Lets the handlers go on that wait.
    ///
    /// # Panics
    /// When the folder is gone.
    pub fn open(&self) {
        std::fs::write(self.0.with_extension("open"), "").expect("the folder can be written");
    }

    async fn opened(&self) {
        while !self.0.with_extension("open").exists() {
            let pause = Duration::from_millis(5);
            tokio::time::sleep(pause).await; // sleep-ok: between two looks, and the look decides
        }
    }
}
