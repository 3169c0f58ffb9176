//! SIEVE: lazy promotion and quick demotion with one bit a page.
//!
//! *Algorithm*: pages stand in a queue in order of admission with one visited bit each, clear at
//! admission and set by every later request; nothing ever moves. A hand walks from the back
//! towards the front and then starts at the back again. It clears the bits it passes and stops at
//! the first evictable page without one, which leaves from where it stands; the next walk begins
//! at that page's neighbour. So, unlike CLOCK's, the hand stays away from newcomers: pages asked
//! for once are sifted out soon, and survivors gather behind it (Zhang et al., "SIEVE is simpler
//! than LRU", NSDI 2024, §3.1, Algorithm 1). *Cost*: O(1) amortised a request. *Memory*: 9 bytes
//! a slot.
//!
//! Departure: a page that is being read or written is passed over with its bit cleared. A slot
//! freed otherwise than by eviction is filled at once, without a walk.

use super::{
    Access, Decision, Opportunity, PolicyOptions, Removal, TierPolicy, admit_always, two_rounds,
};
use crate::list::{Links, List};
use crate::page::{PageId, SlotId};
use crate::tier::SlotTable;

/// See the module text.
#[derive(Debug)]
pub struct Sieve {
    links: Links,
    arrival: List,
    visited: Vec<bool>,
    /// Where the next walk begins; the back when there is none.
    hand: Option<u32>,
    admit_on_write: bool,
}

impl Sieve {
    /// An empty policy for `options.capacity` slots.
    #[must_use]
    pub fn new(options: &PolicyOptions) -> Self {
        Self {
            links: Links::new(options.capacity),
            arrival: List::default(),
            visited: vec![false; options.capacity as usize],
            hand: None,
            admit_on_write: options.admit_on_write,
        }
    }

    /// Walks to the next evictable page without its bit. Two rounds always suffice: the first
    /// clears every bit.
    fn walk(&mut self, slots: &SlotTable) -> Option<SlotId> {
        for _ in 0..two_rounds(self.arrival.len()) {
            let id = self.hand.or(self.arrival.back())?;
            let visited = std::mem::take(&mut self.visited[id as usize]);
            if !visited && slots.evictable(SlotId(id)) {
                self.hand = Some(id);
                return Some(SlotId(id));
            }
            self.hand = self.links.towards_front(id);
        }
        None
    }
}

impl TierPolicy for Sieve {
    fn name(&self) -> &'static str {
        "sieve"
    }

    fn on_request(&mut self, _access: &Access, resident: Option<SlotId>) {
        if let Some(slot) = resident {
            self.visited[slot.at()] = true;
        }
    }

    fn decide(&mut self, _access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        let admit_on_write = self.admit_on_write;
        admit_always(slots, why, admit_on_write, || self.walk(slots))
    }

    fn on_admit(&mut self, _access: &Access, slot: SlotId) {
        debug_assert!(!self.visited[slot.at()], "a free slot keeps no visited bit");
        self.arrival.push_front(&mut self.links, slot.0);
    }

    fn on_remove(&mut self, _page: PageId, slot: SlotId, _why: Removal) {
        if self.hand == Some(slot.0) {
            self.hand = self.links.towards_front(slot.0);
        }
        self.arrival.remove(&mut self.links, slot.0);
        self.visited[slot.at()] = false;
        debug_assert_ne!(self.hand, Some(slot.0), "the hand is at a page or at none");
    }

    fn bytes(&self) -> usize {
        self.links.bytes() + self.visited.capacity()
    }

    fn assert_invariants(&self, slots: &SlotTable) {
        assert_eq!(
            self.arrival.len(),
            slots.resident(),
            "the queue holds exactly the residents"
        );
        for id in self.arrival.iter_from_back(&self.links) {
            assert!(
                slots.page(SlotId(id)).is_some(),
                "a queued slot holds a page"
            );
        }
        let bits = self.visited.iter().enumerate().filter(|(_, bit)| **bit);
        for id in bits.map(|(id, _)| id as u32).chain(self.hand) {
            assert!(
                slots.page(SlotId(id)).is_some(),
                "bits and hand are at residents"
            );
        }
    }
}
