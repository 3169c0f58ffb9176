//! CLIC against the thesis' own words, executed as plainly as can be, and on streams made for it.

use proptest::prelude::*;
use std::collections::{BTreeMap, VecDeque};
use thermocline_core::noise::NoiseHints;
use thermocline_core::policy::{
    self, Access, ClicConfig, Decision, LearnedHintSet, Op, Opportunity, PolicyOptions, Removal,
    TierPolicy, Ties,
};
use thermocline_core::tier::SlotTable;
use thermocline_core::{HintSet, ObjectId, PageId};

/// A tier whose flash is always ready.
struct Tier {
    policy: Box<dyn TierPolicy>,
    slots: SlotTable,
    number: u64,
    read_hits: u64,
}

/// What became of a request.
#[derive(Debug, PartialEq)]
enum Outcome {
    Hit,
    Admitted(Option<PageId>),
    Refused,
}

impl Tier {
    fn new(name: &str, options: &PolicyOptions) -> Self {
        Self {
            policy: policy::build(name, options).expect("a known policy"),
            slots: SlotTable::new(options.capacity),
            number: 0,
            read_hits: 0,
        }
    }

    fn request(&mut self, index: u64, op: Op, hints: HintSet) -> Outcome {
        self.number += 1;
        let access = Access {
            page: page(index),
            op,
            hints,
            number: self.number,
        };
        let resident = self.slots.find(access.page);
        self.policy.on_request(&access, resident);
        if resident.is_some() {
            self.read_hits += u64::from(op == Op::Read);
            return Outcome::Hit;
        }
        let why = match op {
            Op::Read => Opportunity::Read,
            Op::Write => Opportunity::Write,
        };
        let evicted = match self.policy.decide(&access, why, &self.slots) {
            Decision::Refuse(_) => return Outcome::Refused,
            Decision::Admit => None,
            Decision::Replace(slot) => {
                let page = self.slots.remove(slot);
                self.policy.on_remove(page, slot, Removal::Evicted);
                Some(page)
            }
        };
        let slot = self.slots.admit(access.page).expect("there is room");
        self.policy.on_admit(&access, slot);
        Outcome::Admitted(evicted)
    }

    fn trim(&mut self, first: u64) {
        let object = page(0).object;
        for slot in self.slots.in_range(object, first, u64::MAX) {
            let page = self.slots.remove(slot);
            self.policy.on_remove(page, slot, Removal::Trimmed);
        }
        self.policy.on_trim(object, first);
    }

    fn learned(&self) -> Vec<LearnedHintSet> {
        self.policy.learned().expect("it learns").hint_sets
    }
}

fn page(index: u64) -> PageId {
    PageId::new(ObjectId(1), index)
}

fn hints(object: u32) -> HintSet {
    HintSet::UNKNOWN.with(0, object)
}

fn options(capacity: u32, clic: ClicConfig) -> PolicyOptions {
    PolicyOptions {
        clic,
        ..PolicyOptions::new(capacity)
    }
}

fn window(window: u64) -> ClicConfig {
    ClicConfig {
        window,
        r: 1.0,
        ..ClicConfig::default()
    }
}

/// Eight requests, counted by hand. A is requested five times (1, 3, 5, 6, 7); the pages of 1 and
/// 3 are read next, 2 and 3 requests later. B is requested three times (2, 4, 8); the page of 2
/// is written next, which earns nothing, that of 4 is read 3 requests later.
#[test]
fn statistics_by_hand() {
    let (a, b) = (hints(1), hints(2));
    let stream = [
        (1, Op::Read, a),
        (2, Op::Read, b),
        (1, Op::Read, a),
        (2, Op::Write, b),
        (3, Op::Read, a),
        (1, Op::Read, a),
        (2, Op::Read, a),
        (4, Op::Read, b),
    ];
    for name in ["clic", "clic-topk"] {
        for capacity in [1, 2, 4] {
            let mut tier = Tier::new(name, &options(capacity, window(8)));
            for (index, op, hints) in stream {
                tier.request(index, op, hints);
            }
            assert!(
                tier.learned().is_empty(),
                "nothing before the window closes"
            );
            tier.request(9, Op::Read, a);
            let learned = tier.learned();
            assert_eq!(learned.len(), 2);
            let [first, second] = [learned[0], learned[1]];
            assert_eq!((first.hints, first.requests, first.rereads), (a, 5.0, 2.0));
            assert_eq!((first.distance, first.priority), (2.5, 0.4 / 2.5));
            assert_eq!(
                (second.hints, second.requests, second.rereads),
                (b, 3.0, 1.0)
            );
            assert_eq!((second.distance, second.priority), (3.0, 1.0 / 3.0 / 3.0));
        }
    }
}

/// What one instance learned of every fourth page another one begins with: the same shares of
/// requests, distances four times as long.
#[test]
fn another_instance_teaches() {
    let (a, b) = (hints(1), hints(2));
    let mut tier = Tier::new("clic", &options(4, window(8)));
    for (index, object) in [
        (1, a),
        (2, b),
        (1, a),
        (3, b),
        (1, a),
        (2, b),
        (4, a),
        (5, b),
        (6, a),
    ] {
        tier.request(index, Op::Read, object);
    }
    let learned = tier.policy.learned().expect("CLIC learns");
    let mut taught = Tier::new("clic", &options(16, window(1000)));
    taught.policy.taught(&learned, 4.0);
    taught.policy.assert_invariants(&taught.slots);
    let both = learned.hint_sets.iter().zip(taught.learned());
    assert_eq!(both.clone().count(), 2);
    for (teacher, own) in both {
        assert_eq!(own.hints, teacher.hints);
        assert_eq!(
            (own.requests, own.rereads),
            (teacher.requests, teacher.rereads)
        );
        assert_eq!(own.distance, 4.0 * teacher.distance);
        assert_eq!(own.priority, teacher.priority / 4.0);
    }
}

/// §3.2.2: the outqueue forgets what was put there first, and with it the re-reference.
#[test]
fn a_short_outqueue_misses_long_distances() {
    let learned = |outqueue_per_page| {
        let config = ClicConfig {
            outqueue_per_page,
            ..window(4)
        };
        let mut tier = Tier::new("clic", &options(1, config));
        for (index, object) in [(1, 1), (2, 2), (3, 3), (1, 1), (4, 4)] {
            tier.request(index, Op::Read, hints(object));
        }
        tier.learned()
    };
    assert_eq!(learned(2)[0].rereads, 1.0);
    assert!(learned(1).iter().all(|set| set.rereads == 0.0));
}

/// §3.1: the same values from two clients are two hint sets.
#[test]
fn clients_are_told_apart() {
    let mut tier = Tier::new("clic", &options(4, window(40)));
    for i in 0..=40 {
        tier.request(i % 2, Op::Read, hints(1));
        tier.request(100 + i, Op::Read, hints(1).from_client(1));
    }
    let learned = tier.learned();
    assert_eq!(learned.len(), 2);
    assert_eq!(learned[0].hints.client(), 0);
    assert!(learned[0].priority > 0.0 && learned[1].priority == 0.0);
}

/// Equation 3.3 with r = 1/4: a hint set that was not seen shows no benefit.
#[test]
fn priorities_decay() {
    let config = ClicConfig {
        r: 0.25,
        ..window(10)
    };
    let mut tier = Tier::new("clic", &options(4, config));
    let mut priorities = Vec::new();
    for i in 0..31 {
        let (index, object) = if i < 10 { (1, 1) } else { (i, 2) };
        tier.request(index, Op::Read, hints(object));
        if i % 10 == 0 && i > 0 {
            priorities.push(tier.learned()[0].priority);
        }
    }
    // Nine of ten requests, each read again after one.
    assert_eq!(priorities, [0.9, 0.9 * 0.75, 0.9 * 0.75 * 0.75]);
}

/// With r = 1/4 what the window before counted has weight 3/4.
#[test]
fn earlier_windows_count_less() {
    let config = ClicConfig {
        r: 0.25,
        ..window(10)
    };
    let mut tier = Tier::new("clic", &options(4, config));
    for _ in 0..21 {
        tier.request(1, Op::Read, hints(1));
    }
    // First window: N = 10, Nr = 9; second: N = 10, Nr = 10, the first of them from the first.
    let learned = tier.learned()[0];
    assert_eq!((learned.requests, learned.rereads), (17.5, 16.75));
    assert_eq!((learned.distance, learned.priority), (1.0, 16.75 / 17.5));
}

#[derive(Clone, Copy)]
struct Last {
    page: PageId,
    hints: HintSet,
    seq: u64,
}

/// Sections 3.2.2 to 3.2.4, word for word, with scans where CLIC has lists and heaps.
struct Naive {
    capacity: usize,
    config: ClicConfig,
    /// Whether re-references of hint sets that were not requested in the window count (§3.3.1:
    /// not with top-k, which does not track them).
    every: bool,
    cached: Vec<Last>,
    outqueue: VecDeque<(usize, Last)>,
    inserted: usize,
    /// N, Nr, sum of distances in this window.
    counts: BTreeMap<HintSet, [u64; 3]>,
    /// Pr and mean distance in force.
    in_force: BTreeMap<HintSet, (f64, f64)>,
    seq: u64,
    closed: u64,
}

impl Naive {
    fn priority(&self, hints: &HintSet) -> f64 {
        self.in_force.get(hints).map_or(0.0, |found| found.0)
    }

    fn close(&mut self) {
        self.in_force.clear();
        for (hints, [n, nr, distance]) in std::mem::take(&mut self.counts) {
            if nr > 0 {
                let mean = distance as f64 / nr as f64;
                let priority = nr as f64 / n.max(nr) as f64 / mean;
                self.in_force.insert(hints, (priority, mean));
            }
        }
        self.closed += 1;
    }

    fn previous(&mut self, page: PageId) -> Option<Last> {
        if let Some(found) = self.cached.iter().find(|last| last.page == page) {
            return Some(*found);
        }
        let at = self
            .outqueue
            .iter()
            .position(|(_, last)| last.page == page)?;
        self.outqueue.remove(at).map(|(_, last)| last)
    }

    /// A page leaves as many insertions later as the outqueue has places.
    fn put_out(&mut self, last: Last) {
        let places = self.capacity * self.config.outqueue_per_page as usize;
        self.inserted += 1;
        self.outqueue.push_back((self.inserted, last));
        let inserted = self.inserted;
        self.outqueue.retain(|(at, _)| at + places > inserted);
    }

    /// Whether two hint sets have different priorities above 0.
    fn tells_apart(&self) -> bool {
        let priorities = self.in_force.values().map(|found| found.0);
        let mut above: Vec<f64> = priorities.filter(|priority| *priority > 0.0).collect();
        above.sort_by(f64::total_cmp);
        above.dedup();
        above.len() > 1
    }

    fn breaks_tie(&self, victim: &Last) -> bool {
        let mean = self.in_force.get(&victim.hints).map(|found| found.1);
        let due = mean.unwrap_or(self.config.window as f64);
        match self.config.ties {
            _ if self.closed == 0 => true,
            Ties::Refuse => false,
            Ties::Informed if self.tells_apart() => false,
            Ties::Admit => true,
            Ties::Informed | Ties::Overdue => (self.seq - victim.seq) as f64 > due,
        }
    }

    fn request(&mut self, index: u64, op: Op, hints: HintSet) -> Outcome {
        if self.seq > 0 && self.seq.is_multiple_of(self.config.window) {
            self.close();
        }
        self.seq += 1;
        let new = Last {
            page: page(index),
            hints,
            seq: self.seq,
        };
        if let Some(last) = self.previous(new.page) {
            let tracked = self.every || self.counts.contains_key(&last.hints);
            if op == Op::Read && tracked {
                let counts = self.counts.entry(last.hints).or_default();
                counts[1] += 1;
                counts[2] += self.seq - last.seq;
            }
        }
        self.counts.entry(hints).or_default()[0] += 1;
        if let Some(cached) = self.cached.iter_mut().find(|last| last.page == new.page) {
            *cached = new;
            return Outcome::Hit;
        }
        if self.cached.len() < self.capacity {
            self.cached.push(new);
            return Outcome::Admitted(None);
        }
        let key = |last: &Last| (self.priority(&last.hints), last.seq);
        let least = |a: &Last, b: &Last| key(a).partial_cmp(&key(b)).expect("numbers");
        let victim = *self.cached.iter().min_by(|a, b| least(a, b)).expect("full");
        let (lowest, priority) = (self.priority(&victim.hints), self.priority(&hints));
        if priority > lowest || (priority == lowest && self.breaks_tie(&victim)) {
            self.cached.retain(|last| last.page != victim.page);
            self.put_out(victim);
            self.cached.push(new);
            return Outcome::Admitted(Some(victim.page));
        }
        self.put_out(new);
        Outcome::Refused
    }
}

proptest! {
    #[test]
    fn equals_the_plain_algorithm(
        capacity in prop::sample::select(vec![1u32, 2, 5, 12]),
        window in 3u64..60,
        ties in prop::sample::select(
            vec![Ties::Refuse, Ties::Informed, Ties::Admit, Ties::Overdue],
        ),
        name in prop::sample::select(vec!["clic", "clic-topk"]),
        requests in prop::collection::vec(
            (prop_oneof![0u64..6, 0u64..60], prop::bool::weighted(0.3), 0u32..6, 1u32..3),
            1..400),
    ) {
        // With as many counters as hint sets, the most frequent ones are all.
        let config = ClicConfig { ties, k: 12, ..self::window(window) };
        let mut tier = Tier::new(name, &options(capacity, config));
        let mut naive = Naive {
            capacity: capacity as usize,
            config,
            every: name == "clic",
            cached: Vec::new(),
            outqueue: VecDeque::new(),
            inserted: 0,
            counts: BTreeMap::new(),
            in_force: BTreeMap::new(),
            seq: 0,
            closed: 0,
        };
        for (index, write, object, request) in requests {
            let hints = hints(object).with(2, request);
            let op = if write { Op::Write } else { Op::Read };
            let expected = naive.request(index, op, hints);
            prop_assert_eq!(tier.request(index, op, hints), expected);
            tier.policy.assert_invariants(&tier.slots);
        }
    }

    #[test]
    fn stays_sane_whatever_is_forgotten(
        capacity in prop::sample::select(vec![1u32, 3, 20]),
        window in 2u64..40,
        (k, types, sets_max) in (1u32..5, 1u32..4, 1u32..9),
        r in prop::sample::select(vec![1.0, 0.3]),
        requests in prop::collection::vec(
            (0u64..40, any::<bool>(), 0u32..5, 0u32..5, prop::bool::weighted(0.05)), 1..300),
    ) {
        for name in ["clic", "clic-topk", "clic-hybrid"] {
            let config = ClicConfig { window, k, types, sets_max, r, ..ClicConfig::default() };
            let run = || {
                let mut tier = Tier::new(name, &options(capacity, config));
                let mut log = Vec::new();
                for &(index, write, object, request, trim) in &requests {
                    if trim {
                        tier.trim(index);
                    }
                    let op = if write { Op::Write } else { Op::Read };
                    log.push(tier.request(index, op, hints(object).with(2, request)));
                    tier.policy.assert_invariants(&tier.slots);
                    prop_assert!(tier.slots.resident() <= capacity);
                    let sets = tier.learned();
                    let worthy = sets.iter().filter(|set| set.priority > 0.0);
                    prop_assert!(name == "clic" || worthy.count() <= k as usize);
                }
                Ok(log)
            };
            prop_assert_eq!(run()?, run()?);
        }
    }
}

/// Six tables, each with a loop of its own over 100 pages, and reads of two kinds: only what is
/// read by request type 2 is read again. All other hint types are noise.
fn telling_stream(length: u64) -> impl Iterator<Item = (u64, HintSet)> {
    (0..length).map(|i| {
        let table = (i / 2 % 6) as u32;
        let hints = hints(table + 1);
        match i % 2 {
            0 => (1_000_000 + i, hints.with(2, 1)),
            _ => (u64::from(table) * 1000 + i / 12 % 100, hints.with(2, 2)),
        }
    })
}

fn read_hits(name: &str, options: &PolicyOptions, noise: usize) -> u64 {
    let noise = NoiseHints::new(5, 5, noise, 10).expect("fits");
    let mut tier = Tier::new(name, options);
    for (index, hints) in telling_stream(100_000) {
        let hints = noise.add(tier.number, &hints);
        tier.request(index, Op::Read, hints);
    }
    tier.policy.assert_invariants(&tier.slots);
    tier.read_hits
}

#[test]
fn learns_where_hints_tell() {
    let options = options(600, window(4000));
    assert_eq!(
        read_hits("lru", &options, 0),
        0,
        "600 pages of 1200 requests"
    );
    // Half of the requests can hit; nothing is known in the first window (the first two).
    for (name, at_least) in [
        ("clic", 43_000),
        ("clic-topk", 43_000),
        ("clic-hybrid", 38_000),
    ] {
        let hits = read_hits(name, &options, 0);
        assert!(hits > at_least, "{name}: {hits}");
    }
}

/// Without hints all pages are equal: refusing every tie keeps the pages of the first window for
/// good, when nobody asks for them any more.
#[test]
fn ties_do_not_freeze_a_tier_without_hints() {
    let hits = |ties| {
        let config = ClicConfig {
            ties,
            ..window(1000)
        };
        let mut tier = Tier::new("clic", &options(100, config));
        for number in 0..20_000_u64 {
            let hot = if number < 2000 { 0 } else { 1000 };
            tier.request(hot + number % 100, Op::Read, HintSet::UNKNOWN);
        }
        tier.read_hits
    };
    assert!(hits(Ties::Refuse) < 2000, "the old pages stay");
    assert_eq!(hits(Ties::Informed), hits(Ties::Overdue));
    assert!(hits(Ties::Informed) > 16_000, "{}", hits(Ties::Informed));
}

/// Where hints tell pages apart the default is figure 3.7's: a page that is overdue stays, as the
/// one that would replace it is worth no more.
#[test]
fn ties_are_refused_where_hints_tell() {
    let admissions = |config: ClicConfig| {
        let mut tier = Tier::new("clic", &options(100, config));
        let admitted = (0..20_000_u64).filter(|number| {
            let draw = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40;
            let (index, hints) = match number % 2 {
                0 => (draw % 150, hints(1)),
                _ => (1000 + draw % 400, hints(2)),
            };
            let outcome = tier.request(index, Op::Read, hints);
            matches!(outcome, Outcome::Admitted(_))
        });
        admitted.count()
    };
    let with = |ties| {
        let config = window(1000);
        admissions(ClicConfig { ties, ..config })
    };
    assert_eq!(admissions(window(1000)), with(Ties::Refuse));
    assert!(with(Ties::Overdue) > 2 * with(Ties::Refuse));
}

/// §3.4.4 and §5.3: noise dilutes the frequent hint sets until top-k loses them; hybrid looks at
/// other hint types.
#[test]
fn hybrid_bears_noise_that_top_k_does_not() {
    let config = ClicConfig {
        k: 24,
        types: 2,
        ties: Ties::Admit,
        ..window(4000)
    };
    let options = options(600, config);
    let [quiet, noisy] = [0, 3].map(|types| read_hits("clic-topk", &options, types));
    assert!(
        noisy < quiet / 2,
        "top-k: {quiet} without noise, {noisy} with"
    );
    let [quiet, noisy] = [0, 3].map(|types| read_hits("clic-hybrid", &options, types));
    assert!(
        noisy > quiet * 9 / 10,
        "hybrid: {quiet} without noise, {noisy} with"
    );
}

#[test]
fn hybrid_says_which_hint_types_it_looks_at() {
    let config = ClicConfig {
        types: 1,
        ..window(4000)
    };
    let mut tier = Tier::new("clic-hybrid", &options(600, config));
    let noise = NoiseHints::new(5, 5, 1, 10).expect("fits");
    for (index, hints) in telling_stream(12_100) {
        let hints = noise.add(tier.number, &hints);
        tier.request(index, Op::Read, hints);
    }
    let learned = tier.policy.learned().expect("it learns");
    let used: Vec<usize> = learned
        .hint_types
        .iter()
        .filter(|t| t.used)
        .map(|t| t.position)
        .collect();
    assert_eq!(used, [2], "{:?}", learned.hint_types);
    assert_eq!(
        learned.hint_types.len(),
        3,
        "types without values are not ranked"
    );
    // One priority for all tables: the chosen type alone tells hint sets apart.
    assert_eq!(learned.hint_sets[0].hints, HintSet::UNKNOWN.with(2, 2));
    assert!(learned.hint_sets[0].resident > 500);
}

/// Without hints every page has the same priority; ties decide, and CLIC is no worse than LRU.
#[test]
fn without_hints_it_is_about_lru() {
    let zipf = NoiseHints::new(3, 0, 1, 5000).expect("fits");
    let hits = |name: &str| {
        let mut tier = Tier::new(name, &PolicyOptions::new(500));
        for number in 0..100_000 {
            let index = zipf.add(number, &HintSet::UNKNOWN).get(0);
            tier.request(u64::from(index), Op::Read, HintSet::UNKNOWN);
        }
        tier.read_hits
    };
    let (clic, lru) = (hits("clic"), hits("lru"));
    assert!(clic >= lru, "CLIC {clic}, LRU {lru}");
}

/// §3.4.1: what is charged for metadata is what is held when all is full.
#[test]
fn metadata_is_known_beforehand() {
    for name in ["clic", "clic-topk", "clic-hybrid"] {
        let options = options(1000, window(4000));
        let charged = policy::metadata_bytes(name, &options).expect("a known policy");
        let mut tier = Tier::new(name, &options);
        for i in 0..20_000 {
            tier.request(i, Op::Read, HintSet::UNKNOWN);
        }
        let held = tier.policy.bytes();
        // Counters, groups and numbers of hint sets are not in it; there is one hint set.
        assert!(
            held <= charged + 4000,
            "{name}: charged {charged}, held {held}"
        );
        assert!(held > charged / 2, "{name}: charged {charged}, held {held}");
    }
}

/// Beyond `sets_max` hint sets are not told apart, and nothing breaks.
#[test]
fn hint_sets_are_bounded() {
    let config = ClicConfig {
        sets_max: 10,
        ..window(100)
    };
    let mut tier = Tier::new("clic", &options(50, config));
    for i in 0..5000u64 {
        tier.request(i % 80, Op::Read, hints((i % 40) as u32));
    }
    tier.policy.assert_invariants(&tier.slots);
    assert!(tier.learned().len() <= 10);
}

/// A page that was requested and refused, and comes by warming after another one did.
#[test]
fn what_warming_brings_is_in_order() {
    for name in ["clic", "clic-topk", "clic-hybrid", "dp-clic"] {
        let mut tier = Tier::new(name, &options(4, window(8)));
        let quiet = |index, number| Access {
            page: page(index),
            op: Op::Read,
            hints: HintSet::UNKNOWN,
            number,
        };
        tier.policy.on_request(&quiet(1, 1), None);
        for index in [2, 1] {
            let slot = tier.slots.admit(page(index)).expect("there is room");
            tier.policy.on_admit(&quiet(index, 2), slot);
        }
        tier.policy.assert_invariants(&tier.slots);
    }
}
