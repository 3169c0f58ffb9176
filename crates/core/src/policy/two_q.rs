//! 2Q, full version (Johnson and Shasha, VLDB 1994, §3.2).
//!
//! *Algorithm*: a page comes into A1in, a queue in order of arrival, where further requests change
//! nothing; leaving it by eviction it is remembered in A1out. A page asked for again while A1out
//! remembers it comes into Am, which is in order of recency. The victim is the oldest of A1in
//! while A1in is above Kin, else the last of Am, which nobody remembers. So a burst of requests
//! for a page counts once, and a scan passes through A1in only.
//! *Cost*: O(1) a request (O(pinned) to find a victim). *Memory*: 9 bytes a slot, and an entry of a
//! [`Ghost`] for each of at most half as many remembered pages.
//!
//! # Where the paper leaves a choice
//! - *Sizes* (§3.2 recommends): Kin is a quarter and Kout half of the slots, rounded down.
//! - A page that comes back leaves A1out before the victim enters it.
//! - When Am is empty, or all of it pinned, the victim is the oldest of A1in whatever its size,
//!   and the other way round.
//! - *Free slots* (trims and failures): taken without a victim. Pages that did not leave by
//!   eviction are not remembered.

use super::queues::Queues;
use super::{Access, Decision, Opportunity, PolicyOptions, Removal, TierPolicy, admit_always};
use crate::ghost::Ghost;
use crate::page::{PageId, SlotId};
use crate::tier::SlotTable;

/// A1in.
const ARRIVED: u8 = 0;
/// Am.
const MAIN: u8 = 1;

/// See the module text.
#[derive(Debug)]
pub struct TwoQ {
    /// A1in and Am.
    queues: Queues,
    /// A1out.
    left: Ghost<()>,
    /// Kin.
    arrived_max: u32,
    /// Kout.
    left_max: u32,
    admit_on_write: bool,
}

impl TwoQ {
    /// An empty policy for `options.capacity` slots.
    #[must_use]
    pub fn new(options: &PolicyOptions) -> Self {
        let left_max = options.capacity / 2;
        Self {
            queues: Queues::new(options.capacity, 2),
            // A victim enters before the newcomer leaves: one more.
            left: Ghost::new(left_max + 1),
            arrived_max: options.capacity / 4,
            left_max,
            admit_on_write: options.admit_on_write,
        }
    }

    fn victim(&self, slots: &SlotTable) -> Option<SlotId> {
        let order = match self.queues.len(ARRIVED) > self.arrived_max {
            true => [ARRIVED, MAIN],
            false => [MAIN, ARRIVED],
        };
        self.queues.victim(order, slots)
    }
}

impl TierPolicy for TwoQ {
    fn name(&self) -> &'static str {
        "2q"
    }

    fn on_request(&mut self, _access: &Access, resident: Option<SlotId>) {
        if let Some(slot) = resident
            && self.queues.of(slot) == MAIN
        {
            self.queues.renew(slot, MAIN);
        }
    }

    fn decide(&mut self, _access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        admit_always(slots, why, self.admit_on_write, || self.victim(slots))
    }

    fn on_admit(&mut self, access: &Access, slot: SlotId) {
        let back = self.left.remove(access.page).is_some();
        self.queues.enter(slot, if back { MAIN } else { ARRIVED });
        if self.left.len() > self.left_max {
            self.left.pop_oldest();
        }
    }

    fn on_remove(&mut self, page: PageId, slot: SlotId, why: Removal) {
        let arrived = self.queues.of(slot) == ARRIVED;
        self.queues.leave(slot);
        if arrived && why == Removal::Evicted {
            self.left.insert(page, ());
        }
    }

    fn bytes(&self) -> usize {
        self.queues.bytes() + self.left.bytes()
    }

    fn assert_invariants(&self, slots: &SlotTable) {
        self.queues.assert_invariants(slots);
        for (_, page) in slots.residents() {
            assert!(
                !self.left.contains(page),
                "what is in a queue is not in A1out"
            );
        }
        self.left.assert_invariants();
    }
}
