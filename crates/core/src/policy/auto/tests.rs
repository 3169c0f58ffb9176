use super::*;
use crate::hint::HintSet;
use crate::policy::Op;
use std::sync::mpsc::channel;

const SLOTS: u32 = 200;

/// A request of one of five kinds of stream, each to the taste of other policies.
fn request(kind: u64, number: u64) -> (u64, Op) {
    let draw = |salt: u64| mix(number, salt);
    match kind % 5 {
        // A loop longer than the tier: bad for recency.
        0 => (number % 300, Op::Read),
        // A working set that drifts: bad for counts of long ago.
        1 => (10_000 + number / 20 + draw(1) % 150, Op::Read),
        // Hot pages and a scan.
        2 if draw(2) % 2 == 0 => (20_000 + draw(3) % 150, Op::Read),
        2 => (1_000_000 + number, Op::Read),
        // Skewed, some writes.
        3 => {
            let op = if draw(4) % 4 == 0 {
                Op::Write
            } else {
                Op::Read
            };
            (30_000 + draw(5) % (draw(6) % 1000 + 1), op)
        }
        // Each page a few times in short order, then not again.
        _ => (40_000 + number / 2 + draw(7) % 30, Op::Read),
    }
}

/// `auto` serves a request of a tier with these `slots`, as [`Mini`] does.
fn serve(auto: &mut Auto, slots: &mut SlotTable, access: &Access) -> Effect {
    let resident = slots.find(access.page);
    auto.on_request(access, resident);
    if resident.is_some() {
        return Effect::of_resident(access.op);
    }
    let why = match access.op {
        Op::Read => Opportunity::Read,
        Op::Write => Opportunity::Write,
    };
    match auto.decide(access, why, slots) {
        Decision::Refuse(_) => return Effect::default(),
        Decision::Replace(victim) => {
            let left = slots.remove(victim);
            auto.on_remove(left, victim, Removal::Evicted);
        }
        Decision::Admit => {}
    }
    let slot = slots.admit(access.page).expect("room");
    auto.on_admit(access, slot);
    Effect {
        written: 1,
        ..Effect::default()
    }
}

/// Devices of which base takes as long for any read, and a disk.
fn devices() -> [Costs; 2] {
    let disk = Costs::default();
    let even = Costs {
        base_sequential_read: disk.base_random_read,
        ..disk
    };
    [even, disk]
}

/// A tier under `auto`, and each finalist alone.
struct Outcome {
    score: f64,
    best: f64,
    /// Requests at which the second one decided.
    second: u64,
    auto: Auto,
}

impl Outcome {
    /// Of `length` requests, made by `next` from their number and what is on flash.
    fn of(costs: Costs, length: u64, next: impl Fn(u64, &SlotTable) -> (u64, Op)) -> Self {
        let mut options = PolicyOptions::new(SLOTS);
        options.costs = costs;
        let mut streams = Streams::new(&costs);
        let mut auto = Auto::new(&options);
        assert_eq!(auto.sampled, auto.capacity, "nothing is left out");
        let alone = FINALISTS.iter().filter_map(|name| build(name, &options));
        let mut alone: Vec<Mini> = alone.map(|policy| Mini::new(policy, &options)).collect();
        let mut slots = SlotTable::new(SLOTS);
        let (mut score, mut second) = (0.0, 0);
        for number in 1..=length {
            let (index, op) = next(number, &slots);
            let access = Access {
                page: PageId::new(ObjectId(1), index),
                op,
                hints: HintSet::UNKNOWN,
                number,
            };
            let base = streams.cost(&access, slots.find(access.page).is_some());
            score += serve(&mut auto, &mut slots, &access).score(auto.price()) - base;
            for tier in &mut alone {
                tier.serve(&access, auto.price());
            }
            second += u64::from(auto.second_leading().is_some());
            if number % 500 == 0 {
                auto.assert_invariants(&slots);
            }
        }
        for (tier, mini) in alone.iter().zip(auto.minis.iter().map(|(_, mini)| mini)) {
            assert_eq!(
                tier.hits(),
                mini.hits(),
                "a miniature of all is the policy alone"
            );
        }
        let scores = alone.iter().map(Mini::score).enumerate();
        let scores = scores.map(|(at, score)| score - handicap(at) * auto.alone);
        Self {
            score,
            best: scores.fold(f64::NEG_INFINITY, f64::max),
            second,
            auto,
        }
    }

    fn assert_bound(&self, what: u64) {
        let (score, best, bound) = (self.score, self.best, self.auto.bound());
        let (changes, stretches) = (self.auto.changes(), self.auto.race.stretches());
        assert!(
            score >= best - bound,
            "{what}: {score} {best} {bound}, {changes} changes, {stretches} stretches"
        );
    }
}

#[test]
fn the_bound_holds_for_each_kind_of_stream() {
    for costs in devices() {
        for kind in 0..5 {
            Outcome::of(costs, 30_000, |number, _| request(kind, number)).assert_bound(kind);
        }
    }
}

#[test]
fn the_bound_holds_for_streams_that_turn() {
    let [even, disk] = devices();
    let (mut changes, mut second) = (0, 0);
    for turn in [500, 2000, 6000, 20_000] {
        let next = |number: u64, _: &SlotTable| request(number / turn, number);
        Outcome::of(disk, 80_000, next).assert_bound(turn);
        let outcome = Outcome::of(even, 80_000, next);
        outcome.assert_bound(turn);
        changes += outcome.auto.changes();
        second += outcome.second;
    }
    assert!(changes > 0, "another one leads at times");
    assert!(
        second > 1_000,
        "which is told of what is on flash, and decides: {second}"
    );
}

/// The next page of a loop that is not on flash: no hit is left for whoever leads. Stretches are
/// at least as long as their least lead takes.
#[test]
fn the_bound_holds_against_one_who_sees_the_contents() {
    for pages in [u64::from(SLOTS) + 1, 300, 600] {
        let missing = |number: u64, slots: &SlotTable| {
            let mut loop_from = (0..pages).map(|step| (number + step) % pages);
            let is_absent = |page: &u64| slots.find(PageId::new(ObjectId(1), *page)).is_none();
            (loop_from.find(is_absent).unwrap_or(0), Op::Read)
        };
        let [even, disk] = devices();
        Outcome::of(disk, 40_000, missing).assert_bound(pages);
        let outcome = Outcome::of(even, 40_000, missing);
        outcome.assert_bound(pages);
        let most = outcome.auto.most() * 40_000.0 / f64::from(SLOTS);
        let race = &outcome.auto.race;
        let stretches = 1.0 + most / race::LACK_MIN;
        assert!(race.stretches() as f64 <= stretches);
        assert!(race.behind() / f64::from(SLOTS) <= 8.0 * stretches);
    }
}

#[test]
fn a_sample_is_of_whole_extents_and_of_its_share() {
    let auto = Auto::new(&PolicyOptions::new(1 << 20));
    assert_eq!(auto.sampled, SAMPLE_MAX);
    let taken = |extent: u64| {
        let page = |at: u64| PageId::new(ObjectId(7), (extent << EXTENT) + at);
        let taken = auto.is_sampled(page(0));
        assert!((1..32).all(|at| auto.is_sampled(page(at)) == taken));
        taken
    };
    let count = (0..100_000).filter(|extent| taken(*extent)).count();
    let share = count as f64 / 100_000.0;
    assert!((share - 1.0 / 64.0).abs() < 0.002, "{share}");
}

#[test]
fn what_is_gone_is_gone_from_miniatures() {
    let options = PolicyOptions::new(64);
    let mut auto = Auto::new(&options);
    let page = PageId::new(ObjectId(3), 5);
    let access = Access {
        page,
        op: Op::Read,
        hints: HintSet::UNKNOWN,
        number: 1,
    };
    let on_flash = |auto: &Auto| {
        auto.minis
            .iter()
            .filter(|(_, mini)| mini.finds(page))
            .count()
    };
    auto.on_request(&access, None);
    auto.on_admit(&access, SlotId(0));
    assert_eq!(on_flash(&auto), COUNT);
    auto.on_remove(page, SlotId(0), Removal::Evicted);
    assert_eq!(on_flash(&auto), COUNT, "they evict for themselves");
    auto.on_admit(&access, SlotId(0));
    auto.on_remove(page, SlotId(0), Removal::Trimmed);
    assert_eq!(on_flash(&auto), 0);
    auto.on_request(
        &Access {
            number: 2,
            ..access
        },
        None,
    );
    assert_eq!(on_flash(&auto), COUNT);
    auto.on_trim(ObjectId(3), 0);
    assert_eq!(on_flash(&auto), 0);
}

/// A policy that only remembers what it was told is on flash: `worth` is 1 for these pages, and
/// `bytes` their number.
#[derive(Default)]
struct Witness(std::collections::BTreeMap<u32, PageId>);

impl TierPolicy for Witness {
    fn name(&self) -> &'static str {
        "witness"
    }

    fn on_request(&mut self, access: &Access, resident: Option<SlotId>) {
        let slot = self.0.iter().find(|(_, page)| **page == access.page);
        assert_eq!(slot.map(|(slot, _)| SlotId(*slot)), resident);
    }

    fn decide(&mut self, _: &Access, _: Opportunity, _: &SlotTable) -> Decision {
        unreachable!("it does not lead")
    }

    fn on_admit(&mut self, access: &Access, slot: SlotId) {
        let before = self.0.insert(slot.0, access.page);
        assert_eq!(before, None, "told once");
    }

    fn on_remove(&mut self, page: PageId, slot: SlotId, _: Removal) {
        assert_eq!(self.0.remove(&slot.0), Some(page), "of what it knows");
    }

    fn worth(&self, page: PageId) -> f64 {
        f64::from(u8::from(self.0.values().any(|known| *known == page)))
    }

    fn bytes(&self) -> usize {
        self.0.len()
    }

    fn assert_invariants(&self, _: &SlotTable) {}
}

/// Invariant 2: one that is made when the tier is full knows the pages in the slots it was told
/// of, whatever comes and goes meanwhile, and in the end all.
#[test]
fn a_second_one_is_told_step_by_step() {
    let mut auto = Auto::new(&PolicyOptions::new(SLOTS));
    let mut slots = SlotTable::new(SLOTS);
    let mut number = 0;
    let mut step = |auto: &mut Auto| {
        number += 1;
        // As if its lead went on.
        let mut scores = [0.0; COUNT];
        scores[4] = 1.5;
        auto.race.observe(&scores, 0.0);
        let access = Access {
            page: PageId::new(ObjectId(1), mix(number, 9) % 300 + number / 8),
            op: Op::Read,
            hints: HintSet::UNKNOWN,
            number,
        };
        serve(auto, &mut slots, &access);
        slots.residents().collect::<Vec<_>>()
    };
    (0..2000).for_each(|_| drop(step(&mut auto)));
    for _ in 0..300 {
        auto.race = Race::new(SLOTS, [true; COUNT]);
        auto.second = Some(Second {
            finalist: 4,
            policy: Box::new(Witness::default()),
            told: 0,
        });
        let mut told = 0;
        while told < SLOTS {
            let held = step(&mut auto);
            let second = auto.second.as_ref().expect("its lead went on");
            let few = told..=told + TOLD;
            assert!(few.contains(&second.told), "a few at a time");
            told = second.told;
            let below = held.iter().filter(|(slot, _)| slot.0 < told);
            assert_eq!(second.policy.bytes(), below.clone().count(), "invariant 2");
            for (_, page) in below {
                assert_eq!(second.policy.worth(*page), 1.0, "invariant 2");
            }
        }
    }
}

/// A policy whose answers are none of the defaults, and that notes what it was told.
struct Loud(Box<dyn Fn(&'static str) + Send>);

impl Loud {
    fn note(&self, what: &'static str) {
        (self.0)(what);
    }
}

impl TierPolicy for Loud {
    fn name(&self) -> &'static str {
        "loud"
    }

    fn on_request(&mut self, _: &Access, _: Option<SlotId>) {
        self.note("request");
    }

    fn decide(&mut self, _: &Access, _: Opportunity, _: &SlotTable) -> Decision {
        Decision::Replace(SlotId(5))
    }

    fn surplus(&mut self, _: &SlotTable) -> Option<SlotId> {
        Some(SlotId(6))
    }

    fn on_admit(&mut self, _: &Access, _: SlotId) {
        self.note("admit");
    }

    fn on_written(&mut self, _: PageId) {
        self.note("written");
    }

    fn on_remove(&mut self, _: PageId, _: SlotId, _: Removal) {
        self.note("remove");
    }

    fn on_trim(&mut self, _: ObjectId, _: u64) {
        self.note("trim");
    }

    fn on_pool_hits(&mut self, _: PageId, _: u32) {
        self.note("pool hits");
    }

    fn on_pool(&mut self, _: PageId, _: bool) {
        self.note("pool");
    }

    fn on_reserve(&mut self, _: PageId, _: bool) {
        self.note("reserve");
    }

    fn on_time(&mut self, _: u64) {
        self.note("time");
    }

    fn dirty_pages(&self) -> DirtyPages {
        DirtyPages::Both
    }

    fn keeps_outdated(&self) -> bool {
        false
    }

    fn on_dirty(&mut self, _: &Access, _: SlotId) {
        self.note("dirty");
    }

    fn on_clean(&mut self, _: SlotId) {
        self.note("clean");
    }

    fn write_buffer(&self) -> Option<WriteBuffer> {
        Some(WriteBuffer { pages: 3, most: 2 })
    }

    fn is_buffered(&self, _: SlotId) -> bool {
        true
    }

    fn is_synchronous(&self) -> bool {
        true
    }

    fn worth(&self, _: PageId) -> f64 {
        -7.0
    }

    fn taught(&mut self, _: &Learned, _: f64) {
        self.note("taught");
    }

    fn bytes(&self) -> usize {
        0
    }

    fn assert_invariants(&self, _: &SlotTable) {}
}

/// Scans over pages of which some are on flash, beside reads that hit: the tier is `value` as long
/// as that leads, so `value` in miniature, which holds every page here, earns what the tier does.
#[test]
fn a_miniature_that_does_as_the_tier_does_is_not_ahead() {
    let mut auto = Auto::new(&PolicyOptions::new(SLOTS));
    let mut slots = SlotTable::new(SLOTS);
    let mut hits = 0;
    for number in 1..=40 * u64::from(SLOTS) {
        let index = match number % 4 {
            0 => mix(number, 7) % u64::from(SLOTS / 2),
            _ => number % (3 * u64::from(SLOTS)),
        };
        let access = Access {
            page: PageId::new(ObjectId(1), index),
            op: Op::Read,
            hints: HintSet::UNKNOWN,
            number,
        };
        hits += u32::from(slots.find(access.page).is_some());
        serve(&mut auto, &mut slots, &access);
        if auto.race.stretches() > 1 {
            break;
        }
        let (ahead, _) = auto.race.ahead(0);
        assert!(ahead <= auto.most(), "{ahead} after {number} requests");
    }
    assert!(hits > SLOTS, "some of it was on flash");
}

/// A copy on flash that is renewed costs the tier its price as it costs a miniature: where both do
/// the same and most requests write, a lead from before neither shrinks nor grows.
#[test]
fn a_renewed_copy_costs_the_tier_its_price() {
    let mut auto = Auto::new(&PolicyOptions::new(SLOTS));
    let mut slots = SlotTable::new(SLOTS);
    let mut written = 0;
    for number in 1..=2000 {
        let op = if number % 8 == 0 { Op::Read } else { Op::Write };
        let access = Access {
            page: PageId::new(ObjectId(1), mix(number, 9) % u64::from(SLOTS / 2)),
            op,
            hints: HintSet::UNKNOWN,
            number,
        };
        written += u32::from(serve(&mut auto, &mut slots, &access).written);
        if number == 1000 {
            let mut scores = [0.0; COUNT];
            scores[0] = 10.0;
            auto.race.observe(&scores, 0.0);
        }
    }
    assert!(written > 1500, "most requests renew a copy: {written}");
    let (ahead, _) = auto.race.ahead(0);
    assert!((ahead - 10.0).abs() < auto.most(), "{ahead}");
    assert_eq!(auto.race.stretches(), 1);
}

/// An allowance that `value` had before is none of `auto`'s: no dial turns in secret.
#[test]
fn an_allowance_of_drive_writes_is_not_kept_in_secret() {
    let mut options = PolicyOptions::new(SLOTS);
    options.value.drive_writes_per_day = Some(0.001);
    let mut auto = Auto::new(&options);
    for minute in 0..60 {
        (0..SLOTS).for_each(|at| {
            let access = Access {
                page: PageId::new(ObjectId(1), u64::from(at)),
                op: Op::Read,
                hints: HintSet::UNKNOWN,
                number: 1,
            };
            auto.value.on_admit(&access, SlotId(at));
            auto.on_written(access.page);
            auto.value
                .on_remove(access.page, SlotId(at), Removal::Evicted);
        });
        auto.on_time(minute * 60_000);
    }
    let unbound = Value::new(&PolicyOptions::new(SLOTS));
    assert_eq!(auto.value.kappa(), unbound.kappa());
}

/// A page that comes to flash after its request, as one does that leaves the pool, costs the tier
/// its price too; one that is on flash already costs nothing.
#[test]
fn a_page_that_comes_in_later_costs_its_price() {
    let mut auto = Auto::new(&PolicyOptions::new(SLOTS));
    let access = |index| Access {
        page: PageId::new(ObjectId(1), index),
        op: Op::Read,
        hints: HintSet::UNKNOWN,
        number: index + 1,
    };
    (0..2).for_each(|index| auto.on_request(&access(index), None));
    let (price, none) = (auto.price(), auto.race.ahead(0).0);
    assert_eq!(none, 0.0);
    for (index, ahead) in [(1, price), (0, 2.0 * price)] {
        auto.on_admit(&access(index), SlotId(index as u32));
        assert!((auto.race.ahead(0).0 - ahead).abs() < 1e-9, "{index}");
    }
    auto.on_found(&access(2), SlotId(2));
    assert!((auto.race.ahead(0).0 - 2.0 * price).abs() < 1e-9);
}

/// Where a tier has several slots for one of a miniature, learning windows have that share of its
/// requests, pages are sampled in that share, and requests are counted in the sample: a run whose
/// pages are asked for with many others between them is in order there.
#[test]
fn what_is_counted_in_requests_is_scaled() {
    let options = PolicyOptions::new(4 * SAMPLE_MIN);
    let sampled = sampled(options.capacity);
    assert_eq!(sampled, SAMPLE_MIN);
    let window = options.clic.window_of(options.capacity);
    assert_eq!(scaled(&options, sampled).clic.window, window / 4);
    let mut auto = Auto::new(&options);
    let first = |extent: u64| PageId::new(ObjectId(1), extent << EXTENT);
    let in_sample = (0..10_000).filter(|extent| auto.is_sampled(first(*extent)));
    assert!((2300..2700).contains(&in_sample.count()), "a quarter");
    let (mine, others): (Vec<u64>, _) =
        (0..1000).partition(|extent| auto.is_sampled(first(*extent)));
    let others: Vec<u64> = others;
    let mut number = 0;
    let mut read = |auto: &mut Auto, page: PageId| {
        number += 1;
        let access = Access {
            page,
            op: Op::Read,
            hints: HintSet::UNKNOWN,
            number,
        };
        auto.on_request(&access, None);
    };
    for at in 0..3 {
        let page = first(mine[0]);
        read(&mut auto, PageId::new(page.object, page.index + at));
        others[..100]
            .iter()
            .for_each(|extent| read(&mut auto, first(*extent)));
    }
    let in_order = crate::policy::streams::in_order(&options.costs);
    assert_eq!(auto.requests, 3);
    assert!(
        (auto.alone - 1.0 - 2.0 * in_order).abs() < 1e-9,
        "{}",
        auto.alone
    );
}

/// The tier is `value`, so it holds the pages that `value` holds in miniature, and lacks some of
/// the others'.
#[test]
fn the_race_hears_which_pages_the_tier_lacks() {
    let mut auto = Auto::new(&PolicyOptions::new(SLOTS));
    let mut slots = SlotTable::new(SLOTS);
    for number in 1..=15 * u64::from(SLOTS) {
        let access = Access {
            page: PageId::new(ObjectId(1), mix(number, 7) % (2 * u64::from(SLOTS))),
            op: Op::Read,
            hints: HintSet::UNKNOWN,
            number,
        };
        serve(&mut auto, &mut slots, &access);
    }
    assert_eq!(auto.race.stretches(), 1, "all do about as well");
    let lacks = |at: usize| {
        let mini = &auto.minis[at].1;
        let lacking = mini.pages().filter(|page| slots.find(*page).is_none());
        (
            auto.race.lack(at),
            lacking.count() as f64 / f64::from(SLOTS),
        )
    };
    assert!(lacks(0).0 < 0.05, "{:?}", lacks(0));
    for at in 0..COUNT {
        let (mean, now) = lacks(at);
        assert!((mean - now).abs() < 0.15, "{at}: {mean} {now}");
    }
    // By the lots of this run it is about 0.3.
    assert!(lacks(5).0 > 0.25, "{:?}", lacks(5));
}

/// Whoever leads answers everything; the second one is told everything of the slots it knows.
#[test]
fn who_leads_answers_and_who_lives_is_told() {
    let mut auto = Auto::new(&PolicyOptions::new(SLOTS));
    let mut scores = [0.0; COUNT];
    scores[4] = 1.5;
    for _ in 0..1_000_000 {
        auto.race.observe(&scores, 0.0);
        if auto.race.leader() == 4 {
            break;
        }
    }
    assert_eq!(auto.race.leader(), 4);
    let (loud, said) = channel();
    let told = |auto: &mut Auto, told| {
        let loud = loud.clone();
        let policy = Box::new(Loud(Box::new(move |what| {
            loud.send(what).expect("a listener")
        })));
        let finalist = 4;
        auto.second = Some(Second {
            finalist,
            policy,
            told,
        });
    };
    let slots = SlotTable::new(SLOTS);
    let access = Access {
        page: PageId::new(ObjectId(1), 9),
        op: Op::Write,
        hints: HintSet::UNKNOWN,
        number: 1,
    };
    let why = Opportunity::Read;
    // It does not know all slots yet: the first finalist answers.
    told(&mut auto, 3);
    assert_eq!(auto.surplus(&slots), None);
    assert_eq!((auto.write_buffer(), auto.is_synchronous()), (None, false));
    auto.on_admit(&access, SlotId(4));
    auto.on_dirty(&access, SlotId(4));
    auto.on_clean(SlotId(4));
    assert_eq!(said.try_iter().count(), 0, "a slot past those");
    auto.on_remove(access.page, SlotId(4), Removal::Evicted);

    told(&mut auto, SLOTS);
    assert_eq!(
        auto.decide(&access, why, &slots),
        Decision::Replace(SlotId(5))
    );
    assert_eq!(auto.surplus(&slots), Some(SlotId(6)));
    assert_eq!(auto.write_buffer(), Some(WriteBuffer { pages: 3, most: 2 }));
    assert!(auto.is_buffered(SlotId(1)) && auto.is_synchronous());
    assert_eq!(auto.dirty_pages(), DirtyPages::Both);
    assert!(!auto.keeps_outdated() && auto.worth(access.page) == -7.0);
    auto.on_admit(&access, SlotId(2));
    auto.on_dirty(&access, SlotId(2));
    auto.on_clean(SlotId(2));
    auto.on_remove(access.page, SlotId(2), Removal::Evicted);
    auto.on_reserve(access.page, true);
    auto.on_pool(access.page, true);
    auto.on_pool_hits(access.page, 1);
    auto.on_trim(access.page.object, 0);
    auto.on_time(1);
    auto.on_written(access.page);
    auto.taught(&Learned::default(), 2.0);
    let said: Vec<&str> = said.try_iter().collect();
    let expected = [
        "admit",
        "dirty",
        "clean",
        "remove",
        "reserve",
        "pool",
        "pool hits",
    ];
    assert_eq!(said[..7], expected);
    assert_eq!(said[7..], ["trim", "time", "written", "taught"]);
}

/// While there is room all do the same, so what they differ by is the handicap.
#[test]
fn others_than_value_have_a_handicap() {
    let mut auto = Auto::new(&PolicyOptions::new(SLOTS));
    let access = Access {
        page: PageId::new(ObjectId(1), 9),
        op: Op::Read,
        hints: HintSet::UNKNOWN,
        number: 1,
    };
    let bare = 0.5;
    let scores = auto.serve_miniatures(&access, bare);
    let earned = -1.0 - auto.price();
    for (at, score) in scores.iter().enumerate() {
        let less = if at < VALUES { 0.0 } else { 0.05 * bare };
        assert!((score - (earned - less)).abs() < 1e-9, "{at}: {score}");
    }
}

/// Where the first request has hints `value-time` leads at first, and `value` where it has none.
#[test]
fn hints_say_who_leads_at_first() {
    for (hints, first) in [
        (HintSet::UNKNOWN, "value"),
        // Whose request it is says nothing of the page.
        (HintSet::UNKNOWN.from_client(1), "value"),
        (HintSet::UNKNOWN.with(0, 1), "value-time"),
    ] {
        let mut auto = Auto::new(&PolicyOptions::new(SLOTS));
        let mut slots = SlotTable::new(SLOTS);
        for number in 1..10 {
            // What later ones have changes nothing.
            let hints = if number == 1 {
                hints
            } else {
                HintSet::UNKNOWN.with(0, number as u32)
            };
            let access = Access {
                page: PageId::new(ObjectId(1), number),
                op: Op::Read,
                hints,
                number,
            };
            serve(&mut auto, &mut slots, &access);
            auto.assert_invariants(&slots);
            assert_eq!(auto.leader(), first);
            assert_eq!(auto.leading().name(), first);
        }
        assert_eq!(auto.changes(), 0);
    }
}

/// So it is where a part of a page that is written comes first: nobody earns anything by that.
#[test]
fn a_part_of_a_page_says_who_leads_at_first() {
    for (hints, counted) in [
        (HintSet::UNKNOWN, Counted::Hits),
        (HintSet::UNKNOWN.with(0, 1), Counted::Time),
    ] {
        let mut auto = Auto::new(&PolicyOptions::new(SLOTS));
        let access = Access {
            page: PageId::new(ObjectId(1), 0),
            op: Op::Write,
            hints,
            number: 1,
        };
        auto.on_aside(&access, None, Aside::Part);
        auto.assert_invariants(&SlotTable::new(SLOTS));
        assert!(auto.value.counts(counted));
    }
}

/// `value` counts hits or time as the one or the other leads; nobody has to be told of pages.
#[test]
fn value_counts_what_leads() {
    let mut auto = Auto::new(&PolicyOptions::new(SLOTS));
    let slots = SlotTable::new(SLOTS);
    for (leader, counted) in [(1, Counted::Time), (0, Counted::Hits), (1, Counted::Time)] {
        let mut scores = [0.0; COUNT];
        scores[leader] = 1.5;
        for _ in 0..1_000_000 {
            if auto.race.leader() == leader {
                break;
            }
            auto.race.observe(&scores, 0.0);
            auto.call();
        }
        auto.assert_invariants(&slots);
        assert!(auto.value.counts(counted));
        assert_eq!(auto.leader(), FINALISTS[leader]);
        assert!(auto.second.is_none(), "`value` it is still");
        assert_eq!(auto.leading().name(), FINALISTS[leader]);
    }
    // Another one leads: it counts what it did until that one knows all pages.
    let mut scores = [0.0; COUNT];
    scores[4] = 1.5;
    for _ in 0..1_000_000 {
        if auto.race.leader() == 4 {
            break;
        }
        auto.race.observe(&scores, 0.0);
        auto.call();
    }
    assert_eq!(auto.race.leader(), 4);
    assert_eq!(auto.leading().name(), "value-time");
    assert!(auto.second.is_some());
}

/// In write-back `value` counts device time here as it does alone.
#[test]
fn a_cleaned_page_shows_write_back() {
    let mut auto = Auto::new(&PolicyOptions::new(64));
    let slots = SlotTable::new(64);
    let access = Access {
        page: PageId::new(ObjectId(1), 1),
        op: Op::Write,
        hints: HintSet::UNKNOWN,
        number: 1,
    };
    auto.on_request(&access, None);
    assert!(auto.keeps_outdated(), "write-through");
    let decision = auto.decide(&access, Opportunity::Clean, &slots);
    assert_eq!(decision, Decision::Admit);
    assert!(!auto.keeps_outdated(), "write-back");
}

/// A page on flash that is dirty when the second one is told of it is dirty for it too.
#[test]
fn a_second_one_is_told_what_is_dirty() {
    let (loud, said) = channel();
    let mut second = Second {
        finalist: 4,
        policy: Box::new(Loud(Box::new(move |what| {
            loud.send(what).expect("a listener")
        }))),
        told: 0,
    };
    let mut slots = SlotTable::new(SLOTS);
    let slot = slots.admit(PageId::new(ObjectId(1), 9)).expect("room");
    slots.restage(slot, true);
    second.tell(&slots, SLOTS, 1);
    assert!(said.try_iter().eq(["admit", "dirty"]));
}

/// A miniature of a policy that keeps several versions of a page has room for them.
#[test]
fn a_miniature_sheds_what_is_too_much() {
    let options = PolicyOptions::new(4);
    let mut mini = Mini::new(build("mv-fifo", &options).expect("known"), &options);
    let request = |index: u64, op: Op, number: u64| Access {
        page: PageId::new(ObjectId(1), index),
        op,
        hints: HintSet::UNKNOWN,
        number,
    };
    for index in 0..4 {
        mini.serve(&request(index, Op::Read, index), 0.0);
    }
    for number in 4..6 {
        mini.serve(&request(3, Op::Write, number), 0.0);
    }
    assert_eq!(mini.pages().count(), 2, "two versions of one page are old");
    mini.assert_invariants();
}

/// A part of a page that is written goes to base alone, and a copy of the page leaves: the read
/// that follows finds it nowhere, in miniature as in the tier.
#[test]
fn a_part_of_a_page_brings_none_in() {
    let mut auto = Auto::new(&PolicyOptions::new(SLOTS));
    let mut slots = SlotTable::new(SLOTS);
    let (mut number, mut written) = (0, 0);
    let mut access = |index, op| {
        number += 1;
        Access {
            page: PageId::new(ObjectId(1), index),
            op,
            hints: HintSet::UNKNOWN,
            number,
        }
    };
    // Each page is written in part and read twice, once while it is on flash, if it is.
    for index in (0..3 * u64::from(SLOTS)).flat_map(|index| [index; 2]) {
        let part = access(index, Op::Write);
        let resident = slots.find(part.page);
        auto.on_aside(&part, resident, Aside::Part);
        if let Some(slot) = resident {
            slots.remove(slot);
            auto.on_remove(part.page, slot, Removal::Stale);
        }
        assert!(auto.minis.iter().all(|(_, mini)| !mini.finds(part.page)));
        let read = access(index, Op::Read);
        let effect = serve(&mut auto, &mut slots, &read);
        assert!(!effect.hit, "the tier cannot have it");
        written += u64::from(effect.written);
    }
    auto.assert_invariants(&slots);
    assert!(written > u64::from(SLOTS), "it has most until then");
    for (at, mini) in &auto.minis {
        assert_eq!(mini.hits(), 0, "{}", FINALISTS[*at]);
        let reads = 6 * u64::from(SLOTS);
        assert!(mini.writes() <= reads, "parts are not written to flash");
    }
}
