//! CLIC: client-informed caching (thesis chapter 3).
//!
//! *Algorithm*: a page is worth what its last request's hint set H has turned out to be worth:
//! Pr(H) = (Nr/N)/D, the share of requests with H whose page is read next, per request for which
//! it must be kept (§3.2.1). A newcomer comes in over the page of lowest priority, of those the
//! one not requested for longest, if its own priority is higher (figure 3.7). N, Nr and D are
//! counted in windows of requests (§3.2.3); nothing is known beforehand about any hint.
//! `clic` tells all hint sets apart, `clic-topk` the most frequent (§3.3.1), `clic-hybrid` the
//! most frequent when only the hint types that say most are looked at (chapter 5).
//!
//! *Cost*: O(1) expected a request and, to find a victim, amortised O(log groups): a heap of
//! groups, each with a list of its pages by request (§3.2.4). Keys may be too small, never too
//! large (a list's last request only grows), so the top is refreshed until it is true.
//! *Memory*: see [`super::hints`]; the heap adds 25 bytes a group.
//!
//! # Where the thesis leaves a choice
//! - *Equal priorities*: figure 3.7, line 12 refuses, and so does the default where hints tell
//!   pages apart. Where they do not, refusing would freeze the tier: [`Ties::Informed`].
//! - *Before the first window closes* all priorities are 0: LRU.
//! - *Writes* are opportunities as much as reads (§3.2), unless `admit_on_write` is off.
//! - *Pinned pages* are passed over.

use super::hints::{ClicConfig, Counts, Evidence, GroupId, HintKeys, HintedPages};
use super::{
    Access, Decision, Learned, Op, Opportunity, PolicyOptions, Refusal, Removal, TierPolicy, takes,
};
use crate::page::{ObjectId, PageId, SlotId};
use crate::tier::SlotTable;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::collections::binary_heap::PeekMut;

/// Whether a newcomer replaces a page of equal priority.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ties {
    /// Never (figure 3.7, line 12), once a window has closed.
    Refuse,
    /// Never where hints tell pages apart, that is, where two hint sets have different priorities
    /// above 0; else as [`Ties::Overdue`], as a tier whose pages are all alike would freeze.
    Informed,
    /// Always: LRU among equals.
    Admit,
    /// If the page is overdue: not requested for longer than its hint set's mean distance D, or,
    /// where that is not known, for a window.
    Overdue,
}

/// Nothing besides N, Nr and D.
#[derive(Clone, Copy, Debug)]
struct Plain;

impl Evidence for Plain {
    fn record(&mut self, _distance: u64, _op: Op) {}

    fn join(&mut self, _older: &Self, _weight: f64) {}

    fn conclude(&mut self, counts: &Counts) -> f64 {
        counts.priority()
    }

    fn clear(&mut self) {}

    fn bytes(&self) -> usize {
        0
    }
}

/// Key of a group in the heap: priority (as the bits of a number that is not negative, which
/// order like it), last request of its oldest page, number.
type Key = Reverse<(u64, u64, GroupId)>;

/// See the module text.
#[derive(Debug)]
pub struct Clic {
    name: &'static str,
    pages: HintedPages<Plain>,
    /// Every group with pages, at most once each.
    heap: BinaryHeap<Key>,
    queued: Vec<bool>,
    /// Groups passed over while a victim is looked for; kept to allocate once.
    aside: Vec<Key>,
    ties: Ties,
    admit_on_write: bool,
}

/// Groups tried before an admission is refused because their pages are pinned.
const PINNED_MAX: usize = 16;

impl Clic {
    /// An empty policy for `options.capacity` slots that tells hint sets apart by `keys`.
    #[must_use]
    pub fn new(keys: HintKeys, options: &PolicyOptions) -> Self {
        let ClicConfig { ties, .. } = options.clic;
        Self {
            name: match keys {
                HintKeys::All => "clic",
                HintKeys::TopK => "clic-topk",
                HintKeys::Hybrid => "clic-hybrid",
            },
            pages: HintedPages::new(keys, options, Plain),
            heap: BinaryHeap::new(),
            queued: vec![false],
            aside: Vec::with_capacity(PINNED_MAX),
            ties,
            admit_on_write: options.admit_on_write,
        }
    }

    /// Pr of the page in `slot`.
    #[must_use]
    pub fn priority(&self, slot: SlotId) -> f64 {
        self.pages.groups().priority(self.pages.group_in(slot))
    }

    fn key(&self, group: GroupId, oldest: u32) -> Key {
        let priority = self.pages.groups().priority(group);
        debug_assert!(priority >= 0.0, "bits order numbers that are not negative");
        Reverse((priority.to_bits(), self.pages.seq(SlotId(oldest)), group))
    }

    /// `group` has a page.
    fn queue(&mut self, group: GroupId) {
        if group.at() >= self.queued.len() {
            self.queued.resize(group.at() + 1, false);
        }
        if self.queued[group.at()] {
            return;
        }
        if let Some(oldest) = self.pages.list(group).back() {
            self.queued[group.at()] = true;
            self.heap.push(self.key(group, oldest));
        }
    }

    /// Priorities and lists are new. O(groups).
    fn requeue(&mut self) {
        self.heap.clear();
        self.queued.fill(false);
        for id in 0..self.pages.groups().numbers() {
            self.queue(GroupId(id));
        }
    }

    /// The group of lowest priority that has pages, of equal ones that with the oldest page.
    fn lowest(&mut self) -> Option<GroupId> {
        loop {
            let top = self.heap.peek_mut()?;
            let Reverse((_, _, group)) = *top;
            let Some(oldest) = self.pages.list(group).back() else {
                PeekMut::pop(top);
                self.queued[group.at()] = false;
                continue;
            };
            let priority = top.0.0;
            let true_key = Reverse((priority, self.pages.seq(SlotId(oldest)), group));
            if *top == true_key {
                return Some(group);
            }
            debug_assert!(top.0 < true_key.0, "keys are never too large");
            let mut top = top;
            *top = true_key;
        }
    }

    /// Figure 3.7, lines 7 to 11: the page to leave.
    fn victim(&mut self, slots: &SlotTable) -> Option<SlotId> {
        let mut found = None;
        while found.is_none() && self.aside.len() < PINNED_MAX {
            let Some(group) = self.lowest() else { break };
            let list = self.pages.list(group);
            found = super::evictable_from_back(list, self.pages.links(), slots);
            if found.is_none() {
                self.aside.extend(self.heap.pop());
            }
        }
        self.heap.extend(self.aside.drain(..));
        found
    }
}

impl TierPolicy for Clic {
    fn name(&self) -> &'static str {
        self.name
    }

    fn on_request(&mut self, access: &Access, resident: Option<SlotId>) {
        let seen = self.pages.on_request(access, resident);
        if seen.closed {
            self.requeue();
        } else if resident.is_some() {
            self.queue(seen.group);
        }
    }

    fn decide(&mut self, access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        if !takes(why, self.admit_on_write) {
            return Decision::Refuse(Refusal::Opportunity);
        }
        if slots.has_room() {
            return Decision::Admit;
        }
        let Some(victim) = self.victim(slots) else {
            return Decision::Refuse(Refusal::Pinned);
        };
        let lowest = self.priority(victim);
        let priority = self.pages.groups().priority(self.pages.group_of(access));
        let better = priority > lowest;
        if better || (priority == lowest && self.pages.yields(victim, access.number, self.ties)) {
            return Decision::Replace(victim);
        }
        Decision::Refuse(Refusal::Cold)
    }

    fn on_admit(&mut self, access: &Access, slot: SlotId) {
        let group = self.pages.on_admit(access, slot);
        self.queue(group);
    }

    fn on_remove(&mut self, page: PageId, slot: SlotId, why: Removal) {
        self.pages.on_remove(page, slot, why);
    }

    fn on_trim(&mut self, object: ObjectId, first: u64) {
        self.pages.on_trim(object, first);
    }

    fn taught(&mut self, learned: &Learned, slots: f64) {
        self.pages.taught(learned, slots);
        self.requeue();
    }

    fn learned(&self) -> Option<Learned> {
        Some(self.pages.learned())
    }

    fn bytes(&self) -> usize {
        let heap = (self.heap.capacity() + self.aside.capacity()) * size_of::<Key>();
        self.pages.bytes() + heap + self.queued.capacity()
    }

    fn bytes_full(&self) -> usize {
        self.bytes() - self.pages.bytes() + self.pages.bytes_full()
    }

    fn assert_invariants(&self, slots: &SlotTable) {
        self.pages.assert_invariants(slots);
        let mut queued = vec![false; self.queued.len()];
        for Reverse((priority, _, group)) in &self.heap {
            assert!(!queued[group.at()], "a group is queued once");
            queued[group.at()] = true;
            let in_force = self.pages.groups().priority(*group);
            assert_eq!(f64::from_bits(*priority), in_force, "priorities in force");
        }
        assert_eq!(queued, self.queued, "what is queued is known");
        for (slot, _) in slots.residents() {
            let group = self.pages.group_in(slot);
            assert!(queued[group.at()], "groups with pages are queued");
        }
    }
}
