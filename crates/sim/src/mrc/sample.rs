//! Which pages are in the sample.

use thermocline_core::PageId;
use thermocline_core::hash::mix;
use thermocline_trace::Sample;

/// Makes the hash another one than that of the maps, so that the sample's pages spread in them.
const SALT: u64 = 0x7368_6172_6473;

/// A share of all pages: those whose hash mod P is below T.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(Sample);

impl Rate {
    /// Every page.
    pub const ALL: Self = Self(Sample::ALL);

    /// The share nearest to `share`, which is above 0 and at most 1; else `None`.
    #[must_use]
    pub fn of(share: f64) -> Option<Self> {
        Sample::of(share).map(Self)
    }

    /// A share that takes about `wanted` of `pages` pages: all when there are not twice as many.
    #[must_use]
    pub fn for_pages(pages: u64, wanted: u64) -> Self {
        if pages / 2 < wanted {
            return Self::ALL;
        }
        Self::of(wanted.max(1) as f64 / pages as f64).unwrap_or(Self::ALL)
    }

    /// R = T / P.
    #[must_use]
    pub fn share(self) -> f64 {
        self.0.share()
    }

    /// Whether `page` is in the sample, as are the pages of its unit of `unit_pages` pages.
    pub(super) fn takes(self, page: PageId, unit_pages: u32) -> bool {
        let unit = page.index / u64::from(unit_pages.max(1));
        self.0
            .has(mix(mix(u64::from(page.object.0) + 1, unit), SALT))
    }

    /// Slots of the miniature of a tier of `size` pages: R × size, at least one.
    pub(super) fn slots(self, size: u32) -> u32 {
        let slots = (f64::from(size) * self.share()).round();
        (slots as u32).max(1)
    }

    /// The largest stack distance in the sample that is a hit in a tier of `size` pages. With d
    /// the distance, d - 1 sampled pages lie between, so about (d - 1) / R of all.
    pub(super) fn stack_slots(self, size: u32) -> u64 {
        let between = u64::from(size).checked_sub(1);
        between.map_or(0, |between| (between as f64 * self.share()) as u64 + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use thermocline_core::ObjectId;

    #[test]
    fn a_rate_takes_about_its_share_of_the_pages() {
        for share in [0.01, 0.1, 0.5] {
            let rate = Rate::of(share).expect("a share");
            let page = |index| PageId::new(ObjectId(3), index);
            let taken = (0..100_000).filter(|&index| rate.takes(page(index), 1));
            let found = taken.count() as f64 / 100_000.0;
            assert!((found - share).abs() < 0.005, "{share}: {found}");
        }
        let all = (0..1000).all(|index| Rate::ALL.takes(PageId::new(ObjectId(0), index), 1));
        assert!(all);
    }

    #[test]
    fn pages_of_a_unit_go_together() {
        let rate = Rate::of(0.3).expect("a share");
        for unit in 0..100u64 {
            let page = |at| PageId::new(ObjectId(1), unit * 32 + at);
            let first = rate.takes(page(0), 32);
            assert!((1..32).all(|at| rate.takes(page(at), 32) == first));
        }
    }

    #[test]
    fn only_shares_are_rates() {
        for wrong in [0.0, -0.5, 1.001, f64::NAN, f64::INFINITY] {
            assert_eq!(Rate::of(wrong), None);
        }
        assert_eq!(Rate::of(1.0), Some(Rate::ALL));
        assert_eq!(Rate::for_pages(19, 10), Rate::ALL);
        assert!((Rate::for_pages(1000, 100).share() - 0.1).abs() < 1e-6);
    }

    #[test]
    fn everything_is_as_large_as_it_is() {
        for size in [1, 2, 17, u32::MAX] {
            assert_eq!(Rate::ALL.slots(size), size);
            assert_eq!(Rate::ALL.stack_slots(size), u64::from(size));
        }
        let tenth = Rate::of(0.1).expect("a share");
        assert_eq!((tenth.slots(1000), tenth.slots(1)), (100, 1));
        assert_eq!((tenth.stack_slots(1001), tenth.stack_slots(0)), (101, 0));
    }
}
