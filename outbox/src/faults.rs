//! Named points at which a test can kill the process.
//!
//! With the feature `testing` and `OUTBOX_CRASH_POINT=name` or `name:n` in the environment, the process dies at the
//! n-th time it passes that point, without any clean-up. Otherwise a point is nothing.

#[cfg(feature = "testing")]
pub(crate) fn point(name: &str) {
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicI64, Ordering};

    static PLAN: OnceLock<Option<(String, AtomicI64)>> = OnceLock::new();
    let plan = PLAN.get_or_init(|| {
        let plan = std::env::var("OUTBOX_CRASH_POINT").ok()?;
        let (name, passes) = plan.split_once(':').unwrap_or((&plan, "1"));
        Some((name.to_owned(), AtomicI64::new(passes.parse().expect("a number of passes"))))
    });
    if let Some((planned, passes)) = plan
        && planned == name
        && passes.fetch_sub(1, Ordering::SeqCst) == 1
    {
        std::process::abort();
    }
}

#[cfg(not(feature = "testing"))]
pub(crate) fn point(_: &str) {}
