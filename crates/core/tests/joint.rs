//! CAC and CC beside the plainest code there is, under a DRAM pool and without; what the thesis
//! says in numbers (§6.4), counted by hand.

use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use thermocline_core::policy::{
    self, Access, Aside, Cac, CacConfig, CacCounts, Decision, Measured, Op, Opportunity,
    PolicyOptions, Refusal, Removal, TierPolicy,
};
use thermocline_core::tier::SlotTable;
use thermocline_core::{BlockId, Costs, HintSet, ObjectId, PageId, RequestType, SlotId, hint_type};

/// The costs of thesis §6.5.2: R_S = 1, R_D = 70, W_S = 3, W_D = 50.
fn thesis_costs() -> Costs {
    Costs {
        base_random_read: 70.0,
        base_sequential_read: 2.0,
        base_random_write: 50.0,
        flash_read: 1.0,
        flash_write: 3.0,
    }
}

fn options(capacity: u32, cac: CacConfig) -> PolicyOptions {
    PolicyOptions {
        cac,
        costs: thesis_costs(),
        ..PolicyOptions::new(capacity)
    }
}

/// Counts as the thesis has them: from the start.
fn from_the_start() -> CacConfig {
    CacConfig {
        fade_requests: u64::MAX,
        ..CacConfig::default()
    }
}

fn page(index: u64) -> PageId {
    PageId::new(ObjectId(1), index)
}

/// A tier and a DRAM pool in first-in, first-out order, driven as write-back does.
struct Rig<P> {
    policy: P,
    slots: SlotTable,
    /// Pages in the pool with whether they are dirty; the oldest first.
    pool: VecDeque<(u64, bool)>,
    frames: usize,
    number: u64,
    hints: HintSet,
    /// What was decided, oldest first.
    log: Vec<Decision>,
    /// What left for another page, oldest first.
    evicted: Vec<(SlotId, u64)>,
}

impl<P: TierPolicy> Rig<P> {
    fn new(policy: P, capacity: u32, frames: usize) -> Self {
        Self {
            policy,
            slots: SlotTable::new(capacity),
            pool: VecDeque::new(),
            frames,
            number: 0,
            hints: HintSet::UNKNOWN,
            log: Vec::new(),
            evicted: Vec::new(),
        }
    }

    /// The same after the policy was told of the pool.
    fn announced(mut self) -> Self {
        self.policy.on_pool(page(u64::MAX), true);
        self.policy.on_pool(page(u64::MAX), false);
        self
    }

    fn access(&mut self, index: u64, op: Op) -> Access {
        self.number += 1;
        Access {
            page: page(index),
            op,
            hints: self.hints,
            number: self.number,
        }
    }

    fn holds(&self, index: u64) -> bool {
        self.slots.find(page(index)).is_some()
    }

    fn remove(&mut self, index: u64, why: Removal) {
        if let Some(slot) = self.slots.find(page(index)) {
            self.slots.remove(slot);
            self.policy.on_remove(page(index), slot, why);
        }
    }

    /// Asks, and does what is said; only for a page that is not on flash.
    fn consider(&mut self, access: &Access, why: Opportunity) {
        if self.slots.find(access.page).is_some() {
            return;
        }
        let decision = self.policy.decide(access, why, &self.slots);
        self.log.push(decision);
        match decision {
            Decision::Refuse(_) => return,
            Decision::Admit => {}
            Decision::Replace(slot) => {
                let left = self.slots.remove(slot);
                self.policy.on_remove(left, slot, Removal::Evicted);
                self.evicted.push((slot, left.index));
            }
        }
        let slot = self.slots.admit(access.page).expect("room was made");
        self.policy.on_admit(access, slot);
    }

    fn physical(&mut self, index: u64, op: Op, why: Opportunity) {
        let access = self.access(index, op);
        let resident = self.slots.find(access.page);
        self.policy.on_request(&access, resident);
        while let Some(victim) = self.policy.surplus(&self.slots) {
            assert_ne!(Some(victim), resident, "the newest version stays");
            let left = self.slots.remove(victim);
            self.policy.on_remove(left, victim, Removal::Evicted);
        }
        self.consider(&access, why);
    }

    /// A logical read.
    fn read(&mut self, index: u64) {
        if self.pool.iter().any(|e| e.0 == index) {
            self.policy.on_pool_hits(page(index), 1);
            return;
        }
        self.physical(index, Op::Read, Opportunity::Read);
        self.fill(index);
    }

    fn fill(&mut self, index: u64) {
        if self.frames == 0 {
            return;
        }
        while self.pool.len() >= self.frames {
            self.evict_oldest();
        }
        self.pool.push_back((index, false));
        self.policy.on_pool(page(index), true);
    }

    /// A logical write of a whole page.
    fn write(&mut self, index: u64) {
        if self.frames == 0 {
            return self.physical(index, Op::Write, Opportunity::Clean);
        }
        if !self.pool.iter().any(|e| e.0 == index) {
            self.fill(index);
        }
        let frame = self.pool.iter_mut().find(|e| e.0 == index);
        let frame = frame.expect("just filled");
        let was_clean = !std::mem::replace(&mut frame.1, true);
        if was_clean && !self.policy.keeps_outdated() {
            self.remove(index, Removal::Outdated);
        }
    }

    /// A page cleaner writes the page out, if it is dirty.
    fn clean(&mut self, index: u64) {
        let frame = self.pool.iter_mut().find(|e| e.0 == index && e.1);
        if let Some(frame) = frame {
            frame.1 = false;
            self.physical(index, Op::Write, Opportunity::Clean);
        }
    }

    fn evict_oldest(&mut self) {
        let index = self.pool.front().expect("a page").0;
        self.clean(index);
        self.pool.pop_front();
        let access = Access {
            number: self.number,
            ..self.access(index, Op::Read)
        };
        self.policy.on_pool(page(index), false);
        self.consider(&access, Opportunity::PoolEviction);
    }

    fn trim(&mut self, index: u64) {
        self.remove(index, Removal::Trimmed);
        if self.pool.iter().any(|e| e.0 == index) {
            self.pool.retain(|e| e.0 != index);
            self.policy.on_pool(page(index), false);
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Read(u64, HintSet),
    Write(u64),
    Clean(u64),
    Trim(u64),
    Drop(u64),
}

impl<P: TierPolicy> Rig<P> {
    fn step(&mut self, step: Step) {
        match step {
            Step::Read(index, hints) => {
                self.hints = hints;
                self.read(index);
            }
            Step::Write(index) => self.write(index),
            Step::Clean(index) => self.clean(index),
            Step::Trim(index) => self.trim(index),
            Step::Drop(index) => self.remove(index, Removal::Stale),
        }
        self.policy.assert_invariants(&self.slots);
        self.slots.assert_invariants();
    }
}

fn steps(pages: u64, count: usize) -> impl Strategy<Value = Vec<Step>> {
    // Some pages are much hotter than others.
    let index = || prop_oneof![2 => 0..pages / 6 + 1, 1 => 0..pages];
    let hints = (0u32..3, 0u32..4).prop_map(|(request, object)| {
        HintSet::UNKNOWN
            .with(hint_type::REQUEST, request)
            .with(hint_type::OBJECT, object)
    });
    let step = prop_oneof![
        20 => (index(), hints).prop_map(|(index, hints)| Step::Read(index, hints)),
        8 => index().prop_map(Step::Write),
        4 => index().prop_map(Step::Clean),
        1 => index().prop_map(Step::Trim),
        1 => index().prop_map(Step::Drop),
    ];
    prop::collection::vec(step, 1..count)
}

#[derive(Clone, Debug, Default)]
struct PlainPage {
    /// Reads, writes, logical reads: on flash, then off.
    counts: [[f64; 3]; 2],
    hint: u32,
    resident: bool,
    buffered: bool,
    /// Group and what is counted there: misses and logical reads on flash, then off.
    group: Option<(bool, u32, u64)>,
    counted: [[f64; 2]; 2],
    /// Slot and benefit when last written or read there.
    key: Option<(f64, u32)>,
}

/// CAC with counts halved one by one, sums added up when they are asked for, and a search of all
/// pages for the victim.
struct Plain {
    pages: BTreeMap<u64, PlainPage>,
    /// Of those in no place, oldest first.
    outqueue: Vec<u64>,
    outqueue_max: usize,
    config: CacConfig,
    anticipates: bool,
    rate_requests: f64,
    fade_requests: u64,
    in_epoch: u64,
    time: f64,
    pooled: bool,
}

impl Plain {
    fn new(capacity: u32, config: CacConfig, anticipates: bool) -> Self {
        Self {
            pages: BTreeMap::new(),
            outqueue: Vec::new(),
            outqueue_max: (capacity * config.outqueue_per_page).max(8) as usize,
            config,
            anticipates,
            rate_requests: config.rate_requests_of(capacity) as f64,
            fade_requests: config.fade_requests_of(capacity),
            in_epoch: 0,
            time: 0.0,
            pooled: false,
        }
    }

    fn group_of(&self, index: u64) -> (bool, u32, u64) {
        let known = &self.pages[&index];
        let logical = known.counts[0][2] + known.counts[1][2];
        let band = (logical * self.rate_requests / self.time.max(self.rate_requests)).floor();
        let band = (band as u64).min(u64::from(self.config.bands) - 1);
        match known.hint {
            0 => (false, 1, band),
            hint => (true, hint, band),
        }
    }

    fn alpha(&self, index: u64) -> f64 {
        let group = self.pages[&index].group;
        let group = Some(group.unwrap_or_else(|| self.group_of(index)));
        let members = || self.pages.values().filter(|known| known.group == group);
        let rate = |side: usize| {
            let missed: f64 = members().map(|known| known.counted[side][0]).sum();
            let logical: f64 = members().map(|known| known.counted[side][1]).sum();
            match (logical > 0.0, missed > 0.0) {
                (false, _) => None,
                (true, false) => Some(1.0 / (logical + 1.0)),
                (true, true) => Some(missed / logical),
            }
        };
        match (rate(0), rate(1)) {
            (Some(on), Some(off)) if self.anticipates => on / off,
            _ => 1.0,
        }
    }

    fn benefit(&self, index: u64) -> f64 {
        let alpha = self.alpha(index);
        let of_writes = if self.config.writes_expand {
            alpha
        } else {
            1.0
        };
        let [[rs, ws, _], [rd, wd, _]] = self.pages[&index].counts;
        let costs = thesis_costs();
        let reads =
            (rd + rs / alpha) * costs.base_random_read - (rs + alpha * rd) * costs.flash_read;
        let writes = (wd + ws / of_writes) * costs.base_random_write
            - (ws + of_writes * wd) * costs.flash_write;
        reads + writes
    }

    fn count(&mut self, index: u64) {
        let group = self.group_of(index);
        let known = self.pages.get_mut(&index).expect("known");
        known.group = Some(group);
        known.counted = known.counts.map(|[reads, _, logical]| [reads, logical]);
    }

    fn halve(&mut self) {
        self.time /= 2.0;
        for known in self.pages.values_mut() {
            known.counts = known.counts.map(|side| side.map(|count| count / 2.0));
            known.counted = known.counted.map(|side| side.map(|count| count / 2.0));
            known.key = known.key.map(|(key, slot)| (key / 2.0, slot));
        }
    }

    fn settle(&mut self, index: u64, again: bool) {
        let known = &self.pages[&index];
        let absent = !known.resident && !known.buffered;
        if !absent || again {
            self.outqueue.retain(|other| *other != index);
        }
        if absent && !self.outqueue.contains(&index) {
            self.outqueue.push(index);
        }
        while self.outqueue.len() > self.outqueue_max {
            let oldest = self.outqueue.remove(0);
            self.pages.remove(&oldest);
        }
    }
}

impl Plain {
    fn on_request(&mut self, access: &Access, resident: Option<SlotId>) {
        self.in_epoch += 1;
        if self.in_epoch == self.fade_requests {
            self.in_epoch = 0;
            self.halve();
        }
        self.time += 1.0;
        let index = access.page.index;
        let known = self.pages.entry(index).or_default();
        let object = access.hints.get(hint_type::OBJECT);
        known.hint = if object == 0 { known.hint } else { object };
        let side = usize::from(resident.is_none());
        match (access.op, access.hints.request()) {
            (Op::Write, _) => known.counts[side][1] += 1.0,
            (Op::Read, RequestType::SequentialRead) => {}
            (Op::Read, _) => {
                known.counts[side][0] += 1.0;
                known.counts[side][2] += 1.0;
            }
        }
        self.settle(index, true);
        if !self.pooled || (access.op == Op::Write && resident.is_some()) {
            self.count(index);
        }
        if let Some(slot) = resident {
            let key = self.benefit(index);
            self.pages.get_mut(&index).expect("known").key = Some((key, slot.0));
        }
    }

    fn decide(&self, access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        if why == Opportunity::Read && self.pooled {
            return Decision::Refuse(Refusal::Opportunity);
        }
        if slots.has_room() {
            return Decision::Admit;
        }
        let keys = self.pages.values().filter_map(|known| known.key);
        let least = keys.min_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        let (least, slot) = least.expect("a full tier");
        let own = match self.pages.contains_key(&access.page.index) {
            true => self.benefit(access.page.index),
            false => 0.0,
        };
        match least < own {
            true => Decision::Replace(SlotId(slot)),
            false => Decision::Refuse(Refusal::Cold),
        }
    }

    fn on_admit(&mut self, access: &Access, slot: SlotId) {
        let index = access.page.index;
        let known = self.pages.entry(index).or_default();
        let object = access.hints.get(hint_type::OBJECT);
        known.hint = if object == 0 { known.hint } else { object };
        known.resident = true;
        self.settle(index, false);
        self.count(index);
        let key = self.benefit(index);
        self.pages.get_mut(&index).expect("known").key = Some((key, slot.0));
    }

    fn on_remove(&mut self, page: PageId, why: Removal) {
        if why == Removal::Trimmed {
            self.pages.remove(&page.index);
            return;
        }
        self.count(page.index);
        let known = self.pages.get_mut(&page.index).expect("known");
        (known.resident, known.key) = (false, None);
        self.settle(page.index, false);
    }

    fn on_pool_hits(&mut self, page: PageId, hits: u32) {
        if let Some(known) = self.pages.get_mut(&page.index) {
            known.counts[usize::from(!known.resident)][2] += f64::from(hits);
        }
    }

    fn on_pool(&mut self, page: PageId, buffered: bool) {
        self.pooled = true;
        if buffered {
            self.pages.entry(page.index).or_default();
        } else if self.pages.contains_key(&page.index) {
            self.count(page.index);
        }
        if let Some(known) = self.pages.get_mut(&page.index) {
            known.buffered = buffered;
            self.settle(page.index, false);
        }
    }
}

/// CAC and the plain code, which must agree at every step.
struct Both {
    fast: Cac,
    plain: Plain,
}

impl Both {
    fn compare(&self) {
        for (index, known) in &self.plain.pages {
            let (found, expected) = (self.fast.alpha(page(*index)), self.plain.alpha(*index));
            assert_eq!(found, expected, "alpha of {index}, {known:?}");
            let found = self.fast.benefit(page(*index));
            assert_eq!(found, self.plain.benefit(*index), "B of {index}");
        }
        assert_eq!(self.fast.absent() as usize, self.plain.outqueue.len());
        let absent = |known: &&PlainPage| !known.resident && !known.buffered;
        let absent = self.plain.pages.values().filter(absent).count();
        assert_eq!(self.plain.outqueue.len(), absent);
    }
}

impl TierPolicy for Both {
    fn name(&self) -> &'static str {
        self.fast.name()
    }

    fn on_request(&mut self, access: &Access, resident: Option<SlotId>) {
        self.fast.on_request(access, resident);
        self.plain.on_request(access, resident);
    }

    fn on_aside(&mut self, access: &Access, resident: Option<SlotId>, why: Aside) {
        self.fast.on_aside(access, resident, why);
        self.plain.on_request(access, resident);
    }

    fn decide(&mut self, access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        self.compare();
        let decision = self.fast.decide(access, why, slots);
        assert_eq!(decision, self.plain.decide(access, why, slots));
        decision
    }

    fn on_admit(&mut self, access: &Access, slot: SlotId) {
        self.fast.on_admit(access, slot);
        self.plain.on_admit(access, slot);
    }

    fn on_found(&mut self, access: &Access, slot: SlotId) {
        self.fast.on_found(access, slot);
        self.plain.on_admit(access, slot);
    }

    fn on_remove(&mut self, page: PageId, slot: SlotId, why: Removal) {
        self.fast.on_remove(page, slot, why);
        self.plain.on_remove(page, why);
    }

    fn on_pool_hits(&mut self, page: PageId, hits: u32) {
        self.fast.on_pool_hits(page, hits);
        self.plain.on_pool_hits(page, hits);
    }

    fn on_pool(&mut self, page: PageId, buffered: bool) {
        self.fast.on_pool(page, buffered);
        self.plain.on_pool(page, buffered);
    }

    // Of what the plain code does not have a rig tells nobody.
    thermocline_core::pass_on!(fast: surplus, on_trim, on_reserve, on_time, on_written, dirty_pages,
        keeps_outdated, on_dirty, on_clean, write_buffer, is_buffered, is_synchronous, worth,
        taught, learned, bytes, bytes_full, assert_invariants);
}

proptest! {
    /// Victims, groups, outqueue and fading are those of the plain code. (Fading at most six
    /// times: later the counts are rounded.)
    #[test]
    fn equals_the_plainest_code(
        capacity in 1u32..7,
        frames in 0usize..5,
        outqueue_per_page in 0u32..4,
        bands in prop::sample::select(vec![1u32, 3, 1000]),
        rate_requests in prop::sample::select(vec![0u64, 1, 50]),
        fade_requests in prop::sample::select(vec![60u64, 100, u64::MAX]),
        anticipates: bool,
        writes_expand: bool,
        steps in steps(24, 300),
    ) {
        let config = CacConfig {
            outqueue_per_page,
            rate_requests,
            bands,
            fade_requests,
            writes_expand,
        };
        let options = options(capacity, config);
        let both = Both {
            fast: if anticipates { Cac::new(&options) } else { Cac::cc(&options) },
            plain: Plain::new(capacity, config, anticipates),
        };
        let mut rig = Rig::new(both, capacity, frames);
        let fades = |rig: &Rig<Both>| rig.number / fade_requests;
        for step in steps {
            if fades(&rig) < 6 {
                rig.step(step);
                rig.policy.compare();
            }
        }
    }

    /// Without a pool every logical read is a physical one: nothing to anticipate.
    #[test]
    fn without_a_pool_cac_is_cc(
        capacity in 1u32..7,
        steps in steps(24, 300),
    ) {
        let options = options(capacity, CacConfig { fade_requests: 50, ..CacConfig::default() });
        let mut cac = Rig::new(Cac::new(&options), capacity, 0);
        let mut cc = Rig::new(Cac::cc(&options), capacity, 0);
        for step in steps {
            cac.step(step);
            cc.step(step);
        }
        prop_assert_eq!(&cac.log, &cc.log);
    }

    /// Hints may be wrong: the same pages are known, and the tier is as full.
    #[test]
    fn wrong_hints_change_only_what_is_kept(
        capacity in 1u32..7,
        frames in 0usize..5,
        steps in steps(24, 300),
        lies in any::<u64>(),
    ) {
        for name in ["cac", "cc"] {
            let built = || policy::build(name, &options(capacity, CacConfig::default()));
            let mut told = Rig::new(Boxed(built().expect("known")), capacity, frames);
            let mut lied_to = Rig::new(Boxed(built().expect("known")), capacity, frames);
            for (at, step) in (0u64..).zip(&steps) {
                told.step(*step);
                let wrong = thermocline_core::hash::mix(lies, at);
                lied_to.step(match *step {
                    Step::Read(index, _) => Step::Read(
                        index,
                        HintSet::UNKNOWN
                            .with(hint_type::OBJECT, wrong as u32)
                            .with(hint_type::REQUEST, (wrong >> 40) as u32 % 9),
                    ),
                    other => other,
                });
                prop_assert_eq!(told.pool.len(), lied_to.pool.len());
                prop_assert!(lied_to.slots.resident() <= capacity);
            }
        }
    }
}

/// A policy by name.
struct Boxed(Box<dyn TierPolicy>);

impl TierPolicy for Boxed {
    thermocline_core::pass_on!(0: name, on_request, on_aside, decide, surplus, on_admit, on_found,
        on_remove, on_trim, on_pool_hits, on_pool, on_reserve, on_time, on_written, dirty_pages,
        keeps_outdated, on_dirty, on_clean, write_buffer, is_buffered, is_synchronous, worth,
        taught, learned, bytes, bytes_full, assert_invariants);
}

fn counted(reads: u32, writes: u32, logical: u32) -> CacCounts {
    CacCounts {
        reads,
        writes,
        logical,
    }
}

/// Equations 6.1 to 6.6 by hand.
#[test]
fn estimates_and_benefit_by_hand() {
    let measured = Measured {
        on_flash: counted(4, 2, 9),
        off_flash: counted(6, 1, 20),
    };
    let twice = measured.estimates(2.0, 2.0);
    assert_eq!((twice.reads_always, twice.reads_never), (16.0, 8.0));
    assert_eq!((twice.writes_always, twice.writes_never), (4.0, 2.0));
    let costs = thesis_costs();
    assert_eq!(
        twice.benefit(&costs),
        8.0 * 70.0 - 16.0 + 2.0 * 50.0 - 4.0 * 3.0
    );
    let plain = measured.estimates(1.0, 1.0).benefit(&costs);
    assert_eq!(plain, 10.0 * 69.0 + 3.0 * 47.0, "equation 6.1");
    let apart = measured.estimates(2.0, 1.0);
    assert_eq!((apart.reads_always, apart.reads_never), (16.0, 8.0));
    assert_eq!((apart.writes_always, apart.writes_never), (3.0, 3.0));
    // A page that only flash makes busy: read ten times there, a fiftieth or a hundredth of that
    // in DRAM.
    let hot = Measured {
        on_flash: counted(10, 0, 12),
        off_flash: counted(0, 0, 500),
    };
    assert_eq!(hot.estimates(50.0, 50.0).benefit(&costs), 0.2 * 70.0 - 10.0);
    assert_eq!(
        hot.estimates(100.0, 100.0).benefit(&costs),
        0.1 * 70.0 - 10.0
    );
    for alpha in [f64::MIN_POSITIVE, 1e-15, 1e15, 1e300] {
        assert!(!measured.estimates(alpha, alpha).benefit(&costs).is_nan());
    }
    assert_eq!(Measured::default().estimates(7.0, 7.0).benefit(&costs), 0.0);
}

/// §6.4.2 on one page, step by step: read at flash cost it misses five times as often.
#[test]
fn alpha_is_measured_by_group() {
    let options = options(4, from_the_start());
    let mut rig = Rig::new(Cac::new(&options), 4, 1).announced();
    rig.read(1);
    (0..9).for_each(|_| rig.read(1));
    assert_eq!(rig.policy.alpha(page(1)), 1.0, "nothing was counted");
    rig.read(2);
    assert!(rig.holds(1), "it left the pool and a slot was free");
    assert_eq!(rig.policy.alpha(page(1)), 1.0, "m_S is undefined");
    rig.read(1);
    rig.read(1);
    rig.read(3);
    assert_eq!(rig.policy.alpha(page(1)), 0.5 / 0.1, "1 of 2 and 1 of 10");
    let measured = rig.policy.measured(page(1)).expect("known");
    assert_eq!(measured.on_flash, counted(1, 0, 2));
    assert_eq!(measured.off_flash, counted(1, 0, 10));
    let expected = (1.0 + 1.0 / 5.0) * 70.0 - (1.0 + 5.0);
    assert_eq!(rig.policy.benefit(page(1)), expected);
    assert_eq!(rig.policy.groups(), 2, "page 1, and those hardly read");
}

/// A page of the write-back reserve is served by flash: its requests count there.
#[test]
fn requests_from_the_reserve_are_flashs() {
    let options = options(4, from_the_start());
    let mut rig = Rig::new(Cac::new(&options), 4, 1).announced();
    rig.policy.on_reserve(page(1), true);
    rig.physical(1, Op::Read, Opportunity::Read);
    rig.policy.on_pool_hits(page(1), 4);
    rig.policy.on_reserve(page(1), false);
    rig.physical(1, Op::Read, Opportunity::Read);
    rig.policy.on_pool_hits(page(1), 2);
    let measured = rig.policy.measured(page(1)).expect("known");
    assert_eq!(measured.on_flash, counted(1, 0, 5));
    assert_eq!(measured.off_flash, counted(1, 0, 3));
    // It is remembered while it is there, however many others come.
    rig.policy.on_reserve(page(1), true);
    for index in 100..200 {
        rig.physical(index, Op::Read, Opportunity::Read);
    }
    assert!(rig.policy.measured(page(1)).is_some());
    assert!(rig.policy.measured(page(100)).is_none());
}

/// §6.5.3: under `cc` a hot page stays on flash and bounces, under `cac` it goes back to DRAM.
#[test]
fn a_page_that_only_flash_makes_busy_leaves_it() {
    let leaves = |mut rig: Rig<Cac>| {
        rig = rig.announced();
        // Hot in DRAM for long, then by chance on flash, where it is read physically each time.
        rig.read(1);
        (0..2000).for_each(|_| rig.read(1));
        rig.read(2);
        for _ in 0..12 {
            rig.read(1);
            rig.read(2);
        }
        // A newcomer of modest worth.
        (0..3).for_each(|_| rig.physical(3, Op::Write, Opportunity::Clean));
        (!rig.holds(1), rig.policy.benefit(page(1)))
    };
    let options = options(2, from_the_start());
    let (left, benefit) = leaves(Rig::new(Cac::new(&options), 2, 1));
    assert!(left && benefit < 0.0, "cac: {benefit}");
    let (left, benefit) = leaves(Rig::new(Cac::cc(&options), 2, 1));
    assert!(!left && benefit > 0.0, "cc: {benefit}");
}

/// §6.4.3: only random reads count.
#[test]
fn sequential_reads_count_for_nothing() {
    let mut rig = Rig::new(Cac::new(&options(1, from_the_start())), 1, 0);
    let sequential = RequestType::SequentialRead.value();
    rig.read(1);
    rig.hints = HintSet::UNKNOWN.with(hint_type::REQUEST, sequential);
    (0..5).for_each(|_| rig.read(2));
    assert!(rig.holds(1) && !rig.holds(2));
    assert_eq!(rig.policy.benefit(page(2)), 0.0);
    assert_eq!(rig.policy.benefit(page(1)), 69.0);
    rig.hints = HintSet::UNKNOWN;
    rig.read(2);
    assert!(rig.holds(1), "equal benefits: the newcomer stays out");
    rig.read(2);
    assert!(rig.holds(2));
}

/// §6.4: what is made dirty in DRAM frees its clean copy, and comes back when it is cleaned.
#[test]
fn dirtied_pages_leave_and_cleaned_ones_come() {
    let mut rig = Rig::new(Cac::new(&options(2, from_the_start())), 2, 2);
    for index in [1, 2, 3] {
        rig.read(index);
    }
    assert!(rig.holds(1), "evicted from the pool into a free slot");
    rig.read(1);
    rig.write(1);
    assert!(!rig.holds(1), "its copy was outdated");
    rig.clean(1);
    assert!(rig.holds(1));
    let measured = rig.policy.measured(page(1)).expect("known");
    assert_eq!(measured.on_flash, counted(1, 0, 1));
    assert_eq!(measured.off_flash, counted(1, 1, 1), "written while off");
    let pooled = Decision::Refuse(Refusal::Opportunity);
    assert_eq!(rig.log.first(), Some(&Decision::Admit), "no pool known yet");
    assert!(rig.log.contains(&pooled), "then never on a read");
}

/// §6.4.4, §6.5.1: a bounded outqueue, the oldest entry leaves first; memory is bounded too.
#[test]
fn the_outqueue_is_bounded() {
    for (per_page, bound) in [(0, 8), (1, 100), (5, 500)] {
        let config = CacConfig {
            outqueue_per_page: per_page,
            ..from_the_start()
        };
        let mut rig = Rig::new(Cac::new(&options(100, config)), 100, 0);
        // Warm pages on flash, then strangers read once.
        for _ in 0..3 {
            (0..100).for_each(|index| rig.read(index));
        }
        for index in 1000..20_000 {
            rig.read(index);
            assert!(rig.policy.absent() <= bound);
        }
        assert_eq!(rig.policy.absent(), bound);
        let oldest = 20_000 - u64::from(bound);
        assert!(rig.policy.measured(page(oldest)).is_some());
        assert!(rig.policy.measured(page(oldest - 1)).is_none());
        let full = rig.policy.bytes_full();
        let found = rig.policy.bytes();
        assert!(found <= 2 * full + 20_000, "{found} of {full}");
        rig.policy.assert_invariants(&rig.slots);
    }
}

/// What was hot long ago makes way, however often it was read.
#[test]
fn counts_fade() {
    let rounds_until_2_is_in = |fade_requests| {
        let config = CacConfig {
            fade_requests,
            ..CacConfig::default()
        };
        let mut rig = Rig::new(Cac::new(&options(1, config)), 1, 0);
        (0..1000).for_each(|_| rig.read(1));
        (1..3000).find(|_| {
            rig.read(2);
            rig.holds(2)
        })
    };
    assert_eq!(rounds_until_2_is_in(u64::MAX), Some(1001));
    let faded = rounds_until_2_is_in(50).expect("it comes in");
    assert!(faded < 60, "{faded}");
}

/// No pinned page is replaced, and every other is found.
#[test]
fn pinned_pages_stay() {
    let mut rig = Rig::new(Cac::new(&options(3, from_the_start())), 3, 0);
    for index in 0..3 {
        rig.read(index);
        let slot = rig.slots.find(page(index)).expect("room");
        rig.slots.start_write(slot);
        rig.slots
            .end_write(slot, rig.slots.generation(slot), Some(BlockId(slot.0)));
        rig.slots.pin(slot);
    }
    (0..3).for_each(|_| rig.read(9));
    assert_eq!(rig.log.last(), Some(&Decision::Refuse(Refusal::Pinned)));
    rig.slots.unpin(SlotId(2));
    rig.read(9);
    assert_eq!(rig.log.last(), Some(&Decision::Replace(SlotId(2))));
    rig.policy.assert_invariants(&rig.slots);
}

fn built(name: &str, capacity: u32) -> Boxed {
    let options = options(capacity, CacConfig::default());
    Boxed(policy::build(name, &options).expect("a known policy"))
}

/// Every policy under a pool, with everything that can happen.
const JOINT: [&str; 12] = [
    "cac",
    "cc",
    "lc",
    "mv-fifo",
    "clean-write",
    "dual-write",
    "tac-mixed",
    "tac-blocks",
    "priority",
    "value",
    "value-time",
    "auto",
];

proptest! {
    #[test]
    fn any_stream_keeps_joint_policies_sane(
        capacity in 1u32..70,
        frames in 0usize..5,
        steps in steps(120, 300),
    ) {
        for name in JOINT {
            let run = || {
                let mut rig = Rig::new(built(name, capacity), capacity, frames);
                steps.iter().for_each(|step| rig.step(*step));
                rig.log
            };
            prop_assert_eq!(run(), run(), "same input, same output: {}", name);
        }
    }

    /// Beside one queue of versions, the newest last; an older version of a page is invalid.
    #[test]
    fn mv_fifo_equals_the_plainest_code(
        capacity in 1u32..7,
        writes in prop::collection::vec((0u64..12, any::<bool>()), 1..200),
    ) {
        let mut rig = Rig::new(built("mv-fifo", capacity), capacity, 0);
        let mut model: Vec<Option<u64>> = Vec::new();
        for (index, write) in writes {
            let old = model.iter().position(|version| *version == Some(index));
            if write || old.is_none() {
                if let Some(old) = old {
                    model[old] = None;
                }
                model.push(Some(index));
            }
            if model.len() > capacity as usize {
                model.remove(0);
            }
            let model: Vec<u64> = model.iter().flatten().copied().collect();
            rig.step(if write { Step::Write(index) } else { Step::Read(index, HintSet::UNKNOWN) });
            prop_assert_eq!(rig.slots.resident() as usize, model.len());
            prop_assert!(model.iter().all(|index| rig.holds(*index)));
        }
    }

    /// `lc` and `dual-write` keep what LRU-2 keeps, `clean-write` when nothing is written.
    #[test]
    fn lazy_cleaning_is_lru_2_of_another_stream(
        capacity in 1u32..7,
        steps in prop::collection::vec((0u64..14, any::<bool>()), 1..200),
    ) {
        let rigs = |name| Rig::new(built(name, capacity), capacity, 0);
        let mut lru2 = rigs("lru2");
        let mut others = ["lc", "dual-write", "clean-write"].map(rigs);
        for (index, write) in steps {
            let step = |write: bool| match write {
                true => Step::Write(index),
                false => Step::Read(index, HintSet::UNKNOWN),
            };
            lru2.step(step(write));
            for rig in &mut others {
                if rig.policy.name() != "clean-write" {
                    rig.step(step(write));
                    prop_assert_eq!(&rig.log, &lru2.log);
                } else if !write {
                    rig.step(step(write));
                }
            }
        }
    }
}

/// §6.5: who takes pages when, under a pool; what becomes of dirty ones.
#[test]
fn when_and_what_the_rivals_admit() {
    use policy::DirtyPages::{Around, Back, Both};
    let taken = [
        ("cac", [false, true, true, true], Back, false),
        ("cc", [false, true, true, true], Back, false),
        ("lc", [false, true, true, true], Back, false),
        ("mv-fifo", [false, true, true, true], Back, true),
        ("dual-write", [false, true, true, true], Both, false),
        ("clean-write", [false, false, true, false], Around, false),
        ("tac", [true, false, false, false], Back, true),
        ("tac-blocks", [true, false, false, false], Back, true),
        ("tac-mixed", [true, false, false, true], Back, true),
        ("priority", [true, true, false, true], Back, true),
    ];
    for (name, expected, dirty, keeps) in taken {
        let mut rig = Rig::new(built(name, 8), 8, 1).announced();
        let found = [
            Opportunity::Read,
            Opportunity::Write,
            Opportunity::PoolEviction,
            Opportunity::Clean,
        ]
        .map(|why| {
            let access = rig.access(1, Op::Write);
            rig.policy.on_request(&access, None);
            rig.policy.decide(&access, why, &rig.slots) == Decision::Admit
        });
        assert_eq!(found, expected, "{name}");
        assert_eq!(rig.policy.0.dirty_pages(), dirty, "{name}");
        assert_eq!(rig.policy.keeps_outdated(), keeps, "{name}");
    }
}

/// TAC §4.4, dirty pages among clean ones: written regions are warm, and their pages come in.
#[test]
fn tac_mixed_lets_warm_dirty_pages_in() {
    let options = PolicyOptions {
        costs: Costs {
            base_random_read: 70_000.0,
            base_random_write: 50_000.0,
            flash_read: 1000.0,
            flash_write: 3000.0,
            ..Costs::default()
        },
        ..PolicyOptions::new(1)
    };
    let random = HintSet::UNKNOWN.with(hint_type::REQUEST, RequestType::Read.value());
    for (mixed, heat) in [(true, 94.0), (false, 0.0)] {
        let policy = match mixed {
            true => policy::Tac::mixed(&options),
            false => policy::Tac::new(&options),
        };
        let mut rig = Rig::new(policy, 1, 0);
        rig.hints = random;
        rig.read(1);
        assert_eq!(rig.policy.temperature(page(1)), 69.0);
        rig.write(1000);
        assert!(!rig.holds(1000), "47 against 69");
        rig.write(1001);
        assert_eq!(rig.policy.temperature(page(1000)), heat, "W_D - W_S each");
        assert_eq!(rig.holds(1001), mixed);
    }
}

/// TAC §3.2: what is replaced is a block, in order; the next one is the coldest then.
#[test]
fn tac_blocks_replaces_block_by_block() {
    let block_pages = 4;
    let config = policy::TacConfig {
        block_pages,
        region_pages: 8,
        refreshes: 100,
        ageing_requests: 100,
        ..policy::TacConfig::default()
    };
    let options = PolicyOptions {
        tac: config,
        ..PolicyOptions::new(18)
    };
    let mut rig = Rig::new(policy::Tac::with_blocks(&options), 18, 0);
    rig.hints = HintSet::UNKNOWN.with(hint_type::REQUEST, RequestType::Read.value());
    let mut state = 7u64;
    let mut temperatures = Vec::new();
    while rig.evicted.len() < 400 {
        state = thermocline_core::hash::mix(state, 3);
        let index = (state % 40) * (state / 64 % 3) + state / 4096 % 5;
        let opened = rig.policy.blocks_opened();
        temperatures.clear();
        for block in 0..5u32 {
            let slots_of = (4 * block..(4 * block + 4).min(18)).map(SlotId);
            let pages = slots_of.filter_map(|slot| rig.slots.page(slot));
            let heats: Vec<f32> = pages.map(|page| rig.policy.temperature(page)).collect();
            temperatures.push(heats.iter().sum::<f32>() / heats.len().max(1) as f32);
        }
        rig.step(Step::Read(index, rig.hints));
        if rig.policy.blocks_opened() > opened {
            let (slot, _) = rig.evicted[rig.evicted.len() - 1];
            let coldest = temperatures.iter().copied().fold(f32::INFINITY, f32::min);
            let found = temperatures[(slot.0 / block_pages) as usize];
            // The request itself may have warmed a page of it.
            let saving = (options.costs.random_saving() / 1000.0) as f32;
            assert!(found <= coldest + saving, "{found} {temperatures:?}");
        }
    }
    let mut runs = 0u64;
    let mut last: Option<SlotId> = None;
    for (slot, _) in &rig.evicted {
        let goes_on = last.is_some_and(|last| last.0 + 1 == slot.0 && slot.0 % block_pages > 0);
        if !goes_on {
            let ended = last.is_none_or(|last| last.0 % block_pages == 3 || last.0 == 17);
            assert!(ended && slot.0 % block_pages == 0, "whole blocks only");
            runs += 1;
        }
        last = Some(*slot);
    }
    assert_eq!(runs, rig.policy.blocks_opened());
    assert!(runs >= 400 / u64::from(block_pages), "{runs}");
}

/// A page in use when its block is replaced stays, and the block ends without it.
#[test]
fn tac_blocks_passes_over_pinned_pages() {
    let config = policy::TacConfig {
        block_pages: 2,
        region_pages: 8,
        ..policy::TacConfig::default()
    };
    let options = PolicyOptions {
        tac: config,
        ..PolicyOptions::new(4)
    };
    let mut rig = Rig::new(policy::Tac::with_blocks(&options), 4, 0);
    rig.hints = HintSet::UNKNOWN.with(hint_type::REQUEST, RequestType::Read.value());
    (0..4).for_each(|index| rig.read(8 * index));
    for slot in (0..4).map(SlotId) {
        rig.slots.start_write(slot);
        rig.slots
            .end_write(slot, rig.slots.generation(slot), Some(BlockId(slot.0)));
    }
    rig.slots.pin(SlotId(1));
    for newcomer in [100, 200, 300] {
        (0..4).for_each(|_| rig.read(newcomer));
        rig.policy.assert_invariants(&rig.slots);
    }
    let slots: Vec<u32> = rig.evicted.iter().map(|e| e.0.0).collect();
    assert_eq!(slots, [0, 2, 3]);
    assert_eq!(rig.policy.blocks_opened(), 2);
    (0..4).for_each(|slot| {
        if slot != 1 {
            let slot = SlotId(slot);
            rig.slots.start_write(slot);
            rig.slots
                .end_write(slot, rig.slots.generation(slot), Some(BlockId(slot.0)));
            rig.slots.pin(slot);
        }
    });
    (0..9).for_each(|_| rig.read(400));
    assert_eq!(rig.log.last(), Some(&Decision::Refuse(Refusal::Pinned)));
    rig.policy.assert_invariants(&rig.slots);
}

/// Pages may leave out of turn, as when the tier shrinks: the order of blocks survives it.
#[test]
fn tac_blocks_survives_evictions_out_of_turn() {
    let config = policy::TacConfig {
        block_pages: 4,
        ..policy::TacConfig::default()
    };
    let options = PolicyOptions {
        tac: config,
        ..PolicyOptions::new(12)
    };
    let mut rig = Rig::new(policy::Tac::with_blocks(&options), 12, 0);
    rig.hints = HintSet::UNKNOWN.with(hint_type::REQUEST, RequestType::Read.value());
    for round in 0..400u64 {
        let index = thermocline_core::hash::mix(3, round) % 20 * 32;
        rig.read(index);
        let leaves = rig.slots.page(SlotId((round % 12) as u32));
        if let Some(page) = leaves.filter(|_| round % 3 == 0) {
            rig.remove(page.index, Removal::Evicted);
        }
        rig.policy.assert_invariants(&rig.slots);
    }
    assert!(rig.policy.blocks_opened() > 5);
}
