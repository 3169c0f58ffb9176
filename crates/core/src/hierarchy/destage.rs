//! Destaging: dirty pages on flash go back to base, in base order.
//!
//! A batch is chosen by [`Hierarchy::next_destage`], read from flash and, after a commit, written
//! to base by the caller (were base to get a version that the durable map does not know, an older
//! clean copy would come back after a crash). Each page ends with [`Hierarchy::destage_written`]
//! or [`Hierarchy::destage_failed`]; after base was synced [`Hierarchy::destaged`] makes the pages
//! clean. A page that was written again meanwhile stays dirty.
//!
//! While the tier is off nobody commits, and base gets bytes that the durable map does not know:
//! those in DRAM too. So before each write of base [`Hierarchy::may_destage`] is asked once more if
//! the tier is on, and [`Hierarchy::switch_on`] waits until no page is left whose newest bytes are
//! in DRAM: made clean by them, its older block would come back as what base holds.
//!
//! The batch starts where the last one ended and goes round (an elevator), so that adjacent pages
//! become one base I/O (TAC §4.4). A policy's write buffer that holds too much is destaged once
//! through, as it is at that moment, from its first page to its last (hStorage-DB §4.2.4): what is
//! written meanwhile, or is on its way to flash, is left for the next time.

use super::{Action, Calm, Hierarchy};
use crate::health::{Fault, Way};
use crate::ledger::MapChange;
use crate::page::{BlockId, ObjectId, PageId, SlotId};
use crate::policy::Removal;
use crate::tier::SlotState;
use std::collections::{BTreeSet, VecDeque};

/// When dirty pages on flash are written back.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Watermarks {
    /// Share of the reserve in use at which it is destaged.
    pub reserve_high: f64,
    /// Share at which that ends.
    pub reserve_low: f64,
    /// Share of policy slots that are dirty at which they are destaged.
    pub dirty_high: f64,
    /// Share at which that ends.
    pub dirty_low: f64,
}

impl Default for Watermarks {
    fn default() -> Self {
        Self {
            reserve_high: 0.5,
            reserve_low: 0.25,
            dirty_high: 0.8,
            dirty_low: 0.7,
        }
    }
}

/// A dirty page to write to base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DestageJob {
    /// The page.
    pub page: PageId,
    /// Its slot; the bytes are in the write buffer when there is no `from`.
    pub slot: SlotId,
    /// The bytes' generation.
    pub generation: u32,
    /// Block and checksum.
    pub from: Option<(BlockId, u64)>,
    /// How often slots had been given other numbers.
    shape: u32,
}

/// What is being destaged and why.
#[derive(Debug, Default)]
pub(super) struct Destaging {
    /// Where the next batch starts.
    at: PageId,
    reserve: bool,
    policy: bool,
    all: bool,
    /// What is left to do of the policy's write buffer, in base order.
    buffer: VecDeque<PageId>,
}

impl Hierarchy {
    /// Whether a watermark, a flush or a sick device asks for destaging.
    pub fn destage_due(&mut self) -> bool {
        let (used, reserve) = (self.slots.reserved(), self.slots.reserve());
        let capacity = self.slots.capacity() + self.slots.keeps();
        let dirty = self.slots.dirty_resident();
        let w = &self.watermarks;
        let above = |part: u32, of: u32, share: f64| f64::from(part) > share * f64::from(of);
        let d = &mut self.destaging;
        d.reserve = above(
            used,
            reserve,
            if d.reserve {
                w.reserve_low
            } else {
                w.reserve_high
            },
        );
        d.policy = above(
            dirty,
            capacity,
            if d.policy { w.dirty_low } else { w.dirty_high },
        );
        let over = self.policy.write_buffer().is_some_and(|b| b.is_over());
        if d.buffer.is_empty() && over {
            let dirty = self.slots.dirty_from(false, PageId::default());
            let known = dirty.filter(|(_, slot)| self.slots.is_policy(*slot));
            let buffered = known.filter(|(_, slot)| self.policy.is_buffered(*slot));
            d.buffer = buffered.map(|(page, _)| page).collect();
        }
        let some = d.reserve || d.policy || !d.buffer.is_empty();
        let all = self.takes_all() && self.slots.dirty() > self.lost.len() as u32;
        (some || all) && self.calm != Calm::Still
    }

    /// Whether every dirty page is to be destaged, whatever the watermarks.
    fn takes_all(&self) -> bool {
        self.destaging.all || !self.absorbs() || self.health.is_off()
    }

    /// Destages everything from now on, or goes back to the watermarks.
    pub fn set_flush(&mut self, all: bool) {
        self.destaging.all = all;
    }

    /// At most `most` dirty pages to write to base, ascending but for one wrap; `only` those of the
    /// pages `first..=last` of one object, whatever the watermarks. Each is held like a page that
    /// is being read, until it is written or failed.
    pub fn next_destage(
        &mut self,
        most: usize,
        only: Option<(ObjectId, u64, u64)>,
    ) -> Vec<DestageJob> {
        if self.calm == Calm::Still {
            return Vec::new();
        }
        let all = self.takes_all() || only.is_some();
        let from = only.map_or(self.destaging.at, |(object, first, _)| {
            PageId::new(object, first)
        });
        let wanted = |page: PageId| {
            only.is_none_or(|(object, first, last)| {
                page.object == object && (first..=last).contains(&page.index)
            })
        };
        let mut pages = Vec::new();
        for reserve in [true, false] {
            let due = match reserve {
                true => self.destaging.reserve,
                false => self.destaging.policy,
            };
            if all || due {
                let free =
                    |&(page, slot): &(PageId, SlotId)| wanted(page) && self.can_destage(page, slot);
                let some = self.slots.dirty_from(reserve, from).filter(free);
                pages.extend(some.take(most));
            }
        }
        if !all && !self.destaging.buffer.is_empty() {
            let room = most.saturating_sub(pages.len());
            pages.extend(self.next_buffered(room));
        }
        pages.sort_unstable_by_key(|(page, _)| (*page < from, *page));
        pages.dedup();
        pages.truncate(most);
        let jobs = pages
            .into_iter()
            .filter_map(|(page, slot)| self.hold(page, slot));
        let jobs: Vec<DestageJob> = jobs.collect();
        if let (Some(last), None) = (jobs.last(), only) {
            self.destaging.at = PageId::new(last.page.object, last.page.index.saturating_add(1));
        }
        jobs
    }

    /// The next `most` pages of the write buffer that can go to base now.
    fn next_buffered(&mut self, most: usize) -> Vec<(PageId, SlotId)> {
        let mut pages = Vec::new();
        while pages.len() < most
            && let Some(page) = self.destaging.buffer.pop_front()
        {
            let slot = self.slots.find(page);
            let slot = slot.filter(|slot| self.slots.is_policy(*slot));
            let slot = slot.filter(|slot| self.policy.is_buffered(*slot));
            pages.extend(
                slot.filter(|slot| self.can_destage(page, *slot))
                    .map(|slot| (page, slot)),
            );
        }
        pages
    }

    fn can_destage(&self, page: PageId, slot: SlotId) -> bool {
        let buffered = self.slots.state(slot) == SlotState::Staged;
        let rescue = self.health.is_off() && !self.slots.is_writing(slot);
        (!buffered || rescue)
            && !self.lost.contains(&page)
            && !self.inflight.has_writer(page)
            && !self.held.contains(&page)
    }

    fn hold(&mut self, page: PageId, slot: SlotId) -> Option<DestageJob> {
        if !self.inflight.try_read(page) {
            return None;
        }
        let valid = self.slots.state(slot) == SlotState::Valid;
        if valid {
            self.slots.pin(slot);
        }
        self.held.insert(page);
        let block = self.slots.block(slot).filter(|_| valid);
        Some(DestageJob {
            page,
            slot,
            generation: self.slots.generation(slot),
            from: block.map(|block| (block, self.ledger.checksum(block))),
            shape: self.shape,
        })
    }

    /// Whether the held page of `job` is still to be written: it was not trimmed meanwhile, nor
    /// made clean by a batch that had it before.
    #[must_use]
    pub fn destage_stands(&self, job: &DestageJob) -> bool {
        self.is_of_shape(job) && self.holds_bytes_of(job) && !self.inflight.is_doomed(job.page)
    }

    /// Whether the slot of `job`, which is of this shape, has the same dirty bytes of its page.
    fn holds_bytes_of(&self, job: &DestageJob) -> bool {
        self.slots.page(job.slot) == Some(job.page)
            && self.slots.is_dirty(job.slot)
            && self.slots.generation(job.slot) == job.generation
    }

    /// Whether base may get the bytes of `job` while the tier is on: the durable map names them, or
    /// they are not to be written any more. Otherwise a commit comes first.
    #[must_use]
    pub fn may_destage(&self, job: &DestageJob) -> bool {
        let known = |(block, _): (BlockId, u64)| self.ledger.knows_dirty(block);
        job.from.is_some_and(known) || !self.destage_stands(job)
    }

    /// Whether the slot of `job` is still what it was: a batch that waits for base may outlast a
    /// change of the tier's size.
    fn is_of_shape(&self, job: &DestageJob) -> bool {
        job.shape == self.shape
    }

    /// The page was written to base, not yet durably, or is given up for now (base failed, or it
    /// no longer stands).
    pub fn destage_written(&mut self, job: &DestageJob, out: &mut Vec<Action>) {
        let held = self.held.remove(&job.page);
        assert!(held, "an end follows a start");
        assert!(self.is_of_shape(job), "the tier is not still");
        let ended = self.inflight.end(job.page);
        if job.from.is_some() {
            self.slots.unpin(job.slot);
            self.leave_if_pending(job.slot, ended.doomed, out);
        }
        self.wake(job.page, ended.wake, out);
    }

    /// The page's bytes could not be read from flash: they may be lost.
    pub fn destage_failed(&mut self, job: &DestageJob, fault: Fault, out: &mut Vec<Action>) {
        assert!(self.is_of_shape(job), "the tier is not still");
        let is_same = self.slots.page(job.slot) == Some(job.page);
        match is_same && self.slots.is_dirty(job.slot) {
            true => _ = self.lost.insert(job.page),
            // Another batch made it clean meanwhile: base has it.
            false if is_same && job.from.is_some() => _ = self.failing.insert(job.slot),
            false => {}
        }
        self.destage_written(job, out);
        self.count_fault(Way::Read, fault, out);
    }

    /// Somebody who writes a part of `page` did not get its newest bytes from flash.
    pub fn newest_failed(&mut self, page: PageId, fault: Fault, out: &mut Vec<Action>) {
        let slot = self.slots.find(page);
        if slot.is_some_and(|slot| self.slots.is_dirty(slot)) {
            self.lost.insert(page);
        }
        self.count_fault(Way::Read, fault, out);
    }

    /// Holds a dirty page whose bytes could not be read, so that they can be asked for again;
    /// matched by [`Hierarchy::end_lost`]. `None`: somebody is busy with it, or it is not lost.
    pub fn hold_lost(&mut self, page: PageId) -> Option<DestageJob> {
        let free = self.calm != Calm::Still
            && self.lost.contains(&page)
            && !self.inflight.has_writer(page)
            && !self.held.contains(&page);
        let slot = self.slots.find(page).filter(|_| free);
        let slot = slot.filter(|slot| self.slots.is_dirty(*slot));
        slot.and_then(|slot| self.hold(page, slot))
    }

    /// The page of [`Hierarchy::hold_lost`] was asked for again. `found`: base can have it.
    pub fn end_lost(&mut self, job: &DestageJob, found: bool, out: &mut Vec<Action>) {
        if found && self.lost.remove(&job.page) {
            out.push(Action::WakeDestager);
        }
        self.destage_written(job, out);
    }

    /// Base was synced after [`Hierarchy::destage_written`]: pages that did not change are clean.
    /// How many these are: a page that is to leave flash stays dirty while somebody reads it, and
    /// whoever would ask for the next batch at once gets the same page until that read ends.
    pub fn destaged(&mut self, jobs: &[DestageJob], out: &mut Vec<Action>) -> usize {
        let mut cleaned = 0;
        for job in jobs {
            if !self.is_of_shape(job) {
                continue;
            }
            let vain = self.is_kept_in_vain(job.slot, job.page);
            let leaves = self.slots.is_reserve(job.slot) || vain || self.health.is_off();
            // Who reads a page that becomes clean has base to turn to.
            let held = leaves && self.slots.pins(job.slot) > 0;
            // A page that was trimmed leaves with its last reader: the map is told so already.
            if !self.destage_stands(job) || held || self.slots.is_writing(job.slot) {
                continue;
            }
            let staged = self.slots.state(job.slot) == SlotState::Staged;
            assert!(!staged || self.health.is_off(), "invariant 7: {job:?}");
            self.counters.destaged += 1;
            cleaned += 1;
            self.lost.remove(&job.page);
            if leaves {
                self.remove(job.slot, Removal::Evicted, out);
            } else if let Some(block) = self.slots.block(job.slot) {
                self.slots.set_clean(job.slot);
                if self.slots.is_policy(job.slot) {
                    self.policy.on_clean(job.slot);
                }
                self.ledger.cleaned(block, job.page);
            }
        }
        out.push(Action::Room);
        cleaned
    }

    /// Pages of `object` of which flash does not give the newest bytes: each with the version that
    /// a batch made durable, `None` where none did.
    #[must_use]
    pub fn lost_of(&self, object: ObjectId) -> BTreeSet<(u64, Option<u64>)> {
        let lost = self.lost.range(PageId { object, index: 0 }..);
        let lost = lost.take_while(|page| page.object == object);
        let version = |page: &PageId| {
            let block = self
                .slots
                .find(*page)
                .and_then(|slot| self.slots.block(slot));
            block.and_then(|block| self.ledger.durable_version(block))
        };
        lost.map(|page| (page.index, version(page))).collect()
    }

    /// Dirty pages whose bytes on flash could not be read, in order.
    #[must_use]
    pub fn lost(&self) -> Vec<PageId> {
        self.lost.iter().copied().collect()
    }

    /// The changes to write as one batch; `None` while one is being written, or two are under way.
    pub fn begin_commit(&mut self) -> Option<Vec<MapChange>> {
        self.ledger.begin_commit()
    }

    /// The batch begun last is on the device: see [`Ledger::commit_written`].
    pub fn commit_written(&mut self) {
        self.ledger.commit_written();
    }

    /// The oldest batch under way is durable.
    pub fn end_commit(&mut self, out: &mut Vec<Action>) {
        self.ledger.end_commit();
        if !self.queue.is_empty() {
            out.push(Action::WakeWriter);
        }
        out.push(Action::Room);
    }

    /// For callers without a device: a commit that takes no time.
    pub fn commit_now(&mut self, out: &mut Vec<Action>) {
        if self.begin_commit().is_some() {
            self.end_commit(out);
        }
    }
}
