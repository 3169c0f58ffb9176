//! TQ: two queues told apart by write hints (Li et al., "Second-tier cache management using write
//! hints", FAST 2005; as the thesis describes it, §3.1, §3.2 and §3.4).
//!
//! *Algorithm*: a page whose latest request was a replacement write is about to leave the client's
//! cache and will be read from here: high priority. A page that was just read, or written only to
//! bound recovery time, stays with the client: low priority. The victim is the least recently
//! requested page of low priority; of high priority only when there is no other.
//! *Cost*: O(1) a request (O(pinned) to find a victim). *Memory*: 9 bytes a slot.
//! The hint-aware rival of the thesis (§3.4): what CLIC learns is wired in here.
//!
//! # Choices
//! - The thesis tells what TQ does with each hint, not how its queues are ordered inside: both are
//!   in order of recency here. What the FAST 2005 paper may refine within a queue is not here.
//! - *Synchronous writes* are replacement writes that no page cleaner made (thesis, table 3.2):
//!   high priority too.
//! - Reads, recovery writes and requests without a hint are treated alike (thesis §3.4). Without
//!   any replacement write TQ is LRU.
//! - The latest request decides: a read takes a page back to low priority, for it is now in the
//!   client's cache.
//! - Every page read or written comes in, also when it evicts a page of high priority.

use super::queues::Queues;
use super::{Access, Decision, Opportunity, PolicyOptions, Removal, TierPolicy, admit_always};
use crate::hint::RequestType;
use crate::page::{PageId, SlotId};
use crate::tier::SlotTable;

/// Indices of the queues.
const LOW: u8 = 0;
const HIGH: u8 = 1;

/// See the module text.
#[derive(Debug)]
pub struct Tq {
    /// Low and high priority.
    queues: Queues,
    admit_on_write: bool,
}

impl Tq {
    /// An empty policy for `options.capacity` slots.
    #[must_use]
    pub fn new(options: &PolicyOptions) -> Self {
        Self {
            queues: Queues::new(options.capacity, 2),
            admit_on_write: options.admit_on_write,
        }
    }

    fn queue(access: &Access) -> u8 {
        match access.hints.request() {
            RequestType::ReplacementWrite | RequestType::SynchronousWrite => HIGH,
            _ => LOW,
        }
    }
}

impl TierPolicy for Tq {
    fn name(&self) -> &'static str {
        "tq"
    }

    fn on_request(&mut self, access: &Access, resident: Option<SlotId>) {
        if let Some(slot) = resident {
            self.queues.renew(slot, Self::queue(access));
        }
    }

    fn decide(&mut self, _access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        let victim = || self.queues.victim([LOW, HIGH], slots);
        admit_always(slots, why, self.admit_on_write, victim)
    }

    fn on_admit(&mut self, access: &Access, slot: SlotId) {
        self.queues.enter(slot, Self::queue(access));
    }

    fn on_remove(&mut self, _page: PageId, slot: SlotId, _why: Removal) {
        self.queues.leave(slot);
    }

    fn bytes(&self) -> usize {
        self.queues.bytes()
    }

    fn assert_invariants(&self, slots: &SlotTable) {
        self.queues.assert_invariants(slots);
    }
}
