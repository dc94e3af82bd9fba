//! Waiting for progress, never for time.

use std::time::{Duration, Instant};

/// Waits until `check` says yes.
///
/// The bound is for tests that hang, so make it ten times what is expected.
///
/// # Panics
/// When `limit` is over first, naming `what` was waited for.
#[track_caller]
pub fn eventually<F>(what: &str, limit: Duration, mut check: F) -> impl Future<Output = ()>
where
    F: AsyncFnMut() -> bool,
{
    let caller = std::panic::Location::caller();
    async move {
        let since = Instant::now();
        while !check().await {
            assert!(since.elapsed() < limit, "{caller}: waited {limit:?} for {what}");
            let pause = Duration::from_millis(10);
            tokio::time::sleep(pause).await; // sleep-ok: between two looks, and the look decides
        }
    }
}
