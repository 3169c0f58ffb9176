//! The hierarchy against a model: contents are version numbers, every place a page can be holds
//! one, and whatever is served must be the newest. Requests overlap; flash fails; pages are
//! trimmed and the tier is switched off and on at any moment.

use proptest::prelude::*;
use std::collections::BTreeMap;
use thermocline_core::hierarchy::Action;
use thermocline_core::policy::{
    self, Access, Decision, Opportunity, PolicyOptions, Refusal, Removal, TierPolicy,
};
use thermocline_core::tier::SlotTable;
use thermocline_core::{
    Fault, FrameId, Hierarchy, HierarchyOptions, HintSet, ObjectId, PageId, ReadStart, SlotId,
    WriteJob,
};

const PAGES: u64 = 24;

#[derive(Debug, Clone)]
enum Step {
    StartRead(u64),
    /// Finishes one of the reads in flight; the flag makes a flash read fail.
    EndRead(usize, bool),
    StartWrite(u64),
    EndWrite(usize, bool, bool),
    StartFlush,
    EndFlush(usize, bool),
    Trim(u64),
    Off,
    On,
    Policy(usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (0..PAGES).prop_map(Step::StartRead),
        8 => (any::<usize>(), prop::bool::weighted(0.1)).prop_map(|(i, f)| Step::EndRead(i, f)),
        4 => (0..PAGES).prop_map(Step::StartWrite),
        5 => (any::<usize>(), prop::bool::weighted(0.8), prop::bool::weighted(0.9))
            .prop_map(|(i, w, ok)| Step::EndWrite(i, w, ok)),
        6 => Just(Step::StartFlush),
        6 => (any::<usize>(), prop::bool::weighted(0.1)).prop_map(|(i, f)| Step::EndFlush(i, f)),
        1 => (0..PAGES).prop_map(Step::Trim),
        1 => Just(Step::Off),
        1 => Just(Step::On),
        1 => (0..policy::NAMES.len()).prop_map(Step::Policy),
    ]
}

struct World {
    hierarchy: Hierarchy,
    base: BTreeMap<PageId, u64>,
    flash: BTreeMap<SlotId, (PageId, u64)>,
    staged: BTreeMap<SlotId, u64>,
    frames: BTreeMap<FrameId, (PageId, u64)>,
    reads: Vec<(PageId, ReadStart, Option<u64>)>,
    writes: Vec<PageId>,
    flushes: Vec<(WriteJob, u64)>,
    clock: u64,
}

fn page(index: u64) -> PageId {
    PageId::new(ObjectId((index % 2) as u32), index / 2)
}

impl World {
    fn new(policy: &str, slots: u32, frames: u32, buffer_pages: u32) -> Self {
        let hierarchy = Hierarchy::new(&HierarchyOptions {
            policy: policy.into(),
            policy_options: PolicyOptions::new(slots),
            frames,
            buffer_pages,
        });
        Self {
            hierarchy: hierarchy.expect("a known policy"),
            base: BTreeMap::new(),
            flash: BTreeMap::new(),
            staged: BTreeMap::new(),
            frames: BTreeMap::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            flushes: Vec::new(),
            clock: 0,
        }
    }

    fn base_version(&self, page: PageId) -> u64 {
        self.base.get(&page).copied().unwrap_or(0)
    }

    fn carry_out(&mut self, actions: Vec<Action>, version: Option<u64>) {
        let bytes = || version.expect("actions that need bytes come with a request");
        for action in actions {
            match action {
                Action::Stage { slot, .. } => {
                    self.staged.insert(slot, bytes());
                }
                Action::StageFrame { frame, slot, page } => {
                    let (held, version) = self.frames[&frame];
                    assert_eq!(held, page);
                    self.staged.insert(slot, version);
                }
                Action::Unstage { slot } => {
                    assert!(self.staged.remove(&slot).is_some(), "unstaged once");
                }
                Action::FillFrame { frame, page } => {
                    self.frames.insert(frame, (page, bytes()));
                }
                Action::EvictFrame { frame, page } => {
                    assert_eq!(self.frames.remove(&frame).map(|f| f.0), Some(page));
                }
                Action::Wake { .. } | Action::WakeWriter => {}
            }
        }
    }

    /// Serves a read: what it returns must be base's version now, unless the page is being
    /// trimmed under it.
    fn start_read(&mut self, page: PageId) {
        let start = self.hierarchy.start_read(page);
        let newest = self.base_version(page);
        let mut out = Vec::new();
        match start {
            ReadStart::Frame(frame) => {
                // A pool hit during a write may still give the old bytes.
                let busy = self.writes.contains(&page);
                assert!(busy || self.frames[&frame] == (page, newest), "stale frame");
                self.hierarchy
                    .finish_read(page, &HintSet::UNKNOWN, start, &mut out);
                self.carry_out(out, None);
            }
            ReadStart::Buffer(slot) => {
                let version = self.staged[&slot];
                assert_eq!(version, newest, "stale write buffer");
                self.hierarchy
                    .finish_read(page, &HintSet::UNKNOWN, start, &mut out);
                self.carry_out(out, Some(version));
            }
            ReadStart::Slot(slot) => {
                assert_eq!(self.flash.get(&slot), Some(&(page, newest)), "stale slot");
                self.reads.push((page, start, Some(newest)));
            }
            ReadStart::Base => self.reads.push((page, start, Some(newest))),
            ReadStart::Busy => {}
        }
    }

    fn end_read(&mut self, at: usize, fail: bool) {
        if self.reads.is_empty() {
            return;
        }
        let (page, start, version) = self.reads.swap_remove(at % self.reads.len());
        let mut out = Vec::new();
        let how = match start {
            ReadStart::Slot(slot) if fail => {
                self.hierarchy.slot_failed(slot, Fault::Corrupt, &mut out);
                ReadStart::Base
            }
            how => how,
        };
        self.hierarchy
            .finish_read(page, &HintSet::UNKNOWN, how, &mut out);
        self.carry_out(out, version);
    }

    fn end_write(&mut self, at: usize, whole: bool, ok: bool) {
        if self.writes.is_empty() {
            return;
        }
        let page = self.writes.swap_remove(at % self.writes.len());
        // A failed write may have changed base too.
        self.clock += 1;
        self.base.insert(page, self.clock);
        let mut out = Vec::new();
        self.hierarchy
            .finish_write(page, &HintSet::UNKNOWN, whole, ok, &mut out);
        self.carry_out(out, Some(self.clock));
    }

    fn start_flush(&mut self) {
        if let Some(job) = self.hierarchy.next_write() {
            let version = self.staged[&job.slot];
            self.flushes.push((job, version));
        }
    }

    fn end_flush(&mut self, at: usize, fail: bool) {
        if self.flushes.is_empty() {
            return;
        }
        let (job, version) = self.flushes.swap_remove(at % self.flushes.len());
        let result = if fail { Err(Fault::WriteError) } else { Ok(()) };
        // A failed write may have reached the slot all the same.
        self.flash.insert(job.slot, (job.page, version));
        let mut out = Vec::new();
        self.hierarchy.end_write(job, result, &mut out);
        self.carry_out(out, None);
    }

    fn trim(&mut self, index: u64) {
        let first = page(index);
        // Contents change first, then the tier is told; writers are excluded by the file system.
        if self.writes.iter().any(|w| w.object == first.object) {
            return;
        }
        let cut: Vec<PageId> = self
            .base
            .keys()
            .copied()
            .filter(|p| p.object == first.object && p.index >= first.index)
            .collect();
        for page in cut {
            self.clock += 1;
            self.base.insert(page, self.clock);
        }
        let mut out = Vec::new();
        self.hierarchy
            .trim(first.object, first.index, u64::MAX, &mut out);
        self.carry_out(out, None);
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::StartRead(i) => self.start_read(page(i)),
            Step::EndRead(at, fail) => self.end_read(at, fail),
            Step::StartWrite(i) => {
                if self.hierarchy.start_write(page(i)) {
                    self.writes.push(page(i));
                }
            }
            Step::EndWrite(at, whole, ok) => self.end_write(at, whole, ok),
            Step::StartFlush => self.start_flush(),
            Step::EndFlush(at, fail) => self.end_flush(at, fail),
            Step::Trim(i) => self.trim(i),
            Step::Off => {
                let mut out = Vec::new();
                self.hierarchy.switch_off(&mut out);
                self.carry_out(out, None);
            }
            Step::On => self.hierarchy.switch_on(),
            Step::Policy(at) => self.hierarchy.set_policy(policy::NAMES[at]).expect("known"),
        }
        self.hierarchy.assert_invariants();
        assert!(
            self.staged.len() as u32 <= 4 + self.flushes.len() as u32,
            "the buffer is bounded"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn what_is_served_is_the_newest(
        policy in 0..policy::NAMES.len(),
        slots in prop::sample::select(vec![0u32, 1, 3, 8]),
        frames in prop::sample::select(vec![0u32, 1, 4]),
        steps in prop::collection::vec(step(), 1..250),
    ) {
        let mut world = World::new(policy::NAMES[policy], slots, frames, 4);
        for step in steps {
            world.run(step);
        }
    }
}

/// A trimmed page that was being read from base must not come back through admission.
#[test]
fn a_read_overtaken_by_a_trim_is_not_kept() {
    let mut world = World::new("lru", 4, 2, 4);
    world.run(Step::StartRead(0));
    world.trim(0);
    world.run(Step::EndRead(0, false));
    assert_eq!(world.hierarchy.slots().resident(), 0);
    assert_eq!(world.hierarchy.pool().filled(), 0);
}

/// A slot that a read pins when its page is trimmed stays until that read ends, and is not served
/// to anyone else meanwhile.
#[test]
fn a_trimmed_slot_is_not_served_while_an_older_read_pins_it() {
    let mut world = World::new("tac", 3, 0, 4);
    for step in [
        Step::StartWrite(22),
        Step::EndWrite(0, false, true),
        Step::StartRead(22),
        Step::EndRead(0, false),
        Step::StartFlush,
        Step::EndFlush(0, false),
        Step::StartRead(22),
    ] {
        world.run(step);
    }
    assert!(
        matches!(world.reads[0].1, ReadStart::Slot(_)),
        "the older read pins the slot"
    );
    world.run(Step::Trim(14));
    world.run(Step::StartRead(22));
    assert_eq!(world.reads[1].1, ReadStart::Base);
    world.run(Step::EndRead(0, false));
    world.run(Step::EndRead(0, false));
    assert_eq!(
        world.hierarchy.slots().resident(),
        0,
        "it left with its last reader"
    );
}

/// Admits what leaves the DRAM pool and nothing else (thesis figure 6.2), into free slots only.
struct Exclusive;

impl TierPolicy for Exclusive {
    fn name(&self) -> &'static str {
        "exclusive"
    }
    fn on_request(&mut self, _: &Access, _: Option<SlotId>) {}
    fn decide(&mut self, _: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        match why {
            Opportunity::PoolEviction if slots.has_room() => Decision::Admit,
            _ => Decision::Refuse(Refusal::Opportunity),
        }
    }
    fn on_admit(&mut self, _: &Access, _: SlotId) {}
    fn on_remove(&mut self, _: PageId, _: SlotId, _: Removal) {}
    fn bytes(&self) -> usize {
        0
    }
    fn assert_invariants(&self, _: &SlotTable) {}
}

/// A policy can admit on eviction from the pool: the frame's bytes are staged before it is reused.
#[test]
fn pages_can_enter_when_they_leave_the_pool() {
    let mut world = World::new("lru", 8, 2, 4);
    let options = HierarchyOptions {
        policy: String::new(),
        policy_options: PolicyOptions::new(8),
        frames: 2,
        buffer_pages: 4,
    };
    world.hierarchy = Hierarchy::with_policy(Box::new(Exclusive), &options);
    for index in 0..5 {
        world.run(Step::StartRead(index));
        world.run(Step::EndRead(0, false));
        world.run(Step::StartFlush);
        world.run(Step::EndFlush(0, false));
    }
    assert_eq!(
        world.hierarchy.slots().resident(),
        3,
        "three of five pages left two frames"
    );
    world.run(Step::StartRead(0));
    assert_eq!(world.reads.len(), 1);
    assert!(
        matches!(world.reads[0].1, ReadStart::Slot(_)),
        "page 0 is on flash now"
    );
}
