//! What of a lane may run now, and in which order.
//!
//! Messages of one key run in the order of their numbers. What was read may lack an earlier one of the same key, or
//! hold one that is not due; then the later ones stay where they are, or go where the earlier one is.

use std::collections::{BTreeMap, HashMap, HashSet};

use crate::backend::{Next, Parked, Place};

/// What is to be done with what was read of a lane.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    /// Messages whose process may have died of them: each runs alone.
    pub(crate) alone: Vec<Next>,
    /// Messages that have failed before: they run first, so that another failure takes nothing else with it.
    pub(crate) again: Vec<Next>,
    /// All others that may run, in the order of their numbers.
    pub(crate) fresh: Vec<Next>,
    /// Messages whose key has an earlier unfinished one among the parked: they go behind it.
    pub(crate) behind: Vec<Next>,
    /// Whether there may be more than was read.
    pub(crate) more: bool,
}

/// Sorts what was read, at most `rows` of either kind.
pub(crate) fn plan(read: Vec<Next>, rows: usize, bytes: usize) -> Plan {
    let (mut parked, mut deliveries) = (Vec::new(), Vec::new());
    for next in read {
        match next.place {
            Place::Parked(place) => parked.push((place, next)),
            Place::Delivery { .. } => deliveries.push(next),
        }
    }
    let cut = |count: usize, size: usize| count >= rows || size >= bytes;
    let cut_deliveries = cut(deliveries.len(), deliveries.iter().map(size).sum());
    let cut_parked = cut(parked.len(), parked.iter().map(|(_, next)| size(next)).sum());
    let mut plan = Plan { more: cut_deliveries || cut_parked, ..Plan::default() };

    let mut first_delivery: HashMap<i64, i64> = HashMap::new();
    for next in &deliveries {
        if let Some(key) = next.key_hash {
            first_delivery.entry(key).or_insert(next.place.seq());
        }
    }
    let last_delivery = deliveries.last().map_or(i64::MIN, |next| next.place.seq());
    // A backfill brings deliveries that are earlier than parked messages of their key.
    let overtakes = |place: Parked| {
        first_delivery.get(&place.key_hash).is_some_and(|first| *first < place.seq)
            || (cut_deliveries && place.seq > last_delivery && place.key_hash != -place.seq)
    };

    // The runs of the keys: what is due, and what waits behind it. Two due ones of a key bring the same rows.
    let mut runs: BTreeMap<i64, BTreeMap<i64, (Parked, Next)>> = BTreeMap::new();
    let mut order = Vec::new();
    for (place, next) in parked {
        let run = runs.entry(place.key_hash).or_insert_with(|| {
            order.push(place.key_hash);
            BTreeMap::new()
        });
        run.insert(place.seq, (place, next));
    }
    // Keys all of whose parked messages run now: their deliveries may follow.
    let mut whole = HashSet::new();
    for key in order {
        let run = runs.remove(&key).unwrap_or_default();
        let mut complete = !cut_parked;
        for (at, (place, next)) in run.into_values().enumerate() {
            let first = at == 0;
            if first && next.blocked {
                plan.behind.push(next);
            } else if overtakes(place) || !(first || next.waiting) {
            } else if next.alone {
                plan.alone.push(next);
            } else {
                // What follows must not run before the first.
                let list = if first && (next.attempts > 0 || next.conflicts > 0) {
                    &mut plan.again
                } else {
                    &mut plan.fresh
                };
                list.push(next);
                continue;
            }
            complete = false;
            break;
        }
        if complete {
            whole.insert(key);
        }
    }
    for next in deliveries {
        if next.blocked && !next.key_hash.is_some_and(|key| whole.contains(&key)) {
            plan.behind.push(next);
        } else {
            plan.fresh.push(next);
        }
    }
    plan.fresh.sort_unstable_by_key(|next| next.place.seq());
    plan
}

fn size(next: &Next) -> usize {
    next.message.as_ref().and_then(|message| message.as_ref().ok()).map_or(0, |message| message.payload.len())
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::backend::{Mark, StoredMessage};

    fn delivery(seq: i64, key: i64) -> Next {
        next(Place::Delivery { seq }, key)
    }

    fn blocked(seq: i64, key: i64) -> Next {
        Next { blocked: true, ..delivery(seq, key) }
    }

    fn due(seq: i64, key: i64, attempts: i32) -> Next {
        Next { attempts, ..next(Place::Parked(Parked { seq, key_hash: key, attempts }), key) }
    }

    fn waiting(seq: i64, key: i64) -> Next {
        Next { waiting: true, blocked: true, ..due(seq, key, 0) }
    }

    fn next(place: Place, key: i64) -> Next {
        Next {
            place,
            attempts: 0,
            total_attempts: 0,
            conflicts: 0,
            alone: false,
            waiting: false,
            blocked: false,
            mark: Mark::None,
            key_hash: Some(key),
            message: Some(Ok(StoredMessage {
                id: place.seq().to_string(),
                event_type: "t".into(),
                version: 1,
                topic: "t".into(),
                source: None,
                aggregate_id: None,
                key: None,
                payload: vec![0; 10],
                content_type: "t".into(),
                headers: None,
                created_at: SystemTime::UNIX_EPOCH,
            })),
        }
    }

    fn seqs(list: &[Next]) -> Vec<i64> {
        list.iter().map(|next| next.place.seq()).collect()
    }

    /// What failed before, what is new, what goes behind.
    fn planned(read: Vec<Next>, rows: usize) -> [Vec<i64>; 3] {
        let plan = plan(read, rows, 1_000);
        [seqs(&plan.again), seqs(&plan.fresh), seqs(&plan.behind)]
    }

    #[test]
    fn what_failed_before_runs_first_and_its_followers_behind_it() {
        let read = vec![due(1, 7, 1), waiting(4, 7), delivery(2, 8), blocked(5, 7), delivery(6, 8)];
        assert_eq!(planned(read, 10), [vec![1], vec![2, 4, 5, 6], vec![]]);
    }

    #[test]
    fn a_follower_that_has_failed_does_not_run_before_its_head() {
        let read = vec![due(1, 7, 0), Next { attempts: 2, ..waiting(4, 7) }, delivery(2, 8)];
        assert_eq!(planned(read, 10), [vec![], vec![1, 2, 4], vec![]]);
    }

    #[test]
    fn a_run_that_is_not_whole_keeps_its_deliveries_behind() {
        let head = || due(1, 7, 1);
        // A dead one in its middle, a second one that is due by itself, a cut.
        let dead = Next { waiting: false, ..waiting(3, 7) };
        assert_eq!(planned(vec![head(), dead, waiting(4, 7), blocked(5, 7)], 10), [vec![1], vec![], vec![5]]);
        assert_eq!(planned(vec![head(), waiting(4, 7), blocked(5, 7)], 2), [vec![1], vec![4], vec![5]]);
        assert_eq!(planned(vec![blocked(5, 7)], 10), [vec![], vec![], vec![5]]);
    }

    #[test]
    fn what_is_due_behind_an_unfinished_one_goes_behind_it() {
        let read = vec![Next { blocked: true, ..due(3, 7, 1) }, waiting(4, 7), blocked(5, 7)];
        assert_eq!(planned(read, 10), [vec![], vec![], vec![3, 5]]);
    }

    #[test]
    fn nothing_parked_overtakes_an_earlier_delivery_of_its_key() {
        assert_eq!(planned(vec![due(3, 7, 1), delivery(2, 7)], 10), [vec![], vec![2], vec![]]);
        // Perhaps there is one beyond what was read.
        assert_eq!(
            planned(vec![due(9, 7, 1), delivery(2, 8), delivery(3, 8)], 2),
            [vec![], vec![2, 3], vec![]]
        );
        assert_eq!(
            planned(vec![due(9, -9, 1), delivery(2, 8), delivery(3, 8)], 2),
            [vec![9], vec![2, 3], vec![]]
        );
        assert_eq!(
            planned(vec![due(9, 7, 1), delivery(2, 8), delivery(3, 8)], 10),
            [vec![9], vec![2, 3], vec![]]
        );
    }

    #[test]
    fn a_message_that_was_run_alone_is_alone_again() {
        let plan = plan(vec![Next { alone: true, ..due(1, 7, 1) }, waiting(4, 7), delivery(2, 8)], 10, 1_000);
        assert_eq!((seqs(&plan.alone), seqs(&plan.fresh)), (vec![1], vec![2]));
    }

    #[test]
    fn rows_and_bytes_say_that_there_may_be_more() {
        let three = || vec![delivery(1, 1), delivery(2, 2), delivery(3, 3)];
        assert!(!plan(three(), 4, 31).more);
        assert!(plan(three(), 3, 31).more);
        assert!(plan(three(), 4, 30).more);
    }
}
