//! LIRS: pages are ranked by the distance between their last two requests.
//!
//! *Algorithm*: the stack S holds pages by their last request, the latest on top: all LIR pages
//! (their last two requests lie close together), and those above the lowest LIR page that are HIR,
//! resident or not. The queue Q holds the resident HIR pages. A request takes its page to the top
//! of S. An HIR page that was still in S becomes LIR, and the lowest LIR page takes its place in Q;
//! one that was not stays HIR and goes to the end of Q. After that HIR pages at the bottom of S are
//! pruned, so that the lowest is LIR. The victim is the front of Q; while it is in S it is
//! remembered there (Jiang, Zhang, "LIRS: an efficient low inter-reference recency set
//! replacement policy", SIGMETRICS 2002, §3). *Cost*: O(1) amortised a request. *Memory*: 54 bytes
//! a slot, taken at the start, with one absent page a slot; plus 5 to 21 for the map of those.
//!
//! # Where the paper leaves a choice
//! - *Sizes* (§3.2: about 1 %): Q has ⌊slots / 100⌋ slots, at least one; the rest are LIR. While
//!   there are fewer LIR pages than that, a newcomer becomes LIR at once.
//! - *Absent pages in S* (§3.3 leaves them unbounded): as many as there are slots. Beyond that the
//!   one that left longest ago is forgotten. With three times as many the misses at 14 sizes of six
//!   traces changed by -10 to +4 %, most of them by less than 1 %.
//! - *Slots freed by trims* are given out at once; the share of the LIR pages is filled first.
//!
//! Departures: a page that is being read or written is passed over; when all of Q is, the lowest
//! LIR page that is not leaves, and is not remembered. Neither are pages that leave otherwise than
//! by eviction.

use super::{
    Access, Decision, Opportunity, PolicyOptions, Removal, TierPolicy, admit_always,
    evictable_from_back,
};
use crate::hash;
use crate::list::{Links, List};
use crate::page::{PageId, SlotId};
use crate::tier::SlotTable;
use hashbrown::HashTable;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Not in use.
    None,
    /// In S and not in Q.
    Lir,
    /// In S and in Q; for an absent page, in S and in the order of departure.
    HirInStack,
    /// In Q only.
    Hir,
}

/// See the module text. Nodes `0..capacity` are the slots, those behind them absent pages.
#[derive(Debug)]
pub struct Lirs {
    capacity: u32,
    lir_max: u32,
    lir: u32,
    states: Vec<State>,
    /// Neighbours in S.
    stack_links: Links,
    stack: List,
    /// Neighbours in Q or in the order of departure.
    queue_links: Links,
    queue: List,
    departed: List,
    /// Page of each absent node.
    absent_pages: Vec<PageId>,
    absent_map: HashTable<u32>,
    absent_free: Vec<u32>,
    admit_on_write: bool,
}

impl Lirs {
    /// Slots of a tier, at most.
    pub(super) const SLOTS_MAX: u32 = u32::MAX / 4;

    /// An empty policy for `options.capacity` slots.
    #[must_use]
    pub fn new(options: &PolicyOptions) -> Self {
        let capacity = options.capacity;
        assert!(
            capacity <= Self::SLOTS_MAX,
            "slots and absent pages are numbered"
        );
        let nodes = 2 * capacity;
        Self {
            capacity,
            lir_max: capacity.saturating_sub((capacity / 100).max(1)),
            lir: 0,
            states: vec![State::None; nodes as usize],
            stack_links: Links::new(nodes),
            stack: List::default(),
            queue_links: Links::new(nodes),
            queue: List::default(),
            departed: List::default(),
            absent_pages: vec![PageId::default(); capacity as usize],
            absent_map: HashTable::new(),
            absent_free: (capacity..nodes).rev().collect(),
            admit_on_write: options.admit_on_write,
        }
    }

    fn absent_page(&self, node: u32) -> PageId {
        debug_assert!(node >= self.capacity, "slots are not absent");
        self.absent_pages[(node - self.capacity) as usize]
    }

    /// Puts `slot`, which is not in S, on top of S.
    fn push_stack(&mut self, slot: u32) {
        self.stack.push_front(&mut self.stack_links, slot);
    }

    /// Makes `slot`, which is in S and not in Q, LIR; the lowest LIR page gives way if need be.
    fn make_lir(&mut self, slot: u32) {
        debug_assert!(self.lir_max > 0, "there are LIR pages");
        self.states[slot as usize] = State::Lir;
        self.lir += 1;
        if self.lir > self.lir_max {
            self.demote_lowest();
        }
    }

    /// Moves the page at the bottom of S, which is LIR, to the end of Q.
    fn demote_lowest(&mut self) {
        self.prune();
        if let Some(lowest) = self.stack.back() {
            self.stack.remove(&mut self.stack_links, lowest);
            self.states[lowest as usize] = State::Hir;
            self.queue.push_front(&mut self.queue_links, lowest);
            self.lir -= 1;
        }
        self.prune();
    }

    /// Takes pages off the bottom of S until the lowest is LIR.
    fn prune(&mut self) {
        while let Some(node) = self.stack.back() {
            match self.states[node as usize] {
                State::Lir => return,
                _ if node < self.capacity => {
                    self.stack.remove(&mut self.stack_links, node);
                    self.states[node as usize] = State::Hir;
                }
                _ => self.forget(node),
            }
        }
    }

    /// Forgets an absent page.
    fn forget(&mut self, node: u32) {
        let hash = hash::of_page(self.absent_page(node));
        let entry = self.absent_map.find_entry(hash, |n| *n == node);
        debug_assert!(entry.is_ok(), "an absent page is in the map");
        if let Ok(entry) = entry {
            entry.remove();
        }
        self.stack.remove(&mut self.stack_links, node);
        self.departed.remove(&mut self.queue_links, node);
        self.states[node as usize] = State::None;
        self.absent_free.push(node);
    }

    /// The page of `slot`, HIR and in S, is absent from now on.
    fn depart(&mut self, page: PageId, slot: u32) {
        if self.absent_free.is_empty()
            && let Some(longest) = self.departed.back()
        {
            self.forget(longest);
        }
        let Some(node) = self.absent_free.pop() else {
            return self.stack.remove(&mut self.stack_links, slot);
        };
        self.stack.replace(&mut self.stack_links, slot, node);
        self.departed.push_front(&mut self.queue_links, node);
        self.states[node as usize] = State::HirInStack;
        self.absent_pages[(node - self.capacity) as usize] = page;
        let (pages, first) = (&self.absent_pages, self.capacity);
        let rehash = |n: &u32| hash::of_page(pages[(n - first) as usize]);
        self.absent_map
            .insert_unique(hash::of_page(page), node, rehash);
    }

    /// Forgets that `page` is absent; true when it was remembered.
    fn recall(&mut self, page: PageId) -> bool {
        let found = self
            .absent_map
            .find(hash::of_page(page), |n| self.absent_page(*n) == page);
        let node = found.copied();
        if let Some(node) = node {
            self.forget(node);
        }
        node.is_some()
    }

    fn victim(&self, slots: &SlotTable) -> Option<SlotId> {
        evictable_from_back(&self.queue, &self.queue_links, slots).or_else(|| {
            let lir = |node: &u32| self.states[*node as usize] == State::Lir;
            let lowest_first = self.stack.iter_from_back(&self.stack_links).filter(lir);
            lowest_first.map(SlotId).find(|s| slots.evictable(*s))
        })
    }
}

impl TierPolicy for Lirs {
    fn name(&self) -> &'static str {
        "lirs"
    }

    fn on_request(&mut self, _access: &Access, resident: Option<SlotId>) {
        let Some(SlotId(slot)) = resident else { return };
        match self.states[slot as usize] {
            State::Lir => {
                self.stack.move_to_front(&mut self.stack_links, slot);
                self.prune();
            }
            State::HirInStack => {
                self.stack.move_to_front(&mut self.stack_links, slot);
                self.queue.remove(&mut self.queue_links, slot);
                self.make_lir(slot);
            }
            State::Hir => {
                self.push_stack(slot);
                self.states[slot as usize] = State::HirInStack;
                self.queue.move_to_front(&mut self.queue_links, slot);
                self.prune();
            }
            State::None => debug_assert!(false, "a resident page is LIR or HIR"),
        }
    }

    fn decide(&mut self, _access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        admit_always(slots, why, self.admit_on_write, || self.victim(slots))
    }

    fn on_admit(&mut self, access: &Access, slot: SlotId) {
        debug_assert_eq!(self.states[slot.at()], State::None, "the slot was free");
        let was_in_stack = self.recall(access.page);
        self.push_stack(slot.0);
        if self.lir_max > 0 && (was_in_stack || self.lir < self.lir_max) {
            return self.make_lir(slot.0);
        }
        self.states[slot.at()] = State::HirInStack;
        self.queue.push_front(&mut self.queue_links, slot.0);
        self.prune();
    }

    fn on_remove(&mut self, page: PageId, slot: SlotId, why: Removal) {
        let state = std::mem::replace(&mut self.states[slot.at()], State::None);
        if matches!(state, State::Hir | State::HirInStack) {
            self.queue.remove(&mut self.queue_links, slot.0);
        }
        match state {
            State::HirInStack if why == Removal::Evicted => self.depart(page, slot.0),
            State::Lir | State::HirInStack => self.stack.remove(&mut self.stack_links, slot.0),
            State::Hir | State::None => {}
        }
        self.lir -= u32::from(state == State::Lir);
        self.prune();
    }

    fn bytes(&self) -> usize {
        self.states.capacity() * size_of::<State>()
            + self.stack_links.bytes()
            + self.queue_links.bytes()
            + self.absent_pages.capacity() * size_of::<PageId>()
            + self.absent_map.allocation_size()
            + self.absent_free.capacity() * size_of::<u32>()
    }

    fn assert_invariants(&self, slots: &SlotTable) {
        let resident = self.queue.len() + self.lir;
        assert_eq!(resident, slots.resident(), "LIR and Q are the residents");
        assert!(self.lir <= self.lir_max, "LIR pages have their share");
        let absent = self.departed.len() as usize;
        assert_eq!(absent, self.absent_map.len(), "absent pages are in the map");
        assert_eq!(
            absent + self.absent_free.len(),
            self.absent_pages.len(),
            "absent nodes are used or free"
        );
        let lowest = self.stack.back().map(|node| self.states[node as usize]);
        assert!(matches!(lowest, None | Some(State::Lir)), "S is pruned");
        let mut counts = [0; 2];
        for node in self.stack.iter_from_back(&self.stack_links) {
            let is_slot = node < self.capacity;
            let page = is_slot.then(|| slots.page(SlotId(node))).flatten();
            assert_eq!(is_slot, page.is_some(), "a slot in S holds a page");
            counts[0] += usize::from(!is_slot);
            counts[1] += usize::from(self.states[node as usize] == State::Lir);
        }
        assert_eq!(counts, [absent, self.lir as usize], "S holds what it must");
        for slot in self.queue.iter_from_back(&self.queue_links) {
            let state = self.states[slot as usize];
            assert!(matches!(state, State::Hir | State::HirInStack), "Q is HIR");
        }
    }
}
