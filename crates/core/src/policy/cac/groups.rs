//! Miss rates by group of pages, and the miss rate expansion factor (thesis §6.4.2).
//!
//! A group is the pages of one object whose logical read rates are in the same band. It has the
//! sums of what its pages had when they were last counted: [`Groups::count`] brings in what a page
//! has had since, and moves the page when its rate is in another band by then. A group without
//! pages is forgotten, so there are at most as many as pages.
//!
//! # Where the thesis leaves a choice
//! - *One side unknown*: α is 1 when the group's pages had no logical read on flash (the
//!   thesis's rule), and also when they had none off flash. For the latter the thesis assumes
//!   m_D = 0, which makes α infinite; after a restart, when all that is known of a page is what
//!   it does on flash, every page would be thought to belong in DRAM.
//! - *No miss among n logical reads*: the rate is 1 / (n + 1), as if the next read missed.
//!   So α is always above 0 and finite, and grows with the evidence that a page needs no flash.
//!
//! # Invariants (checked by [`Groups::assert_invariants`])
//! 1. Every group has pages, and is found under its key.
//! 2. No group has more misses than logical reads.
//!
//! Memory: 56 bytes a group, and 5 to 10 for the map.

use super::benefit::Measured;
use crate::hash;
use crate::page::{ObjectId, PageId};
use hashbrown::HashTable;

/// Number of no group.
pub(super) const NO_GROUP: u32 = u32::MAX;

/// Which pages a group holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key {
    /// The object, as hints or the file system number it.
    pub object: u32,
    /// Whether hints do.
    pub hinted: bool,
    /// Of the logical read rate.
    pub band: u32,
}

impl Key {
    fn hash(self) -> u64 {
        let index = u64::from(self.band) << 1 | u64::from(self.hinted);
        hash::of_page(PageId::new(ObjectId(self.object), index))
    }
}

/// Logical reads and those that missed the DRAM pool, on flash and off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Rates {
    on_missed: u32,
    on_logical: u32,
    off_missed: u32,
    off_logical: u32,
}

impl Rates {
    pub(super) fn of(measured: &Measured) -> Self {
        let (on, off) = (&measured.on_flash, &measured.off_flash);
        Self {
            on_missed: on.reads.min(on.logical),
            on_logical: on.logical,
            off_missed: off.reads.min(off.logical),
            off_logical: off.logical,
        }
    }

    /// Divides every count by a power of two.
    pub(super) fn shift(&mut self, shift: u32) {
        self.on_missed >>= shift;
        self.on_logical >>= shift;
        self.off_missed >>= shift;
        self.off_logical >>= shift;
    }

    fn each(&self) -> [u64; 4] {
        let counts = [
            self.on_missed,
            self.on_logical,
            self.off_missed,
            self.off_logical,
        ];
        counts.map(u64::from)
    }
}

/// Where a page is counted, and with what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub group: u32,
    pub rates: Rates,
}

impl Default for Counted {
    fn default() -> Self {
        Self {
            group: NO_GROUP,
            rates: Rates::default(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Group {
    key: Key,
    /// As [`Rates::each`].
    sums: [u64; 4],
    /// 0 in a place that is free.
    pages: u32,
}

/// See the module text.
#[derive(Debug, Default)]
pub(super) struct Groups {
    groups: Vec<Group>,
    map: HashTable<u32>,
    free: Vec<u32>,
}

impl Groups {
    /// Counts a page that belongs to `key` now and has had `rates` so far.
    pub(super) fn count(&mut self, counted: &mut Counted, key: Key, rates: Rates) {
        let before = counted.group;
        let stays = before != NO_GROUP && self.groups[before as usize].key == key;
        if !stays {
            counted.group = self.find_or_add(key);
            self.groups[counted.group as usize].pages += 1;
        }
        let group = &mut self.groups[counted.group as usize];
        for (sum, count) in group.sums.iter_mut().zip(rates.each()) {
            *sum += count;
        }
        if before != NO_GROUP {
            self.subtract(before, &counted.rates);
        }
        if before != NO_GROUP && !stays {
            self.leave(before);
        }
        counted.rates = rates;
    }

    /// Counts a page no longer.
    pub(super) fn forget(&mut self, counted: &Counted) {
        if counted.group != NO_GROUP {
            self.subtract(counted.group, &counted.rates);
            self.leave(counted.group);
        }
    }

    /// α of a group; `one` is how much a request counts now.
    pub(super) fn alpha_of(&self, group: u32, one: u32) -> f64 {
        let sums = self.groups.get(group as usize).map(|group| group.sums);
        sums.map_or(1.0, |sums| alpha(sums, u64::from(one)))
    }

    /// α of the group of `key`, be it known or not.
    pub(super) fn alpha_under(&self, key: Key, one: u32) -> f64 {
        let found = self.map.find(key.hash(), |&at| self.is(at, key));
        found.map_or(1.0, |&at| self.alpha_of(at, one))
    }

    /// Number of groups.
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// Forgets all sums: every page is about to be counted anew with [`Groups::recount`].
    pub(super) fn clear_sums(&mut self) {
        for group in &mut self.groups {
            group.sums = [0; 4];
        }
    }

    /// Adds what `counted` says to its group, after [`Groups::clear_sums`].
    pub(super) fn recount(&mut self, counted: &Counted) {
        if let Some(group) = self.groups.get_mut(counted.group as usize) {
            for (sum, count) in group.sums.iter_mut().zip(counted.rates.each()) {
                *sum += count;
            }
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.groups.capacity() * size_of::<Group>()
            + self.free.capacity() * size_of::<u32>()
            + self.map.allocation_size()
    }

    /// Panics unless the groups hold exactly what `counted`, all pages, say. O(pages + groups).
    pub(super) fn assert_invariants<'a>(&self, counted: impl Iterator<Item = &'a Counted>) {
        let mut expected = vec![([0u64; 4], 0u32); self.groups.len()];
        for page in counted.filter(|page| page.group != NO_GROUP) {
            let (sums, pages) = &mut expected[page.group as usize];
            for (sum, count) in sums.iter_mut().zip(page.rates.each()) {
                *sum += count;
            }
            *pages += 1;
        }
        for (at, (group, (sums, pages))) in (0u32..).zip(self.groups.iter().zip(expected)) {
            assert_eq!((group.sums, group.pages), (sums, pages), "sums of pages");
            let found = self.map.find(group.key.hash(), |&other| other == at);
            assert_eq!(found.is_some(), group.pages > 0, "invariant 1");
            assert!(group.sums[0] <= group.sums[1], "invariant 2");
            assert!(group.sums[2] <= group.sums[3], "invariant 2");
        }
        assert_eq!(self.map.len() + self.free.len(), self.groups.len());
    }

    fn is(&self, at: u32, key: Key) -> bool {
        self.groups[at as usize].key == key
    }

    fn find_or_add(&mut self, key: Key) -> u32 {
        if let Some(&at) = self.map.find(key.hash(), |&at| self.is(at, key)) {
            return at;
        }
        let group = Group {
            key,
            sums: [0; 4],
            pages: 0,
        };
        let at = match self.free.pop() {
            Some(at) => {
                self.groups[at as usize] = group;
                at
            }
            None => {
                self.groups.push(group);
                (self.groups.len() - 1) as u32
            }
        };
        let groups = &self.groups;
        let rehash = |&at: &u32| groups[at as usize].key.hash();
        self.map.insert_unique(key.hash(), at, rehash);
        at
    }

    fn subtract(&mut self, at: u32, rates: &Rates) {
        let group = &mut self.groups[at as usize];
        for (sum, count) in group.sums.iter_mut().zip(rates.each()) {
            debug_assert!(*sum >= count, "what was added is there");
            *sum = sum.saturating_sub(count);
        }
    }

    /// One page fewer; the last one takes the group with it.
    fn leave(&mut self, at: u32) {
        let group = &mut self.groups[at as usize];
        debug_assert!(group.pages > 0, "a page is counted once");
        group.pages -= 1;
        if group.pages > 0 {
            return;
        }
        let found = self.map.find_entry(group.key.hash(), |&other| other == at);
        debug_assert!(found.is_ok(), "invariant 1");
        if let Ok(found) = found {
            found.remove();
            self.free.push(at);
        }
    }
}

/// Equation 6.10 on sums as in [`Rates::each`].
fn alpha(sums: [u64; 4], one: u64) -> f64 {
    let [on_missed, on_logical, off_missed, off_logical] = sums;
    if on_logical == 0 || off_logical == 0 {
        return 1.0;
    }
    let alpha = miss_rate(on_missed, on_logical, one) / miss_rate(off_missed, off_logical, one);
    debug_assert!(alpha > 0.0 && alpha.is_finite(), "no rate is 0");
    alpha
}

/// Above 0 and at most 1.
fn miss_rate(missed: u64, logical: u64, one: u64) -> f64 {
    debug_assert!(logical > 0 && missed <= logical, "a rate of something");
    match missed {
        0 => one as f64 / (logical + one) as f64,
        _ => missed as f64 / logical as f64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alpha_of_what_was_counted() {
        assert_eq!(alpha([6, 8, 2, 8], 1), 3.0, "the example of equation 6.9");
        assert_eq!(alpha([0, 0, 2, 8], 1), 1.0, "m_S is undefined");
        assert_eq!(alpha([6, 10, 0, 0], 1), 1.0, "m_D is undefined");
        assert_eq!(alpha([5, 10, 0, 99], 1), 50.0, "no miss among 99");
        assert_eq!(alpha([0, 99, 5, 10], 1), 0.02, "no miss on flash");
        assert_eq!(alpha([80, 160, 0, 99 * 16], 16), 50.0, "in sixteenths");
        let all = u64::from(u32::MAX) << 20;
        let huge = alpha([all, all, 0, all], 1);
        assert!(huge > 1e15 && huge.is_finite());
    }

    #[test]
    fn pages_move_with_what_they_had() {
        let key = |band| Key {
            object: 7,
            hinted: true,
            band,
        };
        let rates = |on_missed, on_logical, off_missed, off_logical| Rates {
            on_missed,
            on_logical,
            off_missed,
            off_logical,
        };
        let mut groups = Groups::default();
        let (mut a, mut b) = (Counted::default(), Counted::default());
        groups.count(&mut a, key(1), rates(0, 0, 1, 4));
        groups.count(&mut b, key(1), rates(2, 2, 0, 0));
        assert_eq!(groups.alpha_under(key(1), 1), 4.0);
        assert_eq!(groups.alpha_under(key(2), 1), 1.0, "nothing is known");
        groups.count(&mut a, key(2), rates(0, 0, 2, 10));
        groups.assert_invariants([&a, &b].into_iter());
        assert_eq!(groups.alpha_of(b.group, 1), 1.0, "nothing off flash");
        groups.count(&mut b, key(2), rates(3, 3, 0, 0));
        assert_eq!(groups.len(), 1, "an empty group is forgotten");
        assert_eq!(groups.alpha_of(a.group, 1), 5.0);
        groups.forget(&a);
        groups.assert_invariants([&b].into_iter());
    }
}
