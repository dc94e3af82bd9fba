//! Retry policies: pure arithmetic, no clock and no database.

use std::time::Duration;

/// When a failed message is tried again, and how often.
///
/// The pause before attempt *n + 1* is `base × multiplier^(n-1)`, at most `max`, give or take the share `jitter`.
/// It is counted by the database's clock from the failure on.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Retry {
    /// How many attempts a message has before it is dead; at least 1.
    pub max_attempts: u32,
    /// The pause after the first failure.
    pub base: Duration,
    /// How much longer each pause is than the one before; at least 1.
    pub multiplier: f64,
    /// The longest pause.
    pub max: Duration,
    /// The share by which a pause may be shorter or longer, from 0 to 1, so that what failed together does not
    /// come back together.
    pub jitter: f64,
}

impl Retry {
    /// 10 attempts; 1 s, doubling to 5 min, give or take a fifth.
    pub const DEFAULT: Self = Self {
        max_attempts: 10,
        base: Duration::from_secs(1),
        multiplier: 2.0,
        max: Duration::from_mins(5),
        jitter: 0.2,
    };

    /// The same pause each time, without an end.
    #[must_use]
    pub const fn every(pause: Duration) -> Self {
        Self { max_attempts: u32::MAX, base: pause, multiplier: 1.0, max: pause, jitter: 0.0 }
    }

    /// Why the policy makes no sense, if it does not.
    pub(crate) fn problem(&self) -> Option<&'static str> {
        if self.max_attempts == 0 {
            Some("`max_attempts` is 0; 1 is a single attempt without a retry")
        } else if !(self.multiplier.is_finite() && self.multiplier >= 1.0) {
            Some("`multiplier` is below 1 or no number")
        } else if !(0.0..=1.0).contains(&self.jitter) {
            Some("`jitter` is not between 0 and 1")
        } else if self.base > self.max {
            Some("`base` is longer than `max`")
        } else {
            None
        }
    }

    /// Whether a message that has failed this often is dead.
    pub(crate) fn is_exhausted(&self, attempts: u32) -> bool {
        attempts >= self.max_attempts
    }

    /// The pause after this many failures; `chance` from 0 to 1 picks within the jitter.
    pub(crate) fn pause(&self, attempts: u32, chance: f64) -> Duration {
        let exponent = i32::try_from(attempts.saturating_sub(1)).unwrap_or(i32::MAX);
        let max = self.max.as_secs_f64();
        // An infinite power is capped by `min`; zero times infinity is not a number, and `min` then gives `max`,
        // which is wrong for a base of zero alone.
        let grown = if self.base.is_zero() {
            0.0
        } else {
            (self.base.as_secs_f64() * self.multiplier.powi(exponent)).min(max)
        };
        let factor = 1.0 + self.jitter * (2.0 * chance - 1.0);
        Duration::try_from_secs_f64((grown * factor).min(max)).unwrap_or(self.max)
    }
}

impl Default for Retry {
    fn default() -> Self {
        Self::DEFAULT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_the_longest() {
        let retry = Retry::DEFAULT;
        let seconds: Vec<_> = [1, 2, 3, 9, 10, 11].map(|n| retry.pause(n, 0.5).as_secs()).into();
        assert_eq!(seconds, [1, 2, 4, 256, 300, 300]);
        assert_eq!(retry.pause(1, 0.0), Duration::from_millis(800));
        assert_eq!(retry.pause(1, 1.0), Duration::from_millis(1_200));
    }

    #[test]
    fn no_number_overflows_or_leaves_the_bounds() {
        let bases = [Duration::ZERO, Duration::from_nanos(1), Duration::from_secs(1), Duration::MAX];
        for base in bases {
            for multiplier in [1.0, 1.5, 2.0, 1e300] {
                for jitter in [0.0, 0.2, 1.0] {
                    let retry = Retry {
                        base,
                        multiplier,
                        jitter,
                        max: base.max(Duration::from_mins(1)),
                        ..Retry::DEFAULT
                    };
                    assert_eq!(retry.problem(), None);
                    let mut before = Duration::ZERO;
                    for attempts in [0, 1, 2, 31, 32, 63, 64, 1_000, u32::MAX] {
                        let pause = retry.pause(attempts, 0.5);
                        assert!(pause <= retry.max && pause >= before, "{retry:?} {attempts} {pause:?}");
                        before = pause;
                        for chance in [0.0, 1.0] {
                            assert!(retry.pause(attempts, chance) <= retry.max);
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn what_failed_together_does_not_come_back_together() {
        let mut buckets = [0_u32; 10];
        for i in 0..1_000 {
            let pause = Retry::DEFAULT.pause(1, f64::from(i) / 1_000.0).as_secs_f64();
            let bucket = (0..10).find(|b| pause < 0.8 + 0.04 * f64::from(b + 1)).unwrap_or(9);
            buckets[usize::try_from(bucket).expect("a bucket")] += 1;
        }
        assert!(buckets.iter().all(|count| *count < 250), "{buckets:?}");
    }

    #[test]
    fn senseless_policies_are_named() {
        for bad in [
            Retry { max_attempts: 0, ..Retry::DEFAULT },
            Retry { multiplier: 0.5, ..Retry::DEFAULT },
            Retry { multiplier: f64::NAN, ..Retry::DEFAULT },
            Retry { multiplier: f64::INFINITY, ..Retry::DEFAULT },
            Retry { jitter: -0.1, ..Retry::DEFAULT },
            Retry { jitter: f64::NAN, ..Retry::DEFAULT },
            Retry { base: Duration::from_secs(9), max: Duration::from_secs(8), ..Retry::DEFAULT },
        ] {
            assert!(bad.problem().is_some(), "{bad:?}");
        }
    }
}
