//! What a task does about errors that it meets in a row.

use std::time::Duration;

use crate::error::{Error, ErrorKind};

/// Errors in a row: how long to wait, and whether to say it once more.
pub(crate) struct Trouble {
    who: &'static str,
    in_a_row: u32,
    said: Option<ErrorKind>,
}

impl Trouble {
    pub(crate) fn new(who: &'static str) -> Self {
        Self { who, in_a_row: 0, said: None }
    }

    /// The pause after an error: 20 ms doubling to 5 s, each time between half and all of it.
    pub(crate) fn met(&mut self, error: &Error) -> Duration {
        self.in_a_row += 1;
        if error.kind() == ErrorKind::Conflict {
            tracing::debug!(who = self.who, error = %error, "a conflict, to be tried again");
        } else if self.said != Some(error.kind()) {
            self.said = Some(error.kind());
            let cause = std::error::Error::source(error).map(ToString::to_string);
            tracing::error!(who = self.who, error = %error, cause, "the outbox cannot go on, and keeps trying");
        }
        let longest =
            Duration::from_millis(20).saturating_mul(1 << self.in_a_row.min(8)).min(Duration::from_secs(5));
        longest.mul_f64(0.5 + 0.5 * fastrand::f64())
    }

    pub(crate) fn over(&mut self) {
        if self.said.take().is_some() {
            tracing::info!(who = self.who, "the outbox goes on");
        }
        self.in_a_row = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_are_jittered_and_capped() {
        let mut trouble = Trouble::new("test");
        let error = Error::new(ErrorKind::Unavailable, "away");
        let pauses: Vec<_> = (0..100).map(|_| trouble.met(&error)).collect();
        assert!(pauses[0] >= Duration::from_millis(20) && pauses[0] <= Duration::from_millis(40));
        assert!(pauses[1..].iter().all(|pause| *pause <= Duration::from_secs(5)));
        assert!(pauses[50..].iter().all(|pause| *pause >= Duration::from_millis(2_500)));
        trouble.over();
        assert!(trouble.met(&error) <= Duration::from_millis(40));
    }
}
