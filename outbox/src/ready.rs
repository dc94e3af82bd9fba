//! Which consumers may have something runnable: marked by the poll, taken by the executors.

use std::sync::atomic::{AtomicBool, Ordering};

use tokio::sync::Notify;

/// Which consumers may have something runnable. Hints: a claim decides.
pub(crate) struct Ready {
    consumers: Vec<Consumer>,
    notify: Notify,
}

struct Consumer {
    marked: AtomicBool,
    /// Of a consumer that has a task of its own, which the executors leave alone.
    own: Option<Notify>,
}

impl Ready {
    /// For each consumer whether it has a task of its own.
    pub(crate) fn new(own: impl IntoIterator<Item = bool>) -> Self {
        let consumer = |own: bool| Consumer { marked: AtomicBool::new(false), own: own.then(Notify::new) };
        Self { consumers: own.into_iter().map(consumer).collect(), notify: Notify::new() }
    }

    pub(crate) fn mark(&self, consumer: usize) {
        let consumer = &self.consumers[consumer];
        consumer.marked.store(true, Ordering::Release);
        consumer.own.as_ref().unwrap_or(&self.notify).notify_one();
    }

    pub(crate) fn unmark(&self, consumer: usize) -> bool {
        self.consumers[consumer].marked.swap(false, Ordering::AcqRel)
    }

    /// A consumer that is marked, looked for from a random one on; unmarks it.
    fn take(&self) -> Option<usize> {
        let count = self.consumers.len();
        let start = fastrand::usize(0..count.max(1));
        (0..count)
            .map(|i| (start + i) % count)
            .find(|consumer| self.consumers[*consumer].own.is_none() && self.unmark(*consumer))
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
            if let Some(consumer) = self.take() {
                return consumer;
            }
            notified.await;
        }
    }
}
