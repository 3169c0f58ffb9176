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
//! Slots are of two kinds: *policy slots*, `0..capacity`, which tier policies decide about, and
//! *reserve slots* above them, which hold dirty pages that no policy knows (write-back only).
//!
//! # Invariants (checked by [`SlotTable::assert_invariants`])
//! 1. A page is in at most one slot; the map holds exactly the staged and valid slots.
//! 2. Only valid slots are pinned.
//! 3. Only staged and draining slots are being written; a draining slot always is.
//! 4. Free slots are exactly the two free lists; free + draining + resident = all slots.
//! 5. A valid slot has a block, a free or draining one has none; no two slots share a block.
//! 6. `dirty_policy` and `dirty_reserve` hold exactly the pages of dirty slots, by kind.
//! 7. Reserve slots that hold a page are dirty.
//! 8. `objects` lists exactly the staged and valid slots, by the object of their page.
//!
//! Memory: 40 bytes a slot, plus 5 to 10 for the map, plus about 40 a dirty page.

use crate::by_object::ByObject;
use crate::hash;
use crate::page::{BlockId, ObjectId, PageId, SlotId};
use hashbrown::HashTable;
use std::collections::BTreeMap;

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

/// What became of a slot whose write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its state now.
    pub state: SlotState,
    /// The block its page had before, now of no use.
    pub old: Option<BlockId>,
}

/// No device is that long: [`SlotTable::with_reserve`] sees to it.
const NO_BLOCK: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
struct Slot {
    page: PageId,
    /// Counts contents: a write that finishes for an older generation is stale.
    generation: u32,
    /// Where its valid bytes are; staged: where the bytes before are. [`NO_BLOCK`] for none.
    block: u32,
    pins: u16,
    state: SlotState,
    writing: bool,
    dirty: bool,
}

const _: () = assert!(
    size_of::<Slot>() == 32,
    "there is one for every page on flash"
);

impl Slot {
    const FREE: Self = Self {
        page: PageId::new(ObjectId(0), 0),
        generation: 0,
        block: NO_BLOCK,
        pins: 0,
        state: SlotState::Free,
        writing: false,
        dirty: false,
    };

    fn block(&self) -> Option<BlockId> {
        (self.block != NO_BLOCK).then_some(BlockId(self.block))
    }

    /// The bytes of its page are in `block` now; says where they were.
    fn set_valid(&mut self, block: BlockId) -> Option<BlockId> {
        assert!(block.0 != NO_BLOCK, "invariant 5: no device is that long");
        let old = self.block();
        (self.state, self.block) = (SlotState::Valid, block.0);
        old
    }

    fn is_resident(&self) -> bool {
        matches!(self.state, SlotState::Staged | SlotState::Valid)
    }
}

/// All slots of a tier and the map from page to slot.
#[derive(Debug, Clone)]
pub struct SlotTable {
    slots: Vec<Slot>,
    capacity: u32,
    map: HashTable<u32>,
    objects: ByObject,
    free: Vec<u32>,
    free_reserve: Vec<u32>,
    draining: u32,
    resident: u32,
    /// Readers of all slots.
    pinned: u32,
    dirty_policy: BTreeMap<PageId, SlotId>,
    dirty_reserve: BTreeMap<PageId, SlotId>,
}

impl SlotTable {
    /// A table of `capacity` free policy slots, handed out in order from slot 0, and no reserve.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        Self::with_reserve(capacity, 0)
    }

    /// A table of `capacity` free policy slots and `reserve` reserve slots.
    #[must_use]
    pub fn with_reserve(capacity: u32, reserve: u32) -> Self {
        let all = capacity.saturating_add(reserve);
        assert!(all < NO_BLOCK, "slots have numbers");
        Self {
            slots: vec![Slot::FREE; all as usize],
            capacity,
            map: HashTable::new(),
            objects: ByObject::new(all),
            free: (0..capacity).rev().collect(),
            free_reserve: (capacity..all).rev().collect(),
            draining: 0,
            resident: 0,
            pinned: 0,
            dirty_policy: BTreeMap::new(),
            dirty_reserve: BTreeMap::new(),
        }
    }

    /// Number of policy slots.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Number of reserve slots.
    #[must_use]
    pub fn reserve(&self) -> u32 {
        self.slots.len() as u32 - self.capacity
    }

    /// Number of policy slots that hold a page.
    #[must_use]
    pub fn resident(&self) -> u32 {
        self.resident
    }

    /// Number of reserve slots that hold a page; all of them are dirty.
    #[must_use]
    pub fn reserved(&self) -> u32 {
        self.dirty_reserve.len() as u32
    }

    /// Number of dirty pages in policy slots.
    #[must_use]
    pub fn dirty_resident(&self) -> u32 {
        self.dirty_policy.len() as u32
    }

    /// Number of dirty pages.
    #[must_use]
    pub fn dirty(&self) -> u32 {
        self.dirty_resident() + self.reserved()
    }

    /// Whether policies know of `slot`.
    #[must_use]
    pub fn is_policy(&self, slot: SlotId) -> bool {
        slot.0 < self.capacity
    }

    /// Whether the page in `slot` is newer than base.
    #[must_use]
    pub fn is_dirty(&self, slot: SlotId) -> bool {
        self.slots[slot.at()].dirty
    }

    /// The block that holds the valid bytes of `slot`; of a staged one, those before.
    #[must_use]
    pub fn block(&self, slot: SlotId) -> Option<BlockId> {
        self.slots[slot.at()].block()
    }

    /// Number of slots that hold a page of `object`, those of the reserve included.
    #[must_use]
    pub fn resident_of(&self, object: ObjectId) -> u32 {
        self.objects.count(object)
    }

    /// Dirty pages from `from` on in base order, then those before it: of the reserve, or of
    /// policy slots.
    pub fn dirty_from(
        &self,
        reserve: bool,
        from: PageId,
    ) -> impl Iterator<Item = (PageId, SlotId)> + '_ {
        let of = match reserve {
            true => &self.dirty_reserve,
            false => &self.dirty_policy,
        };
        let both = of.range(from..).chain(of.range(..from));
        both.map(|(page, slot)| (*page, *slot))
    }

    /// Dirty pages `first..=last` of `object`, in order.
    pub fn dirty_in(&self, object: ObjectId, first: u64, last: u64) -> Vec<(PageId, SlotId)> {
        let range = PageId::new(object, first)..=PageId::new(object, last);
        let both = [&self.dirty_policy, &self.dirty_reserve];
        let pages = both.into_iter().flat_map(|of| of.range(range.clone()));
        let mut pages: Vec<_> = pages.map(|(page, slot)| (*page, *slot)).collect();
        pages.sort_unstable();
        pages
    }

    fn dirty_index(&mut self, slot: SlotId) -> &mut BTreeMap<PageId, SlotId> {
        match slot.0 < self.capacity {
            true => &mut self.dirty_policy,
            false => &mut self.dirty_reserve,
        }
    }

    fn set_dirty(&mut self, slot: SlotId, dirty: bool) {
        let s = &mut self.slots[slot.at()];
        if s.dirty == dirty {
            return;
        }
        s.dirty = dirty;
        let page = s.page;
        match dirty {
            true => self.dirty_index(slot).insert(page, slot),
            false => self.dirty_index(slot).remove(&page),
        };
    }

    /// The page in the policy slot `slot` is now also on base.
    pub fn set_clean(&mut self, slot: SlotId) {
        assert!(self.is_policy(slot), "a reserve slot is emptied instead");
        self.set_dirty(slot, false);
    }

    /// Number of free policy slots.
    #[must_use]
    pub fn room(&self) -> u32 {
        self.free.len() as u32
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
        s.is_resident().then_some(s.page)
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

    /// Whether the page in `slot` may be replaced now: nobody reads it, no write to it is under
    /// way, and no bytes wait in DRAM that are nowhere else.
    #[must_use]
    pub fn evictable(&self, slot: SlotId) -> bool {
        let s = &self.slots[slot.at()];
        assert!(s.is_resident());
        s.pins == 0 && !s.writing && !(s.dirty && s.state == SlotState::Staged)
    }

    /// Policy slots that hold a page, with it, in slot order. O(capacity).
    pub fn residents(&self) -> impl Iterator<Item = (SlotId, PageId)> + '_ {
        self.occupied()
            .take_while(|(slot, _)| slot.0 < self.capacity)
    }

    /// Slots that hold a page, those of the reserve included, in slot order. O(slots).
    pub fn occupied(&self) -> impl Iterator<Item = (SlotId, PageId)> + '_ {
        let ids = (0..self.slots.len() as u32).map(SlotId);
        ids.filter_map(|slot| self.page(slot).map(|page| (slot, page)))
    }

    /// Resident slots of pages `first..=last` of `object`, in page order. O(pages asked for) or
    /// O(its resident pages), whichever is less.
    #[must_use]
    pub fn in_range(&self, object: ObjectId, first: u64, last: u64) -> Vec<SlotId> {
        assert!(first <= last, "a range has a first page");
        if last - first < u64::from(self.objects.count(object)) {
            let pages = (first..=last).map(|index| PageId { object, index });
            return pages.filter_map(|page| self.find(page)).collect();
        }
        let index = |id: u32| self.slots[id as usize].page.index;
        let inside = |id: &u32| (first..=last).contains(&index(*id));
        let mut found: Vec<u32> = self.objects.of(object).filter(inside).collect();
        found.sort_unstable_by_key(|id| index(*id));
        found.into_iter().map(SlotId).collect()
    }

    /// Gives `page`, which has no slot, a free policy slot in state staged, clean. `None` when
    /// there is none.
    pub fn admit(&mut self, page: PageId) -> Option<SlotId> {
        let slot = SlotId(self.free.pop()?);
        self.occupy(slot, page);
        Some(slot)
    }

    /// Gives `page`, which has no slot, a free reserve slot in state staged, dirty.
    pub fn admit_reserve(&mut self, page: PageId) -> Option<SlotId> {
        let slot = SlotId(self.free_reserve.pop()?);
        self.occupy(slot, page);
        self.set_dirty(slot, true);
        Some(slot)
    }

    fn occupy(&mut self, slot: SlotId, page: PageId) {
        assert!(self.find(page).is_none(), "a page has at most one slot");
        let s = &mut self.slots[slot.at()];
        assert!(s.state == SlotState::Free && s.pins == 0, "invariant 4");
        assert!(!s.writing, "invariant 3: a draining slot is not given out");
        assert!(s.block == NO_BLOCK && !s.dirty, "invariant 5");
        s.page = page;
        s.state = SlotState::Staged;
        s.generation = s.generation.wrapping_add(1);
        self.resident += u32::from(slot.0 < self.capacity);
        self.objects.insert(page.object, slot.0);
        self.enter_map(slot, page);
    }

    fn enter_map(&mut self, slot: SlotId, page: PageId) {
        let slots = &self.slots;
        let rehash = |&i: &u32| hash::of_page(slots[i as usize].page);
        self.map.insert_unique(hash::of_page(page), slot.0, rehash);
    }

    fn leave_map(&mut self, slot: SlotId, page: PageId) {
        let entry = self.map.find_entry(hash::of_page(page), |&i| i == slot.0);
        assert!(entry.is_ok(), "a resident page is in the map");
        if let Ok(entry) = entry {
            entry.remove();
        }
    }

    /// Moves the valid, evictable page in `from` to a slot of the other kind: a dirty page from a
    /// policy slot to the reserve, or back. `None` when there is no free slot there.
    pub fn transfer(&mut self, from: SlotId) -> Option<SlotId> {
        assert!(self.evictable(from) && self.state(from) == SlotState::Valid);
        assert!(self.is_dirty(from), "invariant 7");
        let free = match self.is_policy(from) {
            true => &mut self.free_reserve,
            false => &mut self.free,
        };
        let to = SlotId(free.pop()?);
        let block = self.slots[from.at()].block;
        let page = self.remove(from);
        self.occupy(to, page);
        self.slots[to.at()].set_valid(BlockId(block));
        self.set_dirty(to, true);
        Some(to)
    }

    /// Puts `page`, whose valid bytes are in `block`, into a free policy slot, or into the reserve
    /// when it is dirty and there is none: a warm restart.
    pub fn restore(&mut self, page: PageId, block: BlockId, dirty: bool) -> Option<SlotId> {
        if self.find(page).is_some() {
            return None;
        }
        let slot = match self.admit(page) {
            None if dirty => self.admit_reserve(page)?,
            slot => slot?,
        };
        self.slots[slot.at()].set_valid(block);
        self.set_dirty(slot, dirty);
        Some(slot)
    }

    /// New bytes for the page in `slot` are in the write buffer; `dirty`: base has them not.
    pub fn restage(&mut self, slot: SlotId, dirty: bool) {
        let s = &mut self.slots[slot.at()];
        assert!(s.is_resident());
        assert_eq!(s.pins, 0, "a page is not rewritten under its readers");
        s.state = SlotState::Staged;
        s.generation = s.generation.wrapping_add(1);
        self.set_dirty(slot, dirty);
    }

    /// A write of the staged bytes starts.
    pub fn start_write(&mut self, slot: SlotId) {
        let s = &mut self.slots[slot.at()];
        assert!(s.state == SlotState::Staged && !s.writing);
        s.writing = true;
    }

    /// The write of `generation` ended, well when there is a `block` that now holds its bytes.
    /// Says what became of the slot: valid when those were the newest bytes, still staged when
    /// they were not, free when the page had left. [`Written::old`] is the block it had before.
    pub fn end_write(&mut self, slot: SlotId, generation: u32, block: Option<BlockId>) -> Written {
        let s = &mut self.slots[slot.at()];
        assert!(s.writing, "a write ends once");
        s.writing = false;
        let mut old = None;
        match s.state {
            SlotState::Draining => {
                s.state = SlotState::Free;
                self.draining -= 1;
                self.put_free(slot);
            }
            // Bytes that are no longer the newest are not worth a block.
            SlotState::Staged => {
                if let Some(block) = block.filter(|_| s.generation == generation) {
                    old = s.set_valid(block);
                }
            }
            SlotState::Free | SlotState::Valid => {
                panic!("invariant 3: only staged and draining slots are written")
            }
        }
        let state = self.slots[slot.at()].state;
        Written { state, old }
    }

    /// As [`SlotTable::end_write`], of a write that went well and whose block the map names
    /// already: a slot that is still staged keeps it, with an older version of its page.
    pub fn end_named_write(&mut self, slot: SlotId, generation: u32, block: BlockId) -> Written {
        let mut written = self.end_write(slot, generation, Some(block));
        if written.state == SlotState::Staged {
            let s = &mut self.slots[slot.at()];
            written.old = s.set_valid(block);
            s.state = SlotState::Staged;
        }
        written
    }

    fn put_free(&mut self, slot: SlotId) {
        match slot.0 < self.capacity {
            true => self.free.push(slot.0),
            false => self.free_reserve.push(slot.0),
        }
    }

    /// Takes the page out of `slot`; the caller has taken note of its block.
    pub fn remove(&mut self, slot: SlotId) -> PageId {
        let s = self.slots[slot.at()];
        assert!(s.is_resident());
        assert_eq!(s.pins, 0, "a page does not leave under its readers");
        self.set_dirty(slot, false);
        self.leave_map(slot, s.page);
        self.objects.remove(s.page.object, slot.0);
        self.resident -= u32::from(slot.0 < self.capacity);
        self.slots[slot.at()].block = NO_BLOCK;
        if s.writing {
            self.slots[slot.at()].state = SlotState::Draining;
            self.draining += 1;
        } else {
            self.slots[slot.at()].state = SlotState::Free;
            self.put_free(slot);
        }
        s.page
    }

    /// A reader of the valid `slot` starts.
    pub fn pin(&mut self, slot: SlotId) {
        let s = &mut self.slots[slot.at()];
        assert_eq!(s.state, SlotState::Valid, "invariant 2");
        assert!(s.pins < u16::MAX, "readers are counted");
        s.pins += 1;
        self.pinned += 1;
    }

    /// A reader of `slot` ends.
    pub fn unpin(&mut self, slot: SlotId) {
        let s = &mut self.slots[slot.at()];
        assert!(s.pins > 0, "an unpin follows a pin");
        s.pins -= 1;
        self.pinned -= 1;
    }

    /// Readers of all slots.
    #[must_use]
    pub fn pinned(&self) -> u32 {
        self.pinned
    }

    /// The same pages, none of which is being read or written, in a table of another size; there
    /// must be room for them. Slots get other numbers, and whoever knows one by its generation
    /// does not know it any more.
    #[must_use]
    pub fn reshaped(&self, capacity: u32, reserve: u32) -> Self {
        assert!(
            self.pinned == 0 && self.draining == 0,
            "slots have no users"
        );
        let mut new = Self::with_reserve(capacity, reserve);
        let newest = self.slots.iter().map(|s| s.generation).max();
        for slot in &mut new.slots {
            slot.generation = newest.unwrap_or(0);
        }
        for (slot, page) in self.occupied() {
            let to = match self.is_policy(slot) {
                true => new.admit(page),
                false => new.admit_reserve(page),
            };
            assert!(to.is_some(), "there is room for every page");
            assert_eq!(self.state(slot), SlotState::Valid);
            if let Some(to) = to {
                new.slots[to.at()].set_valid(BlockId(self.slots[slot.at()].block));
                new.set_dirty(to, self.is_dirty(slot));
            }
        }
        new
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
            + self.objects.bytes()
            + (self.free.capacity() + self.free_reserve.capacity()) * 4
            + self.dirty() as usize * 40
    }

    /// Panics unless the numbered invariants of the module text hold. O(slots), with one bit a
    /// block for memory.
    pub fn assert_invariants(&self) {
        let mut counts = [0u32; 4];
        let mut pins = 0u32;
        for (id, s) in self.slots.iter().enumerate() {
            let id = SlotId(id as u32);
            counts[s.state as usize] += 1;
            pins += u32::from(s.pins);
            if s.is_resident() {
                assert_eq!(self.find(s.page), Some(id), "invariant 1");
                assert!(s.dirty || self.is_policy(id), "invariant 7");
            }
            assert!(s.pins == 0 || s.state == SlotState::Valid, "invariant 2");
            let may_be_written = matches!(s.state, SlotState::Staged | SlotState::Draining);
            assert!(!s.writing || may_be_written, "invariant 3");
            assert!(s.writing || s.state != SlotState::Draining, "invariant 3");
            let has_block = s.block != NO_BLOCK;
            assert!(has_block || s.state != SlotState::Valid, "invariant 5");
            assert!(!has_block || s.is_resident(), "invariant 5");
        }
        assert_eq!(pins, self.pinned, "readers are counted");
        let [free, staged, valid, draining] = counts;
        let held = staged + valid;
        assert_eq!(held as usize, self.map.len(), "invariant 1");
        assert_eq!(self.resident + self.reserved(), held, "invariant 1");
        assert_eq!(free as usize, self.listed_free(), "invariant 4");
        assert_eq!(draining, self.draining, "invariant 4");
        assert_eq!(self.objects.len(), held, "invariant 8");
        self.objects
            .assert_invariants(|object, id| self.page_object(id) == Some(object));
        self.assert_dirty();
        self.assert_blocks_differ();
    }

    /// The free slots that are listed; each is in the list of its kind.
    fn listed_free(&self) -> usize {
        let free = |id: &u32| self.slots[*id as usize].state == SlotState::Free;
        let policy = |id: &&u32| **id < self.capacity && free(id);
        let reserve = |id: &&u32| **id >= self.capacity && free(id);
        let (of_policy, of_reserve) = (
            self.free.iter().filter(policy).count(),
            self.free_reserve.iter().filter(reserve).count(),
        );
        assert_eq!(of_policy, self.free.len(), "invariant 4");
        assert_eq!(of_reserve, self.free_reserve.len(), "invariant 4");
        of_policy + of_reserve
    }

    fn page_object(&self, id: u32) -> Option<ObjectId> {
        self.page(SlotId(id)).map(|page| page.object)
    }

    fn assert_dirty(&self) {
        let kinds = [(&self.dirty_policy, true), (&self.dirty_reserve, false)];
        for (pages, policy) in kinds {
            for (page, slot) in pages {
                let s = &self.slots[slot.at()];
                assert!(s.dirty && s.page == *page, "invariant 6: {page:?}");
                assert_eq!(self.is_policy(*slot), policy, "invariant 6: {page:?}");
            }
        }
        let dirty = self.slots.iter().filter(|s| s.dirty).count();
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
