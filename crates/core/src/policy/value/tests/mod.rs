//! The parts of `value` against plain slow code.

mod life;

use super::features::{self, Clock, Extents};
use super::learner::Ended;
use super::model::{Indices, Model, TABLES};
use super::money::Outlook;
use super::pages::{Pages, Past, Place};
use super::*;
use crate::hash::mix;
use crate::hint::HintSet;
use crate::page::ObjectId;
use crate::policy::Op;
use proptest::prelude::*;
use std::collections::BTreeMap;

/// What a read in order costs base, random reads.
const IN_ORDER: f32 = 0.1;

fn page(index: u64) -> PageId {
    PageId::new(ObjectId(1), index)
}

fn access(number: u64, index: u64, op: Op) -> Access {
    Access {
        page: page(index),
        op,
        hints: HintSet::UNKNOWN.with(0, (index % 3) as u32 + 1),
        number,
    }
}

/// The model as its text says, in double precision.
#[derive(Default)]
struct PlainModel {
    /// Weight and sum of squares by table and position.
    weights: BTreeMap<(usize, u16), (f64, f64)>,
    bias: f64,
}

impl PlainModel {
    fn value(&self, indices: &Indices) -> f64 {
        let at = |(table, &at): (usize, &u16)| self.weights.get(&(table, at)).map_or(0.0, |w| w.0);
        let sum: f64 = indices.iter().enumerate().map(at).sum();
        1.0 / (1.0 + (-(self.bias - 1.0 + sum)).exp())
    }

    fn learn(&mut self, indices: &Indices, target: f64) {
        let error = self.value(indices) - target;
        self.bias -= 0.001 * error;
        for (table, &at) in indices.iter().enumerate() {
            let (weight, squares) = self.weights.entry((table, at)).or_default();
            *squares += error * error;
            *weight -= 0.1 * error / (*squares + 1.0).sqrt();
        }
    }
}

#[test]
fn the_model_equals_the_plainest_code() {
    let (mut model, mut plain) = (Model::new(), PlainModel::default());
    for step in 0..3000u64 {
        let draw = |table: usize| (mix(step, table as u64) % 20) as u16;
        let indices: Indices = std::array::from_fn(draw);
        let target = f32::from(indices[0] % 3) / 2.0;
        let (found, expected) = (model.value(&indices), plain.value(&indices));
        assert!(
            (f64::from(found) - expected).abs() < 1e-3,
            "{step} {found} {expected}"
        );
        let odds = f64::from(model.odds(&indices));
        assert!(
            (odds / (1.0 + odds) - expected).abs() < 1e-3,
            "{step} {odds}"
        );
        model.learn(&indices, target);
        plain.learn(&indices, f64::from(target));
    }
    model.assert_invariants();
    let sure = [0, 1, 2].map(|value| model.value(&[value; TABLES]));
    assert!(
        sure[0] < sure[1] && sure[1] < sure[2],
        "it learned: {sure:?}"
    );
}

proptest! {
    /// Against a map: what is remembered is what was put in last, pages on flash stay, and in each
    /// line the least recent one leaves.
    #[test]
    fn pages_equal_a_map(
        ops in proptest::collection::vec((0u8..4, 0u64..60), 1..500),
    ) {
        let mut pages = Pages::new(16);
        let mut model: BTreeMap<u64, (u32, bool)> = BTreeMap::new();
        for (step, (op, index)) in (1u32..).zip(ops) {
            let known = pages.find(page(index));
            prop_assert_eq!(known.is_some(), model.contains_key(&index));
            match (op, known) {
                (0 | 1, _) => {
                    let place = pages.place(page(index), step);
                    let at = match place {
                        Place::Known(at) => at,
                        Place::Full => continue,
                        Place::Free(at) => {
                            if pages.is_known(at) {
                                let left = pages.get(at).page().index;
                                let gone = model.remove(&left);
                                prop_assert_eq!(gone.map(|(_, on_flash)| on_flash), Some(false));
                            }
                            pages.take(at, page(index));
                            at
                        }
                    };
                    pages.get_mut(at).read = step;
                    model.entry(index).or_default().0 = step;
                }
                (2, Some(at)) => {
                    let on_flash = !pages.is_on_flash(at);
                    pages.set_on_flash(at, on_flash);
                    model.entry(index).or_default().1 = on_flash;
                }
                (3, Some(at)) => {
                    pages.forget(at);
                    model.remove(&index);
                }
                _ => {}
            }
            pages.assert_invariants();
            prop_assert!(model.len() <= pages.places() as usize);
            for (index, (read, on_flash)) in &model {
                let at = pages.find(page(*index));
                prop_assert!(at.is_some(), "{} is remembered", index);
                let Some(at) = at else { continue };
                prop_assert_eq!((pages.get(at).read, pages.is_on_flash(at)), (*read, *on_flash));
            }
        }
    }
}

#[test]
fn the_page_not_requested_for_longest_leaves_its_line() {
    let mut pages = Pages::new(8);
    for index in 0..8 {
        let Place::Free(at) = pages.place(page(index), 100) else {
            panic!("there is room");
        };
        pages.take(at, page(index)).read = 10 + index as u32;
    }
    let oldest = pages.find(page(0)).expect("known");
    assert_eq!(pages.place(page(9), 100), Place::Free(oldest));
    pages.set_on_flash(oldest, true);
    assert_eq!(
        pages.place(page(9), 100),
        Place::Free(pages.find(page(1)).expect("known"))
    );
    for index in 1..8 {
        pages.set_on_flash(pages.find(page(index)).expect("known"), true);
    }
    assert_eq!(pages.place(page(9), 100), Place::Full);
}

fn near(found: f32, expected: f64) {
    assert!(
        (f64::from(found) - expected).abs() < 1e-4,
        "{found} {expected}"
    );
}

/// Every sample of a run ends with the target that its page's requests, written down and looked
/// through, say; and what reads of each extent cost is what these say.
#[test]
fn targets_equal_the_plainest_code() {
    let config = ValueConfig {
        ghosts: 1,
        fresh: 1.0,
        by_lot: 1.0,
        ..ValueConfig::default()
    };
    let mut learner = Learner::new(64, 3, &config, IN_ORDER);
    let mut requests: Vec<(u64, Op)> = vec![(0, Op::Read)];
    let mut seen = [0u32; 3];
    // What reads of each extent cost base, in the mean.
    let mut costs = [None; 7];
    for number in 1..20_000u64 {
        let draw = mix(5, number);
        let random = draw % 200 % (1 + (draw >> 20) % 200);
        let before = requests[number as usize - 1].0;
        // A quarter goes on where the last one was.
        let index = match draw >> 44 & 3 {
            0 => (before + 1) % 200,
            _ => random,
        };
        let op = if draw >> 40 & 3 == 0 {
            Op::Write
        } else {
            Op::Read
        };
        requests.push((index, op));
        learner.on_request(&access(number, index, op), draw >> 50 & 1 == 0);
        if op == Op::Read {
            let (last, last_op) = requests[number as usize - 1];
            let in_order = number > 1 && last_op == Op::Read && last + 1 == index;
            let cost = if in_order { f64::from(IN_ORDER) } else { 1.0 };
            let mean = &mut costs[index as usize / 32];
            *mean = Some(mean.map_or(cost, |mean| mean + (cost - mean) / 64.0));
        }
        if let Some(entry) = learner.pages.find(page(index)) {
            near(
                learner.cost(entry),
                costs[index as usize / 32].unwrap_or(1.0),
            );
        }
        for Ended {
            page,
            time,
            target,
            estimate,
            horizon,
        } in learner.take_ended()
        {
            // The first request of the page after the sample.
            let later =
                (time as usize + 1..requests.len()).find(|at| requests[*at].0 == page.index);
            let age = number as f64 - f64::from(time);
            let left = (-age / f64::from(horizon)).exp();
            let reads = match (estimate, later) {
                (Some(said), None) => f64::from(said.reads),
                // It is forgotten, or overdue, at the moment of some other request.
                (Some(_), Some(at)) => panic!("{page:?} was requested as number {at}"),
                (None, at) => {
                    assert_eq!(at, Some(number as usize), "it ends at once");
                    f64::from(u8::from(op == Op::Read))
                }
            };
            near(target, left * reads);
            seen[if estimate.is_some() {
                2
            } else {
                usize::from(op == Op::Read)
            }] += 1;
        }
    }
    learner.assert_invariants();
    assert!(seen.iter().all(|count| *count > 100), "{seen:?}");
}

/// Candidates as `value` has them, sorted anew at every step.
struct Plainest {
    /// A copy of its own, with the same lots.
    learner: Learner,
    counted: Counted,
    candidates: Vec<(f32, u32)>,
}

impl Plainest {
    /// What a read of the page counts.
    fn cost(&self, entry: u32) -> f32 {
        match self.counted {
            Counted::Hits => 1.0,
            Counted::Time => self.learner.cost(entry),
        }
    }

    fn odds(&self, entry: u32) -> f32 {
        odds_at(self.learner.odds(entry), self.cost(entry))
    }

    /// Draws, and says the odds and the slot of the least worthy, weighed now.
    fn look(&mut self, draws: u32, entries: &[u32], slots: &SlotTable) -> (f32, u32) {
        for _ in 0..draws {
            let slot = self.learner.draw(entries.len() as u32);
            if self.candidates.iter().all(|(_, other)| *other != slot) {
                assert!(slots.page(SlotId(slot)).is_some(), "the tier is full");
                let odds = self.odds(entries[slot as usize]);
                self.candidates.push((odds, slot));
                self.candidates
                    .sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
                self.candidates.truncate(KEPT);
            }
        }
        loop {
            self.candidates
                .sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
            let (_, slot) = self.candidates[0];
            let now = (self.odds(entries[slot as usize]), slot);
            if self.candidates[0] == now {
                return now;
            }
            self.candidates[0] = now;
        }
    }
}

/// The victim is the least worthy of the candidates as they are now; most are drawn only when one
/// is to leave; it comes in only for more than the margin and the price. What is counted changes
/// now and then.
#[test]
fn evictions_equal_the_plainest_code() {
    let mut value = Value::new(&PolicyOptions::new(100));
    let mut slots = SlotTable::new(100);
    let (mut replaced, mut refused) = (0, 0);
    for number in 1..6000u64 {
        let draw = mix(8, number);
        let access = access(number, draw % 400 % (1 + (draw >> 20) % 400), Op::Read);
        let resident = slots.find(access.page);
        value.on_request(&access, resident);
        if resident.is_some() {
            continue;
        }
        let counted = match number / 500 % 2 {
            0 => Counted::Hits,
            _ => Counted::Time,
        };
        if !value.counts(counted) {
            value.count(counted);
            assert_eq!(
                (value.candidates.len(), value.mean_victim),
                (0, 0.0),
                "of the other kind"
            );
        }
        let odds = value.worth(access.page) as f32;
        let looked_at = odds >= HOPELESS * value.mean_victim && !slots.has_room();
        let mut plain = Plainest {
            learner: value.learner.clone(),
            counted: value.counted,
            candidates: value.candidates.clone(),
        };
        let decision = value.decide(&access, Opportunity::Read, &slots);
        if looked_at {
            let (mut lowest, mut victim) = plain.look(LOOKS, &value.entries, &slots);
            let comes = odds > MARGIN * lowest + value.kappa();
            if comes {
                (lowest, victim) = plain.look(DRAWS - LOOKS, &value.entries, &slots);
                assert!(odds > MARGIN * lowest + value.kappa(), "still");
            }
            let expected = match comes {
                true => Decision::Replace(SlotId(victim)),
                false => Decision::Refuse(Refusal::Cold),
            };
            assert_eq!(decision, expected);
            if comes {
                plain.candidates.retain(|(_, slot)| *slot != victim);
            }
            let mut candidates = value.candidates.clone();
            candidates.sort_by(|a, b| a.partial_cmp(b).expect("numbers"));
            assert_eq!(candidates, plain.candidates);
        }
        match decision {
            Decision::Replace(victim) => {
                let left = slots.remove(victim);
                value.on_remove(left, victim, Removal::Evicted);
                replaced += 1;
            }
            Decision::Admit => {}
            Decision::Refuse(_) => {
                refused += 1;
                continue;
            }
        }
        let slot = slots.admit(access.page).expect("there is room");
        value.on_admit(&access, slot);
    }
    value.assert_invariants(&slots);
    assert!(replaced > 100 && refused > 100, "{replaced} {refused}");
}

#[test]
fn odds_at_a_cost_are_those_of_the_value_at_that_cost() {
    for odds in [0.0f32, 0.01, 1.0, 50.0, 1e30] {
        assert_eq!(odds_at(odds, 1.0), odds, "hits");
        for cost in [0.1f32, 0.5, 0.9] {
            let value = cost * (odds / (1.0 + odds));
            near(odds_at(odds, cost), f64::from(value / (1.0 - value)));
        }
    }
}

/// Pages that are read in order are as many hits as others that are read as often, and much less
/// time where base is a disk; in write-back too.
#[test]
fn reads_in_order_save_little_time() {
    let disk = PolicyOptions::new(256);
    let mut even = disk.clone();
    even.costs.base_sequential_read = even.costs.base_random_read;
    for (options, back) in [(&disk, false), (&disk, true), (&even, false)] {
        let mut value = Value::new(options);
        if back {
            value.learner.count_writes();
        }
        let (scanned, random) = (0, 96);
        let mut number = 0;
        for round in 0..1000u64 {
            let in_order = scanned..scanned + 16;
            let at_random = (0..16).map(|step| random + step * 7 % 16);
            for index in in_order.chain(at_random) {
                number += 1;
                value.on_request(&access(number, index, Op::Read), None);
            }
            if round % 100 == 0 {
                value.assert_invariants(&SlotTable::new(256));
            }
        }
        let entry_of = |value: &Value, index| {
            let entry = value.learner.pages.find(page(index));
            entry.expect("remembered")
        };
        let (of_scan, of_others) = (entry_of(&value, scanned + 5), entry_of(&value, random + 5));
        for entry in [of_scan, of_others] {
            assert!(value.learner.outlook(entry).reads > 0.9);
        }
        let (cost, other_cost) = (value.learner.cost(of_scan), value.learner.cost(of_others));
        if options.costs == even.costs {
            assert_eq!(cost, 1.0);
            continue;
        }
        // One of 16 reads is at random.
        let mean = (1.0 + 15.0 * IN_ORDER) / 16.0;
        assert!((cost - mean).abs() < 0.15, "{cost}");
        assert!(other_cost > 0.9, "{other_cost}");
        let worth = |value: &Value, index| value.worth(page(index));
        let before = worth(&value, scanned + 5);
        assert!(before > worth(&value, random + 5) / 5.0, "by hits");
        value.count(Counted::Time);
        let by_time = worth(&value, scanned + 5);
        assert!(by_time < 0.6 && before > 10.0, "{by_time} {before}");
        assert!(worth(&value, random + 5) > 10.0, "others as before");
    }
}

/// Only a read right after a read of the page before is in order: not where a write or another
/// read came between, nor of another object.
#[test]
fn the_request_before_says_whether_a_read_is_in_order() {
    let clock = Clock { now: 1, slots: 64 };
    let at = |object, index| PageId::new(ObjectId(object), index);
    let cost = |before: &[(PageId, bool)], page| {
        let mut extents = Extents::new(64, 0, IN_ORDER);
        for (page, is_read) in before {
            extents.on_request(&clock, *page, *is_read);
        }
        extents.on_request(&clock, page, true);
        extents.mean_cost(page)
    };
    let (first, other) = (at(1, 63), at(1, 200));
    assert_eq!(cost(&[], at(1, 64)), 1.0);
    assert_eq!(cost(&[(first, true)], at(1, 64)), IN_ORDER);
    assert_eq!(cost(&[(first, false)], at(1, 64)), 1.0, "written");
    assert_eq!(cost(&[(first, true)], at(2, 64)), 1.0, "another object");
    assert_eq!(cost(&[(first, true), (other, true)], at(1, 64)), 1.0);
    assert_eq!(cost(&[(first, true), (other, false)], at(1, 64)), 1.0);
    assert_eq!(
        cost(&[(at(1, u64::MAX), true)], at(1, 0)),
        1.0,
        "no next page"
    );
    let before = at(1, 64);
    let mean = cost(&[(first, true), (before, true)], at(1, 90));
    let expected = IN_ORDER + (1.0 - IN_ORDER) / 64.0;
    assert!((mean - expected).abs() < 1e-6, "{mean}: of an extent");
}

/// A read of the extents beside a page shows on both sides, and fades.
#[test]
fn a_scan_nearby_is_seen() {
    let pages = Pages::new(64);
    let mut extents = Extents::new(64, 0, IN_ORDER);
    let mut clock = Clock {
        now: 1000,
        slots: 64,
    };
    let mut past = Past::EMPTY;
    past.read = 990;
    let look =
        |clock: &Clock, extents: &Extents| features::indices(clock, &past, false, &pages, extents);
    let before = look(&clock, &extents);
    extents.on_request(&clock, PageId::new(ObjectId(0), 40), true);
    let near = look(&clock, &extents);
    assert_ne!(before[10], near[10], "ahead");
    assert_eq!(before[0], near[0], "hints and age are the same");
    clock.now += 64;
    let mut again = past;
    again.read += 64;
    let later = features::indices(&clock, &again, false, &pages, &extents);
    assert_eq!(
        before[10], later[10],
        "a quarter of the slots later it is over"
    );
}

fn in_write_back() -> (Learner, u64) {
    let mut learner = Learner::new(256, 3, &ValueConfig::default(), IN_ORDER);
    learner.count_writes();
    (learner, 1)
}

/// A page that is always written next is worth nothing clean, and something dirty.
#[test]
fn writes_to_come_count_for_dirty_pages() {
    let (mut learner, mut number) = in_write_back();
    for round in 0..400u64 {
        for index in 0..60 {
            let op = match index % 2 {
                0 => Op::Write,
                _ => Op::Read,
            };
            let hints = HintSet::UNKNOWN.with(0, 1 + (index % 2) as u32);
            let access = Access {
                hints,
                ..access(number, index, op)
            };
            learner.on_request(&access, round > 0);
            number += 1;
        }
    }
    learner.assert_invariants();
    let look = |index: u64| {
        let entry = learner.pages.find(page(index)).expect("remembered");
        learner.outlook(entry)
    };
    let (written, read) = (look(10), look(11));
    assert!(written.writes > 0.6 && written.reads < 0.2, "{written:?}");
    assert!(read.reads > 0.6 && read.writes < 0.2, "{read:?}");
    let money = Money::new(&crate::cost::Costs::default());
    let saved = |dirty| money.saved(written, dirty);
    assert!(saved(true) > saved(false), "a base write is saved");
}

/// In write-back H follows the misses: pages that miss come in, and push others out.
#[test]
fn in_write_back_the_horizon_is_how_long_pages_stay() {
    let horizon = |misses: u64| {
        let (mut learner, _) = in_write_back();
        for number in 1..40_000 {
            let hit = number % 100 >= misses;
            learner.on_request(&access(number, number % 300, Op::Read), hit);
        }
        learner.assert_invariants();
        let ended = learner.take_ended();
        ended.last().expect("samples end").horizon / 256.0
    };
    for misses in [10, 20, 50] {
        let expected = 0.7 / (misses as f32 / 100.0 + 0.005);
        let found = horizon(misses);
        assert!(
            (found / expected - 1.0).abs() < 0.05,
            "{misses}: {found} {expected}"
        );
    }
}

/// In write-through H follows the hits where they are few, and the misses where these are.
#[test]
fn in_write_through_the_horizon_follows_hits_or_misses_whichever_are_fewer() {
    for misses in [10, 40, 70, 90] {
        let mut learner = Learner::new(256, 3, &ValueConfig::default(), IN_ORDER);
        for number in 1..40_000 {
            let hit = number % 100 >= misses;
            learner.on_request(&access(number, number % 300, Op::Read), hit);
        }
        learner.assert_invariants();
        let found = learner.take_ended().last().expect("samples end").horizon / 256.0;
        let fewer = misses.min(100 - misses) as f32 / 100.0;
        let expected = 0.7 / (fewer + 0.005);
        assert!(
            (found / expected - 1.0).abs() < 0.05,
            "{misses}: {found} {expected}"
        );
    }
}

/// What H is to be is far from what it is at first, where all requests miss.
#[test]
fn at_first_the_horizon_changes_fast() {
    let mut learner = Learner::new(256, 3, &ValueConfig::default(), IN_ORDER);
    for number in 1..=4000 {
        learner.on_request(&access(number, number % 300, Op::Read), false);
    }
    let ended = learner.take_ended();
    let slots = |after: u64| {
        let mut later = ended.iter().filter(|end| u64::from(end.time) >= after);
        later.next().expect("samples end").horizon / 256.0
    };
    assert!(slots(7 * 256) > 19.0, "{}", slots(7 * 256));
    // Later it changes slowly.
    for number in 4001..=60 * 256 {
        learner.on_request(&access(number, number % 300, Op::Read), false);
    }
    learner.take_ended();
    for number in 60 * 256 + 1..61 * 256 + 200 {
        learner.on_request(&access(number, number % 300, Op::Read), number % 2 == 0);
    }
    let ended = learner.take_ended();
    let slowest = ended.last().expect("samples end").horizon / 256.0;
    assert!((20.0 / 1.17..19.9).contains(&slowest), "{slowest}");
}

/// Of the samples drawn by lot half are of pages on flash, and half of any page remembered.
#[test]
fn lots_are_drawn_of_what_is_remembered() {
    let config = ValueConfig {
        fresh: 0.0,
        by_lot: 0.5,
        ..ValueConfig::default()
    };
    let mut learner = Learner::new(64, 3, &config, IN_ORDER);
    let (pages, on_flash) = (200, 100);
    for index in 0..pages {
        let entry = learner.on_request(&access(index + 1, index, Op::Read), false);
        learner.pages.set_on_flash(entry, index < on_flash);
    }
    learner.take_ended();
    let requests = 40_000;
    let mut counts = vec![0u64; pages as usize];
    for number in pages + 1..=pages + requests {
        // The page that is requested is none of those that are counted.
        learner.on_request(&access(number, pages, Op::Read), false);
        for end in learner.take_ended() {
            if let Some(count) = counts.get_mut(end.page.index as usize) {
                *count += 1;
            }
        }
    }
    learner.assert_invariants();
    let of_flash: u64 = counts[..on_flash as usize].iter().sum();
    let all: u64 = counts.iter().sum();
    let share = of_flash as f64 / all as f64;
    assert!((share - 0.75).abs() < 0.02, "{share}");
    let drawn = all as f64 / requests as f64;
    assert!((drawn - 0.5).abs() < 0.02, "{drawn}");
    for (index, count) in (0..).zip(&counts) {
        let is_known = learner.pages.find(page(index)).is_some();
        assert!(!is_known || *count > 0, "any page remembered");
    }
}

/// Whether the pool has a page says how soon it is read here.
#[test]
fn a_page_in_the_pool_is_told_from_others() {
    let (mut learner, mut number) = in_write_back();
    for round in 0..3000u64 {
        // Half of the pages are in the pool, and read here a fiftieth as often.
        for index in (0..50).chain([50 + round % 50]) {
            learner.on_request(&access(number, index, Op::Read), true);
            learner.set_buffered(page(index), index >= 50);
            number += 1;
        }
    }
    let mut look = |buffered| {
        learner.set_buffered(page(20), buffered);
        learner.outlook(learner.pages.find(page(20)).expect("remembered"))
    };
    let (here, pooled) = (look(false), look(true));
    let not_soon = |outlook: &Outlook| 1.0 - outlook.reads;
    assert!(
        not_soon(&pooled) > 5.0 * not_soon(&here),
        "{here:?} {pooled:?}"
    );
}

/// A page that is newer than base is written to flash whether it comes in or not, so it pays no
/// price for that; one that is read does.
#[test]
fn a_dirty_page_pays_for_no_flash_write() {
    let mut value = Value::new(&PolicyOptions::new(64));
    assert_eq!(value.price(false), wear::KAPPA);
    value.considers(Opportunity::Clean);
    assert_eq!(value.price(true), 0.0);
    let time = value.money.flash_write();
    assert!(time > 0.0);
    assert_eq!(value.price(false), time);
}

/// In write-back a page comes in when it is cleaned or leaves the pool.
#[test]
fn under_a_pool_pages_come_when_they_leave_it() {
    let mut value = Value::new(&PolicyOptions::new(100));
    let slots = SlotTable::new(100);
    let access = access(1, 1, Op::Read);
    value.on_request(&access, None);
    value.on_pool(page(1), true);
    let mut ask = |why| value.decide(&access, why, &slots);
    let opportunity = Decision::Refuse(Refusal::Opportunity);
    assert_eq!(ask(Opportunity::Read), Decision::Admit, "write-through");
    assert_eq!(ask(Opportunity::PoolEviction), opportunity);
    assert_eq!(ask(Opportunity::Clean), Decision::Admit);
    assert_eq!(ask(Opportunity::Read), opportunity, "write-back");
    assert_eq!(ask(Opportunity::PoolEviction), Decision::Admit);
    assert!(!value.keeps_outdated());
}

/// What a form takes is known beforehand, and the next one takes less.
#[test]
fn the_bytes_of_a_form_are_known_before_it_is_built() {
    for slots in [1, 64, 1000, 5000, 40_000] {
        let mut before = u64::MAX;
        for at in 0..FORMS.len() {
            let form = ValueConfig::default().form(at).expect("there is one");
            let options = PolicyOptions {
                value: form,
                ..PolicyOptions::new(slots)
            };
            let bytes = form.bytes(slots);
            assert_eq!(Value::new(&options).bytes() as u64, bytes, "{slots} {at}");
            assert!(slots < 40_000 || bytes < before, "{slots} {at}: less");
            before = bytes;
        }
    }
}

/// A form of a bounded memory takes no more than that, or the least that there is.
#[test]
fn memory_bounds_what_is_remembered() {
    let (slots, whole) = (40_000, ValueConfig::default());
    let bytes = |memory| {
        let options = PolicyOptions {
            memory: Some(memory),
            ..PolicyOptions::new(slots)
        };
        Value::new(&options).bytes() as u64
    };
    let (most, least) = (whole.bytes(slots), whole.smallest(slots).bytes(slots));
    assert_eq!(bytes(u64::MAX), most);
    assert_eq!(bytes(most), most);
    let mut before = most;
    for memory in (least..most).rev().step_by(99_991) {
        let taken = bytes(memory);
        assert!(taken <= memory && taken <= before, "{memory}: {taken}");
        before = taken;
    }
    assert_eq!(whole.within(slots, least - 1), None);
    assert_eq!(bytes(least), least);
    assert_eq!(bytes(0), least, "by its name it is built in any case");
    // What the user chose is never made larger.
    let small = whole.form(4).expect("there is one");
    let within = small.within(slots, u64::MAX);
    assert_eq!(within, Some(small));
    assert_eq!(small.within(slots, small.bytes(slots) - 1), None);
    assert_eq!(small, whole.smallest(slots));
}
