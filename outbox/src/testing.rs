#![doc = include_str!("docs/testing.md")]

mod assertions;
mod clock;
mod database;
mod handle;
#[cfg(feature = "macros")]
mod run;

pub use self::assertions::{Looked, Matches, Observe, published, unpublished};
pub use self::clock::Clock;
pub use self::database::{TestBackend, TestOutbox};
pub use self::handle::{FollowUps, Handle, Outcome, handle};
#[cfg(feature = "macros")]
pub use self::run::{Fixture, run};
