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
//! Slots are of three kinds ([`Area`]): *policy slots*, `0..capacity`, which tier policies decide
//! about; above them *kept slots*, for pages of pinned objects, which no policy knows; and *reserve
//! slots*, which hold dirty pages that no policy knows (write-back only).
//!
//! # Invariants (checked by [`SlotTable::assert_invariants`])
//! 1. A page is in at most one slot; the map holds exactly the staged and valid slots.
//! 2. Only valid slots are pinned.
//! 3. Only staged and draining slots are being written; a draining slot always is.
//! 4. Free slots are exactly the three free lists; free + draining + resident = all slots.
//! 5. A valid slot has a block, a free or draining one has none; no two slots share a block.
//! 6. `dirty_reserve` holds exactly the pages of dirty reserve slots, `dirty_policy` those of the
//!    others.
//! 7. Reserve slots that hold a page are dirty.
//! 8. `extents` counts the pages of staged and valid slots.
//! 9. `busy` has exactly the staged, draining and pinned slots.
//!
//! Memory: 18 bytes a slot, 6 for the map, less than one for the extents as a rule, plus about 45 a
//! dirty page.

mod bulk;
mod check;
mod extents;
mod heat;
mod lines;
mod slot;

pub(crate) use bulk::Bulk;
pub use heat::HeatCounts;

use crate::hash;
use crate::page::{BlockId, ObjectId, PageId, SlotId};
use extents::Extents;
use lines::Lines;
use slot::{Busy, BusySlots, NO_BLOCK, Slot};
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

/// Kinds of slots; see the module text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Area {
    /// What tier policies decide about.
    Policy,
    /// Pages of pinned objects.
    Kept,
    /// Dirty pages that have no other place.
    Reserve,
}

/// What became of a slot whose write ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Written {
    /// Its state now.
    pub state: SlotState,
    /// The block its page had before, now of no use.
    pub old: Option<BlockId>,
}

/// A page that is newer on flash than on base.
#[derive(Clone, Copy, Debug)]
struct Dirty {
    slot: SlotId,
    /// Of its newest bytes.
    generation: u32,
}

/// All slots of a tier and the map from page to slot.
#[derive(Debug, Clone)]
pub struct SlotTable {
    slots: Vec<Slot>,
    /// Reads lately, by slot; see `heat.rs`.
    heat: Vec<u8>,
    capacity: u32,
    /// Number of kept slots.
    keeps: u32,
    map: Lines,
    extents: Extents,
    busy: BusySlots,
    /// Contents counted so far; 0 for none.
    generation: u32,
    free: Free,
    free_kept: Free,
    free_reserve: Free,
    draining: u32,
    resident: u32,
    kept: u32,
    /// Readers of all slots.
    pinned: u32,
    dirty_policy: BTreeMap<PageId, Dirty>,
    dirty_reserve: BTreeMap<PageId, Dirty>,
}

/// Free slots of one kind, chained one to the next.
#[derive(Clone, Copy, Debug)]
struct Free {
    first: u32,
    len: u32,
}

impl Free {
    /// The slots `from..to`, all free.
    fn all(from: u32, to: u32) -> Self {
        let first = if from < to { from } else { NO_BLOCK };
        let len = to - from;
        Self { first, len }
    }

    fn pop(&mut self, slots: &[Slot]) -> Option<SlotId> {
        let slot = (self.first != NO_BLOCK).then_some(SlotId(self.first))?;
        self.first = slots[slot.at()].next_free();
        self.len -= 1;
        Some(slot)
    }

    fn push(&mut self, slots: &mut [Slot], slot: SlotId) {
        slots[slot.at()] = Slot::free(self.first);
        self.first = slot.0;
        self.len += 1;
    }
}

impl SlotTable {
    /// A table of `capacity` free policy slots, handed out in order from slot 0, and no reserve.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        Self::with_areas(capacity, 0, 0)
    }

    /// A table of `capacity` free policy slots and `reserve` reserve slots.
    #[must_use]
    pub fn with_reserve(capacity: u32, reserve: u32) -> Self {
        Self::with_areas(capacity, 0, reserve)
    }

    /// A table of `capacity` free policy slots, `keeps` kept ones and `reserve` reserve slots.
    #[must_use]
    pub fn with_areas(capacity: u32, keeps: u32, reserve: u32) -> Self {
        let decided = capacity.saturating_add(keeps);
        let all = decided.saturating_add(reserve);
        assert!(all < NO_BLOCK, "slots have numbers");
        let last = |slot: u32| [capacity, decided, all].contains(&(slot + 1));
        let next = |slot: u32| if last(slot) { NO_BLOCK } else { slot + 1 };
        Self {
            slots: (0..all).map(|slot| Slot::free(next(slot))).collect(),
            heat: vec![0; all as usize],
            capacity,
            keeps,
            map: Lines::new(all),
            extents: Extents::default(),
            busy: BusySlots::default(),
            generation: 0,
            free: Free::all(0, capacity),
            free_kept: Free::all(capacity, decided),
            free_reserve: Free::all(decided, all),
            draining: 0,
            resident: 0,
            kept: 0,
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
        self.slots.len() as u32 - self.capacity - self.keeps
    }

    /// Number of kept slots.
    #[must_use]
    pub fn keeps(&self) -> u32 {
        self.keeps
    }

    /// Number of kept slots that hold a page.
    #[must_use]
    pub fn kept(&self) -> u32 {
        self.kept
    }

    /// Whether a kept slot is free.
    #[must_use]
    pub fn has_kept_room(&self) -> bool {
        self.free_kept.len > 0
    }

    /// Whether a reserve slot is free.
    #[must_use]
    pub fn has_reserve_room(&self) -> bool {
        self.free_reserve.len > 0
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

    /// Number of dirty pages that are not in the reserve.
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

    /// Which kind of slot it is.
    #[must_use]
    pub fn area(&self, slot: SlotId) -> Area {
        match slot.0 {
            at if at < self.capacity => Area::Policy,
            at if at < self.capacity + self.keeps => Area::Kept,
            _ => Area::Reserve,
        }
    }

    /// Whether `slot` is for dirty pages that have no other place.
    #[must_use]
    pub fn is_reserve(&self, slot: SlotId) -> bool {
        self.area(slot) == Area::Reserve
    }

    /// Whether the page in `slot` is newer than base.
    #[must_use]
    pub fn is_dirty(&self, slot: SlotId) -> bool {
        self.slots[slot.at()].is_dirty()
    }

    /// The block that holds the valid bytes of `slot`; of a staged one, those before.
    #[must_use]
    pub fn block(&self, slot: SlotId) -> Option<BlockId> {
        self.slots[slot.at()].block()
    }

    /// Number of slots that hold a page of `object`, those of the reserve included. O(parts of it,
    /// 1024 pages long, that have some).
    #[must_use]
    pub fn resident_of(&self, object: ObjectId) -> u32 {
        self.extents.count(object)
    }

    /// Dirty pages from `from` on in base order, then those before it: of the reserve, or the
    /// others.
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
        both.map(|(page, dirty)| (*page, dirty.slot))
    }

    /// Dirty pages `first..=last` of `object`, in order.
    pub fn dirty_in(&self, object: ObjectId, first: u64, last: u64) -> Vec<(PageId, SlotId)> {
        let range = PageId::new(object, first)..=PageId::new(object, last);
        let both = [&self.dirty_policy, &self.dirty_reserve];
        let pages = both.into_iter().flat_map(|of| of.range(range.clone()));
        let mut pages: Vec<_> = pages.map(|(page, dirty)| (*page, dirty.slot)).collect();
        pages.sort_unstable();
        pages
    }

    fn dirty_index(&mut self, slot: SlotId) -> &mut BTreeMap<PageId, Dirty> {
        match self.is_reserve(slot) {
            false => &mut self.dirty_policy,
            true => &mut self.dirty_reserve,
        }
    }

    /// The newest bytes of the page in `slot` are dirty, or not.
    fn set_dirty(&mut self, slot: SlotId, dirty: bool) {
        if self.is_dirty(slot) == dirty {
            return;
        }
        let staged = self.busy_of(slot).map(|busy| busy.generation);
        self.slots[slot.at()].set_dirty(dirty);
        let page = self.slots[slot.at()].page();
        if dirty {
            let generation = staged.unwrap_or_else(|| self.next_generation());
            let entry = Dirty { slot, generation };
            self.dirty_index(slot).insert(page, entry);
        } else {
            self.dirty_index(slot).remove(&page);
        }
    }

    /// The page in `slot`, which is not of the reserve, is now also on base.
    pub fn set_clean(&mut self, slot: SlotId) {
        assert!(!self.is_reserve(slot), "a reserve slot is emptied instead");
        self.set_dirty(slot, false);
    }

    /// Number of free policy slots.
    #[must_use]
    pub fn room(&self) -> u32 {
        self.free.len
    }

    /// Whether a page can come in without another leaving.
    #[must_use]
    pub fn has_room(&self) -> bool {
        self.free.len > 0
    }

    /// The slot of `page`.
    #[must_use]
    pub fn find(&self, page: PageId) -> Option<SlotId> {
        let is = |id: u32| self.slots[id as usize].page() == page;
        self.map.find(hash::of_page(page), is).map(SlotId)
    }

    /// The page in `slot`.
    #[must_use]
    pub fn page(&self, slot: SlotId) -> Option<PageId> {
        let s = &self.slots[slot.at()];
        s.is_resident().then(|| s.page())
    }

    /// The state of `slot`.
    #[must_use]
    pub fn state(&self, slot: SlotId) -> SlotState {
        self.slots[slot.at()].state()
    }

    /// Which of all contents those of the dirty or staged `slot` are; 0 for others, which nobody
    /// writes.
    #[must_use]
    pub fn generation(&self, slot: SlotId) -> u32 {
        let s = &self.slots[slot.at()];
        if s.is_dirty() {
            let dirty = match self.is_reserve(slot) {
                false => &self.dirty_policy,
                true => &self.dirty_reserve,
            };
            return dirty.get(&s.page()).map_or(0, |dirty| dirty.generation);
        }
        self.busy_of(slot).map_or(0, |busy| busy.generation)
    }

    fn busy_of(&self, slot: SlotId) -> Option<&Busy> {
        let busy = self.slots[slot.at()].is_busy();
        busy.then(|| self.busy.get(slot))?
    }

    /// What is known of `slot`, which is busy from now on.
    fn make_busy(&mut self, slot: SlotId) -> &mut Busy {
        self.slots[slot.at()].set_busy(true);
        self.busy.entry(slot)
    }

    fn end_busy(&mut self, slot: SlotId) {
        self.slots[slot.at()].set_busy(false);
        self.busy.remove(slot);
    }

    /// Another number than any before.
    fn next_generation(&mut self) -> u32 {
        self.generation = self.generation.wrapping_add(1).max(1);
        self.generation
    }

    /// Whether a write to `slot` is under way.
    #[must_use]
    pub fn is_writing(&self, slot: SlotId) -> bool {
        self.busy_of(slot).is_some_and(|busy| busy.writing)
    }

    /// Whether the page in `slot` may be replaced now: nobody reads it, no write to it is under
    /// way, and no bytes wait in DRAM that are nowhere else.
    #[must_use]
    pub fn evictable(&self, slot: SlotId) -> bool {
        let s = &self.slots[slot.at()];
        assert!(s.is_resident());
        let (staged, used) = (s.state() == SlotState::Staged, s.is_busy());
        // A busy slot that is neither being written nor staged is pinned.
        !used || (staged && !s.is_dirty() && !self.is_writing(slot))
    }

    /// Policy slots that hold a page, with it, in slot order. O(capacity).
    pub fn residents(&self) -> impl Iterator<Item = (SlotId, PageId)> + '_ {
        self.occupied()
            .take_while(|(slot, _)| slot.0 < self.capacity)
    }

    /// Slots of every kind that hold a page, in slot order. O(slots).
    pub fn occupied(&self) -> impl Iterator<Item = (SlotId, PageId)> + '_ {
        let ids = (0..self.slots.len() as u32).map(SlotId);
        ids.filter_map(|slot| self.page(slot).map(|page| (slot, page)))
    }

    /// Resident slots of pages `first..=last` of `object`, in page order. O(pages asked for), or
    /// O(pages of the parts of it, 1024 long, that have some), whichever is less.
    #[must_use]
    pub fn in_range(&self, object: ObjectId, first: u64, last: u64) -> Vec<SlotId> {
        assert!(first <= last, "a range has a first page");
        let mut found = Vec::new();
        for (pages, most) in self.extents.runs(object, first, last) {
            let pages = pages.map(|index| PageId { object, index });
            found.extend(pages.filter_map(|page| self.find(page)).take(most as usize));
        }
        found
    }

    /// Gives `page`, which has no slot, a free policy slot in state staged, clean. `None` when
    /// there is none.
    pub fn admit(&mut self, page: PageId) -> Option<SlotId> {
        let slot = self.free.pop(&self.slots)?;
        self.occupy(slot, page);
        self.stage(slot);
        Some(slot)
    }

    /// The same with a free kept slot.
    pub fn admit_kept(&mut self, page: PageId) -> Option<SlotId> {
        let slot = self.free_kept.pop(&self.slots)?;
        self.occupy(slot, page);
        self.stage(slot);
        Some(slot)
    }

    /// Gives `page`, which has no slot, a free reserve slot in state staged, dirty.
    pub fn admit_reserve(&mut self, page: PageId) -> Option<SlotId> {
        let slot = self.free_reserve.pop(&self.slots)?;
        self.occupy(slot, page);
        self.stage(slot);
        self.set_dirty(slot, true);
        Some(slot)
    }

    /// `page` is in the free `slot`, which is in no chain any more.
    fn occupy(&mut self, slot: SlotId, page: PageId) {
        self.hold(slot, page);
        self.extents.insert(page);
    }

    /// The same, but the extents do not count it yet.
    fn hold(&mut self, slot: SlotId, page: PageId) {
        let hash = hash::of_page(page);
        assert!(self.find(page).is_none(), "a page has at most one slot");
        let s = &mut self.slots[slot.at()];
        assert_eq!(s.state(), SlotState::Free, "invariants 3 and 4");
        assert!(!s.is_busy() && !s.is_dirty(), "invariants 6 and 9");
        *s = Slot::holding(page, SlotState::Staged);
        self.count(slot, 1);
        self.map.insert(hash, slot.0);
    }

    /// A page came to `slot`, or left it. Those of the reserve are counted as dirty ones.
    fn count(&mut self, slot: SlotId, by: i32) {
        let count = match self.area(slot) {
            Area::Policy => &mut self.resident,
            Area::Kept => &mut self.kept,
            Area::Reserve => return,
        };
        let counted = count.checked_add_signed(by);
        assert!(counted.is_some(), "pages that come and go are counted");
        *count = counted.unwrap_or(*count);
    }

    /// New bytes of the page in `slot` are in the write buffer.
    fn stage(&mut self, slot: SlotId) {
        self.slots[slot.at()].set_state(SlotState::Staged);
        let generation = self.next_generation();
        self.make_busy(slot).generation = generation;
        if self.is_dirty(slot) {
            let page = self.slots[slot.at()].page();
            let entry = Dirty { slot, generation };
            self.dirty_index(slot).insert(page, entry);
        }
    }

    /// Moves the valid, evictable page in `from` to a slot of the other kind: a dirty page from a
    /// policy slot to the reserve, or back. `None` when there is no free slot there.
    pub fn transfer(&mut self, from: SlotId) -> Option<SlotId> {
        assert_ne!(self.area(from), Area::Kept, "what is kept stays");
        assert!(self.evictable(from) && self.state(from) == SlotState::Valid);
        assert!(self.is_dirty(from), "invariant 7");
        let block = self.block(from)?;
        let free = match self.is_policy(from) {
            true => &mut self.free_reserve,
            false => &mut self.free,
        };
        let to = free.pop(&self.slots)?;
        let heat = self.heat(from);
        let page = self.remove(from);
        self.settle(to, page, block, true);
        self.heat[to.at()] = heat;
        Some(to)
    }

    /// Puts `page`, whose valid bytes are in `block`, into a free slot: a kept one if `keep`, else
    /// one of the policy's, else any when it is dirty. A warm restart.
    pub fn restore(
        &mut self,
        page: PageId,
        block: BlockId,
        dirty: bool,
        keep: bool,
    ) -> Option<SlotId> {
        if self.find(page).is_some() {
            return None;
        }
        let slot = self.pop_to_restore(dirty, keep)?;
        self.settle(slot, page, block, dirty);
        Some(slot)
    }

    fn pop_to_restore(&mut self, dirty: bool, keep: bool) -> Option<SlotId> {
        let kept = keep.then(|| self.free_kept.pop(&self.slots)).flatten();
        let slot = kept.or_else(|| self.free.pop(&self.slots));
        if slot.is_some() || !dirty {
            return slot;
        }
        let reserve = self.free_reserve.pop(&self.slots);
        reserve.or_else(|| self.free_kept.pop(&self.slots))
    }

    /// `page`, whose valid bytes are in `block`, is in the free `slot`.
    fn settle(&mut self, slot: SlotId, page: PageId, block: BlockId, dirty: bool) {
        self.occupy(slot, page);
        self.slots[slot.at()].set_valid(block);
        self.set_dirty(slot, dirty);
    }

    /// New bytes for the page in `slot` are in the write buffer; `dirty`: base has them not.
    pub fn restage(&mut self, slot: SlotId, dirty: bool) {
        assert!(self.slots[slot.at()].is_resident());
        assert_eq!(
            self.pins(slot),
            0,
            "a page is not rewritten under its readers"
        );
        self.set_dirty(slot, dirty);
        self.stage(slot);
    }

    /// A write of the staged bytes starts.
    pub fn start_write(&mut self, slot: SlotId) {
        assert!(self.state(slot) == SlotState::Staged && !self.is_writing(slot));
        self.make_busy(slot).writing = true;
    }

    /// The write of `generation` ended, well when there is a `block` that now holds its bytes.
    /// Says what became of the slot: valid when those were the newest bytes, still staged when
    /// they were not, free when the page had left. [`Written::old`] is the block it had before.
    pub fn end_write(&mut self, slot: SlotId, generation: u32, block: Option<BlockId>) -> Written {
        assert!(self.is_writing(slot), "a write ends once");
        let newest = self.generation(slot) == generation;
        self.make_busy(slot).writing = false;
        let mut old = None;
        match self.state(slot) {
            SlotState::Draining => {
                self.draining -= 1;
                self.end_busy(slot);
                self.put_free(slot);
            }
            // Bytes that are no longer the newest are not worth a block.
            SlotState::Staged => {
                if let Some(block) = block.filter(|_| newest) {
                    old = self.slots[slot.at()].set_valid(block);
                    self.end_busy(slot);
                }
            }
            SlotState::Free | SlotState::Valid => {
                panic!("invariant 3: only staged and draining slots are written")
            }
        }
        let state = self.state(slot);
        Written { state, old }
    }

    /// As [`SlotTable::end_write`], of a write that went well and whose block the map names
    /// already: a slot that is still staged keeps it, with an older version of its page.
    pub fn end_named_write(&mut self, slot: SlotId, generation: u32, block: BlockId) -> Written {
        let mut written = self.end_write(slot, generation, Some(block));
        if written.state == SlotState::Staged {
            let s = &mut self.slots[slot.at()];
            written.old = s.set_valid(block);
            s.set_state(SlotState::Staged);
        }
        written
    }

    fn put_free(&mut self, slot: SlotId) {
        let free = match self.area(slot) {
            Area::Policy => &mut self.free,
            Area::Kept => &mut self.free_kept,
            Area::Reserve => &mut self.free_reserve,
        };
        free.push(&mut self.slots, slot);
    }

    /// Takes the page out of `slot`; the caller has taken note of its block.
    pub fn remove(&mut self, slot: SlotId) -> PageId {
        let s = self.slots[slot.at()];
        let page = s.page();
        assert!(s.is_resident());
        assert_eq!(
            self.pins(slot),
            0,
            "a page does not leave under its readers"
        );
        self.set_dirty(slot, false);
        self.map.remove(hash::of_page(page), slot.0);
        self.extents.remove(page);
        self.count(slot, -1);
        self.heat[slot.at()] = 0;
        if self.is_writing(slot) {
            self.slots[slot.at()].forget_block();
            self.slots[slot.at()].set_state(SlotState::Draining);
            self.draining += 1;
            return page;
        }
        if s.is_busy() {
            self.end_busy(slot);
        }
        self.put_free(slot);
        page
    }

    /// A reader of the valid `slot` starts.
    pub fn pin(&mut self, slot: SlotId) {
        assert_eq!(self.state(slot), SlotState::Valid, "invariant 2");
        let busy = self.make_busy(slot);
        assert!(busy.pins < u16::MAX, "readers are counted");
        busy.pins += 1;
        self.pinned += 1;
    }

    /// A reader of `slot` ends.
    pub fn unpin(&mut self, slot: SlotId) {
        assert!(self.pins(slot) > 0, "an unpin follows a pin");
        let busy = self.make_busy(slot);
        busy.pins -= 1;
        if busy.pins == 0 {
            self.end_busy(slot);
        }
        self.pinned -= 1;
    }

    /// Readers of all slots.
    #[must_use]
    pub fn pinned(&self) -> u32 {
        self.pinned
    }

    /// The same pages, none of which is being read or written, in a table of another size; there
    /// must be room for them. Pages of the objects that `keep` names go to kept slots while there
    /// are any; so do dirty ones that find no other place, as the reserve is for those that were
    /// there. Slots get other numbers, and whoever knows one by its generation does not know it any
    /// more.
    #[must_use]
    pub fn reshaped(
        &self,
        (capacity, keeps, reserve): (u32, u32, u32),
        keep: impl Fn(ObjectId) -> bool,
    ) -> Self {
        assert!(
            self.pinned == 0 && self.draining == 0,
            "slots have no users"
        );
        let mut new = Self::with_areas(capacity, keeps, reserve);
        new.generation = self.generation;
        for (slot, page) in self.occupied() {
            let keep = keep(page.object);
            let to = match self.is_reserve(slot) && !(keep && new.has_kept_room()) {
                true => new.free_reserve.pop(&new.slots),
                false => {
                    let keep = keep || (self.is_dirty(slot) && !new.has_room());
                    new.pop_to_restore(false, keep)
                }
            };
            assert!(to.is_some(), "there is room for every page");
            assert_eq!(self.state(slot), SlotState::Valid);
            if let (Some(to), Some(block)) = (to, self.block(slot)) {
                new.settle(to, page, block, self.is_dirty(slot));
            }
        }
        new
    }

    /// Readers of `slot`.
    #[must_use]
    pub fn pins(&self, slot: SlotId) -> u16 {
        self.busy_of(slot).map_or(0, |busy| busy.pins)
    }

    /// Bytes of memory held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.slots.capacity() * size_of::<Slot>()
            + self.heat.capacity()
            + self.map.bytes()
            + self.extents.bytes()
            + self.busy.bytes()
            + self.dirty() as usize * 45
    }
}
