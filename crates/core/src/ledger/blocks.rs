//! The blocks of the device one by one: what each is used for, what the durable map says of it, and
//! the checksum of its bytes.
//!
//! Free blocks need no list beside this: one that was in use and became free again names the next
//! such block where its checksum was; those from `fresh` on that are free are found by looking.
//!
//! # Invariants (checked by [`Blocks::assert_invariants`])
//! 1. A free block is from `fresh` on, or once in the chain that starts at `first`, or once in
//!    `failed`; nothing else is in these two. `free` is their number.
//! 2. The durable map says that a free, taken or retired block is empty.
//! 3. Free blocks lie below `limit`, retired ones do not; `fresh` is not above `limit`.
//!
//! Memory: 9 bytes a block.

use super::MapEntry;
use crate::page::BlockId;
use std::collections::VecDeque;

/// The end of the chain of free blocks.
const NONE: u32 = u32::MAX;

/// What a block is used for; see [`super`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Use {
    Free,
    Taken,
    Named,
    Doubted,
    Limbo,
    Retired,
}

/// What the durable map says of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Durable {
    Empty,
    Clean,
    Dirty,
}

impl Durable {
    pub(super) fn of(entry: Option<&MapEntry>) -> Self {
        match entry {
            None => Self::Empty,
            Some(entry) if entry.dirty => Self::Dirty,
            Some(_) => Self::Clean,
        }
    }
}

/// Both in a byte: the use in the lower four bits. Zero is free and empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct State(u8);

impl State {
    const fn new(used: Use, durable: Durable) -> Self {
        Self(used as u8 | (durable as u8) << 4)
    }

    const fn used(self) -> Use {
        match self.0 & 15 {
            0 => Use::Free,
            1 => Use::Taken,
            2 => Use::Named,
            3 => Use::Doubted,
            4 => Use::Limbo,
            _ => Use::Retired,
        }
    }

    const fn durable(self) -> Durable {
        match self.0 >> 4 {
            0 => Durable::Empty,
            1 => Durable::Clean,
            _ => Durable::Dirty,
        }
    }
}

/// See the module text.
#[derive(Debug)]
pub(super) struct Blocks {
    /// Of a free block in the chain: the number of the next, or [`NONE`].
    checksums: Vec<u64>,
    states: Vec<u8>,
    first: u32,
    fresh: u32,
    /// Free blocks whose last write failed: taken when there is no other.
    failed: VecDeque<BlockId>,
    free: u32,
    /// Blocks from here on are given out no more.
    limit: u32,
}

impl Blocks {
    /// `blocks` free blocks, handed out in order from block 0. What they take in memory is not
    /// touched before they are used.
    pub(super) fn new(blocks: u32) -> Self {
        assert!(blocks < NONE, "blocks have numbers");
        Self {
            checksums: vec![0; blocks as usize],
            states: vec![0; blocks as usize],
            first: NONE,
            fresh: 0,
            failed: VecDeque::new(),
            free: blocks,
            limit: blocks,
        }
    }

    pub(super) fn len(&self) -> u32 {
        self.states.len() as u32
    }

    /// Free blocks.
    pub(super) fn free(&self) -> u32 {
        self.free
    }

    pub(super) fn limit(&self) -> u32 {
        self.limit
    }

    pub(super) fn used(&self, block: BlockId) -> Use {
        State(self.states[block.at()]).used()
    }

    pub(super) fn durable(&self, block: BlockId) -> Durable {
        State(self.states[block.at()]).durable()
    }

    /// Checksum of the bytes in `block`, which is named or in doubt.
    pub(super) fn checksum(&self, block: BlockId) -> u64 {
        self.checksums[block.at()]
    }

    /// Uses of the blocks from `first` on.
    pub(super) fn past(&self, first: u32) -> impl Iterator<Item = Use> + '_ {
        let past = self.states.get(first as usize..).unwrap_or_default();
        past.iter().map(|state| State(*state).used())
    }

    /// Neither from free nor to it: that is [`Blocks::take`], [`Blocks::restore`] and
    /// [`Blocks::release`].
    pub(super) fn set_used(&mut self, block: BlockId, used: Use) {
        let before = self.used(block);
        assert!(before != Use::Free && used != Use::Free, "invariant 1");
        self.states[block.at()] = State::new(used, self.durable(block)).0;
    }

    pub(super) fn set_durable(&mut self, block: BlockId, durable: Durable) {
        self.states[block.at()] = State::new(self.used(block), durable).0;
    }

    /// The taken `block` holds a page.
    pub(super) fn name(&mut self, block: BlockId, checksum: u64) {
        self.set_used(block, Use::Named);
        self.checksums[block.at()] = checksum;
    }

    /// `block` holds a page and always did; false when it is not free, or was used before.
    pub(super) fn restore(&mut self, block: BlockId, durable: Durable, checksum: u64) -> bool {
        let inside = (self.fresh..self.limit).contains(&block.0);
        if !inside || self.used(block) != Use::Free {
            return false;
        }
        self.states[block.at()] = State::new(Use::Named, durable).0;
        self.checksums[block.at()] = checksum;
        self.free -= 1;
        true
    }

    /// A free block, taken now.
    pub(super) fn take(&mut self) -> Option<BlockId> {
        let block = self.next_free()?;
        assert_eq!(self.used(block), Use::Free, "invariant 1: {block:?}");
        self.states[block.at()] = State::new(Use::Taken, self.durable(block)).0;
        self.free -= 1;
        Some(block)
    }

    fn next_free(&mut self) -> Option<BlockId> {
        if self.first != NONE {
            let block = BlockId(self.first);
            self.first = self.checksums[block.at()] as u32;
            return Some(block);
        }
        while self.fresh < self.limit {
            let block = BlockId(self.fresh);
            self.fresh += 1;
            if self.used(block) == Use::Free {
                return Some(block);
            }
        }
        self.failed.pop_front()
    }

    /// Nothing needs `block` any more.
    pub(super) fn release(&mut self, block: BlockId) {
        if self.let_go(block) && block.0 < self.fresh {
            self.checksums[block.at()] = u64::from(self.first);
            self.first = block.0;
        }
    }

    /// The same, and other free blocks are better.
    pub(super) fn release_last(&mut self, block: BlockId) {
        if self.let_go(block) && block.0 < self.fresh {
            self.failed.push_back(block);
        }
    }

    /// True when it is free now, false when it is retired.
    fn let_go(&mut self, block: BlockId) -> bool {
        assert_eq!(self.durable(block), Durable::Empty, "invariant 2");
        assert_ne!(self.used(block), Use::Free, "invariant 1: {block:?}");
        let stays = block.0 < self.limit;
        let used = if stays { Use::Free } else { Use::Retired };
        self.states[block.at()] = State::new(used, Durable::Empty).0;
        self.free += u32::from(stays);
        stays
    }

    /// Blocks from `limit` on are given out no more. O(blocks that go, and free ones).
    pub(super) fn retire(&mut self, limit: u32) {
        self.limit = limit;
        self.fresh = self.fresh.min(limit);
        self.failed.retain(|block| block.0 < limit);
        let mut chained = Vec::new();
        while self.first != NONE {
            chained.push(BlockId(self.first));
            self.first = self.checksums[self.first as usize] as u32;
        }
        for block in chained.into_iter().rev().filter(|b| b.0 < limit) {
            self.checksums[block.at()] = u64::from(self.first);
            self.first = block.0;
        }
        for state in &mut self.states[limit as usize..] {
            if State(*state).used() == Use::Free {
                *state = State::new(Use::Retired, State(*state).durable()).0;
                self.free -= 1;
            }
        }
    }

    /// There are `blocks` blocks now, and retired ones are free. O(blocks that come).
    pub(super) fn resize(&mut self, blocks: u32) {
        assert!(blocks < NONE, "blocks have numbers");
        let retired = State::new(Use::Retired, Durable::Empty).0;
        self.checksums.resize(blocks as usize, 0);
        self.states.resize(blocks as usize, retired);
        let from = self.limit.min(blocks) as usize;
        for state in self.states[from..].iter_mut().filter(|s| **s == retired) {
            *state = State::new(Use::Free, Durable::Empty).0;
            self.free += 1;
        }
        self.limit = blocks;
        assert!(self.fresh <= blocks, "invariant 3");
    }

    /// Bytes of memory held.
    pub(super) fn bytes(&self) -> usize {
        self.checksums.capacity() * size_of::<u64>()
            + self.states.capacity()
            + self.failed.capacity() * size_of::<BlockId>()
    }

    /// Panics unless the numbered invariants hold. O(blocks).
    pub(super) fn assert_invariants(&self) {
        let blocks = || (0..self.len()).map(BlockId);
        let free = |block: &BlockId| self.used(*block) == Use::Free;
        let mut listed = blocks().skip(self.fresh as usize).filter(free).count() as u32;
        let mut at = self.first;
        while at != NONE {
            assert!(free(&BlockId(at)) && at < self.fresh, "invariant 1");
            listed += 1;
            assert!(listed <= self.free, "invariant 1: the chain has no end");
            at = self.checksums[at as usize] as u32;
        }
        for block in &self.failed {
            assert!(free(block) && block.0 < self.fresh, "invariant 1");
            listed += 1;
        }
        assert_eq!(listed, self.free, "invariant 1");
        assert_eq!(blocks().filter(free).count() as u32, listed, "invariant 1");
        assert!(
            self.fresh <= self.limit && self.limit <= self.len(),
            "invariant 3"
        );
        for block in blocks() {
            let (used, durable) = (self.used(block), self.durable(block));
            let unused = matches!(used, Use::Free | Use::Taken | Use::Retired);
            assert!(!unused || durable == Durable::Empty, "invariant 2");
            assert!(used != Use::Free || block.0 < self.limit, "invariant 3");
            assert!(used != Use::Retired || block.0 >= self.limit, "invariant 3");
        }
    }
}
