//! Hint types that say nothing, added to a stream on purpose (thesis §3.4.4, §5.3): how much of
//! them does a policy that learns from hints bear?

use crate::hash;
use crate::hint::{HINT_TYPES_MAX, HintSet};

/// `types` further hint types whose values are drawn by lot, each on its own, with Zipf's
/// distribution of skew 1: value i (from 1) has a weight of 1/i. What a request gets depends on
/// the seed and the request's number alone.
#[derive(Clone, Debug)]
pub struct NoiseHints {
    seed: u64,
    first: usize,
    types: usize,
    /// Value i + 1 is given to draws below `bounds[i]` that are not below the one before.
    bounds: Vec<u64>,
}

impl NoiseHints {
    /// Noise in the hint types `first..first + types`, which are free, each with values
    /// `1..=values` (§3.4.4: 10). `None` when there are not so many hint types, or no values.
    #[must_use]
    pub fn new(seed: u64, first: usize, types: usize, values: u32) -> Option<Self> {
        if first.checked_add(types)? > HINT_TYPES_MAX || values == 0 {
            return None;
        }
        let total: f64 = (1..=values).map(|i| 1.0 / f64::from(i)).sum();
        let mut below = 0.0;
        let bounds = (1..=values).map(|i| {
            below += 1.0 / f64::from(i) / total;
            (below * u64::MAX as f64) as u64
        });
        Some(Self {
            seed,
            first,
            types,
            bounds: bounds.collect(),
        })
    }

    /// `hints` of request `number` with noise added. O(types log values).
    #[must_use]
    pub fn add(&self, number: u64, hints: &HintSet) -> HintSet {
        (0..self.types).fold(*hints, |hints, at| {
            let draw = hash::mix(hash::mix(self.seed, number), at as u64 + 1);
            let value = self.bounds.partition_point(|bound| *bound <= draw);
            let value = value.min(self.bounds.len() - 1);
            hints.with(self.first + at, value as u32 + 1)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn follows_zipf_and_repeats() {
        let noise = NoiseHints::new(7, 5, 2, 10).expect("fits");
        let mut counts = [[0u32; 11]; 2];
        for number in 0..100_000 {
            let hints = noise.add(number, &HintSet::UNKNOWN.with(0, 3));
            assert_eq!(hints, noise.add(number, &HintSet::UNKNOWN.with(0, 3)));
            assert_eq!((hints.get(0), hints.get(4), hints.get(7)), (3, 0, 0));
            for (at, counts) in counts.iter_mut().enumerate() {
                counts[hints.get(5 + at) as usize] += 1;
            }
        }
        // The sum of 1/1 to 1/10 is 2.929: value 1 has 34.1 %, value 10 has 3.4 %.
        for counts in counts {
            assert_eq!(counts[0], 0);
            assert!(counts[1].abs_diff(34_142) < 600, "{counts:?}");
            assert!(counts[10].abs_diff(3_414) < 300, "{counts:?}");
        }
    }

    #[test]
    fn refuses_what_does_not_fit() {
        assert!(NoiseHints::new(1, HINT_TYPES_MAX - 1, 2, 10).is_none());
        assert!(NoiseHints::new(1, 0, 1, 0).is_none());
    }
}
