//! Which slot holds which page: a hash table of slot numbers in lines of 64 bytes. It never grows.
//!
//! A line has room for [`IDS`] numbers, and for each a byte of its page's hash. A number is in
//! the line that its hash names, or in the first one after that which had room; every full line
//! on its way counts it, in one of [`CLASSES`] counts, by its hash. So a search ends at the first
//! line that nobody of that class passed, there are no marks of removed numbers, and nothing has
//! ever to be moved or made anew. A page is looked up with one line of the table as a rule and,
//! but once in some twenty times, no other slot than its own.
//!
//! # Invariants (checked by [`Lines::assert_invariants`])
//! 1. A line's count of a class is the number of ids of that class that are further on than it and
//!    were to be in it or in a line before; or [`MANY`], for good.
//! 2. There is room for `capacity` ids, and `len` are there.
//!
//! Memory: 6.1 bytes an id there is room for. Time: O(1).

/// Ids in a line.
const IDS: usize = 12;
/// Counts of a line: the rest of its bytes.
const CLASSES: usize = 16 - IDS;
/// A count that is not known any more.
const MANY: u8 = u8::MAX;

#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line {
    /// A byte of each id's hash, 0 where there is none; then the counts.
    head: [u8; 16],
    ids: [u32; IDS],
}

const _: () = assert!(size_of::<Line>() == 64, "one line of a processor's cache");

impl Line {
    const EMPTY: Self = Self {
        head: [0; 16],
        ids: [0; IDS],
    };

    /// Places whose byte is `tag`, lowest first.
    fn places(&self, tag: u8) -> impl Iterator<Item = usize> + use<> {
        const ONES: u128 = (u128::MAX / 255) >> (8 * (16 - IDS));
        let head = self.head;
        let differs = u128::from_le_bytes(head) ^ (ONES * u128::from(tag));
        // The highest bit of each byte that is zero, and, by the borrow, of some above it that are
        // one: among these may be empty places, whose ids are of whoever was there before.
        let mut left = differs.wrapping_sub(ONES) & !differs & (ONES << 7);
        let marked = std::iter::from_fn(move || {
            let place = (left != 0).then(|| left.trailing_zeros() as usize / 8);
            left &= left.wrapping_sub(1);
            place
        });
        marked.filter(move |place| head[*place] == tag)
    }
}

/// See the module text.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    lines: Vec<Line>,
    capacity: u32,
    len: u32,
}

/// Never 0.
fn tag(hash: u64) -> u8 {
    (hash as u8).max(1)
}

/// Where the count of the class of `hash` is.
fn class(hash: u64) -> usize {
    IDS + (hash >> 8) as usize % CLASSES
}

impl Lines {
    /// Room for `capacity` ids.
    pub(super) fn new(capacity: u32) -> Self {
        // Seven eighths full at most, but for the rounding.
        let lines = u64::from(capacity) * 8 / (7 * IDS as u64) + 1;
        Self {
            lines: vec![Line::EMPTY; lines as usize],
            capacity,
            len: 0,
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    /// The line that an id of `hash` is in if there is room. From the upper bits: `tag` takes the
    /// lowest, `class` the next.
    fn home(&self, hash: u64) -> usize {
        (((hash >> 32) * self.lines.len() as u64) >> 32) as usize
    }

    fn after(&self, at: usize) -> usize {
        if at + 1 == self.lines.len() {
            0
        } else {
            at + 1
        }
    }

    /// A byte of the line that an id of `hash` is in as a rule: whoever looks brings it near.
    pub(super) fn glance(&self, hash: u64) -> u8 {
        self.lines[self.home(hash)].head[0]
    }

    /// The id of `hash` that `is` the one.
    pub(super) fn find(&self, hash: u64, is: impl Fn(u32) -> bool) -> Option<u32> {
        let mut at = self.home(hash);
        for _ in 0..self.lines.len() {
            let line = &self.lines[at];
            let ids = line.places(tag(hash)).map(|place| line.ids[place]);
            if let Some(id) = ids.into_iter().find(|id| is(*id)) {
                return Some(id);
            }
            if line.head[class(hash)] == 0 {
                return None;
            }
            at = self.after(at);
        }
        None
    }

    /// Adds `id`, which is not there.
    pub(super) fn insert(&mut self, hash: u64, id: u32) {
        assert!(self.len < self.capacity, "invariant 2");
        self.len += 1;
        let mut at = self.home(hash);
        loop {
            let line = &mut self.lines[at];
            if let Some(place) = line.places(0).next() {
                line.head[place] = tag(hash);
                line.ids[place] = id;
                return;
            }
            line.head[class(hash)] = line.head[class(hash)].saturating_add(1);
            at = self.after(at);
        }
    }

    /// Takes out `id`, which is there.
    pub(super) fn remove(&mut self, hash: u64, id: u32) {
        assert!(self.len > 0, "what leaves is there");
        self.len -= 1;
        let mut at = self.home(hash);
        loop {
            let line = &mut self.lines[at];
            let mut places = line.places(tag(hash));
            if let Some(place) = places.find(|place| line.ids[*place] == id) {
                line.head[place] = 0;
                return;
            }
            assert!(
                line.head[class(hash)] > 0,
                "invariant 1: {id} is in the table"
            );
            if line.head[class(hash)] != MANY {
                line.head[class(hash)] -= 1;
            }
            at = self.after(at);
        }
    }

    pub(super) fn bytes(&self) -> usize {
        self.lines.capacity() * size_of::<Line>()
    }

    /// Panics unless the numbered invariants hold, given the hash of an id. O(capacity).
    pub(super) fn assert_invariants(&self, hash_of: impl Fn(u32) -> u64) {
        let mut passed = vec![[0u32; 16]; self.lines.len()];
        let mut held = 0;
        for (at, line) in self.lines.iter().enumerate() {
            for place in (0..IDS).filter(|place| line.head[*place] != 0) {
                let hash = hash_of(line.ids[place]);
                assert_eq!(line.head[place], tag(hash), "an id has its hash's byte");
                held += 1;
                let mut on_the_way = self.home(hash);
                while on_the_way != at {
                    passed[on_the_way][class(hash)] += 1;
                    on_the_way = self.after(on_the_way);
                }
            }
        }
        for (line, passed) in self.lines.iter().zip(passed) {
            for (count, passed) in line.head.iter().zip(passed).skip(IDS) {
                let known = *count != MANY;
                assert!(!known || u32::from(*count) == passed, "invariant 1");
            }
        }
        assert_eq!(held, self.len, "invariant 2");
        assert!(self.len <= self.capacity, "invariant 2");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::mix;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    proptest! {
        /// Few lines and few hashes, so that ids pass over many lines and round the end; few bytes
        /// of them, the lowest too, which stand beside those of empty places.
        #[test]
        fn equals_a_set(
            spread in prop::sample::select(vec![1u64, 3, 40]),
            bytes in prop::sample::select(vec![0u64, 1, 3, 255]),
            ops in proptest::collection::vec(0u32..60, 1..400),
        ) {
            let hash_of = |id: u32| mix(5, u64::from(id) % spread) & (!255 | bytes);
            let mut table = Lines::new(50);
            let mut model = BTreeSet::new();
            for id in ops {
                if model.remove(&id) {
                    table.remove(hash_of(id), id);
                } else if model.len() < 50 {
                    table.insert(hash_of(id), id);
                    model.insert(id);
                }
                table.assert_invariants(hash_of);
                for id in 0..60 {
                    let found = table.find(hash_of(id), |other| other == id);
                    prop_assert_eq!(found, model.get(&id).copied());
                }
                prop_assert_eq!(table.len() as usize, model.len());
            }
        }
    }

    /// A slot that is drained keeps its page for a while, and its number its place in the line.
    #[test]
    fn what_left_is_not_found_by_what_its_place_still_says() {
        for byte in 0..=255 {
            let mut table = Lines::new(8);
            table.insert(byte, 1);
            table.insert(byte, 2);
            table.remove(byte, 2);
            assert_eq!(table.find(byte, |id| id == 2), None, "{byte}");
            assert_eq!(table.find(byte, |id| id == 1), Some(1), "{byte}");
        }
    }

    #[test]
    fn a_count_that_was_too_high_stays_and_does_no_harm() {
        let mut table = Lines::new(600);
        for id in 0..600 {
            table.insert(7 << 32, id);
        }
        for id in 0..600 {
            table.remove(7 << 32, id);
            assert_eq!(table.find(7 << 32, |other| other == id), None);
            assert_eq!(
                table.find(7 << 32, |other| other == 599),
                (id < 599).then_some(599)
            );
        }
        table.assert_invariants(|_| 7 << 32);
    }
}
