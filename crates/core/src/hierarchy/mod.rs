//! The hierarchy: DRAM pool over flash tier over base, write-through or write-back.
//!
//! The caller (the live engine, the simulator, the crash tester) reports events by calling
//! methods and carries out the [`Action`]s they append, in order, before the next call. No method
//! does I/O or waits.
//!
//! # Life of a page request
//! ```text
//!   start_read --- Frame, Buffer: bytes are in DRAM, copy them, then finish_read
//!              --- Slot: read flash --- good: finish_read
//!              |                    --- base gave its bytes: finish_bridged  (`bridge.rs`)
//!              |                    --- bad:  slot_failed --- true:  read base, finish_read
//!              |                                          --- false: the newest bytes are lost
//!              --- Base: read base, finish_read
//!              --- Busy: wait until an action wakes the page, start again
//!   start_write -- true: absorb or write base (see `write.rs`)  -- false: wait, start again
//!   next_write  -- a staged page for a background writer, then end_write  (`staging.rs`)
//!   next_clean  -- a dirty frame to write out                             (`clean.rs`)
//!   next_destage - dirty pages on flash to write to base                  (`destage.rs`)
//!   begin_commit - changes to the durable map, then end_commit            (`ledger/`)
//!   begin_commit_ahead - the same, and pages of next_write that are being written: then
//!                  end_ahead of each before end_commit                    (`staging.rs`)
//!   set_calm    -- the tier is about to change its size or its device     (`reshape.rs`)
//!   start_verify - a copy in doubt to compare with base, then end_verify  (`doubt.rs`)
//!   start_warm  -- a page that is said to be hot, then end_warm           (`warm.rs`)
//! ```
//!
//! # Invariants (with those of [`SlotTable`], [`Pool`], [`InFlight`] and [`Ledger`])
//! 1. The newest bytes of a page are, in this order, in its frame, in the write buffer, in its
//!    slot's block, on base; a frame, slot or buffer that is not dirty equals base, except while
//!    the page is being written; then its flash and buffer copies are not served to anyone.
//! 2. `queue` holds exactly the staged slots that are not being written, each once.
//! 3. While the tier is off no page is admitted, and only dirty ones are served from flash.
//! 4. Pinned slots belong to pages that are being read or destaged.
//! 5. Base is written only at pages that no slot holds dirty.
//! 6. The ledger's named blocks are those of slots, its doubted ones those of no slot.
//! 7. While the tier is on, base gets of a dirty page only bytes that the durable map names.

mod bridge;
mod clean;
mod destage;
mod doubt;
mod keep;
mod load;
mod reshape;
mod restore;
mod staging;
mod warm;
mod write;

pub use clean::{CleanJob, Cleaned};
pub use destage::{DestageJob, Watermarks};
pub use load::Touched;
pub use reshape::Calm;
pub use warm::Warming;
pub use write::Absorbed;

use crate::counters::{Counters, Source};
use crate::health::{Fault, Health, Way};
use crate::hint::HintSet;
use crate::inflight::InFlight;
use crate::ledger::Ledger;
use crate::page::{BlockId, FrameId, ObjectId, PageId, SlotId};
use crate::policy::{self, Access, Op, Opportunity, PolicyOptions, Refusal, Removal, TierPolicy};
use crate::pool::{self, FlashMove, Pool};
use crate::tier::{Area, SlotState, SlotTable};
use destage::Destaging;
use std::collections::{BTreeSet, VecDeque};

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
    /// A frame became dirty: a page cleaner may have work.
    WakeCleaner,
    /// Dirty pages pile up on flash: destaging may be due.
    WakeDestager,
    /// Room was made: whoever was told to wait for it may ask again.
    Room,
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
    /// Not yet: the page is being written, or its slot gets another number.
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
    /// Slot whose bytes are written.
    pub slot: SlotId,
    /// Block they are written to.
    pub block: BlockId,
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
    /// Pool policy by name (see [`pool::NAMES`]).
    pub pool_policy: String,
    /// Pages the write buffer holds at most, those being written included.
    pub buffer_pages: u32,
    /// Blocks of the flash device; as many as there are slots are in use at most, the rest takes
    /// new bytes of pages whose old ones are still needed. 0 for a few more than slots.
    pub blocks: u32,
    /// Reserve slots for dirty pages the policy does not hold.
    pub reserve: u32,
    /// Whether policies of pool and tier weigh a page of the reserve as one on flash, which serves
    /// it. By default as one of base, where it soon is: most are read again only after that.
    pub reserve_as_flash: bool,
    /// Slots for pages of pinned objects, beside the policy's and the reserve's.
    pub keeps: u32,
    /// Whether writes stay off base where they can.
    pub write_back: bool,
    /// In write-back, frames may be dirty though there is no slot: as a database's own buffers are,
    /// for comparisons in simulation. A mount would lose what it was told to keep.
    pub buffers: bool,
    /// When dirty pages on flash are written back.
    pub watermarks: Watermarks,
    /// Dirty frames older than this are cleaned, in the unit of the caller's `now`.
    pub recovery_age: u64,
}

impl HierarchyOptions {
    /// Write-through without a pool.
    #[must_use]
    pub fn new(policy: &str, policy_options: PolicyOptions) -> Self {
        Self {
            policy: policy.to_string(),
            policy_options,
            frames: 0,
            pool_policy: "lru".to_string(),
            buffer_pages: 256,
            blocks: 0,
            reserve: 0,
            reserve_as_flash: false,
            keeps: 0,
            write_back: false,
            buffers: false,
            watermarks: Watermarks::default(),
            recovery_age: u64::MAX,
        }
    }

    /// Slots of the policy, kept ones and those of the reserve.
    fn areas(&self) -> (u32, u32, u32) {
        (self.policy_options.capacity, self.keeps, self.reserve)
    }

    /// Blocks there are, the default filled in.
    fn all_blocks(&self) -> u32 {
        let slots = self.policy_options.capacity.saturating_add(self.keeps);
        let slots = slots.saturating_add(self.reserve);
        match self.blocks {
            0 => slots.saturating_add(self.buffer_pages.max(1)),
            blocks => blocks,
        }
    }
}

/// See the module text.
pub struct Hierarchy {
    slots: SlotTable,
    policy: Box<dyn TierPolicy>,
    /// The name it was asked for by.
    asked: String,
    policy_options: PolicyOptions,
    pool: Pool,
    inflight: InFlight,
    ledger: Ledger,
    /// Staged slots.
    queue: VecDeque<staging::Queued>,
    /// Stagings so far.
    stagings: u64,
    /// Slots whose staged bytes are being written.
    writing: Vec<SlotId>,
    buffer_pages: u32,
    /// Objects whose pages have slots of their own; see `keep.rs`.
    pinned: BTreeSet<ObjectId>,
    /// How often the slots were made anew.
    shape: u32,
    back: bool,
    /// [`HierarchyOptions::buffers`].
    reserve_as_flash: bool,
    buffers: bool,
    calm: Calm,
    watermarks: Watermarks,
    recovery_age: u64,
    destaging: Destaging,
    /// Pages being destaged.
    held: BTreeSet<PageId>,
    /// Dirty pages whose bytes could not be read.
    lost: BTreeSet<PageId>,
    /// Clean slots whose copy is bad, and that others still read: they leave with the last of them.
    failing: BTreeSet<SlotId>,
    /// Pages of dirty frames that base refused since the last [`Hierarchy::on_time`].
    refused: Vec<PageId>,
    /// Objects of which base's answers may not be durable: see [`Hierarchy::doubt`].
    doubted: BTreeSet<ObjectId>,
    health: Health,
    /// While the map is being read.
    unread: Option<load::Unread>,
    requests: u64,
    counters: Counters,
}

/// There is no tier policy, or no pool policy, of that name, or not for a tier of that size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownPolicy {
    /// The name.
    pub name: String,
    /// The names there are.
    pub known: &'static [&'static str],
}

impl UnknownPolicy {
    /// No tier policy is called `name`.
    #[must_use]
    pub fn of_tier(name: &str) -> Self {
        Self {
            name: name.to_string(),
            known: policy::NAMES,
        }
    }

    /// No pool policy is called `name`.
    #[must_use]
    pub fn of_pool(name: &str) -> Self {
        Self {
            name: name.to_string(),
            known: pool::NAMES,
        }
    }
}

impl std::fmt::Display for UnknownPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let name = &self.name;
        let known = self.known.join(", ");
        match self.known.contains(&name.as_str()) {
            true => write!(
                f,
                "the tier has too many slots for '{name}'; there are {known}"
            ),
            false => write!(f, "no policy is called '{name}'; there are {known}"),
        }
    }
}

impl std::error::Error for UnknownPolicy {}

impl Hierarchy {
    /// An empty hierarchy. Errors when there is no such policy.
    pub fn new(options: &HierarchyOptions) -> Result<Self, UnknownPolicy> {
        let policy = policy::build(&options.policy, &options.policy_options)
            .ok_or_else(|| UnknownPolicy::of_tier(&options.policy))?;
        let mut hierarchy = Self::with_policy(policy, options)?;
        hierarchy.asked.clone_from(&options.policy);
        Ok(hierarchy)
    }

    /// An empty hierarchy under a policy of the caller's own; `options.policy` is not looked at.
    /// Errors when there is no such pool policy.
    pub fn with_policy(
        policy: Box<dyn TierPolicy>,
        options: &HierarchyOptions,
    ) -> Result<Self, UnknownPolicy> {
        let costs = &options.policy_options.costs;
        let frames = pool::build(&options.pool_policy, options.frames, costs)
            .ok_or_else(|| UnknownPolicy::of_pool(&options.pool_policy))?;
        let capacity = options.policy_options.capacity;
        assert!(capacity > 0 || options.keeps == 0, "a tier keeps pages");
        let blocks = match capacity {
            0 => 0,
            _ => options.all_blocks(),
        };
        Ok(Self {
            slots: SlotTable::with_areas(
                options.policy_options.capacity,
                options.keeps,
                options.reserve,
            ),
            asked: policy.name().to_string(),
            policy,
            policy_options: options.policy_options.clone(),
            pool: Pool::with_policy(frames, options.frames),
            inflight: InFlight::default(),
            ledger: Ledger::new(blocks),
            reserve_as_flash: options.reserve_as_flash,
            back: options.write_back,
            buffers: options.buffers,
            calm: Calm::Open,
            watermarks: options.watermarks,
            recovery_age: options.recovery_age,
            destaging: Destaging::default(),
            held: BTreeSet::new(),
            lost: BTreeSet::new(),
            failing: BTreeSet::new(),
            refused: Vec::new(),
            doubted: BTreeSet::new(),
            queue: VecDeque::new(),
            stagings: 0,
            writing: Vec::new(),
            buffer_pages: options.buffer_pages.max(1),
            pinned: BTreeSet::new(),
            shape: 0,
            health: Health::default(),
            unread: None,
            requests: 0,
            counters: Counters::default(),
        })
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

    /// Blocks and durable map.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// The same, for base writes and their syncs (see [`Ledger::intend`]).
    pub fn ledger_mut(&mut self) -> &mut Ledger {
        &mut self.ledger
    }

    /// The policy in force.
    #[must_use]
    pub fn policy(&self) -> &dyn TierPolicy {
        self.policy.as_ref()
    }

    /// Tells the policy what time it is ([`TierPolicy::on_time`]). Base may take by now what it
    /// refused.
    pub fn on_time(&mut self, now_ms: u64) {
        self.refused.clear();
        self.policy.on_time(now_ms);
    }

    /// Whether the tier is off.
    #[must_use]
    pub fn is_off(&self) -> bool {
        self.health.is_off()
    }

    /// Pages on flash in slots of the policy or kept ones.
    #[must_use]
    pub fn on_flash(&self) -> u32 {
        self.slots.resident() + self.slots.kept()
    }

    /// Pages of `object` on flash, those in doubt included. O(those in doubt).
    #[must_use]
    pub fn resident_of(&self, object: ObjectId) -> u32 {
        let doubts = self.ledger.doubts_in(object, 0, u64::MAX).len() as u32;
        self.slots.resident_of(object) + doubts
    }

    /// Pages `first..=last` of `object` of which there is anything: on flash, in doubt, in the
    /// pool, or a request under way; in order. O(pages of the object that there are, and requests).
    #[must_use]
    pub fn known_in(&self, object: ObjectId, first: u64, last: u64) -> Vec<PageId> {
        let slots = self.slots.in_range(object, first, last).into_iter();
        let frames = self.pool.in_range(object, first, last).into_iter();
        let mut pages: Vec<PageId> = slots.filter_map(|slot| self.slots.page(slot)).collect();
        pages.extend(frames.filter_map(|frame| self.pool.page(frame)));
        pages.extend(self.ledger.doubts_in(object, first, last));
        pages.extend(self.inflight.in_range(object, first, last));
        pages.sort_unstable();
        pages.dedup();
        pages
    }

    /// Bytes of memory held by decisions (map, policy), not by pages.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.slots.bytes() + self.policy.bytes() + self.ledger.bytes() + self.pool.bytes()
    }

    /// A read of `page` arrives. Except for [`ReadStart::Busy`] it must be followed by
    /// [`Hierarchy::finish_read`].
    pub fn start_read(&mut self, page: PageId) -> ReadStart {
        if let Some(frame) = self.pool.find(page) {
            return ReadStart::Frame(frame);
        }
        // A trimmed page's slot may still be there, pinned by a read from before the trim.
        let slot = self.usable_slot(page);
        let slot = slot.filter(|_| !self.inflight.is_doomed(page));
        if slot.is_some() && self.calm == Calm::Still {
            return ReadStart::Busy;
        }
        if !self.inflight.start_read(page) {
            return ReadStart::Busy;
        }
        assert!(
            !self.inflight.is_written(page),
            "invariant 1: nobody reads {page:?} while it is being written"
        );
        match slot {
            Some(slot) if self.slots.state(slot) == SlotState::Staged => ReadStart::Buffer(slot),
            Some(slot) => {
                self.slots.pin(slot);
                ReadStart::Slot(slot)
            }
            None => ReadStart::Base,
        }
    }

    /// The slot to read `page` from. While the tier is off, or its copy is bad: only a dirty one.
    fn usable_slot(&self, page: PageId) -> Option<SlotId> {
        let slot = self.slots.find(page)?;
        let shunned = self.health.is_off() || self.failing.contains(&slot);
        (!shunned || self.slots.is_dirty(slot)).then_some(slot)
    }

    /// Whether a read of `page` would go to base now.
    #[must_use]
    pub fn is_absent(&self, page: PageId) -> bool {
        let on_flash = self.usable_slot(page).is_some();
        !on_flash && self.pool.find(page).is_none() && !self.inflight.is_busy(page)
    }

    /// Whether a read of `page` would be answered by [`ReadStart::Slot`] now.
    #[must_use]
    pub fn is_on_flash(&self, page: PageId) -> bool {
        let slot = self.usable_slot(page);
        let slot = slot.filter(|slot| self.slots.state(*slot) != SlotState::Staged);
        let free = self.calm != Calm::Still && !self.inflight.has_writer(page);
        slot.is_some() && free && !self.inflight.is_doomed(page) && self.pool.find(page).is_none()
    }

    /// Block and checksum of the bytes in the valid `slot`.
    #[must_use]
    pub fn bytes_of(&self, slot: SlotId) -> Option<(BlockId, u64)> {
        let block = self.slots.block(slot)?;
        Some((block, self.ledger.checksum(block)))
    }

    /// The flash read of `page` from `slot` did not give its bytes. True: the copy is given up and
    /// the caller goes on as if [`ReadStart::Base`] had been the answer. False: base is older, the
    /// read fails and has ended.
    pub fn slot_failed(&mut self, slot: SlotId, fault: Fault, out: &mut Vec<Action>) -> bool {
        self.slots.unpin(slot);
        let page = self.slots.page(slot);
        // Nobody is owed what was trimmed meanwhile.
        let doomed = page.is_some_and(|page| self.inflight.is_doomed(page));
        let owed = self.slots.is_dirty(slot) && !doomed;
        // Those who read it meanwhile say nothing new of the device: it is one bad page.
        let known = self.failing.contains(&slot) && fault != Fault::TimedOut;
        match page {
            Some(page) if owed => {
                self.lost.insert(page);
                self.abandon_read(page, out);
            }
            Some(_) => {
                self.failing.insert(slot);
                self.leave_if_pending(slot, doomed, out);
            }
            None => {}
        }
        if !known {
            self.count_fault(Way::Read, fault, out);
        }
        !owed
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
        if let ReadStart::Slot(_) = how {
            self.health.success(Way::Read);
            // Its bytes are there after all, and base can have them.
            if self.lost.remove(&page) {
                out.push(Action::WakeDestager);
            }
        }
        self.end_read(page, hints, how, out);
    }

    fn end_read(&mut self, page: PageId, hints: &HintSet, how: ReadStart, out: &mut Vec<Action>) {
        let access = self.next_access(page, Op::Read, hints);
        let ended = self.inflight.end(page);
        if let ReadStart::Slot(slot) | ReadStart::Buffer(slot) = how {
            self.was_hot(slot, page);
        }
        if let ReadStart::Slot(slot) = how {
            self.counters.kept_reads += u64::from(self.slots.area(slot) == Area::Kept);
            self.slots.unpin(slot);
            self.leave_if_pending(slot, ended.doomed, out);
        }
        self.count_read(how);
        let resident = self.slots.find(page);
        self.tell_policy(&access, resident);
        if ended.doomed {
            self.refuse(Refusal::Overtaken);
        } else {
            match resident {
                Some(slot) if self.slots.is_reserve(slot) => self.promote(&access, slot, out),
                Some(_) => {}
                None => self.consider(&access, Opportunity::Read, None, FlashMove::Entered, out),
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
        self.touch_range(object, first, last);
        self.inflight.doom(object, first, last);
        self.give_up_doubts(object, first, last);
        for slot in self.slots.in_range(object, first, last) {
            let pinned = self.slots.pins(slot) > 0;
            match (self.slots.page(slot), self.slots.block(slot)) {
                // A slot with readers leaves with the last of them.
                (Some(page), Some(block)) if pinned => {
                    let dirty = self.slots.is_dirty(slot);
                    self.ledger.leaving(block, page, dirty);
                }
                _ => self.remove(slot, Removal::Trimmed, out),
            }
        }
        for frame in self.pool.in_range(object, first, last) {
            self.evict_frame(frame, out);
        }
        if last == u64::MAX {
            self.policy.on_trim(object, first);
        }
    }

    /// Stops using flash: every clean copy is forgotten; dirty pages stay until they are destaged.
    pub fn switch_off(&mut self, out: &mut Vec<Action>) {
        self.health.switch_off();
        self.give_up_all_doubts();
        let residents: Vec<SlotId> = self.slots.occupied().map(|(slot, _)| slot).collect();
        for slot in residents {
            if self.slots.pins(slot) == 0 && !self.slots.is_dirty(slot) {
                self.remove(slot, Removal::Off, out);
            }
        }
        out.push(Action::WakeDestager);
        out.push(Action::WakeCleaner);
        out.push(Action::Room);
    }

    /// The device cannot be written at all: the tier goes off at once.
    pub fn fail(&mut self, fault: Fault, out: &mut Vec<Action>) {
        self.counters.faults[fault as usize] += 1;
        if !self.health.is_off() {
            self.switch_off(out);
        }
    }

    /// Whether no page is on flash or under way to it.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.staged() == 0 && self.slots.occupied().next().is_none()
    }

    /// Panics unless the numbered invariants hold. O(slots + frames).
    pub fn assert_invariants(&self) {
        self.slots.assert_invariants();
        self.pool.assert_invariants();
        self.inflight.assert_invariants();
        self.policy.assert_invariants(&self.slots);
        self.ledger.assert_invariants();
        self.assert_queue();
        let mut named = 0;
        for (slot, page) in self.slots.occupied() {
            let pinned = self.slots.pins(slot) > 0;
            assert!(!pinned || self.inflight.is_busy(page), "invariant 4");
            let kept = pinned || self.slots.is_dirty(slot);
            assert!(kept || !self.health.is_off(), "invariant 3");
            if let Some(block) = self.slots.block(slot) {
                assert!(self.ledger.is_named(block), "invariant 6: {page:?}");
                named += 1;
            }
        }
        assert_eq!(named, self.ledger.named(), "invariant 6");
        self.assert_doubts();
        self.assert_kept();
        self.assert_load();
        for page in &self.lost {
            let slot = self.slots.find(*page);
            assert!(
                slot.is_some_and(|slot| self.slots.is_dirty(slot)),
                "only dirty pages are lost"
            );
        }
    }

    fn assert_queue(&self) {
        let mut queued: Vec<u32> = self.queue.iter().map(|queued| queued.slot.0).collect();
        queued.sort_unstable();
        let staged = self.slots.occupied().filter(|(slot, _)| {
            self.slots.state(*slot) == SlotState::Staged && !self.slots.is_writing(*slot)
        });
        let staged: Vec<u32> = staged.map(|(slot, _)| slot.0).collect();
        assert_eq!(queued, staged, "invariant 2");
    }

    fn next_access(&mut self, page: PageId, op: Op, hints: &HintSet) -> Access {
        self.requests += 1;
        self.access_at(page, op, hints, self.requests)
    }

    fn access_at(&self, page: PageId, op: Op, hints: &HintSet, number: u64) -> Access {
        let hints = *hints;
        Access {
            page,
            op,
            hints,
            number,
        }
    }

    fn count_read(&mut self, how: ReadStart) {
        if let Some(source) = how.source() {
            self.counters.reads[source as usize] += 1;
        }
    }

    /// The ends of pages that are told until [`Hierarchy::end_call`] are those of one call of the
    /// device.
    pub fn begin_call(&mut self, way: Way) {
        self.health.begin_call(way);
    }

    /// All pages of that call were told: it counts once for the device's health.
    pub fn end_call(&mut self, way: Way, out: &mut Vec<Action>) {
        if self.health.end_call(way) {
            self.switch_off(out);
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

    /// A slot that was pinned when its page was trimmed, its copy bad or its tier off leaves now.
    fn leave_if_pending(&mut self, slot: SlotId, doomed: bool, out: &mut Vec<Action>) {
        if self.slots.pins(slot) > 0 || self.slots.page(slot).is_none() {
            return;
        }
        if doomed {
            self.remove(slot, Removal::Trimmed, out);
        } else if self.failing.contains(&slot) && !self.slots.is_dirty(slot) {
            self.remove(slot, Removal::Failed, out);
        } else if self.health.is_off() && !self.slots.is_dirty(slot) {
            self.remove(slot, Removal::Off, out);
        } else if let Some(page) = self.slots.page(slot)
            && self.is_kept_in_vain(slot, page)
            && !self.slots.is_dirty(slot)
        {
            self.remove(slot, Removal::Evicted, out);
        }
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
