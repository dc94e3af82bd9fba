//! The events and their handlers.

use std::time::Duration;

use crate::args::{Args, Handler};
use crate::database::{Database, HOT_ROWS, Side};
use crate::verify::Effect;
use outbox::{
    BatchOutcome, ConsumerConfig, Consumers, ConsumersBuilder, Context, Envelope, HandlerError, Outbox,
    OutboxEvent, Retry, State, outbox_handler,
};
use serde::{Deserialize, Serialize};

/// What is published.
#[derive(Debug, Serialize, Deserialize, OutboxEvent)]
#[outbox(type = "bench.happened", aggregate = "{key}")]
pub(crate) struct Happened {
    pub(crate) message: i64,
    pub(crate) key: i64,
}

/// What the handlers of `follow-up` publish.
#[derive(Debug, Serialize, Deserialize, OutboxEvent)]
#[outbox(type = "bench.followed", aggregate = "{key}")]
pub(crate) struct Followed {
    pub(crate) consumer: i16,
    pub(crate) message: i64,
    pub(crate) key: i64,
}

/// What all handlers do.
#[derive(Debug, Clone, Copy)]
struct Work {
    handler: Handler,
    failing_keys: i64,
}

impl Work {
    async fn run<DB: Database>(
        self,
        consumer: i16,
        happened: Happened,
        ctx: &mut Context<DB>,
    ) -> Result<(), HandlerError> {
        let effect = Effect { consumer, message: happened.message, key: happened.key };
        if effect.key < self.failing_keys {
            return Err("as its key says".into());
        }
        if self.handler == Handler::FollowUp {
            let Effect { consumer, message, key } = effect;
            ctx.publish_event(Followed { consumer, message, key })?;
        }
        leave::<DB>(ctx, self.handler, Side::Outbox, effect).await?;
        Ok(())
    }

    async fn run_batch<DB: Database>(
        self,
        consumer: i16,
        batch: Vec<Envelope<Happened>>,
        ctx: &mut Context<DB>,
    ) -> Result<BatchOutcome, HandlerError> {
        let mut outcome = BatchOutcome::new();
        let mut effects = Vec::with_capacity(batch.len());
        for happened in &batch {
            if happened.key < self.failing_keys {
                outcome.fail(&happened.metadata.id, "as its key says");
            } else {
                effects.push(Effect { consumer, message: happened.message, key: happened.key });
            }
        }
        DB::insert_many(ctx, Side::Outbox, &effects).await?;
        Ok(outcome)
    }
}

/// Leaves a handler's effect, but for what it publishes: the same statements on both sides.
pub(crate) async fn leave<DB: Database>(
    conn: &mut DB::Connection,
    handler: Handler,
    side: Side,
    effect: Effect,
) -> sqlx::Result<()> {
    if handler == Handler::Noop {
        return Ok(());
    }
    DB::insert(conn, side, effect).await?;
    if handler == Handler::UpdateHot {
        // Any two rows, in any order, and for a message the same on both sides.
        for factor in [7_919, 104_729] {
            DB::update_hot(conn, (effect.message * factor / 3) % HOT_ROWS).await?;
        }
    }
    Ok(())
}

/// Handlers for each consumer that there can be, whose name is a constant: one message a call, and many.
macro_rules! consumers {
    ($($index:literal $one:ident $batch:ident $consumer:literal),+ $(,)?) => {
        $(
            #[outbox_handler(manual, consumer = $consumer)]
            async fn $one<DB: Database>(
                happened: Happened,
                work: State<Work>,
                ctx: &mut Context<DB>,
            ) -> Result<(), HandlerError> {
                work.run($index, happened, ctx).await
            }

            #[outbox_handler(manual, consumer = $consumer)]
            async fn $batch<DB: Database>(
                batch: Vec<Envelope<Happened>>,
                work: State<Work>,
                ctx: &mut Context<DB>,
            ) -> Result<BatchOutcome, HandlerError> {
                work.run_batch($index, batch, ctx).await
            }
        )+

        /// Those that the options ask for.
        fn add<DB: Database>(mut builder: ConsumersBuilder<DB>, args: &Args) -> ConsumersBuilder<DB> {
            $(
                if $index < args.consumers {
                    builder = match args.handler {
                        Handler::Batch => builder.handler::<$batch<DB>>(),
                        _ => builder.handler::<$one<DB>>(),
                    };
                    builder = builder.options($consumer, |options| {
                        options.group = args.group;
                        options.batch = args.group;
                    });
                }
            )+
            builder.state(Work::new(args))
        }
    };
}

consumers!(0 c0 batch0 "c0", 1 c1 batch1 "c1", 2 c2 batch2 "c2", 3 c3 batch3 "c3", 4 c4 batch4 "c4", 5 c5 batch5 "c5", 6 c6 batch6 "c6", 7 c7 batch7 "c7", 8 c8 batch8 "c8", 9 c9 batch9 "c9", 10 c10 batch10 "c10", 11 c11 batch11 "c11", 12 c12 batch12 "c12", 13 c13 batch13 "c13", 14 c14 batch14 "c14", 15 c15 batch15 "c15");

/// Is registered so that follow-ups have a delivery, and never runs while the time does.
#[outbox_handler(manual, consumer = "follower")]
async fn follower<DB: Database>(_: Followed, _: &mut Context<DB>) {}

/// Makes the consumers known, so that what is published from now on is delivered to them.
pub(crate) async fn register<DB: Database>(outbox: &Outbox<DB>, args: &Args) -> anyhow::Result<()> {
    let mut builder = add(outbox.consumers(), args);
    if args.handler == Handler::FollowUp {
        builder = builder.handler::<follower<DB>>();
    }
    builder.build()?.run_once().await?;
    Ok(())
}

/// The consumers of one process.
pub(crate) fn consumers<DB: Database>(
    outbox: &Outbox<DB>,
    args: &Args,
    executors: u16,
) -> anyhow::Result<Consumers<DB>> {
    let retry = (args.failing > 0.0).then(|| Retry::every(Duration::from_millis(200)));
    let config = ConsumerConfig { executors: executors.into(), retry, ..ConsumerConfig::default() };
    Ok(add(outbox.consumers(), args).config(config).build()?)
}

impl Work {
    fn new(args: &Args) -> Self {
        Self { handler: args.handler, failing_keys: args.failing_keys() }
    }
}
