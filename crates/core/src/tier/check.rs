//! The numbered invariants of the slot table, asserted.

use super::slot::NO_BLOCK;
use super::{Area, Dirty, Slot, SlotState, SlotTable};
use crate::hash;
use crate::page::SlotId;

impl SlotTable {
    /// Panics unless the numbered invariants of the module text hold. O(slots), with one bit a
    /// block for memory.
    pub fn assert_invariants(&self) {
        let mut counts = [0u32; 4];
        for (id, s) in self.slots.iter().enumerate() {
            let id = SlotId(id as u32);
            let (state, has_block) = (s.state(), s.block().is_some());
            counts[state as usize] += 1;
            if s.is_resident() {
                assert_eq!(self.find(s.page()), Some(id), "invariant 1");
                assert!(s.is_dirty() || !self.is_reserve(id), "invariant 7");
            }
            let moving = matches!(state, SlotState::Staged | SlotState::Draining);
            let writing = self.is_writing(id);
            assert!(!writing || moving, "invariant 3");
            assert!(writing || state != SlotState::Draining, "invariant 3");
            assert!(has_block || state != SlotState::Valid, "invariant 5");
            assert!(!has_block || s.is_resident(), "invariant 5");
            assert!(s.is_busy() || !moving, "invariant 9");
        }
        let [free, staged, valid, draining] = counts;
        let held = staged + valid;
        assert_eq!(held, self.map.len(), "invariant 1");
        self.map
            .assert_invariants(|id| hash::of_page(self.slots[id as usize].page()));
        let counted = self.resident + self.kept + self.reserved();
        assert_eq!(counted, held, "invariant 1");
        assert_eq!(free, self.listed_free(), "invariant 4");
        assert_eq!(draining, self.draining, "invariant 4");
        let counted = self.extents.is_of(self.occupied().map(|(_, page)| page));
        assert!(counted, "invariant 8");
        self.assert_busy();
        self.assert_dirty();
        self.assert_blocks_differ();
    }

    /// The free slots that are chained; each is in the chain of its kind.
    fn listed_free(&self) -> u32 {
        let kinds = [
            (&self.free, Area::Policy),
            (&self.free_kept, Area::Kept),
            (&self.free_reserve, Area::Reserve),
        ];
        for (free, area) in kinds {
            let (mut at, mut len) = (free.first, 0);
            while at != NO_BLOCK {
                assert_eq!(self.area(SlotId(at)), area, "invariant 4");
                len += 1;
                assert!(len <= free.len, "invariant 4: a chain has no end");
                at = self.slots[at as usize].next_free();
            }
            assert_eq!(len, free.len, "invariant 4");
        }
        self.free.len + self.free_kept.len + self.free_reserve.len
    }

    fn assert_busy(&self) {
        let mut pins = 0;
        for (slot, busy) in self.busy.iter() {
            let s = &self.slots[slot.at()];
            assert!(s.is_busy(), "invariant 9");
            pins += u32::from(busy.pins);
            let pinned = busy.pins > 0;
            assert_eq!(pinned, s.state() == SlotState::Valid, "invariants 2 and 9");
            let dirty = s.is_dirty() && s.state() == SlotState::Staged;
            let same = busy.generation == self.generation(slot);
            assert!(!dirty || same, "a staged slot has one generation");
        }
        let busy = self.slots.iter().filter(|s| s.is_busy()).count();
        assert_eq!(busy, self.busy.iter().count(), "invariant 9");
        assert_eq!(pins, self.pinned, "readers are counted");
    }

    fn assert_dirty(&self) {
        let kinds = [(&self.dirty_policy, false), (&self.dirty_reserve, true)];
        for (pages, reserve) in kinds {
            for (page, Dirty { slot, .. }) in pages {
                let s = &self.slots[slot.at()];
                assert!(s.is_dirty() && s.page() == *page, "invariant 6: {page:?}");
                assert_eq!(self.is_reserve(*slot), reserve, "invariant 6: {page:?}");
            }
        }
        let dirty = self.slots.iter().filter(|s| s.is_dirty()).count();
        assert_eq!(dirty, self.dirty() as usize, "invariant 6");
    }

    fn assert_blocks_differ(&self) {
        let blocks = || self.slots.iter().filter_map(Slot::block);
        let longest = blocks().map(|block| block.at() / 64 + 1).max();
        let mut seen = vec![0u64; longest.unwrap_or(0)];
        for block in blocks() {
            let (word, bit) = (&mut seen[block.at() / 64], 1u64 << (block.at() % 64));
            assert!(*word & bit == 0, "invariant 5: {block:?} is shared");
            *word |= bit;
        }
    }
}
