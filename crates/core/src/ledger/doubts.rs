//! Copies in doubt: clean entries that a restart found in regions of base that were being written.
//!
//! Nobody is told what such a block holds until its checksum was compared with what base holds
//! ([`crate::hierarchy::Hierarchy::settle_doubt`]). Meanwhile the durable map goes on to name it
//! and the region stays on, so a crash brings the same doubt back.

use super::intents::{Intent, Step};
use super::{Durable, Ledger, MapEntry, Use};
use crate::page::{BlockId, ObjectId, PageId};

impl Ledger {
    /// As after a restart: `block` may hold what base has of the page of the clean `entry`, and
    /// the map says that it does. False when it is no free block of this ledger, or another copy of
    /// the page is in doubt already.
    pub fn restore_doubt(&mut self, block: BlockId, entry: &MapEntry) -> bool {
        assert!(
            !entry.dirty,
            "invariant 6: base is not newer than {entry:?}"
        );
        if self.doubts.contains_key(&entry.page) || !self.restore(block, entry) {
            return false;
        }
        self.blocks.set_used(block, Use::Doubted);
        self.doubts.insert(entry.page, block);
        true
    }

    /// Copies in doubt.
    #[must_use]
    pub fn doubts(&self) -> u32 {
        self.doubts.len() as u32
    }

    /// Block and checksum of the copy of `page` that is in doubt.
    #[must_use]
    pub fn doubt(&self, page: PageId) -> Option<(BlockId, u64)> {
        let block = *self.doubts.get(&page)?;
        Some((block, self.blocks.checksum(block)))
    }

    /// Pages with copies in doubt from `from` on, in base order.
    pub fn doubts_from(&self, from: PageId) -> impl Iterator<Item = PageId> + '_ {
        self.doubts.range(from..).map(|(page, _)| *page)
    }

    /// Pages `first..=last` of `object` with copies in doubt, in order.
    #[must_use]
    pub fn doubts_in(&self, object: ObjectId, first: u64, last: u64) -> Vec<PageId> {
        let range = PageId::new(object, first)..=PageId::new(object, last);
        self.doubts.range(range).map(|(page, _)| *page).collect()
    }

    /// The last page in base order with a copy in doubt.
    #[must_use]
    pub fn last_doubt(&self) -> Option<PageId> {
        self.doubts.last_key_value().map(|(page, _)| *page)
    }

    /// The copy of `page` that was in doubt is what base holds; says where it is.
    pub fn believe(&mut self, page: PageId) -> Option<BlockId> {
        let block = self.doubts.remove(&page)?;
        assert_eq!(self.blocks.used(block), Use::Doubted, "invariant 6");
        self.blocks.set_used(block, Use::Named);
        Some(block)
    }

    /// Gives up the copy of `page` that is in doubt, if there is one; the next commit says so.
    pub fn give_up_doubt(&mut self, page: PageId) -> bool {
        let block = self.believe(page);
        if let Some(block) = block {
            self.removed(block, page, false);
        }
        block.is_some()
    }

    pub(super) fn has_doubts(&self, intent: Intent) -> bool {
        self.doubts.range(intent.pages()).next().is_some()
    }

    pub(super) fn assert_doubts(&self) {
        let doubted = self.count(Use::Doubted);
        assert_eq!(doubted, self.doubts.len(), "invariant 6");
        let durable = |intent: Intent| {
            let on = self.intents.get(&intent);
            on.is_some_and(|on| on.step == Step::Durable)
        };
        for (page, block) in &self.doubts {
            assert_eq!(self.blocks.used(*block), Use::Doubted, "invariant 6");
            assert_eq!(self.blocks.durable(*block), Durable::Clean, "invariant 6");
            assert!(!self.changes.contains_key(block), "invariant 6: {page:?}");
            let on = durable(Intent::of(*page)) || durable(Intent::all_of(page.object));
            assert!(on, "invariant 6: the region of {page:?} is on");
        }
    }

    /// Gives up copies in doubt in blocks from `limit` on. O(doubts).
    pub(super) fn give_up_doubts_past(&mut self, limit: u32) {
        let past = self.doubts.iter().filter(|(_, block)| block.0 >= limit);
        let past: Vec<PageId> = past.map(|(page, _)| *page).collect();
        for page in past {
            self.give_up_doubt(page);
        }
    }
}
