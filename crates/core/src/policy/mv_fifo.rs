//! MV-FIFO: multi-version FIFO, the order of FaCE (thesis §6.5; Kang et al., VLDB 2012, as the
//! thesis tells it).
//!
//! *Algorithm*: flash is a queue of versions of pages. A page that is cleaned or leaves the DRAM
//! pool goes to its tail, unless the version that is there is as new; an older version is invalid
//! from then on, and keeps its place until it comes to the head. Places are taken back from the
//! head alone: an invalid version for nothing, a valid one by evicting its page. Reads change
//! nothing. So the tier holds fewer pages than it has slots, the first of the reasons that the
//! thesis gives for MV-FIFO's results (§6.5.4). *Cost*: O(1) amortised a request (O(pinned) to find
//! a victim). *Memory*: 12 bytes a slot.
//!
//! # What stands for the places
//! A page has one slot, in which its newest version is. An invalid version has none: it is counted
//! at the valid version that came next after it ([`MvFifo::before`]), and a slot stays free for
//! it. A page that is written again takes one more place, for which another may have to leave
//! ([`TierPolicy::surplus`]).
//!
//! # Where the thesis leaves a choice
//! - *Sequential writes*, the point of FaCE, come from the tier: it writes every new version to a
//!   free block, in order.
//! - *A head that may not leave* (it is being read or written): the valid version next to it
//!   leaves, and its place is taken back with those of the invalid ones before it left for later.
//! - *A copy whose page was dirtied in DRAM* stays valid until the new version comes
//!   ([`TierPolicy::keeps_outdated`]). A page that is trimmed, or whose copy fails, leaves an
//!   invalid version.
//! - *A version that is replaced before it was written*, while it waits in the write buffer, counts
//!   as one that was.
//! - *No pool*: pages come in when they are read, as for CAC.
//!
//! # Invariants (checked by [`MvFifo::assert_invariants`])
//! 1. Every resident is listed once.
//! 2. `invalid` is the sum of `before` over all residents, and of `newest_invalid`.

use super::{
    Access, Aside, Decision, Op, Opportunity, PolicyOptions, Pooled, Refusal, Removal, TierPolicy,
    evictable_from_back,
};
use crate::list::{Links, List};
use crate::page::{PageId, SlotId};
use crate::tier::SlotTable;

/// See the module text.
#[derive(Debug)]
pub struct MvFifo {
    capacity: u32,
    links: Links,
    /// Valid versions; the newest, which is at the tail of FaCE's queue, at the front.
    versions: List,
    /// Of each slot: the invalid versions between its version and the valid one before it.
    before: Vec<u32>,
    /// Those that came after the newest valid version.
    newest_invalid: u32,
    invalid: u32,
    pooled: Pooled,
    admit_on_write: bool,
}

impl MvFifo {
    /// An empty policy for `options.capacity` slots.
    #[must_use]
    pub fn new(options: &PolicyOptions) -> Self {
        Self {
            capacity: options.capacity,
            links: Links::new(options.capacity),
            versions: List::default(),
            before: vec![0; options.capacity as usize],
            newest_invalid: 0,
            invalid: 0,
            pooled: Pooled::default(),
            admit_on_write: options.admit_on_write,
        }
    }

    /// Places taken.
    fn used(&self) -> u32 {
        self.versions.len().saturating_add(self.invalid)
    }

    /// The version in `slot` is the newest of all.
    fn push(&mut self, slot: SlotId) {
        self.versions.push_front(&mut self.links, slot.0);
        self.before[slot.at()] = std::mem::take(&mut self.newest_invalid);
    }

    /// The version in `slot` is valid no more, and `own` place of its own stays taken: 1 or 0.
    fn pop(&mut self, slot: SlotId, own: u32) {
        let moved = std::mem::take(&mut self.before[slot.at()]) + own;
        match self.links.towards_front(slot.0) {
            Some(next) => self.before[next as usize] += moved,
            None => self.newest_invalid += moved,
        }
        self.invalid += own;
        self.versions.remove(&mut self.links, slot.0);
    }

    /// Takes places back from the head until at most `most` are taken or the head is valid.
    fn take_back(&mut self, most: u32) {
        let over = self.used().saturating_sub(most);
        let head = match self.versions.back() {
            Some(oldest) => &mut self.before[oldest as usize],
            None => &mut self.newest_invalid,
        };
        let back = over.min(*head);
        *head -= back;
        self.invalid -= back;
    }
}

impl TierPolicy for MvFifo {
    fn name(&self) -> &'static str {
        "mv-fifo"
    }

    fn on_request(&mut self, access: &Access, resident: Option<SlotId>) {
        if let (Op::Write, Some(slot)) = (access.op, resident) {
            self.pop(slot, 1);
            self.push(slot);
        }
    }

    fn on_aside(&mut self, access: &Access, resident: Option<SlotId>, why: Aside) {
        // A part of a page is not written to flash: the version there becomes invalid as it leaves.
        if why != Aside::Part {
            self.on_request(access, resident);
        }
    }

    fn decide(&mut self, _access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        if !self.pooled.takes(why, self.admit_on_write) {
            return Decision::Refuse(Refusal::Opportunity);
        }
        self.take_back(self.capacity.saturating_sub(1));
        if self.used() < self.capacity && slots.has_room() {
            return Decision::Admit;
        }
        let victim = evictable_from_back(&self.versions, &self.links, slots);
        victim.map_or(Decision::Refuse(Refusal::Pinned), Decision::Replace)
    }

    fn surplus(&mut self, slots: &SlotTable) -> Option<SlotId> {
        self.take_back(self.capacity);
        let over = self.used() > self.capacity;
        over.then(|| evictable_from_back(&self.versions, &self.links, slots))?
    }

    fn on_admit(&mut self, _access: &Access, slot: SlotId) {
        self.push(slot);
    }

    fn on_remove(&mut self, _page: PageId, slot: SlotId, why: Removal) {
        // What is dropped was not written; the version before it, if there was one, is counted.
        let taken_back = matches!(why, Removal::Evicted | Removal::Off | Removal::Dropped);
        self.pop(slot, u32::from(!taken_back));
    }

    fn on_pool(&mut self, _page: PageId, _buffered: bool) {
        self.pooled.announce();
    }

    fn bytes(&self) -> usize {
        self.links.bytes() + self.before.capacity() * size_of::<u32>()
    }

    fn assert_invariants(&self, slots: &SlotTable) {
        let (mut listed, mut invalid) = (0, self.newest_invalid);
        for id in self.versions.iter_from_back(&self.links) {
            assert!(slots.page(SlotId(id)).is_some(), "invariant 1");
            listed += 1;
            invalid += self.before[id as usize];
        }
        assert_eq!(listed, self.versions.len(), "the list is whole");
        assert_eq!(listed, slots.resident(), "invariant 1");
        assert_eq!(invalid, self.invalid, "invariant 2");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint::HintSet;
    use crate::page::ObjectId;

    fn access(op: Op) -> Access {
        Access {
            page: PageId::new(ObjectId(1), 7),
            op,
            hints: HintSet::UNKNOWN,
            number: 1,
        }
    }

    /// A part of a page that is written makes the version that is there invalid, and no other; one
    /// that is dropped on its way to flash takes no place.
    #[test]
    fn only_what_is_written_takes_a_place() {
        let (page, slot) = (access(Op::Read).page, SlotId(2));
        let mut queue = MvFifo::new(&PolicyOptions::new(8));
        queue.on_admit(&access(Op::Read), slot);
        queue.on_aside(&access(Op::Write), Some(slot), Aside::Part);
        queue.on_remove(page, slot, Removal::Stale);
        assert_eq!((queue.versions.len(), queue.used()), (0, 1));
        let mut queue = MvFifo::new(&PolicyOptions::new(8));
        queue.on_admit(&access(Op::Read), slot);
        queue.on_remove(page, slot, Removal::Dropped);
        assert_eq!(queue.used(), 0);
        queue.on_admit(&access(Op::Read), slot);
        queue.on_request(&access(Op::Write), Some(slot));
        assert_eq!(queue.used(), 2);
        queue.on_remove(page, slot, Removal::Dropped);
        assert_eq!(queue.used(), 1, "the version before");
    }
}
