//! How many messages share a transaction: adapted, for each consumer, to what the transactions meet.

/// A group begins with so many.
const FIRST_SIZE: f64 = 16.0;

/// How many groups run carefully after a handler has failed.
const CAREFUL: u32 = 20;

/// The pace of one executor with one consumer.
///
/// Locks that others hold make groups smaller, since a group keeps all of its own until its end. Failures of handlers do not:
/// they make it run carefully, where each success is secured before the next message is run, and nothing has to be repeated.
#[derive(Debug, Clone)]
pub(crate) struct Pace {
    /// The handlers' own limit.
    most: f64,
    size: f64,
    /// What others' locks allow.
    cap: f64,
    careful: u32,
    single: u32,
}

impl Pace {
    /// `most` is the limit of the consumer's handlers, `at_once` what a batch handler wants.
    pub(crate) fn new(most: u32, at_once: u32) -> Self {
        let most = f64::from(most.max(at_once));
        Self { most, size: FIRST_SIZE.max(at_once.into()).min(most), cap: most, careful: 0, single: 0 }
    }

    /// How many messages the next transaction may take.
    pub(crate) fn size(&self) -> usize {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "from 1 to a limit that was a u32"
        )]
        let size = self.size.min(self.cap) as usize;
        if self.single > 0 { 1 } else { size }
    }

    /// Whether each success is secured at once.
    pub(crate) fn careful(&self) -> bool {
        self.careful > 0
    }

    /// A transaction came to its end with so many messages, `full` if more would have been there.
    pub(crate) fn ended(&mut self, ran: usize, full: bool) {
        self.careful = self.careful.saturating_sub(1);
        if self.single > 0 {
            self.single -= 1;
            return;
        }
        self.cap = (self.cap * 1.002).min(self.most);
        let ran = u32::try_from(ran).map_or(self.most, f64::from);
        self.size = if full { self.size * 2.0 } else { self.size.min((ran * 2.0).max(FIRST_SIZE)) };
        self.size = self.size.clamp(1.0, self.cap);
    }

    /// A handler failed beside others.
    pub(crate) fn failed(&mut self) {
        self.careful = CAREFUL;
    }

    /// The group met a lock that others hold.
    pub(crate) fn crowded(&mut self) {
        let size = if self.single > 0 { 1.0 } else { self.size.min(self.cap) };
        self.cap = (size / 4.0).max(1.0);
        self.size = self.cap;
    }

    /// One of so many spoiled the transaction, and nobody knows which: each of them gets its own.
    pub(crate) fn apart(&mut self, messages: usize) {
        self.single = u32::try_from(messages).unwrap_or(u32::MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_groups_grow_to_the_limit_and_idle_ones_shrink_again() {
        let mut pace = Pace::new(100, 1);
        let mut sizes = vec![pace.size()];
        for _ in 0..4 {
            pace.ended(pace.size(), true);
            sizes.push(pace.size());
        }
        assert_eq!(sizes, [16, 32, 64, 100, 100]);
        pace.ended(3, false);
        assert_eq!(pace.size(), 16);
        assert_eq!(Pace::new(1, 1).size(), 1);
        assert_eq!(Pace::new(100, 500).size(), 500);
    }

    #[test]
    fn locks_shrink_it_and_it_grows_back_slowly() {
        let mut pace = Pace::new(100, 1);
        for _ in 0..5 {
            pace.ended(pace.size(), true);
        }
        pace.crowded();
        assert_eq!(pace.size(), 25);
        for _ in 0..4 {
            pace.crowded();
        }
        assert_eq!(pace.size(), 1);
        for _ in 0..300 {
            pace.ended(1, true);
        }
        assert_eq!(pace.size(), 1);
        for _ in 0..100 {
            pace.ended(1, true);
        }
        assert_eq!(pace.size(), 2);
    }

    #[test]
    fn failures_make_it_careful_and_not_smaller() {
        let mut pace = Pace::new(100, 1);
        pace.failed();
        for _ in 0..CAREFUL {
            assert!(pace.careful());
            pace.ended(16, true);
        }
        assert!(!pace.careful());
        assert_eq!(pace.size(), 100);
    }

    #[test]
    fn a_spoiled_group_comes_back_one_by_one() {
        let mut pace = Pace::new(100, 1);
        pace.apart(3);
        for _ in 0..3 {
            assert_eq!(pace.size(), 1);
            pace.ended(1, true);
        }
        assert_eq!(pace.size(), 16);
    }
}
