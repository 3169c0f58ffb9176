//! Least recently used.
//!
//! *Algorithm*: one list; a request moves its page to the front; the victim is the evictable page
//! nearest the back. *Cost*: O(1) a request (O(pinned) to find a victim). *Memory*: 8 bytes a
//! slot. The yardstick of every paper (TAC §4, thesis §3.4, hStorage-DB §6).

use super::{
    Access, Decision, Opportunity, PolicyOptions, Removal, TierPolicy, admit_always,
    evictable_from_back,
};
use crate::list::{Links, List};
use crate::page::{PageId, SlotId};
use crate::tier::SlotTable;

/// See the module text.
#[derive(Debug)]
pub struct Lru {
    links: Links,
    recency: List,
    admit_on_write: bool,
}

impl Lru {
    /// An empty policy for `options.capacity` slots.
    #[must_use]
    pub fn new(options: &PolicyOptions) -> Self {
        Self {
            links: Links::new(options.capacity),
            recency: List::default(),
            admit_on_write: options.admit_on_write,
        }
    }
}

impl TierPolicy for Lru {
    fn name(&self) -> &'static str {
        "lru"
    }

    fn on_request(&mut self, _access: &Access, resident: Option<SlotId>) {
        if let Some(slot) = resident {
            self.recency.move_to_front(&mut self.links, slot.0);
        }
    }

    fn decide(&mut self, _access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        admit_always(slots, why, self.admit_on_write, || {
            evictable_from_back(&self.recency, &self.links, slots)
        })
    }

    fn on_admit(&mut self, _access: &Access, slot: SlotId) {
        self.recency.push_front(&mut self.links, slot.0);
    }

    fn on_remove(&mut self, _page: PageId, slot: SlotId, _why: Removal) {
        self.recency.remove(&mut self.links, slot.0);
    }

    fn bytes(&self) -> usize {
        self.links.bytes()
    }

    fn assert_invariants(&self, slots: &SlotTable) {
        assert_eq!(
            self.recency.len(),
            slots.resident(),
            "the list holds exactly the residents"
        );
        for id in self.recency.iter_from_back(&self.links) {
            assert!(
                slots.page(SlotId(id)).is_some(),
                "a listed slot holds a page"
            );
        }
    }
}
