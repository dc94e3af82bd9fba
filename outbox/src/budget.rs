//! How many messages a whole run may handle.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Messages that a run may still handle; without a number as many as there are. Clones share it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Budget(Option<Arc<AtomicU64>>);

impl Budget {
    pub(crate) fn of(messages: Option<u64>) -> Self {
        Self(messages.map(|messages| Arc::new(messages.into())))
    }

    /// Takes as many as there are, and no more than are wanted.
    pub(crate) fn take(&self, wanted: usize) -> usize {
        let Some(left) = &self.0 else { return wanted };
        let less = |left: u64| Some(left.saturating_sub(wanted as u64));
        let before = left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).unwrap_or(0);
        usize::try_from(before).unwrap_or(usize::MAX).min(wanted)
    }

    /// Messages that were not handled after all.
    pub(crate) fn give_back(&self, messages: usize) {
        if let Some(left) = &self.0 {
            left.fetch_add(messages as u64, Ordering::Relaxed);
        }
    }

    /// How many of so many could be taken.
    pub(crate) fn room(&self, wanted: usize) -> usize {
        let Some(left) = &self.0 else { return wanted };
        usize::try_from(left.load(Ordering::Relaxed)).unwrap_or(usize::MAX).min(wanted)
    }

    pub(crate) fn is_spent(&self) -> bool {
        self.room(1) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_is_taken_than_there_is() {
        let budget = Budget::of(Some(5));
        let other = budget.clone();
        assert_eq!((budget.take(3), other.room(9), other.take(9), budget.take(1)), (3, 2, 2, 0));
        assert!(budget.is_spent());
        other.give_back(4);
        assert_eq!((budget.is_spent(), budget.take(9)), (false, 4));
        let without = Budget::default();
        assert_eq!((without.take(7), without.room(9), without.is_spent()), (7, 9, false));
        assert!(Budget::of(Some(0)).is_spent());
    }
}
