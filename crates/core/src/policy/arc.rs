//! ARC: adaptive replacement cache (Megiddo and Modha, FAST 2003, figure 4).
//!
//! *Algorithm*: T1 holds pages requested once since they came in, T2 those requested again, both
//! in order of recency; B1 and B2 remember pages that T1 and T2 lost. A request for a page in B1
//! says that T1 is too small, one in B2 that T2 is: the target size `p` of T1 moves accordingly.
//! The victim is the last of T1 while T1 is above its target, else the last of T2.
//! *Cost*: O(1) a request (O(pinned) to find a victim). *Memory*: 9 bytes a slot, and an entry of a
//! [`Ghost`] for each of at most as many remembered pages as there are slots. A rival of the
//! thesis (§3.4).
//!
//! # Where the paper leaves a choice
//! - *Step* (figure 4, cases II and III): max(1, |B2| / |B1|) is a real number, and so is `p`. Read
//!   as integer division, the same text misses up to 1 % more often.
//! - *REPLACE* takes from T1 when T2 is empty, also at or below the target.
//! - *Bounds*: |T1| + |B1| is at most the number of slots, all four lists together at most twice
//!   that. Case IV makes room in the directory before the page comes in; here the surplus leaves
//!   just after, with the same result.
//! - *Free slots* (trims and failures leave some; in the paper a full cache stays full): they are
//!   taken without REPLACE. Pages that did not leave by eviction are not remembered.
//! - `p` moves when the request arrives, whether or not the page can then come in; a write that
//!   may not bring its page in moves nothing.

use super::{
    Access, Decision, Op, Opportunity, PolicyOptions, Removal, TierPolicy, admit_always,
    evictable_from_back,
};
use crate::ghost::Ghost;
use crate::list::{Links, List};
use crate::page::{PageId, SlotId};
use crate::tier::SlotTable;

/// See the module text.
#[derive(Debug)]
pub struct Arc {
    links: Links,
    /// T1 and T2.
    recent: List,
    frequent: List,
    /// Whether a slot is in T2.
    is_frequent: Vec<bool>,
    /// B1 and B2.
    lost_recent: Ghost<()>,
    lost_frequent: Ghost<()>,
    /// `p`, from 0 to the number of slots.
    target: f64,
    capacity: u32,
    admit_on_write: bool,
}

impl Arc {
    /// An empty policy for `options.capacity` slots.
    #[must_use]
    pub fn new(options: &PolicyOptions) -> Self {
        let capacity = options.capacity;
        // A victim enters its ghost list before the newcomer leaves it: one more.
        let remembered = capacity.saturating_add(1);
        Self {
            links: Links::new(capacity),
            recent: List::default(),
            frequent: List::default(),
            is_frequent: vec![false; capacity as usize],
            lost_recent: Ghost::new(remembered),
            lost_frequent: Ghost::new(remembered),
            target: 0.0,
            capacity,
            admit_on_write: options.admit_on_write,
        }
    }

    /// Target size of T1, in pages.
    #[must_use]
    pub fn target(&self) -> f64 {
        self.target
    }

    /// Cases II and III: moves the target towards the list that lost `page`.
    fn adapt(&mut self, page: PageId) {
        let (recent, frequent) = (self.lost_recent.len(), self.lost_frequent.len());
        if self.lost_recent.contains(page) {
            let step = (f64::from(frequent) / f64::from(recent)).max(1.0);
            self.target = (self.target + step).min(f64::from(self.capacity));
        } else if self.lost_frequent.contains(page) {
            let step = (f64::from(recent) / f64::from(frequent)).max(1.0);
            self.target = (self.target - step).max(0.0);
        }
    }

    /// REPLACE: pinned pages are passed over, and if need be the other list is taken.
    fn victim(&self, page: PageId, slots: &SlotTable) -> Option<SlotId> {
        let size = f64::from(self.recent.len());
        let from_recent =
            size > self.target || (size == self.target && self.lost_frequent.contains(page));
        let lists = match from_recent {
            true => [&self.recent, &self.frequent],
            false => [&self.frequent, &self.recent],
        };
        let mut victims = lists
            .into_iter()
            .filter_map(|list| evictable_from_back(list, &self.links, slots));
        victims.next()
    }

    /// Case IV: what the directory holds beyond its bounds is forgotten, oldest first.
    fn forget_surplus(&mut self) {
        while self.recent.len() + self.lost_recent.len() > self.capacity {
            let forgotten = self.lost_recent.pop_oldest();
            debug_assert!(forgotten.is_some(), "T1 alone is within the capacity");
        }
        while self.remembered() > 2 * u64::from(self.capacity) {
            let forgotten = self.lost_frequent.pop_oldest();
            debug_assert!(forgotten.is_some(), "T1, B1 and T2 are within the bound");
        }
    }

    /// Pages in all four lists.
    fn remembered(&self) -> u64 {
        let resident = u64::from(self.recent.len()) + u64::from(self.frequent.len());
        resident + u64::from(self.lost_recent.len()) + u64::from(self.lost_frequent.len())
    }
}

impl TierPolicy for Arc {
    fn name(&self) -> &'static str {
        "arc"
    }

    fn on_request(&mut self, access: &Access, resident: Option<SlotId>) {
        match resident {
            Some(slot) if self.is_frequent[slot.at()] => {
                self.frequent.move_to_front(&mut self.links, slot.0);
            }
            Some(slot) => {
                self.recent.remove(&mut self.links, slot.0);
                self.frequent.push_front(&mut self.links, slot.0);
                self.is_frequent[slot.at()] = true;
            }
            None if access.op == Op::Write && !self.admit_on_write => {}
            None => self.adapt(access.page),
        }
    }

    fn decide(&mut self, access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        admit_always(slots, why, self.admit_on_write, || {
            self.victim(access.page, slots)
        })
    }

    fn on_admit(&mut self, access: &Access, slot: SlotId) {
        let known = self.lost_recent.remove(access.page).is_some()
            || self.lost_frequent.remove(access.page).is_some();
        match known {
            true => self.frequent.push_front(&mut self.links, slot.0),
            false => self.recent.push_front(&mut self.links, slot.0),
        }
        self.is_frequent[slot.at()] = known;
        self.forget_surplus();
    }

    fn on_remove(&mut self, page: PageId, slot: SlotId, why: Removal) {
        let (list, lost) = match self.is_frequent[slot.at()] {
            true => (&mut self.frequent, &mut self.lost_frequent),
            false => (&mut self.recent, &mut self.lost_recent),
        };
        list.remove(&mut self.links, slot.0);
        if why == Removal::Evicted {
            lost.insert(page, ());
        }
    }

    fn bytes(&self) -> usize {
        self.links.bytes()
            + self.is_frequent.capacity()
            + self.lost_recent.bytes()
            + self.lost_frequent.bytes()
    }

    fn assert_invariants(&self, slots: &SlotTable) {
        let lists = [(&self.recent, false), (&self.frequent, true)];
        assert_eq!(
            self.recent.len() + self.frequent.len(),
            slots.resident(),
            "T1 and T2 hold exactly the residents"
        );
        for (list, frequent) in lists {
            for id in list.iter_from_back(&self.links) {
                assert_eq!(self.is_frequent[id as usize], frequent, "marked as listed");
                let page = slots.page(SlotId(id));
                let forgotten = page.is_some_and(|page| {
                    !self.lost_recent.contains(page) && !self.lost_frequent.contains(page)
                });
                assert!(
                    forgotten,
                    "a listed slot holds a page, which is in no ghost list"
                );
            }
        }
        // Between an eviction and the admission it made room for there is one more.
        let surplus = self
            .remembered()
            .saturating_sub(2 * u64::from(self.capacity));
        assert!(surplus <= 1, "the directory is bounded");
        assert!(self.target >= 0.0 && self.target <= f64::from(self.capacity));
        self.lost_recent.assert_invariants();
        self.lost_frequent.assert_invariants();
    }
}
