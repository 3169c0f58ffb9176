//! MV-FIFO: multi-version FIFO, the order of FaCE (thesis §6.5; Kang et al., VLDB 2012, as the
//! thesis tells it).
//!
//! *Algorithm*: flash is a queue of versions of pages. A page that is cleaned or leaves the DRAM
//! pool goes to its tail; a version that was there is invalid from then on. The victim is what
//! has been in the queue for longest. Reads change nothing. *Cost*: O(1) a request (O(pinned) to
//! find a victim). *Memory*: 8 bytes a slot.
//!
//! # Where this differs from the thesis
//! - *Versions*: a page has one slot. When it is written again, that slot moves to the tail with
//!   the new version. In FaCE the invalid version wastes its place until its turn comes, which is
//!   the first of the reasons that the thesis gives for MV-FIFO's results (§6.5.4); here its
//!   place is free at once, so this policy is the kinder one. What remains of that waste: a copy
//!   whose page was dirtied in DRAM keeps its slot until the new version comes
//!   ([`TierPolicy::keeps_outdated`]), as the thesis has it.
//! - *Sequential writes*, the point of FaCE, come from the tier: it writes every new version to a
//!   free block, in order.
//! - *No pool*: pages come in when they are read, as for CAC.

use super::{
    Access, Decision, Op, Opportunity, PolicyOptions, Pooled, Refusal, Removal, TierPolicy,
    admit_always, evictable_from_back,
};
use crate::list::{Links, List};
use crate::page::{PageId, SlotId};
use crate::tier::SlotTable;

/// See the module text.
#[derive(Debug)]
pub struct MvFifo {
    links: Links,
    /// The newest version, which is the tail of FaCE's queue, at the front.
    versions: List,
    pooled: Pooled,
    admit_on_write: bool,
}

impl MvFifo {
    /// An empty policy for `options.capacity` slots.
    #[must_use]
    pub fn new(options: &PolicyOptions) -> Self {
        Self {
            links: Links::new(options.capacity),
            versions: List::default(),
            pooled: Pooled::default(),
            admit_on_write: options.admit_on_write,
        }
    }
}

impl TierPolicy for MvFifo {
    fn name(&self) -> &'static str {
        "mv-fifo"
    }

    fn on_request(&mut self, access: &Access, resident: Option<SlotId>) {
        if let (Op::Write, Some(slot)) = (access.op, resident) {
            self.versions.move_to_front(&mut self.links, slot.0);
        }
    }

    fn decide(&mut self, _access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        if !self.pooled.takes(why, self.admit_on_write) {
            return Decision::Refuse(Refusal::Opportunity);
        }
        admit_always(slots, Opportunity::Read, true, || {
            evictable_from_back(&self.versions, &self.links, slots)
        })
    }

    fn on_admit(&mut self, _access: &Access, slot: SlotId) {
        self.versions.push_front(&mut self.links, slot.0);
    }

    fn on_remove(&mut self, _page: PageId, slot: SlotId, _why: Removal) {
        self.versions.remove(&mut self.links, slot.0);
    }

    fn on_pool(&mut self, _page: PageId, _buffered: bool) {
        self.pooled.announce();
    }

    fn bytes(&self) -> usize {
        self.links.bytes()
    }

    fn assert_invariants(&self, slots: &SlotTable) {
        let mut listed = 0;
        for id in self.versions.iter_from_back(&self.links) {
            assert!(slots.page(SlotId(id)).is_some(), "versions of residents");
            listed += 1;
        }
        assert_eq!(listed, self.versions.len(), "the list is whole");
        assert_eq!(listed, slots.resident(), "every resident has a version");
    }
}
