//! ARC: adaptive replacement cache (Megiddo and Modha, FAST 2003, figure 4).
//!
//! *Algorithm*: T1 holds pages requested once since they came in, T2 those requested again, both
//! in order of recency; B1 and B2 remember pages that T1 and T2 lost. A request for a page in B1
//! says that T1 is too small, one in B2 that T2 is: the target size `p` of T1 moves accordingly.
//! The victim is the last of T1 while T1 is above its target, else the last of T2.
//! *Cost*: O(1) a request (O(pinned) to find a victim). *Memory*: 45 bytes a slot (9 for T1 and T2,
//! 36 for B1 and B2) and the map of the pages in B1 and B2; 62 in all, measured with 76,254 slots.
//! A rival of the thesis (§3.4).
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
use crate::hash;
use crate::list::{Links, List};
use crate::page::{PageId, SlotId};
use crate::tier::SlotTable;
use hashbrown::HashTable;

/// Where an absent page is remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lost {
    /// B1.
    Recent,
    /// B2.
    Frequent,
}

/// B1 and B2 under one map: a miss, most often in neither, is looked up once.
#[derive(Debug)]
struct Directory {
    links: Links,
    /// B1 and B2; the front is the newest.
    lists: [List; 2],
    entries: Vec<(PageId, Lost)>,
    free: Vec<u32>,
    map: HashTable<u32>,
}

impl Directory {
    fn new(capacity: u32) -> Self {
        Self {
            links: Links::new(capacity),
            lists: [List::default(); 2],
            entries: vec![(PageId::default(), Lost::Recent); capacity as usize],
            free: (0..capacity).rev().collect(),
            map: HashTable::new(),
        }
    }

    fn len(&self, list: Lost) -> u32 {
        self.lists[list as usize].len()
    }

    fn find(&self, page: PageId) -> Option<Lost> {
        let found = self.map.find(hash::of_page(page), |&at| {
            self.entries[at as usize].0 == page
        });
        found.map(|&at| self.entries[at as usize].1)
    }

    /// Remembers `page` as the newest of `list`; at the bound the oldest of B2, else of B1, leaves.
    fn insert(&mut self, page: PageId, list: Lost) {
        debug_assert!(self.find(page).is_none(), "a page is remembered once");
        if self.free.is_empty() && !self.forget_oldest(Lost::Frequent) {
            self.forget_oldest(Lost::Recent);
        }
        let Some(at) = self.free.pop() else {
            return;
        };
        self.entries[at as usize] = (page, list);
        self.lists[list as usize].push_front(&mut self.links, at);
        let entries = &self.entries;
        let rehash = |&at: &u32| hash::of_page(entries[at as usize].0);
        self.map.insert_unique(hash::of_page(page), at, rehash);
    }

    fn remove(&mut self, page: PageId) {
        let found = self.map.find_entry(hash::of_page(page), |&at| {
            self.entries[at as usize].0 == page
        });
        if let Ok(entry) = found {
            let (at, _) = entry.remove();
            let list = self.entries[at as usize].1;
            self.lists[list as usize].remove(&mut self.links, at);
            self.free.push(at);
        }
    }

    /// False when there is nothing in `list`.
    fn forget_oldest(&mut self, list: Lost) -> bool {
        let oldest = self.lists[list as usize].back();
        if let Some(at) = oldest {
            self.remove(self.entries[at as usize].0);
        }
        oldest.is_some()
    }

    fn bytes(&self) -> usize {
        self.links.bytes()
            + self.entries.capacity() * size_of::<(PageId, Lost)>()
            + self.free.capacity() * 4
            + self.map.allocation_size()
    }

    fn assert_invariants(&self) {
        let listed = self.len(Lost::Recent) + self.len(Lost::Frequent);
        assert_eq!(listed as usize, self.map.len(), "listed is remembered");
        assert_eq!(
            listed as usize + self.free.len(),
            self.entries.len(),
            "an entry is listed or free"
        );
        for list in [Lost::Recent, Lost::Frequent] {
            for at in self.lists[list as usize].iter_from_back(&self.links) {
                let (page, marked) = self.entries[at as usize];
                assert_eq!(marked, list, "marked as listed");
                assert_eq!(self.find(page), Some(list), "listed is found");
            }
        }
    }
}

/// See the module text.
#[derive(Debug)]
pub struct Arc {
    links: Links,
    /// T1 and T2.
    recent: List,
    frequent: List,
    /// Whether a slot is in T2.
    is_frequent: Vec<bool>,
    lost: Directory,
    /// The absent page asked for last and where it was remembered: looked up once a request.
    asked: Option<(PageId, Option<Lost>)>,
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
        // A victim enters before the newcomer leaves: one more.
        let remembered = capacity.saturating_add(1);
        Self {
            links: Links::new(capacity),
            recent: List::default(),
            frequent: List::default(),
            is_frequent: vec![false; capacity as usize],
            lost: Directory::new(remembered),
            asked: None,
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

    fn recall(&self, page: PageId) -> Option<Lost> {
        match self.asked {
            Some((asked, lost)) if asked == page => lost,
            _ => self.lost.find(page),
        }
    }

    /// Cases II and III: moves the target towards the list that lost the page.
    fn adapt(&mut self, lost: Lost) {
        let recent = f64::from(self.lost.len(Lost::Recent));
        let frequent = f64::from(self.lost.len(Lost::Frequent));
        self.target = match lost {
            Lost::Recent => {
                let step = (frequent / recent).max(1.0);
                (self.target + step).min(f64::from(self.capacity))
            }
            Lost::Frequent => {
                let step = (recent / frequent).max(1.0);
                (self.target - step).max(0.0)
            }
        };
    }

    /// REPLACE: pinned pages are passed over, and if need be the other list is taken.
    fn victim(&self, page: PageId, slots: &SlotTable) -> Option<SlotId> {
        let size = f64::from(self.recent.len());
        let at_target = size == self.target;
        let from_recent =
            size > self.target || (at_target && self.recall(page) == Some(Lost::Frequent));
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
        while self.recent.len() + self.lost.len(Lost::Recent) > self.capacity {
            let forgotten = self.lost.forget_oldest(Lost::Recent);
            debug_assert!(forgotten, "T1 alone is within the capacity");
        }
        while self.known() > 2 * u64::from(self.capacity) {
            let forgotten = self.lost.forget_oldest(Lost::Frequent);
            debug_assert!(forgotten, "T1, B1 and T2 are within the bound");
        }
    }

    /// Pages in all four lists.
    fn known(&self) -> u64 {
        let resident = u64::from(self.recent.len()) + u64::from(self.frequent.len());
        resident + self.lost.map.len() as u64
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
            None => {
                let lost = self.lost.find(access.page);
                self.asked = Some((access.page, lost));
                if let Some(lost) = lost {
                    self.adapt(lost);
                }
            }
        }
    }

    fn decide(&mut self, access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        admit_always(slots, why, self.admit_on_write, || {
            self.victim(access.page, slots)
        })
    }

    fn on_admit(&mut self, access: &Access, slot: SlotId) {
        let lost = self.recall(access.page);
        // What was looked up holds for one admission.
        self.asked = None;
        if lost.is_some() {
            self.lost.remove(access.page);
        }
        match lost {
            None => self.recent.push_front(&mut self.links, slot.0),
            Some(_) => self.frequent.push_front(&mut self.links, slot.0),
        }
        self.is_frequent[slot.at()] = lost.is_some();
        self.forget_surplus();
    }

    fn on_remove(&mut self, page: PageId, slot: SlotId, why: Removal) {
        let (list, lost) = match self.is_frequent[slot.at()] {
            true => (&mut self.frequent, Lost::Frequent),
            false => (&mut self.recent, Lost::Recent),
        };
        list.remove(&mut self.links, slot.0);
        if why == Removal::Evicted {
            self.lost.insert(page, lost);
        }
    }

    fn bytes(&self) -> usize {
        self.links.bytes() + self.is_frequent.capacity() + self.lost.bytes()
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
                let forgotten = page.is_some_and(|page| self.lost.find(page).is_none());
                assert!(
                    forgotten,
                    "a listed slot holds a page, which is in no ghost list"
                );
            }
        }
        // Between an eviction and the admission it made room for there is one more.
        let surplus = self.known().saturating_sub(2 * u64::from(self.capacity));
        assert!(surplus <= 1, "the directory is bounded");
        assert!(self.target >= 0.0 && self.target <= f64::from(self.capacity));
        self.lost.assert_invariants();
    }
}
