//! Consuming: what was published before is handled while the time runs.

use std::time::{Duration, Instant};

use crate::args::{Args, CALL, Handler, Mode};
use crate::cpu::Cpu;
use crate::database::{Database, Place, Side};
use crate::handlers::{Followed, Happened};
use crate::report::Measured;
use crate::verify::{Effect, Expected, Verdict, verify};
use crate::workers::Crew;

/// How long nothing may happen before a run is given up; what was not handled is lost then.
const PATIENCE: Duration = Duration::from_mins(1);

/// How often is looked whether all is done.
const LOOK: Duration = Duration::from_millis(10);

/// Makes what was there before the time begins.
pub(crate) async fn fill<DB: Database>(place: &Place<DB>, args: &Args) -> anyhow::Result<()> {
    prepare(place, args).await?;
    if args.mode == Mode::ConsumeOnly {
        publish(place, args, args.published()).await?;
    }
    Ok(())
}

/// History and parked messages.
pub(crate) async fn prepare<DB: Database>(place: &Place<DB>, args: &Args) -> anyhow::Result<()> {
    let mut conn = place.pool.acquire().await?;
    if args.history > 0 {
        DB::insert_history(&mut conn, args.history.into()).await?;
    }
    if args.parked > 0 {
        DB::insert_parked(&mut conn, args.parked.into()).await?;
    }
    Ok(())
}

/// Publishes messages from number 0 on.
pub(crate) async fn publish<DB: Database>(place: &Place<DB>, args: &Args, count: i64) -> anyhow::Result<()> {
    let mut from = 0;
    while from < count {
        let to = count.min(from + CALL);
        let mut tx = place.outbox.begin().await?;
        let events = (from..to).map(|message| Happened { message, key: args.key(message) });
        place.outbox.publish_events(&mut tx, events).await?;
        tx.commit().await?;
        from = to;
    }
    Ok(())
}

/// Lets the consumers handle what is there, and checks what they did.
pub(crate) async fn measure<DB: Database>(
    place: &Place<DB>,
    args: &Args,
) -> anyhow::Result<(Measured, Verdict)> {
    let pinned = place.pin(args).await?;
    let mut crew = Crew::start(place, args, false).await?;
    let cpu = Cpu::start(place).await?;
    let since = Instant::now();
    crew.go().await?;
    let goal = (args.messages() - failing(args, args.messages())) * i64::from(args.consumers);
    let handled = until_handled(place, args, goal).await?;
    let seconds = since.elapsed().as_secs_f64();
    crew.stop().await?;
    let cpu = cpu.spent();
    drop(pinned);
    let verdict = check(place, args, args.published(), args.backlog > 0).await?;
    Ok((Measured { messages: handled / i64::from(args.consumers), seconds, cpu }, verdict))
}

/// How many of the first messages fail for ever.
fn failing(args: &Args, messages: i64) -> i64 {
    let failing = args.failing_keys();
    let count = (0..messages).filter(|message| args.key(*message) < failing).count();
    i64::try_from(count).expect("not more than messages")
}

/// Waits until so many are handled, by all consumers together; how many then are.
pub(crate) async fn until_handled<DB: Database>(
    place: &Place<DB>,
    args: &Args,
    goal: i64,
) -> anyhow::Result<i64> {
    // Cheap enough to be asked for all the time: the end of an index.
    let (hint, exact) = match args.handler {
        Handler::Noop => (
            "select -count(*) from (select 1 from outbox_delivery limit 1) first",
            "select count(*) from outbox_inbox where message_id not like 'history-%'",
        ),
        _ => ("select coalesce(max(id), 0) from bench_effect", "select count(*) from bench_effect"),
    };
    let mut enough = if args.handler == Handler::Noop { 0 } else { goal };
    let mut conn = place.pool.acquire().await?;
    let (mut latest, mut since) = (0, Instant::now());
    loop {
        let hinted = DB::number(&mut conn, hint).await?;
        if hinted >= enough || since.elapsed() > PATIENCE {
            let handled = DB::number(&mut conn, exact).await?;
            if handled >= goal || (handled <= latest && since.elapsed() > PATIENCE) {
                return Ok(handled);
            }
            if handled > latest {
                (latest, since) = (handled, Instant::now());
            }
            if args.handler != Handler::Noop {
                // Numbers went to attempts that failed; each effect that is missing needs one more.
                enough = hinted + goal - handled;
            }
        }
        tokio::time::sleep(LOOK).await;
    }
}

/// Compares what the handlers have left with what was published.
pub(crate) async fn check<DB: Database>(
    place: &Place<DB>,
    args: &Args,
    messages: i64,
    ended_early: bool,
) -> anyhow::Result<Verdict> {
    let undone = place
        .number(
            "select (select count(*) from outbox_delivery d join outbox_consumer c on c.id = d.consumer
                     where c.name <> 'follower')
                  + (select count(*) from outbox_parked where seq < 1000000000000)",
        )
        .await?;
    let consumers = i64::from(args.consumers);
    let expected = Expected { messages, consumers, failing: failing(args, messages), undone, ended_early };
    if args.handler == Handler::Noop {
        // It leaves nothing but its marks, which are unique and have no order.
        let marks =
            place.number("select count(*) from outbox_inbox where message_id not like 'history-%'").await?;
        let missing = messages * consumers - marks - undone;
        return Ok(Verdict { lost: missing.max(0), duplicated: (-missing).max(0), out_of_order: 0 });
    }
    let failing_keys = args.failing_keys();
    let mut conn = place.pool.acquire().await?;
    let effects = DB::effects(&mut conn, Side::Outbox).await?;
    let mut verdict = verify(expected, &effects, |key| key < failing_keys);
    if args.handler == Handler::FollowUp {
        let payloads = DB::payloads(&mut conn, "bench.followed").await?;
        let follow_ups = payloads.iter().map(|payload| {
            let Followed { consumer, message, key } = serde_json::from_slice(payload)?;
            anyhow::Ok(Effect { consumer, message, key })
        });
        let follow_ups: Vec<Effect> = follow_ups.collect::<anyhow::Result<_>>()?;
        verdict.add(verify(expected, &follow_ups, |key| key < failing_keys));
    }
    Ok(verdict)
}
