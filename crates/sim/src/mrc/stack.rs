//! LRU stack distances of reads, with pages that leave by trims and partial writes.
//!
//! The stack is the order of last requests; the top *n* entries are what an LRU tier of *n*
//! slots holds. A page's depth is its distance: it is in every tier at least that large.
//!
//! A page that is dropped leaves a *hole* at its depth: a free slot in every tier at least that
//! large. The next page that comes to the top fills the hole nearest the top: the entries above
//! it move down, those below it stay. If the page came from below that hole, it leaves a hole in
//! turn where it was: the tiers large enough to have held it had a free slot and still have one.
//!
//! Entries are marks on a line of times; a Fenwick tree counts the marks after a time. When the
//! line is used up, the marks move to its beginning in order. *Cost*: O(log entries) a request.
//! *Memory*: 20 to 30 bytes a page for the map, 16 for the tree, 8 for the distances.

use super::Misses;
use crate::reach::Reach;
use crate::request::{Kind, PageRequest};
use hashbrown::HashTable;
use std::collections::BTreeSet;
use thermocline_core::{PageId, hash};

/// Times of the shortest line.
const LINE_MIN: usize = 1 << 10;

/// See the module text.
#[derive(Debug)]
pub(super) struct LruStack {
    pages: HashTable<(PageId, u32)>,
    holes: BTreeSet<u32>,
    reach: Reach,
    /// Fenwick tree over times 1..line; a mark counts 1.
    tree: Vec<u32>,
    /// The next time, from 1.
    now: u32,
    /// Measured reads by distance.
    reads: Vec<u64>,
    /// Measured reads of pages that no tier holds.
    cold: u64,
    /// Measured writes of whole pages.
    writes: u64,
}

impl Default for LruStack {
    fn default() -> Self {
        Self {
            pages: HashTable::new(),
            holes: BTreeSet::new(),
            reach: Reach::default(),
            tree: vec![0; LINE_MIN],
            now: 1,
            reads: Vec::new(),
            cold: 0,
            writes: 0,
        }
    }
}

impl LruStack {
    /// Follows one request; `measured` unless it only warms up.
    pub(super) fn request(&mut self, request: &PageRequest, measured: bool) {
        match request.kind() {
            Kind::Read => {
                let distance = self.touch(request.page());
                if measured {
                    self.count(distance);
                }
            }
            Kind::Write => {
                self.touch(request.page());
                self.writes += u64::from(measured);
            }
            Kind::PartWrite => self.drop_page(request.page()),
            Kind::Trim => self.trim(request),
        }
    }

    /// What a tier of `slots` slots missed. Every miss is admitted, every whole page written
    /// is admitted or renewed.
    pub(super) fn misses(&self, slots: u64) -> Misses {
        let far = self.reads.iter().skip(slots.saturating_add(1) as usize);
        let reads = far.sum::<u64>() + self.cold;
        Misses {
            reads,
            flash_writes: if slots == 0 { 0 } else { reads + self.writes },
        }
    }

    fn count(&mut self, distance: Option<u32>) {
        let Some(distance) = distance else {
            self.cold += 1;
            return;
        };
        let at = distance as usize;
        if at >= self.reads.len() {
            self.reads.resize(at + 1, 0);
        }
        self.reads[at] += 1;
    }

    /// Brings `page` to the top; returns the depth it came from, from 1.
    fn touch(&mut self, page: PageId) -> Option<u32> {
        if self.now as usize >= self.tree.len() {
            self.compact();
        }
        let now = self.now;
        self.now += 1;
        let place = hash::of_page(page);
        let found = self.pages.find_mut(place, |(known, _)| *known == page);
        let before = found.map(|entry| std::mem::replace(&mut entry.1, now));
        let distance = before.map(|time| self.marks() - self.marks_until(time) + 1);
        if before.is_none() {
            let rehash = |(page, _): &(PageId, u32)| hash::of_page(*page);
            self.pages.insert_unique(place, (page, now), rehash);
            self.reach.extend(page);
        }
        match (self.holes.last().copied(), before) {
            (Some(hole), before) if before.is_none_or(|time| time < hole) => {
                self.holes.remove(&hole);
                self.mark(hole, false);
                if let Some(time) = before {
                    self.holes.insert(time);
                }
            }
            (_, Some(time)) => self.mark(time, false),
            (_, None) => {}
        }
        self.mark(now, true);
        distance
    }

    fn drop_page(&mut self, page: PageId) {
        let place = hash::of_page(page);
        let entry = self.pages.find_entry(place, |(known, _)| *known == page);
        if let Ok(entry) = entry {
            let ((_, time), _) = entry.remove();
            self.holes.insert(time);
        }
    }

    fn trim(&mut self, trim: &PageRequest) {
        let Some((first, last)) = self.reach.cut(trim) else {
            return;
        };
        if last - first < self.pages.len() as u64 {
            for index in first..=last {
                self.drop_page(PageId::new(trim.object, index));
            }
            return;
        }
        let range = first..=last;
        let inside = |page: &PageId| page.object == trim.object && range.contains(&page.index);
        let gone = self.pages.iter().filter(|(page, _)| inside(page));
        let gone: Vec<PageId> = gone.map(|(page, _)| *page).collect();
        gone.into_iter().for_each(|page| self.drop_page(page));
    }

    /// All marks.
    fn marks(&self) -> u32 {
        (self.pages.len() + self.holes.len()) as u32
    }

    /// Marks at times up to `time`.
    fn marks_until(&self, time: u32) -> u32 {
        let mut at = time as usize;
        let mut count = 0;
        while at > 0 {
            count += self.tree[at];
            at &= at - 1;
        }
        count
    }

    fn mark(&mut self, time: u32, there: bool) {
        let mut at = time as usize;
        while at < self.tree.len() {
            self.tree[at] = match there {
                true => self.tree[at] + 1,
                false => self.tree[at] - 1,
            };
            at += at & at.wrapping_neg();
        }
    }

    /// Moves all marks to the beginning of a line twice as long as they need.
    fn compact(&mut self) {
        let mut times: Vec<u32> = self.pages.iter().map(|(_, time)| *time).collect();
        times.extend(&self.holes);
        times.sort_unstable();
        let place = |time: u32| times.partition_point(|&other| other < time) as u32 + 1;
        self.pages
            .iter_mut()
            .for_each(|entry| entry.1 = place(entry.1));
        self.holes = self.holes.iter().map(|&hole| place(hole)).collect();
        self.now = times.len() as u32 + 1;
        let line = (2 * times.len()).max(LINE_MIN);
        self.tree = vec![0; line];
        for time in 1..self.now {
            self.mark(time, true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use thermocline_core::ObjectId;

    fn request(kind: Kind, index: u64, pages: u32) -> PageRequest {
        PageRequest::new(PageId::new(ObjectId(0), index), kind, 0, 0, pages)
    }

    /// An LRU tier, most recent first; what it missed.
    fn naive(requests: &[PageRequest], slots: usize) -> u64 {
        let mut tier: Vec<u64> = Vec::new();
        let mut misses = 0;
        for request in requests {
            let page = request.index;
            let found = tier.iter().position(|&other| other == page);
            match request.kind() {
                Kind::Read | Kind::Write => {
                    let miss = request.kind() == Kind::Read && found.is_none();
                    misses += u64::from(miss);
                    if let Some(at) = found {
                        tier.remove(at);
                    }
                    tier.insert(0, page);
                    tier.truncate(slots);
                }
                Kind::PartWrite => tier.retain(|&other| other != page),
                Kind::Trim => tier.retain(|&other| other < page || other > request.trim_last()),
            }
        }
        misses
    }

    fn event() -> impl Strategy<Value = PageRequest> {
        let kind = prop_oneof![
            8 => Just(Kind::Read),
            3 => Just(Kind::Write),
            2 => Just(Kind::PartWrite),
            1 => Just(Kind::Trim),
        ];
        let page = prop_oneof![0u64..12, 0u64..40];
        (kind, page, 1u32..6).prop_map(|(kind, page, pages)| request(kind, page, pages))
    }

    proptest! {
        #[test]
        fn every_size_misses_what_a_tier_of_it_misses(
            requests in prop::collection::vec(event(), 0..3000),
        ) {
            let mut stack = LruStack::default();
            requests.iter().for_each(|request| stack.request(request, true));
            for slots in 1..45 {
                let found = stack.misses(slots).reads;
                prop_assert_eq!(found, naive(&requests, slots as usize), "{} slots", slots);
            }
        }
    }

    #[test]
    fn a_hole_is_filled_before_anything_leaves() {
        let mut stack = LruStack::default();
        for page in [0, 1, 2] {
            stack.request(&request(Kind::Read, page, 1), true);
        }
        stack.request(&request(Kind::PartWrite, 1, 1), true);
        stack.request(&request(Kind::Read, 3, 1), true);
        // Page 0 is third still: the tier of three had a slot free for page 3.
        assert_eq!(stack.touch(PageId::new(ObjectId(0), 0)), Some(3));
    }

    /// By the stack's size times the number of trims it would not end.
    #[test]
    fn a_trim_costs_what_its_object_has_not_what_the_stack_has() {
        let mut stack = LruStack::default();
        (0..300_000).for_each(|page| stack.request(&request(Kind::Read, page, 1), true));
        for object in 1..200_000 {
            for (kind, pages) in [(Kind::Write, 1), (Kind::Trim, crate::request::PAGES_MAX)] {
                let page = PageId::new(ObjectId(object), 0);
                stack.request(&PageRequest::new(page, kind, 0, 0, pages), true);
            }
        }
        assert_eq!(stack.pages.len(), 300_000);
    }
}
