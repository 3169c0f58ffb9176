//! What is remembered of pages: those on flash, and several times as many that are not.
//!
//! A table of lines of [`WAYS`] entries; a page is in the line its address hashes to, or nowhere.
//! A new page takes a free entry, else that of the page that is not on flash and was requested
//! least recently; where all are on flash it is not remembered. So there are no lists, nothing
//! is allocated. Beside the entries are eight bits of each page's hash, which say of most entries
//! that they are not the page's: a page is found with two or three cache lines, and one that is not
//! remembered is missed with one.
//!
//! A page is known by its object and 32 bits of its index: pages further back in an object (from
//! 16 TiB on, with pages of 4 KiB) are not remembered.
//!
//! Memory: 33 bytes an entry and two bits.
//!
//! # Invariants (checked by [`Pages::assert_invariants`])
//! 1. An entry in use is in the line of its page, and no page has two.
//! 2. Only entries in use are on flash.
//! 3. An entry in use has the tag of its page, a free one [`FREE`].

use super::samples::NONE;
use crate::hash;
use crate::page::{ObjectId, PageId};

/// Entries of a line.
const WAYS: usize = 8;
/// Index of a page that can be remembered, at most.
const INDEX_MAX: u64 = u32::MAX as u64;
/// The tag of an entry that holds no page.
const FREE: u8 = 0;

/// The past of a page. Times are low halves of numbers of requests, 0 for never.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Past {
    object: u32,
    index: u32,
    /// Last read.
    pub read: u32,
    /// Last write.
    pub write: u32,
    /// Newest of its samples, or `NONE`.
    pub samples: u32,
    /// When it was first seen, in epochs (see [`Clock`]).
    ///
    /// [`Clock`]: super::features::Clock
    pub first: u16,
    /// Hint set of the last request, as a number.
    pub hints: u16,
    /// That of the last request of the other operation.
    pub other: u16,
    /// Reads, fading: sixteenths.
    pub warmth: u16,
    /// Last distance between two reads, in half powers of two.
    pub distance: u8,
    /// The one before.
    pub before: u8,
    /// Reads since first seen, at most 255.
    pub reads: u8,
    /// Writes since the last read, at most 255.
    pub writes: u8,
}

const _: () = assert!(size_of::<Past>() == 32);

impl Past {
    /// What a read adds to `warmth`.
    pub(super) const WARM: u16 = 16;

    /// Of a page that was never requested.
    pub(super) const EMPTY: Self = Self {
        object: 0,
        index: 0,
        read: 0,
        write: 0,
        samples: NONE,
        first: 0,
        hints: 0,
        other: 0,
        warmth: 0,
        distance: 0,
        before: 0,
        reads: 0,
        writes: 0,
    };

    /// The page.
    pub(super) fn page(&self) -> PageId {
        PageId::new(ObjectId(self.object), u64::from(self.index))
    }

    /// Whether the last request was a read.
    pub(super) fn is_read_last(&self, now: u32) -> bool {
        self.read != 0
            && (self.write == 0 || now.wrapping_sub(self.read) <= now.wrapping_sub(self.write))
    }

    /// When it was last requested.
    pub(super) fn last(&self, now: u32) -> u32 {
        match self.is_read_last(now) {
            true => self.read,
            false => self.write,
        }
    }

    fn is_free(&self) -> bool {
        self.read == 0 && self.write == 0
    }

    fn is_of(&self, page: PageId) -> bool {
        self.object == page.object.0 && self.index == page.index as u32 && !self.is_free()
    }
}

/// Where a page may be remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// It is.
    Known(u32),
    /// It may take this entry, whose page, if there is one, is then forgotten.
    Free(u32),
    /// Nowhere: its line is full of pages on flash, or its index is beyond [`INDEX_MAX`].
    Full,
}

/// See the module text.
#[derive(Clone, Debug)]
pub(super) struct Pages {
    entries: Vec<Past>,
    /// Of each entry; by line.
    tags: Vec<[u8; WAYS]>,
    on_flash: Vec<u64>,
    buffered: Vec<u64>,
    lines: u64,
}

impl Pages {
    /// Bytes that room for `pages` pages takes.
    pub(super) fn bytes_for(pages: u64) -> u64 {
        let lines = Self::lines_for(pages);
        let entries = lines * WAYS as u64;
        entries * size_of::<Past>() as u64 + lines * WAYS as u64 + 2 * 8 * entries.div_ceil(64)
    }

    fn lines_for(pages: u64) -> u64 {
        pages.div_ceil(WAYS as u64).max(1)
    }

    /// Whether the entries for `pages` pages can be numbered.
    pub(super) fn has_numbers(pages: u64) -> bool {
        Self::lines_for(pages) * (WAYS as u64) < u64::from(NONE)
    }

    /// Room for `pages` pages at least.
    pub(super) fn new(pages: u64) -> Self {
        let lines = Self::lines_for(pages);
        let entries = lines as usize * WAYS;
        assert!(Self::has_numbers(pages), "entries have numbers");
        Self {
            entries: vec![Past::EMPTY; entries],
            tags: vec![[FREE; WAYS]; lines as usize],
            on_flash: vec![0; entries.div_ceil(64)],
            buffered: vec![0; entries.div_ceil(64)],
            lines,
        }
    }

    /// The entry of `page`.
    pub(super) fn find(&self, page: PageId) -> Option<u32> {
        if page.index > INDEX_MAX {
            return None;
        }
        let (line, tag) = self.line(page);
        let mut equal = equal_bytes(self.tags[line / WAYS], tag);
        while equal != 0 {
            let at = line + equal.trailing_zeros() as usize / 8;
            if self.entries[at].is_of(page) {
                return Some(at as u32);
            }
            equal &= equal - 1;
        }
        None
    }

    /// Where `page`, requested now, may be remembered.
    pub(super) fn place(&self, page: PageId, now: u32) -> Place {
        if let Some(found) = self.find(page) {
            return Place::Known(found);
        }
        if page.index > INDEX_MAX {
            return Place::Full;
        }
        let (line, _) = self.line(page);
        let ways = (line..line + WAYS).map(|at| at as u32);
        let idle = |at: u32| match self.get(at) {
            past if past.is_free() => u32::MAX,
            past => now.wrapping_sub(past.last(now)),
        };
        let absent = ways.filter(|at| !self.is_on_flash(*at));
        absent
            .max_by_key(|at| (idle(*at), u32::MAX - at))
            .map_or(Place::Full, Place::Free)
    }

    /// Gives the entry `at`, found by [`Self::place`], to `page`. What is there must be set by the
    /// caller: its read or its write at least.
    pub(super) fn take(&mut self, at: u32, page: PageId) -> &mut Past {
        debug_assert!(!self.is_on_flash(at), "invariant 2");
        set(&mut self.buffered, at, false);
        let (line, tag) = self.line(page);
        debug_assert_eq!(line, at as usize / WAYS * WAYS, "invariant 1");
        self.tags[line / WAYS][at as usize % WAYS] = tag;
        let past = &mut self.entries[at as usize];
        debug_assert_eq!(
            past.samples, NONE,
            "samples end before their page is forgotten"
        );
        *past = Past {
            object: page.object.0,
            index: page.index as u32,
            ..Past::EMPTY
        };
        past
    }

    /// Forgets what is in `at`.
    pub(super) fn forget(&mut self, at: u32) {
        debug_assert_eq!(self.get(at).samples, NONE, "samples end before");
        self.set_on_flash(at, false);
        self.entries[at as usize] = Past::EMPTY;
        self.tags[at as usize / WAYS][at as usize % WAYS] = FREE;
    }

    /// What is in `at`.
    pub(super) fn get(&self, at: u32) -> &Past {
        &self.entries[at as usize]
    }

    /// The same, to be changed.
    pub(super) fn get_mut(&mut self, at: u32) -> &mut Past {
        &mut self.entries[at as usize]
    }

    /// Entries, in use or not.
    pub(super) fn places(&self) -> u32 {
        self.entries.len() as u32
    }

    /// Whether `at` holds a page.
    pub(super) fn is_known(&self, at: u32) -> bool {
        !self.get(at).is_free()
    }

    /// Whether the page in `at` is on flash.
    pub(super) fn is_on_flash(&self, at: u32) -> bool {
        bit(&self.on_flash, at)
    }

    /// Entries of pages on flash. O(entries).
    pub(super) fn on_flash(&self) -> u32 {
        self.on_flash.iter().map(|word| word.count_ones()).sum()
    }

    /// The page in `at` came to flash, or left it.
    pub(super) fn set_on_flash(&mut self, at: u32, on_flash: bool) {
        set(&mut self.on_flash, at, on_flash);
    }

    /// Whether the page in `at` is in the DRAM pool, as far as is known: a page that came there
    /// before it was remembered seems absent.
    pub(super) fn is_buffered(&self, at: u32) -> bool {
        bit(&self.buffered, at)
    }

    /// The page in `at` came into the DRAM pool, or left it.
    pub(super) fn set_buffered(&mut self, at: u32, buffered: bool) {
        set(&mut self.buffered, at, buffered);
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        let bits = self.on_flash.capacity() + self.buffered.capacity();
        self.entries.capacity() * size_of::<Past>() + self.tags.capacity() * WAYS + bits * 8
    }

    /// Panics unless the numbered invariants hold. O(entries).
    pub(super) fn assert_invariants(&self) {
        for at in 0..self.entries.len() as u32 {
            let tag = self.tags[at as usize / WAYS][at as usize % WAYS];
            match self.get(at).is_free() {
                true => {
                    assert!(!self.is_on_flash(at), "invariant 2");
                    assert_eq!(tag, FREE, "invariant 3");
                }
                false => {
                    assert_eq!(tag, self.line(self.get(at).page()).1, "invariant 3");
                    let found = self.find(self.get(at).page());
                    assert_eq!(found, Some(at), "invariant 1");
                }
            }
        }
    }

    /// First entry of the line of `page`, and its tag.
    fn line(&self, page: PageId) -> (usize, u8) {
        let hash = hash::of_page(page);
        let line = ((hash >> 32) * self.lines) >> 32;
        (line as usize * WAYS, (hash as u8).max(FREE + 1))
    }
}

/// The top bit of each byte that is `byte`, the first one lowest; above such a byte also of
/// others that differ from it in their last bit.
fn equal_bytes(bytes: [u8; 8], byte: u8) -> u64 {
    const ONES: u64 = u64::MAX / 255;
    let differ = u64::from_le_bytes(bytes) ^ (u64::from(byte) * ONES);
    differ.wrapping_sub(ONES) & !differ & (ONES << 7)
}

fn bit(bits: &[u64], at: u32) -> bool {
    bits[at as usize / 64] & 1 << (at % 64) != 0
}

fn set(bits: &mut [u64], at: u32, value: bool) {
    let word = &mut bits[at as usize / 64];
    match value {
        true => *word |= 1 << (at % 64),
        false => *word &= !(1 << (at % 64)),
    }
}
