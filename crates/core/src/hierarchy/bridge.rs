//! Reads of base that pass over pages which are on flash or in DRAM.
//!
//! A run of absent pages with some at hand between them is cheaper to read in one go where base
//! seeks ([`crate::Costs::bridge_pages`]). The pages between are requests of their own: each is
//! started when its turn comes, after the pages before it have ended, so policy and tables see what
//! they would see if every page were read alone.

use super::{Action, Calm, Hierarchy, ReadStart};
use crate::hint::HintSet;
use crate::page::{PageId, SlotId};

impl Hierarchy {
    /// Whether a read of `page` would be answered at once now, and not by [`ReadStart::Base`].
    #[must_use]
    pub fn is_at_hand(&self, page: PageId) -> bool {
        let free = !self.inflight.has_writer(page) && !self.inflight.is_doomed(page);
        let on_flash = free && self.calm != Calm::Still && self.usable_slot(page).is_some();
        on_flash || self.pool.find(page).is_some()
    }

    /// The checksum that bytes of base must have to be those of the valid `slot`; `None` when its
    /// page is dirty: then base has older ones.
    #[must_use]
    pub fn sum_on_base(&self, slot: SlotId) -> Option<u64> {
        let clean = !self.slots.is_dirty(slot);
        clean
            .then(|| self.bytes_of(slot))
            .flatten()
            .map(|(_, sum)| sum)
    }

    /// As [`Hierarchy::finish_read`] after [`ReadStart::Slot`], when the same bytes were had from
    /// base: a hit on the slot, of which the device knows nothing.
    pub fn finish_bridged(
        &mut self,
        page: PageId,
        hints: &HintSet,
        slot: SlotId,
        out: &mut Vec<Action>,
    ) {
        self.counters.bridged += 1;
        self.end_read(page, hints, ReadStart::Slot(slot), out);
    }
}
