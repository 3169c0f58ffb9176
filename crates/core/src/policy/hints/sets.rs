//! Hint sets as small numbers: what a page remembers of its last request is four bytes.
//!
//! A number stands for one hint set as long as a page remembers it. The table is bounded; a hint
//! set that does not fit is [`SetId::OTHER`], about which nothing is learned.
//!
//! Memory: 64 bytes a hint set, plus 5 to 10 for the map.
//!
//! # Invariants (checked by [`HintSets::assert_invariants`])
//! 1. Every hint set has one number and is found under it.
//! 2. A number is free, or stands for a hint set; `OTHER` is never given out.

use super::groups::GroupId;
use crate::hash;
use crate::hint::HintSet;
use hashbrown::HashTable;

/// A hint set's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetId(pub u32);

impl SetId {
    /// Every hint set that is not told apart.
    pub const OTHER: Self = Self(0);

    /// The number as an index.
    #[must_use]
    pub const fn at(self) -> usize {
        self.0 as usize
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    hints: HintSet,
    /// Pages that remember it.
    pages: u32,
    group: GroupId,
    /// What its requests are counted as in this window.
    subject: SetId,
}

/// Hint sets that are told apart now. See the module text.
#[derive(Clone, Debug)]
pub struct HintSets {
    entries: Vec<Entry>,
    map: HashTable<u32>,
    free: Vec<u32>,
    max: u32,
    /// The last one asked for: requests come in runs.
    last: SetId,
}

impl HintSets {
    /// An empty table of at most `max` hint sets.
    #[must_use]
    pub fn new(max: u32) -> Self {
        assert!(max < u32::MAX, "numbers start at 1");
        let other = Entry {
            hints: HintSet::UNKNOWN,
            pages: 0,
            group: GroupId::REST,
            subject: SetId::OTHER,
        };
        Self {
            entries: vec![other],
            map: HashTable::new(),
            free: Vec::new(),
            max,
            last: SetId::OTHER,
        }
    }

    /// Hint sets told apart.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.map.len() as u32
    }

    /// Whether no hint set has a number.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// The number of `hints`, if it has one. O(1) expected.
    #[must_use]
    pub fn find(&self, hints: &HintSet) -> Option<SetId> {
        if self.last != SetId::OTHER && self.entries[self.last.at()].hints == *hints {
            return Some(self.last);
        }
        let same = |&id: &u32| self.entries[id as usize].hints == *hints;
        self.map
            .find(hash::of_hints(hints), same)
            .map(|&id| SetId(id))
    }

    /// The number of `hints`, and whether it was given just now (in no group and counted as
    /// itself). `OTHER` when the table is full. O(1) expected.
    pub fn intern(&mut self, hints: &HintSet) -> (SetId, bool) {
        if let Some(id) = self.find(hints) {
            self.last = id;
            return (id, false);
        }
        if self.len() == self.max {
            return (SetId::OTHER, false);
        }
        let id = self.free.pop().unwrap_or(self.entries.len() as u32);
        let entry = Entry {
            hints: *hints,
            pages: 0,
            group: GroupId::REST,
            subject: SetId(id),
        };
        match self.entries.get_mut(id as usize) {
            Some(place) => *place = entry,
            None => self.entries.push(entry),
        }
        let entries = &self.entries;
        let rehash = |&id: &u32| hash::of_hints(&entries[id as usize].hints);
        self.map.insert_unique(hash::of_hints(hints), id, rehash);
        self.last = SetId(id);
        debug_assert!(id > 0 && self.len() <= self.max, "invariant 2");
        (SetId(id), true)
    }

    /// The hint set with number `id`.
    #[must_use]
    pub fn hints(&self, id: SetId) -> &HintSet {
        &self.entries[id.at()].hints
    }

    /// The group of `id` (see [`super::groups`]).
    #[must_use]
    pub fn group(&self, id: SetId) -> GroupId {
        self.entries[id.at()].group
    }

    /// Puts `id` into `group`; gives whether that changes the group of any page.
    pub fn set_group(&mut self, id: SetId, group: GroupId) -> bool {
        debug_assert!(id != SetId::OTHER, "the others have no group");
        let entry = &mut self.entries[id.at()];
        let changes = entry.group != group && entry.pages > 0;
        entry.group = group;
        changes
    }

    /// What requests with `id` are counted as.
    #[must_use]
    pub fn subject(&self, id: SetId) -> SetId {
        self.entries[id.at()].subject
    }

    /// Counts requests with `id` as `subject` from now on.
    pub fn set_subject(&mut self, id: SetId, subject: SetId) {
        debug_assert!(id != SetId::OTHER, "the others are not counted");
        self.entries[id.at()].subject = subject;
    }

    /// One more page remembers `id`.
    pub fn hold(&mut self, id: SetId) {
        self.entries[id.at()].pages += 1;
    }

    /// One page less remembers `id`.
    pub fn release(&mut self, id: SetId) {
        let entry = &mut self.entries[id.at()];
        debug_assert!(entry.pages > 0, "a release follows a hold");
        entry.pages -= 1;
    }

    /// Times that any page remembers any hint set. O(hint sets).
    #[must_use]
    pub fn held(&self) -> u32 {
        self.entries.iter().map(|entry| entry.pages).sum()
    }

    /// Numbers in use, in order.
    #[must_use]
    pub fn ids(&self) -> Vec<SetId> {
        let mut ids: Vec<SetId> = self.map.iter().map(|&id| SetId(id)).collect();
        ids.sort_unstable();
        ids
    }

    /// Frees the numbers that no page remembers. O(hint sets).
    pub fn sweep(&mut self) {
        for id in self.ids() {
            if self.entries[id.at()].pages > 0 {
                continue;
            }
            let hash = hash::of_hints(&self.entries[id.at()].hints);
            if let Ok(found) = self.map.find_entry(hash, |&other| other == id.0) {
                found.remove();
                self.free.push(id.0);
            }
        }
        self.last = SetId::OTHER;
    }

    /// Forgets every hint set. O(hint sets).
    pub fn clear(&mut self) {
        self.entries.truncate(1);
        self.map.clear();
        self.free.clear();
        self.last = SetId::OTHER;
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + self.map.allocation_size()
            + self.free.capacity() * 4
    }

    /// Panics unless the numbered invariants of the module text hold. O(hint sets).
    pub fn assert_invariants(&self) {
        for id in self.ids() {
            assert!(id != SetId::OTHER, "invariant 2");
            let hints = self.hints(id);
            let same = |&other: &u32| self.entries[other as usize].hints == *hints;
            let found = self.map.find(hash::of_hints(hints), same);
            assert_eq!(found, Some(&id.0), "invariant 1");
        }
        let used = self.entries.len() - 1 - self.free.len();
        assert_eq!(used as u32, self.len(), "invariant 2");
        assert!(self.len() <= self.max, "invariant 2");
    }
}
