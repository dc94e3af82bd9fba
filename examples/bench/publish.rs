//! Publishing: the application's rows and their events in one transaction, from many connections at once.

use std::time::Instant;

use tokio::task::JoinSet;

use crate::args::{Args, CALL, Mode};
use crate::cpu::Cpu;
use crate::database::{Database, Place, Side};
use crate::handlers::Happened;
use crate::report::Measured;
use crate::verify::{Effect, Expected, Verdict, verify};

/// Publishes all messages, and checks that they are there.
pub(crate) async fn measure<DB: Database>(
    place: &Place<DB>,
    args: &Args,
) -> anyhow::Result<(Measured, Verdict)> {
    let pinned = place.pin(args).await?;
    let cpu = Cpu::start(place).await?;
    let since = Instant::now();
    publish(place, args).await?;
    let seconds = since.elapsed().as_secs_f64();
    let cpu = cpu.spent();
    drop(pinned);
    let verdict = check(place, args).await?;
    Ok((Measured { messages: args.messages(), seconds, cpu }, verdict))
}

/// Each publisher publishes every nth message, in their order.
pub(crate) async fn publish<DB: Database>(place: &Place<DB>, args: &Args) -> anyhow::Result<()> {
    let mut running = JoinSet::new();
    for publisher in 0..i64::from(args.executors) {
        let (outbox, args) = (place.outbox.clone(), args.clone());
        running.spawn(async move {
            let numbers = (publisher..args.messages()).step_by(usize::from(args.executors));
            let effects: Vec<Effect> =
                numbers.map(|message| Effect { consumer: 0, message, key: args.key(message) }).collect();
            let call = if args.mode == Mode::Many { usize::try_from(CALL)? } else { 1 };
            for group in effects.chunks(call) {
                let mut tx = outbox.begin().await?;
                match group {
                    [one] => DB::insert(&mut tx, Side::Outbox, *one).await?,
                    many => DB::insert_many(&mut tx, Side::Outbox, many).await?,
                }
                for Effect { message, key, .. } in group {
                    tx.publish_event(Happened { message: *message, key: *key })?;
                }
                tx.commit().await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = running.join_next().await {
        ended??;
    }
    Ok(())
}

/// A message for each row and a delivery for each consumer; what one publisher published of a key, in its order.
pub(crate) async fn check<DB: Database>(place: &Place<DB>, args: &Args) -> anyhow::Result<Verdict> {
    let mut conn = place.pool.acquire().await?;
    let publishers = i64::from(args.executors);
    let stored = DB::payloads(&mut conn, "bench.happened").await?;
    let stored = stored.iter().map(|payload| {
        let Happened { message, key } = serde_json::from_slice(payload)?;
        anyhow::Ok(Effect { consumer: 0, message, key: key * publishers + message % publishers })
    });
    let stored: Vec<Effect> = stored.collect::<anyhow::Result<_>>()?;
    let (messages, consumers) = (args.messages(), i64::from(args.consumers));
    let expected = Expected { messages, consumers: 1, failing: 0, undone: 0, ended_early: false };
    let mut verdict = verify(expected, &stored, |_| false);
    let rows = DB::number(&mut conn, "select count(*) from bench_effect").await?;
    let deliveries = DB::number(&mut conn, "select count(*) from outbox_delivery").await?;
    for (found, expected) in [(rows, messages), (deliveries, messages * consumers)] {
        verdict.lost += (expected - found).max(0);
        verdict.duplicated += (found - expected).max(0);
    }
    Ok(verdict)
}
