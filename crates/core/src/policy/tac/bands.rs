//! One of the coldest pages on flash, by temperature bands (TAC §3.3): O(1) a request.
//!
//! The range of temperatures is divided into bands, each with a list of the pages in it. The
//! victim comes from the end of the list of the coldest band that has pages: the least recently
//! read, or with [`Order::Mru`] the most recently read, which lets the beginning of a scan stay.
//!
//! # Where the paper leaves a choice
//! - *When a page changes its band* (§3.3: when its temperature is updated; §6: periodically,
//!   when temperatures are re-evaluated). A read changes the temperature of 32 pages, so: the
//!   page read moves at once, its neighbours when they are candidates for eviction (at most
//!   `looks` of them in one search, as in the heap), and all at regrouping.
//! - *Boundaries* (§3.3 "equi-depth histograms"): as many pages between any two, derived from the
//!   heats of the pages on flash (a sample of at most 8192) when the tier has filled and then
//!   every 4 requests a slot, when every page is put into its band. Ageing moves nothing, since
//!   boundaries are heats. At regrouping pages of a formerly colder band go first.
//! - *Admission*: by the bands too. A page may replace one of its own band (without that the
//!   order inside a band would decide nothing: §3.3 has LRU displace "the oldest scan pages"),
//!   none of a warmer band.
//!
//! Memory: 9 bytes a slot. Time: O(log bands) a request, O(1) amortised for the regrouping.
//!
//! # Invariants (checked by [`Bands::assert_invariants`])
//! 1. The lists hold the residents, each once, in the list of the band noted for it.
//! 2. Boundaries ascend; a page's band is never above that of its heat, while nothing was
//!    forgotten.

use super::regions::Regions;
use crate::list::{Links, List};
use crate::page::SlotId;
use crate::policy::evictable_from_back;
use crate::tier::SlotTable;

/// Heats looked at to derive boundaries, at most.
const SAMPLE_MAX: u32 = 8192;
/// Requests between two regroupings, per slot, and at least so many.
const REGROUP_REQUESTS: u64 = 4;
const REGROUP_REQUESTS_MIN: u64 = 1024;

/// Which page of the coldest band leaves first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    /// The least recently read.
    Lru,
    /// The most recently read.
    Mru,
}

/// See the module text.
#[derive(Debug)]
pub(super) struct Bands {
    order: Order,
    looks: u32,
    /// Heats at which bands 1, 2, … begin.
    bounds: Vec<f64>,
    /// Pages band by band; the next to leave is at the back.
    lists: Vec<List>,
    links: Links,
    band: Vec<u8>,
    requests: u64,
    regroup_at: u64,
    regroup_every: u64,
}

impl Bands {
    /// No pages, in `count` bands of which all but the first begin nowhere yet.
    pub(super) fn new(capacity: u32, count: u32, order: Order, looks: u32) -> Self {
        assert!((1..=255).contains(&count), "1 to 255 bands");
        Self {
            order,
            looks,
            bounds: Vec::with_capacity(count as usize),
            lists: vec![List::default(); count as usize],
            links: Links::new(capacity),
            band: vec![0; capacity as usize],
            requests: 0,
            regroup_at: 0,
            regroup_every: (REGROUP_REQUESTS * u64::from(capacity)).max(REGROUP_REQUESTS_MIN),
        }
    }

    pub(super) fn on_request(&mut self) {
        self.requests += 1;
    }

    /// The page in `slot` was read, and is `heat` warm now.
    pub(super) fn on_read(&mut self, slot: SlotId, heat: f64) {
        self.remove(slot);
        self.insert(slot, heat);
    }

    pub(super) fn insert(&mut self, slot: SlotId, heat: f64) {
        let band = self.band_of(heat);
        self.band[slot.at()] = band as u8;
        match self.order {
            Order::Lru => self.lists[band].push_front(&mut self.links, slot.0),
            Order::Mru => self.lists[band].push_back(&mut self.links, slot.0),
        }
    }

    pub(super) fn remove(&mut self, slot: SlotId) {
        let band = usize::from(self.band[slot.at()]);
        self.lists[band].remove(&mut self.links, slot.0);
    }

    /// The unit of heat changed.
    pub(super) fn scale(&mut self, factor: f64) {
        for bound in &mut self.bounds {
            *bound *= factor;
        }
    }

    /// The next evictable page to leave, if a newcomer of `heat` may replace it: `Err(true)` when
    /// all are pinned, `Err(false)` when all are of a warmer band.
    pub(super) fn victim(
        &mut self,
        heat: f64,
        regions: &Regions,
        slots: &SlotTable,
    ) -> Result<SlotId, bool> {
        if self.requests >= self.regroup_at {
            self.regroup_at = self.requests + self.regroup_every;
            self.regroup(regions, slots);
        }
        let (band, slot) = self.candidate(regions, slots).ok_or(true)?;
        match band <= self.band_of(heat) {
            true => Ok(slot),
            false => Err(false),
        }
    }

    /// The evictable page nearest the end of the coldest band; those found to be warmer than
    /// their band go to the end of their own, `looks` of them at most.
    fn candidate(&mut self, regions: &Regions, slots: &SlotTable) -> Option<(usize, SlotId)> {
        let mut looks = self.looks;
        loop {
            let (band, slot) = self.lowest(slots)?;
            let heat = slots.page(slot).map(|page| regions.heat(page));
            let now = heat.map_or(band, |heat| self.band_of(heat));
            if now <= band || looks == 0 {
                return Some((band, slot));
            }
            looks -= 1;
            self.remove(slot);
            self.lists[now].push_back(&mut self.links, slot.0);
            self.band[slot.at()] = now as u8;
        }
    }

    /// The next evictable page to leave, as pages are grouped now.
    fn lowest(&self, slots: &SlotTable) -> Option<(usize, SlotId)> {
        let mut bands = self.lists.iter().enumerate();
        bands.find_map(|(band, list)| {
            let slot = evictable_from_back(list, &self.links, slots)?;
            Some((band, slot))
        })
    }

    /// Bands below which a page of `heat` does not belong.
    fn band_of(&self, heat: f64) -> usize {
        self.bounds.partition_point(|bound| *bound <= heat)
    }

    /// Derives boundaries anew and puts every page into its band. O(residents).
    fn regroup(&mut self, regions: &Regions, slots: &SlotTable) {
        self.derive_bounds(regions, slots);
        let before = self.lists.clone();
        self.lists.fill(List::default());
        for list in before {
            let mut next = list.back();
            while let Some(id) = next {
                next = self.links.towards_front(id);
                let heat = slots.page(SlotId(id)).map(|page| regions.heat(page));
                debug_assert!(heat.is_some(), "listed slots hold a page");
                let band = self.band_of(heat.unwrap_or(0.0));
                self.band[id as usize] = band as u8;
                self.lists[band].push_front(&mut self.links, id);
            }
        }
    }

    fn derive_bounds(&mut self, regions: &Regions, slots: &SlotTable) {
        let stride = slots.capacity().div_ceil(SAMPLE_MAX).max(1) as usize;
        let pages = (0..slots.capacity()).step_by(stride);
        let pages = pages.filter_map(|id| slots.page(SlotId(id)));
        let mut heats: Vec<f64> = pages.map(|page| regions.heat(page)).collect();
        heats.sort_unstable_by(f64::total_cmp);
        let count = self.lists.len();
        self.bounds.clear();
        if !heats.is_empty() {
            let quantiles = (1..count).map(|band| heats[band * heats.len() / count]);
            self.bounds.extend(quantiles);
        }
        debug_assert!(self.bounds.is_sorted());
    }

    pub(super) fn bytes(&self) -> usize {
        self.links.bytes()
            + self.band.capacity()
            + self.bounds.capacity() * size_of::<f64>()
            + self.lists.capacity() * size_of::<List>()
    }

    pub(super) fn assert_invariants(&self, regions: &Regions, slots: &SlotTable) {
        let mut listed = 0;
        for (band, list) in self.lists.iter().enumerate() {
            for id in list.iter_from_back(&self.links) {
                assert_eq!(usize::from(self.band[id as usize]), band, "invariant 1");
                assert!(slots.page(SlotId(id)).is_some(), "invariant 1");
                listed += 1;
            }
        }
        assert_eq!(listed, slots.resident(), "invariant 1");
        assert!(self.bounds.is_sorted(), "invariant 2");
        for (slot, page) in slots.residents() {
            let band = usize::from(self.band[slot.at()]);
            let now = self.band_of(regions.heat(page));
            assert!(band <= now || regions.forgot(), "invariant 2");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tac::tests::{full_tier, warm};
    use proptest::prelude::*;

    /// Bands by the plainest code there is: pages from the next to leave to the last, each with
    /// its band.
    struct Naive {
        order: Order,
        bounds: Vec<f64>,
        pages: Vec<(SlotId, usize)>,
    }

    impl Naive {
        fn band_of(&self, heat: f64) -> usize {
            self.bounds.iter().filter(|bound| **bound <= heat).count()
        }

        fn read(&mut self, slot: SlotId, heat: f64) {
            self.pages.retain(|page| page.0 != slot);
            let entry = (slot, self.band_of(heat));
            match self.order {
                Order::Lru => self.pages.push(entry),
                Order::Mru => self.pages.insert(0, entry),
            }
        }

        fn regroup(&mut self, bands: usize, heat: impl Fn(SlotId) -> f64) {
            let mut heats: Vec<f64> = self.pages.iter().map(|page| heat(page.0)).collect();
            heats.sort_by(f64::total_cmp);
            self.bounds = (1..bands).map(|b| heats[b * heats.len() / bands]).collect();
            self.pages.sort_by_key(|page| page.1);
            for at in 0..self.pages.len() {
                self.pages[at].1 = self.band_of(heat(self.pages[at].0));
            }
        }

        fn victim(&mut self, mut looks: u32, heat: impl Fn(SlotId) -> f64) -> (SlotId, usize) {
            loop {
                let lowest = self.pages.iter().map(|page| page.1).min().expect("full");
                let at = self
                    .pages
                    .iter()
                    .position(|page| page.1 == lowest)
                    .expect("min");
                let (slot, band) = self.pages[at];
                let now = self.band_of(heat(slot));
                if now <= band || looks == 0 {
                    return (slot, band);
                }
                looks -= 1;
                self.pages.remove(at);
                self.pages.insert(0, (slot, now));
            }
        }
    }

    proptest! {
        #[test]
        fn the_victim_is_that_of_the_plainest_code(
            mru in any::<bool>(),
            count in 1u32..8,
            looks in prop::sample::select(vec![0u32, 1, 5, 100]),
            steps in prop::collection::vec((0u64..24, 0u32..40, 0u8..20), 1..200),
        ) {
            let (mut regions, slots) = full_tier(12);
            let order = if mru { Order::Mru } else { Order::Lru };
            let mut bands = Bands::new(12, count, order, looks);
            let mut naive = Naive { order, bounds: Vec::new(), pages: Vec::new() };
            for (slot, page) in slots.residents() {
                bands.insert(slot, regions.heat(page));
                naive.read(slot, regions.heat(page));
            }
            bands.regroup_at = u64::MAX;
            for (region, reads, what) in steps {
                warm(&mut regions, region, reads);
                let heat = |slot| slots.page(slot).map_or(0.0, |page| regions.heat(page));
                if what == 0 {
                    bands.regroup(&regions, &slots);
                    naive.regroup(count as usize, heat);
                }
                // Half of the regions have a page on flash; it is not always told.
                if what > 10 && region < 12 {
                    let slot = SlotId(region as u32);
                    bands.on_read(slot, heat(slot));
                    naive.read(slot, heat(slot));
                }
                let (slot, band) = naive.victim(looks, heat);
                let newcomer = f64::from(reads) * 1e4;
                let expected = match naive.band_of(newcomer) >= band {
                    true => Ok(slot),
                    false => Err(false),
                };
                prop_assert_eq!(bands.victim(newcomer, &regions, &slots), expected);
                if looks == 100 {
                    let coldest = slots.residents().map(|(slot, _)| naive.band_of(heat(slot)));
                    prop_assert_eq!(Some(band), coldest.min(), "nobody is in a colder band");
                }
                bands.assert_invariants(&regions, &slots);
            }
        }
    }

    #[test]
    fn bands_are_equally_deep() {
        let (mut regions, slots) = full_tier(1000);
        for region in 0..1000 {
            warm(&mut regions, region, (region * 7919 % 1000) as u32);
        }
        let mut bands = Bands::new(1000, 64, Order::Lru, 5);
        for (slot, page) in slots.residents() {
            bands.insert(slot, regions.heat(page));
        }
        bands.regroup(&regions, &slots);
        for list in &bands.lists {
            assert!((15..=16).contains(&list.len()), "1000 / 64 pages");
        }
    }

    #[test]
    fn boundaries_follow_the_temperatures() {
        let (mut regions, slots) = full_tier(8);
        let mut bands = Bands::new(8, 2, Order::Lru, 5);
        for (slot, page) in slots.residents() {
            warm(&mut regions, page.index / 32, 1 + slot.0);
            bands.insert(slot, regions.heat(page));
        }
        let newcomer = regions.heat(slots.page(SlotId(2)).expect("full"));
        let first = bands.victim(newcomer, &regions, &slots);
        assert_eq!(first, Ok(SlotId(0)), "derived at the first search");
        for region in 0..8 {
            warm(&mut regions, region, 100);
        }
        for _ in 0..REGROUP_REQUESTS_MIN {
            bands.on_request();
        }
        let cold = bands.victim(newcomer, &regions, &slots);
        assert_eq!(
            cold,
            Ok(SlotId(0)),
            "the coldest band reaches down to nothing"
        );
        assert!(
            bands.bounds[0] > newcomer,
            "but what was warm is not any more"
        );
    }
}
