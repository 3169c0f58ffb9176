//! The coldest page on flash, by a heap whose keys may be stale (TAC §3.3).
//!
//! The key of a page is its heat when it was last looked at; the temperature may have risen
//! since. Before a victim is named the page at the top is looked at again and sunk to its place,
//! at most a few times. What that guarantees:
//!
//! 1. While nothing was forgotten or trimmed every key is at most its page's heat, and so the key
//!    of the victim is at most the heat of *every* page on flash.
//! 2. If the last look found the key current, the victim is the coldest page there is. Otherwise
//!    it is the one that seemed coldest, and may be warmer than some that were not looked at.
//!
//! 8.5 bytes a slot; O(refreshes × log slots).

use super::regions::Regions;
use crate::heap::IndexedHeap;
use crate::page::SlotId;
use crate::tier::SlotTable;

/// Victims tried before an admission is refused because all of them are pinned.
const PINNED_MAX: usize = 16;

/// See the module text.
#[derive(Debug)]
pub(super) struct Coldest {
    heap: IndexedHeap,
    refreshes: u32,
    /// Candidates set aside while a victim is looked for; kept to allocate once.
    set_aside: Vec<(f64, u32)>,
}

impl Coldest {
    pub(super) fn new(capacity: u32, refreshes: u32) -> Self {
        Self {
            heap: IndexedHeap::new(capacity),
            refreshes,
            set_aside: Vec::with_capacity(PINNED_MAX),
        }
    }

    pub(super) fn insert(&mut self, slot: SlotId, heat: f64) {
        self.heap.insert(slot.0, heat);
    }

    pub(super) fn remove(&mut self, slot: SlotId) {
        let removed = self.heap.remove(slot.0);
        debug_assert!(removed.is_some(), "every resident is in the heap");
    }

    /// The unit of heat changed.
    pub(super) fn scale(&mut self, factor: f64) {
        self.heap.scale_keys(factor);
    }

    /// Looks at the top of the heap again at most `refreshes` times, then gives it.
    fn top(&mut self, regions: &Regions, slots: &SlotTable) -> Option<(f64, u32)> {
        for _ in 0..self.refreshes {
            let (stale, id) = self.heap.peek()?;
            let page = slots.page(SlotId(id));
            debug_assert!(page.is_some(), "the heap holds residents");
            let heat = page.map_or(stale, |page| regions.heat(page));
            if heat == stale {
                break;
            }
            self.heap.update(id, heat);
        }
        self.heap.peek()
    }

    /// The coldest evictable page with its key; pinned ones are set aside and put back.
    pub(super) fn victim(&mut self, regions: &Regions, slots: &SlotTable) -> Option<(f64, SlotId)> {
        debug_assert!(self.set_aside.is_empty());
        let mut found = None;
        while let Some((key, id)) = self.top(regions, slots) {
            if slots.evictable(SlotId(id)) {
                found = Some((key, SlotId(id)));
                break;
            }
            if self.set_aside.len() == PINNED_MAX {
                break;
            }
            self.heap.remove(id);
            self.set_aside.push((key, id));
        }
        for (key, id) in self.set_aside.drain(..) {
            self.heap.insert(id, key);
        }
        found
    }

    pub(super) fn bytes(&self) -> usize {
        self.heap.bytes()
    }

    pub(super) fn assert_invariants(&self, regions: &Regions, slots: &SlotTable) {
        self.heap.assert_invariants();
        assert_eq!(
            self.heap.len(),
            slots.resident() as usize,
            "the heap holds the residents"
        );
        for (slot, page) in slots.residents() {
            let key = self.heap.key(slot.0).unwrap_or(f64::NAN);
            assert!(
                key <= regions.heat(page) || regions.forgot(),
                "stale keys are lower bounds"
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::tac::tests::{full_tier, warm};
    use proptest::prelude::*;

    proptest! {
        /// Beside a search of all residents: what the module text guarantees.
        #[test]
        fn the_victim_is_as_good_as_promised(
            looks in prop::sample::select(vec![0u32, 1, 5, 100]),
            steps in prop::collection::vec((0u64..24, 1u32..40, any::<bool>()), 1..200),
        ) {
            let (mut regions, mut slots) = full_tier(12);
            let mut heap = Coldest::new(12, looks);
            for (slot, page) in slots.residents() {
                heap.insert(slot, regions.heat(page));
            }
            for (region, reads, pin) in steps {
                warm(&mut regions, region, reads);
                let pinned = SlotId(region as u32 % 12);
                if pin {
                    slots.pin(pinned);
                }
                let residents = slots.residents().filter(|(slot, _)| slots.evictable(*slot));
                let heats: Vec<(f64, SlotId)> =
                    residents.map(|(slot, page)| (regions.heat(page), slot)).collect();
                let coldest = heats.iter().map(|e| e.0).fold(f64::INFINITY, f64::min);
                let found = heap.victim(&regions, &slots);
                let (key, victim) = found.expect("one page at most is pinned");
                prop_assert!(key <= coldest, "guarantee 1");
                let of_victim = heats.iter().find(|e| e.1 == victim).map(|e| e.0);
                let heat = of_victim.expect("the victim is evictable");
                if key == heat || looks == 100 {
                    prop_assert_eq!(heat, coldest, "guarantee 2");
                }
                if pin {
                    slots.unpin(pinned);
                }
                heap.assert_invariants(&regions, &slots);
            }
        }
    }
}
