//! What `value` is told in life, and what comes of it: found pages, trims, wear, write-back, and
//! a workload that turns.

use super::*;
use crate::page::BlockId;

const SLOTS: u32 = 144;

/// `value` with a tier of [`SLOTS`] slots, whose flash writes are done at once.
struct Life {
    value: Value,
    slots: SlotTable,
    requests: u64,
    hits: u64,
    /// Pages written to flash.
    written: u64,
}

impl Life {
    fn new(options: &PolicyOptions) -> Self {
        Self {
            value: Value::new(options),
            slots: SlotTable::new(options.capacity),
            requests: 0,
            hits: 0,
            written: 0,
        }
    }

    fn with_allowance(drive_writes_per_day: f64) -> Self {
        let options = PolicyOptions::new(SLOTS);
        let value = ValueConfig {
            drive_writes_per_day: Some(drive_writes_per_day),
            ..options.value
        };
        Self::new(&PolicyOptions { value, ..options })
    }

    /// Whether it was a hit. In write-back a page that is written comes in dirty; a resident one
    /// is then dirty too.
    fn request(&mut self, index: u64, op: Op) -> bool {
        self.request_with(index, op, access(1, index, op).hints)
    }

    fn request_with(&mut self, index: u64, op: Op, hints: HintSet) -> bool {
        self.requests += 1;
        let access = Access {
            hints,
            ..access(self.requests, index, op)
        };
        let resident = self.slots.find(access.page);
        self.value.on_request(&access, resident);
        let (is_back, writes) = (self.value.learner.is_back(), op == Op::Write);
        if let Some(slot) = resident {
            self.hits += u64::from(!writes);
            if writes {
                self.write(access.page);
            }
            if writes && is_back && !self.slots.is_dirty(slot) {
                self.leave(slot);
                self.come(&access, true);
            }
            return true;
        }
        let why = match (op, is_back) {
            (Op::Read, _) => Opportunity::Read,
            (Op::Write, true) => Opportunity::Clean,
            (Op::Write, false) => Opportunity::Write,
        };
        match self.value.decide(&access, why, &self.slots) {
            Decision::Refuse(_) => return false,
            Decision::Replace(victim) => self.leave(victim),
            Decision::Admit => {}
        }
        self.come(&access, why == Opportunity::Clean);
        self.write(access.page);
        false
    }

    fn write(&mut self, page: PageId) {
        self.written += 1;
        self.value.on_written(page);
    }

    fn leave(&mut self, slot: SlotId) {
        let left = self.slots.remove(slot);
        self.value.on_remove(left, slot, Removal::Evicted);
    }

    fn come(&mut self, access: &Access, dirty: bool) {
        let block = BlockId(access.page.index as u32 % 4096);
        let slot = self.slots.restore(access.page, block, dirty, false);
        self.value.on_admit(access, slot.expect("there is room"));
    }
}

/// What a restart finds on flash, and what a policy before this one left there, was written
/// already: the allowance is not touched by it.
#[test]
fn what_is_found_costs_no_wear() {
    let kappa = |found: bool| {
        let mut life = Life::with_allowance(1.0);
        for index in 0..u64::from(SLOTS) {
            let access = access(0, index, Op::Read);
            let block = BlockId(index as u32);
            let slot = life.slots.restore(access.page, block, false, false);
            let slot = slot.expect("room");
            match found {
                true => life.value.on_found(&access, slot),
                false => {
                    life.value.on_admit(&access, slot);
                    life.value.on_written(access.page);
                }
            }
        }
        life.value.assert_invariants(&life.slots);
        for minute in 0..10 {
            life.value.on_time(minute * 60_000);
        }
        life.value.kappa()
    };
    assert_eq!(kappa(true), wear::KAPPA);
    assert!(kappa(false) > wear::KAPPA, "a whole drive in a moment");
}

/// A policy that takes over at a request takes what it finds for read just then.
#[test]
fn what_is_found_counts_as_just_read() {
    for number in [0, 1_000_000] {
        let mut value = Value::new(&PolicyOptions::new(SLOTS));
        let found = Access {
            hints: HintSet::UNKNOWN,
            ..access(number, 7, Op::Read)
        };
        value.on_found(&found, SlotId(3));
        let entry = value.learner.pages.find(page(7)).expect("remembered");
        let read = value.learner.pages.get(entry).read;
        assert_eq!(u64::from(read), number.max(1));
    }
}

/// Pages that come in, and copies that are renewed, count for the dial; reads do not.
#[test]
fn the_dial_hears_of_every_write() {
    let kappa = |what: fn(&mut Life, u64)| {
        let mut life = Life::with_allowance(10.0);
        // A page a minute may be written: the tier is filled within that.
        for minute in 0..200 {
            if minute < 150 {
                life.request(minute, Op::Read);
            } else {
                (0..20).for_each(|at| what(&mut life, at));
            }
            life.value.on_time(minute * 60_000);
        }
        life.value.assert_invariants(&life.slots);
        life.value.kappa()
    };
    let read = |life: &mut Life, at: u64| {
        life.request(at % 10, Op::Read);
    };
    let renew = |life: &mut Life, at: u64| {
        life.request(at % 10, Op::Write);
    };
    let come_and_go = |life: &mut Life, at: u64| {
        life.leave(SlotId(at as u32));
        life.request(1000 + at, Op::Read);
    };
    assert_eq!(kappa(read), wear::KAPPA);
    assert!(kappa(renew) > wear::KAPPA);
    assert!(kappa(come_and_go) > wear::KAPPA);
}

/// A page that a file loses teaches that it was worth nothing, and is forgotten; one that was
/// evicted is remembered, and nothing is known of it yet.
#[test]
fn what_a_file_loses_is_worth_nothing() {
    for (why, known) in [(Removal::Trimmed, false), (Removal::Evicted, true)] {
        let mut options = PolicyOptions::new(SLOTS);
        (options.value.fresh, options.value.by_lot) = (1.0, 0.0);
        let mut life = Life::new(&options);
        life.request(5, Op::Read);
        let slot = life.slots.find(page(5)).expect("it came in");
        life.slots.remove(slot);
        life.value.on_remove(page(5), slot, why);
        let ended = life.value.learner.take_ended();
        let targets: Vec<f32> = ended.iter().map(|ended| ended.target).collect();
        assert_eq!(targets, if known { vec![] } else { vec![0.0] });
        assert_eq!(life.value.learner.pages.find(page(5)).is_some(), known);
        life.value.assert_invariants(&life.slots);
    }
}

/// Of two pages that are written next, the one that is newer than base is worth more on flash; so
/// the clean one leaves, and a newcomer comes in when it is cleaned, though not when it is read.
#[test]
fn in_write_back_what_is_newer_than_base_stays() {
    let mut life = Life::new(&PolicyOptions::new(SLOTS));
    life.value.considers(Opportunity::Clean);
    let pages = 2 * u64::from(SLOTS);
    for number in 0..200 * pages {
        life.request(mix(3, number) % pages, Op::Write);
    }
    life.value.assert_invariants(&life.slots);
    let (dirty, clean) = (SlotId(1), SlotId(2));
    life.slots.set_clean(clean);
    assert!(life.slots.is_dirty(dirty));
    let odds = |slot: SlotId| {
        life.value
            .odds_in(slot.0, &life.slots)
            .expect("it can leave")
    };
    assert!(
        odds(dirty) > 2.0 * odds(clean),
        "{} {}",
        odds(dirty),
        odds(clean)
    );
    for slot in (0..SLOTS).map(SlotId) {
        life.slots.set_clean(slot);
    }
    life.value.forget_odds();
    let outside = (0..pages).find(|at| life.slots.find(page(*at)).is_none());
    let newcomer = access(life.requests + 1, outside.expect("one"), Op::Write);
    life.value.on_request(&newcomer, None);
    let mut ask = |why| life.value.decide(&newcomer, why, &life.slots);
    assert!(matches!(ask(Opportunity::Clean), Decision::Replace(_)));
    assert_eq!(ask(Opportunity::Read), Decision::Refuse(Refusal::Cold));
}

/// In write-back a page is worth device time, not odds: what was known in odds says nothing then.
#[test]
fn odds_are_forgotten_when_write_back_begins() {
    let mut value = Value::new(&PolicyOptions::new(SLOTS));
    let known = |value: &mut Value| {
        value.candidates.push((1.0, 3));
        value.mean_victim = 1.0;
    };
    known(&mut value);
    value.considers(Opportunity::Read);
    assert_eq!((value.candidates.len(), value.mean_victim), (1, 1.0));
    value.considers(Opportunity::Clean);
    assert_eq!((value.candidates.len(), value.mean_victim), (0, 0.0));
    known(&mut value);
    value.considers(Opportunity::Clean);
    assert_eq!((value.candidates.len(), value.mean_victim), (1, 1.0));
}

/// Hot pages, and some that are never asked for again; then nobody wants the hot ones any more, and
/// a loop of three times as many pages as there are slots is what is read. Each of them is worth
/// far less than the hot ones were when they were last looked at, and more than they are now.
#[test]
fn what_was_hot_makes_way() {
    let mut life = Life::new(&PolicyOptions::new(SLOTS));
    life.value.considers(Opportunity::Clean);
    let slots = u64::from(SLOTS);
    let (hot, others) = (HintSet::UNKNOWN.with(0, 1), HintSet::UNKNOWN.with(0, 2));
    for number in 0..400 * slots {
        match number % 20 {
            0 => life.request_with(1_000_000 + number, Op::Read, others),
            _ => life.request_with(mix(4, number) % (slots * 21 / 20), Op::Read, hot),
        };
    }
    assert!(life.hits > 300 * slots, "{}", life.hits);
    for number in 0..600 * slots {
        if number == 400 * slots {
            life.hits = 0;
        }
        life.request_with(2_000_000 + number % (3 * slots), Op::Read, others);
    }
    life.value.assert_invariants(&life.slots);
    let share = life.hits as f64 / (200.0 * f64::from(SLOTS));
    assert!(share > 0.25, "a third would fit, {share}");
}

/// Reads and writes of what is hot, skewed and scanned, with hints that change by page.
fn mixed(number: u64) -> (u64, Op) {
    let draw = mix(6, number);
    let index = match draw % 4 {
        0 => draw >> 8 & 63,
        1 | 2 => (draw >> 8) % ((draw >> 40) % 900 + 1),
        _ => 2000 + number / 3,
    };
    let op = match (draw >> 4) % 4 {
        0 => Op::Write,
        _ => Op::Read,
    };
    (index, op)
}

/// Hits and flash writes of a stream with writes and hints: a change of any decision shows.
#[test]
fn golden_counts_with_writes() {
    let counts = |is_back: bool, counted: Counted| {
        let mut life = Life::new(&PolicyOptions::new(SLOTS));
        life.value.count(counted);
        if is_back {
            life.value.considers(Opportunity::Clean);
        }
        for number in 0..30_000 {
            let (index, op) = mixed(number);
            life.request(index, op);
        }
        life.value.assert_invariants(&life.slots);
        (life.hits, life.written)
    };
    let found = [false, true].map(|back| [Counted::Hits, Counted::Time].map(|c| counts(back, c)));
    let golden = [
        [(10_860, 8_667), (10_939, 8_541)],
        [(11_420, 14_751), (11_268, 13_809)],
    ];
    assert_eq!(found, golden);
}

/// A page of the reserve that is read is newer than base and on flash already: it comes in as one
/// that is cleaned does, and pays for no write.
#[test]
fn what_the_reserve_has_pays_for_no_write() {
    let mut life = Life::new(&PolicyOptions::new(SLOTS));
    life.slots = SlotTable::with_reserve(SLOTS, 1);
    life.value.considers(Opportunity::Clean);
    let pages = 2 * u64::from(SLOTS);
    for number in 0..200 * pages {
        life.request(mix(3, number) % pages, Op::Write);
    }
    for slot in (0..SLOTS).map(SlotId) {
        life.slots.set_clean(slot);
    }
    life.value.forget_odds();
    let outside = (0..pages).find(|at| life.slots.find(page(*at)).is_none());
    let newcomer = access(life.requests + 1, outside.expect("one"), Op::Write);
    life.value.on_request(&newcomer, None);
    let ask = |life: &mut Life, why| life.value.decide(&newcomer, why, &life.slots);
    let of_base = ask(&mut life, Opportunity::Read);
    assert_eq!(
        of_base,
        Decision::Refuse(Refusal::Cold),
        "else this shows nothing"
    );
    life.slots.admit_reserve(newcomer.page).expect("room");
    for why in [Opportunity::Clean, Opportunity::Read] {
        let decision = ask(&mut life, why);
        assert!(
            matches!(decision, Decision::Replace(_)),
            "{why:?} {decision:?}"
        );
    }
}

/// Whoever comes to the slot of a candidate that left is not taken for it.
#[test]
fn who_left_is_no_candidate() {
    let mut life = Life::new(&PolicyOptions::new(SLOTS));
    for index in 0..u64::from(SLOTS) {
        life.request(index, Op::Read);
    }
    life.value.candidates = vec![(0.0, 3), (0.1, 4)];
    life.leave(SlotId(3));
    life.request(1000, Op::Read);
    assert_eq!(life.slots.find(page(1000)), Some(SlotId(3)));
    assert_eq!(life.value.candidates, [(0.1, 4)]);
}

/// What never gets to flash does not touch the allowance: parts of pages, which go to base alone,
/// and pages that are dropped on their way.
#[test]
fn what_is_not_written_costs_no_wear() {
    for why in [Removal::Stale, Removal::Dropped] {
        let mut life = Life::with_allowance(1.0);
        let access = access(1, 7, Op::Write);
        life.value.on_found(&access, SlotId(3));
        for _ in 0..10_000 {
            life.value.on_request(&access, Some(SlotId(3)));
            life.value.on_remove(access.page, SlotId(3), why);
            match why {
                Removal::Stale => life.value.on_found(&access, SlotId(3)),
                _ => life.value.on_admit(&access, SlotId(3)),
            }
        }
        for minute in 0..10 {
            life.value.on_time(minute * 60_000);
        }
        assert_eq!(life.value.kappa(), wear::KAPPA, "{why:?}");
    }
}
