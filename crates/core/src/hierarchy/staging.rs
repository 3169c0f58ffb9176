//! The write buffer: pages on their way to flash, and their slots.

use super::{Action, Hierarchy, WriteJob};
use crate::health::{Fault, Way};
use crate::ledger::{Ahead, MapChange};
use crate::page::{ObjectId, PageId, SlotId};
use crate::policy::Removal;
use crate::tier::{Area, SlotState, Written};

/// A slot in the write buffer.
#[derive(Debug, Clone, Copy)]
pub(super) struct Queued {
    pub(super) slot: SlotId,
    /// The number of its staging.
    number: u64,
    /// What its page was worth when that was last looked at.
    worth: Option<f64>,
}

impl Queued {
    fn new(slot: SlotId, number: u64) -> Self {
        Self {
            slot,
            number,
            worth: None,
        }
    }
}

/// Room in the write buffer for one more page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BufferRoom {
    /// There is none.
    None,
    /// There was some.
    There,
    /// A page was dropped for it, and the policy's slot that it had is free.
    Made,
}

impl Hierarchy {
    /// Pages waiting for or under way to flash.
    #[must_use]
    pub fn staged(&self) -> u32 {
        (self.queue.len() + self.writing.len()) as u32
    }

    /// Stagings so far: whatever was staged before now has a lower number.
    #[must_use]
    pub fn stagings(&self) -> u64 {
        self.stagings
    }

    /// No page waits that was staged before this many stagings.
    #[must_use]
    pub fn staged_from(&self) -> u64 {
        let oldest = self.queue.iter().map(|queued| queued.number).min();
        oldest.unwrap_or(self.stagings)
    }

    /// Whether dirty pages `first..=last` of `object` are waiting for or under way to flash.
    /// O(staged pages).
    #[must_use]
    pub fn is_staging(&self, object: ObjectId, first: u64, last: u64) -> bool {
        let wanted = |page: PageId| page.object == object && (first..=last).contains(&page.index);
        self.dirty_staged().any(wanted)
    }

    /// Whether the newest bytes of a dirty page are waiting for or under way to flash. O(staged
    /// pages).
    pub(super) fn has_dirty_staged(&self) -> bool {
        self.dirty_staged().next().is_some()
    }

    fn dirty_staged(&self) -> impl Iterator<Item = PageId> + '_ {
        let queued = self.queue.iter().map(|queued| &queued.slot);
        let dirty = queued.chain(&self.writing).copied();
        let dirty = dirty.filter(|slot| self.slots.page(*slot).is_some());
        let dirty = dirty.filter(|slot| self.slots.is_dirty(*slot));
        dirty.filter_map(|slot| self.slots.page(slot))
    }

    /// Whether pages wait for a block that a commit would free. None is made while the tier is off.
    #[must_use]
    pub fn wants_commit(&self) -> bool {
        let waits = self.ledger.free() == 0 && !self.queue.is_empty();
        waits && self.ledger.has_limbo() && !self.health.is_off()
    }

    /// Whether pages wait for a block, and no commit would free one.
    #[must_use]
    pub fn is_starved(&self) -> bool {
        let waits = self.ledger.free() == 0 && !self.queue.is_empty();
        waits && !self.ledger.has_limbo()
    }

    /// Staged pages whose write is under way.
    #[must_use]
    pub fn being_written(&self) -> usize {
        self.writing.len()
    }

    /// The next staged page to write to flash, oldest first; none while no block is free.
    pub fn next_write(&mut self) -> Option<WriteJob> {
        if self.queue.is_empty() || self.health.is_off() {
            return None;
        }
        let block = self.ledger.take()?;
        // A page restaged while its slot is being written waits for that write to end.
        let slot = self.queue.pop_front()?.slot;
        let page = self.slots.page(slot);
        assert!(page.is_some(), "invariant 2");
        self.slots.start_write(slot);
        self.writing.push(slot);
        Some(WriteJob {
            slot,
            block,
            generation: self.slots.generation(slot),
            page: page?,
        })
    }

    /// The write of `job` ended, well with the checksum of the bytes it carried.
    pub fn end_write(&mut self, job: WriteJob, result: Result<u64, Fault>, out: &mut Vec<Action>) {
        self.stop_writing(job.slot);
        let block = result.is_ok().then_some(job.block);
        let Written { state, old } = self.slots.end_write(job.slot, job.generation, block);
        match (state, result) {
            (SlotState::Valid, Ok(checksum)) => {
                let dirty = self.slots.is_dirty(job.slot);
                self.ledger.wrote(job.block, job.page, checksum, dirty, old);
            }
            (_, Ok(_)) => self.ledger.give_back(job.block),
            (_, Err(Fault::TimedOut)) => self.ledger.give_up(job.block),
            (_, Err(_)) => self.ledger.give_back_last(job.block),
        }
        match (state, result) {
            (SlotState::Staged, Err(_)) if !self.slots.is_dirty(job.slot) => {
                self.remove_staged(job.slot, out);
            }
            _ => self.stage_on(job.slot, state, out),
        }
        self.count_write(job.page, result.map(drop), out);
    }

    /// The changes to write as one batch that names `jobs` too, each with the checksum of its
    /// bytes, while those are being written; `None` where [`Hierarchy::begin_commit`] gives none.
    /// Each job must be [`Hierarchy::is_current`], and is ended by [`Hierarchy::end_ahead`].
    pub fn begin_commit_ahead(&mut self, jobs: &[(WriteJob, u64)]) -> Option<Vec<MapChange>> {
        let ahead = |(job, checksum): &(WriteJob, u64)| {
            assert!(self.is_current(job), "the newest bytes of a dirty page");
            Ahead {
                block: job.block,
                page: job.page,
                checksum: *checksum,
                old: self.slots.block(job.slot),
            }
        };
        let pages: Vec<Ahead> = jobs.iter().map(ahead).collect();
        self.ledger.begin_commit_ahead(&pages)
    }

    /// Whether `job` still writes the newest bytes of a dirty page.
    #[must_use]
    pub fn is_current(&self, job: &WriteJob) -> bool {
        self.slots.page(job.slot) == Some(job.page)
            && self.slots.generation(job.slot) == job.generation
            && self.slots.is_dirty(job.slot)
    }

    /// The write of `job`, which the batch begun last names, ended. When it went well the batch is
    /// on the device. When it did not, the batch was put right and does not name it: then this
    /// is called when the batch is durable, for the block is written again after that.
    pub fn end_ahead(&mut self, job: WriteJob, result: Result<(), Fault>, out: &mut Vec<Action>) {
        self.stop_writing(job.slot);
        let state = match result {
            Ok(()) => {
                let written = (self.slots).end_named_write(job.slot, job.generation, job.block);
                match written.state {
                    SlotState::Free => self.ledger.arrived_for_nobody(job.block, job.page),
                    _ => self.ledger.arrived(job.block, written.old),
                }
                written.state
            }
            Err(fault) => {
                self.ledger.not_arrived(job.block);
                match fault {
                    Fault::TimedOut => self.ledger.give_up(job.block),
                    _ => self.ledger.give_back_last(job.block),
                }
                self.slots.end_write(job.slot, job.generation, None).state
            }
        };
        self.stage_on(job.slot, state, out);
        self.count_write(job.page, result, out);
    }

    /// The batch begun last failed, and with it the write of `job`, which it names: to be followed
    /// by [`Hierarchy::fail`]. The page stays staged.
    pub fn lose_ahead(&mut self, job: WriteJob, out: &mut Vec<Action>) {
        self.stop_writing(job.slot);
        self.ledger.lost_ahead(job.block);
        let state = self.slots.end_write(job.slot, job.generation, None).state;
        self.stage_on(job.slot, state, out);
    }

    fn stop_writing(&mut self, slot: SlotId) {
        let before = self.writing.len();
        self.writing.retain(|writing| *writing != slot);
        assert_eq!(self.writing.len() + 1, before, "an end follows a start");
    }

    /// A write of `slot` ended and left it in `state`: bytes that are still staged are next.
    fn stage_on(&mut self, slot: SlotId, state: SlotState, out: &mut Vec<Action>) {
        match state {
            SlotState::Staged => {
                // Before all others: whoever waits for them waits since before now.
                self.queue.push_front(Queued::new(slot, 0));
                out.push(Action::WakeWriter);
            }
            _ => out.push(Action::Unstage { slot }),
        }
    }

    fn count_write(&mut self, page: PageId, result: Result<(), Fault>, out: &mut Vec<Action>) {
        match result {
            Ok(()) => {
                self.counters.flash_writes += 1;
                self.policy.on_written(page);
                self.health.success(Way::Write);
            }
            Err(fault) => {
                self.count_fault(Way::Write, fault, out);
                // With a page in every slot there would be no block left for a newer version.
                let slots = self.slots.capacity() + self.slots.keeps() + self.slots.reserve();
                let starved = fault == Fault::TimedOut && self.ledger.usable() <= slots;
                if starved && !self.health.is_off() {
                    self.switch_off(out);
                }
            }
        }
    }

    /// Makes room for one more staged page by dropping a clean one that is worth less than `page`,
    /// if need be (TAC §3.3: the coldest is dropped when writers lag).
    pub(super) fn make_buffer_room(&mut self, page: PageId, out: &mut Vec<Action>) -> BufferRoom {
        if self.staged() < self.buffer_pages {
            return BufferRoom::There;
        }
        let Some((least, slot)) = self.coldest_staged() else {
            return BufferRoom::None;
        };
        if !self.keeps(page) && self.policy.worth(page) <= least {
            return BufferRoom::None;
        }
        self.remove(slot, Removal::Dropped, out);
        BufferRoom::Made
    }

    /// The same for a dirty page: any clean staged page gives way.
    pub(super) fn make_dirty_room(&mut self, out: &mut Vec<Action>) -> BufferRoom {
        if self.staged() < self.buffer_pages {
            return BufferRoom::There;
        }
        let Some((_, slot)) = self.coldest_staged() else {
            return BufferRoom::None;
        };
        self.remove(slot, Removal::Dropped, out);
        BufferRoom::Made
    }

    /// Whether [`Hierarchy::make_dirty_room`] makes room.
    pub(super) fn has_dirty_room(&self) -> bool {
        let may_go = |slot: SlotId| self.slots.is_policy(slot) && !self.slots.is_dirty(slot);
        let mut queued = self.queue.iter();
        self.staged() < self.buffer_pages || queued.any(|queued| may_go(queued.slot))
    }

    /// The clean staged page that is worth least, and its worth now. The worth of the others is of
    /// when it was last asked for: to ask a policy about all of them for each newcomer took most
    /// of the time of a busy tier.
    fn coldest_staged(&mut self) -> Option<(f64, SlotId)> {
        let (slots, policy) = (&self.slots, &self.policy);
        let worth = |slot| {
            let page = slots.page(slot);
            page.map_or(f64::NEG_INFINITY, |page| policy.worth(page))
        };
        loop {
            let mut coldest: Option<(f64, &mut Queued)> = None;
            for one in &mut self.queue {
                let least = coldest.as_ref().map(|coldest| coldest.0);
                let is_less = |worth: f64| least.is_none_or(|least| worth < least);
                // The table of slots, which is far larger, is looked at last.
                let may_be = one.worth.is_none_or(is_less);
                if !may_be || !slots.is_policy(one.slot) || slots.is_dirty(one.slot) {
                    continue;
                }
                let worth = *one.worth.get_or_insert_with(|| worth(one.slot));
                if is_less(worth) {
                    coldest = Some((worth, one));
                }
            }
            let (least, coldest) = coldest?;
            let now = worth(coldest.slot);
            coldest.worth = Some(now);
            let is_warmer = now > least;
            if !is_warmer {
                return Some((now, coldest.slot));
            }
        }
    }

    pub(super) fn queue_write(&mut self, slot: SlotId, out: &mut Vec<Action>) {
        let queued = self.queue.iter().any(|queued| queued.slot == slot);
        assert!(!queued, "invariant 2");
        self.queue.push_back(Queued::new(slot, self.stagings));
        self.stagings += 1;
        out.push(Action::WakeWriter);
    }

    fn remove_staged(&mut self, slot: SlotId, out: &mut Vec<Action>) {
        // It is staged but not queued: the failed write was its turn.
        self.queue.push_back(Queued::new(slot, self.stagings));
        self.remove(slot, Removal::Failed, out);
    }

    /// Takes the page out of `slot`, whatever its state, and tells everyone.
    pub(super) fn remove(&mut self, slot: SlotId, why: Removal, out: &mut Vec<Action>) {
        let staged = self.slots.state(slot) == SlotState::Staged;
        let writing = self.slots.is_writing(slot);
        if staged && !writing {
            self.queue.retain(|queued| queued.slot != slot);
        }
        let (block, dirty) = (self.slots.block(slot), self.slots.is_dirty(slot));
        let page = self.slots.remove(slot);
        if let Some(block) = block {
            self.ledger.removed(block, page, dirty);
        }
        match self.slots.area(slot) {
            Area::Policy => self.policy.on_remove(page, slot, why),
            Area::Reserve => self.tell_reserve(page, false),
            Area::Kept => {}
        }
        self.counters.removals[why as usize] += u64::from(!self.slots.is_reserve(slot));
        self.flash_move(page, crate::pool::FlashMove::Left);
        self.lost.remove(&page);
        self.failing.remove(&slot);
        // A writer that is at work still needs the bytes; they go when it ends.
        if staged && !writing {
            out.push(Action::Unstage { slot });
        }
    }
}
