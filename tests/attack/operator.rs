//! An operator at random: what is dead is requeued or discarded, and what was done is remembered.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use outbox::{Admin, Dead, DeadLetter, MessageId};
use outbox_tests::TestBackend;
use outbox_tests::worker::Mended;
use tokio::sync::Mutex;

use crate::publish::{Body, Sent};

/// What an operator does.
const CHANGES: &[&str] = &[
    "requeued, one at a time",
    "requeued, of one consumer",
    "requeued, of all",
    "discarded, one at a time",
    "discarded, by their error",
];

/// What an error says that no repair will ever mend.
pub(crate) const UNREADABLE: &str = "the payload is no";

/// A consumer and a message.
pub(crate) type Pair = (String, String);

/// An operator who chooses at random, and remembers what they did.
pub(crate) struct Operator<DB: TestBackend> {
    admin: Admin<DB>,
    pub(crate) mended: Mended,
    pub(crate) requeued: BTreeSet<Pair>,
    pub(crate) discarded: BTreeSet<Pair>,
    pub(crate) done: BTreeMap<&'static str, usize>,
}

pub(crate) async fn operate<DB: TestBackend>(operator: Arc<Mutex<Operator<DB>>>, over: Arc<AtomicBool>) {
    while !over.load(Ordering::Relaxed) {
        operator.lock().await.choose().await;
        let pause = Duration::from_millis(fastrand::u64(20..200));
        tokio::time::sleep(pause).await; // sleep-ok: the workers must have time to fail again
    }
}

impl<DB: TestBackend> Operator<DB> {
    pub(crate) fn new(admin: Admin<DB>, mended: Mended) -> Self {
        let (requeued, discarded, done) = Default::default();
        Self { admin, mended, requeued, discarded, done }
    }

    /// One, those of a consumer, or all, some of them after their cause was removed; or one that is not worth it, or
    /// those that nobody will ever read. What was done least is half of what is done.
    async fn choose(&mut self) {
        let dead = self.dead(&Dead::all()).await;
        let Some((consumer, message)) = fastrand::choice(&dead) else { return };
        for (_, message) in dead.iter().filter(|_| fastrand::u8(0..4) == 0) {
            self.mended.mend(message);
        }
        let id = MessageId::new(message).expect("it was published");
        let one = Dead::all().message(&id).consumer(consumer);
        let least = CHANGES.iter().min_by_key(|change| self.done.get(*change)).expect("there are some");
        let change =
            if fastrand::bool() { least } else { fastrand::choice(CHANGES).expect("there are some") };
        let count = match *change {
            "requeued, one at a time" => self.requeue(&one).await,
            "requeued, of one consumer" => self.requeue(&Dead::all().consumer(consumer).limit(5)).await,
            "requeued, of all" => self.requeue(&Dead::all().limit(20)).await,
            "discarded, one at a time" => self.discard(&one).await,
            "discarded, by their error" => self.discard(&Dead::all().error(UNREADABLE).limit(3)).await,
            other => unreachable!("{other}"),
        };
        *self.done.entry(change).or_default() += count;
    }

    /// Whether each kind of change has met something, so that a run shows what it is for.
    pub(crate) fn has_done_everything(&self) -> bool {
        CHANGES.iter().all(|change| self.done.get(change).is_some_and(|count| *count > 0))
    }

    pub(crate) async fn requeue(&mut self, which: &Dead) -> usize {
        let before = self.dead(which).await;
        let changed = match self.admin.requeue(which).await {
            Ok(changed) => pairs(changed.messages),
            // Any of them may be requeued.
            Err(error) => transient(&error, before),
        };
        let count = changed.len();
        self.requeued.extend(changed);
        count
    }

    pub(crate) async fn discard(&mut self, which: &Dead) -> usize {
        let before = self.dead(which).await;
        let changed = match self.admin.discard(which).await {
            Ok(changed) => pairs(changed.messages),
            // Nobody else moves what is dead.
            Err(error) => {
                let mut gone = transient(&error, before);
                let after = self.dead(&Dead::all()).await;
                gone.retain(|pair| !after.contains(pair));
                gone
            }
        };
        let count = changed.len();
        self.discarded.extend(changed);
        count
    }

    /// What was requeued of a consumer.
    pub(crate) fn requeued_at(&self, consumer: &str) -> BTreeSet<Pair> {
        self.requeued.iter().filter(|(at, _)| at == consumer).cloned().collect()
    }

    async fn dead(&self, which: &Dead) -> BTreeSet<Pair> {
        loop {
            match self.admin.dead(which).await {
                Ok(letters) => return pairs(letters),
                Err(error) => drop(transient(&error, BTreeSet::new())),
            }
        }
    }

    pub(crate) fn mend_all(&self, sent: &[Sent]) {
        sent.iter()
            .filter(|message| matches!(message.body, Body::Poisoned(_)))
            .for_each(|message| self.mended.mend(&message.id));
    }
}

/// What an operation may have changed that ended with an error.
fn transient(error: &outbox::Error, may_have_changed: BTreeSet<Pair>) -> BTreeSet<Pair> {
    assert!(error.is_transient(), "an operator's change is refused: {error:?}");
    may_have_changed
}

fn pairs(letters: Vec<DeadLetter>) -> BTreeSet<Pair> {
    let pairs = letters
        .into_iter()
        .map(|letter| (letter.consumer, letter.message_id.expect("nobody deletes messages")));
    pairs.collect()
}
