//! Copies in doubt: what a restart makes of clean pages in regions that base was being written in.
//!
//! Base may be newer than such a copy, or not; its checksum tells, once base is read. Until then
//! the copy keeps its block, and for everybody else the page is not on flash.
//!
//! # States of a copy
//! ```text
//!   hold_in_doubt                            base gives the same bytes
//!  ---------------> in doubt --- settle_doubt ------------------------> in a slot, clean
//!                      |   |                  other bytes
//!                      |   +-----------------------------------------> given up
//!                      +--- written, trimmed, room is needed, tier off ^
//! ```
//! A read of the page from base settles the doubt on its way ([`Hierarchy::doubt_of`], then
//! [`Hierarchy::settle_doubt`] before [`Hierarchy::finish_read`]); a verifier in the background
//! takes the others ([`Hierarchy::next_doubts`], [`Hierarchy::start_verify`],
//! [`Hierarchy::end_verify`]). A crash finds the same copies in doubt again, settled ones
//! included, for as long as the region is on: that ends when base was synced and no copy of the
//! region is in doubt.
//!
//! # Invariants
//! 1. A page in doubt is in no slot, is not being written and is not dirty anywhere.
//! 2. There are no more pages in doubt than free policy slots: no page that comes to flash finds
//!    less room for them.
//! 3. While the tier is off no page is in doubt.
//! 4. A copy is settled by bytes that were read from base by a reader who still holds the page: no
//!    write or trim came between.

use super::{Action, Hierarchy, quiet_access};
use crate::ledger::MapEntry;
use crate::page::{BlockId, ObjectId, PageId};
use crate::policy::Removal;
use crate::pool::FlashMove;

impl Hierarchy {
    /// A sync of base failed: what is read of `object` from now on may be bytes that a system's
    /// page cache shows and will never write. Its clean copies leave flash, and what base gives is
    /// not copied there until [`Hierarchy::trust`]: they would outlive what they are copies of.
    /// O(its pages).
    pub fn doubt(&mut self, object: ObjectId, out: &mut Vec<Action>) {
        self.doubted.insert(object);
        self.touch_range(object, 0, u64::MAX);
        self.give_up_doubts(object, 0, u64::MAX);
        for slot in self.slots.in_range(object, 0, u64::MAX) {
            let pinned = self.slots.pins(slot) > 0;
            match (self.slots.page(slot), self.slots.block(slot)) {
                _ if self.slots.is_dirty(slot) => {}
                // Its readers may end, and it leaves with the last; the map forgets it now.
                (Some(page), Some(block)) if pinned => {
                    self.ledger.leaving(block, page, false);
                    self.failing.insert(slot);
                }
                _ => self.remove(slot, Removal::Stale, out),
            }
        }
    }

    /// The file behind `object` is gone: another one under this id is believed again.
    pub fn trust(&mut self, object: ObjectId) {
        self.doubted.remove(&object);
    }

    /// As after a restart: `block` holds the page of the clean `entry` as base had it once. False,
    /// and nothing is held, when either is taken or there is no room: see [`Hierarchy::discard`].
    pub fn hold_in_doubt(&mut self, block: BlockId, entry: &MapEntry) -> bool {
        let room = self.ledger.doubts() < self.slots.room() && !self.health.is_off();
        let known = self.slots.find(entry.page).is_some();
        room && !known && self.ledger.restore_doubt(block, entry)
    }

    /// Pages in doubt.
    #[must_use]
    pub fn doubts(&self) -> u32 {
        self.ledger.doubts()
    }

    /// The first `most` pages in doubt from `from` on, in base order.
    #[must_use]
    pub fn next_doubts(&self, from: PageId, most: usize) -> Vec<PageId> {
        self.ledger.doubts_from(from).take(most).collect()
    }

    /// The checksum of the copy of `page`, if there is one in doubt.
    #[must_use]
    pub fn doubt_of(&self, page: PageId) -> Option<u64> {
        self.ledger.doubt(page).map(|(_, checksum)| checksum)
    }

    /// The caller, who is reading `page`, compared its copy with base: they are the same, or not.
    /// Nothing happens when the copy was given up meanwhile, or while nothing may come to flash.
    pub fn settle_doubt(&mut self, page: PageId, same: bool) {
        assert!(self.inflight.is_read(page), "invariant 4: {page:?}");
        if self.doubt_of(page).is_none() || self.is_closed() {
            return;
        }
        assert!(!self.inflight.is_doomed(page), "invariant 4: {page:?}");
        if !same {
            self.give_up_doubt(page);
            return;
        }
        assert!(!self.is_dirty(page), "invariant 1: {page:?}");
        let Some(block) = self.ledger.believe(page) else {
            return;
        };
        let keep = self.is_pinned(page.object);
        let slot = self.slots.restore(page, block, false, keep);
        assert!(slot.is_some(), "invariant 2: there is room for {page:?}");
        if let Some(slot) = slot {
            let access = quiet_access(page, self.requests);
            if self.slots.is_policy(slot) {
                self.policy.on_found(&access, slot);
            }
            self.flash_move(page, FlashMove::Entered);
            self.counters.doubts_verified += 1;
        }
    }

    /// The caller is about to read `page`, which is in doubt, from base; false when others use the
    /// page, or it is in doubt no longer. Must be followed by [`Hierarchy::end_verify`].
    pub fn start_verify(&mut self, page: PageId) -> bool {
        let there = self.doubt_of(page).is_some() && !self.is_closed();
        there && self.inflight.try_read(page)
    }

    /// The copy of `page` was compared with base; `None`: base could not be read.
    pub fn end_verify(&mut self, page: PageId, same: Option<bool>, out: &mut Vec<Action>) {
        if let Some(same) = same {
            self.settle_doubt(page, same);
        }
        let ended = self.inflight.end(page);
        self.wake(page, ended.wake, out);
    }

    /// `page` has a slot now, or another one: no copy of it is in doubt, and where every free
    /// policy slot stood for a doubt there is one less.
    pub(super) fn came_in(&mut self, page: PageId) {
        self.give_up_doubt(page);
        self.make_way_for_slots();
    }

    /// Restores invariant 2. Those that a verifier would come to last are given up.
    pub(super) fn make_way_for_slots(&mut self) {
        while self.ledger.doubts() > self.slots.room() {
            let last = self.ledger.last_doubt();
            assert!(last.is_some(), "they are counted");
            let Some(page) = last else { return };
            self.give_up_doubt(page);
        }
    }

    pub(super) fn give_up_doubt(&mut self, page: PageId) {
        if self.ledger.give_up_doubt(page) {
            self.counters.doubts_given_up += 1;
        }
    }

    pub(super) fn give_up_doubts(&mut self, object: ObjectId, first: u64, last: u64) {
        for page in self.ledger.doubts_in(object, first, last) {
            self.give_up_doubt(page);
        }
    }

    pub(super) fn give_up_all_doubts(&mut self) {
        let all: Vec<PageId> = self.ledger.doubts_from(PageId::default()).collect();
        for page in all {
            self.give_up_doubt(page);
        }
    }

    pub(super) fn assert_doubts(&self) {
        let doubts = self.doubts();
        assert!(doubts <= self.slots.room(), "invariant 2");
        assert!(doubts == 0 || !self.health.is_off(), "invariant 3");
        for page in self.ledger.doubts_from(PageId::default()) {
            assert_eq!(self.slots.find(page), None, "invariant 1");
            assert!(!self.is_dirty(page), "invariant 1: {page:?}");
            assert!(!self.inflight.is_written(page), "invariant 1: {page:?}");
        }
    }
}
