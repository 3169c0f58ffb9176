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

use super::{
    Access, Decision, Opportunity, PolicyOptions, Removal, TierPolicy, admit_always,
    evictable_from_back,
};
use crate::ghost::Ghost;
use crate::list::{Links, List};
use crate::page::{PageId, SlotId};
use crate::tier::SlotTable;

/// See the module text.
#[derive(Debug)]
pub struct TwoQ {
    links: Links,
    /// A1in.
    arrived: List,
    /// Am.
    main: List,
    /// Whether a slot is in Am.
    is_main: Vec<bool>,
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
            links: Links::new(options.capacity),
            arrived: List::default(),
            main: List::default(),
            is_main: vec![false; options.capacity as usize],
            // A victim enters before the newcomer leaves: one more.
            left: Ghost::new(left_max + 1),
            arrived_max: options.capacity / 4,
            left_max,
            admit_on_write: options.admit_on_write,
        }
    }

    fn victim(&self, slots: &SlotTable) -> Option<SlotId> {
        let lists = match self.arrived.len() > self.arrived_max {
            true => [&self.arrived, &self.main],
            false => [&self.main, &self.arrived],
        };
        let mut victims = lists
            .into_iter()
            .filter_map(|list| evictable_from_back(list, &self.links, slots));
        victims.next()
    }
}

impl TierPolicy for TwoQ {
    fn name(&self) -> &'static str {
        "2q"
    }

    fn on_request(&mut self, _access: &Access, resident: Option<SlotId>) {
        if let Some(slot) = resident
            && self.is_main[slot.at()]
        {
            self.main.move_to_front(&mut self.links, slot.0);
        }
    }

    fn decide(&mut self, _access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        admit_always(slots, why, self.admit_on_write, || self.victim(slots))
    }

    fn on_admit(&mut self, access: &Access, slot: SlotId) {
        let back = self.left.remove(access.page).is_some();
        match back {
            true => self.main.push_front(&mut self.links, slot.0),
            false => self.arrived.push_front(&mut self.links, slot.0),
        }
        self.is_main[slot.at()] = back;
        if self.left.len() > self.left_max {
            self.left.pop_oldest();
        }
    }

    fn on_remove(&mut self, page: PageId, slot: SlotId, why: Removal) {
        if self.is_main[slot.at()] {
            return self.main.remove(&mut self.links, slot.0);
        }
        self.arrived.remove(&mut self.links, slot.0);
        if why == Removal::Evicted {
            self.left.insert(page, ());
        }
    }

    fn bytes(&self) -> usize {
        self.links.bytes() + self.is_main.capacity() + self.left.bytes()
    }

    fn assert_invariants(&self, slots: &SlotTable) {
        assert_eq!(
            self.arrived.len() + self.main.len(),
            slots.resident(),
            "A1in and Am hold exactly the residents"
        );
        for (list, main) in [(&self.arrived, false), (&self.main, true)] {
            for id in list.iter_from_back(&self.links) {
                assert_eq!(self.is_main[id as usize], main, "marked as listed");
                let page = slots.page(SlotId(id));
                assert!(
                    page.is_some_and(|page| !self.left.contains(page)),
                    "a listed slot holds a page, which is not in A1out"
                );
            }
        }
        self.left.assert_invariants();
    }
}
