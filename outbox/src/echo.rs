//! When to look for a commit that cannot be seen. Pure: it is told the time.

use std::time::{Duration, Instant};

/// How long after a publish it is looked whether its transaction has been committed.
const DELAYS: [Duration; 4] = [
    Duration::from_millis(5),
    Duration::from_millis(20),
    Duration::from_millis(80),
    Duration::from_millis(320),
];

/// Between two looks, however many publishes there are.
const GAP: Duration = Duration::from_millis(15);

/// The looks that are still to come. The last publish gets one after each of its delays; while there are more and more,
/// there is one about every [`GAP`], which serves all.
#[derive(Debug, Default)]
pub(crate) struct Echoes {
    due: [Option<Instant>; DELAYS.len()],
    last: Option<Instant>,
}

impl Echoes {
    /// Something was published. Whether the next look is sooner for it.
    pub(crate) fn publish(&mut self, now: Instant) -> bool {
        let before = self.next();
        self.last = Some(now);
        for (due, delay) in self.due.iter_mut().zip(DELAYS) {
            due.get_or_insert(now + delay);
        }
        before.is_none() || self.next() < before
    }

    /// When to look next.
    pub(crate) fn next(&self) -> Option<Instant> {
        self.due.iter().flatten().min().copied()
    }

    /// A look was taken. What was published since it was asked for gets another.
    pub(crate) fn looked(&mut self, now: Instant) {
        for (due, delay) in self.due.iter_mut().zip(DELAYS) {
            if due.is_some_and(|due| due <= now) {
                *due = self.last.map(|last| last + delay).filter(|again| *again > now);
            }
            *due = due.map(|due| due.max(now + GAP));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn looks(echoes: &mut Echoes, until: Instant) -> Vec<Instant> {
        let mut looks = Vec::new();
        while let Some(next) = echoes.next().filter(|next| *next < until) {
            echoes.looked(next);
            looks.push(next);
        }
        looks
    }

    #[test]
    fn a_publish_is_looked_after_four_times() {
        let (mut echoes, now) = (Echoes::default(), Instant::now());
        assert!(echoes.publish(now));
        let looks = looks(&mut echoes, now + Duration::from_hours(1));
        assert_eq!(looks, DELAYS.map(|delay| now + delay));
        assert_eq!(echoes.next(), None);
    }

    #[test]
    fn a_stream_of_publishes_makes_a_bounded_number_of_looks_and_misses_none() {
        let (mut echoes, begin) = (Echoes::default(), Instant::now());
        let (mut all, mut published) = (Vec::new(), Vec::new());
        for n in 0..10_000 {
            let now = begin + Duration::from_micros(100) * n;
            all.extend(looks(&mut echoes, now));
            echoes.publish(now);
            published.push(now);
        }
        let within = u32::try_from(all.len()).expect("a few");
        assert!(GAP * within <= Duration::from_millis(1_015), "{within} looks in a second");
        all.extend(looks(&mut echoes, begin + Duration::from_hours(1)));
        let late = GAP + DELAYS[0];
        let is_looked_after = |time: Instant| all.iter().any(|look| (time..=time + late).contains(look));
        let last = published[published.len() - 1];
        for delay in DELAYS {
            let during = published.iter().map(|publish| *publish + delay).filter(|time| *time <= last);
            assert!(during.chain([last + delay]).all(is_looked_after), "{delay:?}");
        }
    }

    #[test]
    fn a_publish_during_a_long_wait_is_looked_after_soon() {
        let (mut echoes, now) = (Echoes::default(), Instant::now());
        echoes.publish(now);
        looks(&mut echoes, now + Duration::from_millis(100));
        let late = now + Duration::from_millis(100);
        assert!(echoes.publish(late), "the only look left was that after 320 ms");
        assert_eq!(echoes.next(), Some(late + DELAYS[0]));
        assert!(!echoes.publish(late + Duration::from_millis(1)));
    }
}
