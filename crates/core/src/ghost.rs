//! A directory of pages that are *not* on flash: ghost lists, outqueues, histories.
//!
//! Bounded, in order of insertion (or of the caller's [`Ghost::refresh`]); each page carries a
//! value. When it is full the oldest page leaves first. Every operation is O(1) expected.
//!
//! Trims are not reported here: pages that are gone leave by age. Those of a deleted object are
//! never asked for, as object ids are never used again. Those past the end of a file that was cut
//! are when it grows again: then what is known is of the page before, which costs speed at most.
//!
//! Memory: `24 + size_of::<T>()` bytes an entry, rounded up to 8, plus 6 to 23 for the map (a
//! power of two of buckets, more where entries come and go); it grows with the number of entries,
//! up to the bound.
//!
//! # Invariants (checked by [`Ghost::assert_invariants`])
//! 1. The map, the order and the used entries hold the same pages, each once.
//! 2. At most `capacity` pages.

use crate::hash;
use crate::page::PageId;
use hashbrown::HashTable;

const NONE: u32 = u32::MAX;

#[derive(Clone, Debug)]
struct Entry<T> {
    page: PageId,
    newer: u32,
    older: u32,
    value: T,
}

/// See the module text.
#[derive(Clone, Debug)]
pub struct Ghost<T> {
    entries: Vec<Entry<T>>,
    map: HashTable<u32>,
    free: Vec<u32>,
    newest: u32,
    oldest: u32,
    capacity: u32,
}

impl<T: Copy> Ghost<T> {
    /// An empty directory of at most `capacity` pages; 0 remembers nothing.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        assert!(capacity < NONE, "the last id is reserved");
        Self {
            entries: Vec::new(),
            map: HashTable::new(),
            free: Vec::new(),
            newest: NONE,
            oldest: NONE,
            capacity,
        }
    }

    /// Number of pages.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.map.len() as u32
    }

    /// Whether there are no pages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.map.is_empty()
    }

    /// The most pages it holds.
    #[must_use]
    pub fn capacity(&self) -> u32 {
        self.capacity
    }

    /// Whether `page` is remembered.
    #[must_use]
    pub fn contains(&self, page: PageId) -> bool {
        self.at(page).is_some()
    }

    /// The value of `page`.
    #[must_use]
    pub fn get(&self, page: PageId) -> Option<&T> {
        self.at(page).map(|at| &self.entries[at as usize].value)
    }

    /// The value of `page`, to be changed; its place in the order stays.
    pub fn get_mut(&mut self, page: PageId) -> Option<&mut T> {
        let at = self.at(page)?;
        Some(&mut self.entries[at as usize].value)
    }

    /// Remembers `page`, which is not there yet, as the newest. Gives what had to leave for it:
    /// the oldest page, or `page` itself when the capacity is 0.
    pub fn insert(&mut self, page: PageId, value: T) -> Option<(PageId, T)> {
        debug_assert!(!self.contains(page), "a page is remembered once");
        if self.capacity == 0 {
            return Some((page, value));
        }
        let left = match self.len() < self.capacity {
            true => None,
            false => self.pop_oldest(),
        };
        let entry = Entry {
            page,
            newer: NONE,
            older: NONE,
            value,
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.entries[at as usize] = entry;
                at
            }
            None => {
                self.grow();
                self.entries.push(entry);
                (self.entries.len() - 1) as u32
            }
        };
        let entries = &self.entries;
        let rehash = |&at: &u32| hash::of_page(entries[at as usize].page);
        self.map.insert_unique(hash::of_page(page), at, rehash);
        self.link_newest(at);
        debug_assert!(self.len() <= self.capacity, "invariant 2");
        left
    }

    /// Makes `page` the newest; false when it is not there.
    pub fn refresh(&mut self, page: PageId) -> bool {
        let Some(at) = self.at(page) else {
            return false;
        };
        if self.newest != at {
            self.unlink(at);
            self.link_newest(at);
        }
        true
    }

    /// Forgets `page`.
    pub fn remove(&mut self, page: PageId) -> Option<T> {
        let found = self.map.find_entry(hash::of_page(page), |&at| {
            self.entries[at as usize].page == page
        });
        let (at, _) = found.ok()?.remove();
        self.unlink(at);
        self.free.push(at);
        Some(self.entries[at as usize].value)
    }

    /// The oldest page.
    #[must_use]
    pub fn oldest(&self) -> Option<(PageId, T)> {
        let entry = self.entries.get(self.oldest as usize)?;
        Some((entry.page, entry.value))
    }

    /// Forgets the oldest page.
    pub fn pop_oldest(&mut self) -> Option<(PageId, T)> {
        let (page, _) = self.oldest()?;
        self.remove(page).map(|value| (page, value))
    }

    /// Pages with their values, newest first.
    pub fn iter(&self) -> impl Iterator<Item = (PageId, &T)> + '_ {
        let mut at = self.newest;
        std::iter::from_fn(move || {
            let entry = self.entries.get(at as usize)?;
            at = entry.older;
            Some((entry.page, &entry.value))
        })
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry<T>>()
            + self.map.allocation_size()
            + self.free.capacity() * 4
    }

    /// Panics unless the numbered invariants of the module text hold. O(len).
    pub fn assert_invariants(&self) {
        assert!(self.len() <= self.capacity, "invariant 2");
        let mut seen = 0;
        for (page, _) in self.iter() {
            assert!(self.contains(page), "invariant 1");
            seen += 1;
        }
        assert_eq!(seen, self.len(), "invariant 1");
        let used = self.entries.len() - self.free.len();
        assert_eq!(used as u32, self.len(), "invariant 1");
    }

    /// Makes room for one more entry: twice as many as now, never more than the bound asks for.
    fn grow(&mut self) {
        let len = self.entries.len();
        if len == self.entries.capacity() {
            let bound = self.capacity as usize;
            debug_assert!(len < bound, "at the bound the oldest has left");
            self.entries.reserve_exact((bound - len).min(len.max(8)));
        }
    }

    fn at(&self, page: PageId) -> Option<u32> {
        let found = self.map.find(hash::of_page(page), |&at| {
            self.entries[at as usize].page == page
        });
        found.copied()
    }

    fn link_newest(&mut self, at: u32) {
        let second = self.newest;
        self.entries[at as usize].newer = NONE;
        self.entries[at as usize].older = second;
        match second {
            NONE => self.oldest = at,
            second => self.entries[second as usize].newer = at,
        }
        self.newest = at;
    }

    fn unlink(&mut self, at: u32) {
        let Entry { newer, older, .. } = self.entries[at as usize];
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer as usize].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older as usize].newer = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::ObjectId;
    use proptest::prelude::*;
    use std::collections::VecDeque;

    fn page(index: u64) -> PageId {
        PageId::new(ObjectId(1), index)
    }

    proptest! {
        #[test]
        fn equals_a_deque(
            capacity in 0u32..6,
            ops in proptest::collection::vec((0u8..5, 0u64..10), 1..300),
        ) {
            let mut ghost = Ghost::new(capacity);
            let mut model: VecDeque<(u64, usize)> = VecDeque::new();
            for (step, (op, index)) in ops.into_iter().enumerate() {
                let at = model.iter().position(|(p, _)| *p == index);
                match (op, at) {
                    (0 | 1, None) => {
                        model.push_front((index, step));
                        let over = model.len() > capacity as usize;
                        let left = if over { model.pop_back() } else { None };
                        let given = ghost.insert(page(index), step);
                        prop_assert_eq!(given, left.map(|(p, v)| (page(p), v)));
                    }
                    (2, _) => {
                        let expected = at.and_then(|at| model.remove(at)).map(|(_, v)| v);
                        prop_assert_eq!(ghost.remove(page(index)), expected);
                    }
                    (3, _) => {
                        prop_assert_eq!(ghost.refresh(page(index)), at.is_some());
                        if let Some(entry) = at.and_then(|at| model.remove(at)) {
                            model.push_front(entry);
                        }
                    }
                    _ => prop_assert_eq!(
                        ghost.get(page(index)).copied(),
                        at.map(|at| model[at].1)
                    ),
                }
                ghost.assert_invariants();
                let seen: Vec<_> = ghost.iter().map(|(p, v)| (p.index, *v)).collect();
                let expected: Vec<_> = model.iter().copied().collect();
                prop_assert_eq!(seen, expected);
                prop_assert_eq!(ghost.oldest(), model.back().map(|(p, v)| (page(*p), *v)));
            }
        }
    }
}
