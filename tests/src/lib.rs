//! The rig that the suites share: a database for each test, a ledger of effects, handlers by hand, processes.

pub mod act;
pub mod check;
pub mod child;
mod database;
mod handler;
mod log;
#[cfg(feature = "postgres")]
pub mod pooler;
mod process;
#[cfg(any(feature = "postgres", feature = "mysql"))]
pub mod proxy;
mod wait;
pub mod worker;

#[cfg(feature = "mysql")]
pub use crate::database::mysql;
#[cfg(feature = "postgres")]
pub use crate::database::postgres;
pub use crate::database::{Effect, TestBackend, TestDatabase};
pub use crate::log::Log;
pub use crate::process::Process;
pub use crate::wait::eventually;
