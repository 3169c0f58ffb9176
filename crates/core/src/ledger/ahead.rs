//! Batches that name blocks whose bytes are still on their way: one sync makes both durable, and
//! nobody waits for the bytes before. Until they have arrived such a block is *taken*; then it is
//! named, or the batch was put right without it.

use super::{Durable, Ledger, MapChange, MapEntry, Use};
use crate::page::{BlockId, PageId};

/// A dirty page that is being written, for the batch that is about to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// The taken block its bytes go to.
    pub block: BlockId,
    /// The page.
    pub page: PageId,
    /// Checksum of those bytes.
    pub checksum: u64,
    /// The named block that has an older version of it.
    pub old: Option<BlockId>,
}

/// What the batch under way says of a page whose bytes have not arrived yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Announced {
    checksum: u64,
    version: u64,
    old: Option<BlockId>,
    /// What the batch would have said of `old`.
    was: Option<Option<MapEntry>>,
}

impl Ledger {
    /// As [`Ledger::begin_commit`], of a batch that names `pages` too, in place of their older
    /// versions. Each must be followed by [`Ledger::arrived`], [`Ledger::arrived_for_nobody`] or
    /// [`Ledger::not_arrived`] before [`Ledger::commit_written`] and [`Ledger::end_commit`]. Base
    /// may not be written at them
    /// meanwhile.
    pub fn begin_commit_ahead(&mut self, pages: &[Ahead]) -> Option<Vec<MapChange>> {
        if !self.may_begin() {
            return None;
        }
        let mut announced = Vec::with_capacity(pages.len());
        for one in pages {
            assert_eq!(self.blocks.used(one.block), Use::Taken);
            let (checksum, version) = (one.checksum, self.new_version());
            let entry = MapEntry {
                page: one.page,
                checksum,
                version,
                dirty: true,
            };
            self.set(one.block, Some(entry));
            let old = one.old;
            let was = old.and_then(|old| {
                assert_eq!(self.blocks.used(old), Use::Named);
                self.changes.insert(old, None)
            });
            // Should it leave the tier meanwhile, the durable map calls it dirty all the same.
            self.pending.owed.insert(one.page);
            let waiting = Announced {
                checksum,
                version,
                old,
                was,
            };
            announced.push((one.block, waiting));
        }
        let changes = self.begin_commit();
        if let Some(waiting) = self.committing.back_mut() {
            waiting.ahead.extend(announced);
        }
        changes
    }

    fn announced(&mut self, block: BlockId) -> Announced {
        // Those before it are written.
        let newest = self.committing.back_mut();
        let found = newest.and_then(|waiting| waiting.ahead.remove(&block));
        let Some(found) = found else {
            panic!("{block:?} was announced by the batch that is being written");
        };
        assert_eq!(self.blocks.used(block), Use::Taken);
        found
    }

    /// The bytes of `block` are there; `old`, which its slot had before, is given up with the
    /// batch.
    pub fn arrived(&mut self, block: BlockId, old: Option<BlockId>) {
        let announced = self.announced(block);
        assert_eq!(
            announced.old, old,
            "a slot keeps its block until it has another"
        );
        self.name_announced(block, &announced);
        if let (Some(old), Some(waiting)) = (old, self.committing.back_mut()) {
            assert_eq!(self.blocks.used(old), Use::Named);
            self.blocks.set_used(old, Use::Limbo);
            self.versions.remove(&old);
            waiting.limbo.push(old);
        }
    }

    /// The bytes of `block` are there, but `page` left meanwhile, and its older version with it.
    pub fn arrived_for_nobody(&mut self, block: BlockId, page: PageId) {
        let announced = self.announced(block);
        self.name_announced(block, &announced);
        self.removed(block, page, true);
    }

    /// The bytes of `block` did not get there, and the batch was put right: it says nothing of
    /// `block`, nor of the older version. The block is as taken as before.
    pub fn not_arrived(&mut self, block: BlockId) {
        let Announced { old, was, .. } = self.announced(block);
        if let Some(waiting) = self.committing.back_mut() {
            let said = |of: BlockId| of == block || Some(of) == old;
            waiting.says.retain(|(of, _)| !said(*of));
        }
        if let (Some(old), Some(was)) = (old, was) {
            // Unless it left meanwhile, which is the newer word.
            self.changes.entry(old).or_insert(was);
        }
        assert_eq!(self.blocks.durable(block), Durable::Empty, "invariant 2");
    }

    fn name_announced(&mut self, block: BlockId, announced: &Announced) {
        self.blocks.name(block, announced.checksum);
        self.versions.insert(block, announced.version);
    }

    /// The batch itself failed, so what it announced may be durable or not: `block` is not
    /// written before the next start.
    pub fn lost_ahead(&mut self, block: BlockId) {
        self.announced(block);
        self.give_up(block);
    }
}
