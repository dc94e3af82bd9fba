//! What the workers of the attack do: three consumers, and a fourth that comes later, whose handlers misbehave.

use std::borrow::Cow;
use std::fs::OpenOptions;
use std::path::PathBuf;
use std::sync::Mutex;
use std::time::Duration;

use outbox::__private::{Codec, Codecs, FromContext as _, take_event};
use outbox::{
    ConsumerConfig, Context, DecodeEvent, Draft, EventMeta, HandlerError, Message, MessageId, OnDead, Outbox,
    OutboxEvent, Retry, State, TypeSet,
};
use serde::{Deserialize, Serialize};
use sqlx::{Connection as _, Pool};

use crate::{Effect, TestBackend, handler};

/// What the three consumers take from the beginning.
pub static PLACED: EventMeta = EventMeta::new("order.placed", 1, "order", None, &[], "Placed");
/// What nobody takes until the fourth consumer comes.
pub static NOTED: EventMeta = EventMeta::new("order.noted", 1, "order", None, &[], "Noted");
/// What a handler publishes for each placed order.
pub static ECHOED: EventMeta = EventMeta::new("order.echoed", 1, "order", None, &[], "Echoed");

handler!(
    /// Publishes an echo of each order.
    pub First, consumer "first", types [PLACED], run misbehave
);
handler!(
    /// Takes the echoes too.
    pub Second, consumer "second", types [PLACED, ECHOED], run misbehave
);
handler!(
    /// Takes orders.
    pub Third, consumer "third", types [PLACED], run misbehave
);
handler!(
    /// Comes when much was published already.
    pub Late, consumer "late", types [PLACED, NOTED], run misbehave
);

/// What a worker's process is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// sqlx's name of the database.
    pub database: String,
    /// For [`TestBackend::connect`].
    pub address: String,
    /// Where everything above debug level is written to.
    pub log: PathBuf,
    /// Whether it also runs the fourth consumer.
    pub late: bool,
    /// How many messages at once.
    pub executors: usize,
    /// How long a handler may leave its transaction idle, in milliseconds.
    pub idle: u64,
    /// How its handlers misbehave.
    pub chaos: Chaos,
    /// When its consumers give a message up; without it they never do.
    pub gives_up: Option<GivesUp>,
}

/// When consumers give a message up, and what that means for its key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GivesUp {
    /// How many attempts a message has.
    pub max_attempts: u32,
    /// The consumer that goes on behind a dead message; the others block its key.
    pub skips: String,
    /// What has been done about poisoned messages.
    pub mended: Mended,
}

/// A folder with a file for each poisoned message whose cause somebody has removed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Mended(pub PathBuf);

impl Mended {
    /// Lets a poisoned message succeed from now on.
    ///
    /// # Panics
    /// When the folder is gone.
    pub fn mend(&self, message_id: &str) {
        std::fs::write(self.0.join(message_id), "").expect("the folder can be written");
    }

    /// Whether it succeeds.
    #[must_use]
    pub fn is_mended(&self, message_id: &str) -> bool {
        self.0.join(message_id).exists()
    }
}

/// What the messages of the attack say.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Order {
    /// What is wrong with it, until it is [mended](Mended).
    #[serde(default)]
    pub poison: Option<Poison>,
}

/// What a handler does with a poisoned message, after its effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Poison {
    /// Fails.
    Fails,
    /// Fails for good.
    Terminal,
}

impl OutboxEvent for Order {
    const TYPES: TypeSet = TypeSet::One(&PLACED);

    fn meta(&self) -> &'static EventMeta {
        &PLACED
    }

    fn aggregate_id(&self) -> Option<Cow<'_, str>> {
        None
    }

    fn encode(&self, codec: &dyn Codec) -> outbox::Result<Vec<u8>> {
        outbox::codec::encode(self, codec)
    }
}

impl DecodeEvent for Order {
    fn decode(message: &Message, codecs: &Codecs) -> outbox::Result<Self> {
        outbox::codec::decode(&message.payload, &message.content_type, codecs)
    }
}

/// How often a handler does what; per mille.
#[derive(Debug, Clone, Copy, Default, Serialize, Deserialize)]
pub struct Chaos {
    /// Fails after its effect.
    pub fail: u32,
    /// Panics after its effect.
    pub panic: u32,
    /// Ends our transaction: one of `ENDINGS`.
    pub end: u32,
    /// Goes on after a statement that failed.
    pub swallow: u32,
    /// Drops a query that is running.
    pub abandon: u32,
    /// Writes in a transaction of sqlx's inside ours, and drops it.
    pub nest: u32,
}

impl Chaos {
    /// What the attack does.
    pub const ATTACK: Self = Self { fail: 80, panic: 10, end: 9, swallow: 3, abandon: 5, nest: 5 };
}

/// The ways in which a handler ends the transaction that is not its own.
const ENDINGS: &[&str] = &[
    "commit",
    "rollback",
    "end",
    "commit; begin",
    "rollback; begin",
    "release savepoint outbox_handler",
    // SQLite does not know the next two, and cannot keep a handler from building our savepoint again.
    "rollback and chain",
    "commit and chain",
    "rollback; begin; savepoint outbox_handler",
];

/// Runs until SIGTERM.
///
/// # Errors
/// When the worker could not start.
pub async fn run(plan: Plan) -> anyhow::Result<()> {
    let log = OpenOptions::new().append(true).create(true).open(&plan.log)?;
    let level = tracing_subscriber::EnvFilter::new("info");
    tracing_subscriber::fmt().with_env_filter(level).with_ansi(false).with_writer(Mutex::new(log)).init();
    // The handlers' panics are wanted, and there are many.
    std::panic::set_hook(Box::new(|_| ()));
    let ran = connect(&plan).await;
    if let Err(error) = &ran {
        tracing::error!(error = %format!("{error:#}"), "the worker has ended");
    }
    ran
}

async fn connect(plan: &Plan) -> anyhow::Result<()> {
    match plan.database.as_str() {
        "SQLite" => consume(sqlx::Sqlite::connect(&plan.address, 1).await?, plan).await,
        #[cfg(feature = "postgres")]
        "PostgreSQL" => {
            use crate::database::postgres;
            let options = postgres::options(&plan.address).ok_or_else(|| anyhow::anyhow!("no server"))?;
            let options = options.application_name(postgres::WORKER_APPLICATION);
            consume(sqlx::PgPool::connect_with(options).await?, plan).await
        }
        #[cfg(feature = "mysql")]
        "MySQL" => consume(crate::database::mysql::connect_worker(&plan.address).await?, plan).await,
        other => anyhow::bail!("no such database: {other}"),
    }
}

async fn consume<DB: TestBackend>(pool: Pool<DB>, plan: &Plan) -> anyhow::Result<()> {
    let mut retry = Retry::every(Duration::from_millis(50));
    if let Some(gives_up) = &plan.gives_up {
        retry.max_attempts = gives_up.max_attempts;
    }
    let config = ConsumerConfig {
        executors: plan.executors,
        poll_interval: Duration::from_millis(50),
        retry: Some(retry),
        idle_grace: Duration::from_millis(plan.idle).saturating_sub(TIMEOUT),
        ..ConsumerConfig::default()
    };
    let outbox = Outbox::new(pool);
    let mut consumers = outbox.consumers().handler::<First>().handler::<Second>().handler::<Third>();
    if plan.late {
        consumers = consumers.handler::<Late>();
    }
    for consumer in ["first", "second", "third"] {
        consumers = consumers.options(consumer, |options| options.timeout = TIMEOUT);
    }
    if let Some(gives_up) = &plan.gives_up {
        consumers = consumers.options(&gives_up.skips, |options| options.on_dead = OnDead::Skip);
        consumers = consumers.state(gives_up.mended.clone());
    }
    consumers.state(plan.chaos).config(config).build()?.run().await?;
    Ok(())
}

/// Longer than any handler here takes, and shorter than a hung process may hold its lane.
const TIMEOUT: Duration = Duration::from_millis(400);

/// Records its effect, and then does what its [`Chaos`] and the message say. The first consumer publishes an echo of
/// each order.
///
/// # Errors
/// At random, and on a poisoned message.
///
/// # Panics
/// At random.
pub async fn misbehave<DB: TestBackend>(ctx: &mut Context<DB>) -> Result<(), HandlerError> {
    let chaos: Chaos = *State::from_context(ctx)?;
    let order: Order = take_event(ctx)?;
    let metadata = ctx.metadata().clone();
    let effect = |worker: String| Effect {
        message_id: metadata.id.to_string(),
        consumer: metadata.consumer().to_owned(),
        key: metadata.key.clone(),
        worker,
    };
    if metadata.consumer() == "first" {
        let mut echo =
            Draft::new(ECHOED.event_type, "{}").id(MessageId::new(format!("echo-{}", metadata.id))?);
        if let Some(order) = &metadata.aggregate_id {
            echo = echo.aggregate_id(order);
        }
        ctx.publish(echo)?;
    }
    DB::insert_effect(ctx, &effect(std::process::id().to_string())).await?;
    if let Some(poison) = order.poison {
        let mended: State<Mended> = State::from_context(ctx)?;
        match poison {
            _ if mended.is_mended(metadata.id.as_str()) => {}
            Poison::Fails => return Err("poison".into()),
            Poison::Terminal => return Err(HandlerError::terminal("poison, and hopeless")),
        }
    }

    let mut die = fastrand::u32(0..1000);
    let mut falls = |per_mille: u32| {
        let hit = die < per_mille;
        die = if hit { u32::MAX } else { die - per_mille };
        hit
    };
    if falls(chaos.fail) {
        return Err("as the dice fell".into());
    } else if falls(chaos.panic) {
        panic!("as the dice fell");
    } else if falls(chaos.end) {
        let known = if DB::NAME == "SQLite" { &ENDINGS[..6] } else { ENDINGS };
        let ending = fastrand::choice(known).expect("there are some");
        if DB::execute(ctx, ending).await.is_err() && DB::NAME == "MySQL" {
            // Refused and nothing more: the transaction goes on.
            return if fastrand::bool() { Ok(()) } else { Err("after an end that was refused".into()) };
        }
        // Whatever state that left: this must not become durable either.
        let _ = DB::insert_effect(ctx, &effect(format!("after {ending}"))).await;
        return if fastrand::bool() { Ok(()) } else { Err("after the end".into()) };
    } else if falls(chaos.swallow) {
        let _ = DB::execute(ctx, "select no_such_function()").await;
    } else if falls(chaos.abandon) {
        let patience = Duration::from_micros(fastrand::u64(0..5_000));
        let _ = tokio::time::timeout(patience, DB::texts(ctx, DB::SLOW_QUERY)).await;
        return if fastrand::bool() { Ok(()) } else { Err("after a query that was dropped".into()) };
    } else if falls(chaos.nest) {
        let mut nested = ctx.begin().await?;
        DB::insert_effect(&mut nested, &effect("in a savepoint that was dropped".to_owned())).await?;
    }
    Ok(())
}
