//! CLOCK: FIFO with a second chance.
//!
//! *Algorithm*: pages stand on a circle in order of admission with one reference bit each, clear at
//! admission and set by every later request. The hand passes over pages with the bit set, clearing
//! it, and takes the first evictable page without it (TAC §4). Written as a queue whose front is
//! just behind the hand: passing over a page moves it from the back to the front. *Cost*: O(1)
//! amortised. *Memory*: 9 bytes a slot.

use super::{
    Access, Decision, Opportunity, PolicyOptions, Removal, TierPolicy, admit_always, two_rounds,
};
use crate::list::{Links, List};
use crate::page::{PageId, SlotId};
use crate::tier::SlotTable;

/// See the module text.
#[derive(Debug)]
pub struct Clock {
    links: Links,
    circle: List,
    referenced: Vec<bool>,
    admit_on_write: bool,
}

impl Clock {
    /// An empty policy for `options.capacity` slots.
    #[must_use]
    pub fn new(options: &PolicyOptions) -> Self {
        Self {
            links: Links::new(options.capacity),
            circle: List::default(),
            referenced: vec![false; options.capacity as usize],
            admit_on_write: options.admit_on_write,
        }
    }

    /// Turns the hand to the next evictable page without its bit. Two rounds always suffice: the
    /// first clears every bit.
    fn turn(&mut self, slots: &SlotTable) -> Option<SlotId> {
        for _ in 0..two_rounds(self.circle.len()) {
            let id = self.circle.back()?;
            let referenced = std::mem::take(&mut self.referenced[id as usize]);
            if !referenced && slots.evictable(SlotId(id)) {
                return Some(SlotId(id));
            }
            self.circle.move_to_front(&mut self.links, id);
        }
        None
    }
}

impl TierPolicy for Clock {
    fn name(&self) -> &'static str {
        "clock"
    }

    fn on_request(&mut self, _access: &Access, resident: Option<SlotId>) {
        if let Some(slot) = resident {
            self.referenced[slot.at()] = true;
        }
    }

    fn decide(&mut self, _access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        let admit_on_write = self.admit_on_write;
        admit_always(slots, why, admit_on_write, || self.turn(slots))
    }

    fn on_admit(&mut self, _access: &Access, slot: SlotId) {
        debug_assert!(
            !self.referenced[slot.at()],
            "a free slot keeps no reference bit"
        );
        self.circle.push_front(&mut self.links, slot.0);
    }

    fn on_remove(&mut self, _page: PageId, slot: SlotId, _why: Removal) {
        self.circle.remove(&mut self.links, slot.0);
        self.referenced[slot.at()] = false;
    }

    fn bytes(&self) -> usize {
        self.links.bytes() + self.referenced.capacity()
    }

    fn assert_invariants(&self, slots: &SlotTable) {
        assert_eq!(
            self.circle.len(),
            slots.resident(),
            "the circle holds exactly the residents"
        );
        let set = self.referenced.iter().enumerate().filter(|(_, bit)| **bit);
        for (id, _) in set {
            assert!(
                slots.page(SlotId(id as u32)).is_some(),
                "only residents have the bit"
            );
        }
    }
}
