//! Latency: from a commit to the handled message, while messages come at a rate.

use std::collections::HashMap;
use std::time::Duration;

use outbox::Outbox;
use serde::Serialize;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

use crate::args::Args;
use crate::consume;
use crate::database::{Database, Place};
use crate::handlers::Happened;
use crate::numbers::percentile;
use crate::verify::Verdict;
use crate::workers::{Crew, now};

/// Milliseconds from the answer to a commit until a consumer has handled the message and committed that.
#[derive(Debug, Clone, Copy, Serialize)]
pub(crate) struct Latency {
    pub(crate) p50: f64,
    pub(crate) p95: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
    /// How many messages a second were published.
    pub(crate) rate: u32,
    /// How many times were taken: one for each message and consumer.
    pub(crate) samples: usize,
}

/// Publishes at the rate, whether or not the consumers keep up.
pub(crate) async fn measure<DB: Database>(
    place: &Place<DB>,
    args: &Args,
) -> anyhow::Result<(Latency, Verdict)> {
    // What fails for ever, or stands behind something else, has no latency.
    let args = &Args { failing: 0.0, backlog: 0, ..args.clone() };
    consume::prepare(place, args).await?;
    let mut crew = Crew::start(place, args, true).await?;
    crew.go().await?;
    let consumers = i64::from(args.consumers);
    // Once it is handled, the consumers are connected; it is not counted.
    publish(&place.outbox, 0, args.key(0)).await?;
    consume::until_handled(place, args, consumers).await?;
    let mut committed = HashMap::new();

    let messages = i64::from(args.rate) * i64::from(args.seconds);
    let mut tick = interval(Duration::from_secs(1) / args.rate);
    tick.set_missed_tick_behavior(MissedTickBehavior::Burst);
    // Each has keys of its own, and so publishes a key's messages in the order of their numbers.
    let mut publishers = Vec::new();
    let mut publishing = JoinSet::new();
    for _ in 0..args.executors {
        let (publisher, mut numbers) = mpsc::unbounded_channel();
        publishers.push(publisher);
        let (outbox, args) = (place.outbox.clone(), args.clone());
        publishing.spawn(async move {
            let mut committed = Vec::new();
            while let Some(message) = numbers.recv().await {
                committed.push(publish(&outbox, message, args.key(message)).await?);
            }
            anyhow::Ok(committed)
        });
    }
    for message in 1..=messages {
        tick.tick().await;
        let publisher = args.key(message) % i64::from(args.executors);
        publishers[usize::try_from(publisher)?].send(message)?;
    }
    drop(publishers);
    while let Some(published) = publishing.join_next().await {
        committed.extend(published??);
    }
    consume::until_handled(place, args, (messages + 1) * consumers).await?;
    let samples = crew.stop().await?;
    let verdict = consume::check(place, args, messages + 1, false).await?;

    let times = samples.iter().filter_map(|sample| Some(sample.at - committed.get(&sample.message_id)?));
    // A consumer that looks at the right moment sees the commit before its publisher has the answer.
    let mut times: Vec<i64> = times.map(|time| time.max(0)).collect();
    times.sort_unstable();
    let latency = Latency {
        p50: percentile(&times, 50),
        p95: percentile(&times, 95),
        p99: percentile(&times, 99),
        max: percentile(&times, 100),
        rate: args.rate,
        samples: times.len(),
    };
    Ok((latency, verdict))
}

/// The message's id, and when the answer to its commit was there.
async fn publish<DB: Database>(outbox: &Outbox<DB>, message: i64, key: i64) -> anyhow::Result<(String, i64)> {
    let tx = outbox.begin().await?;
    let id = tx.publish_event(Happened { message, key })?;
    tx.commit().await?;
    Ok((id.to_string(), now()))
}
