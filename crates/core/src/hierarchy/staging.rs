//! The write buffer: pages on their way to flash, and their slots.

use super::{Action, Hierarchy, WriteJob};
use crate::health::{Fault, Way};
use crate::page::{ObjectId, PageId, SlotId};
use crate::policy::Removal;
use crate::tier::{SlotState, Written};

impl Hierarchy {
    /// Pages waiting for or under way to flash.
    #[must_use]
    pub fn staged(&self) -> u32 {
        (self.queue.len() + self.writing.len()) as u32
    }

    /// Whether dirty pages `first..=last` of `object` are waiting for or under way to flash.
    /// O(staged pages).
    #[must_use]
    pub fn is_staging(&self, object: ObjectId, first: u64, last: u64) -> bool {
        let mut staged = self.queue.iter().chain(&self.writing);
        staged.any(|slot| {
            let page = self
                .slots
                .page(*slot)
                .filter(|_| self.slots.is_dirty(*slot));
            page.is_some_and(|p| p.object == object && (first..=last).contains(&p.index))
        })
    }

    /// Whether pages wait for a block that a commit would free.
    #[must_use]
    pub fn wants_commit(&self) -> bool {
        self.ledger.free() == 0 && !self.queue.is_empty() && self.ledger.has_limbo()
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
        let slot = self.queue.pop_front()?;
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
        let before = self.writing.len();
        self.writing.retain(|slot| *slot != job.slot);
        assert_eq!(self.writing.len() + 1, before, "an end follows a start");
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
            (SlotState::Staged, _) => self.queue_write(job.slot, out),
            _ => out.push(Action::Unstage { slot: job.slot }),
        }
        match result {
            Ok(_) => {
                self.counters.flash_writes += 1;
                self.health.success(Way::Write);
            }
            Err(fault) => {
                self.count_fault(Way::Write, fault, out);
                // With a page in every slot there would be no block left for a newer version.
                let slots = self.slots.capacity() + self.slots.reserve();
                let starved = fault == Fault::TimedOut && self.ledger.usable() <= slots;
                if starved && !self.health.is_off() {
                    self.switch_off(out);
                }
            }
        }
    }

    /// True when one more page can be staged, after dropping a clean staged page that is worth
    /// less than `page` if need be (TAC §3.3: the coldest is dropped when writers lag).
    pub(super) fn make_buffer_room(&mut self, page: PageId, out: &mut Vec<Action>) -> bool {
        if self.staged() < self.buffer_pages {
            return true;
        }
        let Some((least, slot)) = self.coldest_staged() else {
            return false;
        };
        if self.policy.worth(page) <= least {
            return false;
        }
        self.remove(slot, Removal::Dropped, out);
        true
    }

    /// The same for a dirty page: any clean staged page gives way.
    pub(super) fn make_dirty_room(&mut self, out: &mut Vec<Action>) -> bool {
        if self.staged() < self.buffer_pages {
            return true;
        }
        let Some((_, slot)) = self.coldest_staged() else {
            return false;
        };
        self.remove(slot, Removal::Dropped, out);
        true
    }

    fn coldest_staged(&self) -> Option<(f64, SlotId)> {
        let worth = |slot: SlotId| {
            let page = self.slots.page(slot);
            page.map_or(f64::NEG_INFINITY, |page| self.policy.worth(page))
        };
        let clean = self
            .queue
            .iter()
            .filter(|slot| !self.slots.is_dirty(**slot));
        let coldest = clean.map(|&slot| (worth(slot), slot));
        coldest.min_by(|a, b| a.0.total_cmp(&b.0))
    }

    pub(super) fn queue_write(&mut self, slot: SlotId, out: &mut Vec<Action>) {
        assert!(!self.queue.contains(&slot), "invariant 2");
        self.queue.push_back(slot);
        out.push(Action::WakeWriter);
    }

    fn remove_staged(&mut self, slot: SlotId, out: &mut Vec<Action>) {
        // It is staged but not queued: the failed write was its turn.
        self.queue.push_back(slot);
        self.remove(slot, Removal::Failed, out);
    }

    /// Takes the page out of `slot`, whatever its state, and tells everyone.
    pub(super) fn remove(&mut self, slot: SlotId, why: Removal, out: &mut Vec<Action>) {
        let staged = self.slots.state(slot) == SlotState::Staged;
        let writing = self.slots.is_writing(slot);
        if staged && !writing {
            self.queue.retain(|queued| *queued != slot);
        }
        let (block, dirty) = (self.slots.block(slot), self.slots.is_dirty(slot));
        let page = self.slots.remove(slot);
        if let Some(block) = block {
            self.ledger.removed(block, page, dirty);
        }
        if self.slots.is_policy(slot) {
            self.policy.on_remove(page, slot, why);
            self.counters.removals[why as usize] += 1;
            self.flash_move(page, crate::pool::FlashMove::Left);
        }
        self.lost.remove(&page);
        // A writer that is at work still needs the bytes; they go when it ends.
        if staged && !writing {
            out.push(Action::Unstage { slot });
        }
    }
}
