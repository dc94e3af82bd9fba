//! What must hold of any run, whatever was measured: nothing lost, nothing twice, each key in order.

use std::collections::HashMap;

use serde::Serialize;

/// What a handler left behind: a row of its table, in the order of their ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Effect {
    pub(crate) consumer: i16,
    /// The message's number, from 0 in the order in which they were published.
    pub(crate) message: i64,
    pub(crate) key: i64,
}

/// What should be there.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Expected {
    /// Published messages, those included that fail.
    pub(crate) messages: i64,
    /// As many effects has each of them.
    pub(crate) consumers: i64,
    /// Those that fail, and so remain.
    pub(crate) failing: i64,
    /// What has no effect and was not done yet, for all consumers together.
    pub(crate) undone: i64,
    /// Whether the run was ended before everything was done.
    pub(crate) ended_early: bool,
}

/// What is wrong.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Verdict {
    /// Messages that a consumer should have handled and did not.
    pub(crate) lost: i64,
    /// Effects beyond the first, of a message that fails or never was, or of one that is still to be done.
    pub(crate) duplicated: i64,
    /// Effects after that of a later message of their key, for the same consumer.
    pub(crate) out_of_order: i64,
}

impl Verdict {
    /// The status with which the benchmark ends.
    pub(crate) fn status(self) -> u8 {
        u8::from(self != Self::default())
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.lost += other.lost;
        self.duplicated += other.duplicated;
        self.out_of_order += other.out_of_order;
    }
}

/// Compares what is there with what should be; `fails` says of which keys no message succeeds.
pub(crate) fn verify(expected: Expected, effects: &[Effect], fails: impl Fn(i64) -> bool) -> Verdict {
    let mut verdict = Verdict::default();
    let all = expected.messages * expected.consumers;
    let mut seen = vec![false; usize::try_from(all).expect("as many messages fit into memory")];
    let mut latest: HashMap<(i16, i64), i64> = HashMap::new();
    let mut distinct = 0;
    for effect in effects {
        let last = latest.entry((effect.consumer, effect.key)).or_insert(effect.message);
        verdict.out_of_order += i64::from(effect.message < *last);
        *last = effect.message.max(*last);

        let place = i64::from(effect.consumer) * expected.messages + effect.message;
        let is_one = (0..expected.messages).contains(&effect.message) && !fails(effect.key);
        match usize::try_from(place).ok().and_then(|place| seen.get_mut(place)).filter(|_| is_one) {
            Some(seen) if !*seen => {
                *seen = true;
                distinct += 1;
            }
            _ => verdict.duplicated += 1,
        }
    }
    let missing = all - distinct - expected.undone;
    verdict.duplicated += (-missing).max(0);
    verdict.lost += missing.max(0);
    if !expected.ended_early {
        // What could be handled and was not will not be handled later either.
        verdict.lost = verdict.lost.max(all - expected.failing * expected.consumers - distinct);
    }
    verdict
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: i64 = 3;

    fn expected() -> Expected {
        Expected { messages: 9, consumers: 2, failing: 0, undone: 0, ended_early: false }
    }

    /// Each message once for each consumer, in order.
    fn effects() -> Vec<Effect> {
        let of = |consumer| (0..9).map(move |message| Effect { consumer, message, key: message % KEYS });
        of(0).chain(of(1)).collect()
    }

    fn found(expected: Expected, effects: &[Effect]) -> (i64, i64, i64) {
        let verdict = verify(expected, effects, |key| expected.failing > 0 && key == 0);
        let found = (verdict.lost, verdict.duplicated, verdict.out_of_order);
        assert_eq!(verdict.status(), u8::from(found != (0, 0, 0)));
        found
    }

    #[test]
    fn a_good_run_is_clean() {
        assert_eq!(found(expected(), &effects()), (0, 0, 0));
        let mut mixed = effects();
        // The order of different keys, and of different consumers, is nobody's business.
        mixed.swap(0, 1);
        mixed.rotate_left(9);
        assert_eq!(found(expected(), &mixed), (0, 0, 0));
    }

    #[test]
    fn nothing_that_is_wrong_is_outweighed_by_another_round() {
        let mut verdict = Verdict::default();
        verdict.add(Verdict { lost: 1, ..Verdict::default() });
        verdict.add(Verdict { duplicated: 1, out_of_order: 2, ..Verdict::default() });
        verdict.add(Verdict::default());
        assert_eq!(verdict, Verdict { lost: 1, duplicated: 1, out_of_order: 2 });
        assert_eq!(verdict.status(), 1);
    }

    #[test]
    fn a_lost_message_is_found() {
        let mut effects = effects();
        effects.remove(4);
        assert_eq!(found(expected(), &effects), (1, 0, 0));
        assert_eq!(found(expected(), &[]), (18, 0, 0));
    }

    #[test]
    fn a_second_effect_is_found() {
        let mut doubled = effects();
        doubled.push(doubled[17]);
        assert_eq!(found(expected(), &doubled), (0, 1, 0));
        // Of another's number, it hides no loss.
        let mut replaced = effects();
        replaced[16] = replaced[13];
        assert_eq!(found(expected(), &replaced), (1, 1, 0));
    }

    #[test]
    fn a_message_that_never_was_is_found() {
        for (consumer, message) in [(0, 9), (0, -1), (2, 3), (-1, 3)] {
            let mut effects = effects();
            effects.push(Effect { consumer, message, key: 77 });
            assert_eq!(found(expected(), &effects), (0, 1, 0), "{consumer} {message}");
        }
    }

    #[test]
    fn an_effect_after_a_later_one_of_its_key_is_found() {
        let mut near = effects();
        near.swap(0, 3);
        assert_eq!(found(expected(), &near), (0, 0, 1));
        let mut far = effects();
        far.swap(0, 6);
        assert_eq!(found(expected(), &far), (0, 0, 2));
    }

    #[test]
    fn what_fails_must_remain() {
        let failing = Expected { failing: 3, undone: 6, ..expected() };
        let good: Vec<_> = effects().into_iter().filter(|effect| effect.key != 0).collect();
        assert_eq!(found(failing, &good), (0, 0, 0));
        assert_eq!(found(Expected { undone: 5, ..failing }, &good), (1, 0, 0), "one is gone");
        let mut handled = good.clone();
        handled.push(Effect { consumer: 0, message: 3, key: 0 });
        assert_eq!(found(failing, &handled), (0, 1, 0), "a failed one has left its effect");
    }

    #[test]
    fn what_was_not_reached_is_not_lost_and_is_nowhere_else() {
        let early = Expected { undone: 4, ended_early: true, ..expected() };
        let reached = &effects()[..14];
        assert_eq!(found(early, reached), (0, 0, 0));
        assert_eq!(found(Expected { undone: 3, ..early }, reached), (1, 0, 0));
        assert_eq!(found(Expected { undone: 5, ..early }, reached), (0, 1, 0), "handled, and still there");
        assert_eq!(
            found(Expected { ended_early: false, ..early }, reached),
            (4, 0, 0),
            "it should have ended"
        );
    }
}
