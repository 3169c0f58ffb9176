//! Priority groups: the storage side of hStorage-DB (VLDB 2012 §3.2, §5.1).
//!
//! *Algorithm*: the policy assignment table ([`Assignment`]) gives every request one of N
//! priorities by its hints; a smaller number is a better chance to be cached. A page on flash is
//! in the group of the last priority its requests gave it, least recently used last. With the
//! threshold t = N − 1 the two last priorities never cache:
//!
//! | priority | an absent page | a page on flash |
//! |---|---|---|
//! | 1 … N−2 | comes in (below) | moves to the front of that group |
//! | N−1, "non-caching and non-eviction" | stays out | keeps group and place |
//! | N, "non-caching and eviction" | stays out | moves to group N: next to leave |
//!
//! A page comes in if there is room, or a page of the same or a larger number to evict.
//! The victim is the least recently used page of the last group that has pages. Priorities from t
//! on never cache; t is N − 1 unless it is set, and whatever it is, N alone makes pages leave.
//!
//! *The write buffer* (rule 4, §4.2.4; write-back only). A page that is newer on flash than on base
//! is in the write buffer instead of a group, and nothing evicts it. While the buffer has at most a
//! share b of the slots, a page comes into it whatever has to leave. Past b all that is in it is
//! written to base, in base order; each page then has the priority of its last request.
//!
//! ```text
//!   absent --admitted--> in group k <--request--> in group j
//!     ^                   |      ^
//!     |          on_dirty |      | on_clean: base has it
//!     +-- trimmed --- in the write buffer, remembers k
//! ```
//!
//! §5.1 names six actions: *cache hit*; *read allocation* and *write allocation* (both are an
//! admission); *bypassing* (a refusal, counted as `bypass` or `cold`); *re-allocation* (from one
//! group to another); *eviction*.
//!
//! # Invariants
//! 1. Every page on flash is in one group or in the write buffer.
//! 2. Groups t … N − 1 are empty.
//! 3. Pages in the write buffer are dirty.
//!
//! *Cost*: O(1) a request (O(pinned) to find a victim). *Memory*: 9 bytes a slot, 12 a group.
//!
//! # Where the paper leaves a choice
//! - *Read allocation* (§5.1, action 2 and footnote) is asynchronous unless it is set to
//!   `synchronous`: the request is answered from base, and a background writer brings the page to
//!   flash. Synchronous: the answer waits until the page is there.
//! - *t* (§3.2) may be 0 or 1 in the paper, where nothing is ever cached; here it is at least 2.
//! - *Temporary files* that are deleted are trimmed (§4.2.3): their pages leave at once. For a
//!   source that cannot say so, reads with priority N do the same ("legacy file system").
//! - *Past b* (§4.2.4) updates go on while the flush does. Until it has made room, a page that is
//!   not on flash comes in as its priority in the table allows, and else goes to base.
//! - *"All content"* (§4.2.4) is what is in the buffer when it is found to be past b. What is
//!   written while the flush goes on is in the buffer anew.
//! - *After the flush* the paper gives a page no priority. It gets that of its last request; where
//!   that never caches and the page came in by a write, the last group that caches.
//! - *Reads of a page in the buffer* do not take it out (§4.2.4 counts "data written by update
//!   requests"); they change what it will have after the flush.
//! - *Temporary files* are no updates (rule 3): their pages come in by the table and stay in their
//!   group, dirty or not. Evicted dirty, they pass through the tier's reserve.
//! - *Logs* are on a disk of their own in §6.1. Written to the tier, they are updates.
//! - *Updates under write-through*: base has to be written in any case, so a buffer would save
//!   nothing, and there is none. What the built-in tables do with an update is said at
//!   [`Assignment::built_in`].
//! - *A page of unknown hints* (after a restart or a change of policy) has the default priority.

mod table;

pub use table::{Assignment, BuiltIn, Condition, PriorityRule};

use super::{
    Access, Decision, Opportunity, PolicyOptions, Refusal, Removal, TierPolicy, WriteBuffer,
    evictable_from_back,
};
use crate::hint::{FileKind, HintSet};
use crate::list::{Links, List};
use crate::page::{PageId, SlotId};
use crate::tier::SlotTable;

/// {N, t, b} of §3.2, the table that goes with it, and how pages are allocated (§5.1).
#[derive(Clone, Debug, PartialEq)]
pub struct PriorityConfig {
    /// The policy assignment table; has N.
    pub table: Assignment,
    /// t: requests of this priority and later ones are never cached. 0 for N − 1.
    pub threshold: u8,
    /// b: share of the slots that updates may take from pages of any priority (write-back).
    pub write_buffer: f64,
    /// Whether a read is answered only when the page it brought in is on flash.
    pub synchronous: bool,
}

impl Default for PriorityConfig {
    /// The general table, t = N − 1, and b = 10 % as in §4.2.4.
    fn default() -> Self {
        Self {
            table: Assignment::default(),
            threshold: 0,
            write_buffer: 0.1,
            synchronous: false,
        }
    }
}

impl PriorityConfig {
    /// t, from 2 to N.
    #[must_use]
    pub fn threshold(&self) -> u8 {
        let n = self.table.priorities();
        match self.threshold {
            0 => n - 1,
            t => t.clamp(2, n),
        }
    }
}

/// Set in a slot's priority while its page is in the write buffer.
const BUFFERED: u8 = 0x80;

/// See the module text.
#[derive(Debug)]
pub struct Priority {
    table: Assignment,
    threshold: u8,
    synchronous: bool,
    /// Pages in the write buffer, and with more than how many it is flushed.
    buffer: WriteBuffer,
    /// Group of priority k at k − 1; the least recently used page is at the back.
    groups: Vec<List>,
    links: Links,
    /// Priority of the page in each slot; in the write buffer the one it has after, and
    /// [`BUFFERED`].
    priority: Vec<u8>,
    /// The last hint set asked for, and its priority: requests come in runs.
    last: (HintSet, u8),
    admit_on_write: bool,
}

impl Priority {
    /// Empty groups for `options.capacity` slots.
    #[must_use]
    pub fn new(options: &PolicyOptions) -> Self {
        let PriorityConfig { table, .. } = options.priority.clone();
        let last = (HintSet::UNKNOWN, table.priority(&HintSet::UNKNOWN));
        Self {
            groups: vec![List::default(); usize::from(table.priorities())],
            links: Links::new(options.capacity),
            priority: vec![0; options.capacity as usize],
            last,
            threshold: options.priority.threshold(),
            synchronous: options.priority.synchronous,
            buffer: WriteBuffer {
                pages: 0,
                most: (f64::from(options.capacity) * options.priority.write_buffer) as u32,
            },
            table,
            admit_on_write: options.admit_on_write,
        }
    }

    /// Pages in the group of `priority`, from 1.
    #[must_use]
    pub fn group_len(&self, priority: u8) -> u32 {
        self.groups[usize::from(priority) - 1].len()
    }

    fn priority_of(&mut self, hints: &HintSet) -> u8 {
        if self.last.0 != *hints {
            self.last = (*hints, self.table.priority(hints));
        }
        self.last.1
    }

    fn insert(&mut self, slot: SlotId, priority: u8) {
        debug_assert!(priority > 0 && priority <= self.table.priorities());
        self.priority[slot.at()] = priority;
        self.groups[usize::from(priority) - 1].push_front(&mut self.links, slot.0);
    }

    /// Takes the page in `slot` out of its group or the write buffer.
    fn remove(&mut self, slot: SlotId) {
        let priority = self.priority[slot.at()];
        debug_assert!(priority > 0, "a page on flash has a priority");
        if priority & BUFFERED != 0 {
            self.buffer.pages -= 1;
            self.priority[slot.at()] = 0;
            return;
        }
        self.groups[usize::from(priority) - 1].remove(&mut self.links, slot.0);
        self.priority[slot.at()] = 0;
    }

    /// Whether a request of `priority` lets no page in (§3.2).
    fn never_caches(&self, priority: u8) -> bool {
        priority >= self.threshold
    }

    /// The priority a page that is not on flash competes with; none when it stays out.
    fn standing(&mut self, access: &Access, why: Opportunity) -> Result<u8, Refusal> {
        let temporary = access.hints.file_kind() == FileKind::Temporary;
        let update = why == Opportunity::Clean && !temporary;
        if update && self.buffer.pages < self.buffer.most {
            return Ok(1);
        }
        let write = matches!(why, Opportunity::Write | Opportunity::Clean);
        if why == Opportunity::PoolEviction || (write && !update && !self.admit_on_write) {
            return Err(Refusal::Opportunity);
        }
        let priority = self.priority_of(&access.hints);
        match self.never_caches(priority) {
            true => Err(Refusal::Bypass),
            false => Ok(priority),
        }
    }

    /// Selective eviction (§5.1) among the pages that one of `priority` may replace.
    fn victim(&self, priority: u8, slots: &SlotTable) -> Result<SlotId, Refusal> {
        let candidates = &self.groups[usize::from(priority) - 1..];
        let mut from_last = candidates.iter().rev();
        let found = from_last.find_map(|list| evictable_from_back(list, &self.links, slots));
        let all_pinned = candidates.iter().any(|list| !list.is_empty());
        found.ok_or(match all_pinned {
            true => Refusal::Pinned,
            false => Refusal::Cold,
        })
    }
}

impl TierPolicy for Priority {
    fn name(&self) -> &'static str {
        "priority"
    }

    fn on_request(&mut self, access: &Access, resident: Option<SlotId>) {
        let priority = self.priority_of(&access.hints);
        let Some(slot) = resident else { return };
        if self.never_caches(priority) && priority < self.table.priorities() {
            return;
        }
        if self.is_buffered(slot) {
            self.priority[slot.at()] = BUFFERED | priority;
            return;
        }
        self.remove(slot);
        self.insert(slot, priority);
    }

    fn decide(&mut self, access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        let priority = match self.standing(access, why) {
            Ok(priority) => priority,
            Err(why) => return Decision::Refuse(why),
        };
        if slots.has_room() {
            return Decision::Admit;
        }
        match self.victim(priority, slots) {
            Ok(slot) => Decision::Replace(slot),
            Err(why) => Decision::Refuse(why),
        }
    }

    fn on_admit(&mut self, access: &Access, slot: SlotId) {
        debug_assert_eq!(self.priority[slot.at()], 0, "a free slot has no priority");
        // Updates, and pages put back after a restart, may have a priority that never caches.
        let last_cached = self.threshold - 1;
        let priority = self.priority_of(&access.hints).min(last_cached);
        self.insert(slot, priority);
    }

    fn on_remove(&mut self, _page: PageId, slot: SlotId, _why: Removal) {
        self.remove(slot);
    }

    fn on_dirty(&mut self, access: &Access, slot: SlotId) {
        if access.hints.file_kind() == FileKind::Temporary || self.is_buffered(slot) {
            return;
        }
        let priority = self.priority[slot.at()];
        self.remove(slot);
        self.priority[slot.at()] = BUFFERED | priority;
        self.buffer.pages += 1;
    }

    fn on_clean(&mut self, slot: SlotId) {
        if self.is_buffered(slot) {
            let priority = self.priority[slot.at()] & !BUFFERED;
            self.remove(slot);
            self.insert(slot, priority);
        }
    }

    fn write_buffer(&self) -> Option<WriteBuffer> {
        Some(self.buffer)
    }

    fn is_buffered(&self, slot: SlotId) -> bool {
        let priority = self.priority.get(slot.at());
        priority.is_some_and(|priority| priority & BUFFERED != 0)
    }

    fn is_synchronous(&self) -> bool {
        self.synchronous
    }

    fn bytes(&self) -> usize {
        self.links.bytes() + self.priority.capacity() + self.groups.capacity() * size_of::<List>()
    }

    fn assert_invariants(&self, slots: &SlotTable) {
        let mut listed = 0;
        for (group, priority) in self.groups.iter().zip(1u8..) {
            for id in group.iter_from_back(&self.links) {
                assert_eq!(
                    self.priority[id as usize], priority,
                    "a page is in its group"
                );
                assert!(slots.page(SlotId(id)).is_some(), "groups hold residents");
                listed += 1;
            }
        }
        let buffered = |slot: &SlotId| self.is_buffered(*slot);
        let buffer = (0..self.priority.len() as u32).map(SlotId).filter(buffered);
        let mut pages = 0;
        for slot in buffer {
            assert!(
                slots.page(slot).is_some() && slots.is_dirty(slot),
                "invariant 3"
            );
            pages += 1;
        }
        assert_eq!(pages, self.buffer.pages, "the buffer is counted");
        assert_eq!(listed + pages, slots.resident(), "invariant 1");
        let last = usize::from(self.table.priorities()) - 1;
        let never = &self.groups[usize::from(self.threshold) - 1..last];
        let empty = never.iter().all(List::is_empty);
        assert!(never.is_empty() || empty, "invariant 2");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint::hint_type;
    use crate::page::ObjectId;
    use crate::policy::Op;
    use proptest::prelude::*;

    /// Eight priorities; hint type 5 says which, 0 is the default of 5.
    fn by_custom_hint() -> Assignment {
        let rule = |priority: u8| PriorityRule {
            conditions: vec![Condition::new(hint_type::FIRST_CUSTOM, [priority.into()])],
            priority,
        };
        Assignment::new(8, (1..=8).map(rule).collect(), 5)
    }

    struct Tier {
        policy: Priority,
        slots: SlotTable,
        number: u64,
    }

    impl Tier {
        fn new(capacity: u32) -> Self {
            let options = PolicyOptions {
                priority: PriorityConfig {
                    table: by_custom_hint(),
                    ..PriorityConfig::default()
                },
                ..PolicyOptions::new(capacity)
            };
            Self {
                policy: Priority::new(&options),
                slots: SlotTable::new(capacity),
                number: 0,
            }
        }

        /// A read of page `index` with `priority`: what was decided; none when it was a hit.
        fn read(&mut self, index: u64, priority: u32) -> Option<Decision> {
            self.number += 1;
            let access = Access {
                page: PageId::new(ObjectId(1), index),
                op: Op::Read,
                hints: HintSet::UNKNOWN.with(hint_type::FIRST_CUSTOM, priority),
                number: self.number,
            };
            let resident = self.slots.find(access.page);
            self.policy.on_request(&access, resident);
            if resident.is_some() {
                return None;
            }
            let decision = self.policy.decide(&access, Opportunity::Read, &self.slots);
            match decision {
                Decision::Refuse(_) => return Some(decision),
                Decision::Replace(slot) => {
                    let page = self.slots.remove(slot);
                    self.policy.on_remove(page, slot, Removal::Evicted);
                }
                Decision::Admit => {}
            }
            let slot = self.slots.admit(access.page).expect("room was made");
            self.policy.on_admit(&access, slot);
            self.policy.assert_invariants(&self.slots);
            Some(decision)
        }

        fn holds(&self, index: u64) -> bool {
            self.slots.find(PageId::new(ObjectId(1), index)).is_some()
        }
    }

    /// §5.1: a newcomer evicts a page of its own group or a later one, never of an earlier one.
    #[test]
    fn selective_allocation_and_eviction() {
        let mut tier = Tier::new(3);
        for (page, priority) in [(1, 1), (2, 3), (3, 3)] {
            assert_eq!(tier.read(page, priority), Some(Decision::Admit));
        }
        assert_eq!(tier.read(4, 4), Some(Decision::Refuse(Refusal::Cold)));
        assert_eq!(tier.read(2, 3), None, "a hit makes page 3 the older one");
        assert!(matches!(tier.read(5, 3), Some(Decision::Replace(_))));
        assert!(tier.holds(1) && tier.holds(2) && !tier.holds(3) && tier.holds(5));
        assert!(matches!(tier.read(6, 1), Some(Decision::Replace(_))));
        assert!(!tier.holds(2), "the least recently used of the last group");
        assert!(matches!(tier.read(7, 1), Some(Decision::Replace(_))));
        assert_eq!(tier.policy.group_len(1), 3);
        assert_eq!(tier.read(8, 2), Some(Decision::Refuse(Refusal::Cold)));
    }

    /// §4.2.1: priority N − 1 changes neither group nor place; §4.2.3: priority N moves a page
    /// to where the next victim comes from, and neither lets a page in.
    #[test]
    fn the_two_priorities_that_never_cache() {
        let mut tier = Tier::new(2);
        let bypass = Some(Decision::Refuse(Refusal::Bypass));
        assert_eq!(tier.read(1, 7), bypass, "though there is room");
        assert_eq!(tier.read(1, 8), bypass);
        tier.read(1, 3);
        tier.read(2, 3);
        assert_eq!(tier.read(1, 7), None);
        assert_eq!(tier.policy.group_len(3), 2, "it kept its group");
        tier.read(3, 3);
        assert!(!tier.holds(1) && tier.holds(2), "and its place in it");
        tier.read(4, 1);
        assert!(!tier.holds(2) && tier.holds(3) && tier.holds(4));
        assert_eq!(tier.read(4, 8), None);
        assert_eq!(tier.policy.group_len(8), 1);
        assert!(matches!(tier.read(5, 6), Some(Decision::Replace(_))));
        assert!(
            !tier.holds(4) && tier.holds(3),
            "even for one of low priority"
        );
    }

    #[test]
    fn re_allocation_follows_the_last_request() {
        let mut tier = Tier::new(2);
        tier.read(1, 1);
        tier.read(2, 2);
        tier.read(1, 6);
        assert_eq!(tier.policy.group_len(1), 0);
        tier.read(3, 5);
        assert!(
            !tier.holds(1) && tier.holds(2),
            "page 1 was in group 6 when it left"
        );
    }

    proptest! {
        /// Beside one list of (priority, page), most recent first.
        #[test]
        fn equals_the_plainest_code(
            capacity in 1usize..6,
            reads in prop::collection::vec((0u64..12, 0u32..9), 1..200),
        ) {
            let mut tier = Tier::new(capacity as u32);
            let mut model: Vec<(u32, u64)> = Vec::new();
            for (page, hint) in reads {
                let priority = if hint == 0 { 5 } else { hint };
                tier.read(page, hint);
                if let Some(at) = model.iter().position(|e| e.1 == page) {
                    if priority != 7 {
                        model.remove(at);
                        model.insert(0, (priority, page));
                    }
                } else if priority < 7 {
                    let last = model.iter().map(|e| e.0).max().unwrap_or(0);
                    if model.len() == capacity && last >= priority {
                        let oldest = model.iter().rposition(|e| e.0 == last).expect("max");
                        model.remove(oldest);
                    }
                    if model.len() < capacity {
                        model.insert(0, (priority, page));
                    }
                }
                prop_assert_eq!(tier.slots.resident() as usize, model.len());
                for (_, page) in &model {
                    prop_assert!(tier.holds(*page));
                }
            }
        }
    }
}
