//! A sample of the requests: all that fall into some of the extents, and no others.
//!
//! An *extent* is [`EXTENT_PAGES`] pages in a row of one object. A hash of its address says whether
//! it is in the sample, so its pages are followed always or never (SHARDS, FAST 2015, §3.1, with
//! extents for its blocks), and most of a sequential stream stays one. A tier of R times the size
//! does to the sample what the whole tier does to all requests, as far as R of the extents are like
//! all: few extents, or one that has most of the load, make a poor sample.
//!
//! Cost: a request of one extent costs one hash, a longer one as many as it touches. No memory.

use std::ops::Range;
use thermocline_core::ObjectId;
use thermocline_core::hash::mix;

/// Pages of an extent.
pub const EXTENT_PAGES: u64 = 32;
/// Values of the hash that decides.
const MODULUS: u32 = 1 << 24;
/// Makes the hash another one than those of maps and of miniature simulations.
const SALT: u64 = 0x6578_7465_6e74;

/// Which extents are in the sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sample {
    /// Those whose hash is below it.
    threshold: u32,
}

impl Default for Sample {
    fn default() -> Self {
        Self::ALL
    }
}

impl Sample {
    /// Every extent.
    pub const ALL: Self = Self { threshold: MODULUS };

    /// So much of all extents: above 0, at most 1; else `None`.
    #[must_use]
    pub fn of(share: f64) -> Option<Self> {
        let threshold = (share * f64::from(MODULUS)).round() as u32;
        let valid = share > 0.0 && share <= 1.0;
        valid.then_some(Self {
            threshold: threshold.max(1),
        })
    }

    /// The share of the extents that it takes.
    #[must_use]
    pub fn share(self) -> f64 {
        f64::from(self.threshold) / f64::from(MODULUS)
    }

    /// Whether it takes all.
    #[must_use]
    pub fn is_all(self) -> bool {
        self == Self::ALL
    }

    /// The share as a number that an atomic holds: 1 to 2^24.
    #[must_use]
    pub fn bits(self) -> u32 {
        self.threshold
    }

    /// The sample of [`Self::bits`]; `None` for other numbers, 0 among them.
    #[must_use]
    pub fn from_bits(bits: u32) -> Option<Self> {
        (1..=MODULUS)
            .contains(&bits)
            .then_some(Self { threshold: bits })
    }

    /// Whether it takes what has this hash.
    #[must_use]
    pub fn has(self, hash: u64) -> bool {
        hash % u64::from(MODULUS) < u64::from(self.threshold)
    }

    fn takes(self, object: ObjectId, extent: u64) -> bool {
        self.has(mix(mix(u64::from(object.0) + 1, extent), SALT))
    }

    /// The parts of `range` that are in the sample, in order and as long as they can be. An extent
    /// has `extent` units of `range`, at least 1.
    pub fn parts(
        self,
        object: ObjectId,
        extent: u64,
        range: Range<u64>,
    ) -> impl Iterator<Item = Range<u64>> {
        let mut at = range.start;
        std::iter::from_fn(move || {
            while at < range.end && !self.takes(object, at / extent) {
                at = (at / extent + 1).saturating_mul(extent);
            }
            let from = at;
            while at < range.end && self.takes(object, at / extent) {
                at = (at / extent + 1).saturating_mul(extent);
            }
            at = at.min(range.end);
            (from < at).then_some(from..at)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_whole_extents_of_the_sample() {
        let sample = Sample::of(0.25).expect("a share");
        let object = ObjectId(7);
        let all: Vec<u64> = sample.parts(object, 10, 3..9_995).flatten().collect();
        let taken = (3..9_995).filter(|at| sample.takes(object, at / 10));
        assert_eq!(all, taken.collect::<Vec<u64>>());
        // Of 1000 extents 250, give or take four standard deviations.
        assert!((1_900..3_100).contains(&all.len()), "{}", all.len());
        // Neighbours are one part.
        let mut ends = 3;
        for part in sample.parts(object, 10, 3..9_995) {
            assert!(
                part.start == 3 || part.start > ends,
                "{part:?} begins at {ends}"
            );
            ends = part.end;
        }
        let whole = Sample::ALL.parts(object, 10, 3..9_995).collect::<Vec<_>>();
        assert!(whole.len() == 1 && whole[0] == (3..9_995));
        assert_eq!(Sample::ALL.parts(object, 10, 3..3).count(), 0);
        let end = u64::MAX - 5..u64::MAX;
        let last = Sample::ALL.parts(object, 1 << 18, end.clone());
        let last = last.collect::<Vec<_>>();
        assert!(last.len() == 1 && last[0] == end);
    }

    #[test]
    fn shares_are_above_nothing_and_at_most_all() {
        for share in [0.0, -1.0, 1.01, f64::NAN, f64::INFINITY] {
            assert_eq!(Sample::of(share), None, "{share}");
        }
        assert_eq!(Sample::of(1.0), Some(Sample::ALL));
        assert_eq!(Sample::of(0.125).expect("a share").share(), 0.125);
        let least = Sample::of(1e-12).expect("a share");
        assert_eq!(Sample::from_bits(least.bits()), Some(least));
        assert_eq!(
            (Sample::from_bits(0), Sample::from_bits(u32::MAX)),
            (None, None)
        );
    }
}
