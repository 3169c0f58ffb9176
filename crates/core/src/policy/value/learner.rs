//! The online learner: what is remembered of pages, the samples under observation, and the model
//! that is fitted to what becomes of them.
//!
//! *Target* of a sample of a page: e^(-d/H) when the page's next request is a read d requests
//! later; 0 when it is a write, or the page is on flash and its file loses it. Of pages that are
//! not on flash nothing is heard then: finding them would be a search of all that is remembered. A
//! sample that hears nothing for a third of the
//! horizon H ends with e^(-age/H) times what the model says of the page by then (temporal
//! difference: Sutton, Machine Learning 1988), and so does one whose page is forgotten or whose
//! place in the ring is needed. Pages are sampled at their request, and by lot, of those on flash
//! and of all remembered: decisions are about such pages, which are requested seldom, so that
//! samples at requests alone would say little of them. In write-through, where most requests hit, H
//! is long, and so many are sampled as can be waited for.
//!
//! *Write-back* ([`Learner::count_writes`]): a second model learns the same of writes, for which
//! the next request must be a write; and it tells pages in the DRAM pool, which are read later
//! here, from others. Samples are waited for longer, where the ring has room.
//!
//! *Horizon*: what a tier of this size can keep. About slots / (hits a request) requests pass until
//! a slot's page is hit; where most requests hit, pages stay longer than that, slots / (misses a
//! request): H follows the rarer of the two. In write-back pages that miss come in, for the most
//! part, so H follows the misses there.
//!
//! # Invariants (checked by [`Learner::assert_invariants`], with those of its parts)
//! 1. H is between 1 and [`HORIZON_MAX`] times the slots.

use super::ValueConfig;
use super::features::{self, Clock, Extents};
use super::hint_types::{Choice, Values};
use super::math;
use super::model::{Indices, Model};
use super::money::Outlook;
use super::pages::{Pages, Past, Place};
use super::samples::{NONE, Sample, Samples};
use super::worth::Worth;
use crate::hash;
use crate::page::PageId;
use crate::policy::{Access, Learned, LearnedHintSet, Op};

/// H = this × slots / (read hits or misses a request, whichever are fewer; in write-back misses).
const HORIZON: f32 = 0.7;
/// H at first, slots.
const HORIZON_FIRST: f32 = 1.5;
/// H at most, slots.
const HORIZON_MAX: f32 = 20.0;
/// Factor by which H changes at most when it is renewed, each time as many requests as slots. The
/// k-th time it is 1 / k more: at first nothing is known of what H is to be.
const HORIZON_STEP: f32 = 1.15;
/// Share of H after which a sample ends unheard.
const DELAY: f32 = 0.33;
/// The same in write-back.
const DELAY_BACK: f32 = 1.0;
/// Samples under observation in write-back, at least.
const SAMPLES_BACK: u32 = 1 << 16;
/// Of the samples drawn by lot, the share for which any page remembered counts, on flash or not.
const ANY: f32 = 0.5;
/// How often a lot is drawn at most, for a page that counts.
const LOTS: u32 = 16;
/// Tiers with fewer slots learn as if they had so many.
const SLOTS_MIN: u32 = 64;

/// Numbers drawn by lot: xorshift (Marsaglia 2003).
#[derive(Clone, Debug)]
pub(super) struct Lots(u64);

impl Lots {
    pub(super) fn new(seed: u64) -> Self {
        Self(hash::mix(seed, 1) | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Below `bound`.
    pub(super) fn below(&mut self, bound: u32) -> u32 {
        (((self.next() >> 32) * u64::from(bound)) >> 32) as u32
    }

    /// From 0 to 1.
    fn share(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 24) as f32
    }
}

/// How a sample ended, for tests.
#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(super) struct Ended {
    pub page: PageId,
    pub time: u32,
    pub target: f32,
    /// What the model said, where the sample ended unheard.
    pub estimate: Option<Outlook>,
    pub horizon: f32,
}

/// What became of a sample.
#[derive(Clone, Copy, Debug)]
enum Outcome {
    Read,
    Write,
    /// Its page was trimmed.
    Gone,
    /// Nothing yet; what the models say by now.
    Unheard(Outlook),
}

impl Outcome {
    /// V at the end.
    fn worth(self) -> Outlook {
        let known = |reads, writes| Outlook { reads, writes };
        match self {
            Self::Read => known(1.0, 0.0),
            Self::Write => known(0.0, 1.0),
            Self::Gone => known(0.0, 0.0),
            Self::Unheard(outlook) => outlook,
        }
    }
}

/// See the module text.
#[derive(Clone, Debug)]
pub(super) struct Learner {
    pub(super) pages: Pages,
    extents: Extents,
    /// Of reads to come.
    model: Model,
    /// Of writes to come; in write-back only.
    writes: Option<Model>,
    samples: Samples,
    choice: Choice,
    worth: Worth,
    clock: Clock,
    /// H, requests.
    horizon: f32,
    /// Requests since H was renewed, and read hits and misses among them.
    requests: u32,
    hits: u32,
    misses: u32,
    /// What H follows, of a request, smoothed.
    rate: Option<f32>,
    renewals: u64,
    lots: Lots,
    fresh: f32,
    by_lot: f32,
    /// What is sampled now of those shares.
    sampling: f32,
    #[cfg(test)]
    ended: Vec<Ended>,
}

/// Pages that a tier of `slots` slots remembers, on flash or not.
fn remembered(slots: u32, config: &ValueConfig) -> u64 {
    u64::from(slots) * (1 + u64::from(config.ghosts))
}

/// Samples that are under observation at most.
fn sample_places(slots: u32, config: &ValueConfig) -> u32 {
    ((f64::from(slots) * f64::from(config.samples)) as u32).max(1)
}

impl Learner {
    /// Bytes that one for a tier of `slots` slots takes before the first page is cleaned.
    pub(super) fn bytes_for(slots: u32, config: &ValueConfig) -> u64 {
        let slots = slots.max(SLOTS_MIN);
        let pages = Pages::bytes_for(remembered(slots, config));
        let samples = u64::from(sample_places(slots, config)) * size_of::<Sample>() as u64;
        let extents = Extents::bytes_for(slots, config.extents_halved);
        let whatever = Model::BYTES + Choice::BYTES + Worth::BYTES;
        pages + samples + extents + whatever as u64
    }

    /// Whether all that is remembered of a tier of `slots` slots can be numbered.
    pub(super) fn has_numbers(slots: u32, config: &ValueConfig) -> bool {
        Pages::has_numbers(remembered(slots.max(SLOTS_MIN), config))
    }

    /// Nothing known, for a tier of `slots` slots.
    pub(super) fn new(slots: u32, seed: u64, config: &ValueConfig, in_order: f32) -> Self {
        let slots = slots.max(SLOTS_MIN);
        Self {
            pages: Pages::new(remembered(slots, config)),
            extents: Extents::new(slots, config.extents_halved, in_order),
            model: Model::new(),
            writes: None,
            samples: Samples::new(sample_places(slots, config)),
            choice: Choice::new(),
            worth: Worth::new(),
            clock: Clock { now: 1, slots },
            horizon: HORIZON_FIRST * slots as f32,
            requests: 0,
            hits: 0,
            misses: 0,
            rate: None,
            renewals: 0,
            lots: Lots::new(seed),
            fresh: config.fresh,
            by_lot: config.by_lot,
            sampling: 1.0,
            #[cfg(test)]
            ended: Vec::new(),
        }
    }

    /// A request, which finds its page on flash or not: ends what waited for it, renews what is
    /// remembered of the page, and takes samples. Gives the page's entry, `NONE` where there is no
    /// room for it. O(samples that end).
    pub(super) fn on_request(&mut self, access: &Access, is_hit: bool) -> u32 {
        self.clock.now = (access.number as u32).max(1);
        if let Some(entry) = self.pages.find(access.page) {
            let outcome = match access.op {
                Op::Read => Outcome::Read,
                Op::Write => Outcome::Write,
            };
            self.conclude(entry, outcome);
        }
        let share = if self.is_back() { DELAY_BACK } else { DELAY };
        let delay = ((share * self.horizon) as u32).max(SLOTS_MIN);
        while let Some((at, sample)) = self.samples.oldest() {
            if self.clock.now.wrapping_sub(sample.time) < delay {
                break;
            }
            self.estimate(at, &sample);
        }
        self.renew_horizon(access.op, is_hit);
        let entry = self.remember(access);
        if self.lots.share() < self.fresh * self.sampling && entry != NONE {
            let hints = self.choice.project(&access.hints);
            self.worth.on_request(&hints, self.pages.get(entry).hints);
            self.observe(entry, Some(Choice::values(&access.hints)));
        }
        self.sample_by_lot();
        entry
    }

    /// The page in `entry` came to flash without a request: taken for one just read, of which
    /// nothing else is known. Gives the entry, `NONE` where there is no room.
    pub(super) fn introduce(&mut self, page: PageId) -> u32 {
        let entry = self.entry(page);
        if entry != NONE {
            let past = self.pages.get_mut(entry);
            if past.read == 0 && past.write == 0 {
                past.read = self.clock.now;
            }
        }
        entry
    }

    /// The page is on flash already, as one before this one left it after the request `number`, 0
    /// for none. Otherwise as [`Learner::introduce`].
    pub(super) fn found(&mut self, page: PageId, number: u64) -> u32 {
        if number > 0 {
            self.clock.now = (number as u32).max(1);
        }
        self.introduce(page)
    }

    /// The page in `entry` is gone for good.
    pub(super) fn forget(&mut self, entry: u32) {
        self.conclude(entry, Outcome::Gone);
        self.pages.forget(entry);
    }

    /// The odds V / (1 - V) of the page in `entry`, now. O(tables).
    pub(super) fn odds(&self, entry: u32) -> f32 {
        self.model.odds(&self.indices(entry))
    }

    /// What a read of the page in `entry` costs base alone, in random reads. O(1).
    pub(super) fn cost(&self, entry: u32) -> f32 {
        self.extents.mean_cost(self.pages.get(entry).page())
    }

    /// Whether writes count.
    pub(super) fn is_back(&self) -> bool {
        self.writes.is_some()
    }

    /// Writes count from now on, and which pages are in the DRAM pool. Allocates, the first time:
    /// 5 MiB at most.
    pub(super) fn count_writes(&mut self) {
        if self.is_back() {
            return;
        }
        while let Some((at, sample)) = self.samples.oldest() {
            self.estimate(at, &sample);
        }
        self.writes = Some(Model::new());
        self.rate = None;
        self.sampling = 1.0;
        // All have ended. A larger ring is kept: nobody is to wait for a new one.
        if self.samples.capacity() < SAMPLES_BACK {
            self.samples = Samples::new(SAMPLES_BACK);
        }
    }

    /// V of the page in `entry` now. O(tables).
    pub(super) fn outlook(&self, entry: u32) -> Outlook {
        let indices = self.indices(entry);
        let writes = self.writes.as_ref();
        Outlook {
            reads: self.model.value(&indices),
            writes: writes.map_or(0.0, |model| model.value(&indices)),
        }
    }

    /// `page` came into the DRAM pool, or left it.
    pub(super) fn set_buffered(&mut self, page: PageId, buffered: bool) {
        if let Some(entry) = self.pages.find(page) {
            self.pages.set_buffered(entry, buffered);
        }
    }

    /// A number below `bound`.
    pub(super) fn draw(&mut self, bound: u32) -> u32 {
        self.lots.below(bound)
    }

    /// What was learned; `resident` counts pages on flash by the number of their hint set.
    pub(super) fn learned(&self, resident: impl Fn(u16) -> u32) -> Learned {
        let sets = self.worth.known().map(|known| LearnedHintSet {
            hints: known.hints,
            requests: known.requests,
            rereads: known.rereads,
            distance: known.distance,
            priority: f64::from(known.worth),
            resident: resident(known.number),
        });
        let mut hint_sets: Vec<LearnedHintSet> = sets.collect();
        hint_sets.sort_by(|a, b| {
            let order = b.priority.total_cmp(&a.priority);
            order.then(a.hints.cmp(&b.hints))
        });
        Learned {
            windows: self.renewals,
            window: u64::from(self.clock.slots),
            hint_sets,
            hint_types: self.choice.learned(),
            worth: self.worth.by_age(),
            race: None,
        }
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        let models = self.model.bytes() + self.writes.as_ref().map_or(0, Model::bytes);
        let tables = self.pages.bytes() + self.extents.bytes() + models;
        tables + self.samples.bytes() + self.choice.bytes() + self.worth.bytes()
    }

    /// Panics unless all invariants hold. O(entries + samples × chain).
    pub(super) fn assert_invariants(&self) {
        self.pages.assert_invariants();
        self.choice.assert_invariants();
        let newest = |entry: u32| self.pages.get(entry).samples;
        self.samples.assert_invariants(self.clock.now, newest);
        let slots = self.clock.slots as f32;
        let bounds = slots * 0.99..=slots * HORIZON_MAX * 1.01;
        assert!(bounds.contains(&self.horizon), "invariant 1");
    }

    fn indices(&self, entry: u32) -> Indices {
        let past = self.pages.get(entry);
        let in_pool = self.is_back() && self.pages.is_buffered(entry);
        features::indices(&self.clock, past, in_pool, &self.pages, &self.extents)
    }

    /// e^(-age/H).
    fn left(&self, age: u32) -> f32 {
        math::exp(-(age as f32) / self.horizon)
    }

    /// Samples that ended since the last call.
    #[cfg(test)]
    pub(super) fn take_ended(&mut self) -> Vec<Ended> {
        std::mem::take(&mut self.ended)
    }

    /// The sample ends with `outcome`.
    fn learn(&mut self, sample: &Sample, outcome: Outcome) {
        let age = self.clock.now.wrapping_sub(sample.time);
        let left = self.left(age);
        let worth = outcome.worth();
        let target = left * worth.reads;
        #[cfg(test)]
        self.ended.push(Ended {
            page: self.pages.get(sample.entry).page(),
            time: sample.time,
            target,
            estimate: match outcome {
                Outcome::Unheard(outlook) => Some(outlook),
                _ => None,
            },
            horizon: self.horizon,
        });
        if sample.values.is_some() {
            let read = matches!(outcome, Outcome::Read);
            self.worth.settle(sample.hints, read.then_some(age));
        }
        self.model.learn(&sample.indices, target);
        if let Some(model) = &mut self.writes {
            model.learn(&sample.indices, left * worth.writes);
        }
        self.worth.learn(sample.hints, sample.age, target);
        if let Some(values) = &sample.values {
            self.choice.learn(values, target);
        }
    }

    /// All samples of the page in `entry` end.
    fn conclude(&mut self, entry: u32, outcome: Outcome) {
        let mut at = std::mem::replace(&mut self.pages.get_mut(entry).samples, NONE);
        while at != NONE {
            let sample = self.samples.end(at);
            self.learn(&sample, outcome);
            at = sample.older;
        }
    }

    /// What the model says by now of the page in `entry`.
    fn unheard(&self, entry: u32) -> Outcome {
        Outcome::Unheard(self.outlook(entry))
    }

    /// The oldest sample, at `at`, ends unheard.
    fn estimate(&mut self, at: u32, sample: &Sample) {
        let outcome = self.unheard(sample.entry);
        self.samples.end(at);
        let newest = self.samples.cut(self.pages.get(sample.entry).samples, at);
        self.pages.get_mut(sample.entry).samples = newest;
        self.learn(sample, outcome);
    }

    /// The samples of the page in `entry` end unheard: it is about to be forgotten.
    fn estimate_all(&mut self, entry: u32) {
        if self.pages.get(entry).samples != NONE {
            self.conclude(entry, self.unheard(entry));
        }
    }

    /// Puts the page in `entry` under observation.
    fn observe(&mut self, entry: u32, values: Option<Values>) {
        while self.samples.is_full() {
            let Some((at, sample)) = self.samples.oldest() else {
                break;
            };
            self.estimate(at, &sample);
        }
        let past = self.pages.get(entry);
        let now = self.clock.now;
        let at = self.samples.push(Sample {
            entry,
            time: now,
            older: past.samples,
            age: now.wrapping_sub(past.last(now)),
            hints: past.hints,
            indices: self.indices(entry),
            values,
        });
        self.pages.get_mut(entry).samples = at;
    }

    /// Samples a page drawn by lot, now and then: of those on flash, or of all remembered; none
    /// where so many lots find none.
    fn sample_by_lot(&mut self) {
        if self.lots.share() >= self.by_lot * self.sampling {
            return;
        }
        let is_any = self.lots.share() < ANY;
        for _ in 0..LOTS {
            let entry = self.lots.below(self.pages.places());
            let counts = match is_any {
                true => self.pages.is_known(entry),
                false => self.pages.is_on_flash(entry),
            };
            if counts {
                return self.observe(entry, None);
            }
        }
    }

    /// Counts a request, and renews H when there were as many as slots.
    fn renew_horizon(&mut self, op: Op, is_hit: bool) {
        self.requests += 1;
        self.hits += u32::from(is_hit && op == Op::Read);
        self.misses += u32::from(!is_hit);
        if self.requests < self.clock.slots {
            return;
        }
        let hits_most = self.misses < self.hits && !self.is_back();
        let counted = match self.is_back() {
            true => self.misses,
            false => self.hits.min(self.misses),
        };
        let rate = counted as f32 / self.requests as f32 + 0.005;
        let rate = self.rate.map_or(rate, |before| 0.7 * before + 0.3 * rate);
        self.rate = Some(rate);
        (self.requests, self.hits, self.misses) = (0, 0, 0);
        self.renewals += 1;
        let slots = self.clock.slots as f32;
        let wanted = (HORIZON * slots / rate).clamp(slots, HORIZON_MAX * slots);
        let step = HORIZON_STEP + 1.0 / self.renewals as f32;
        self.horizon = wanted.clamp(self.horizon / step, self.horizon * step);
        let all = self.samples.capacity() as f32 / (DELAY * self.horizon);
        self.sampling = match hits_most {
            true => (all / (self.fresh + self.by_lot)).min(1.0),
            false => 1.0,
        };
    }

    /// The entry of `page`, which may have to be given one; `NONE` where there is no room.
    fn entry(&mut self, page: PageId) -> u32 {
        match self.pages.place(page, self.clock.now) {
            Place::Known(entry) => entry,
            Place::Full => NONE,
            Place::Free(entry) => {
                if self.pages.is_known(entry) {
                    self.estimate_all(entry);
                }
                let first = self.clock.epoch();
                self.pages.take(entry, page).first = first;
                entry
            }
        }
    }

    /// What is remembered of the page is that of this request.
    fn remember(&mut self, access: &Access) -> u32 {
        let is_read = access.op == Op::Read;
        self.extents.on_request(&self.clock, access.page, is_read);
        let entry = self.entry(access.page);
        if entry == NONE {
            return NONE;
        }
        let hints = self.choice.number(&access.hints);
        let now = self.clock.now;
        let past = self.pages.get_mut(entry);
        let is_known = past.read != 0 || past.write != 0;
        if is_known && past.is_read_last(now) != is_read {
            past.other = past.hints;
        }
        past.hints = hints;
        if !is_read {
            past.write = now;
            past.writes = past.writes.saturating_add(1);
            return entry;
        }
        if past.read != 0 {
            let distance = now.wrapping_sub(past.read);
            past.before = past.distance;
            past.distance = math::half_log2(distance.saturating_sub(1)) as u8 + 1;
            past.warmth = (f32::from(past.warmth) * self.clock.left(distance)) as u16;
        }
        past.warmth = past.warmth.saturating_add(Past::WARM);
        past.read = now;
        past.reads = past.reads.saturating_add(1);
        past.writes = 0;
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint::HintSet;
    use crate::page::ObjectId;

    /// A ring that has as many places as write-back needs is not made again.
    #[test]
    fn a_large_ring_of_samples_is_kept_in_write_back() {
        for (slots, stays) in [(SAMPLES_BACK, true), (1000, false)] {
            let mut learner = Learner::new(slots, 1, &ValueConfig::default(), 0.1);
            for number in 1..500 {
                let access = Access {
                    page: PageId::new(ObjectId(1), number),
                    op: Op::Read,
                    hints: HintSet::UNKNOWN,
                    number,
                };
                learner.on_request(&access, false);
            }
            assert!(learner.samples.oldest().is_some());
            let before = learner.samples.address();
            learner.count_writes();
            assert!(learner.samples.oldest().is_none(), "all have ended");
            assert_eq!(learner.samples.address() == before, stays);
            assert_eq!(learner.samples.capacity(), SAMPLES_BACK);
            learner.assert_invariants();
        }
    }
}
