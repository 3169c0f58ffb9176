//! Warming: pages that a list says were hot come to flash before anybody asks for them.
//!
//! The caller reads such a page from base, as a reader who holds it. It then takes a free slot past
//! the policy's admission: a policy that has seen nothing yet knows no worth, those that learn
//! would refuse, and those that admit on other occasions than reads would never be asked. The
//! policy is told as it is told at a restart of what is on flash: the page was admitted
//! ([`crate::policy::TierPolicy::on_admit`]), without hints, and without a request, of which there
//! was none. Nothing is evicted for it: a page that is asked for now is worth more than one that
//! was hot once.
//!
//! # States of a page
//! ```text
//!   start_warm -- Started: read base --- end_warm: staged in a free slot, or nothing
//!              -- There, Busy, Later, Full, Off: nothing is started
//! ```
//!
//! # Invariants
//! 1. What comes in is what base gave to a reader who held the page, which was in no slot, frame or
//!    doubt then: no write or trim came between.
//! 2. No page is evicted, no doubt given up and at most half of the write buffer used for it.

use super::{Action, Hierarchy, quiet_access};
use crate::page::{PageId, SlotId};
use crate::pool::FlashMove;

/// What becomes of a wish to warm a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Warming {
    /// Read it from base, then [`Hierarchy::end_warm`].
    Started,
    /// It is on flash, in DRAM or in doubt, or base may not keep what it gives of its object.
    There,
    /// Somebody writes it.
    Busy,
    /// The write buffer is half full, the tier is about to change its shape, or its map is being
    /// read.
    Later,
    /// Every slot it could have is taken, or kept for a page in doubt.
    Full,
    /// The tier is off.
    Off,
}

impl Hierarchy {
    /// The caller is about to read `page` from base to bring it to flash. `coming` pages were
    /// started and have not ended.
    pub fn start_warm(&mut self, page: PageId, coming: u32) -> Warming {
        if self.health.is_off() {
            return Warming::Off;
        }
        if self.is_closed() || self.is_loading() {
            return Warming::Later;
        }
        if self.has_copy(page) || self.doubted.contains(&page.object) {
            return Warming::There;
        }
        if !self.keeps(page) && self.room_to_warm() <= coming {
            return Warming::Full;
        }
        let buffered = self.staged().saturating_add(coming);
        if buffered >= self.buffer_pages.div_ceil(2) {
            return Warming::Later;
        }
        match self.inflight.try_read(page) {
            true => Warming::Started,
            false => Warming::Busy,
        }
    }

    /// Base gave the bytes of `page` (`read`), those of the request at hand, or did not. Whether it
    /// is on its way to flash now.
    pub fn end_warm(&mut self, page: PageId, read: bool, out: &mut Vec<Action>) -> bool {
        assert!(self.inflight.is_read(page), "invariant 1: {page:?}");
        let ended = self.inflight.end(page);
        let before = (self.counters.removals, self.doubts());
        let came = read && !ended.doomed && self.warm_in(page, out);
        let after = (self.counters.removals, self.doubts());
        assert_eq!(before, after, "invariant 2: nothing leaves for {page:?}");
        self.wake(page, ended.wake, out);
        came
    }

    fn warm_in(&mut self, page: PageId, out: &mut Vec<Action>) -> bool {
        // Whoever read it meanwhile brought it here, or asked the policy.
        let settled = self.has_copy(page) || self.doubted.contains(&page.object);
        if self.health.is_off() || self.is_closed() || self.is_loading() || settled {
            return false;
        }
        if self.staged() >= self.buffer_pages {
            return false;
        }
        assert!(!self.is_dirty(page), "invariant 1: {page:?}");
        let slot = match self.keeps(page) {
            true => self.admit_kept(page, FlashMove::Entered),
            false if self.room_to_warm() == 0 => None,
            false => self.slots.admit(page).inspect(|slot| {
                let access = quiet_access(page, self.requests);
                self.policy.on_admit(&access, *slot);
                self.counters.admissions += 1;
            }),
        };
        let Some(slot) = slot else { return false };
        if self.slots.is_policy(slot) {
            self.came_in(page);
            self.flash_move(page, FlashMove::Entered);
        }
        self.counters.warmed += 1;
        out.push(Action::Stage { slot, page });
        self.queue_write(slot, out);
        true
    }

    /// Whether bytes of `page` are in a slot, a frame or a copy in doubt.
    fn has_copy(&self, page: PageId) -> bool {
        let known = self.slots.find(page).is_some() || self.pool.find(page).is_some();
        known || self.doubt_of(page).is_some()
    }

    /// Free policy slots that no page in doubt stands for.
    fn room_to_warm(&self) -> u32 {
        self.slots.room().saturating_sub(self.ledger.doubts())
    }

    /// `page` was read in `slot`.
    pub(super) fn was_hot(&mut self, slot: SlotId, page: PageId) {
        if self.slots.page(slot) == Some(page) {
            self.slots.warm_up(slot);
        }
    }

    /// See [`crate::tier::SlotTable::take_hot`].
    pub fn take_hot(&mut self, range: std::ops::Range<u32>, least: u8) -> Vec<(PageId, u8)> {
        self.slots.take_hot(range, least)
    }
}
