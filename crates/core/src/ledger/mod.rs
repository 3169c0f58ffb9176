//! What the map on flash says, what it will say after the next commit, and which blocks of the
//! device may be written meanwhile.
//!
//! The map on the device names a page for every block in use. It changes by *batches*: whatever
//! changed since the last batch is handed out by [`Ledger::begin_commit`], written and synced by
//! the caller, and becomes durable with [`Ledger::end_commit`].
//!
//! # States of a batch
//! ```text
//!          begin_commit           commit_written           end_commit
//!  (none) --------------> Begun -----------------> Written -----------> durable
//!                           |                                              ^
//!                           +--------------- end_commit -------------------+
//! ```
//! Two may be under way: while the older one, which is *written*, is being synced, the next one is
//! begun and written. A batch that failed stays under way, and so do those behind it.
//!
//! # States of a block
//! ```text
//!        take          wrote           removed, superseded        committed
//!  Free ------> Taken --------> Named ----------------------> Limbo ---------> Free
//!                 |               ^                              ^               ^
//!                 |               | believe                      |               |
//!                 |            Doubted ------ give_up_doubt -----+               |
//!                 +------ give_back (it was not written, or for nobody) ---------+
//! ```
//! A restart finds blocks *named*, or *doubted* where base was being written (`doubts.rs`).
//! A batch may name a block while its bytes are still on their way (`ahead.rs`).
//! While the device is made shorter, blocks past its new end become *retired* where they would
//! become free ([`Ledger::retire`]), and are cut off when all of them are ([`Ledger::resize`]).
//!
//! # Invariants
//! 1. Free, taken, named, doubted, limbo and retired blocks are all blocks; none is in two of these
//!    states.
//! 2. The durable map says that a free block is empty. A batch counts wholly or not at all, so a
//!    page's old block is given up in the batch that names its new one, and is free when that one
//!    is durable.
//! 3. `owed` holds every page that the durable map may call dirty although it is not.
//! 4. While a base write of a region is allowed, its intent is durable.
//! 5. Free blocks lie below the limit, retired ones do not.
//! 6. `doubts` has every doubted block, by its page; the durable map calls it clean, and a durable
//!    intent covers the page for as long as it is in doubt.
//! 7. `versions` has every named block whose page is dirty: what the map is to say of it when it
//!    becomes clean must have the same version. Those of clean pages nobody asks for.
//! 8. At most [`UNDER_WAY_MAX`] batches are under way. They become durable in the order in which
//!    they began, and all but the newest are written: a later one may give up what an earlier one
//!    names, so it must not count without that.
//!
//! Memory: 9 bytes a block, about 25 for each that is dirty, what changed since the last batch, and
//! about 30 a doubt.

mod ahead;
mod blocks;
mod doubts;
mod intents;
#[cfg(test)]
mod tests;

pub use ahead::Ahead;
pub use intents::{Doubtful, INTENT_PAGES, Intent};

use crate::page::{BlockId, PageId};
use ahead::Announced;
use blocks::{Blocks, Durable, Use};
use intents::{Intended, Step};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Batches that may be under way at a time: one that is being synced, one that is being written.
pub const UNDER_WAY_MAX: usize = 2;

/// What the map says of one block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapEntry {
    /// The page whose bytes the block holds.
    pub page: PageId,
    /// Checksum of those bytes, which covers the page's address.
    pub checksum: u64,
    /// Counts up over the life of the cache: where two blocks claim one page the higher is newer.
    pub version: u64,
    /// Whether these bytes are newer than base's.
    pub dirty: bool,
}

/// One change of the durable map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapChange {
    /// The block's entry is now this; `None`: the block holds nothing.
    Set {
        /// The block.
        block: BlockId,
        /// Its new entry.
        entry: Option<MapEntry>,
    },
    /// Base writes to the region are about to happen (`on`), or all are durable (`!on`).
    Intend {
        /// The region.
        intent: Intent,
        /// Whether it starts.
        on: bool,
    },
}

/// What waits for a batch to become durable.
#[derive(Debug, Default)]
struct Waiting {
    limbo: Vec<BlockId>,
    owed: BTreeSet<PageId>,
    /// What the batch makes of the durable map.
    says: Vec<(BlockId, Durable)>,
    /// Blocks that the batch names though their bytes are still on their way.
    ahead: BTreeMap<BlockId, Announced>,
    /// The number of the batch, once it is under way.
    number: u64,
    /// Whether it and the bytes it names are on the device, if not durable.
    written: bool,
}

impl Waiting {
    fn is_empty(&self) -> bool {
        let nothing = self.limbo.is_empty() && self.owed.is_empty();
        nothing && self.says.is_empty() && self.ahead.is_empty()
    }
}

/// See the module text.
#[derive(Debug)]
pub struct Ledger {
    blocks: Blocks,
    versions: BTreeMap<BlockId, u64>,
    given_up: u32,
    next_version: u64,
    changes: BTreeMap<BlockId, Option<MapEntry>>,
    intent_changes: BTreeMap<Intent, bool>,
    intents: BTreeMap<Intent, Intended>,
    doubts: BTreeMap<PageId, BlockId>,
    sync_epoch: u64,
    /// Regions stay marked, quiet or not.
    keeps_marks: bool,
    pending: Waiting,
    /// Batches under way, oldest first.
    committing: VecDeque<Waiting>,
    /// Batches begun so far.
    begun: u64,
}

impl Ledger {
    /// A ledger of `blocks` free blocks, handed out in order from block 0.
    #[must_use]
    pub fn new(blocks: u32) -> Self {
        Self {
            blocks: Blocks::new(blocks),
            versions: BTreeMap::new(),
            given_up: 0,
            next_version: 1,
            changes: BTreeMap::new(),
            intent_changes: BTreeMap::new(),
            intents: BTreeMap::new(),
            doubts: BTreeMap::new(),
            sync_epoch: 0,
            keeps_marks: false,
            pending: Waiting::default(),
            committing: VecDeque::new(),
            begun: 0,
        }
    }

    /// Number of blocks.
    #[must_use]
    pub fn blocks(&self) -> u32 {
        self.blocks.len()
    }

    /// Blocks that can be taken now.
    #[must_use]
    pub fn free(&self) -> u32 {
        self.blocks.free()
    }

    /// Whether a commit would free blocks.
    #[must_use]
    pub fn has_limbo(&self) -> bool {
        !self.pending.limbo.is_empty()
    }

    /// Changes that the next batch would carry.
    #[must_use]
    pub fn changed(&self) -> usize {
        self.changes.len() + self.intent_changes.len()
    }

    /// Checksum of the bytes in `block`.
    #[must_use]
    pub fn checksum(&self, block: BlockId) -> u64 {
        self.blocks.checksum(block)
    }

    /// As after a restart: `block` holds the page of `entry`, and the map says so. False when the
    /// block is no free block of this ledger.
    pub fn restore(&mut self, block: BlockId, entry: &MapEntry) -> bool {
        let durable = Durable::of(Some(entry));
        if !self.blocks.restore(block, durable, entry.checksum) {
            return false;
        }
        if entry.dirty {
            self.versions.insert(block, entry.version);
        }
        self.next_version = self.next_version.max(entry.version.saturating_add(1));
        true
    }

    /// Ends a series of [`Ledger::restore`]: versions go on from `next_version` at least; `intents`
    /// are still on, and cover every doubt.
    pub fn restored(&mut self, next_version: u64, intents: impl IntoIterator<Item = Intent>) {
        self.next_version = self.next_version.max(next_version);
        for intent in intents {
            self.intents.insert(intent, Intended::RESTORED);
        }
        self.assert_doubts();
    }

    /// A block to write new bytes to.
    pub fn take(&mut self) -> Option<BlockId> {
        let block = self.blocks.take()?;
        // The bytes that a durable entry names are never written over.
        assert_eq!(self.blocks.durable(block), Durable::Empty, "invariant 2");
        Some(block)
    }

    /// The taken `block` was not written, or not for anyone.
    pub fn give_back(&mut self, block: BlockId) {
        assert_eq!(self.blocks.used(block), Use::Taken);
        self.blocks.release(block);
    }

    /// Blocks from this one on are given out no more ([`Ledger::retire`]).
    #[must_use]
    pub fn limit(&self) -> u32 {
        self.blocks.limit()
    }

    /// Blocks from `limit` on are given out no more: the device will be shorter. What they hold
    /// stays until it leaves.
    pub fn retire(&mut self, limit: u32) {
        assert!(limit <= self.blocks(), "a shorter device has fewer blocks");
        self.give_up_doubts_past(limit);
        self.blocks.retire(limit);
    }

    /// Whether a write to a block from `limit` on has not ended well: it may still be to come.
    #[must_use]
    pub fn has_taken(&self, limit: u32) -> bool {
        self.blocks.past(limit).any(|used| used == Use::Taken)
    }

    /// Whether the durable map names nothing in the blocks that are given out no more.
    #[must_use]
    pub fn is_retired(&self) -> bool {
        let mut past = self.blocks.past(self.blocks.limit());
        past.all(|used| used == Use::Retired)
    }

    /// The device has `blocks` blocks now, and all of them may be given out. For fewer than before,
    /// [`Ledger::is_retired`] must hold for those that go.
    pub fn resize(&mut self, blocks: u32) {
        assert!(self.blocks.past(blocks).all(|used| used == Use::Retired));
        assert!(self.changes.range(BlockId(blocks)..).next().is_none());
        self.blocks.resize(blocks);
    }

    /// As [`Ledger::new`], for another device that holds nothing, under base writes that go on:
    /// whoever had leave to write base keeps it, for the first batch that names a page on the new
    /// device names their regions too. A batch that failed is forgotten with the old device, and so
    /// is what was in doubt there.
    #[must_use]
    pub fn moved_to(&self, blocks: u32) -> Self {
        let on = |(intent, was): (&Intent, &Intended)| (*intent, was.moved());
        Self {
            intent_changes: self.intents.keys().map(|intent| (*intent, true)).collect(),
            intents: self.intents.iter().map(on).collect(),
            sync_epoch: self.sync_epoch,
            ..Self::new(blocks)
        }
    }

    /// A ledger without blocks gets those of `loaded`, with all that is known of them, and goes on
    /// with its own base writes. No batch of either is under way. Its marks must cover whatever
    /// `loaded` has in doubt.
    pub fn join(&mut self, loaded: Self) {
        assert!(self.blocks() == 0 && self.changes.is_empty() && self.pending.is_empty());
        assert!(self.committing.is_empty() && loaded.committing.is_empty());
        for (intent, intended) in loaded.intents {
            self.intents.entry(intent).or_insert(intended);
        }
        self.blocks = loaded.blocks;
        self.versions = loaded.versions;
        self.given_up = loaded.given_up;
        self.next_version = self.next_version.max(loaded.next_version);
        self.changes = loaded.changes;
        self.doubts = loaded.doubts;
        self.pending = loaded.pending;
        self.assert_doubts();
    }

    /// The write of the taken `block` failed: it is tried again when all others were.
    pub fn give_back_last(&mut self, block: BlockId) {
        assert_eq!(self.blocks.used(block), Use::Taken);
        self.blocks.release_last(block);
    }

    /// The write of the taken `block` is late and may still arrive: it is not written before the
    /// next start.
    pub fn give_up(&mut self, block: BlockId) {
        assert_eq!(self.blocks.used(block), Use::Taken);
        self.given_up += 1;
    }

    /// Whether the durable map, and whatever a batch under way makes of it, calls no page dirty.
    #[must_use]
    pub fn is_all_clean(&self) -> bool {
        self.versions.is_empty() && self.waiting().all(|waiting| waiting.owed.is_empty())
    }

    /// Blocks that were not given up.
    #[must_use]
    pub fn usable(&self) -> u32 {
        assert!(self.given_up <= self.blocks());
        self.blocks() - self.given_up
    }

    /// The taken `block` now holds `page`; `old` held an older version of it.
    pub fn wrote(
        &mut self,
        block: BlockId,
        page: PageId,
        checksum: u64,
        dirty: bool,
        old: Option<BlockId>,
    ) {
        assert_eq!(self.blocks.used(block), Use::Taken);
        let version = self.new_version();
        self.blocks.name(block, checksum);
        if dirty {
            self.versions.insert(block, version);
        }
        self.set(
            block,
            Some(MapEntry {
                page,
                checksum,
                version,
                dirty,
            }),
        );
        if let Some(old) = old {
            assert!(dirty || self.is_settled(old, page), "invariant 3: {page:?}");
            self.vacate(old);
        }
    }

    fn new_version(&mut self) -> u64 {
        let version = self.next_version;
        // A lower version would lose against what it is to replace.
        assert!(
            version < u64::MAX,
            "versions count up: the map names the last one there is"
        );
        self.next_version += 1;
        version
    }

    /// Whether the durable map does not call `page` in `block` dirty, or that is noted.
    fn is_settled(&self, block: BlockId, page: PageId) -> bool {
        self.blocks.durable(block) != Durable::Dirty || self.is_owed(page)
    }

    /// Whether the durable map says that `block`, which is named, holds newer bytes than base.
    #[must_use]
    pub fn knows_dirty(&self, block: BlockId) -> bool {
        self.blocks.used(block) == Use::Named && self.blocks.durable(block) == Durable::Dirty
    }

    /// The version of the newer bytes than base's that `block` durably holds; `None` for others.
    #[must_use]
    pub fn durable_version(&self, block: BlockId) -> Option<u64> {
        let version = self.versions.get(&block).copied();
        version.filter(|_| self.knows_dirty(block))
    }

    /// Base durably holds what `block` holds of `page`.
    pub fn cleaned(&mut self, block: BlockId, page: PageId) {
        assert_eq!(self.blocks.used(block), Use::Named);
        let version = self.versions.remove(&block);
        assert!(version.is_some(), "invariant 7: {page:?} was dirty");
        let Some(version) = version else { return };
        let checksum = self.blocks.checksum(block);
        self.set(
            block,
            Some(MapEntry {
                page,
                checksum,
                version,
                dirty: false,
            }),
        );
        self.pending.owed.insert(page);
    }

    /// `page` will leave `block` when its readers are done; the map says so at once.
    pub fn leaving(&mut self, block: BlockId, page: PageId, was_dirty: bool) {
        assert_eq!(self.blocks.used(block), Use::Named);
        self.set(block, None);
        if was_dirty {
            self.pending.owed.insert(page);
        }
        assert!(self.is_settled(block, page), "invariant 3: {page:?}");
    }

    /// `page` leaves `block`.
    pub fn removed(&mut self, block: BlockId, page: PageId, was_dirty: bool) {
        self.vacate(block);
        if was_dirty {
            self.pending.owed.insert(page);
        }
        assert!(self.is_settled(block, page), "invariant 3: {page:?}");
    }

    fn vacate(&mut self, block: BlockId) {
        assert_eq!(self.blocks.used(block), Use::Named);
        self.blocks.set_used(block, Use::Limbo);
        self.versions.remove(&block);
        self.set(block, None);
        self.pending.limbo.push(block);
    }

    fn set(&mut self, block: BlockId, entry: Option<MapEntry>) {
        self.changes.insert(block, entry);
    }

    fn is_owed(&self, page: PageId) -> bool {
        self.waiting().any(|waiting| waiting.owed.contains(&page))
    }

    /// What waits for the batches under way and for the next one.
    fn waiting(&self) -> impl Iterator<Item = &Waiting> {
        self.committing.iter().chain([&self.pending])
    }

    /// Whether a batch can be begun now.
    #[must_use]
    pub fn may_begin(&self) -> bool {
        let written = self.committing.back().is_none_or(|newest| newest.written);
        written && self.committing.len() < UNDER_WAY_MAX
    }

    /// The changes to write as one batch; `None` while one is being written, or two are under way.
    /// New entries come before emptied blocks, so that a beginning of the batch alone, should the
    /// device keep no more, is also a state that was: of a page with two entries the newer counts.
    pub fn begin_commit(&mut self) -> Option<Vec<MapChange>> {
        if !self.may_begin() {
            return None;
        }
        self.begun += 1;
        let number = self.begun;
        let mut waiting = std::mem::take(&mut self.pending);
        let changes = std::mem::take(&mut self.changes);
        let intents = std::mem::take(&mut self.intent_changes);
        let says =
            |(block, entry): (&BlockId, &Option<MapEntry>)| (*block, Durable::of(entry.as_ref()));
        waiting.says = changes.iter().map(says).collect();
        let (named, emptied): (Vec<_>, Vec<_>) = (changes.into_iter())
            .map(|(block, entry)| MapChange::Set { block, entry })
            .partition(|change| matches!(change, MapChange::Set { entry: Some(_), .. }));
        let mut out = named;
        out.extend(emptied);
        for (intent, on) in intents {
            out.push(MapChange::Intend { intent, on });
            if let Some(intended) = self.intents.get_mut(&intent).filter(|_| on) {
                intended.step = Step::Begun(number);
            }
        }
        waiting.number = number;
        self.committing.push_back(waiting);
        Some(out)
    }

    /// Whether a batch is under way, or has failed.
    #[must_use]
    pub fn is_committing(&self) -> bool {
        !self.committing.is_empty()
    }

    /// Batches under way, or failed.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.committing.len()
    }

    /// The batch that was begun last is on the device, and so are all bytes it names: the next one
    /// may be begun while this one is made durable.
    pub fn commit_written(&mut self) {
        let Some(newest) = self.committing.back_mut() else {
            panic!("what was written was begun");
        };
        assert!(!newest.written, "a batch is written once");
        let arrived = newest.ahead.is_empty();
        assert!(arrived, "whatever was announced has arrived");
        newest.written = true;
    }

    /// The oldest batch under way is durable.
    pub fn end_commit(&mut self) {
        let Some(done) = self.committing.pop_front() else {
            panic!("the end of a batch follows its start");
        };
        assert!(
            done.ahead.is_empty(),
            "whatever was announced has arrived or not"
        );
        let alone = self.committing.is_empty();
        assert!(alone || done.written, "invariant 8");
        for (block, says) in done.says {
            self.blocks.set_durable(block, says);
        }
        for block in done.limbo {
            assert_eq!(self.blocks.used(block), Use::Limbo, "invariant 1");
            self.blocks.release(block);
        }
        for intended in self.intents.values_mut() {
            if intended.step == Step::Begun(done.number) {
                intended.step = Step::Durable;
            }
        }
    }

    /// Bytes of memory held, but for the changes of one batch.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.blocks.bytes() + self.versions.len() * 25 + self.doubts.len() * 30
    }

    /// Panics unless the numbered invariants hold. O(blocks).
    pub fn assert_invariants(&self) {
        self.blocks.assert_invariants();
        let mut past = self.blocks.past(self.blocks.limit());
        assert!(past.all(|used| used != Use::Free), "invariant 5");
        let limbo = self.count(Use::Limbo);
        let waiting: usize = self.waiting().map(|waiting| waiting.limbo.len()).sum();
        assert_eq!(limbo, waiting, "invariant 1");
        assert!(self.committing.len() <= UNDER_WAY_MAX, "invariant 8");
        let mut older = self.committing.iter().rev().skip(1);
        assert!(older.all(|batch| batch.written), "invariant 8");
        for block in self.versions.keys() {
            assert_eq!(self.blocks.used(*block), Use::Named, "invariant 7");
        }
        for (block, entry) in &self.changes {
            let named = self.blocks.used(*block) == Use::Named;
            assert!(named || entry.is_none(), "only named blocks have an entry");
        }
        self.assert_intents();
        self.assert_doubts();
    }

    /// Number of blocks that hold a page as far as anybody is told.
    #[must_use]
    pub fn named(&self) -> u32 {
        self.count(Use::Named) as u32
    }

    /// Whether `block` holds a page as far as anybody is told.
    #[must_use]
    pub fn is_named(&self, block: BlockId) -> bool {
        block.0 < self.blocks() && self.blocks.used(block) == Use::Named
    }

    fn count(&self, what: Use) -> usize {
        self.blocks.past(0).filter(|used| *used == what).count()
    }
}
