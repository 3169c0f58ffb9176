//! The DRAM pool: what comes in, what leaves, and the page cleaners (thesis §6.2.1).
//!
//! Cleaners see to it that the frame that leaves next is clean: *replacement writes* go to dirty
//! pages among the next eighth of the pool to leave (at most [`CLEAN_DEPTH_MAX`] frames, as InnoDB
//! bounds its cleaners' scan), in the order they would; *recovery writes* go to pages that have
//! been dirty for longer than [`super::HierarchyOptions::recovery_age`], oldest first. A
//! written-out page stays in its frame, clean.
//!
//! A frame that has to wait for an older version of its page is passed over, and so are up to
//! [`REFUSED_MAX`] frames that base refused, until the next [`Hierarchy::on_time`].

use super::write::Placed;
use super::{Action, Hierarchy};
use crate::counters::Cleaning;
use crate::hint::{HintSet, RequestType};
use crate::page::{FrameId, PageId};
use crate::policy::{Access, Op, Opportunity};
use crate::pool::{Evicted, FlashMove};

/// The most frames that are looked at for a dirty one: what one step costs must not grow with the
/// pool.
const CLEAN_DEPTH_MAX: u32 = 1024;

/// The most pages that are passed over because base refused them: base that takes nothing is asked
/// so often from one [`Hierarchy::on_time`] to the next.
const REFUSED_MAX: usize = 32;

/// What came of asking for a dirty frame to clean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cleaned {
    /// Nothing is due, or all that is due is in use.
    Nothing,
    /// A page was placed on flash by the actions.
    Placed,
    /// Write the frame's bytes to base, then call [`Hierarchy::finish_clean`].
    Base(CleanJob),
    /// The write buffer is full: ask again after [`Action::Room`].
    Wait,
}

/// A dirty frame to write to base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CleanJob {
    /// The frame.
    pub frame: FrameId,
    /// Its page.
    pub page: PageId,
    why: Cleaning,
}

impl Hierarchy {
    /// Frames that the cleaners look at from the tail.
    fn clean_depth(&self) -> u32 {
        (self.pool.capacity() / 8).clamp(1, CLEAN_DEPTH_MAX)
    }

    /// Cleans the next page that is due at `now`.
    pub fn next_clean(&mut self, now: u64, out: &mut Vec<Action>) -> Cleaned {
        if self.refused.len() >= REFUSED_MAX {
            return Cleaned::Nothing;
        }
        let depth = self.clean_depth();
        let may = |frame: FrameId| {
            self.pool
                .page(frame)
                .is_some_and(|page| self.may_clean(page))
        };
        let full = self.pool.filled().saturating_add(depth) > self.pool.capacity();
        let next = match full {
            true => self.pool.next_replacement(depth, may),
            false => None,
        };
        if let Some(frame) = next {
            return self.clean_frame(frame, Cleaning::Replacement, out);
        }
        let oldest = self.pool.oldest_dirty(CLEAN_DEPTH_MAX, may);
        let overdue = |since: u64| {
            !self.back || self.health.is_off() || now.saturating_sub(since) >= self.recovery_age
        };
        match oldest.filter(|(_, since)| overdue(*since)) {
            Some((frame, _)) => self.clean_frame(frame, Cleaning::Recovery, out),
            None => Cleaned::Nothing,
        }
    }

    /// Cleans `page` if it is dirty in a frame: a sync wants it.
    pub fn clean_page(&mut self, page: PageId, out: &mut Vec<Action>) -> Cleaned {
        let frame = self.pool.find(page);
        match frame.filter(|frame| self.pool.is_dirty(*frame)) {
            Some(frame) => self.clean_frame(frame, Cleaning::Synchronous, out),
            None => Cleaned::Nothing,
        }
    }

    /// Whether nothing holds `page`, dirty in a frame, up.
    fn may_clean(&self, page: PageId) -> bool {
        !self.refused.contains(&page) && !self.waits_for_older(page)
    }

    /// Whether flash holds an older version that base has not, and takes no newer one: it goes to
    /// base first, or keeps the page from it for good.
    fn waits_for_older(&self, page: PageId) -> bool {
        let slot = self.slots.find(page);
        self.health.is_off() && slot.is_some_and(|slot| self.slots.is_dirty(slot))
    }

    fn clean_frame(&mut self, frame: FrameId, why: Cleaning, out: &mut Vec<Action>) -> Cleaned {
        let Some(page) = self.pool.page(frame) else {
            return Cleaned::Nothing;
        };
        let hints = *self.pool.hints(frame);
        if self.waits_for_older(page) {
            return match self.lost.contains(&page) {
                true => Cleaned::Nothing,
                false => Cleaned::Wait,
            };
        }
        if !self.inflight.try_write(page) {
            return Cleaned::Wait;
        }
        assert_eq!(self.doubt_of(page), None, "a dirty page is not in doubt");
        let access = self.access_at(page, Op::Write, &hints, self.requests + 1);
        let placed = match self.health.is_off() {
            true => Placed::Base,
            false => self.place(&access, Some(frame), entered_by(why), out),
        };
        match placed {
            Placed::Flash => {
                self.requests += 1;
                self.counters.cleaned_to_flash[why as usize] += 1;
                self.pool.set_clean(frame);
                self.end_clean(page, out);
                Cleaned::Placed
            }
            Placed::Wait => {
                self.end_clean(page, out);
                Cleaned::Wait
            }
            Placed::Base => {
                self.pool.set_busy(frame, true);
                Cleaned::Base(CleanJob { frame, page, why })
            }
        }
    }

    fn end_clean(&mut self, page: PageId, out: &mut Vec<Action>) {
        let ended = self.inflight.end(page);
        self.wake(page, ended.wake, out);
    }

    /// Whether the page of `job` is still there to be written.
    #[must_use]
    pub fn clean_stands(&self, job: &CleanJob) -> bool {
        self.pool.find(job.page) == Some(job.frame) && !self.inflight.is_doomed(job.page)
    }

    /// The frame's bytes are on base, or (not `ok`) they could not be written and stay dirty.
    pub fn finish_clean(&mut self, job: &CleanJob, ok: bool, out: &mut Vec<Action>) {
        let ended = self.inflight.end(job.page);
        let stands = self.pool.find(job.page) == Some(job.frame);
        if stands {
            self.pool.set_busy(job.frame, false);
        }
        if stands && ok && !ended.doomed {
            let hints = *self.pool.hints(job.frame);
            let access = self.next_access(job.page, Op::Write, &hints);
            self.counters.cleaned_to_base[job.why as usize] += 1;
            self.pool.set_clean(job.frame);
            let how = entered_by(job.why);
            self.wrote_base(&access, Some(job.frame), true, ended.asked, how, out);
        }
        if stands && !ok && !self.refused.contains(&job.page) {
            self.refused.push(job.page);
        }
        self.wake(job.page, ended.wake, out);
        out.push(Action::Room);
    }

    /// Tells the pool that `page`, if it is buffered, came to or left flash.
    pub(super) fn flash_move(&mut self, page: PageId, how: FlashMove) {
        if let Some(frame) = self.pool.find(page) {
            self.pool.set_on_flash(frame, how);
        }
    }

    pub(super) fn evict_frame(&mut self, frame: FrameId, out: &mut Vec<Action>) {
        let page = self.pool.remove(frame);
        self.policy.on_pool(page, false);
        out.push(Action::EvictFrame { frame, page });
    }

    /// Brings `page`, just read, into the DRAM pool, if there is one.
    pub(super) fn fill_pool(&mut self, page: PageId, hints: &HintSet, out: &mut Vec<Action>) {
        if self.pool.capacity() == 0 {
            return;
        }
        // Two readers of one page may both come here.
        if let Some(frame) = self.pool.find(page) {
            return self.pool.touch(frame);
        }
        if let Some(frame) = self.fill_frame(page, hints, out) {
            out.push(Action::FillFrame { frame, page });
        }
    }

    /// A frame for `page`, which has none; `None` when no clean page can leave one.
    pub(super) fn fill_frame(
        &mut self,
        page: PageId,
        hints: &HintSet,
        out: &mut Vec<Action>,
    ) -> Option<FrameId> {
        if self.pool.capacity() == 0 {
            return None;
        }
        if self.pool.filled() == self.pool.capacity() {
            let victim = self.pool.victim()?;
            assert!(
                !self.pool.is_dirty(victim.frame),
                "invariant 1: {:?} is newest in its frame",
                victim.page
            );
            self.offer_evicted(&victim, out);
            self.counters.pool_evictions += 1;
            self.evict_frame(victim.frame, out);
        }
        let prefetched = hints.request() == RequestType::SequentialRead;
        let on_flash = self.is_weighed_as_flash(page);
        let frame = self.pool.fill(page, *hints, on_flash, prefetched)?;
        self.policy.on_pool(page, true);
        Some(frame)
    }

    /// A page leaves the pool: the policy may want it on flash (thesis §6.1, figure 6.2).
    fn offer_evicted(&mut self, victim: &Evicted, out: &mut Vec<Action>) {
        if self.slots.find(victim.page).is_some() || self.inflight.is_busy(victim.page) {
            return;
        }
        let access = Access {
            page: victim.page,
            op: Op::Read,
            hints: victim.hints,
            number: self.requests,
        };
        let frame = Some(victim.frame);
        self.consider(
            &access,
            Opportunity::PoolEviction,
            frame,
            FlashMove::Entered,
            out,
        );
    }
}

const fn entered_by(why: Cleaning) -> FlashMove {
    match why {
        Cleaning::Replacement => FlashMove::EnteredByReplacement,
        Cleaning::Recovery | Cleaning::Synchronous => FlashMove::EnteredByRecovery,
    }
}
