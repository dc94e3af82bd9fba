//! How many messages a consumer handles in a time: a token bucket, and the one that a process's executors share.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::budget::Budget;

/// How many messages in which time: what a process allows a consumer at most.
///
/// ```
/// # use std::time::Duration;
/// # use outbox::Rate;
/// assert_eq!(Rate::per_second(100), Rate { messages: 100, per: Duration::from_secs(1) });
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// So many messages.
    pub messages: u32,
    /// In this time.
    pub per: Duration,
}

impl Rate {
    /// So many messages a second.
    #[must_use]
    pub const fn per_second(messages: u32) -> Self {
        Self { messages, per: Duration::from_secs(1) }
    }

    /// So many messages a minute.
    #[must_use]
    pub const fn per_minute(messages: u32) -> Self {
        Self { messages, per: Duration::from_mins(1) }
    }

    /// Whether it makes no sense.
    pub(crate) fn is_nothing(&self) -> bool {
        self.messages == 0 || self.per.is_zero()
    }

    /// Whether it allows less than another.
    fn is_below(&self, other: &Self) -> bool {
        let share = |one: &Self, of: &Self| u128::from(one.messages).saturating_mul(of.per.as_nanos());
        share(self, other) < share(other, self)
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} in {:?}", self.messages, self.per)
    }
}

/// The one of several that allows the least.
pub(crate) fn least(rates: impl Iterator<Item = Rate>) -> Option<Rate> {
    rates.reduce(|one, other| if other.is_below(&one) { other } else { one })
}

/// How much of a time may be handled at once, so that messages can share a transaction.
const AT_ONCE: Duration = Duration::from_millis(100);

/// A token for each message. A function of the time that it is given, in nanoseconds.
#[derive(Debug)]
struct Bucket {
    /// One more token each.
    interval: i128,
    /// No more than so many.
    capacity: i128,
    /// When it held none.
    empty_at: i128,
}

impl Bucket {
    /// A full one.
    fn new(rate: Rate, now: i128) -> Self {
        let (messages, per) = (u128::from(rate.messages.max(1)), rate.per.as_nanos().max(1));
        // Rounded up, so that the rate is never exceeded.
        let interval = signed(per.div_ceil(messages));
        let capacity = signed((messages * AT_ONCE.as_nanos() / per).max(1));
        Self { interval, capacity, empty_at: now - capacity * interval }
    }

    fn tokens(&self, now: i128) -> i128 {
        ((now - self.empty_at) / self.interval).clamp(0, self.capacity)
    }

    /// Takes as many as there are, and no more than are wanted.
    fn take(&mut self, now: i128, wanted: i128) -> i128 {
        let taken = self.tokens(now).min(wanted).max(0);
        self.empty_at = self.empty_at.max(now - self.capacity * self.interval) + taken * self.interval;
        taken
    }

    fn give_back(&mut self, tokens: i128) {
        self.empty_at -= tokens * self.interval;
    }

    /// How long it is worth to wait: until it is half full.
    fn wait(&self, now: i128) -> i128 {
        let enough = (self.capacity + 1) / 2;
        (self.empty_at + enough * self.interval - now).max(0)
    }
}

fn signed(number: u128) -> i128 {
    i128::try_from(number).unwrap_or(i128::MAX / 4)
}

/// What a consumer may handle in this process: so many messages in a time, and no more than there is for the whole run. Clones share it.
#[derive(Debug, Clone)]
pub(crate) struct Limit {
    rate: Option<Arc<Shared>>,
    budget: Budget,
}

#[derive(Debug)]
struct Shared {
    since: Instant,
    bucket: Mutex<Bucket>,
}

impl Limit {
    pub(crate) fn new(rate: Option<Rate>, budget: Budget) -> Self {
        let shared = |rate| Shared { since: Instant::now(), bucket: Mutex::new(Bucket::new(rate, 0)) };
        Self { rate: rate.map(|rate| Arc::new(shared(rate))), budget }
    }

    /// How many of so many messages may be handled now. They count as handled, unless they are [given
    /// back](Self::give_back).
    pub(crate) fn take(&self, wanted: usize) -> usize {
        let there = self.budget.take(wanted);
        let taken = self.ask(there, |bucket, now| count(bucket.take(now, number(there))));
        self.budget.give_back(there - taken);
        taken
    }

    /// Messages that were not handled after all.
    pub(crate) fn give_back(&self, messages: usize) {
        self.ask((), |bucket, _| bucket.give_back(number(messages)));
        self.budget.give_back(messages);
    }

    /// How many of so many could be taken.
    pub(crate) fn room(&self, wanted: usize) -> usize {
        let wanted = self.budget.room(wanted);
        self.ask(wanted, |bucket, now| count(bucket.tokens(now)).min(wanted))
    }

    /// Whether the run is over for all consumers.
    pub(crate) fn is_spent(&self) -> bool {
        self.budget.is_spent()
    }

    /// How long to wait before it is worth to look for messages.
    pub(crate) fn wait(&self) -> Duration {
        self.ask(Duration::ZERO, |bucket, now| {
            Duration::from_nanos(u64::try_from(bucket.wait(now)).unwrap_or(u64::MAX / 2))
        })
    }

    /// Waits so long.
    pub(crate) async fn free(&self) {
        loop {
            let wait = self.wait();
            if wait.is_zero() {
                return;
            }
            tokio::time::sleep(wait).await;
        }
    }

    fn ask<T>(&self, without: T, ask: impl FnOnce(&mut Bucket, i128) -> T) -> T {
        let Some(shared) = &self.rate else { return without };
        let mut bucket = shared.bucket.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so that for the bucket it never goes back.
        ask(&mut bucket, signed(shared.since.elapsed().as_nanos()))
    }
}

/// Messages that may be handled, and are not yet: what is left when it is dropped is given back.
#[derive(Debug)]
pub(crate) struct Allowance {
    limit: Limit,
    left: usize,
}

impl Allowance {
    pub(crate) fn none(limit: &Limit) -> Self {
        Self { limit: limit.clone(), left: 0 }
    }

    /// Takes what is missing to so many, as far as that is there.
    pub(crate) fn fill(&mut self, wanted: usize) {
        self.left += self.limit.take(wanted.saturating_sub(self.left));
    }

    pub(crate) fn left(&self) -> usize {
        self.left
    }

    /// So many were handled; the others wait.
    pub(crate) fn spend(&mut self, handled: usize) {
        self.limit.give_back(self.left.saturating_sub(handled));
        self.left = 0;
    }
}

impl Drop for Allowance {
    fn drop(&mut self) {
        self.spend(0);
    }
}

fn number(count: usize) -> i128 {
    i128::try_from(count).unwrap_or(i128::MAX / 4)
}

fn count(number: i128) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i128 = 1_000_000_000;

    fn rates() -> Vec<Rate> {
        let each = [1, 3, 7, 10, 99, 100, 1_000, 333_333, u32::MAX];
        let pers = [1, 10, 1_000, 60_000, 86_400_000];
        let all = pers.into_iter().flat_map(|per| each.map(|messages| (messages, per)));
        all.map(|(messages, per)| Rate { messages, per: Duration::from_millis(per) }).collect()
    }

    /// What a rate allows in so many nanoseconds.
    fn allowed(rate: Rate, time: i128) -> i128 {
        time * i128::from(rate.messages) / signed(rate.per.as_nanos())
    }

    #[test]
    fn no_span_of_time_has_more_than_its_rate_and_what_is_handled_at_once() {
        for rate in rates() {
            let mut bucket = Bucket::new(rate, 0);
            let (mut now, mut taken) = (0, Vec::new());
            for _ in 0..300 {
                // Rests of all lengths, and often none.
                let longest = signed(rate.per.as_nanos()).clamp(2, SECOND);
                if fastrand::bool() {
                    now += fastrand::i128(0..longest);
                }
                let got = bucket.take(now, fastrand::i128(0..200));
                let back = if got > 0 && fastrand::bool() { fastrand::i128(0..got) } else { 0 };
                bucket.give_back(back);
                taken.push((now, got - back));
            }
            for from in 0..taken.len() {
                let mut sum = 0;
                for (at, got) in &taken[from..] {
                    sum += got;
                    let most = allowed(rate, at - taken[from].0) + bucket.capacity;
                    assert!(sum <= most, "{rate}: {sum} in {} ns, of {most}", at - taken[from].0);
                }
            }
        }
    }

    #[test]
    fn who_takes_what_there_is_gets_the_rate() {
        for rate in rates().into_iter().filter(|rate| allowed(*rate, SECOND) < 10_000_000) {
            let mut bucket = Bucket::new(rate, 0);
            let time = signed(rate.per.as_nanos()).max(SECOND) * 10;
            let (mut now, mut sum) = (0, 0);
            while now < time {
                now += bucket.wait(now).max(1);
                sum += bucket.take(now, i128::MAX / 4);
            }
            // Whole nanoseconds between two tokens make it a little less.
            let least = allowed(rate, time) * 99 / 100 - bucket.capacity;
            assert!(sum >= least, "{rate}: {sum} of {least}");
        }
    }

    #[test]
    fn a_rest_saves_up_a_tenth_of_a_second_and_no_more() {
        let mut bucket = Bucket::new(Rate::per_second(100), 0);
        assert_eq!(bucket.take(0, 1_000), 10);
        assert_eq!(bucket.take(SECOND * 3_600, 1_000), 10);
        assert_eq!(bucket.take(SECOND * 3_600, 1_000), 0);
        assert_eq!(bucket.take(SECOND * 3_600 + SECOND / 100, 1_000), 1);
        let mut slow = Bucket::new(Rate::per_minute(2), 0);
        assert_eq!((slow.take(0, 5), slow.take(SECOND * 29, 5), slow.take(SECOND * 30, 5)), (1, 0, 1));
        assert_eq!((slow.take(SECOND * 31, 5), slow.wait(SECOND * 31)), (0, SECOND * 29));
    }

    #[test]
    fn what_is_given_back_can_be_taken_again() {
        let mut bucket = Bucket::new(Rate::per_second(100), 0);
        assert_eq!((bucket.take(0, 8), bucket.tokens(0)), (8, 2));
        bucket.give_back(7);
        assert_eq!((bucket.tokens(0), bucket.take(0, 20)), (9, 9));
        bucket.give_back(9);
        assert_eq!(bucket.tokens(SECOND), 10);
    }

    #[test]
    fn the_least_of_several_decides() {
        let rates = [Rate::per_second(5), Rate::per_minute(60), Rate::per_second(2)];
        assert_eq!(least(rates.into_iter()), Some(Rate::per_minute(60)));
        assert_eq!(least(std::iter::empty()), None);
        assert!(Rate::per_second(0).is_nothing() && !Rate::per_second(1).is_nothing());
    }

    #[test]
    fn without_a_rate_nothing_is_limited() {
        let limit = Limit::new(None, Budget::default());
        assert_eq!((limit.take(7), limit.room(9), limit.wait()), (7, 9, Duration::ZERO));
        let shared = Limit::new(Some(Rate { messages: 1, per: Duration::from_hours(1) }), Budget::default());
        assert_eq!((shared.clone().take(7), shared.take(7), shared.room(7)), (1, 0, 0));
        assert!(shared.wait() > Duration::from_mins(50));
        let shared = Limit::new(Some(Rate::per_second(100)), Budget::default());
        let mut allowance = Allowance::none(&shared);
        allowance.fill(8);
        allowance.fill(8);
        assert!(allowance.left() == 8 && shared.room(10) < 10);
        drop(allowance);
        assert_eq!(shared.room(10), 10);
    }

    #[test]
    fn what_the_rate_refuses_stays_in_the_budget() {
        let budget = Budget::of(Some(3));
        let slow = Rate { messages: 1, per: Duration::from_hours(1) };
        let (one, other) = (Limit::new(Some(slow), budget.clone()), Limit::new(None, budget));
        assert_eq!((one.take(9), one.take(9), one.is_spent()), (1, 0, false));
        assert_eq!((other.room(9), other.take(9), one.is_spent(), one.room(9)), (2, 2, true, 0));
        one.give_back(1);
        assert_eq!((other.room(9), one.take(9)), (1, 1));
    }
}
