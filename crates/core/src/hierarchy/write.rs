//! Page writes: past base (write-through), or absorbed by DRAM and flash (write-back).
//!
//! ```text
//!   start_write -- true --+- absorb --- Done: bytes are in a frame or in the write buffer
//!                         |         --- Wait: room is being made, ask again
//!                         |         --- Lost: the page's newest bytes cannot be read or replaced
//!                         +---------+-- Base: write base, finish_write
//! ```
//! A page that is dirty on flash gets its next version on flash too, whatever the mode and the
//! policy: base is written only at pages that are clean (rule R2 of `docs/write-back.md`).

use super::staging::BufferRoom;
use super::{Action, Calm, Hierarchy};
use crate::hint::HintSet;
use crate::page::{FrameId, PageId, SlotId};
use crate::policy::{Access, Aside, Decision, DirtyPages, Op, Opportunity, Refusal, Removal};
use crate::pool::FlashMove;
use crate::tier::SlotState;

/// What becomes of a write whose page was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Absorbed {
    /// The actions keep its bytes; the write has ended.
    Done,
    /// It goes to base and ends with [`Hierarchy::finish_write`].
    Base,
    /// There is no room at the moment: ask again after [`Action::Room`].
    Wait,
    /// Its newest bytes are on a device that failed, and may come back with it.
    Lost,
}

/// What became of a dirty page that is written out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Placed {
    Flash,
    Base,
    Wait,
}

impl Hierarchy {
    /// A write of `page` arrives; false when the caller must wait. Must be followed by
    /// [`Hierarchy::absorb`] or [`Hierarchy::finish_write`].
    pub fn start_write(&mut self, page: PageId) -> bool {
        let started = self.inflight.start_write(page);
        if started {
            self.touch_page(page);
            self.give_up_doubt(page);
        }
        started
    }

    /// Whether somebody reads or writes `page`, for whom a write of it may have to wait.
    #[must_use]
    pub fn is_busy(&self, page: PageId) -> bool {
        self.inflight.is_busy(page)
    }

    /// Gives up the write of `page` before anything was done.
    pub fn abandon_write(&mut self, page: PageId, out: &mut Vec<Action>) {
        self.abandon_read(page, out);
    }

    /// Whether DRAM or flash hold bytes of `page` that base has not.
    #[must_use]
    pub fn is_dirty(&self, page: PageId) -> bool {
        let frame = self.pool.find(page);
        let slot = self.slots.find(page);
        frame.is_some_and(|frame| self.pool.is_dirty(frame))
            || slot.is_some_and(|slot| self.slots.is_dirty(slot))
    }

    /// Whether writes stay off base where they can.
    #[must_use]
    pub fn is_write_back(&self) -> bool {
        self.back
    }

    /// Whether a write may stay off base now.
    #[must_use]
    pub fn absorbs(&self) -> bool {
        self.back && self.calm == Calm::Open
    }

    /// Whether a page that base does not have may stay off base, as far as that is known before
    /// the policy is asked.
    #[must_use]
    pub fn absorbs_new(&self) -> bool {
        let ready = self.absorbs() && !self.is_off() && !self.is_loading();
        let back = self.policy.dirty_pages() == DirtyPages::Back;
        ready && self.slots.capacity() > 0 && (back || self.pool.capacity() > 0)
    }

    /// Write-back from now on, or write-through; pages that are dirty stay so until destaged.
    pub fn set_write_back(&mut self, back: bool) {
        self.back = back;
    }

    /// The whole new bytes of `page` are at hand; `now` is the time by which recovery writes are
    /// due, in the caller's unit. See [`Absorbed`].
    pub fn absorb(
        &mut self,
        page: PageId,
        hints: &HintSet,
        now: u64,
        out: &mut Vec<Action>,
    ) -> Absorbed {
        let dirty_slot = self
            .slots
            .find(page)
            .filter(|slot| self.slots.is_dirty(*slot));
        if self.health.is_off() {
            return match dirty_slot {
                Some(_) if self.lost.contains(&page) => Absorbed::Lost,
                Some(_) => Absorbed::Wait,
                None => Absorbed::Base,
            };
        }
        let back = self.absorbs() && (self.slots.capacity() > 0 || self.buffers);
        if self.inflight.is_doomed(page) || !(back || self.is_dirty(page)) {
            return Absorbed::Base;
        }
        if self.absorb_in_pool(page, hints, now, out) {
            self.counters.absorbed += 1;
        } else {
            let access = self.access_at(page, Op::Write, hints, self.requests + 1);
            match self.place(&access, None, FlashMove::Entered, out) {
                Placed::Flash => self.requests += 1,
                Placed::Base => return Absorbed::Base,
                Placed::Wait => return Absorbed::Wait,
            }
        }
        self.counters.writes += 1;
        let ended = self.inflight.end(page);
        self.wake(page, ended.wake, out);
        Absorbed::Done
    }

    /// True when the bytes went to a frame, which is dirty now.
    fn absorb_in_pool(
        &mut self,
        page: PageId,
        hints: &HintSet,
        now: u64,
        out: &mut Vec<Action>,
    ) -> bool {
        let frame = match self.pool.find(page) {
            Some(frame) => Some(frame),
            None => self.fill_frame(page, hints, out),
        };
        let Some(frame) = frame else { return false };
        self.pool.touch(frame);
        self.pool.set_dirty(frame, hints, now);
        out.push(Action::FillFrame { frame, page });
        out.push(Action::WakeCleaner);
        let copy = self.slots.find(page);
        let outdated = copy.filter(|slot| !self.slots.is_dirty(*slot));
        let outdated = outdated.filter(|slot| self.slots.is_policy(*slot));
        if let Some(slot) = outdated.filter(|_| !self.policy.keeps_outdated()) {
            self.remove(slot, Removal::Outdated, out);
        }
        true
    }

    /// Finds a place on flash for the whole bytes of a page that is being written: those of
    /// `frame`, or of the request at hand.
    pub(super) fn place(
        &mut self,
        access: &Access,
        frame: Option<FrameId>,
        how: FlashMove,
        out: &mut Vec<Action>,
    ) -> Placed {
        let style = self.policy.dirty_pages();
        let back = style == DirtyPages::Back;
        match self.slots.find(access.page) {
            Some(slot) if self.slots.is_dirty(slot) || (back && self.calm == Calm::Open) => {
                let queued = self.slots.state(slot) == SlotState::Staged;
                if !queued && self.make_dirty_room(out) == BufferRoom::None {
                    return Placed::Wait;
                }
                self.tell_write(access);
                self.rewrite(slot, access, frame, out);
                self.shed(out);
                Placed::Flash
            }
            Some(_) => Placed::Base,
            None if self.calm != Calm::Open => Placed::Base,
            None if !back || self.slots.capacity() == 0 => Placed::Base,
            None if !self.has_dirty_room() => Placed::Wait,
            None => self.place_new(access, frame, how, out),
        }
    }

    /// Evicts pages while the policy takes more room than there is: see [`TierPolicy::surplus`].
    /// Where the tier is on its way to rest, or the reserve is full, a later write does.
    fn shed(&mut self, out: &mut Vec<Action>) {
        while self.calm == Calm::Open
            && let Some(victim) = self.policy.surplus(&self.slots)
        {
            if self.give_way(victim, out).is_err() {
                return;
            }
        }
    }

    fn tell_write(&mut self, access: &Access) {
        let slot = self.slots.find(access.page);
        self.tell_policy(access, slot);
        if slot.is_some_and(|slot| !self.slots.is_reserve(slot)) {
            self.counters.write_hits += 1;
        }
    }

    fn rewrite(
        &mut self,
        slot: SlotId,
        access: &Access,
        frame: Option<FrameId>,
        out: &mut Vec<Action>,
    ) {
        let page = access.page;
        // While its old bytes are being written the slot is not queued: that write's end does it.
        let waits = self.slots.state(slot) == SlotState::Staged;
        self.assert_may_become_dirty(self.slots.is_dirty(slot));
        self.slots.restage(slot, true);
        self.became_dirty(access, slot, out);
        self.lost.remove(&page);
        out.push(stage(frame, slot, page));
        match waits {
            // Whoever syncs now does not wait for the bytes that are being written, but for these.
            true if self.slots.is_writing(slot) => self.stagings += 1,
            true => {}
            false => self.queue_write(slot, out),
        }
    }

    /// The page in `slot` is dirty, by `access` or since before it came there.
    fn became_dirty(&mut self, access: &Access, slot: SlotId, out: &mut Vec<Action>) {
        debug_assert!(self.slots.is_dirty(slot), "the table knows first");
        if !self.slots.is_policy(slot) {
            return;
        }
        self.policy.on_dirty(access, slot);
        if self.policy.write_buffer().is_some_and(|b| b.is_over()) {
            out.push(Action::WakeDestager);
        }
    }

    fn place_new(
        &mut self,
        access: &Access,
        frame: Option<FrameId>,
        how: FlashMove,
        out: &mut Vec<Action>,
    ) -> Placed {
        let page = access.page;
        self.assert_may_become_dirty(false);
        self.tell_write(access);
        let admitted = self.admit(access, (Opportunity::Clean, true), how, out);
        if let Some(slot) = admitted {
            self.slots.restage(slot, true);
            self.became_dirty(access, slot, out);
            out.push(stage(frame, slot, page));
            self.queue_write(slot, out);
            return Placed::Flash;
        }
        if let Some(slot) = self.admit_reserve(page, out) {
            self.counters.reserved += 1;
            self.came_in(page);
            self.came_to_reserve(page, how);
            out.push(stage(frame, slot, page));
            self.queue_write(slot, out);
            out.push(Action::WakeDestager);
            return Placed::Flash;
        }
        self.inflight.mark_asked(page);
        Placed::Base
    }

    /// A slot of the reserve, and room in the buffer, for a dirty page that has neither.
    fn admit_reserve(&mut self, page: PageId, out: &mut Vec<Action>) -> Option<SlotId> {
        let room = self.slots.has_reserve_room();
        if !room || self.make_dirty_room(out) == BufferRoom::None {
            return None;
        }
        self.slots.admit_reserve(page)
    }

    /// The write to base ended, well or not. `whole` says that the caller holds all bytes of the
    /// page; after a part of a page was written its copies are dropped.
    pub fn finish_write(
        &mut self,
        page: PageId,
        hints: &HintSet,
        whole: bool,
        ok: bool,
        out: &mut Vec<Action>,
    ) {
        let access = self.next_access(page, Op::Write, hints);
        let ended = self.inflight.end(page);
        self.counters.writes += 1;
        let keep = whole && ok && !ended.doomed;
        self.wrote_base(&access, None, keep, ended.asked, FlashMove::Entered, out);
        if let Some(frame) = self.pool.find(page) {
            match keep {
                true => {
                    self.pool.touch(frame);
                    self.pool.set_clean(frame);
                    out.push(Action::FillFrame { frame, page });
                }
                // The engine completes a part of a page that is dirty in DRAM.
                false if self.pool.is_dirty(frame) => {}
                false => self.evict_frame(frame, out),
            }
        }
        self.wake(page, ended.wake, out);
    }

    /// Base was written at a clean page: its copy on flash follows, or goes.
    pub(super) fn wrote_base(
        &mut self,
        access: &Access,
        frame: Option<FrameId>,
        keep: bool,
        asked: bool,
        how: FlashMove,
        out: &mut Vec<Action>,
    ) {
        let page = access.page;
        let resident = self.slots.find(page);
        let around = self.back && self.policy.dirty_pages() == DirtyPages::Around;
        if !asked {
            let part = (!keep).then_some(Aside::Part);
            self.tell_policy_of(access, resident, part);
        }
        let dirty = resident.is_some_and(|slot| self.slots.is_dirty(slot));
        assert!(!dirty, "invariant 5: base was written at {page:?}");
        match resident {
            Some(slot) if around && self.slots.is_policy(slot) => {
                self.remove(slot, Removal::Outdated, out);
            }
            Some(slot) if keep => {
                self.update(slot, page, frame, out);
                self.shed(out);
            }
            Some(slot) => self.remove(slot, Removal::Stale, out),
            None if !keep || ((asked || around) && !self.keeps(page)) => {}
            None => {
                let why = match self.back {
                    true => Opportunity::Clean,
                    false => Opportunity::Write,
                };
                self.consider(access, why, frame, how, out);
            }
        }
        let copy = self.slots.find(page).map(|slot| self.slots.state(slot));
        assert!(
            copy.is_none_or(|state| state == SlotState::Staged),
            "invariant 1: no copy of {page:?} is older than base"
        );
    }

    /// New bytes for a resident page (TAC §3.2): they go through the write buffer as well. When
    /// the buffer is full of warmer pages the copy is dropped, never left stale.
    fn update(
        &mut self,
        slot: SlotId,
        page: PageId,
        frame: Option<FrameId>,
        out: &mut Vec<Action>,
    ) {
        self.counters.write_hits += 1;
        let queued = self.slots.state(slot) == SlotState::Staged;
        if self.is_closed() || (!queued && self.make_buffer_room(page, out) == BufferRoom::None) {
            return self.remove(slot, Removal::Dropped, out);
        }
        if let Some(block) = self.slots.block(slot) {
            // Base is newer than the old bytes: the map must not outlive the intent that says so.
            self.ledger.leaving(block, page, false);
        }
        self.slots.restage(slot, false);
        out.push(stage(frame, slot, page));
        if !queued {
            self.queue_write(slot, out);
        }
    }

    /// Asks the policy about a page that is not on flash; its bytes are those of the request at
    /// hand, or in `frame`.
    pub(super) fn consider(
        &mut self,
        access: &Access,
        why: Opportunity,
        frame: Option<FrameId>,
        how: FlashMove,
        out: &mut Vec<Action>,
    ) {
        if self.slots.capacity() == 0 {
            return;
        }
        if self.health.is_off() {
            return self.refuse(Refusal::Off);
        }
        if self.doubted.contains(&access.page.object) {
            return self.refuse(Refusal::Doubted);
        }
        if self.is_closed() || !self.has_dirty_room() {
            return self.refuse(Refusal::BufferFull);
        }
        if let Some(slot) = self.admit(access, (why, false), how, out) {
            out.push(stage(frame, slot, access.page));
            self.queue_write(slot, out);
        }
    }

    /// A slot, and room in the buffer, for a page that has none: a kept one where its object is
    /// pinned, else one of the policy's, if the policy wants it in; its victim leaves. The policy
    /// is asked first: nothing is dropped from the buffer for a page that stays out.
    fn admit(
        &mut self,
        access: &Access,
        (why, dirty): (Opportunity, bool),
        how: FlashMove,
        out: &mut Vec<Action>,
    ) -> Option<SlotId> {
        if self.keeps(access.page) {
            if self.make_room(access.page, dirty, out) == BufferRoom::None {
                self.refuse(Refusal::BufferFull);
                return None;
            }
            return self.admit_kept(access.page, how);
        }
        if let Err(reason) = self.make_slot_and_room(access, (why, dirty), out) {
            self.refuse(reason);
            return None;
        }
        let Some(slot) = self.slots.admit(access.page) else {
            // The victim's slot is still being written to.
            self.refuse(Refusal::Pinned);
            return None;
        };
        self.came_in(access.page);
        self.policy.on_admit(access, slot);
        self.counters.admissions += 1;
        self.flash_move(access.page, how);
        Some(slot)
    }

    /// Room in the buffer for a page that comes in, `dirty` or not.
    fn make_room(&mut self, page: PageId, dirty: bool, out: &mut Vec<Action>) -> BufferRoom {
        match dirty {
            true => self.make_dirty_room(out),
            false => self.make_buffer_room(page, out),
        }
    }

    /// Asks the policy, and makes its victim leave, or a page that is on its way to flash and worth
    /// less than this one, never both.
    fn make_slot_and_room(
        &mut self,
        access: &Access,
        (why, dirty): (Opportunity, bool),
        out: &mut Vec<Action>,
    ) -> Result<(), Refusal> {
        let decision = self.policy.decide(access, why, &self.slots);
        if let Decision::Refuse(reason) = decision {
            return Err(reason);
        }
        match (self.make_room(access.page, dirty, out), decision) {
            (BufferRoom::None, _) => Err(Refusal::BufferFull),
            (BufferRoom::There, Decision::Replace(victim)) => self.give_way(victim, out),
            _ => Ok(()),
        }
    }

    /// Asks the policy, and makes its victim leave.
    fn make_slot(
        &mut self,
        access: &Access,
        why: Opportunity,
        out: &mut Vec<Action>,
    ) -> Result<(), Refusal> {
        match self.policy.decide(access, why, &self.slots) {
            Decision::Refuse(reason) => Err(reason),
            Decision::Replace(victim) => self.give_way(victim, out),
            Decision::Admit => Ok(()),
        }
    }

    /// A page of the reserve was read: the policy may want it among its own.
    pub(super) fn promote(&mut self, access: &Access, slot: SlotId, out: &mut Vec<Action>) {
        let valid = self.slots.state(slot) == SlotState::Valid;
        if !valid || !self.slots.evictable(slot) || self.held.contains(&access.page) {
            return;
        }
        if let Err(reason) = self.make_slot(access, Opportunity::Read, out) {
            return self.refuse(reason);
        }
        match self.slots.transfer(slot) {
            Some(to) => {
                self.came_in(access.page);
                self.tell_reserve(access.page, false);
                // It is on flash already.
                self.policy.on_found(access, to);
                self.counters.admissions += 1;
                self.flash_move(access.page, FlashMove::Entered);
                self.became_dirty(access, to, out);
            }
            None => self.refuse(Refusal::Pinned),
        }
    }

    /// The page in `victim` leaves its slot: a clean one for good, a dirty one for the reserve.
    fn give_way(&mut self, victim: SlotId, out: &mut Vec<Action>) -> Result<(), Refusal> {
        if !self.slots.is_dirty(victim) {
            self.remove(victim, Removal::Evicted, out);
            return Ok(());
        }
        out.push(Action::WakeDestager);
        let page = self.slots.page(victim).ok_or(Refusal::Pinned)?;
        assert!(
            self.slots.evictable(victim),
            "a policy names evictable slots"
        );
        if self.slots.transfer(victim).is_none() {
            return Err(Refusal::Destage);
        }
        self.counters.reserved += 1;
        self.counters.removals[Removal::Evicted as usize] += 1;
        self.policy.on_remove(page, victim, Removal::Evicted);
        self.tell_reserve(page, true);
        if !self.reserve_as_flash {
            self.flash_move(page, FlashMove::Left);
        }
        Ok(())
    }
}

fn stage(frame: Option<FrameId>, slot: SlotId, page: PageId) -> Action {
    match frame {
        Some(frame) => Action::StageFrame { frame, slot, page },
        None => Action::Stage { slot, page },
    }
}
