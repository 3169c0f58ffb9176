//! What is remembered of pages: those on flash, those in the DRAM pool, and an outqueue of a
//! bounded number that are in neither (thesis §6.4.4).
//!
//! # States of a page
//! ```text
//!              seen                     admitted, buffered
//!   unknown ----------> in the outqueue <----------------> on flash, buffered, or both
//!      ^                   |    ^ |        gone from both             |
//!      +---- oldest -------+    +-+ seen                              |
//!      +------------------------- trimmed ----------------------------+
//! ```
//! In the outqueue the page that came first leaves first; a page that is requested while it is
//! there comes anew: in the thesis it would have been in the pool in between.
//!
//! # Invariants (checked by [`Pages::assert_invariants`])
//! 1. The map finds every known page, once.
//! 2. The outqueue holds exactly the known pages that are neither on flash nor buffered; at most
//!    `absent_max` of them.
//!
//! Memory: 72 bytes a page, and 5 to 10 for the map; twice that while arrays double.

use super::benefit::Measured;
use super::groups::Counted;
use crate::hash;
use crate::list::{Links, List};
use crate::page::{ObjectId, PageId};
use hashbrown::HashTable;

/// What is known of one page.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known {
    index: u64,
    object: ObjectId,
    /// The object that the last request's hints named; 0 for none.
    pub hint: u32,
    pub measured: Measured,
    pub counted: Counted,
    pub resident: bool,
    pub buffered: bool,
    /// In the write-back reserve: flash serves it, in no slot of the policy's.
    pub reserved: bool,
}

impl Known {
    fn new(page: PageId) -> Self {
        Self {
            index: page.index,
            object: page.object,
            hint: 0,
            measured: Measured::default(),
            counted: Counted::default(),
            resident: false,
            buffered: false,
            reserved: false,
        }
    }

    pub(super) fn page(&self) -> PageId {
        PageId::new(self.object, self.index)
    }

    fn is_absent(&self) -> bool {
        !self.is_on_flash() && !self.buffered
    }

    /// Whether flash serves it.
    pub(super) fn is_on_flash(&self) -> bool {
        self.resident || self.reserved
    }
}

/// A place in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At(u32);

/// See the module text.
#[derive(Debug)]
pub(super) struct Pages {
    /// `None` in places that are free.
    known: Vec<Option<Known>>,
    map: HashTable<u32>,
    free: Vec<u32>,
    links: Links,
    /// Newest at the front.
    outqueue: List,
    absent_max: u32,
}

impl Pages {
    /// Nothing known; at most `absent_max` pages are remembered that are in no place.
    pub(super) fn new(absent_max: u32) -> Self {
        debug_assert!(absent_max > 0, "a newcomer is remembered until it is in");
        Self {
            known: Vec::new(),
            map: HashTable::new(),
            free: Vec::new(),
            links: Links::new(0),
            outqueue: List::default(),
            absent_max,
        }
    }

    pub(super) fn find(&self, page: PageId) -> Option<At> {
        let same = |&at: &u32| self.is(at, page);
        self.map.find(hash::of_page(page), same).map(|&at| At(at))
    }

    pub(super) fn get(&self, at: At) -> Option<&Known> {
        self.known[at.0 as usize].as_ref()
    }

    pub(super) fn get_mut(&mut self, at: At) -> Option<&mut Known> {
        self.known[at.0 as usize].as_mut()
    }

    /// The place of `page`, known from now on. Nothing is dropped for it yet.
    pub(super) fn find_or_add(&mut self, page: PageId) -> At {
        if let Some(at) = self.find(page) {
            return at;
        }
        let at = match self.free.pop() {
            Some(at) => at,
            None => {
                self.known.push(None);
                self.links.grow(self.known.len() as u32);
                (self.known.len() - 1) as u32
            }
        };
        self.known[at as usize] = Some(Known::new(page));
        self.outqueue.push_front(&mut self.links, at);
        let known = &self.known;
        let rehash = |&at: &u32| {
            let known = known[at as usize].as_ref();
            known.map_or(0, |known| hash::of_page(known.page()))
        };
        self.map.insert_unique(hash::of_page(page), at, rehash);
        At(at)
    }

    /// The page is on flash, or is not; in the pool, or is not.
    pub(super) fn put(&mut self, at: At, resident: bool, buffered: bool) {
        let Some(known) = self.known[at.0 as usize].as_mut() else {
            debug_assert!(false, "a place in use");
            return;
        };
        let was_absent = known.is_absent();
        (known.resident, known.buffered) = (resident, buffered);
        let is_absent = known.is_absent();
        self.requeue(at, was_absent, is_absent);
    }

    /// The page is in the reserve, or is not.
    pub(super) fn set_reserved(&mut self, at: At, reserved: bool) {
        let Some(known) = self.known[at.0 as usize].as_mut() else {
            debug_assert!(false, "a place in use");
            return;
        };
        let was_absent = known.is_absent();
        known.reserved = reserved;
        let is_absent = known.is_absent();
        self.requeue(at, was_absent, is_absent);
    }

    fn requeue(&mut self, at: At, was_absent: bool, is_absent: bool) {
        match (was_absent, is_absent) {
            (true, false) => self.outqueue.remove(&mut self.links, at.0),
            (false, true) => self.outqueue.push_front(&mut self.links, at.0),
            _ => {}
        }
    }

    /// The page was asked for: in the outqueue it is the newest.
    pub(super) fn refresh(&mut self, at: At) {
        if self.get(at).is_some_and(Known::is_absent) {
            self.outqueue.move_to_front(&mut self.links, at.0);
        }
    }

    /// The oldest page of the outqueue while that holds too many: forgotten.
    pub(super) fn pop_excess(&mut self) -> Option<Known> {
        if self.outqueue.len() <= self.absent_max {
            return None;
        }
        self.outqueue.back().and_then(|at| self.forget(At(at)))
    }

    /// Forgets a page.
    pub(super) fn forget(&mut self, at: At) -> Option<Known> {
        let known = self.known[at.0 as usize].take()?;
        if known.is_absent() {
            self.outqueue.remove(&mut self.links, at.0);
        }
        let hash = hash::of_page(known.page());
        let found = self.map.find_entry(hash, |&other| other == at.0);
        debug_assert!(found.is_ok(), "invariant 1");
        if let Ok(found) = found {
            found.remove();
        }
        self.free.push(at.0);
        Some(known)
    }

    /// Pages in the outqueue.
    pub(super) fn absent(&self) -> u32 {
        self.outqueue.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Known> {
        self.known.iter().flatten()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Known> {
        self.known.iter_mut().flatten()
    }

    pub(super) fn bytes(&self) -> usize {
        self.known.capacity() * size_of::<Option<Known>>()
            + self.free.capacity() * size_of::<u32>()
            + self.links.bytes()
            + self.map.allocation_size()
    }

    /// Bytes held when so many pages are known and the arrays fit.
    pub(super) fn bytes_of(pages: usize) -> usize {
        let buckets = (pages * 8).div_ceil(7).next_power_of_two();
        pages * (size_of::<Option<Known>>() + size_of::<(u32, u32)>()) + buckets * 5
    }

    /// Panics unless the numbered invariants of the module text hold. O(pages).
    pub(super) fn assert_invariants(&self) {
        let mut absent = 0;
        for known in self.iter() {
            let found = self.find(known.page()).and_then(|at| self.get(at));
            assert!(found.is_some_and(|f| std::ptr::eq(f, known)), "invariant 1");
            absent += u32::from(known.is_absent());
        }
        assert_eq!(self.map.len(), self.iter().count(), "invariant 1");
        for at in self.outqueue.iter_from_back(&self.links) {
            let known = self.known[at as usize].as_ref();
            assert!(known.is_some_and(Known::is_absent), "invariant 2");
        }
        assert_eq!(absent, self.outqueue.len(), "invariant 2");
        assert!(absent <= self.absent_max, "invariant 2");
    }

    fn is(&self, at: u32, page: PageId) -> bool {
        let known = self.known[at as usize].as_ref();
        known.is_some_and(|known| known.page() == page)
    }
}
