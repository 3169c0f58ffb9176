//! The hierarchy against a model: contents are version numbers, every place a page can be holds
//! one, and whatever is served must be the newest. Requests overlap; flash fails; pages are
//! trimmed, the tier is switched off and on, made larger and smaller and moved to another device,
//! and write-back on and off, at any moment.
//!
//! The model also loses power: base and flash then keep what was synced and a seeded part of the
//! rest, a new hierarchy is made from the durable map, and every page must read as a version that
//! was written, not older than the last that a sync promised.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use thermocline_core::hash::mix;
use thermocline_core::hierarchy::{Absorbed, Action, Calm, CleanJob, Cleaned, DestageJob};
use thermocline_core::ledger::UNDER_WAY_MAX;
use thermocline_core::policy::{
    self, Access, Aside, Decision, Opportunity, PolicyOptions, Refusal, Removal, TierPolicy,
};
use thermocline_core::pool;
use thermocline_core::tier::SlotTable;
use thermocline_core::{
    BlockId, Doubtful, Fault, FrameId, Hierarchy, HierarchyOptions, HintSet, Intent, MapChange,
    MapEntry, ObjectId, PageId, ReadStart, SlotId, Warming, WriteJob, hint_type,
};

const PAGES: u64 = 24;

#[derive(Debug, Clone)]
enum Step {
    StartRead(u64),
    /// Finishes one of the reads in flight; the flag makes a flash read fail.
    EndRead(usize, bool),
    StartWrite(u64),
    /// Finishes one of the writes in flight: a whole page, and well.
    EndWrite(usize, bool, bool),
    StartFlush,
    EndFlush(usize, bool),
    Clean,
    EndClean(bool),
    /// Of all dirty pages, or as the watermarks ask.
    Destage(bool),
    EndDestage(bool),
    StartCommit,
    /// A batch that names the pages being written; those whose bit is set fail.
    StartCommitAhead(u8),
    /// The batch that is being written is on the device, if all its pages are: it waits for its
    /// sync, and the next one may be begun.
    WriteCommit,
    /// The oldest batch is durable.
    EndCommit,
    /// The device fails under the batch under way; whose bytes arrived all the same depends.
    FailCommit(u64),
    Sync(u32),
    Trim(u64),
    /// Pages of an object from here on become zeros under one intent for all of it.
    Punch(u64),
    /// Compares the next copy in doubt from here on with base.
    StartVerify(u64),
    EndVerify(bool),
    /// Warms a page, and ends one of the warmings: base is read well, or not.
    StartWarm(u64),
    EndWarm(usize, bool),
    Off,
    On,
    Back(bool),
    Policy(usize),
    Calm(usize),
    /// An object is pinned, or not any more.
    Pin(u32, bool),
    /// A sync of base failed for an object, or another file is behind it.
    Doubt(u32, bool),
    /// Another number of slots; the flag: whatever is in the way is ended first.
    Resize(u32, bool),
    /// Another device.
    Replace(u32, bool),
    Crash(u64),
}

const CALM: [Calm; 4] = [Calm::Open, Calm::Through, Calm::Closed, Calm::Still];

fn step() -> impl Strategy<Value = Step> {
    let flag = prop::bool::weighted;
    prop_oneof![
        8 => (0..PAGES).prop_map(Step::StartRead),
        8 => (any::<usize>(), flag(0.05)).prop_map(|(i, f)| Step::EndRead(i, f)),
        8 => (0..PAGES).prop_map(Step::StartWrite),
        9 => (any::<usize>(), flag(0.8), flag(0.9)).prop_map(|(i, w, ok)| Step::EndWrite(i, w, ok)),
        6 => Just(Step::StartFlush),
        6 => (any::<usize>(), flag(0.05)).prop_map(|(i, f)| Step::EndFlush(i, f)),
        3 => Just(Step::Clean),
        3 => flag(0.9).prop_map(Step::EndClean),
        3 => flag(0.2).prop_map(Step::Destage),
        3 => flag(0.9).prop_map(Step::EndDestage),
        2 => Just(Step::StartCommit),
        4 => fails().prop_map(Step::StartCommitAhead),
        3 => Just(Step::WriteCommit),
        2 => Just(Step::EndCommit),
        1 => any::<u64>().prop_map(Step::FailCommit),
        2 => (0..2u32).prop_map(Step::Sync),
        1 => (0..PAGES).prop_map(Step::Trim),
        1 => (0..PAGES).prop_map(Step::Punch),
        4 => (0..PAGES).prop_map(Step::StartVerify),
        4 => flag(0.9).prop_map(Step::EndVerify),
        3 => (0..PAGES).prop_map(Step::StartWarm),
        4 => (any::<usize>(), flag(0.9)).prop_map(|(i, ok)| Step::EndWarm(i, ok)),
        1 => flag(0.2).prop_map(|off| if off { Step::Off } else { Step::On }),
        1 => flag(0.8).prop_map(Step::Back),
        1 => (0..policy::NAMES.len()).prop_map(Step::Policy),
        1 => (0..CALM.len()).prop_map(Step::Calm),
        1 => (0..2u32, flag(0.7)).prop_map(|(object, on)| Step::Pin(object, on)),
        1 => (0..2u32, flag(0.3)).prop_map(|(object, on)| Step::Doubt(object, on)),
        1 => (1..9u32, flag(0.7)).prop_map(|(n, drive)| Step::Resize(n, drive)),
        1 => (1..9u32, flag(0.7)).prop_map(|(n, drive)| Step::Replace(n, drive)),
        2 => any::<u64>().prop_map(Step::Crash),
    ]
}

/// None of the writes as a rule.
fn fails() -> impl Strategy<Value = u8> {
    prop_oneof![3 => Just(0u8), 1 => any::<u8>()]
}

/// What makes copies and crashes, so that many are held in doubt.
fn step_of_doubt() -> impl Strategy<Value = Step> {
    let flag = prop::bool::weighted;
    prop_oneof![
        6 => (0..PAGES).prop_map(Step::StartRead),
        6 => any::<usize>().prop_map(|i| Step::EndRead(i, false)),
        6 => (0..PAGES).prop_map(Step::StartWrite),
        6 => (any::<usize>(), flag(0.9)).prop_map(|(i, whole)| Step::EndWrite(i, whole, true)),
        8 => Just(Step::StartFlush),
        8 => any::<usize>().prop_map(|i| Step::EndFlush(i, false)),
        1 => flag(0.2).prop_map(Step::Destage),
        1 => flag(0.9).prop_map(Step::EndDestage),
        3 => Just(Step::StartCommit),
        6 => fails().prop_map(Step::StartCommitAhead),
        4 => Just(Step::WriteCommit),
        6 => Just(Step::EndCommit),
        4 => (0..2u32).prop_map(Step::Sync),
        1 => (0..PAGES).prop_map(Step::Trim),
        1 => (0..PAGES).prop_map(Step::Punch),
        6 => (0..PAGES).prop_map(Step::StartVerify),
        6 => flag(0.9).prop_map(Step::EndVerify),
        3 => (0..PAGES).prop_map(Step::StartWarm),
        4 => (any::<usize>(), flag(0.9)).prop_map(|(i, ok)| Step::EndWarm(i, ok)),
        1 => flag(0.5).prop_map(Step::Back),
        1 => (0..policy::NAMES.len()).prop_map(Step::Policy),
        1 => (6..24u32, flag(0.7)).prop_map(|(n, drive)| Step::Resize(n, drive)),
        1 => (0..2u32, flag(0.7)).prop_map(|(object, on)| Step::Pin(object, on)),
        1 => (0..2u32, flag(0.3)).prop_map(|(object, on)| Step::Doubt(object, on)),
        2 => any::<u64>().prop_map(Step::Crash),
    ]
}

/// What makes dirty pages and brings them to base, so that batches of destaging, readers and cuts
/// meet.
fn step_of_destaging() -> impl Strategy<Value = Step> {
    let flag = prop::bool::weighted;
    prop_oneof![
        4 => (0..PAGES).prop_map(Step::StartRead),
        2 => any::<usize>().prop_map(|i| Step::EndRead(i, false)),
        8 => (0..PAGES).prop_map(Step::StartWrite),
        9 => any::<usize>().prop_map(|i| Step::EndWrite(i, true, true)),
        8 => Just(Step::StartFlush),
        8 => any::<usize>().prop_map(|i| Step::EndFlush(i, false)),
        6 => flag(0.7).prop_map(Step::Destage),
        6 => flag(0.9).prop_map(Step::EndDestage),
        2 => Just(Step::StartCommit),
        1 => fails().prop_map(Step::StartCommitAhead),
        2 => Just(Step::WriteCommit),
        2 => Just(Step::EndCommit),
        1 => (0..2u32).prop_map(Step::Sync),
        3 => (0..PAGES).prop_map(Step::Trim),
        1 => (0..2u32, flag(0.3)).prop_map(|(object, on)| Step::Doubt(object, on)),
        2 => any::<u64>().prop_map(Step::Crash),
    ]
}

/// A device that keeps, at a power cut, what was synced or anything written since.
#[derive(Default)]
struct Disk<K, V> {
    now: BTreeMap<K, V>,
    durable: BTreeMap<K, V>,
    since: BTreeMap<K, Vec<V>>,
}

impl<K: Ord + Copy, V: Copy> Disk<K, V> {
    fn write(&mut self, at: K, value: V) {
        self.now.insert(at, value);
        self.since.entry(at).or_default().push(value);
    }

    fn sync(&mut self, which: impl Fn(&K) -> bool) {
        let done: Vec<K> = self.since.keys().copied().filter(|k| which(k)).collect();
        for key in done {
            self.since.remove(&key);
            self.durable.insert(key, self.now[&key]);
        }
    }

    /// Writes so far that are not durable: what a sync that begins now covers.
    fn written(&self) -> BTreeMap<K, usize> {
        self.since
            .iter()
            .map(|(at, all)| (*at, all.len()))
            .collect()
    }

    /// A sync ends that began when `covered` was written.
    fn sync_covered(&mut self, covered: &BTreeMap<K, usize>) {
        for (at, count) in covered {
            let Some(since) = self.since.get_mut(at) else {
                continue;
            };
            if let Some(last) = since.drain(..count.min(&since.len())).last() {
                self.durable.insert(*at, last);
            }
        }
        self.since.retain(|_, since| !since.is_empty());
    }

    fn lose_power(&mut self, seed: &mut u64) {
        for (key, versions) in std::mem::take(&mut self.since) {
            let at = draw(seed) as usize % (versions.len() + 1);
            if let Some(version) = at.checked_sub(1).map(|at| versions[at]) {
                self.durable.insert(key, version);
            }
        }
        self.now = self.durable.clone();
    }
}

fn draw(state: &mut u64) -> u64 {
    *state = state
        .wrapping_mul(6_364_136_223_846_793_005)
        .wrapping_add(1_442_695_040_888_963_407);
    *state >> 33
}

/// What the map on the device says.
#[derive(Default)]
struct Map {
    entries: BTreeMap<BlockId, MapEntry>,
    intents: BTreeSet<Intent>,
    /// A trim that was under way: first page.
    cut: Option<PageId>,
}

impl Map {
    fn apply(&mut self, batch: &[MapChange]) {
        for change in batch {
            match *change {
                MapChange::Set {
                    block,
                    entry: Some(entry),
                } => {
                    self.entries.insert(block, entry);
                }
                MapChange::Set { block, entry: None } => {
                    self.entries.remove(&block);
                }
                MapChange::Intend { intent, on: true } => {
                    self.intents.insert(intent);
                }
                MapChange::Intend { intent, on: false } => {
                    self.intents.remove(&intent);
                }
            }
        }
    }
}

struct World {
    options: HierarchyOptions,
    /// The policy is [`Audited`] at the start and after a crash.
    audited: bool,
    hierarchy: Hierarchy,
    base: Disk<PageId, u64>,
    flash: Disk<BlockId, (PageId, u64)>,
    map: Map,
    /// The batch that is being written.
    batch: Option<Vec<MapChange>>,
    /// Those that are written, oldest first: the device is being synced for the first.
    written: VecDeque<Vec<MapChange>>,
    /// What that sync covers.
    covered: BTreeMap<BlockId, usize>,
    staged: BTreeMap<SlotId, u64>,
    frames: BTreeMap<FrameId, (PageId, u64)>,
    reads: Vec<(PageId, ReadStart, Option<u64>)>,
    writes: Vec<PageId>,
    flushes: Vec<(WriteJob, u64)>,
    /// Those that the batch names: where the older version is, and whether it will fail.
    ahead: Vec<(WriteJob, u64, Option<BlockId>, bool)>,
    cleaning: Option<(CleanJob, u64)>,
    destaging: Vec<(DestageJob, u64)>,
    /// Written to base and synced; the hierarchy is told later.
    destaged: Vec<DestageJob>,
    /// Everything destaged since the slots were given numbers: they are told of once more when the
    /// numbers change, as by a thread that was slow.
    late: Vec<DestageJob>,
    /// A page that is being compared with base, and what base gave.
    verifying: Option<(PageId, u64)>,
    /// Pages being warmed, and what base gave.
    warming: Vec<(PageId, u64)>,
    /// Newest version of every page.
    newest: BTreeMap<PageId, u64>,
    /// Newest version that a write to base failed with: it may be there all the same.
    failed: BTreeMap<PageId, u64>,
    /// Newest version that a sync has promised.
    promised: BTreeMap<PageId, u64>,
    /// Failed devices: nothing is promised from then on.
    broken: bool,
    clock: u64,
    /// Requests that were given hints: see [`World::hints`].
    hinted: u64,
}

fn blocks_of(options: &HierarchyOptions) -> u32 {
    let slots = options.policy_options.capacity + options.keeps + options.reserve;
    slots + options.buffer_pages
}

fn page(index: u64) -> PageId {
    PageId::new(ObjectId((index % 2) as u32), index / 2)
}

fn options(policy: &str, slots: u32, frames: u32, buffer_pages: u32) -> HierarchyOptions {
    HierarchyOptions {
        frames,
        buffer_pages,
        ..HierarchyOptions::new(policy, PolicyOptions::new(slots))
    }
}

impl World {
    fn new(options: HierarchyOptions) -> Self {
        let hierarchy = hierarchy(&options, false);
        Self::over(options, hierarchy)
    }

    fn audited(options: HierarchyOptions) -> Self {
        let hierarchy = hierarchy(&options, true);
        Self {
            audited: true,
            ..Self::over(options, hierarchy)
        }
    }

    fn over(options: HierarchyOptions, hierarchy: Hierarchy) -> Self {
        Self {
            options,
            audited: false,
            hierarchy,
            base: Disk::default(),
            flash: Disk::default(),
            map: Map::default(),
            batch: None,
            written: VecDeque::new(),
            covered: BTreeMap::new(),
            staged: BTreeMap::new(),
            frames: BTreeMap::new(),
            reads: Vec::new(),
            writes: Vec::new(),
            flushes: Vec::new(),
            ahead: Vec::new(),
            cleaning: None,
            destaging: Vec::new(),
            destaged: Vec::new(),
            late: Vec::new(),
            verifying: None,
            warming: Vec::new(),
            newest: BTreeMap::new(),
            failed: BTreeMap::new(),
            promised: BTreeMap::new(),
            broken: false,
            clock: 0,
            hinted: 0,
        }
    }

    fn newest(&self, page: PageId) -> u64 {
        self.newest.get(&page).copied().unwrap_or(0)
    }

    fn on_base(&self, page: PageId) -> u64 {
        self.base.now.get(&page).copied().unwrap_or(0)
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
                _ => {}
            }
        }
    }

    /// Hints of a request: none in one of four, else a kind of request and of file, and a hint
    /// type of the client's own.
    fn hints(&mut self, page: PageId) -> HintSet {
        self.hinted += 1;
        let lots = mix(self.hinted, page.index) as u32;
        match lots % 4 {
            0 => HintSet::UNKNOWN,
            _ => HintSet::UNKNOWN
                .with(hint_type::FILE_KIND, (lots >> 8) % 6)
                .with(hint_type::REQUEST, (lots >> 16) % 7)
                .with(hint_type::FIRST_CUSTOM, (lots >> 24) % 3),
        }
    }

    /// Serves a read: what it returns must be the newest version, unless the page is being
    /// trimmed under it.
    fn start_read(&mut self, page: PageId) {
        let start = self.hierarchy.start_read(page);
        let newest = self.newest(page);
        let mut out = Vec::new();
        match start {
            ReadStart::Frame(frame) => {
                // A pool hit during a write may still give the old bytes.
                let busy = self.writes.contains(&page);
                assert!(busy || self.frames[&frame] == (page, newest), "stale frame");
                let hints = self.hints(page);
                self.hierarchy.finish_read(page, &hints, start, &mut out);
                self.carry_out(out, None);
            }
            ReadStart::Buffer(slot) => {
                let version = self.staged[&slot];
                assert_eq!(version, newest, "stale write buffer");
                let hints = self.hints(page);
                self.hierarchy.finish_read(page, &hints, start, &mut out);
                self.carry_out(out, Some(version));
            }
            ReadStart::Slot(slot) => {
                let (block, checksum) = self.hierarchy.bytes_of(slot).expect("valid");
                assert_eq!(
                    self.flash.now.get(&block),
                    Some(&(page, newest)),
                    "stale slot"
                );
                assert_eq!(checksum, newest, "the checksum is that of the bytes");
                self.reads.push((page, start, Some(newest)));
            }
            ReadStart::Base => {
                assert_eq!(self.on_base(page), newest, "stale base");
                self.reads.push((page, start, Some(newest)));
            }
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
                if !self.hierarchy.slot_failed(slot, Fault::Corrupt, &mut out) {
                    return self.carry_out(out, version);
                }
                ReadStart::Base
            }
            how => how,
        };
        if let (ReadStart::Base, Some(sum)) = (how, self.hierarchy.doubt_of(page)) {
            let same = version == Some(sum);
            self.hierarchy.settle_doubt(page, same);
            self.settled(page, same);
        }
        let hints = self.hints(page);
        match how {
            // Every other read from a slot gets its bytes from base, when they are the same.
            ReadStart::Slot(slot) if at.is_multiple_of(2) && self.is_on_base(slot, page) => {
                let counted = self.hierarchy.counters().bridged;
                self.hierarchy.finish_bridged(page, &hints, slot, &mut out);
                assert_eq!(self.hierarchy.counters().bridged, counted + 1);
            }
            how => self.hierarchy.finish_read(page, &hints, how, &mut out),
        }
        self.carry_out(out, version);
    }

    /// Whether base has the bytes of `slot`, which is clean.
    fn is_on_base(&self, slot: SlotId, page: PageId) -> bool {
        let sum = self.hierarchy.sum_on_base(slot);
        assert!(sum.is_none() || !self.hierarchy.slots().is_dirty(slot));
        sum == Some(self.on_base(page))
    }

    /// A copy that came back from doubt is what base holds, and in no other block than before.
    fn settled(&mut self, page: PageId, same: bool) {
        let slot = self.hierarchy.slots().find(page);
        if let (true, Some(slot)) = (same, slot) {
            let (block, checksum) = self.hierarchy.bytes_of(slot).expect("valid");
            assert_eq!(self.flash.now.get(&block), Some(&(page, checksum)));
            assert_eq!(checksum, self.on_base(page), "{page:?} is not base's");
            let named = self.map.entries.get(&block);
            assert!(self.broken || named.is_some_and(|entry| entry.page == page));
        } else {
            let kept = self.hierarchy.doubt_of(page).is_some();
            assert!(self.hierarchy.is_closed() || !kept, "{page:?} was settled");
        }
    }

    fn start_verify(&mut self, from: PageId) {
        if self.verifying.is_some() {
            return;
        }
        let next = self.hierarchy.next_doubts(from, 1).first().copied();
        if let Some(page) = next.filter(|page| self.hierarchy.start_verify(*page)) {
            assert!(page >= from);
            self.verifying = Some((page, self.on_base(page)));
        }
    }

    fn end_verify(&mut self, ok: bool) {
        let Some((page, version)) = self.verifying.take() else {
            return;
        };
        let sum = self.hierarchy.doubt_of(page);
        let same = ok.then_some(Some(version) == sum);
        let mut out = Vec::new();
        self.hierarchy.end_verify(page, same, &mut out);
        self.carry_out(out, None);
        if let (Some(same), Some(_)) = (same, sum) {
            self.settled(page, same);
        }
    }

    fn start_warm(&mut self, page: PageId) {
        let coming = self.warming.len() as u32;
        match self.hierarchy.start_warm(page, coming) {
            Warming::Started => {
                assert_eq!(self.on_base(page), self.newest(page), "stale base");
                self.warming.push((page, self.on_base(page)));
            }
            Warming::There | Warming::Busy | Warming::Later => {}
            Warming::Full => {
                let room = self.hierarchy.slots().room();
                assert!(room <= coming + self.hierarchy.doubts(), "there is room");
            }
            Warming::Off => assert!(self.hierarchy.is_off()),
        }
    }

    /// Nothing leaves for what comes, and a page that comes is what base holds.
    fn end_warm(&mut self, at: usize, ok: bool) {
        if self.warming.is_empty() {
            return;
        }
        let (page, version) = self.warming.swap_remove(at % self.warming.len());
        let before = (self.hierarchy.counters().removals, self.hierarchy.doubts());
        let resident = self.hierarchy.slots().find(page);
        let mut out = Vec::new();
        let came = self.hierarchy.end_warm(page, ok, &mut out);
        assert!(ok || !came);
        if came {
            assert_eq!(resident, None);
            assert_eq!(self.newest(page), version, "warmed with old bytes");
        }
        self.carry_out(out, Some(version));
        let after = (self.hierarchy.counters().removals, self.hierarchy.doubts());
        assert_eq!(before, after, "invariant 2 of warming");
    }

    /// As the engine punches a hole: what is dirty there was destaged before, or it is not done.
    fn punch(&mut self, first: PageId) {
        let inside = |page: &PageId| page.object == first.object && page.index >= first.index;
        let known = self.hierarchy.known_in(first.object, first.index, u64::MAX);
        assert!(known.iter().all(inside) && known.is_sorted());
        let dirty = known.iter().any(|page| self.hierarchy.is_dirty(*page));
        let busy = self.writes.iter().any(inside) || self.cleaning.is_some();
        if dirty || busy || self.broken {
            return;
        }
        self.hierarchy.ledger_mut().intend_all(first.object);
        for _ in 0..3 {
            if !self.hierarchy.ledger().may_write_base_all(first.object) {
                self.commit();
            }
        }
        assert!(self.hierarchy.ledger().may_write_base_all(first.object));
        for page in (0..PAGES).map(page).filter(inside) {
            self.clock += 1;
            self.base.write(page, self.clock);
            self.newest.insert(page, self.clock);
        }
        let mut out = Vec::new();
        self.hierarchy
            .trim(first.object, first.index, u64::MAX, &mut out);
        self.carry_out(out, None);
        self.hierarchy.ledger_mut().base_written_all(first.object);
    }

    fn end_write(&mut self, at: usize, whole: bool, ok: bool) {
        if self.writes.is_empty() {
            return;
        }
        let page = self.writes.swap_remove(at % self.writes.len());
        let hints = self.hints(page);
        let mut out = Vec::new();
        if whole || self.hierarchy.is_dirty(page) {
            self.clock += 1;
            let absorbed = (self.hierarchy).absorb(page, &hints, self.clock, &mut out);
            match absorbed {
                Absorbed::Done => {
                    self.newest.insert(page, self.clock);
                    return self.carry_out(out, Some(self.clock));
                }
                Absorbed::Wait | Absorbed::Lost => {
                    self.hierarchy.abandon_write(page, &mut out);
                    return self.carry_out(out, Some(self.clock));
                }
                Absorbed::Base => self.carry_out(std::mem::take(&mut out), Some(self.clock)),
            }
        }
        // A failed write may have changed base too.
        let clean = !self.hierarchy.is_dirty(page);
        let frame_only = self.hierarchy.slots().find(page);
        let slot_dirty = frame_only.is_some_and(|s| self.hierarchy.slots().is_dirty(s));
        assert!(!slot_dirty, "invariant 5");
        self.clock += 1;
        self.allow_base(page);
        self.base.write(page, self.clock);
        self.hierarchy.ledger_mut().base_written(page);
        match ok || clean {
            true => self.newest.insert(page, self.clock),
            false => self.failed.insert(page, self.clock),
        };
        let whole = whole || !clean;
        self.hierarchy
            .finish_write(page, &hints, whole, ok, &mut out);
        self.carry_out(out, Some(self.clock));
    }

    /// Rules R1 and R2: commits until base may be written.
    fn allow_base(&mut self, page: PageId) {
        self.hierarchy.ledger_mut().intend(page);
        for _ in 0..3 {
            if self.broken || self.hierarchy.ledger().may_write_base(page) {
                return;
            }
            self.commit();
        }
        panic!("two commits are enough for any base write");
    }

    fn start_flush(&mut self) {
        if self.hierarchy.wants_commit() {
            self.commit();
        }
        if let Some(job) = self.hierarchy.next_write() {
            let named = self.map.entries.get(&job.block);
            assert_eq!(named, None, "a block in use is not overwritten");
            let version = self.staged[&job.slot];
            self.flushes.push((job, version));
        }
    }

    fn end_flush(&mut self, at: usize, fail: bool) {
        if self.flushes.is_empty() {
            return;
        }
        let (job, version) = self.flushes.swap_remove(at % self.flushes.len());
        let result = if fail {
            Err(Fault::WriteError)
        } else {
            Ok(version)
        };
        // A failed write may have reached the block all the same.
        self.flash.write(job.block, (job.page, version));
        let mut out = Vec::new();
        self.hierarchy.end_write(job, result, &mut out);
        self.carry_out(out, None);
    }

    fn clean(&mut self) {
        if self.cleaning.is_some() {
            return;
        }
        let mut out = Vec::new();
        let cleaned = self.hierarchy.next_clean(self.clock, &mut out);
        self.cleaned(cleaned, out);
    }

    fn cleaned(&mut self, cleaned: Cleaned, out: Vec<Action>) {
        self.carry_out(out, None);
        if let Cleaned::Base(job) = cleaned {
            let (held, version) = self.frames[&job.frame];
            assert_eq!(
                (held, version),
                (job.page, self.newest(job.page)),
                "a frame is newest"
            );
            self.cleaning = Some((job, version));
        }
    }

    fn end_clean(&mut self, ok: bool) {
        let Some((job, version)) = self.cleaning.take() else {
            return;
        };
        let mut out = Vec::new();
        if self.hierarchy.clean_stands(&job) {
            self.allow_base(job.page);
            if ok {
                self.base.write(job.page, version);
            }
            self.hierarchy.ledger_mut().base_written(job.page);
        }
        self.hierarchy.finish_clean(&job, ok, &mut out);
        self.carry_out(out, None);
    }

    fn destage(&mut self, all: bool) {
        if !self.destaging.is_empty() {
            return;
        }
        self.hierarchy.set_flush(all);
        if self.hierarchy.destage_due() {
            let jobs = self.hierarchy.next_destage(5, None);
            let sorted = jobs.windows(2).filter(|w| w[0].page > w[1].page).count();
            assert!(sorted <= 1, "ascending but for one wrap");
            let version = |job: &DestageJob| match job.from {
                Some((block, checksum)) => {
                    assert_eq!(self.flash.now[&block], (job.page, checksum));
                    checksum
                }
                None => self.staged[&job.slot],
            };
            self.destaging = jobs.iter().map(|job| (*job, version(job))).collect();
        }
    }

    fn end_destage(&mut self, ok: bool) {
        let jobs = std::mem::take(&mut self.destaging);
        // The map must know what base is about to get.
        for _ in 0..2 {
            if !self.broken && !jobs.is_empty() {
                self.commit();
            }
        }
        let mut done = Vec::new();
        for (job, version) in jobs {
            let mut out = Vec::new();
            let off = self.broken || self.hierarchy.is_off();
            assert!(off || self.hierarchy.may_destage(&job), "{job:?}");
            if self.hierarchy.destage_stands(&job) {
                self.base.write(job.page, version);
                done.push(job);
            }
            self.hierarchy.destage_written(&job, &mut out);
            self.carry_out(out, None);
        }
        if ok {
            let mut out = Vec::new();
            self.base.sync(|_| true);
            // Whatever comes in between, a change of the tier's size too: another batch of jobs
            // is told of now.
            self.late.extend(&done);
            let before = std::mem::replace(&mut self.destaged, done);
            self.hierarchy.destaged(&before, &mut out);
            self.carry_out(out, None);
        }
    }

    /// Tells of the batch that was not told of yet; it is told of once more later.
    fn tell_destaged(&mut self) {
        let mut out = Vec::new();
        let done = self.destaged.clone();
        self.hierarchy.destaged(&done, &mut out);
        self.carry_out(out, None);
    }

    /// The slots have other numbers: batches from before that are not believed.
    fn tell_late(&mut self) {
        let state = |hierarchy: &Hierarchy| {
            let (slots, ledger) = (hierarchy.slots(), hierarchy.ledger());
            let destaged = hierarchy.counters().destaged;
            (
                slots.occupied().count(),
                slots.dirty(),
                ledger.changed(),
                destaged,
            )
        };
        let (before, mut out) = (state(&self.hierarchy), Vec::new());
        let late = std::mem::take(&mut self.late);
        let stands = |job: &DestageJob| self.hierarchy.destage_stands(job);
        assert!(!late.iter().any(stands), "a late batch stands");
        self.hierarchy.destaged(&late, &mut out);
        self.carry_out(out, None);
        assert_eq!(state(&self.hierarchy), before, "a late batch is believed");
    }

    /// Whatever changed before is durable then.
    fn commit(&mut self) {
        self.end_commits();
        self.start_commit();
        self.end_commits();
    }

    fn start_commit(&mut self) {
        if self.batch.is_none() {
            self.batch = self.hierarchy.begin_commit();
        }
    }

    fn start_commit_ahead(&mut self, fails: u8) {
        if self.batch.is_some() {
            return;
        }
        let (ahead, others): (Vec<_>, Vec<_>) = std::mem::take(&mut self.flushes)
            .into_iter()
            .partition(|(job, _)| self.hierarchy.is_current(job));
        self.flushes = others;
        let old = |job: &WriteJob| self.hierarchy.slots().block(job.slot);
        let of = |(at, (job, version)): (usize, &(WriteJob, u64))| {
            (*job, *version, old(job), fails >> (at % 8) & 1 == 1)
        };
        let known = ahead.iter().enumerate().map(of).collect();
        self.batch = self.hierarchy.begin_commit_ahead(&ahead);
        if self.batch.is_none() {
            assert!(
                self.broken || self.written.len() == UNDER_WAY_MAX,
                "two batches at a time, and none after one that failed"
            );
            self.flushes.extend(ahead);
            return;
        }
        self.ahead = known;
        for (job, ..) in &self.ahead {
            let owed = !self.hierarchy.ledger().may_write_base(job.page);
            assert!(owed, "the map may say that {:?} is dirty", job.page);
        }
    }

    fn end_commits(&mut self) {
        while self.batch.is_some() || !self.written.is_empty() {
            self.end_commit();
        }
    }

    fn write_commit(&mut self) {
        if self.ahead.iter().any(|(.., fail)| *fail) {
            // Its pages end with it.
            return;
        }
        let Some(batch) = self.batch.take() else {
            return;
        };
        for (job, version, ..) in std::mem::take(&mut self.ahead) {
            self.flash.write(job.block, (job.page, version));
            let mut out = Vec::new();
            self.hierarchy.end_ahead(job, Ok(()), &mut out);
            self.carry_out(out, None);
        }
        self.hierarchy.commit_written();
        self.written.push_back(batch);
        if self.written.len() == 1 {
            self.covered = self.flash.written();
        }
    }

    fn end_commit(&mut self) {
        if let Some(batch) = self.written.pop_front() {
            let mut out = Vec::new();
            self.flash.sync_covered(&self.covered);
            self.map.apply(&batch);
            self.map.cut = None;
            self.hierarchy.end_commit(&mut out);
            self.carry_out(out, None);
            self.covered = self.flash.written();
            return;
        }
        let Some(mut batch) = self.batch.take() else {
            return;
        };
        for (job, version, old, fail) in std::mem::take(&mut self.ahead) {
            // A failed write may have reached the block all the same.
            self.flash.write(job.block, (job.page, version));
            if fail {
                let named = |of: &BlockId| *of == job.block || Some(*of) == old;
                batch.retain(
                    |change| !matches!(change, MapChange::Set { block, .. } if named(block)),
                );
            }
            let result = if fail { Err(Fault::WriteError) } else { Ok(()) };
            let mut out = Vec::new();
            self.hierarchy.end_ahead(job, result, &mut out);
            self.carry_out(out, None);
        }
        let mut out = Vec::new();
        self.flash.sync(|_| true);
        self.map.apply(&batch);
        self.map.cut = None;
        self.hierarchy.end_commit(&mut out);
        self.carry_out(out, None);
    }

    fn fail_commit(&mut self, mut seed: u64) {
        let mut batches = std::mem::take(&mut self.written);
        batches.extend(self.batch.take());
        if batches.is_empty() {
            return;
        }
        self.broken = true;
        for batch in batches {
            if !draw(&mut seed).is_multiple_of(2) {
                break;
            }
            self.map.apply(&batch);
        }
        let mut out = Vec::new();
        for (job, version, ..) in std::mem::take(&mut self.ahead) {
            if draw(&mut seed).is_multiple_of(2) {
                self.flash.write(job.block, (job.page, version));
            }
            self.hierarchy.lose_ahead(job, &mut out);
        }
        self.hierarchy.fail(Fault::WriteError, &mut out);
        self.carry_out(out, None);
        assert!(self.hierarchy.is_off(), "the device cannot be written");
    }

    /// A device that failed under a batch is used again with an empty map.
    fn switch_on(&mut self) {
        let none = self.batch.is_none() && self.written.is_empty();
        let failed = none && self.hierarchy.ledger().is_committing();
        if failed && !self.hierarchy.forget_map() {
            return;
        }
        if failed {
            (self.flash, self.map) = (Disk::default(), Map::default());
        }
        let off = self.hierarchy.is_off();
        let refused = !self.hierarchy.switch_on();
        assert!(
            !refused || self.hierarchy.is_off() == off,
            "nothing is done"
        );
    }

    /// As the engine does it: dirty frames are placed, staged pages written, base synced if need
    /// be, and the map committed. Gives up where others are in the way.
    fn sync(&mut self, object: ObjectId) {
        self.end_verify(true);
        self.end_commits();
        let idle = self.reads.is_empty() && self.writes.is_empty() && self.flushes.is_empty();
        let busy = self.cleaning.is_some() || !self.destaging.is_empty();
        if !idle || busy || self.hierarchy.is_off() || !self.hierarchy.lost().is_empty() {
            return;
        }
        for index in 0..PAGES {
            for _ in 0..50 {
                let mut out = Vec::new();
                match self.hierarchy.clean_page(page(index), &mut out) {
                    Cleaned::Wait => {
                        self.carry_out(out, None);
                        self.start_flush();
                        self.end_flush(0, false);
                        self.destage(true);
                        self.end_destage(true);
                    }
                    Cleaned::Nothing => break,
                    cleaned => {
                        self.cleaned(cleaned, out);
                        self.end_clean(true);
                    }
                }
            }
        }
        let frame = |index: u64| self.hierarchy.pool().find(page(index));
        let mut frames = (0..PAGES).filter_map(frame);
        if frames.any(|frame| self.hierarchy.pool().is_dirty(frame)) {
            // A writer that was told to wait comes first.
            return;
        }
        while self.hierarchy.staged() > 0 {
            self.start_flush();
            self.end_flush(0, false);
        }
        let epoch = self.hierarchy.ledger_mut().start_base_sync();
        self.base.sync(|page| page.object == object);
        self.hierarchy.ledger_mut().base_synced(object, epoch);
        self.hierarchy.ledger_mut().expire_intents();
        self.commit();
        for (page, version) in &self.newest {
            if page.object == object {
                self.promised.insert(*page, *version);
            }
        }
    }

    fn trim(&mut self, index: u64) {
        let first = page(index);
        // Contents change first, then the tier is told; writers are excluded by the file system,
        // page cleaners by the engine's lock of the object. A batch of destaging asks under that
        // lock what still stands.
        let cleaned = self
            .cleaning
            .is_some_and(|(job, _)| job.page.object == first.object);
        if self.writes.iter().any(|w| w.object == first.object) || cleaned {
            return;
        }
        // Rule R6: what is about to happen is durable before base changes.
        self.commit();
        self.map.cut = Some(first);
        self.cut(first);
        let mut out = Vec::new();
        self.hierarchy
            .trim(first.object, first.index, u64::MAX, &mut out);
        self.carry_out(out, None);
    }

    fn cut(&mut self, first: PageId) {
        for index in 0..PAGES {
            let page = page(index);
            if page.object == first.object && page.index >= first.index {
                self.clock += 1;
                self.base.write(page, self.clock);
                self.base.durable.insert(page, self.clock);
                self.newest.insert(page, self.clock);
                self.promised.insert(page, self.clock);
                self.base.since.remove(&page);
            }
        }
    }

    fn calm(&mut self, calm: Calm) {
        let mut out = Vec::new();
        self.hierarchy.set_calm(calm, &mut out);
        self.carry_out(out, None);
    }

    /// Brings the tier to rest as the engine does, while writes that have begun go on; with
    /// `empty`, until nothing on flash is dirty.
    fn settle(&mut self, empty: bool) {
        self.end_commits();
        for calm in [Calm::Through, Calm::Closed] {
            self.calm(calm);
            for _ in 0..20 {
                self.start_flush();
                self.end_flush(0, false);
                self.end_destage(true);
                if empty {
                    self.destage(true);
                }
            }
        }
        self.end_destage(true);
        self.tell_destaged();
        self.calm(Calm::Still);
        while !self.reads.is_empty() {
            self.end_read(0, false);
        }
    }

    fn sized(&self, slots: u32) -> HierarchyOptions {
        let mut options = self.options.clone();
        options.policy_options.capacity = slots;
        if self.options.keeps > 0 {
            options.keeps = 1 + slots % 4;
        }
        options
    }

    fn pin(&mut self, object: ObjectId, pinned: bool) {
        let mut out = Vec::new();
        self.hierarchy.set_pinned(object, pinned, &mut out);
        self.carry_out(out, None);
    }

    fn resize(&mut self, slots: u32, drive: bool) {
        let before = self.hierarchy.ledger().blocks();
        let options = self.sized(slots);
        let fewer = options.keeps < self.options.keeps;
        let shorter = fewer || slots < self.options.policy_options.capacity;
        if self.options.policy_options.capacity == 0 {
            return;
        }
        if drive {
            self.settle(shorter);
        }
        let mut out = Vec::new();
        let dirty = self.hierarchy.slots().dirty();
        let done = self.hierarchy.reshape(&options, &mut out).expect("known");
        self.carry_out(out, None);
        assert!(!done || dirty == 0 || !shorter, "dirty pages stay");
        if done {
            assert_eq!(self.hierarchy.slots().capacity(), slots);
            assert_eq!(self.hierarchy.slots().dirty(), dirty, "dirty pages stay");
            assert_eq!(
                self.hierarchy.ledger().blocks(),
                before.max(blocks_of(&options))
            );
            self.tell_late();
            self.hierarchy.assert_invariants();
        }
        self.calm(Calm::Open);
        self.commit();
        if done && !self.broken {
            assert!(self.hierarchy.ledger().is_retired(), "two commits empty it");
        }
        if done && self.hierarchy.ledger().is_retired() {
            let blocks = blocks_of(&options);
            assert!(self.map.entries.keys().all(|b| b.0 < blocks) || self.broken);
            self.hierarchy.ledger_mut().resize(blocks);
            self.options = options;
        }
    }

    fn replace(&mut self, slots: u32, drive: bool) {
        if self.options.policy_options.capacity == 0 {
            return;
        }
        if drive {
            self.settle(true);
        }
        self.end_commits();
        let options = self.sized(slots);
        let mut out = Vec::new();
        let dirty = self.hierarchy.slots().dirty();
        let done = self
            .hierarchy
            .start_over(&options, &mut out)
            .expect("known");
        self.carry_out(out, None);
        assert!(!done || dirty == 0, "dirty pages stay");
        if done {
            assert_eq!(self.hierarchy.slots().capacity(), slots);
            assert_eq!(self.hierarchy.slots().resident(), 0);
            self.tell_late();
            (self.flash, self.map) = (Disk::default(), Map::default());
            self.options = options;
            // The new device works, and the map on it is all that counts.
            self.broken = false;
        }
        self.calm(Calm::Open);
    }

    /// Whether all bytes are there that some batches name, but for those of blocks that they empty
    /// again.
    fn is_sound(&self, batches: &[Vec<MapChange>]) -> bool {
        let mut said = BTreeMap::new();
        for change in batches.iter().flatten() {
            if let MapChange::Set { block, entry } = change {
                said.insert(*block, *entry);
            }
        }
        said.iter().all(|(block, entry)| match entry {
            Some(entry) => self.flash.now.get(block) == Some(&(entry.page, entry.checksum)),
            None => true,
        })
    }

    /// Power is lost: only devices and map remain.
    fn crash(&mut self, mut seed: u64) {
        if self.broken {
            return;
        }
        for (job, version, ..) in std::mem::take(&mut self.ahead) {
            if draw(&mut seed).is_multiple_of(2) {
                self.flash.write(job.block, (job.page, version));
            }
        }
        self.base.lose_power(&mut seed);
        self.flash.lose_power(&mut seed);
        let mut batches: Vec<_> = std::mem::take(&mut self.written).into();
        batches.extend(self.batch.take());
        // Of the journal any part may be there, and what counts of it ends at the first gap.
        batches.truncate(draw(&mut seed) as usize % (batches.len() + 1));
        while !self.is_sound(&batches) {
            batches.pop();
        }
        batches.iter().for_each(|batch| self.map.apply(batch));
        let cut = self.map.cut;
        if let Some(first) = cut {
            let gone = |e: &MapEntry| e.page.object == first.object && e.page.index >= first.index;
            self.map.entries.retain(|_, entry| !gone(entry));
        }
        let mut hierarchy = hierarchy(&self.options, self.audited);
        for object in [0, 1].map(ObjectId) {
            // A rule may have gone meanwhile.
            let pinned = self.hierarchy.is_pinned(object) && !draw(&mut seed).is_multiple_of(4);
            hierarchy.set_pinned(object, pinned, &mut Vec::new());
        }
        let mut next = 0;
        let doubtful: Doubtful = self.map.intents.iter().copied().collect();
        for (block, entry) in &self.map.entries {
            next = next.max(entry.version + 1);
            if !entry.dirty && doubtful.covers(entry.page) {
                if hierarchy.hold_in_doubt(*block, entry) {
                    assert_eq!(hierarchy.doubt_of(entry.page), Some(entry.checksum));
                } else {
                    assert!(hierarchy.discard(*block, entry), "{block:?} is named once");
                }
            } else {
                let kept = hierarchy.restore(*block, entry);
                assert!(kept || !entry.dirty, "room for {entry:?}");
            }
        }
        hierarchy.restored(next, self.map.intents.iter().copied());
        let (base, flash) = (
            std::mem::take(&mut self.base),
            std::mem::take(&mut self.flash),
        );
        let map = std::mem::take(&mut self.map);
        let newest = std::mem::take(&mut self.newest);
        let promised = std::mem::take(&mut self.promised);
        let failed = std::mem::take(&mut self.failed);
        let clock = self.clock;
        let (options, audited) = (self.options.clone(), self.audited);
        *self = Self {
            audited,
            base,
            flash,
            map,
            newest,
            failed,
            promised,
            clock,
            ..Self::over(options, hierarchy)
        };
        self.check_after_crash();
    }

    fn check_after_crash(&mut self) {
        for index in 0..PAGES {
            let page = page(index);
            let slot = self.hierarchy.slots().find(page);
            let version = match slot.and_then(|slot| self.hierarchy.bytes_of(slot)) {
                Some((block, checksum)) => {
                    let found = self.flash.now.get(&block);
                    assert_eq!(
                        found,
                        Some(&(page, checksum)),
                        "the map names what is there"
                    );
                    checksum
                }
                None => self.on_base(page),
            };
            let failed = self.failed.get(&page).copied().unwrap_or(0);
            let least = self.promised.get(&page).copied();
            let most = self.newest(page).max(failed);
            assert!(
                version >= least.unwrap_or(0),
                "{page:?}: {version} < {least:?} was promised"
            );
            assert!(version <= most, "{page:?}: {version} was never written");
            let clean = slot.filter(|slot| !self.hierarchy.slots().is_dirty(*slot));
            if clean.is_some() {
                assert_eq!(
                    self.on_base(page),
                    version,
                    "{page:?}: a clean copy is not base's"
                );
            }
            self.newest.insert(page, version);
        }
        self.hierarchy.assert_invariants();
    }

    fn run(&mut self, step: Step) {
        match step {
            Step::StartRead(i) => self.start_read(page(i)),
            Step::EndRead(at, fail) => self.end_read(at, fail),
            Step::StartWrite(_) if self.hierarchy.is_closed() => {}
            Step::StartWrite(i) => {
                if self.hierarchy.start_write(page(i)) {
                    self.writes.push(page(i));
                }
            }
            Step::EndWrite(at, whole, ok) => self.end_write(at, whole, ok),
            Step::StartFlush => self.start_flush(),
            Step::EndFlush(at, fail) => self.end_flush(at, fail),
            Step::Clean => self.clean(),
            Step::EndClean(ok) => self.end_clean(ok),
            Step::Destage(all) => self.destage(all),
            Step::EndDestage(ok) => self.end_destage(ok),
            Step::StartCommit => self.start_commit(),
            Step::StartCommitAhead(fails) => self.start_commit_ahead(fails),
            Step::WriteCommit => self.write_commit(),
            Step::EndCommit => self.end_commit(),
            Step::FailCommit(seed) => self.fail_commit(seed),
            Step::Sync(object) => self.sync(ObjectId(object)),
            Step::Trim(i) => self.trim(i),
            Step::Punch(i) => self.punch(page(i)),
            Step::StartVerify(i) => self.start_verify(page(i)),
            Step::EndVerify(ok) => self.end_verify(ok),
            Step::StartWarm(i) => self.start_warm(page(i)),
            Step::EndWarm(at, ok) => self.end_warm(at, ok),
            Step::Off => {
                let mut out = Vec::new();
                self.broken = true;
                self.hierarchy.switch_off(&mut out);
                self.carry_out(out, None);
            }
            Step::On => self.switch_on(),
            Step::Back(back) => self.hierarchy.set_write_back(back),
            Step::Policy(at) => self.hierarchy.set_policy(policy::NAMES[at]).expect("known"),
            Step::Calm(at) => self.calm(CALM[at]),
            Step::Pin(object, pinned) => self.pin(ObjectId(object), pinned),
            Step::Doubt(object, false) => self.hierarchy.trust(ObjectId(object)),
            Step::Doubt(object, true) => {
                let mut out = Vec::new();
                self.hierarchy.doubt(ObjectId(object), &mut out);
                self.carry_out(out, None);
            }
            Step::Resize(slots, drive) => self.resize(slots, drive),
            Step::Replace(slots, drive) => self.replace(slots, drive),
            Step::Crash(seed) => self.crash(seed),
        }
        self.hierarchy.assert_invariants();
        assert!(
            self.staged.len() as u32 <= 4 + (self.flushes.len() + self.ahead.len()) as u32,
            "the buffer is bounded"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(600))]

    #[test]
    fn what_is_served_is_the_newest(
        policy in 0..policy::NAMES.len(),
        pool in 0..pool::NAMES.len(),
        slots in prop::sample::select(vec![0u32, 1, 3, 8]),
        frames in prop::sample::select(vec![0u32, 1, 4]),
        reserve in prop::sample::select(vec![0u32, 2]),
        keeps in prop::sample::select(vec![0u32, 0, 2, 12]),
        write_back in any::<bool>(),
        recovery_age in prop::sample::select(vec![0u64, 5, 1000]),
        reserve_as_flash in any::<bool>(),
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let mut world = World::new(HierarchyOptions {
            pool_policy: pool::NAMES[pool].to_string(),
            reserve,
            reserve_as_flash,
            // Without a tier there is nothing to keep.
            keeps: if slots == 0 { 0 } else { keeps },
            write_back,
            recovery_age,
            ..options(policy::NAMES[policy], slots, frames, 4)
        });
        for step in steps {
            world.run(step);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// The same where most pages fit on flash and power fails often.
    #[test]
    fn what_comes_back_from_doubt_is_what_base_holds(
        policy in 0..policy::NAMES.len(),
        slots in prop::sample::select(vec![3u32, 12, 24]),
        frames in prop::sample::select(vec![0u32, 2]),
        keeps in prop::sample::select(vec![0u32, 4]),
        write_back in any::<bool>(),
        steps in prop::collection::vec(step_of_doubt(), 1..400),
    ) {
        let mut world = World::new(HierarchyOptions {
            reserve: 2,
            keeps,
            write_back,
            ..options(policy::NAMES[policy], slots, frames, 4)
        });
        for step in steps {
            world.run(step);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(800))]

    /// The same in write-back, where pages are dirty that are cut, read and destaged.
    #[test]
    fn what_is_cut_while_it_is_destaged_is_gone(
        policy in 0..policy::NAMES.len(),
        slots in prop::sample::select(vec![8u32, 24]),
        frames in prop::sample::select(vec![0u32, 2]),
        steps in prop::collection::vec(step_of_destaging(), 1..400),
    ) {
        let mut world = World::new(HierarchyOptions {
            write_back: true,
            ..options(policy::NAMES[policy], slots, frames, 4)
        });
        for step in steps {
            world.run(step);
        }
    }
}

fn hierarchy(options: &HierarchyOptions, audited: bool) -> Hierarchy {
    if !audited {
        return Hierarchy::new(options).expect("a known policy");
    }
    let policy = policy::build(&options.policy, &options.policy_options).expect("a known policy");
    let policy = Audited {
        policy,
        resident: BTreeMap::new(),
        dirty: BTreeSet::new(),
        reserved: BTreeSet::new(),
        buffered: BTreeSet::new(),
    };
    Hierarchy::with_policy(Box::new(policy), options).expect("a known pool")
}

/// A policy of which it is noted what it was told: that and nothing else must be so.
struct Audited {
    policy: Box<dyn TierPolicy>,
    resident: BTreeMap<SlotId, PageId>,
    dirty: BTreeSet<SlotId>,
    reserved: BTreeSet<PageId>,
    buffered: BTreeSet<PageId>,
}

impl TierPolicy for Audited {
    fn on_request(&mut self, access: &Access, resident: Option<SlotId>) {
        let page = resident.map(|slot| self.resident.get(&slot));
        assert!(page.is_none_or(|page| page == Some(&access.page)));
        self.policy.on_request(access, resident);
    }

    fn on_aside(&mut self, access: &Access, resident: Option<SlotId>, why: Aside) {
        let page = resident.map(|slot| self.resident.get(&slot));
        assert!(page.is_none_or(|page| page == Some(&access.page)));
        let reserved = self.reserved.contains(&access.page);
        assert!(why != Aside::Reserve || reserved, "{:?}", access.page);
        self.policy.on_aside(access, resident, why);
    }

    fn on_admit(&mut self, access: &Access, slot: SlotId) {
        let page = access.page;
        assert!(!self.reserved.contains(&page), "{page:?} left the reserve");
        assert_eq!(self.resident.insert(slot, page), None, "a free slot");
        self.policy.on_admit(access, slot);
    }

    fn on_found(&mut self, access: &Access, slot: SlotId) {
        let page = access.page;
        assert!(!self.reserved.contains(&page), "{page:?} left the reserve");
        assert_eq!(self.resident.insert(slot, page), None, "a free slot");
        self.policy.on_found(access, slot);
    }

    fn on_remove(&mut self, page: PageId, slot: SlotId, why: Removal) {
        assert_eq!(self.resident.remove(&slot), Some(page), "it was there");
        self.dirty.remove(&slot);
        self.policy.on_remove(page, slot, why);
    }

    fn on_reserve(&mut self, page: PageId, reserved: bool) {
        let there = self.resident.values().any(|known| *known == page);
        assert!(!there, "{page:?} has no slot of the policy's");
        let changed = match reserved {
            true => self.reserved.insert(page),
            false => self.reserved.remove(&page),
        };
        assert!(
            changed,
            "{page:?}: told once that it came, once that it left"
        );
        self.policy.on_reserve(page, reserved);
    }

    fn on_pool(&mut self, page: PageId, buffered: bool) {
        let changed = match buffered {
            true => self.buffered.insert(page),
            false => self.buffered.remove(&page),
        };
        assert!(
            changed,
            "{page:?}: told once that it came, once that it left"
        );
        self.policy.on_pool(page, buffered);
    }

    fn on_dirty(&mut self, access: &Access, slot: SlotId) {
        assert_eq!(self.resident.get(&slot), Some(&access.page));
        self.dirty.insert(slot);
        self.policy.on_dirty(access, slot);
    }

    fn on_clean(&mut self, slot: SlotId) {
        assert!(self.dirty.remove(&slot), "{slot:?} was dirty");
        self.policy.on_clean(slot);
    }

    fn assert_invariants(&self, slots: &SlotTable) {
        let resident = slots.residents();
        assert!(resident.eq(self.resident.clone()), "the policy's slots");
        let dirty = slots.residents().filter(|(slot, _)| slots.is_dirty(*slot));
        assert!(dirty.map(|(slot, _)| slot).eq(self.dirty.clone()), "dirty");
        let reserve = slots.occupied();
        let reserve = reserve.filter(|(slot, _)| slots.is_reserve(*slot));
        let reserved: BTreeSet<PageId> = reserve.map(|(_, page)| page).collect();
        assert_eq!(reserved, self.reserved, "the reserve");
        self.policy.assert_invariants(slots);
    }

    thermocline_core::pass_on!(policy: name, decide, surplus, on_trim, on_pool_hits, on_time,
        on_written, dirty_pages, keeps_outdated, write_buffer, is_buffered, is_synchronous, worth,
        taught, learned, bytes, bytes_full);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// What a policy is told of slots, dirty pages, the reserve and the pool is what is so, each
    /// change once and in the order that [`TierPolicy`] says.
    #[test]
    fn a_policy_is_told_what_is_so(
        policy in 0..policy::NAMES.len(),
        pool in 0..pool::NAMES.len(),
        slots in prop::sample::select(vec![1u32, 3, 8]),
        frames in prop::sample::select(vec![0u32, 1, 4]),
        reserve in prop::sample::select(vec![1u32, 2, 4]),
        keeps in prop::sample::select(vec![0u32, 0, 2]),
        write_back in prop::bool::weighted(0.8),
        steps in prop::collection::vec(step(), 1..300),
    ) {
        let mut world = World::audited(HierarchyOptions {
            pool_policy: pool::NAMES[pool].to_string(),
            reserve,
            reserve_as_flash: true,
            keeps,
            write_back,
            ..options(policy::NAMES[policy], slots, frames, 4)
        });
        // Another policy, or the same one anew, would not be audited.
        let anew = |step: &Step| {
            matches!(step, Step::Policy(_) | Step::Resize(..) | Step::Replace(..))
        };
        for step in steps.into_iter().filter(|step| !anew(step)) {
            world.run(step);
        }
    }
}

/// A trimmed page that was being read from base must not come back through admission.
#[test]
fn a_read_overtaken_by_a_trim_is_not_kept() {
    let mut world = World::new(options("lru", 4, 2, 4));
    world.run(Step::StartRead(0));
    world.trim(0);
    world.run(Step::EndRead(0, false));
    assert_eq!(world.hierarchy.slots().resident(), 0);
    assert_eq!(world.hierarchy.pool().filled(), 0);
}

/// A clean copy that is being read when a sync of base fails leaves with its reader, and nobody
/// else gets it: base may never have those bytes.
#[test]
fn a_copy_that_is_read_when_a_sync_fails_leaves() {
    let mut world = World::new(options("lru", 3, 0, 4));
    for step in [
        Step::StartRead(22),
        Step::EndRead(0, false),
        Step::StartFlush,
        Step::EndFlush(0, false),
        Step::StartRead(22),
    ] {
        world.run(step);
    }
    assert!(matches!(world.reads[0].1, ReadStart::Slot(_)));
    world.run(Step::Doubt(0, true));
    world.run(Step::StartRead(22));
    assert_eq!(world.reads[1].1, ReadStart::Base);
    world.run(Step::EndRead(0, false));
    world.run(Step::EndRead(0, false));
    assert_eq!(world.hierarchy.slots().resident(), 0);
}

/// A slot that a read pins when its page is trimmed stays until that read ends, and is not served
/// to anyone else meanwhile.
#[test]
fn a_trimmed_slot_is_not_served_while_an_older_read_pins_it() {
    let mut world = World::new(options("tac", 3, 0, 4));
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
    let options = options("lru", 8, 2, 4);
    let mut world = World::new(options.clone());
    world.hierarchy = Hierarchy::with_policy(Box::new(Exclusive), &options).expect("a known pool");
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

/// Six clean pages of one object on flash, whose region base is being written in.
fn warm() -> World {
    let mut world = World::new(options("lru", 8, 0, 4));
    for index in 0..6 {
        world.run(Step::StartWrite(2 * index));
        world.run(Step::EndWrite(0, true, true));
        world.run(Step::StartFlush);
        world.run(Step::EndFlush(0, false));
    }
    for step in [Step::StartCommit, Step::EndCommit] {
        world.run(step);
    }
    assert_eq!(world.hierarchy.slots().resident(), 6);
    world
}

fn restarted(mut world: World) -> World {
    world.base.sync(|_| true);
    world.run(Step::Crash(0));
    world
}

/// Clean copies of a region that base was being written in come back once they were compared, in
/// the blocks they had, by a reader or by the verifier.
#[test]
fn copies_in_doubt_come_back_when_base_holds_the_same() {
    let mut world = restarted(warm());
    assert_eq!(world.hierarchy.doubts(), 6);
    assert_eq!(world.hierarchy.slots().resident(), 0, "nobody is told");
    assert_eq!(world.hierarchy.resident_of(ObjectId(0)), 6);
    world.run(Step::StartRead(4));
    assert_eq!(world.reads[0].1, ReadStart::Base);
    world.run(Step::EndRead(0, false));
    assert_eq!(world.hierarchy.doubts(), 5);
    assert_eq!(
        world.hierarchy.ledger().changed(),
        0,
        "the map says so already"
    );
    for _ in 0..5 {
        world.run(Step::StartVerify(0));
        world.run(Step::EndVerify(true));
    }
    assert_eq!(world.hierarchy.doubts(), 0);
    assert_eq!(world.hierarchy.slots().resident(), 6);
    assert_eq!(world.hierarchy.counters().doubts_verified, 6);
}

/// What base has newer than its copy is given up.
#[test]
fn copies_in_doubt_are_given_up_when_base_is_newer() {
    let mut world = warm();
    world.clock += 1;
    let written = world.clock;
    world.hierarchy.ledger_mut().intend(page(0));
    world.base.write(page(0), written);
    world.newest.insert(page(0), written);
    let mut world = restarted(world);
    world.run(Step::StartVerify(0));
    world.run(Step::EndVerify(true));
    assert_eq!(world.hierarchy.doubt_of(page(0)), None);
    assert_eq!(world.hierarchy.slots().find(page(0)), None);
    assert_eq!(world.hierarchy.counters().doubts_given_up, 1);
    world.run(Step::StartRead(0));
}

/// A crash finds what was settled and what was not in doubt again: the region stays on while a copy
/// of it is in doubt, however often base was synced, and no longer.
#[test]
fn a_region_stays_on_while_a_copy_of_it_is_in_doubt() {
    let mut world = restarted(warm());
    for _ in 0..5 {
        world.run(Step::StartVerify(0));
        world.run(Step::EndVerify(true));
    }
    for _ in 0..5 {
        world.run(Step::Sync(0));
    }
    assert!(world.map.intents.contains(&Intent::of(page(0))));
    let mut world = restarted(world);
    assert_eq!(world.hierarchy.doubts(), 6);
    for _ in 0..6 {
        world.run(Step::StartVerify(0));
        world.run(Step::EndVerify(true));
    }
    for _ in 0..5 {
        world.run(Step::Sync(0));
    }
    assert!(world.map.intents.is_empty(), "{:?}", world.map.intents);
    let world = restarted(world);
    assert_eq!(world.hierarchy.slots().resident(), 6, "they are believed");
}

/// A writer waits for a comparison under way; when it comes first nothing is compared.
#[test]
fn writers_and_trims_end_a_doubt() {
    let mut world = restarted(warm());
    world.run(Step::StartVerify(0));
    world.run(Step::StartWrite(0));
    assert!(world.writes.is_empty(), "the page is being compared");
    world.run(Step::EndVerify(false));
    assert!(world.hierarchy.doubt_of(page(0)).is_some(), "base failed");
    world.run(Step::StartWrite(0));
    assert_eq!(world.hierarchy.doubt_of(page(0)), None);
    world.run(Step::StartVerify(0));
    assert_ne!(world.verifying.map(|v| v.0), Some(page(0)));
    world.run(Step::EndVerify(true));
    world.run(Step::EndWrite(0, true, true));
    world.run(Step::StartVerify(4));
    world.run(Step::Trim(4));
    world.run(Step::EndVerify(true));
    assert_eq!(world.hierarchy.slots().find(page(4)), None);
    assert_eq!(world.hierarchy.doubts(), 0);
}

/// Doubts never cost room: every page that comes in takes the place of one.
#[test]
fn doubts_give_way_to_pages_that_come_in() {
    let mut world = restarted(warm());
    for index in 0..8 {
        world.run(Step::StartRead(2 * index + 1));
        world.run(Step::EndRead(0, false));
        let room = world.hierarchy.slots().room();
        assert_eq!(world.hierarchy.doubts(), room.min(6));
        world.run(Step::StartFlush);
        world.run(Step::EndFlush(0, false));
    }
    assert_eq!(world.hierarchy.slots().resident(), 8);
    assert_eq!(world.hierarchy.doubts(), 0);
}

/// While a whole object is intended no clean copy of it is believed after a crash.
#[test]
fn an_intent_for_all_of_an_object_covers_every_page() {
    let all = Intent::all_of(ObjectId(3));
    let doubtful: Doubtful = [all].into_iter().collect();
    for index in [0, 1, 511, 512, 1 << 50, u64::MAX] {
        let page = PageId::new(ObjectId(3), index);
        assert!(doubtful.covers(page), "{index}");
        assert!(!doubtful.covers(PageId::new(ObjectId(4), index)));
        assert!(all.pages().contains(&page));
        assert!(Intent::of(page).pages().contains(&page), "{index}");
        assert_ne!(Intent::of(page), all, "{index}");
    }
}

#[test]
fn a_trimmed_dirty_page_leaves_though_its_last_reader_fails() {
    let mut world = World::new(HierarchyOptions {
        reserve: 2,
        write_back: true,
        ..options("lru", 1, 0, 4)
    });
    for step in [
        Step::StartWrite(19),
        Step::EndWrite(0, true, false),
        Step::StartFlush,
        Step::EndFlush(0, false),
        Step::StartRead(19),
        Step::Trim(11),
        Step::EndRead(0, true),
        Step::StartRead(19),
    ] {
        world.run(step);
    }
}

/// GD2L weighs a page of the reserve as one of base, or where that is wanted as one on flash, from
/// when it comes until it leaves; a page read from there as well.
#[test]
fn the_pool_weighs_pages_of_the_reserve_as_it_is_told() {
    for reserve_as_flash in [false, true] {
        let options = HierarchyOptions {
            pool_policy: "gd2l".into(),
            reserve: 2,
            reserve_as_flash,
            write_back: true,
            recovery_age: 0,
            ..options("lru", 2, 2, 4)
        };
        let mut world = World::new(options.clone());
        // What is written out is refused, and goes to the reserve.
        world.hierarchy = Hierarchy::with_policy(Box::new(Exclusive), &options).expect("a pool");
        let weighed = |world: &World| {
            let frame = world.hierarchy.pool().find(page(0)).expect("buffered");
            world.hierarchy.pool().is_on_flash(frame)
        };
        for step in [Step::StartWrite(0), Step::EndWrite(0, true, true)] {
            world.run(step);
        }
        assert_eq!(weighed(&world), Some(false), "dirty in DRAM");
        for step in [
            Step::Clean,
            Step::EndClean(true),
            Step::StartFlush,
            Step::EndFlush(0, false),
        ] {
            world.run(step);
        }
        assert_eq!(world.hierarchy.slots().reserved(), 1);
        assert_eq!(weighed(&world), Some(reserve_as_flash), "it came");
        // Two others take the frames, and it is read from the reserve.
        for index in [1, 3, 0] {
            world.run(Step::StartRead(index));
            world.run(Step::EndRead(0, false));
        }
        assert_eq!(world.hierarchy.slots().reserved(), 1);
        assert_eq!(weighed(&world), Some(reserve_as_flash), "it was read");
        for step in [Step::StartCommit, Step::EndCommit] {
            world.run(step);
        }
        world.destage(true);
        world.end_destage(true);
        world.tell_destaged();
        assert_eq!(world.hierarchy.slots().reserved(), 0, "base has it");
        assert_eq!(weighed(&world), Some(false), "it left");
        world.hierarchy.assert_invariants();
    }
}

/// The same of a page that makes way for another.
#[test]
fn the_pool_weighs_pages_anew_that_make_way() {
    for reserve_as_flash in [false, true] {
        let mut world = World::new(HierarchyOptions {
            pool_policy: "gd2l".into(),
            reserve: 2,
            reserve_as_flash,
            write_back: true,
            recovery_age: 0,
            ..options("lru", 1, 4, 4)
        });
        let weighed = |world: &World| {
            let frame = world.hierarchy.pool().find(page(0)).expect("buffered");
            world.hierarchy.pool().is_on_flash(frame)
        };
        for (index, reserved) in [(0, 0), (1, 1)] {
            for step in [Step::StartWrite(index), Step::EndWrite(0, true, true)] {
                world.run(step);
            }
            let cleaned = [Step::Clean, Step::EndClean(true), Step::StartFlush];
            for step in cleaned.into_iter().chain([Step::EndFlush(0, false)]) {
                world.run(step);
            }
            assert_eq!(world.hierarchy.slots().reserved(), reserved);
            assert_eq!(weighed(&world), Some(reserved == 0 || reserve_as_flash));
        }
    }
}

/// A page of the reserve that gets a kept slot when the tier grows weighs as one on flash then.
#[test]
fn the_pool_weighs_pages_anew_after_a_reshape() {
    for reserve_as_flash in [false, true] {
        let mut world = World::new(HierarchyOptions {
            pool_policy: "gd2l".into(),
            reserve: 2,
            keeps: 1,
            reserve_as_flash,
            write_back: true,
            recovery_age: 0,
            ..options("lru", 1, 4, 4)
        });
        world.pin(ObjectId(0), true);
        // Pages 0 and 2 are of the pinned object, and only one of them finds a kept slot; page 1
        // takes the other's place with the policy.
        for index in [0, 2, 1] {
            for step in [Step::StartWrite(index), Step::EndWrite(0, true, true)] {
                world.run(step);
            }
            let cleaned = [Step::Clean, Step::EndClean(true), Step::StartFlush];
            for step in cleaned.into_iter().chain([Step::EndFlush(0, false)]) {
                world.run(step);
            }
        }
        let weighed = |world: &World| {
            let frame = world.hierarchy.pool().find(page(2)).expect("buffered");
            world.hierarchy.pool().is_on_flash(frame)
        };
        assert_eq!(world.hierarchy.slots().reserved(), 1);
        assert_eq!(weighed(&world), Some(reserve_as_flash), "in the reserve");
        world.run(Step::Resize(2, true));
        assert_eq!(world.hierarchy.slots().reserved(), 0, "it has a slot");
        assert_eq!(weighed(&world), Some(true));
    }
}

/// MV-FIFO counts the versions of a page, so one that is written again and again drives out others:
/// in write-back where it is placed, in write-through where base was written.
#[test]
fn a_page_written_again_takes_the_room_of_others() {
    for (write_back, frames) in [(false, 0), (true, 0), (true, 1)] {
        let mut world = World::new(HierarchyOptions {
            write_back,
            reserve: 2,
            recovery_age: 0,
            ..options("mv-fifo", 3, frames, 4)
        });
        let on_flash = |world: &World| -> Vec<u64> {
            let slots = world.hierarchy.slots();
            let of = |index: &u64| {
                slots
                    .find(page(*index))
                    .is_some_and(|slot| !slots.is_reserve(slot))
            };
            (0..3).filter(of).collect()
        };
        let write = |world: &mut World, index: u64| {
            for step in [Step::StartWrite(index), Step::EndWrite(0, true, true)] {
                world.run(step);
            }
            if frames > 0 {
                world.run(Step::Clean);
                world.run(Step::EndClean(true));
            }
            world.run(Step::StartFlush);
            world.run(Step::EndFlush(0, false));
        };
        for index in 0..3 {
            write(&mut world, index);
        }
        assert_eq!(on_flash(&world), [0, 1, 2]);
        write(&mut world, 2);
        assert_eq!(on_flash(&world), [1, 2], "{write_back}, {frames} frames");
        write(&mut world, 2);
        assert_eq!(on_flash(&world), [2], "{write_back}, {frames} frames");
    }
}
