//! Pages under observation: what a page looked like at some moment, until it is known what it
//! was worth then.
//!
//! A ring in order of time. The samples of one page are a chain from the page's entry, newest
//! first; they end together at the page's next request, or one by one when they are overdue.
//!
//! # States of a place of the ring
//! ```text
//! free --push--> waiting --end of its page's chain, or overdue--> ended --the ring passes--> free
//! ```
//!
//! Memory: 68 bytes a place.
//!
//! # Invariants (checked by [`Samples::assert_invariants`])
//! 1. A chain leads from newer to older samples of the same entry, all waiting.
//! 2. Places from the oldest on, `len` of them, are in order of time.

use super::hint_types::Values;
use super::model::Indices;

/// No place, no entry.
pub(super) const NONE: u32 = u32::MAX;

/// One page at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sample {
    /// The page's entry; `NONE` once it ended.
    pub entry: u32,
    /// When.
    pub time: u32,
    /// Older sample of the same entry.
    pub older: u32,
    /// Requests since the page's last one then.
    pub age: u32,
    /// The number of its hint set.
    pub hints: u16,
    /// Its indices then.
    pub indices: Indices,
    /// Hint values of its request, where it was sampled at its request.
    pub values: Option<Values>,
}

const _: () = assert!(size_of::<Sample>() == 68);

/// See the module text.
#[derive(Clone, Debug)]
pub(super) struct Samples {
    ring: Vec<Sample>,
    oldest: u32,
    len: u32,
}

impl Samples {
    /// Room for `places` samples.
    pub(super) fn new(places: u32) -> Self {
        assert!((1..NONE).contains(&places), "there can be samples");
        let free = Sample {
            entry: NONE,
            time: 0,
            older: NONE,
            age: 0,
            hints: 0,
            indices: Indices::default(),
            values: None,
        };
        Self {
            ring: vec![free; places as usize],
            oldest: 0,
            len: 0,
        }
    }

    /// Room for so many.
    pub(super) fn capacity(&self) -> u32 {
        self.ring.len() as u32
    }

    /// Whether there is no room.
    pub(super) fn is_full(&self) -> bool {
        self.len as usize == self.ring.len()
    }

    /// Puts in a sample, the newest; there is room. Gives its place.
    pub(super) fn push(&mut self, sample: Sample) -> u32 {
        debug_assert!(!self.is_full(), "room was made");
        let at = (self.oldest + self.len) % self.capacity();
        self.ring[at as usize] = sample;
        self.len += 1;
        at
    }

    /// The oldest sample that waits, and its place; those that ended before it leave.
    pub(super) fn oldest(&mut self) -> Option<(u32, Sample)> {
        while self.len > 0 {
            let sample = self.ring[self.oldest as usize];
            if sample.entry != NONE {
                return Some((self.oldest, sample));
            }
            self.oldest = (self.oldest + 1) % self.capacity();
            self.len -= 1;
        }
        None
    }

    /// Takes the sample at `at` out of the observation; gives it.
    pub(super) fn end(&mut self, at: u32) -> Sample {
        let sample = &mut self.ring[at as usize];
        debug_assert!(sample.entry != NONE, "a sample ends once");
        let ended = *sample;
        sample.entry = NONE;
        ended
    }

    /// The chain from `newest` without its oldest sample, which is at `oldest`: gives where it
    /// begins. O(chain).
    pub(super) fn cut(&mut self, newest: u32, oldest: u32) -> u32 {
        if newest == oldest {
            return NONE;
        }
        let mut at = newest;
        while self.ring[at as usize].older != oldest {
            at = self.ring[at as usize].older;
        }
        self.ring[at as usize].older = NONE;
        newest
    }

    /// Where the ring lies.
    #[cfg(test)]
    pub(super) fn address(&self) -> *const Sample {
        self.ring.as_ptr()
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.ring.capacity() * size_of::<Sample>()
    }

    /// Panics unless the numbered invariants hold, `newest` giving where the chain of an entry
    /// begins. O(places × chain).
    pub(super) fn assert_invariants(&self, now: u32, newest: impl Fn(u32) -> u32) {
        let mut youngest = u32::MAX;
        for step in 0..self.len {
            let at = (self.oldest + step) % self.capacity();
            let sample = &self.ring[at as usize];
            let age = now.wrapping_sub(sample.time);
            assert!(age <= youngest, "invariant 2");
            youngest = age;
            if sample.entry == NONE {
                continue;
            }
            let mut link = newest(sample.entry);
            while link != at {
                assert!(
                    link != NONE,
                    "invariant 1: a sample is in its entry's chain"
                );
                let newer = &self.ring[link as usize];
                assert_eq!(newer.entry, sample.entry, "invariant 1");
                link = newer.older;
            }
        }
    }
}
