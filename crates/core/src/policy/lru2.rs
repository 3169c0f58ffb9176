//! LRU-2 (O'Neil, O'Neil and Weikum, SIGMOD 1993, §2).
//!
//! *Algorithm*: the victim is the page whose last request but one is furthest back; pages with one
//! known request come first, the least recently requested of them. The time of the last request
//! of an evicted page is remembered, so that a page that comes back has two.
//! *Cost*: O(1) for a request that finds its page, O(log slots) for one that does not (each hit is
//! paid for once more when the heap is put in order). *Memory*: 33 bytes a slot, and an entry of a
//! [`Ghost`] for each of at most four times as many remembered pages.
//!
//! # Where the paper leaves a choice
//! - *Correlated reference period* (§2.1.1): 0, every request counts. Below a DRAM cache there are
//!   hardly any correlated requests left.
//! - *Retained information period* (§2.1.2, a time): a number of pages instead, those evicted last,
//!   four a slot. [`Lru2::with_history`] takes another number; with as many as there are pages it
//!   is the paper's LRU-2. On the OLTP trace of the ARC paper four a slot miss 605,171 times with
//!   1,000 slots where no bound gives 605,176, and exactly as often from 5,000 slots on. On
//!   cloudPhysicsIO with 489 slots it is 95,195 and 95,441: old history is no help there.
//! - *Without any history* (what some systems call LRU-K) a page that left has to prove itself from
//!   nothing; that is another policy.
//! - *Requests that bring nothing in* (refused, or writes that may not admit) are no part of a
//!   page's history.
//! - *Free slots* (trims and failures): taken without a victim. Pages that did not leave by
//!   eviction are not remembered.

use super::{
    Access, Decision, Opportunity, PolicyOptions, Refusal, Removal, TierPolicy, admit_always,
    evictable_from_back, takes,
};
use crate::ghost::Ghost;
use crate::heap::IndexedHeap;
use crate::list::{Links, List};
use crate::page::{PageId, SlotId};
use crate::tier::SlotTable;

/// Remembered pages per slot.
const REMEMBERED_PER_SLOT: u32 = 4;

/// Request numbers of a page's last request and of the one before, 0 when there was none.
#[derive(Clone, Copy, Debug, Default)]
struct History {
    last: u64,
    before: u64,
}

/// See the module text.
#[derive(Debug)]
pub struct Lru2 {
    links: Links,
    /// Pages with one known request, in order of recency.
    once: List,
    /// The others by their last request but one. A key is brought up to date when it is on top:
    /// requests only make it larger.
    twice: IndexedHeap,
    histories: Vec<History>,
    /// Last request of evicted pages.
    evicted: Ghost<u64>,
    evicted_max: u32,
    /// Candidates set aside while a victim is looked for; kept to allocate once.
    set_aside: Vec<(f64, u32)>,
    /// Requests so far.
    now: u64,
    admit_on_write: bool,
}

impl Lru2 {
    /// An empty policy for `options.capacity` slots that remembers four evicted pages a slot.
    #[must_use]
    pub fn new(options: &PolicyOptions) -> Self {
        let remembered = options.capacity.saturating_mul(REMEMBERED_PER_SLOT);
        Self::with_history(options, remembered)
    }

    /// An empty policy for `options.capacity` slots that remembers `pages` evicted pages.
    #[must_use]
    pub fn with_history(options: &PolicyOptions, pages: u32) -> Self {
        let evicted_max = pages.min(u32::MAX - 2);
        Self {
            links: Links::new(options.capacity),
            once: List::default(),
            twice: IndexedHeap::new(options.capacity),
            histories: vec![History::default(); options.capacity as usize],
            // A victim enters before the newcomer leaves: one more.
            evicted: Ghost::new(evicted_max + 1),
            evicted_max,
            set_aside: Vec::new(),
            now: 0,
            admit_on_write: options.admit_on_write,
        }
    }

    /// What to do with a page that comes in in any case: a free slot, else a victim's.
    pub(super) fn make_room(&mut self, slots: &SlotTable) -> Decision {
        admit_always(slots, Opportunity::Read, true, || {
            evictable_from_back(&self.once, &self.links, slots)
                .or_else(|| self.oldest_of_twice(slots))
        })
    }

    /// The page whose last request but one is furthest back, of those with two known requests.
    fn oldest_of_twice(&mut self, slots: &SlotTable) -> Option<SlotId> {
        let mut found = None;
        while let Some((stale, id)) = self.twice.peek() {
            let key = self.histories[id as usize].before as f64;
            debug_assert!(stale <= key, "requests only make a key larger");
            if stale < key {
                self.twice.update(id, key);
            } else if slots.evictable(SlotId(id)) {
                found = Some(SlotId(id));
                break;
            } else {
                self.twice.remove(id);
                self.set_aside.push((key, id));
            }
        }
        for (key, id) in self.set_aside.drain(..) {
            self.twice.insert(id, key);
        }
        found
    }
}

impl TierPolicy for Lru2 {
    fn name(&self) -> &'static str {
        "lru2"
    }

    fn on_request(&mut self, _access: &Access, resident: Option<SlotId>) {
        self.now += 1;
        let Some(slot) = resident else {
            return;
        };
        let history = &mut self.histories[slot.at()];
        let first_repeat = history.before == 0;
        history.before = history.last;
        history.last = self.now;
        if first_repeat {
            self.once.remove(&mut self.links, slot.0);
            self.twice.insert(slot.0, history.before as f64);
        }
    }

    fn decide(&mut self, _access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        match takes(why, self.admit_on_write) {
            true => self.make_room(slots),
            false => Decision::Refuse(Refusal::Opportunity),
        }
    }

    fn on_admit(&mut self, access: &Access, slot: SlotId) {
        let before = self.evicted.remove(access.page);
        self.histories[slot.at()] = History {
            // A page that is there before the first request counts as requested by it.
            last: self.now.max(1),
            before: before.unwrap_or(0),
        };
        match before {
            Some(before) => self.twice.insert(slot.0, before as f64),
            None => self.once.push_front(&mut self.links, slot.0),
        }
        if self.evicted.len() > self.evicted_max {
            self.evicted.pop_oldest();
        }
    }

    fn on_remove(&mut self, page: PageId, slot: SlotId, why: Removal) {
        if self.twice.remove(slot.0).is_none() {
            self.once.remove(&mut self.links, slot.0);
        }
        if why == Removal::Evicted {
            self.evicted.insert(page, self.histories[slot.at()].last);
        }
    }

    fn bytes(&self) -> usize {
        self.links.bytes()
            + self.twice.bytes()
            + self.histories.capacity() * size_of::<History>()
            + self.evicted.bytes()
            + self.set_aside.capacity() * size_of::<(f64, u32)>()
    }

    fn assert_invariants(&self, slots: &SlotTable) {
        assert_eq!(
            self.once.len() as usize + self.twice.len(),
            slots.resident() as usize,
            "list and heap hold exactly the residents"
        );
        for id in self.once.iter_from_back(&self.links) {
            assert_eq!(self.histories[id as usize].before, 0, "one known request");
        }
        for (slot, page) in slots.residents() {
            let history = self.histories[slot.at()];
            assert!(history.before <= history.last, "requests are in order");
            assert_eq!(self.twice.key(slot.0).is_some(), history.before > 0);
            assert!(!self.evicted.contains(page), "a resident was not evicted");
        }
        self.twice.assert_invariants();
        self.evicted.assert_invariants();
    }
}
