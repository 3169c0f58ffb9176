//! The outqueue: last requests of pages that are not on flash (thesis §3.2.2).
//!
//! A ring: a page that is put in takes the place of the one put in `capacity` insertions before,
//! if that is still there. (In the thesis the least recently inserted entry leaves when the queue
//! is full; places of pages that left early are not used again here before their turn, which
//! spares every entry its links and every operation two or three memory accesses.) Each
//! operation is O(1) expected.
//!
//! Memory: 24 bytes an entry, plus 7 to 14 for the map.
//!
//! # Invariants (checked by [`Outqueue::assert_invariants`])
//! 1. The map holds exactly the places with a page, each page once.
//! 2. At most `capacity` places.

use super::sets::SetId;
use crate::hash;
use crate::page::{ObjectId, PageId};
use hashbrown::HashTable;

/// The set of a place without a page.
const GONE: SetId = SetId(u32::MAX);

#[derive(Clone, Copy, Debug)]
struct Place {
    index: u64,
    object: ObjectId,
    set: SetId,
    /// Low half of the request's number.
    seq: u32,
}

impl Place {
    fn page(&self) -> PageId {
        PageId::new(self.object, self.index)
    }
}

/// See the module text.
#[derive(Clone, Debug)]
pub(super) struct Outqueue {
    places: Vec<Place>,
    map: HashTable<u32>,
    /// The place to be taken next.
    next: u32,
    capacity: u32,
}

impl Outqueue {
    /// An empty queue of `capacity` places; 0 remembers nothing.
    pub(super) fn new(capacity: u32) -> Self {
        Self {
            places: Vec::new(),
            map: HashTable::new(),
            next: 0,
            capacity,
        }
    }

    /// Number of pages.
    pub(super) fn len(&self) -> u32 {
        self.map.len() as u32
    }

    /// Whether `page` is there.
    pub(super) fn contains(&self, page: PageId) -> bool {
        let same = |&at: &u32| self.places[at as usize].page() == page;
        self.map.find(hash::of_page(page), same).is_some()
    }

    /// Puts in `page`, which is not there: it was last requested with `set`, as number `seq`.
    /// Gives the hint set of the page that left for it, which is its own when nothing is kept.
    pub(super) fn insert(&mut self, page: PageId, set: SetId, seq: u32) -> Option<SetId> {
        debug_assert!(!self.contains(page), "a page is remembered once");
        debug_assert!(set != GONE, "a number of a hint set");
        if self.capacity == 0 {
            return Some(set);
        }
        let at = self.next;
        self.next = if at + 1 == self.capacity { 0 } else { at + 1 };
        let place = Place {
            index: page.index,
            object: page.object,
            set,
            seq,
        };
        let left = match self.places.get_mut(at as usize) {
            Some(taken) => Some(std::mem::replace(taken, place)),
            None => {
                self.grow();
                self.places.push(place);
                None
            }
        };
        let left = left.filter(|left| left.set != GONE);
        if let Some(left) = &left {
            let found = self
                .map
                .find_entry(hash::of_page(left.page()), |&other| other == at);
            debug_assert!(found.is_ok(), "invariant 1");
            if let Ok(found) = found {
                found.remove();
            }
        }
        let places = &self.places;
        let rehash = |&at: &u32| hash::of_page(places[at as usize].page());
        self.map.insert_unique(hash::of_page(page), at, rehash);
        left.map(|left| left.set)
    }

    /// Takes `page` out: its hint set and the low half of its number.
    pub(super) fn remove(&mut self, page: PageId) -> Option<(SetId, u32)> {
        let same = |&at: &u32| self.places[at as usize].page() == page;
        let (at, _) = self
            .map
            .find_entry(hash::of_page(page), same)
            .ok()?
            .remove();
        let place = &mut self.places[at as usize];
        debug_assert!(place.set != GONE, "invariant 1");
        Some((std::mem::replace(&mut place.set, GONE), place.seq))
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<Place>() + self.map.allocation_size()
    }

    /// Bytes held once every place has a page.
    pub(super) fn bytes_full(&self) -> usize {
        let capacity = self.capacity as usize;
        // hashbrown: a power of two of buckets, of which one in eight stays free; it grows until
        // those in use, which come and go, are no more than half of the rest.
        let buckets = (capacity * 16).div_ceil(7).next_power_of_two();
        capacity * size_of::<Place>() + buckets * (size_of::<u32>() + 1)
    }

    /// Makes room for another place: twice as many, never more than the capacity.
    fn grow(&mut self) {
        let used = self.places.len();
        if used == self.places.capacity() {
            let more = used.max(64).min(self.capacity as usize - used);
            self.places.reserve_exact(more);
        }
    }

    /// Panics unless the numbered invariants of the module text hold. O(places).
    pub(super) fn assert_invariants(&self) {
        let used = self.places.iter().filter(|place| place.set != GONE);
        let mut count = 0;
        for place in used {
            assert!(self.contains(place.page()), "invariant 1");
            count += 1;
        }
        assert_eq!(count, self.len(), "invariant 1");
        assert!(self.places.len() <= self.capacity as usize, "invariant 2");
    }
}
