//! A plain filter whose bits are pages of a file behind so many frames of memory (CLOCK).
//!
//! It stands for a filter mapped from the SSD under a limit of memory: same pages, same misses,
//! dirty pages written when they leave. `fastbloom` owns its bits and cannot use a mapping.

use super::{Aligned, PAGE, Scratch};
use crate::Outcome;
use std::collections::HashMap;

/// See the module text.
pub(crate) struct Paged {
    pub(crate) scratch: Scratch,
    pages: u64,
    frames: Vec<Frame>,
    /// Where a page is.
    places: HashMap<u64, usize>,
    bytes: Aligned,
    hand: usize,
}

#[derive(Clone, Copy, Default)]
struct Frame {
    page: Option<u64>,
    used: bool,
    dirty: bool,
}

impl Paged {
    /// Zeroes on `path`, `bits` of them, with `memory` bytes of frames.
    pub(crate) fn create(path: &str, bits: u64, memory: u64) -> Outcome<Self> {
        let pages = bits.div_ceil(8 * PAGE as u64);
        let frames = (memory / PAGE as u64).clamp(1, pages) as usize;
        let mut scratch = Scratch::create(path)?;
        let zeroes = Aligned::zeroed(256 * PAGE);
        for page in (0..pages).step_by(256) {
            let end = (pages - page).min(256) as usize * PAGE;
            scratch.write(&zeroes.get()[..end], page * PAGE as u64)?;
        }
        (scratch.writes, scratch.written) = (0, 0);
        Ok(Self {
            scratch,
            pages,
            frames: vec![Frame::default(); frames],
            places: HashMap::with_capacity(frames),
            bytes: Aligned::zeroed(frames * PAGE),
            hand: 0,
        })
    }

    /// The same on the file, with `memory` bytes of empty frames. To be flushed before.
    pub(crate) fn reopened(mut self, memory: u64) -> Self {
        let frames = (memory / PAGE as u64).clamp(1, self.pages) as usize;
        self.frames = vec![Frame::default(); frames];
        self.places = HashMap::with_capacity(frames);
        self.bytes = Aligned::zeroed(frames * PAGE);
        self.hand = 0;
        let scratch = &mut self.scratch;
        (scratch.reads, scratch.writes, scratch.written) = (0, 0, 0);
        self
    }

    /// Three places of a hash: double hashing.
    fn places_of(&self, hash: u64) -> [(u64, usize); 3] {
        let bits = u128::from(self.pages * 8 * PAGE as u64);
        let step = hash.rotate_left(32) | 1;
        [0u64, 1, 2].map(|round| {
            let mixed = hash.wrapping_add(step.wrapping_mul(round));
            let bit = ((u128::from(mixed) * bits) >> 64) as u64;
            (bit / (8 * PAGE as u64), (bit % (8 * PAGE as u64)) as usize)
        })
    }

    pub(crate) fn insert(&mut self, hash: u64) -> Outcome<()> {
        for (page, bit) in self.places_of(hash) {
            let frame = self.bring(page)?;
            let byte = &mut self.bytes.get_mut()[frame * PAGE + bit / 8];
            let set = 1 << (bit % 8);
            self.frames[frame].dirty |= *byte & set == 0;
            *byte |= set;
        }
        Ok(())
    }

    pub(crate) fn contains(&mut self, hash: u64) -> Outcome<bool> {
        for (page, bit) in self.places_of(hash) {
            let frame = self.bring(page)?;
            if self.bytes.get()[frame * PAGE + bit / 8] & (1 << (bit % 8)) == 0 {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Writes what is dirty.
    pub(crate) fn flush(&mut self) -> Outcome<()> {
        (0..self.frames.len()).try_for_each(|frame| self.clean(frame))
    }

    fn bring(&mut self, page: u64) -> Outcome<usize> {
        if let Some(&frame) = self.places.get(&page) {
            self.frames[frame].used = true;
            return Ok(frame);
        }
        while std::mem::take(&mut self.frames[self.hand].used) {
            self.hand = (self.hand + 1) % self.frames.len();
        }
        let frame = self.hand;
        self.hand = (self.hand + 1) % self.frames.len();
        self.clean(frame)?;
        if let Some(old) = self.frames[frame].page {
            self.places.remove(&old);
        }
        let bytes = &mut self.bytes.get_mut()[frame * PAGE..][..PAGE];
        self.scratch.read(bytes, page * PAGE as u64)?;
        self.places.insert(page, frame);
        self.frames[frame] = Frame {
            page: Some(page),
            used: true,
            dirty: false,
        };
        Ok(frame)
    }

    fn clean(&mut self, frame: usize) -> Outcome<()> {
        let Frame { page, dirty, .. } = self.frames[frame];
        if let (Some(page), true) = (page, dirty) {
            let bytes = &self.bytes.get()[frame * PAGE..][..PAGE];
            self.scratch.write(bytes, page * PAGE as u64)?;
            self.frames[frame].dirty = false;
        }
        Ok(())
    }
}
