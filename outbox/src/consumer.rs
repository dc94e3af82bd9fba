//! Consumers: put together by a builder, then run until a signal, until idle, or once.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::alive;
use crate::backend::Backend;
use crate::budget::Budget;
use crate::config::ConsumerConfig;
use crate::connections::{ConnectOptions, Connections};
use crate::dispatch::Dispatch;
use crate::error::{Error, ErrorKind, Result};
use crate::executor::Engine;
use crate::handler::{Handler, HandlerVTable, States};
use crate::lease::Keeper;
use crate::options::HandlerOptions;
use crate::publish::Outbox;
use crate::register::register;
use crate::registry::{self, HandlerInfo, Registered};
use crate::report::{Tally, Total};
use crate::select::Consumer;
use crate::signals::Signals;

/// How far `remaining` counts.
const COUNT_LIMIT: i64 = 10_000;

/// How long the last look at the database may take when a run ends.
const LAST_LOOK: Duration = Duration::from_secs(1);

/// Gathers handlers, states and settings. Made by [`Outbox::consumers`].
pub struct ConsumersBuilder<DB: Backend> {
    outbox: Outbox<DB>,
    handlers: Vec<HandlerVTable<DB>>,
    states: States,
    config: ConsumerConfig,
    /// Consumers that were named before they were given.
    unknown: Vec<String>,
    expected: Vec<String>,
    #[cfg(feature = "macros")]
    nothing_linked: bool,
}

impl<DB: Backend> Outbox<DB> {
    /// Begins to put this process's consumers together.
    ///
    /// ```
    /// # async fn example(outbox: outbox::Outbox<sqlx::Sqlite>) -> Result<(), Box<dyn std::error::Error>> {
    /// # struct Mailer;
    /// outbox.consumers().registered().state(Mailer).build()?.run().await?;
    /// # Ok(()) }
    /// ```
    #[must_use]
    pub fn consumers(&self) -> ConsumersBuilder<DB> {
        ConsumersBuilder {
            outbox: self.clone(),
            handlers: Vec::new(),
            states: States::default(),
            config: ConsumerConfig::default(),
            unknown: Vec::new(),
            expected: Vec::new(),
            #[cfg(feature = "macros")]
            nothing_linked: false,
        }
    }
}

impl<DB: Backend> ConsumersBuilder<DB> {
    /// All handlers of this database that `#[outbox_handler]` registered in the program.
    ///
    /// A crate that nothing mentions is not linked, and its handlers with it: write `use billing_handlers as _;`.
    #[cfg(feature = "macros")]
    #[must_use]
    pub fn registered(mut self) -> Self {
        let linked = registry::linked();
        self.nothing_linked = linked.is_empty();
        self.handlers.extend(linked);
        self
    }

    /// One handler by the name of its function; for those marked `manual`, and instead of
    /// [`registered`](Self::registered).
    #[must_use]
    pub fn handler<H: Handler<DB>>(mut self) -> Self {
        self.handlers.push(H::VTABLE);
        self
    }

    /// Consumers that must have a handler: without one [`build`](Self::build) fails, and says what is missing. So a crate that
    /// is not linked any more is noticed at the start, and not by its messages that pile up.
    ///
    /// ```
    /// # fn example(outbox: outbox::Outbox<sqlx::Sqlite>) {
    /// outbox.consumers().registered().expect_consumers(["billing", "stock"]);
    /// # }
    /// ```
    #[must_use]
    pub fn expect_consumers(mut self, names: impl IntoIterator<Item: Into<String>>) -> Self {
        self.expected.extend(names.into_iter().map(Into::into));
        self
    }

    /// A value that handlers take as `State<T>`. A second one of a type replaces the first.
    #[must_use]
    pub fn state<T: Send + Sync + 'static>(mut self, value: T) -> Self {
        self.states.insert(value);
        self
    }

    /// Changes the policies of a consumer's handlers, whatever their attributes say. The name must be that of a
    /// consumer given before.
    ///
    /// ```
    /// # fn example(outbox: outbox::Outbox<sqlx::Sqlite>) {
    /// outbox.consumers().registered().options("billing", |options| options.retry.max_attempts = 3);
    /// # }
    /// ```
    #[must_use]
    pub fn options(mut self, consumer: &str, change: impl Fn(&mut HandlerOptions)) -> Self {
        let mut handlers = self.handlers.iter_mut().filter(|handler| handler.consumer == consumer).peekable();
        if handlers.peek().is_none() {
            self.unknown.push(consumer.to_owned());
        }
        handlers.for_each(|handler| change(&mut handler.options));
        self
    }

    /// Settings of one's own.
    #[must_use]
    pub fn config(mut self, config: ConsumerConfig) -> Self {
        self.config = config;
        self
    }

    /// Checks that everything fits together. The database is asked for nothing yet.
    ///
    /// # Errors
    /// [`Registry`](ErrorKind::Registry): two handlers of one consumer for one type, a `State` that was not given,
    /// no handler at all, or none of an expected consumer. [`Config`](ErrorKind::Config): no executors, a `poll_interval` or `maintenance_interval` of 0, a
    /// `retention` that contradicts itself, a `listen_url` that is none of this database.
    pub fn build(mut self) -> Result<Consumers<DB>> {
        registry::require(&self.expected, &self.handlers)?;
        #[cfg(feature = "macros")]
        if self.nothing_linked && self.handlers.is_empty() {
            return Err(registry::refuse(format!(
                "no handler for {} is linked into this program; a crate that nothing mentions is not linked: write \
                 `use its_name as _;`, or name handlers with `.handler::<name>()`",
                DB::DATABASE
            )));
        }
        if self.handlers.is_empty() {
            return Err(registry::refuse(
                "no handler was given; add `.registered()` or `.handler::<name>()`".to_owned(),
            ));
        }
        if let Some(unknown) = self.unknown.first() {
            return Err(registry::refuse(format!(
                "`.options(\"{unknown}\", ..)` names no consumer that was given before; `.registered()` or \
                 `.handler::<name>()` goes first"
            )));
        }
        if self.config.executors == 0 {
            return Err(Error::new(ErrorKind::Config, "`executors` is 0, and nothing would ever be handled"));
        }
        if self.config.poll_interval.is_zero() {
            return Err(Error::new(
                ErrorKind::Config,
                "`poll_interval` is 0, and would never let the database rest",
            ));
        }
        if self.config.maintenance_interval.is_zero() {
            return Err(Error::new(
                ErrorKind::Config,
                "`maintenance_interval` is 0, and would never let the database rest",
            ));
        }
        self.config.retention.check()?;
        if let Some(retry) = self.config.retry {
            self.handlers.iter_mut().for_each(|handler| handler.options.retry = retry);
        }
        let listener = self.config.listen_url.as_deref().map(str::parse).transpose();
        // Not with its text, which may hold a password.
        let listener = listener.map_err(|error: sqlx::Error| {
            Error::new(ErrorKind::Config, format!("`listen_url` is no URL of {}", DB::DATABASE))
                .with_source(error)
        })?;
        let registered = registry::resolve(self.handlers, &self.states)?;
        let Self { outbox, states, config, .. } = self;
        Ok(Consumers { outbox, registered, states, config, listener })
    }
}

#[cfg(feature = "testing")]
impl<DB: Backend> ConsumersBuilder<DB> {
    /// For tests: handles everything that is due, what handlers publish included, and returns when nothing is.
    ///
    /// One message after the other, without waiting for anything: what failed or was put off remains until the
    /// [clock](crate::testing::Clock) is advanced. Pauses between attempts are exactly what the policies say, without jitter.
    ///
    /// ```
    /// # async fn example(outbox: outbox::Outbox<sqlx::Sqlite>) -> outbox::Result<()> {
    /// let report = outbox.consumers().registered().drain().await?;
    /// assert_eq!((report.retried, report.dead), (0, 0));
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// As [`build`](Self::build) and [`Consumers::run_until_idle`].
    pub async fn drain(mut self) -> Result<Report> {
        self.config.executors = 1;
        if let Some(retry) = &mut self.config.retry {
            retry.jitter = 0.0;
        }
        for handler in &mut self.handlers {
            handler.options.retry.jitter = 0.0;
            handler.options.concurrency = 1;
            handler.options.rate = None;
        }
        self.build()?.run_until_idle().await
    }
}

impl<DB: Backend> fmt::Debug for ConsumersBuilder<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConsumersBuilder").field("handlers", &self.handlers).finish_non_exhaustive()
    }
}

/// The consumers of this process, ready to run.
pub struct Consumers<DB: Backend> {
    outbox: Outbox<DB>,
    registered: Vec<Registered<DB>>,
    states: States,
    config: ConsumerConfig,
    listener: Option<ConnectOptions<DB>>,
}

/// What a run did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Report {
    /// Messages whose handler succeeded.
    pub handled: u64,
    /// Messages that an inbox mark showed to be handled already; their handler did not run.
    pub duplicates: u64,
    /// Attempts that failed and will be repeated.
    pub retried: u64,
    /// Messages that their handler put off, without an attempt.
    pub snoozed: u64,
    /// Messages that gave up.
    pub dead: u64,
    /// Messages that were put aside without an attempt: an unreadable row, a type that this build does not know.
    pub parked: u64,
    /// How many times another worker took over a lane that an external consumer of this process was at.
    pub leases_lost: u64,
    /// Unfinished messages of these consumers at the end, dead ones and what waits behind them included, counted up
    /// to 10 000; 0 after [`Consumers::run`].
    pub remaining: u64,
}

impl<DB: Backend> Consumers<DB> {
    /// The handlers, sorted by consumer and name.
    #[must_use]
    pub fn handlers(&self) -> Vec<HandlerInfo> {
        self.registered.iter().flat_map(Registered::infos).collect()
    }

    /// Runs until SIGTERM or SIGINT (Ctrl-C), then finishes what is being handled; a second signal cuts that short.
    ///
    /// A database that goes away and comes back is waited for.
    ///
    /// # Errors
    /// As [`run_until`](Self::run_until).
    pub async fn run(self) -> Result<Report> {
        let mut signals = Signals::new()?;
        let engine = self.start(Budget::default()).await?;
        let mut work = Work::spawn(&engine);
        tokio::select! {
            () = signals.next() => tracing::info!("stopping: finishing what is being handled"),
            () = engine.dispatch.stop.cancelled() => {}
        }
        engine.dispatch.stop.cancel();
        let report = tokio::select! {
            report = work.drain(&engine) => report,
            () = signals.next() => Ok(work.abort(&engine).await),
        };
        engine.dispatch.refusal().map_or(report, Err)
    }

    /// Runs until `shutdown` completes, then finishes what is being handled, for at most
    /// [`shutdown_grace`](ConsumerConfig::shutdown_grace).
    ///
    /// Dropping the returned future ends it at once: what was being handled is rolled back and handled later.
    ///
    /// # Errors
    /// [`Registry`](ErrorKind::Registry) where one of the consumers was [dropped](crate::Admin::drop_consumer) while this process was
    /// away. At the start only: [`NotMigrated`](ErrorKind::NotMigrated), [`Unsupported`](ErrorKind::Unsupported),
    /// [`Unavailable`](ErrorKind::Unavailable), [`ReadOnly`](ErrorKind::ReadOnly), [`Database`](ErrorKind::Database).
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<Report> {
        let engine = self.start(Budget::default()).await?;
        let mut work = Work::spawn(&engine);
        engine.dispatch.stop.run_until_cancelled(shutdown).await;
        engine.dispatch.stop.cancel();
        let report = work.drain(&engine).await;
        engine.dispatch.refusal().map_or(report, Err)
    }

    /// Claims once for every consumer and handles what it claimed. It removes nothing that is old:
    /// [`Admin::prune`](crate::Admin::prune) does.
    ///
    /// # Errors
    /// As [`run_until`](Self::run_until), at any time.
    pub async fn run_once(self) -> Result<Report> {
        let engine = self.start(Budget::default()).await?;
        let work = Work::beating(&engine);
        let worked = engine.clone().execute_once().await;
        work.end(&engine, worked).await
    }

    /// Handles everything that is runnable, what handlers publish included, and returns when nothing is. Failed
    /// messages whose pause is not over remain. It removes nothing that is old: [`Admin::prune`](crate::Admin::prune) does.
    ///
    /// # Errors
    /// As [`run_until`](Self::run_until), at any time.
    pub async fn run_until_idle(self) -> Result<Report> {
        self.idle_or(Budget::default(), std::future::pending()).await
    }

    /// [`run_until_idle`](Self::run_until_idle), which begins nothing more when the budget is spent or `over` completes.
    pub(crate) async fn idle_or(self, budget: Budget, over: impl Future<Output = ()>) -> Result<Report> {
        let engine = self.start(budget).await?;
        let work = Work::beating(&engine);
        let mut executors = JoinSet::new();
        for _ in 0..self::executors::<DB>(&engine.dispatch.config) {
            executors.spawn(engine.clone().execute_until_idle());
        }
        let all = async move {
            let mut worked = Ok(());
            while worked.is_ok()
                && let Some(executor) = executors.join_next().await
            {
                worked = executor.map_err(interrupted).flatten();
            }
            worked
        };
        tokio::pin!(all);
        let worked = tokio::select! {
            worked = &mut all => worked,
            () = over => {
                engine.dispatch.stop.cancel();
                all.await
            }
        };
        work.end(&engine, worked).await
    }

    /// Checks the schema, registers the consumers, and says what is about to run.
    async fn start(self, budget: Budget) -> Result<Arc<Engine<DB>>> {
        let (executors, pooled) = (executors::<DB>(&self.config), self.config.pooler.is_present());
        let (connections, mut session) =
            Connections::connect(&self.outbox, executors, self.listener, pooled).await?;
        let failed = |error| Error::database(DB::kind(&error), "look at the database", error);
        session.enter(self.outbox.sql()).await.map_err(failed)?;
        if let Some(reason) = DB::unsupported(&mut session, self.outbox.sql()).await.map_err(failed)? {
            return Err(Error::new(ErrorKind::Unsupported, reason));
        }
        self.outbox.require_schema(&mut session).await?;
        session.leave().await.map_err(failed)?;
        let rows = register(&self.outbox, &mut session, &self.registered).await?;
        for handler in self.registered.iter().flat_map(Registered::infos) {
            tracing::info!(
                consumer = handler.consumer,
                handler = handler.name,
                effect = ?handler.effect,
                event_types = ?handler.event_types,
                "registered"
            );
        }
        let consumers = rows.into_iter().zip(self.registered);
        let consumers: Vec<_> =
            consumers.map(|(row, registered)| Consumer::new(row, registered, budget.clone())).collect();
        tracing::info!(
            version = env!("CARGO_PKG_VERSION"),
            database = DB::DATABASE,
            executors,
            poll = ?self.config.poll_interval,
            "outbox starts"
        );
        let pooled = DB::is_pooled(self.outbox.sql());
        if pooled {
            let notify = self.outbox.config().notify;
            say_pooled(notify && connections.hears(), self.config.poll_interval);
        }
        // It may be the only one there is.
        drop(session);
        let worker = alive::this_process(consumers.iter().map(|consumer| consumer.row.id).collect(), pooled);
        let longest = consumers.iter().map(|consumer| consumer.registered.longest_timeout()).max();
        let idle = longest
            .unwrap_or_default()
            .saturating_add(self.config.group_window)
            .saturating_add(self.config.idle_grace);
        let keeper = Keeper::new(self.outbox.clone(), connections.clone(), worker.id.clone());
        let dispatch = Dispatch {
            outbox: self.outbox,
            connections,
            config: self.config,
            states: self.states,
            worker: worker.id.clone(),
            idle,
            stop: CancellationToken::new(),
            refused: std::sync::Mutex::default(),
            total: Total::default(),
            alone: Arc::default(),
        };
        let engine = Engine::new(dispatch, keeper, consumers, worker);
        engine.greet().await?;
        let mut session = engine.dispatch.connections.reserve().await?;
        alive::name_orphans(&engine.dispatch.outbox, &mut session, &engine.worker).await?;
        drop(session);
        Ok(Arc::new(engine))
    }
}

impl<DB: Backend> fmt::Debug for Consumers<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Consumers").field("handlers", &self.handlers()).finish_non_exhaustive()
    }
}

impl Report {
    fn new(tally: Tally, remaining: u64) -> Self {
        Self {
            handled: tally.handled,
            duplicates: tally.duplicates,
            retried: tally.retried,
            snoozed: tally.snoozed,
            dead: tally.dead,
            parked: tally.parked,
            leases_lost: tally.leases_lost,
            remaining,
        }
    }
}

fn say_pooled(hears: bool, poll: Duration) {
    tracing::warn!(
        hears,
        ?poll,
        "behind a pooler: what a handler writes after it has ended its transaction by hand is noticed and not undone, and each \
         message has a savepoint of its own; other processes are heard by `listen_url` only, and found by polling without"
    );
}

/// Where writers exclude each other, a second executor would only wait for the first.
fn executors<DB: Backend>(config: &ConsumerConfig) -> usize {
    if DB::SINGLE_WRITER { 1 } else { config.executors }
}

/// The tasks of a run. Dropped, they end at their next await, and their transactions roll back.
struct Work {
    executors: JoinSet<()>,
    /// The poll, and what listens. It goes on while handlers finish, so that nobody takes this process for dead.
    watch: JoinSet<()>,
    /// Cancelled when the executors have ended.
    over: CancellationToken,
}

impl Work {
    fn spawn<DB: Backend>(engine: &Arc<Engine<DB>>) -> Self {
        let mut work =
            Self { executors: JoinSet::new(), watch: JoinSet::new(), over: CancellationToken::new() };
        for _ in 0..executors::<DB>(&engine.dispatch.config) {
            work.executors.spawn(engine.clone().execute());
        }
        for (consumer, _) in engine.consumers.iter().enumerate().filter(|(_, it)| it.registered.is_external())
        {
            work.executors.spawn(engine.clone().carry(consumer));
        }
        work.watch.spawn(engine.clone().poll(true, work.over.clone()));
        work.watch.spawn(engine.clone().maintain());
        if engine.dispatch.outbox.config().notify {
            work.watch.spawn(engine.clone().listen());
        }
        work
    }

    /// For a run that asks for its work itself: nothing but heartbeats. Where the only connection is the application's, there is
    /// no other process.
    fn beating<DB: Backend>(engine: &Arc<Engine<DB>>) -> Self {
        let mut work =
            Self { executors: JoinSet::new(), watch: JoinSet::new(), over: CancellationToken::new() };
        if !engine.dispatch.connections.borrowed() {
            work.watch.spawn(engine.clone().poll(false, work.over.clone()));
        }
        work
    }

    /// The end of such a run.
    async fn end<DB: Backend>(mut self, engine: &Engine<DB>, worked: Result<()>) -> Result<Report> {
        let remaining = match worked {
            Ok(()) => engine.remaining(COUNT_LIMIT).await,
            Err(error) => Err(error),
        };
        if remaining.as_ref().is_err_and(|error| error.kind() == ErrorKind::Unavailable) {
            // Nor could a good-bye be said.
            return remaining.map(|_| Report::default());
        }
        let report = self.abort(engine).await;
        if let Some(error) = engine.dispatch.refusal() {
            return Err(error);
        }
        Ok(Report { remaining: remaining?, ..report })
    }

    /// Waits for the executors, which have been told to stop.
    async fn drain<DB: Backend>(&mut self, engine: &Engine<DB>) -> Result<Report> {
        let all = async {
            while let Some(executor) = self.executors.join_next().await {
                executor.map_err(interrupted)?;
            }
            Ok(())
        };
        let grace = engine.dispatch.config.shutdown_grace;
        if let Ok(outcome) = tokio::time::timeout(grace, all).await {
            outcome?;
        } else {
            tracing::warn!(
                ?grace,
                "handlers did not finish in time; they are rolled back and their messages handled later"
            );
        }
        Ok(self.abort(engine).await)
    }

    async fn abort<DB: Backend>(&mut self, engine: &Engine<DB>) -> Report {
        self.executors.shutdown().await;
        // Not in the middle of a heartbeat: it might arrive after the good-bye.
        self.over.cancel();
        let ended = async { while self.watch.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_LOOK, ended).await.is_err() {
            self.watch.shutdown().await;
        }
        engine.leave().await;
        Report::new(engine.dispatch.total.get(), 0)
    }
}

fn interrupted(error: tokio::task::JoinError) -> Error {
    Error::new(ErrorKind::Unavailable, "an executor was interrupted").with_source(error)
}
