//! The slot table: which page is in which slot, and what is being done to that slot.
//!
//! # States of a slot
//! ```text
//!            admit                written                     pin
//!   Free ------------> Staged ---------------> Valid <-------------------> Valid, pinned
//!    ^                  |  ^   (buffer -> flash)  |            unpin
//!    |  remove          |  |                      | remove
//!    |                  |  +------ restage -------+
//!    +------------------+---- remove while being written ----> Draining --written--> Free
//! ```
//! *Staged*: the newest bytes are in the write buffer, the slot's own bytes are not to be read.
//! *Valid*: the slot's bytes are the page. *Draining*: the page is gone but a write to the slot
//! is still under way, so the slot cannot be given out yet.
//!
//! # Invariants (checked by [`SlotTable::assert_invariants`])
//! 1. A page is in at most one slot; the map holds exactly the staged and valid slots.
//! 2. Only valid slots are pinned.
//! 3. Only staged and draining slots are being written; a draining slot always is.
//! 4. Free slots are exactly the free list; free + draining + resident = capacity.
//!
//! Memory: 28 bytes a slot, plus 5 to 10 for the map.

use crate::hash;
use crate::page::{ObjectId, PageId, SlotId};
use hashbrown::HashTable;

/// State of one slot; see the module text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// Holds nothing.
    Free,
    /// Its page's bytes are in the write buffer.
    Staged,
    /// Its bytes are its page.
    Valid,
    /// Holds nothing, but a write to it has not finished.
    Draining,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    page: PageId,
    /// Counts contents: a write that finishes for an older generation is stale.
    generation: u32,
    pins: u16,
    state: SlotState,
    writing: bool,
}

/// All slots of a tier and the map from page to slot.
#[derive(Debug, Clone)]
pub struct SlotTable {
    slots: Vec<Slot>,
    map: HashTable<u32>,
    free: Vec<u32>,
    draining: u32,
}

impl SlotTable {
    /// A table of `capacity` free slots, handed out in order from slot 0.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        let empty = Slot {
            page: PageId::default(),
            generation: 0,
            pins: 0,
            state: SlotState::Free,
            writing: false,
        };
        Self {
            slots: vec![empty; capacity as usize],
            map: HashTable::new(),
            free: (0..capacity).rev().collect(),
            draining: 0,
        }
    }

    /// Number of slots.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Number of slots that hold a page.
    #[must_use]
    pub fn resident(&self) -> u32 {
        self.map.len() as u32
    }

    /// Whether a page can come in without another leaving.
    #[must_use]
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// The slot of `page`.
    #[must_use]
    pub fn find(&self, page: PageId) -> Option<SlotId> {
        let found = self.map.find(hash::of_page(page), |&s| {
            self.slots[s as usize].page == page
        });
        found.map(|&s| SlotId(s))
    }

    /// The page in `slot`.
    #[must_use]
    pub fn page(&self, slot: SlotId) -> Option<PageId> {
        let s = &self.slots[slot.at()];
        matches!(s.state, SlotState::Staged | SlotState::Valid).then_some(s.page)
    }

    /// The state of `slot`.
    #[must_use]
    pub fn state(&self, slot: SlotId) -> SlotState {
        self.slots[slot.at()].state
    }

    /// The content count of `slot`.
    #[must_use]
    pub fn generation(&self, slot: SlotId) -> u32 {
        self.slots[slot.at()].generation
    }

    /// Whether a write to `slot` is under way.
    #[must_use]
    pub fn is_writing(&self, slot: SlotId) -> bool {
        self.slots[slot.at()].writing
    }

    /// Whether the page in `slot` may be replaced now: nobody reads it and no write to it is
    /// under way.
    #[must_use]
    pub fn evictable(&self, slot: SlotId) -> bool {
        let s = &self.slots[slot.at()];
        debug_assert!(matches!(s.state, SlotState::Staged | SlotState::Valid));
        s.pins == 0 && !s.writing
    }

    /// Slots that hold a page, with it, in slot order. O(capacity).
    pub fn residents(&self) -> impl Iterator<Item = (SlotId, PageId)> + '_ {
        let ids = (0..self.capacity()).map(SlotId);
        ids.filter_map(|slot| self.page(slot).map(|page| (slot, page)))
    }

    /// Resident slots of pages `first..=last` of `object`. O(pages asked for) or O(capacity),
    /// whichever is less.
    #[must_use]
    pub fn in_range(&self, object: ObjectId, first: u64, last: u64) -> Vec<SlotId> {
        debug_assert!(first <= last, "a range has a first page");
        if last - first < u64::from(self.capacity()) {
            let pages = (first..=last).map(|index| PageId { object, index });
            return pages.filter_map(|page| self.find(page)).collect();
        }
        let inside = |page: PageId| page.object == object && (first..=last).contains(&page.index);
        self.residents()
            .filter(|(_, page)| inside(*page))
            .map(|(slot, _)| slot)
            .collect()
    }

    /// Gives `page`, which has no slot, a free one in state staged. `None` when there is none.
    pub fn admit(&mut self, page: PageId) -> Option<SlotId> {
        debug_assert!(self.find(page).is_none(), "a page has at most one slot");
        let slot = SlotId(self.free.pop()?);
        let s = &mut self.slots[slot.at()];
        debug_assert!(s.state == SlotState::Free && s.pins == 0 && !s.writing);
        s.page = page;
        s.state = SlotState::Staged;
        s.generation = s.generation.wrapping_add(1);
        let slots = &self.slots;
        let rehash = |&i: &u32| hash::of_page(slots[i as usize].page);
        self.map.insert_unique(hash::of_page(page), slot.0, rehash);
        Some(slot)
    }

    /// Puts `page` into `slot`, free until now, as valid: a warm restart.
    pub fn restore(&mut self, page: PageId, slot: SlotId) -> bool {
        if self.state(slot) != SlotState::Free || self.find(page).is_some() {
            return false;
        }
        // Restored in descending slot order the wanted slot is near the end of the list.
        let Some(at) = self.free.iter().rposition(|&f| f == slot.0) else {
            return false;
        };
        let last = self.free.len() - 1;
        self.free.swap(at, last);
        let given = self.admit(page);
        debug_assert_eq!(given, Some(slot));
        self.slots[slot.at()].state = SlotState::Valid;
        true
    }

    /// New bytes for the page in `slot` are in the write buffer.
    pub fn restage(&mut self, slot: SlotId) {
        let s = &mut self.slots[slot.at()];
        debug_assert!(matches!(s.state, SlotState::Staged | SlotState::Valid));
        debug_assert_eq!(s.pins, 0, "a page is not rewritten under its readers");
        s.state = SlotState::Staged;
        s.generation = s.generation.wrapping_add(1);
    }

    /// A write of the staged bytes starts.
    pub fn start_write(&mut self, slot: SlotId) {
        let s = &mut self.slots[slot.at()];
        debug_assert!(s.state == SlotState::Staged && !s.writing);
        s.writing = true;
    }

    /// The write of `generation` ended well. Says what became of the slot: valid when those were
    /// the newest bytes, still staged when they were not, free when the page had left.
    pub fn end_write(&mut self, slot: SlotId, generation: u32) -> SlotState {
        let s = &mut self.slots[slot.at()];
        debug_assert!(s.writing, "a write ends once");
        s.writing = false;
        match s.state {
            SlotState::Draining => {
                s.state = SlotState::Free;
                self.draining -= 1;
                self.free.push(slot.0);
            }
            SlotState::Staged if s.generation == generation => s.state = SlotState::Valid,
            _ => debug_assert_eq!(s.state, SlotState::Staged),
        }
        self.slots[slot.at()].state
    }

    /// Takes the page out of `slot`.
    pub fn remove(&mut self, slot: SlotId) -> PageId {
        let s = self.slots[slot.at()];
        debug_assert!(matches!(s.state, SlotState::Staged | SlotState::Valid));
        debug_assert_eq!(s.pins, 0, "a page does not leave under its readers");
        let entry = self.map.find_entry(hash::of_page(s.page), |&i| i == slot.0);
        debug_assert!(entry.is_ok(), "a resident page is in the map");
        if let Ok(entry) = entry {
            entry.remove();
        }
        if s.writing {
            self.slots[slot.at()].state = SlotState::Draining;
            self.draining += 1;
        } else {
            self.slots[slot.at()].state = SlotState::Free;
            self.free.push(slot.0);
        }
        s.page
    }

    /// A reader of the valid `slot` starts.
    pub fn pin(&mut self, slot: SlotId) {
        let s = &mut self.slots[slot.at()];
        debug_assert_eq!(s.state, SlotState::Valid, "only valid slots are read");
        s.pins += 1;
    }

    /// A reader of `slot` ends.
    pub fn unpin(&mut self, slot: SlotId) {
        let s = &mut self.slots[slot.at()];
        debug_assert!(s.pins > 0, "an unpin follows a pin");
        s.pins -= 1;
    }

    /// Readers of `slot`.
    #[must_use]
    pub fn pins(&self, slot: SlotId) -> u16 {
        self.slots[slot.at()].pins
    }

    /// Bytes of memory held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
            + self.map.allocation_size()
            + self.free.capacity() * 4
    }

    /// Panics unless the numbered invariants of the module text hold. O(capacity).
    pub fn assert_invariants(&self) {
        let mut counts = [0u32; 4];
        for id in 0..self.capacity() {
            let s = &self.slots[id as usize];
            counts[s.state as usize] += 1;
            let resident = matches!(s.state, SlotState::Staged | SlotState::Valid);
            if resident {
                assert_eq!(self.find(s.page), Some(SlotId(id)), "invariant 1");
            }
            assert!(s.pins == 0 || s.state == SlotState::Valid, "invariant 2");
            assert!(
                !s.writing || matches!(s.state, SlotState::Staged | SlotState::Draining),
                "invariant 3"
            );
            assert!(s.writing || s.state != SlotState::Draining, "invariant 3");
        }
        let [free, staged, valid, draining] = counts;
        assert_eq!(staged + valid, self.resident(), "invariant 1");
        assert_eq!(free as usize, self.free.len(), "invariant 4");
        assert_eq!(draining, self.draining, "invariant 4");
    }
}
