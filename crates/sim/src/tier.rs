//! Policy, slot table and DRAM pool with instant I/O: the decisions of [`Hierarchy`] for one
//! client whose flash writes are done at once.
//!
//! The same calls in the same order as the live tier makes, so that the decisions are the same;
//! `tests/agreement.rs` holds the two against each other for every policy. Left out is what
//! cannot happen here: requests that overlap, a write buffer that is full, devices that fail.
//!
//! [`Hierarchy`]: thermocline_core::Hierarchy

use crate::request::{Kind, PageRequest};
use thermocline_core::counters::Source;
use thermocline_core::policy::{Access, Aside, Decision, Op, Opportunity, Removal, TierPolicy};
use thermocline_core::pool::Pool;
use thermocline_core::tier::SlotTable;
use thermocline_core::{FrameId, HintSet, ObjectId, PageId, RequestType};

/// What one page request did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effect {
    /// Reads: where the page was. Writes: [`Source::Flash`] when a copy on flash was there.
    pub source: Source,
    /// Pages written to flash because of it.
    pub flash_writes: u32,
    /// Whether the page lives on flash alone: a write then waits for flash, not for base.
    pub moved: bool,
}

/// Something that serves page requests in order.
pub trait Tier {
    /// Serves request number `at` (from 0, trims included), which is not a trim.
    fn serve(&mut self, at: u64, request: &PageRequest, hints: &HintSet) -> Effect;

    /// Forgets the pages of the trim that is number `at`.
    fn trim(&mut self, at: u64, trim: &PageRequest);
}

/// See the module text.
pub struct PolicyTier {
    slots: SlotTable,
    policy: Box<dyn TierPolicy>,
    pool: Pool,
    requests: u64,
}

impl PolicyTier {
    /// An empty tier of `capacity` slots under a pool of `frames` frames.
    #[must_use]
    pub fn new(policy: Box<dyn TierPolicy>, capacity: u32, frames: u32) -> Self {
        Self {
            slots: SlotTable::new(capacity),
            policy,
            pool: Pool::new(frames),
            requests: 0,
        }
    }

    /// The slot table.
    #[must_use]
    pub fn slots(&self) -> &SlotTable {
        &self.slots
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> &dyn TierPolicy {
        self.policy.as_ref()
    }

    /// A read of `page`.
    pub fn read(&mut self, page: PageId, hints: &HintSet) -> Effect {
        let frames = self.pool.capacity() > 0;
        if let Some(frame) = frames.then(|| self.pool.find(page)).flatten() {
            self.pool.touch(frame);
            self.policy.on_pool_hits(page, 1);
            return effect(Source::Pool, 0);
        }
        let access = self.access(page, Op::Read, hints);
        let resident = self.slots.find(page);
        self.policy.on_request(&access, resident);
        let mut flash_writes = 0;
        if resident.is_none() {
            flash_writes += self.consider(&access, Opportunity::Read);
        }
        if frames {
            flash_writes += self.fill_pool(page, hints);
        }
        let found = resident.map_or(Source::Base, |_| Source::Flash);
        effect(found, flash_writes)
    }

    /// A write of `page`; a part of it only unless `whole`.
    pub fn write(&mut self, page: PageId, hints: &HintSet, whole: bool) -> Effect {
        let access = self.access(page, Op::Write, hints);
        let resident = self.slots.find(page);
        match whole {
            true => self.policy.on_request(&access, resident),
            false => self.policy.on_aside(&access, resident, Aside::Part),
        }
        let flash_writes = match resident {
            Some(_) if whole => {
                self.shed();
                self.policy.on_written(page);
                1
            }
            Some(slot) => {
                self.slots.remove(slot);
                self.policy.on_remove(page, slot, Removal::Stale);
                0
            }
            None if whole => self.consider(&access, Opportunity::Write),
            None => 0,
        };
        if let Some(frame) = self.pool.find(page) {
            if whole {
                self.pool.touch(frame);
            } else {
                self.evict_frame(frame);
            }
        }
        let found = resident.map_or(Source::Base, |_| Source::Flash);
        effect(found, flash_writes)
    }

    /// Pages `first..=last` of `object` are gone.
    pub fn forget(&mut self, object: ObjectId, first: u64, last: u64) {
        for slot in self.slots.in_range(object, first, last) {
            let page = self.slots.remove(slot);
            self.policy.on_remove(page, slot, Removal::Trimmed);
        }
        for frame in self.pool.in_range(object, first, last) {
            self.evict_frame(frame);
        }
        if last == u64::MAX {
            self.policy.on_trim(object, first);
        }
    }

    /// Bytes of memory held by decisions: policy and slot map.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.slots.bytes() + self.policy.bytes()
    }

    fn access(&mut self, page: PageId, op: Op, hints: &HintSet) -> Access {
        self.requests += 1;
        Access {
            page,
            op,
            hints: *hints,
            number: self.requests,
        }
    }

    /// Asks the policy about a page that is not on flash; returns the pages written to flash.
    fn consider(&mut self, access: &Access, why: Opportunity) -> u32 {
        if self.slots.capacity() == 0 {
            return 0;
        }
        match self.policy.decide(access, why, &self.slots) {
            Decision::Refuse(_) => return 0,
            Decision::Replace(victim) => {
                let left = self.slots.remove(victim);
                self.policy.on_remove(left, victim, Removal::Evicted);
            }
            Decision::Admit => {}
        }
        let slot = self.slots.admit(access.page);
        debug_assert!(slot.is_some(), "a policy admits only where there is room");
        let Some(slot) = slot else { return 0 };
        self.policy.on_admit(access, slot);
        self.policy.on_written(access.page);
        1
    }

    /// Evicts pages while the policy takes more room than there is.
    fn shed(&mut self) {
        while let Some(victim) = self.policy.surplus(&self.slots) {
            let left = self.slots.remove(victim);
            self.policy.on_remove(left, victim, Removal::Evicted);
        }
    }

    fn evict_frame(&mut self, frame: FrameId) {
        let page = self.pool.remove(frame);
        self.policy.on_pool(page, false);
    }

    /// Brings `page`, which has no frame, into the pool and offers the tier what leaves.
    fn fill_pool(&mut self, page: PageId, hints: &HintSet) -> u32 {
        let mut flash_writes = 0;
        if let Some(victim) = self.pool.victim() {
            if self.slots.find(victim.page).is_none() {
                let access = Access {
                    page: victim.page,
                    op: Op::Read,
                    hints: victim.hints,
                    number: self.requests,
                };
                flash_writes += self.consider(&access, Opportunity::PoolEviction);
            }
            self.evict_frame(victim.frame);
        }
        let on_flash = self.slots.find(page).is_some();
        let prefetched = hints.request() == RequestType::SequentialRead;
        self.pool.fill(page, *hints, on_flash, prefetched);
        self.policy.on_pool(page, true);
        flash_writes
    }
}

const fn effect(source: Source, flash_writes: u32) -> Effect {
    Effect {
        source,
        flash_writes,
        moved: false,
    }
}

impl Tier for PolicyTier {
    fn serve(&mut self, _at: u64, request: &PageRequest, hints: &HintSet) -> Effect {
        self.policy.on_time(request.time_ms());
        match request.kind() {
            Kind::Read => self.read(request.page(), hints),
            kind => self.write(request.page(), hints, kind == Kind::Write),
        }
    }

    fn trim(&mut self, _at: u64, trim: &PageRequest) {
        self.forget(trim.object, trim.index, trim.trim_last());
    }
}
