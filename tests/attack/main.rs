//! The promises under attack: processes that are killed, commits that come late, handlers that misbehave.
//!
//! Each guard is also switched off once, and the same checks must then find what it prevents.

mod check;
mod controls;
mod handlers;
mod operator;
mod operators;
#[cfg(feature = "postgres")]
mod pinned;
mod publish;
#[cfg(any(feature = "postgres", feature = "mysql"))]
mod servers;
mod soak;
mod sqlite;
mod workers;

use std::io::Write as _;

/// Shows numbers even when the test passes.
fn show(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
