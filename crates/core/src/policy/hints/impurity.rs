//! Which hint types tell worthy pages from worthless ones (thesis §5.2).
//!
//! Looking at one hint type only puts the sampled hint sets into *partitions*, one for each of
//! its values. The *impurity* of the type is how far the priorities of the hint sets are from
//! those of their partitions, squared, weighted by requests: 0 when the type alone says all.

use super::counting::Counts;
use crate::hint::{HINT_TYPES_MAX, HintSet};
use crate::policy::LearnedHintType;
use std::collections::BTreeMap;

/// The impurity of every hint type that has a value in `sample`, purest first (the lower position
/// where equal), the first `keep` of them marked as used.
///
/// Equations 5.5 to 5.7, in which the N(P) cancel: I = sum of N(H) (Pr(P) - Pr(H))^2 over all H,
/// P being the partition of H, divided by the sum of N(H). Priorities are those of CLIC. A value
/// of one client is another value than that of another client (§3.1).
#[must_use]
pub(super) fn rank(sample: &[(HintSet, Counts)], keep: u32) -> Vec<LearnedHintType> {
    let has_value = |at: usize| sample.iter().any(|(hints, _)| hints.get(at) != 0);
    let positions = (0..HINT_TYPES_MAX).filter(|position| has_value(*position));
    let mut types: Vec<LearnedHintType> = positions
        .map(|position| LearnedHintType {
            position,
            impurity: impurity(sample, position),
            used: false,
        })
        .collect();
    types.sort_by(|a, b| a.impurity.total_cmp(&b.impurity));
    for kept in types.iter_mut().take(keep as usize) {
        kept.used = true;
    }
    types
}

/// Impurity of the hint type at `position`. O(sample log sample).
fn impurity(sample: &[(HintSet, Counts)], position: usize) -> f64 {
    let value = |hints: &HintSet| (hints.client(), hints.get(position));
    let mut partitions: BTreeMap<(u32, u32), Counts> = BTreeMap::new();
    for (hints, counts) in sample {
        let partition = partitions.entry(value(hints)).or_default();
        *partition = partition.plus(counts);
    }
    let (mut error, mut total) = (0.0, 0.0);
    for (hints, counts) in sample {
        let partition = partitions.get(&value(hints));
        debug_assert!(partition.is_some(), "every hint set is in a partition");
        let priority = partition.map_or(0.0, Counts::priority);
        let weight = counts.requests;
        error += weight * (priority - counts.priority()).powi(2);
        total += weight;
    }
    debug_assert!(error >= 0.0 && total >= 0.0, "squares and counts");
    if total == 0.0 { 0.0 } else { error / total }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(object: u32, request: u32, counts: (u64, u64, u64)) -> (HintSet, Counts) {
        let (requests, rereads, distance) = counts;
        let [requests, rereads, distance] = [requests, rereads, distance].map(|n| n as f64);
        let hints = HintSet::UNKNOWN.with(0, object).with(2, request);
        let counts = Counts {
            requests,
            rereads,
            distance,
        };
        (hints, counts)
    }

    /// By hand: Pr is 1/10 for the first request type and 1/40 for the second, whatever the
    /// object. Type 2 explains all. By object: Nr = 100 + 50, N = 200, D = (1000 + 1000) / 150,
    /// so Pr(P) = 0.75 / (40 / 3) = 0.05625, and both sets of each object are 0.04375 and
    /// 0.03125 away from it.
    #[test]
    fn impurity_by_hand() {
        let sample = [
            set(1, 1, (100, 100, 1000)),
            set(1, 2, (100, 50, 1000)),
            set(2, 1, (100, 100, 1000)),
            set(2, 2, (100, 50, 1000)),
        ];
        let types = rank(&sample, 1);
        assert_eq!(types.len(), 2, "types without any value are not ranked");
        assert_eq!((types[0].position, types[0].used), (2, true));
        assert_eq!(types[0].impurity, 0.0);
        assert_eq!((types[1].position, types[1].used), (0, false));
        let by_object = (0.04375f64.powi(2) - 0.0).mul_add(0.5, 0.5 * 0.03125f64.powi(2));
        assert!((types[1].impurity - by_object).abs() < 1e-12);
    }

    /// The same value from two clients makes two partitions.
    #[test]
    fn clients_are_told_apart() {
        let [first, second] = [(100, 100, 1000), (100, 50, 1000)].map(|c| set(1, 0, c));
        let together = rank(&[first, second], 1)[0].impurity;
        let apart = (second.0.from_client(7), second.1);
        assert!(together > 0.0);
        assert_eq!(rank(&[first, apart], 1)[0].impurity, 0.0);
    }

    #[test]
    fn nothing_sampled_ranks_nothing() {
        assert!(rank(&[], 3).is_empty());
        assert!(rank(&[(HintSet::UNKNOWN, Counts::default())], 3).is_empty());
    }
}
