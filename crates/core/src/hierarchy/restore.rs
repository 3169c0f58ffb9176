//! What a restart found on flash comes back: page by page, or all that is believed at once.

use super::{Hierarchy, quiet_access};
use crate::ledger::{Intent, MapEntry};
use crate::page::{BlockId, SlotId};
use crate::tier::Bulk;

/// Pages whose places in the tables are brought near together.
const RUN: usize = 64;

impl Hierarchy {
    /// As after a restart: `block` holds a page. False when either is taken or there is no room,
    /// which happens to clean pages only while the tier has as many slots as before.
    pub fn restore(&mut self, block: BlockId, entry: &MapEntry) -> bool {
        if self.slots.find(entry.page).is_some() || !self.ledger.restore(block, entry) {
            return false;
        }
        let keep = self.is_pinned(entry.page.object);
        let slot = self.slots.restore(entry.page, block, entry.dirty, keep);
        self.restored_to(slot, block, entry)
    }

    /// [`Hierarchy::restore`] of each in turn, several times as fast when they are very many; in
    /// how many cases it is true. Wants them in the order of blocks. O(pages), with 24 bytes of
    /// memory for each dirty one meanwhile.
    pub fn restore_all<'a>(
        &mut self,
        entries: impl IntoIterator<Item = (BlockId, &'a MapEntry)>,
    ) -> u32 {
        let mut entries = entries.into_iter();
        let (mut bulk, mut came) = (Bulk::default(), 0);
        let mut run = Vec::with_capacity(RUN);
        loop {
            run.clear();
            run.extend(entries.by_ref().take(RUN));
            if run.is_empty() {
                break;
            }
            self.slots.approach(run.iter().map(|(_, entry)| entry.page));
            for &(block, entry) in &run {
                came += u32::from(self.restore_one(&mut bulk, block, entry));
            }
        }
        self.slots.end_bulk(bulk);
        came
    }

    fn restore_one(&mut self, bulk: &mut Bulk, block: BlockId, entry: &MapEntry) -> bool {
        if self.slots.find(entry.page).is_some() || !self.ledger.restore(block, entry) {
            return false;
        }
        let page = entry.page;
        let keep = self.is_pinned(page.object);
        let slot = self
            .slots
            .restore_in_bulk(bulk, page, block, (entry.dirty, keep));
        self.restored_to(slot, block, entry)
    }

    /// The page of `entry`, whose `block` the ledger knows, is in `slot`, or there was none.
    fn restored_to(&mut self, slot: Option<SlotId>, block: BlockId, entry: &MapEntry) -> bool {
        let Some(slot) = slot else {
            self.ledger.removed(block, entry.page, entry.dirty);
            return false;
        };
        if self.slots.is_policy(slot) {
            let access = quiet_access(entry.page, 0);
            self.policy.on_found(&access, slot);
            if entry.dirty {
                self.policy.on_dirty(&access, slot);
            }
        }
        if self.slots.is_reserve(slot) {
            self.tell_reserve(entry.page, true);
        }
        self.came_in(entry.page);
        true
    }

    /// As after a restart: what the map says of `block` is not to be believed; the next commit says
    /// so. False when the block is taken.
    pub fn discard(&mut self, block: BlockId, entry: &MapEntry) -> bool {
        let known = self.ledger.restore(block, entry);
        if known {
            self.ledger.removed(block, entry.page, entry.dirty);
        }
        known
    }

    /// Ends a series of [`Hierarchy::restore`], [`Hierarchy::hold_in_doubt`] and
    /// [`Hierarchy::discard`]. The `intents` cover every page in doubt.
    pub fn restored(&mut self, next_version: u64, intents: impl IntoIterator<Item = Intent>) {
        self.ledger.restored(next_version, intents);
    }
}
