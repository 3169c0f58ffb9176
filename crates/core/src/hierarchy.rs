//! The hierarchy: DRAM pool over flash tier over base, write-through.
//!
//! The caller (the live engine, later the simulator and the crash tester) reports events by calling
//! methods and carries out the [`Action`]s they append, in order, before the next call. No method
//! does I/O or waits.
//!
//! # Life of a page request
//! ```text
//!   start_read --- Frame, Buffer: bytes are in DRAM, copy them, then finish_read
//!              --- Slot: read flash --- good: finish_read
//!              |                    --- bad:  slot_failed, read base, finish_read
//!              --- Base: read base, finish_read
//!              --- Busy: wait until an action wakes the page, start again
//!   start_write -- true: write base, finish_write      -- false: wait, start again
//!   next_write  -- a staged page for a background writer, then end_write
//! ```
//!
//! # Invariants (with those of [`SlotTable`], [`Pool`] and [`InFlight`])
//! 1. A page's copies in pool, buffer and flash equal base, except while it is being written;
//!    then its flash and buffer copies are not served to anyone.
//! 2. `queue` holds exactly the staged slots that are not being written, each once.
//! 3. While the tier is off no page is admitted, and none is served from flash or buffer.
//! 4. Pinned slots belong to pages that are being read.

use crate::counters::{Counters, Source};
use crate::health::{Fault, Health, Way};
use crate::hint::{HintSet, RequestType};
use crate::inflight::InFlight;
use crate::page::{FrameId, ObjectId, PageId, SlotId};
use crate::policy::{
    self, Access, Decision, Op, Opportunity, PolicyOptions, Refusal, Removal, TierPolicy,
};
use crate::pool::{Evicted, Pool};
use crate::tier::{SlotState, SlotTable};
use std::collections::VecDeque;

/// Something the caller must do, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Keep the bytes of the request at hand in the write buffer as the content of `slot`.
    Stage {
        /// Slot the bytes will be written to.
        slot: SlotId,
        /// Page they are.
        page: PageId,
    },
    /// Keep the bytes of `frame` in the write buffer as the content of `slot`.
    StageFrame {
        /// Frame that holds the bytes until the next action.
        frame: FrameId,
        /// Slot they will be written to.
        slot: SlotId,
        /// Page they are.
        page: PageId,
    },
    /// The write buffer's bytes for `slot` are no longer needed.
    Unstage {
        /// Slot they were for.
        slot: SlotId,
    },
    /// Put the bytes of the request at hand into `frame`.
    FillFrame {
        /// Frame to fill.
        frame: FrameId,
        /// Page they are.
        page: PageId,
    },
    /// `frame` no longer holds `page`.
    EvictFrame {
        /// Frame to clear.
        frame: FrameId,
        /// Page it held.
        page: PageId,
    },
    /// Wake whoever waits for `page`.
    Wake {
        /// Page whose I/O ended.
        page: PageId,
    },
    /// A slot was staged: a background writer has work.
    WakeWriter,
}

/// Where to read a page from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadStart {
    /// From a DRAM frame, at once.
    Frame(FrameId),
    /// From the write buffer, at once.
    Buffer(SlotId),
    /// From a flash slot; it stays pinned until the read is finished.
    Slot(SlotId),
    /// From base.
    Base,
    /// Not yet: the page is being written.
    Busy,
}

impl ReadStart {
    /// The counted source, where there is one.
    #[must_use]
    pub const fn source(self) -> Option<Source> {
        match self {
            Self::Frame(_) => Some(Source::Pool),
            Self::Buffer(_) => Some(Source::Buffer),
            Self::Slot(_) => Some(Source::Flash),
            Self::Base => Some(Source::Base),
            Self::Busy => None,
        }
    }
}

/// A page write for a background writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriteJob {
    /// Slot to write.
    pub slot: SlotId,
    /// Content the write carries; passed back to [`Hierarchy::end_write`].
    pub generation: u32,
    /// Page written.
    pub page: PageId,
}

/// Sizes and parameters.
#[derive(Clone, Debug)]
pub struct HierarchyOptions {
    /// Tier policy by name (see [`policy::NAMES`]).
    pub policy: String,
    /// Its parameters; `capacity` is the number of slots.
    pub policy_options: PolicyOptions,
    /// Frames of the DRAM pool; 0 for none.
    pub frames: u32,
    /// Pages the write buffer holds at most, those being written included.
    pub buffer_pages: u32,
}

/// See the module text.
pub struct Hierarchy {
    slots: SlotTable,
    policy: Box<dyn TierPolicy>,
    policy_options: PolicyOptions,
    pool: Pool,
    inflight: InFlight,
    queue: VecDeque<SlotId>,
    writing: u32,
    buffer_pages: u32,
    health: Health,
    requests: u64,
    counters: Counters,
    resident_by_object: Vec<u32>,
}

/// There is no policy of that name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy(pub String);

impl std::fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "no policy is called '{}'; there are {}",
            self.0,
            policy::NAMES.join(", ")
        )
    }
}

impl std::error::Error for UnknownPolicy {}

impl Hierarchy {
    /// An empty hierarchy. Errors when there is no such policy.
    pub fn new(options: &HierarchyOptions) -> Result<Self, UnknownPolicy> {
        let policy = policy::build(&options.policy, &options.policy_options)
            .ok_or_else(|| UnknownPolicy(options.policy.clone()))?;
        Ok(Self::with_policy(policy, options))
    }

    /// An empty hierarchy under a policy of the caller's own; `options.policy` is not looked at.
    #[must_use]
    pub fn with_policy(policy: Box<dyn TierPolicy>, options: &HierarchyOptions) -> Self {
        Self {
            slots: SlotTable::new(options.policy_options.capacity),
            policy,
            policy_options: options.policy_options.clone(),
            pool: Pool::new(options.frames),
            inflight: InFlight::default(),
            queue: VecDeque::new(),
            writing: 0,
            buffer_pages: options.buffer_pages.max(1),
            health: Health::default(),
            requests: 0,
            counters: Counters::default(),
            resident_by_object: Vec::new(),
        }
    }

    /// Totals so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The slot table.
    #[must_use]
    pub fn slots(&self) -> &SlotTable {
        &self.slots
    }

    /// The DRAM pool.
    #[must_use]
    pub fn pool(&self) -> &Pool {
        &self.pool
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> &dyn TierPolicy {
        self.policy.as_ref()
    }

    /// Whether the tier is off.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.health.is_off()
    }

    /// Pages waiting for or under way to flash.
    #[must_use]
    pub fn staged(&self) -> u32 {
        self.queue.len() as u32 + self.writing
    }

    /// Resident pages of `object`.
    #[must_use]
    pub fn resident_of(&self, object: ObjectId) -> u32 {
        self.resident_by_object
            .get(object.0 as usize)
            .copied()
            .unwrap_or(0)
    }

    /// Bytes of memory held by decisions (map, policy), not by pages.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.slots.bytes() + self.policy.bytes()
    }

    /// A read of `page` arrives. Except for [`ReadStart::Busy`] it must be followed by
    /// [`Hierarchy::finish_read`].
    pub fn start_read(&mut self, page: PageId) -> ReadStart {
        if let Some(frame) = self.pool.find(page) {
            return ReadStart::Frame(frame);
        }
        // A trimmed page's slot may still be there, pinned by a read from before the trim.
        let usable = !self.health.is_off() && !self.inflight.is_doomed(page);
        let slot = if usable { self.slots.find(page) } else { None };
        if !self.inflight.start_read(page) {
            return ReadStart::Busy;
        }
        match slot {
            Some(slot) if self.slots.state(slot) == SlotState::Staged => ReadStart::Buffer(slot),
            Some(slot) => {
                self.slots.pin(slot);
                ReadStart::Slot(slot)
            }
            None => ReadStart::Base,
        }
    }

    /// Whether a read of `page` would go to base now.
    #[must_use]
    pub fn is_absent(&self, page: PageId) -> bool {
        let on_flash = !self.health.is_off() && self.slots.find(page).is_some();
        !on_flash && self.pool.find(page).is_none() && !self.inflight.is_busy(page)
    }

    /// The flash read of `page` from `slot` did not give its bytes: the copy is given up and the
    /// caller goes on as if [`ReadStart::Base`] had been the answer.
    pub fn slot_failed(&mut self, slot: SlotId, fault: Fault, out: &mut Vec<Action>) {
        self.slots.unpin(slot);
        if self.slots.pins(slot) == 0 && self.slots.page(slot).is_some() {
            self.remove(slot, Removal::Failed, out);
        }
        self.count_fault(Way::Read, fault, out);
    }

    /// The bytes of `page` are at hand, read as `how` said ([`ReadStart::Base`] after
    /// [`Hierarchy::slot_failed`]). Decides about admission and the pool.
    pub fn finish_read(
        &mut self,
        page: PageId,
        hints: &HintSet,
        how: ReadStart,
        out: &mut Vec<Action>,
    ) {
        if let ReadStart::Frame(frame) = how {
            self.pool.touch(frame);
            self.policy.on_pool_hits(page, 1);
            return;
        }
        let access = self.next_access(page, Op::Read, hints);
        let ended = self.inflight.end(page);
        if let ReadStart::Slot(slot) = how {
            self.health.success(Way::Read);
            self.slots.unpin(slot);
            self.leave_if_pending(slot, ended.doomed, out);
        }
        self.count_read(how);
        let resident = self.slots.find(page);
        self.policy.on_request(&access, resident);
        if ended.doomed {
            self.refuse(Refusal::Overtaken);
        } else {
            if resident.is_none() {
                self.consider(&access, Opportunity::Read, None, out);
            }
            self.fill_pool(page, hints, out);
        }
        self.wake(page, ended.wake, out);
    }

    /// The read of `page` could not be done at all: base failed.
    pub fn abandon_read(&mut self, page: PageId, out: &mut Vec<Action>) {
        let ended = self.inflight.end(page);
        self.wake(page, ended.wake, out);
    }

    /// A write of `page` arrives; false when the caller must wait. Must be followed by
    /// [`Hierarchy::finish_write`].
    pub fn start_write(&mut self, page: PageId) -> bool {
        self.inflight.start_write(page)
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
        let resident = self.slots.find(page);
        self.policy.on_request(&access, resident);
        let keep = whole && ok && !ended.doomed;
        match resident {
            Some(slot) if keep => self.update(slot, page, out),
            Some(slot) => self.remove(slot, Removal::Stale, out),
            None if keep => self.consider(&access, Opportunity::Write, None, out),
            None => {}
        }
        if let Some(frame) = self.pool.find(page) {
            match keep {
                true => {
                    self.pool.touch(frame);
                    out.push(Action::FillFrame { frame, page });
                }
                false => self.evict_frame(frame, out),
            }
        }
        self.wake(page, ended.wake, out);
    }

    /// Hits on frames that were served without asking: `(frame, page, hits)`.
    pub fn pool_hits(&mut self, hits: &[(FrameId, PageId, u32)]) {
        for &(frame, page, count) in hits {
            if self.pool.page(frame) == Some(page) {
                self.pool.touch(frame);
                self.policy.on_pool_hits(page, count);
            }
        }
    }

    /// Pages `first..=last` of `object` are gone (deleted, truncated, punched).
    pub fn trim(&mut self, object: ObjectId, first: u64, last: u64, out: &mut Vec<Action>) {
        self.inflight.doom(object, first, last);
        for slot in self.slots.in_range(object, first, last) {
            // A slot with readers leaves with the last of them.
            if self.slots.pins(slot) == 0 {
                self.remove(slot, Removal::Trimmed, out);
            }
        }
        for frame in self.pool.in_range(object, first, last) {
            self.evict_frame(frame, out);
        }
        if last == u64::MAX {
            self.policy.on_trim(object, first);
        }
    }

    /// The next staged page to write to flash, oldest first.
    pub fn next_write(&mut self) -> Option<WriteJob> {
        // A page restaged while its slot is being written waits for that write to end.
        let slot = self.queue.pop_front()?;
        let page = self.slots.page(slot);
        debug_assert!(page.is_some(), "invariant 2");
        self.slots.start_write(slot);
        self.writing += 1;
        Some(WriteJob {
            slot,
            generation: self.slots.generation(slot),
            page: page?,
        })
    }

    /// The write of `job` ended.
    pub fn end_write(&mut self, job: WriteJob, result: Result<(), Fault>, out: &mut Vec<Action>) {
        debug_assert!(self.writing > 0, "an end follows a start");
        self.writing -= 1;
        let generation = match result {
            Ok(()) => job.generation,
            // No generation is the one before: the slot stays staged.
            Err(_) => job.generation.wrapping_sub(1),
        };
        match (self.slots.end_write(job.slot, generation), result) {
            (SlotState::Staged, Err(_)) => self.remove_staged(job.slot, out),
            (SlotState::Staged, Ok(())) => self.queue_write(job.slot, out),
            _ => out.push(Action::Unstage { slot: job.slot }),
        }
        match result {
            Ok(()) => {
                self.counters.flash_writes += 1;
                self.health.success(Way::Write);
            }
            Err(fault) => self.count_fault(Way::Write, fault, out),
        }
    }

    /// Switches to the policy called `name`; pages on flash stay, what was learned does not.
    pub fn set_policy(&mut self, name: &str) -> Result<(), UnknownPolicy> {
        let mut policy = policy::build(name, &self.policy_options)
            .ok_or_else(|| UnknownPolicy(name.to_string()))?;
        for (slot, page) in self.slots.residents() {
            policy.on_admit(&quiet_access(page, self.requests), slot);
        }
        self.policy = policy;
        Ok(())
    }

    /// Puts `page` into `slot` as it was before a restart. False when either is taken.
    pub fn restore(&mut self, page: PageId, slot: SlotId) -> bool {
        if slot.0 >= self.slots.capacity() || !self.slots.restore(page, slot) {
            return false;
        }
        self.policy.on_admit(&quiet_access(page, 0), slot);
        self.count_resident(page.object, true);
        true
    }

    /// Stops using flash: every copy is forgotten.
    pub fn switch_off(&mut self, out: &mut Vec<Action>) {
        self.health.switch_off();
        let residents: Vec<SlotId> = self.slots.residents().map(|(slot, _)| slot).collect();
        for slot in residents {
            if self.slots.pins(slot) == 0 {
                self.remove(slot, Removal::Off, out);
            }
        }
    }

    /// Uses flash again, from empty.
    pub fn switch_on(&mut self) {
        self.health.switch_on();
    }

    /// Panics unless the numbered invariants hold. O(slots + frames).
    pub fn assert_invariants(&self) {
        self.slots.assert_invariants();
        self.pool.assert_invariants();
        self.inflight.assert_invariants();
        self.policy.assert_invariants(&self.slots);
        let mut queued: Vec<u32> = self.queue.iter().map(|s| s.0).collect();
        queued.sort_unstable();
        let staged = self.slots.residents().filter(|(slot, _)| {
            self.slots.state(*slot) == SlotState::Staged && !self.slots.is_writing(*slot)
        });
        let staged: Vec<u32> = staged.map(|(slot, _)| slot.0).collect();
        assert_eq!(queued, staged, "invariant 2");
        for (slot, page) in self.slots.residents() {
            let pinned = self.slots.pins(slot) > 0;
            assert!(!pinned || self.inflight.is_busy(page), "invariant 4");
            assert!(pinned || !self.health.is_off(), "invariant 3");
        }
        let counted: u32 = self.resident_by_object.iter().sum();
        assert_eq!(
            counted,
            self.slots.resident(),
            "residents are counted by object"
        );
    }

    fn next_access(&mut self, page: PageId, op: Op, hints: &HintSet) -> Access {
        self.requests += 1;
        Access {
            page,
            op,
            hints: *hints,
            number: self.requests,
        }
    }

    fn count_read(&mut self, how: ReadStart) {
        if let Some(source) = how.source() {
            self.counters.reads[source as usize] += 1;
        }
    }

    fn count_resident(&mut self, object: ObjectId, added: bool) {
        let at = object.0 as usize;
        if at >= self.resident_by_object.len() {
            self.resident_by_object.resize(at + 1, 0);
        }
        match added {
            true => self.resident_by_object[at] += 1,
            false => self.resident_by_object[at] -= 1,
        }
    }

    fn count_fault(&mut self, way: Way, fault: Fault, out: &mut Vec<Action>) {
        self.counters.faults[fault as usize] += 1;
        if self.health.fault(way, fault) {
            self.switch_off(out);
        }
    }

    fn refuse(&mut self, why: Refusal) {
        self.counters.refusals[why as usize] += 1;
    }

    fn wake(&self, page: PageId, wanted: bool, out: &mut Vec<Action>) {
        if wanted {
            out.push(Action::Wake { page });
        }
    }

    /// A slot whose page was trimmed, or whose tier went off, while it was pinned leaves now.
    fn leave_if_pending(&mut self, slot: SlotId, doomed: bool, out: &mut Vec<Action>) {
        if self.slots.pins(slot) > 0 || self.slots.page(slot).is_none() {
            return;
        }
        if self.health.is_off() {
            self.remove(slot, Removal::Off, out);
        } else if doomed {
            self.remove(slot, Removal::Trimmed, out);
        }
    }

    /// Asks the policy about a page that is not on flash; its bytes are those of the request at
    /// hand, or in `frame`.
    fn consider(
        &mut self,
        access: &Access,
        why: Opportunity,
        frame: Option<FrameId>,
        out: &mut Vec<Action>,
    ) {
        if self.slots.capacity() == 0 {
            return;
        }
        if self.health.is_off() {
            return self.refuse(Refusal::Off);
        }
        if !self.make_buffer_room(access.page, out) {
            return self.refuse(Refusal::BufferFull);
        }
        match self.policy.decide(access, why, &self.slots) {
            Decision::Refuse(reason) => return self.refuse(reason),
            Decision::Replace(victim) => self.remove(victim, Removal::Evicted, out),
            Decision::Admit => {}
        }
        let Some(slot) = self.slots.admit(access.page) else {
            // The victim's slot is still being written to.
            return self.refuse(Refusal::Pinned);
        };
        self.policy.on_admit(access, slot);
        self.counters.admissions += 1;
        self.count_resident(access.page.object, true);
        out.push(match frame {
            Some(frame) => Action::StageFrame {
                frame,
                slot,
                page: access.page,
            },
            None => Action::Stage {
                slot,
                page: access.page,
            },
        });
        self.queue_write(slot, out);
    }

    /// New bytes for a resident page (TAC §3.2): they go through the write buffer as well. When
    /// the buffer is full of warmer pages the copy is dropped, never left stale.
    fn update(&mut self, slot: SlotId, page: PageId, out: &mut Vec<Action>) {
        self.counters.write_hits += 1;
        let queued = self.slots.state(slot) == SlotState::Staged;
        if !queued && !self.make_buffer_room(page, out) {
            return self.remove(slot, Removal::Dropped, out);
        }
        self.slots.restage(slot);
        out.push(Action::Stage { slot, page });
        if !queued {
            self.queue_write(slot, out);
        }
    }

    /// True when one more page can be staged, after dropping a staged page that is worth less
    /// than `page` if need be (TAC §3.3: the coldest is dropped when writers lag).
    fn make_buffer_room(&mut self, page: PageId, out: &mut Vec<Action>) -> bool {
        if self.staged() < self.buffer_pages {
            return true;
        }
        let worth = |slot: SlotId| {
            let page = self.slots.page(slot);
            page.map_or(f64::NEG_INFINITY, |page| self.policy.worth(page))
        };
        let coldest = self.queue.iter().map(|&slot| (worth(slot), slot));
        let coldest = coldest.min_by(|a, b| a.0.total_cmp(&b.0));
        let Some((least, slot)) = coldest else {
            return false;
        };
        if self.policy.worth(page) <= least {
            return false;
        }
        self.remove(slot, Removal::Dropped, out);
        true
    }

    fn queue_write(&mut self, slot: SlotId, out: &mut Vec<Action>) {
        debug_assert!(!self.queue.contains(&slot), "invariant 2");
        self.queue.push_back(slot);
        out.push(Action::WakeWriter);
    }

    fn remove_staged(&mut self, slot: SlotId, out: &mut Vec<Action>) {
        // It is staged but not queued: the failed write was its turn.
        self.queue.push_back(slot);
        self.remove(slot, Removal::Failed, out);
    }

    /// Takes the page out of `slot`, whatever its state, and tells everyone.
    fn remove(&mut self, slot: SlotId, why: Removal, out: &mut Vec<Action>) {
        let staged = self.slots.state(slot) == SlotState::Staged;
        let writing = self.slots.is_writing(slot);
        if staged && !writing {
            self.queue.retain(|queued| *queued != slot);
        }
        let page = self.slots.remove(slot);
        self.policy.on_remove(page, slot, why);
        self.count_resident(page.object, false);
        self.counters.removals[why as usize] += 1;
        // A writer that is at work still needs the bytes; they go when it ends.
        if staged && !writing {
            out.push(Action::Unstage { slot });
        }
    }

    fn evict_frame(&mut self, frame: FrameId, out: &mut Vec<Action>) {
        let page = self.pool.remove(frame);
        out.push(Action::EvictFrame { frame, page });
    }

    /// Brings `page` into the DRAM pool, if there is one.
    fn fill_pool(&mut self, page: PageId, hints: &HintSet, out: &mut Vec<Action>) {
        if self.pool.capacity() == 0 {
            return;
        }
        // Two readers of one page may both come here.
        if let Some(frame) = self.pool.find(page) {
            return self.pool.touch(frame);
        }
        if let Some(victim) = self.pool.victim() {
            self.offer_evicted(&victim, out);
            self.counters.pool_evictions += 1;
            self.evict_frame(victim.frame, out);
        }
        let on_flash = self.slots.find(page).is_some();
        let prefetched = hints.request() == RequestType::SequentialRead;
        if let Some(frame) = self.pool.fill(page, *hints, on_flash, prefetched) {
            out.push(Action::FillFrame { frame, page });
        }
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
        self.consider(&access, Opportunity::PoolEviction, Some(victim.frame), out);
    }
}

/// An access that stands for a page already on flash.
fn quiet_access(page: PageId, number: u64) -> Access {
    Access {
        page,
        op: Op::Read,
        hints: HintSet::UNKNOWN,
        number,
    }
}
