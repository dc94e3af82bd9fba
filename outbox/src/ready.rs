//! Which consumers may have something runnable: marked by the poll, taken by the executors.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::rate::Limit;

/// Which consumers may have something runnable. Hints: a claim decides.
pub(crate) struct Ready {
    consumers: Vec<Consumer>,
    notify: Notify,
}

struct Consumer {
    marked: AtomicBool,
    /// Of a consumer that has a task of its own, which the executors leave alone.
    own: Option<Notify>,
    limit: Limit,
}

impl Ready {
    /// For each consumer whether it has a task of its own, and how much it may handle.
    pub(crate) fn new(consumers: impl IntoIterator<Item = (bool, Limit)>) -> Self {
        let consumer = |(own, limit): (bool, Limit)| Consumer {
            marked: AtomicBool::new(false),
            own: own.then(Notify::new),
            limit,
        };
        Self { consumers: consumers.into_iter().map(consumer).collect(), notify: Notify::new() }
    }

    pub(crate) fn mark(&self, consumer: usize) {
        let consumer = &self.consumers[consumer];
        consumer.marked.store(true, Ordering::Release);
        consumer.own.as_ref().unwrap_or(&self.notify).notify_one();
    }

    pub(crate) fn unmark(&self, consumer: usize) -> bool {
        self.consumers[consumer].marked.swap(false, Ordering::AcqRel)
    }

    /// A consumer that is marked and may handle something now, looked for from a random one on; unmarks it. Else how long to wait
    /// for the first that is marked and may not, if there is one.
    fn take(&self) -> Result<usize, Option<Duration>> {
        let count = self.consumers.len();
        let start = fastrand::usize(0..count.max(1));
        let mut limited: Option<Duration> = None;
        for at in (0..count).map(|i| (start + i) % count) {
            let consumer = &self.consumers[at];
            if consumer.own.is_some() || !consumer.marked.load(Ordering::Acquire) {
                continue;
            }
            let wait = consumer.limit.wait();
            if !wait.is_zero() {
                limited = Some(limited.map_or(wait, |shortest| shortest.min(wait)));
            } else if self.unmark(at) {
                return Ok(at);
            }
        }
        Err(limited)
    }

    /// Waits until this consumer, which has a task of its own, is marked; leaves it marked.
    pub(crate) async fn marked(&self, consumer: usize) {
        let consumer = &self.consumers[consumer];
        let notify = consumer.own.as_ref().unwrap_or(&self.notify);
        loop {
            let notified = notify.notified();
            if consumer.marked.load(Ordering::Acquire) {
                return;
            }
            notified.await;
        }
    }

    pub(crate) async fn wait(&self) -> usize {
        loop {
            // Registered before the look, so that a mark in between is not missed.
            let notified = self.notify.notified();
            match self.take() {
                Ok(consumer) => return consumer,
                Err(None) => notified.await,
                // What is given back in the meantime is said by nobody, and is found then.
                Err(Some(limited)) => drop(tokio::time::timeout(limited, notified).await),
            }
        }
    }
}
