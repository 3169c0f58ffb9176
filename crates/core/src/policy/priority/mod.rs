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
//! The victim is the least recently used page of the last group that has pages. §5.1 names six
//! actions: *cache hit*; *read allocation* and *write allocation* (both are an admission);
//! *bypassing* (a refusal, counted as `bypass` or `cold`); *re-allocation* (from one group to
//! another); *eviction*.
//!
//! *Cost*: O(1) a request (O(pinned) to find a victim). *Memory*: 9 bytes a slot, 12 a group.
//!
//! # Where the paper leaves a choice
//! - *Read allocation* (§5.1, footnote) is asynchronous: the request is answered from base, and
//!   a background writer brings the page to flash.
//! - *Temporary files* that are deleted are trimmed (§4.2.3): their pages leave at once. For a
//!   source that cannot say so, reads with priority N do the same ("legacy file system").
//! - *Updates* (rule 4) go to the write buffer, a priority that wins space over any other up to a
//!   share b; past that all of it is flushed. Under write-back that buffer is the tier's reserve:
//!   a dirty page that is not on flash is refused whatever its priority, which sends it there.
//!   The reserve's size is b, its high watermark is its size, its low one 0. §4.2.4 says that the
//!   buffer is no dedicated space; the reserve is, and what it does not use stays unused. Pages
//!   of temporary files are no updates (rule 3): they come in by the table, dirty or not. A dirty
//!   page that is on flash gets its new version in its own slot, in the group of the write.
//! - *Updates under write-through*: base has to be written in any case, so a buffer would save
//!   nothing, and there is none. What the built-in tables do with an update is said at
//!   [`Assignment::built_in`].
//! - *A page of unknown hints* (after a restart or a change of policy) has the default priority.

mod table;

pub use table::{Assignment, BuiltIn, Condition, PriorityRule};

use super::{
    Access, Decision, Opportunity, PolicyOptions, Refusal, Removal, TierPolicy, evictable_from_back,
};
use crate::hint::{FileKind, HintSet};
use crate::list::{Links, List};
use crate::page::{PageId, SlotId};
use crate::tier::SlotTable;

/// See the module text.
#[derive(Debug)]
pub struct Priority {
    table: Assignment,
    /// Group of priority k at k − 1; the least recently used page is at the back.
    groups: Vec<List>,
    links: Links,
    /// Priority of the page in each slot.
    priority: Vec<u8>,
    /// The last hint set asked for, and its priority: requests come in runs.
    last: (HintSet, u8),
    admit_on_write: bool,
}

impl Priority {
    /// Empty groups for `options.capacity` slots.
    #[must_use]
    pub fn new(options: &PolicyOptions) -> Self {
        let table = options.priority.clone();
        let last = (HintSet::UNKNOWN, table.priority(&HintSet::UNKNOWN));
        Self {
            groups: vec![List::default(); usize::from(table.priorities())],
            links: Links::new(options.capacity),
            priority: vec![0; options.capacity as usize],
            last,
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

    fn remove(&mut self, slot: SlotId) {
        let priority = self.priority[slot.at()];
        debug_assert!(priority > 0, "a page on flash has a priority");
        self.groups[usize::from(priority) - 1].remove(&mut self.links, slot.0);
        self.priority[slot.at()] = 0;
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
        if priority == self.table.threshold() {
            return;
        }
        self.remove(slot);
        self.insert(slot, priority);
    }

    fn decide(&mut self, access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        match why {
            Opportunity::PoolEviction => return Decision::Refuse(Refusal::Opportunity),
            // To the write buffer.
            Opportunity::Clean if access.hints.file_kind() != FileKind::Temporary => {
                return Decision::Refuse(Refusal::Opportunity);
            }
            Opportunity::Write | Opportunity::Clean if !self.admit_on_write => {
                return Decision::Refuse(Refusal::Opportunity);
            }
            _ => {}
        }
        let priority = self.priority_of(&access.hints);
        if priority >= self.table.threshold() {
            return Decision::Refuse(Refusal::Bypass);
        }
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
        // Pages that are put back after a restart may have a priority that never caches.
        let last_cached = self.table.threshold() - 1;
        let priority = self.priority_of(&access.hints).min(last_cached);
        self.insert(slot, priority);
    }

    fn on_remove(&mut self, _page: PageId, slot: SlotId, _why: Removal) {
        self.remove(slot);
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
        assert_eq!(listed, slots.resident(), "every resident is in one group");
        let threshold = usize::from(self.table.threshold());
        assert!(
            self.groups[threshold - 1].is_empty(),
            "no request puts a page into group N - 1"
        );
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
                priority: by_custom_hint(),
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
