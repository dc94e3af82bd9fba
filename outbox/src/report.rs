//! Saying what happened, after the commit that made it true: in the log, as notices, and in the counts of a run.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::backend::{Backend, ParkedState, Parking};
use crate::handler::Metadata;
use crate::notice::{Notice, Stored};
use crate::publish::Outbox;

/// What transactions did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) handled: u64,
    pub(crate) duplicates: u64,
    pub(crate) retried: u64,
    pub(crate) snoozed: u64,
    pub(crate) dead: u64,
    pub(crate) parked: u64,
    pub(crate) moved: u64,
    pub(crate) leases_lost: u64,
}

impl Tally {
    pub(crate) fn add(&mut self, other: Self) {
        self.handled += other.handled;
        self.duplicates += other.duplicates;
        self.retried += other.retried;
        self.snoozed += other.snoozed;
        self.dead += other.dead;
        self.parked += other.parked;
        self.moved += other.moved;
        self.leases_lost += other.leases_lost;
    }
}

/// What a run did until now, whatever becomes of its tasks.
#[derive(Debug, Default)]
pub(crate) struct Total(Mutex<Tally>);

impl Total {
    pub(crate) fn add(&self, tally: Tally) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).add(tally);
    }

    pub(crate) fn get(&self) -> Tally {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

pub(crate) fn handled<DB: Backend>(
    outbox: &Outbox<DB>,
    metadata: &Metadata,
    duration: Duration,
    tally: &mut Tally,
) {
    let attempt = metadata.attempt();
    tracing::debug!(consumer = metadata.consumer(), message_id = %metadata.id, attempt, ?duration, "handled");
    tally.handled += 1;
    outbox.notify(|| Notice::Handled {
        consumer: metadata.consumer_arc(),
        message_id: metadata.id.clone(),
        attempt,
        duration,
    });
}

/// A lane that was ours is another's, with messages under way.
pub(crate) fn lease_lost<DB: Backend>(
    outbox: &Outbox<DB>,
    consumer: Arc<str>,
    lane: i16,
    messages: usize,
    tally: &mut Tally,
) {
    tracing::warn!(
        %consumer,
        lane,
        messages,
        "lease lost: another worker has the lane, and what was under way may be handled twice"
    );
    tally.leases_lost += 1;
    outbox.notify(|| Notice::LeaseLost { consumer, messages });
}

/// What handlers have published.
pub(crate) fn stored<DB: Backend>(outbox: &Outbox<DB>, messages: Vec<Stored>) {
    if !messages.is_empty() {
        outbox.wake().followed_up();
        outbox.notify(|| Notice::Stored { messages });
    }
}

/// A failing handler is the user's event and not our error: INFO on a retry, WARN when it gave up.
pub(crate) fn failed<DB: Backend>(
    outbox: &Outbox<DB>,
    metadata: &Metadata,
    parking: Parking,
    duration: Duration,
    tally: &mut Tally,
) {
    let (consumer, message_id, attempt) = (metadata.consumer_arc(), metadata.id.clone(), metadata.attempt());
    let (again_in, error) = (parking.pause, parking.error.unwrap_or_default());
    match parking.state {
        ParkedState::Delayed => {
            tracing::info!(%consumer, %message_id, again_in = ?again_in.unwrap_or_default(), "snoozed");
            tally.snoozed += 1;
            outbox.notify(|| Notice::Snoozed { consumer, message_id, pause: again_in });
        }
        ParkedState::UnknownType => {
            let event_type = metadata.event_type.clone();
            tracing::warn!(%consumer, %message_id, event_type, error, "put back for a newer build");
            tally.parked += 1;
            outbox.notify(|| Notice::UnknownType { consumer, message_id, event_type });
        }
        ParkedState::Dead | ParkedState::Skipped | ParkedState::Undecodable => {
            // None was made where the payload could not be read.
            let attempt = u32::try_from(parking.attempts).unwrap_or(attempt);
            tracing::warn!(%consumer, %message_id, attempt, error, "dead");
            tally.dead += 1;
            let blocks = parking.state != ParkedState::Skipped && parking.ordered;
            let blocked_key = metadata.key.clone().filter(|_| blocks);
            outbox.notify(|| Notice::Dead { consumer, message_id, attempt, error, blocked_key });
        }
        _ => {
            tracing::info!(
                %consumer,
                %message_id,
                attempt,
                again_in = ?again_in.unwrap_or_default(),
                error,
                "failed, to be tried again"
            );
            tally.retried += 1;
            let failed =
                || Notice::AttemptFailed { consumer, message_id, attempt, error, duration, again_in };
            outbox.notify(failed);
        }
    }
}
