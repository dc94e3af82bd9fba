//! The catalogue of the event types that a program knows: what it may write, and what it can read.

use crate::event::{EventMeta, TypeSet};
use crate::registry::HandlerEntry;

#[cfg(feature = "testing")]
mod snapshot;

#[cfg(feature = "testing")]
pub use self::snapshot::assert_event_catalog;

/// The types of one derived event, as `inventory` collects them.
#[doc(hidden)]
#[derive(Debug)]
pub struct EventEntry(TypeSet);

impl EventEntry {
    /// For generated code.
    #[must_use]
    pub const fn new(types: TypeSet) -> Self {
        Self(types)
    }
}

inventory::collect!(EventEntry);

/// Every event type of this program: of each event that is not generic, and of each that a registered handler takes.
/// Ordered by name, then by Rust type; two Rust types may share a name, as a borrowed form of an event does.
#[must_use]
pub fn event_types() -> Vec<&'static EventMeta> {
    let events = inventory::iter::<EventEntry>().map(|entry| entry.0);
    let handled = inventory::iter::<HandlerEntry>().map(HandlerEntry::types);
    sorted(events.chain(handled))
}

/// The types of all sets, each once.
fn sorted(sets: impl Iterator<Item = TypeSet>) -> Vec<&'static EventMeta> {
    let mut types: Vec<_> = sets.flat_map(|set| set.all()).collect();
    types.sort_by_key(|meta| (meta.event_type, meta.rust_type, meta.version));
    types.dedup();
    types
}
