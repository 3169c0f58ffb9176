//! The coldest pages on flash, a block of slots at a time (TAC §3.2, last paragraph).
//!
//! Slots `k·B .. (k+1)·B` are block k. Pages are replaced block by block: the coldest block is
//! *opened*, newcomers take its slots in order, one after the other, and no other block is touched
//! before its end. So what is overwritten together lies together, and leaves together later.
//!
//! A block is as warm as its pages on average. Averages are kept in a heap and may be stale; at
//! most a few are looked at again before a block is taken for the coldest, as with pages (§3.3).
//! The average of the open block stays what it was: all newcomers replace the *block*.
//!
//! # States of a block
//! ```text
//!               first page replaced             its end reached, or nothing evictable left
//!   closed ----------------------------> open ------------------------------------> closed
//!            (the coldest; in the heap)        (no other; not in the heap)  (looked at again)
//! ```
//!
//! # Where this differs from the paper
//! - *Gathering*: the paper gathers newcomers in memory and writes them as one block, at which the
//!   old block leaves as a whole. Here a newcomer goes to the write buffer at once and old pages
//!   leave one by one: each is on flash, and can hit, a little longer. After every B admissions
//!   the slots hold the same.
//! - *Temperature of a block*: the paper does not say; the average.
//! - *Stale copies*: in the paper the place of a page that was written again is lost until its
//!   block is replaced. Here the page keeps its slot; that its bytes go to another place on the
//!   device, and its old bytes are void, is the tier's affair for every policy.
//! - *Slots that become free in between* (trims, failures) are filled first, wherever they are.
//! - *A page in use* when its block is replaced stays.
//!
//! # Invariants (checked by [`Blocks::assert_invariants`])
//! 1. The heap holds every block but the open one.
//! 2. The open block has a slot left to replace.
//!
//! 9 bytes a block; O(B) for each block looked at: O(refreshes + log blocks) an admission.

use super::regions::Regions;
use crate::heap::IndexedHeap;
use crate::page::SlotId;
use crate::tier::SlotTable;

/// Blocks tried before an admission is refused because all their pages are pinned.
const PINNED_MAX: usize = 16;
/// Blocks looked at again in one decision because they were filled.
const SETTLED_MAX: usize = 8;

/// The block that is being replaced.
#[derive(Clone, Copy, Debug)]
struct Open {
    block: u32,
    /// The first slot not yet replaced.
    next: u32,
    /// How warm the block was when it was opened.
    heat: f64,
}

/// See the module text.
#[derive(Debug)]
pub(super) struct Blocks {
    heap: IndexedHeap,
    block_pages: u32,
    capacity: u32,
    refreshes: u32,
    open: Option<Open>,
    /// Blocks that were filled and have not been looked at since.
    filled: Vec<u32>,
    /// Candidates set aside while a victim is looked for; kept to allocate once.
    set_aside: Vec<(f64, u32)>,
    opened: u64,
}

impl Blocks {
    pub(super) fn new(capacity: u32, block_pages: u32, refreshes: u32) -> Self {
        assert!(block_pages > 0, "a block has pages");
        let blocks = capacity.div_ceil(block_pages);
        let mut heap = IndexedHeap::new(blocks);
        for block in 0..blocks {
            heap.insert(block, 0.0);
        }
        Self {
            heap,
            block_pages,
            capacity,
            refreshes,
            open: None,
            filled: Vec::new(),
            set_aside: Vec::with_capacity(PINNED_MAX),
            opened: 0,
        }
    }

    /// Blocks opened so far.
    pub(super) fn opened(&self) -> u64 {
        self.opened
    }

    pub(super) fn insert(&mut self, slot: SlotId) {
        let block = self.block_of(slot);
        if slot.0 + 1 == self.end(block) {
            self.filled.push(block);
        }
    }

    /// A page was replaced, or left in another way.
    pub(super) fn remove(&mut self, slot: SlotId, evicted: bool) {
        if !evicted {
            return;
        }
        let block = self.block_of(slot);
        if self.open.is_none() {
            let key = self.heap.remove(block);
            debug_assert!(key.is_some(), "invariant 1");
            self.opened += 1;
            self.open = Some(Open {
                block,
                next: slot.0,
                heat: key.unwrap_or(0.0),
            });
        }
        let end = self.end(block);
        let Some(open) = self.open.as_mut() else {
            return;
        };
        // Evicted for another reason than a newcomer, as when the tier shrinks.
        if open.block != block || slot.0 < open.next {
            return;
        }
        open.next = slot.0 + 1;
        if open.next == end {
            self.close();
        }
    }

    /// The unit of heat changed.
    pub(super) fn scale(&mut self, factor: f64) {
        self.heap.scale_keys(factor);
        if let Some(open) = &mut self.open {
            open.heat *= factor;
        }
    }

    /// Looks at blocks that were filled since the last decision.
    pub(super) fn settle(&mut self, regions: &Regions, slots: &SlotTable) {
        for _ in 0..SETTLED_MAX {
            let Some(block) = self.filled.pop() else {
                break;
            };
            // The open one is looked at when it is closed.
            if self.heap.key(block).is_some() {
                let heat = self.heat(block, regions, slots);
                self.heap.update(block, heat);
            }
        }
    }

    /// The page to be replaced next, with how warm its block is.
    pub(super) fn victim(&mut self, regions: &Regions, slots: &SlotTable) -> Option<(f64, SlotId)> {
        if let Some(open) = self.open {
            let left = open.next..self.end(open.block);
            if let Some(slot) = first_evictable(left, slots) {
                return Some((open.heat, slot));
            }
            // Slots that became free in the rest of the block are no reason to keep it open.
            self.close();
            self.settle(regions, slots);
        }
        let mut found = None;
        while let Some((heat, block)) = self.coldest(regions, slots) {
            let pages = block * self.block_pages..self.end(block);
            if let Some(slot) = first_evictable(pages, slots) {
                found = Some((heat, slot));
                break;
            }
            if self.set_aside.len() == PINNED_MAX {
                break;
            }
            self.heap.remove(block);
            self.set_aside.push((heat, block));
        }
        for (key, block) in self.set_aside.drain(..) {
            self.heap.insert(block, key);
        }
        found
    }

    pub(super) fn bytes(&self) -> usize {
        self.heap.bytes() + self.filled.capacity() * size_of::<u32>()
    }

    pub(super) fn assert_invariants(&self) {
        self.heap.assert_invariants();
        let blocks = self.capacity.div_ceil(self.block_pages) as usize;
        let open = usize::from(self.open.is_some());
        assert_eq!(self.heap.len() + open, blocks, "invariant 1");
        if let Some(open) = self.open {
            assert!(self.heap.key(open.block).is_none(), "invariant 1");
            assert!(open.next < self.end(open.block), "invariant 2");
            assert!(open.next > open.block * self.block_pages, "it was begun");
        }
    }

    fn block_of(&self, slot: SlotId) -> u32 {
        debug_assert!(slot.0 < self.capacity, "a slot of the tier");
        slot.0 / self.block_pages
    }

    /// One past the last slot of `block`: the last block may be shorter.
    fn end(&self, block: u32) -> u32 {
        let end = u64::from(block + 1) * u64::from(self.block_pages);
        end.min(self.capacity.into()) as u32
    }

    fn close(&mut self) {
        if let Some(open) = self.open.take() {
            self.heap.insert(open.block, open.heat);
            self.filled.push(open.block);
        }
    }

    /// Average heat of the pages of `block`; 0 when it has none.
    fn heat(&self, block: u32, regions: &Regions, slots: &SlotTable) -> f64 {
        let slots_of = (block * self.block_pages..self.end(block)).map(SlotId);
        let heats = slots_of.filter_map(|slot| slots.page(slot).map(|page| regions.heat(page)));
        let (sum, pages) = heats.fold((0.0, 0u32), |(sum, n), heat| (sum + heat, n + 1));
        sum / f64::from(pages.max(1))
    }

    /// Looks at the top of the heap again at most `refreshes` times, then gives it.
    fn coldest(&mut self, regions: &Regions, slots: &SlotTable) -> Option<(f64, u32)> {
        for _ in 0..self.refreshes {
            let (stale, block) = self.heap.peek()?;
            let heat = self.heat(block, regions, slots);
            if heat == stale {
                break;
            }
            self.heap.update(block, heat);
        }
        self.heap.peek()
    }
}

/// The first slot of `range` whose page may leave.
fn first_evictable(range: std::ops::Range<u32>, slots: &SlotTable) -> Option<SlotId> {
    let mut with_page = range.map(SlotId).filter(|slot| slots.page(*slot).is_some());
    with_page.find(|slot| slots.evictable(*slot))
}
