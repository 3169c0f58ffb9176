//! Auto: follows whichever of a few policies does best on a sample of the requests.
//!
//! *Algorithm*: each of [`FINALISTS`] runs in *miniature*: it manages a tier of its own, m slots
//! without bytes, and sees the requests of the sample alone: the share m / C of all extents by
//! hash, C being the slots of the tier (Waldspurger et al., Cached miniature simulation, USENIX ATC
//! 2017). Miniatures say which finalist would do best if it had always been in charge; all see the
//! same requests, and are held against what the tier itself earned there ([`race`]). *In life* are
//! two at most, told of the requests and of what is really on flash: `value`, always, because what
//! it learns takes long, and a *second*, which is the leader or about to be. `value` is two
//! finalists, by what it counts, hits or base's time (`value-time`): it learns the same for both,
//! and counts what the one that led last counts. Who leads at first is a guess: `value-time` where
//! the first request of the sample has hints, because it does best on captures of databases, else
//! `value`, which does better on traces of disks (`evaluation/results/value.md`). The second one is
//! made when its miniature comes near a decisive lead; it takes over what its miniature learned of
//! hints ([`TierPolicy::taught`]), and the pages on flash are told to it [`TOLD`] slots a decision,
//! so that nobody waits for it. It decides from when it leads and knows them all; `value` does
//! until then. So contents come to be those of the new leader as it evicts (after Smaragdakis,
//! General adaptive replacement policies, ISMM 2004): nothing is flushed.
//!
//! *Score*, in random reads of base: less what base has to read, a page in order for what that
//! takes beside a random one, but for a tenth at least ([`Streams`]); a page written to flash costs
//! the time it takes, W_S / ΔR ([`Costs::random_saving`]), and its wear: [`PRICE`] of a hit, as in
//! `value`. A hit is worth what base alone does for a read, in the mean of late: where reads are in
//! order, a price of random reads would let wear alone decide. A page in the write-back reserve
//! counts as found: flash serves it. While the tier is off nothing counts, and a write of a part of
//! a page, which leaves no copy of it anywhere, costs nothing. `value` counts read
//! hits, as CLIC, ARC and LRU do: it leads where these are worth most, `value-time` or TAC where
//! hits save base little, as under scans.
//! *Handicap*: the score of a finalist other than `value` is less by [`HANDICAP`] of what base
//! alone does, while it leads too: it begins anew in life, and knows less there than in miniature.
//!
//! *Cost*: `value`'s, that of the second while there is one, and for each request the hash of its
//! extent; for m / C of the requests a whole request of each miniature, and for a miss among them
//! the look-up of a page of each. Nothing is allocated but when a second one is made, and what the
//! finalists allocate. *Memory*: `value`'s, the second one's, and of all finalists that of m slots
//! and 24 bytes for each of these; m is C / [`SAMPLE_SHARE`] between [`SAMPLE_MIN`] and
//! [`SAMPLE_MAX`], and at most C. Where memory is bounded `value` has a
//! smaller form, and only finalists are raced that there is room for ([`fit`]).
//!
//! # The bound
//! Let b = 1 + the greatest price, the most that a score is above the tier's at a request, and S
//! the *stretches* so far ([`race`]): 1, and one more each time a lead was decisive. In the k-th
//! stretch the tier's own score in the sample falls behind no miniature's by more than k m + b, or
//! 8 m + b where k is more than 8: the race keeps for each a lead over the tier that is never below
//! that difference, and a lead above k m, or 8 m, ends the stretch (invariants 1 and 2 of
//! [`race`]). A score in the sample stands for C / m. With K the sum of min(k, 8) over the S
//! stretches,
//!
//! score >= score of the best fixed finalist alone, less its handicap - K C - S b C / m - e,
//!
//! e being the error of sampling, 0 where m = C. Nothing is assumed about finalists. The price of
//! a change is in it: until contents have come to be the new leader's, what the tier lacks adds to
//! leads. A stretch ends with a lead of m / 8 at least, so after n requests of the sample S is at
//! most 1 + 8 b n / m, and K at most 8 S. The bound says much where S is small: where one finalist
//! is best for long. It says little of a stream that turns at every change, or is made by one who
//! sees the contents: there every rule without lots loses all the time, and every policy has no
//! hits.
//!
//! # What a second one is not told
//! Pages that were in the pool or in the reserve before it was made: none of [`FINALISTS`] looks.
//! How warm regions are: TAC learns that from when it is made.
//!
//! # What miniatures do not see
//! Pages in DRAM, and beyond an extent of 32 pages whether neighbours were read. Nor, where m < C,
//! the requests between two of the sample: `value-time` in miniature takes scans side by side for
//! reads in order, and in life for reads at random. Nor the difference
//! between a page written and one cleaned: in write-back they race for reads of base alone,
//! though `value` in life counts base writes as well.
//!
//! # States
//! ```text
//! value, or value-time, leads --another is ahead by enough--> that one leads --the same--> ...
//! ```
//! and of the second: none --its miniature comes near--> being told --of every slot--> ready; none
//! again when its lead is gone and it does not lead.
//!
//! # Invariants (checked by [`TierPolicy::assert_invariants`], with those of the parts)
//! 1. A miniature holds sampled pages only.
//! 2. The second one knows the pages in slots below `told`, and no other.
//! 3. While another than `value` leads it is the second one.
//! 4. While `value` leads it counts what the race says.

mod fit;
mod mini;
mod race;
#[cfg(test)]
mod tests;

use super::streams::Streams;
use super::{
    Access, Aside, Decision, DirtyPages, Learned, LearnedFinalist, LearnedRace, Op, Opportunity,
    PolicyOptions, Removal, TierPolicy, Value, WriteBuffer, build, value::Counted,
};
use crate::cost::Costs;
use crate::hash::mix;
use crate::hint::HintSet;
use crate::page::{ObjectId, PageId, SlotId};
use crate::tier::SlotTable;
pub(super) use fit::Fit;
use mini::{Effect, Mini};
use race::Race;

/// The policies that may lead.
pub const FINALISTS: [&str; 6] = ["value", "value-time", "clic", "arc", "tac", "lru"];
const COUNT: usize = FINALISTS.len();
/// The first of them are `value`, which counts one thing or the other.
const VALUES: usize = 2;
const COUNTED: [Counted; VALUES] = [Counted::Hits, Counted::Time];

/// Who leads at first where there are hints.
const HINTED_FIRST: usize = 1;

/// Read hits that a flash write must earn: the wear price of `value`.
const PRICE: f64 = 0.12;
/// What finalists other than `value` have to be better by, as a share of what base alone does.
const HANDICAP: f64 = 0.05;
/// Reads of the sample for each slot of a miniature in which what a read is worth is forgotten.
const WORTH_SLOTS: f64 = 4.0;
/// Slots of a miniature, where the tier has so many.
const SAMPLE_MIN: u32 = 4096;
/// Slots of a miniature at most.
const SAMPLE_MAX: u32 = 16_384;
/// Slots of the tier for one of a miniature, between these.
const SAMPLE_SHARE: u32 = 64;
/// Slots whose pages a second one is told of at a decision.
const TOLD: u32 = 64;
/// Pages of an extent, as a power of two: sampled together.
const EXTENT: u32 = 5;
/// The hash that samples is another one than that of maps.
const SALT: u64 = 0x6175_746f;
/// The fewest requests of a learning window of a miniature.
const WINDOW_MIN: u64 = 100;

/// A finalist in life besides `value`.
struct Second {
    finalist: usize,
    policy: Box<dyn TierPolicy>,
    /// It knows the pages in the slots below.
    told: u32,
}

impl Second {
    /// `slot`, if its page is known here.
    fn knows(&self, slot: SlotId) -> bool {
        slot.0 < self.told
    }

    /// Tells of the pages in some more slots; `number` is that of the request at hand.
    fn tell(&mut self, slots: &SlotTable, capacity: u32, number: u64) {
        for slot in (self.told..capacity).take(TOLD as usize).map(SlotId) {
            if let Some(page) = slots.page(slot) {
                let access = Access {
                    page,
                    op: Op::Read,
                    hints: HintSet::UNKNOWN,
                    number,
                };
                self.policy.on_found(&access, slot);
                if slots.is_dirty(slot) {
                    self.policy.on_dirty(&access, slot);
                }
            }
            self.told = slot.0 + 1;
        }
    }
}

/// See the module text.
pub struct Auto {
    options: PolicyOptions,
    /// The first [`VALUES`] finalists: it counts what the last of them that led does.
    value: Value,
    second: Option<Second>,
    /// Of those raced, by their number.
    minis: Vec<(usize, Mini)>,
    race: Race,
    /// Slots of the tier and of a miniature.
    capacity: u32,
    sampled: u32,
    /// Requests of the sample.
    requests: u64,
    /// The page of the request at hand, if it is in the sample and not on flash.
    absent: Option<PageId>,
    /// The time of a page written to flash, random reads of base.
    time: f64,
    /// What base alone does for a read of late, random reads: a hit is worth that in the mean.
    worth: f64,
    /// Of base below the tier, and of base alone, in the sample.
    streams: Streams,
    bare: Streams,
    /// What base alone would have done for the sample, random reads.
    alone: f64,
}

impl Auto {
    /// An empty policy for `options.capacity` slots.
    #[must_use]
    pub fn new(options: &PolicyOptions) -> Self {
        let capacity = options.capacity;
        let sampled = sampled(capacity);
        let fit = Fit::of(options).unwrap_or_else(|| Fit::smallest(options));
        let mut options = options.clone();
        options.value = fit.value;
        // Who leads is decided at the price of 0.12: `auto` knows no allowance.
        options.value.drive_writes_per_day = None;
        // What there is has been divided.
        options.memory = None;
        let scaled = scaled(&options, sampled);
        let raced = (0..COUNT).filter(|at| fit.raced[*at]);
        let minis = raced.filter_map(|at| Some((at, build(FINALISTS[at], &scaled)?)));
        let minis = minis.map(|(at, policy)| (at, Mini::new(policy, &scaled)));
        let time = time(&options.costs);
        Self {
            value: Value::new(&options),
            second: None,
            minis: minis.collect(),
            race: Race::new(sampled, fit.raced),
            capacity,
            sampled,
            requests: 0,
            absent: None,
            time,
            worth: 1.0,
            streams: Streams::new(&options.costs),
            bare: Streams::new(&options.costs),
            alone: 0.0,
            options,
        }
    }

    /// The finalist that leads; it decides once it has been told of all pages on flash.
    #[must_use]
    pub fn leader(&self) -> &'static str {
        FINALISTS[self.race.leader()]
    }

    /// Changes of leader so far.
    #[must_use]
    pub fn changes(&self) -> u64 {
        self.race.changes()
    }

    /// What the score may be below that of the best fixed finalist, less its handicap, but for the
    /// error of sampling: see the module text.
    #[must_use]
    pub fn bound(&self) -> f64 {
        let (slots, sampled) = (f64::from(self.capacity), f64::from(self.sampled.max(1)));
        let edges = self.race.stretches() as f64 * self.most();
        (self.race.behind() + edges) * slots / sampled
    }

    /// What a page written to flash costs now, random reads: wear, and time.
    fn price(&self) -> f64 {
        PRICE * self.worth + self.time
    }

    /// The most that a score of a request is above the tier's.
    fn most(&self) -> f64 {
        1.0 + PRICE + self.time
    }

    /// Whether the extent of `page` is in the sample.
    fn is_sampled(&self, page: PageId) -> bool {
        let extent = page.index >> EXTENT;
        let hash = mix(mix(u64::from(page.object.0) + 1, extent), SALT);
        (hash >> 32) * u64::from(self.capacity) < u64::from(self.sampled) << 32
    }

    /// Tells those in life of a request. None of them asks what sets it apart.
    fn tell(&mut self, access: &Access, resident: Option<SlotId>) {
        self.value.on_request(access, resident);
        if let Some(second) = &mut self.second {
            let known = resident.filter(|slot| second.knows(*slot));
            second.policy.on_request(access, known);
        }
    }

    /// One more request of the sample, with its number there.
    fn next_sampled(&mut self, access: &Access) -> Access {
        if self.requests == 0 && access.hints.values() != HintSet::UNKNOWN.values() {
            self.race.begin(HINTED_FIRST);
            self.call();
        }
        self.requests += 1;
        Access {
            number: self.requests,
            ..*access
        }
    }

    /// Shows `access` to the miniatures as what leaves no copy of its page, there as in the tier:
    /// nobody earns anything.
    fn pass_miniatures(&mut self, access: &Access) {
        let access = self.next_sampled(access);
        for (_, mini) in &mut self.minis {
            mini.pass(&access);
        }
        self.absent = None;
    }

    /// Shows `access` to the miniatures, and lets the race know what each earned, and the tier.
    fn run_miniatures(&mut self, access: &Access, resident: bool) {
        let access = self.next_sampled(access);
        let bare = self.bare.cost(&access, false);
        self.alone += bare;
        if access.op == Op::Read {
            self.worth += (bare - self.worth) / (WORTH_SLOTS * f64::from(self.sampled.max(1)));
        }
        let price = self.price();
        let scores = self.serve_miniatures(&access, bare);
        // Told of hits too: a stream goes on over pages on flash, here as below a miniature.
        let base = self.streams.cost(&access, resident);
        let own = match resident {
            true => Effect::of_resident(access.op).score(price),
            false => -base,
        };
        self.race.observe(&scores, own);
        self.call();
        self.absent = (!resident).then_some(access.page);
    }

    /// What each miniature earned at a request that costs base alone `bare`, less its handicap.
    fn serve_miniatures(&mut self, access: &Access, bare: f64) -> [f64; COUNT] {
        let price = self.price();
        let mut scores = [0.0; COUNT];
        for (at, mini) in &mut self.minis {
            scores[*at] = mini.serve(access, price) - handicap(*at) * bare;
        }
        scores
    }

    /// Lets the race know of a page of each miniature, drawn by lot, whether the tier holds it.
    fn look(&mut self, slots: &SlotTable) {
        for (at, mini) in &self.minis {
            let lot = mix(self.requests, *at as u64) % u64::from(self.sampled.max(1));
            if let Some(page) = mini.page(SlotId(lot as u32)) {
                self.race.look(*at, slots.find(page).is_some());
            }
        }
        self.call();
    }

    /// Makes the second one that is wanted now, or lets go of one that is not.
    fn call(&mut self) {
        if let Some(counted) = COUNTED.get(self.race.leader()) {
            self.value.count(*counted);
        }
        let now = self.second.as_ref().map(|second| second.finalist);
        let wanted = self.race.wanted(now);
        if wanted == now {
            return;
        }
        self.second = wanted.and_then(|finalist| {
            let mut policy = build(FINALISTS[finalist], &self.options)?;
            let mut minis = self.minis.iter();
            let mini = minis.find(|(at, _)| *at == finalist);
            if let Some(learned) = mini.and_then(|(_, mini)| mini.learned()) {
                let slots = f64::from(self.capacity) / f64::from(self.sampled.max(1));
                policy.taught(&learned, slots);
            }
            Some(Second {
                finalist,
                policy,
                told: 0,
            })
        });
    }

    /// The second one, where it decides.
    fn second_leading(&self) -> Option<&Second> {
        let second = self.second.as_ref()?;
        let leads = second.finalist == self.race.leader() && second.told == self.capacity;
        leads.then_some(second)
    }

    fn leading(&self) -> &dyn TierPolicy {
        match self.second_leading() {
            Some(second) => second.policy.as_ref(),
            None => &self.value,
        }
    }

    /// All in life.
    fn live(&mut self) -> impl Iterator<Item = &mut dyn TierPolicy> {
        let value: &mut dyn TierPolicy = &mut self.value;
        let second = self.second.as_mut();
        std::iter::once(value).chain(second.map(|second| second.policy.as_mut() as _))
    }

    /// Who leads, and by how much.
    fn standing(&self) -> LearnedRace {
        let per_request = |count: f64| count / (self.requests.max(1) as f64);
        let finalists = self.minis.iter().map(|(at, mini)| {
            let (at, name) = (*at, FINALISTS[*at]);
            let (ahead, needed) = self.race.ahead(at);
            let (hits, writes) = (mini.hits() as f64, mini.writes() as f64);
            LearnedFinalist {
                name,
                leads: at == self.race.leader(),
                hits: per_request(hits),
                flash_writes: per_request(writes),
                score: per_request(self.alone + mini.score()),
                ahead,
                needed,
            }
        });
        LearnedRace {
            finalists: finalists.collect(),
            changes: self.changes(),
            requests: self.requests,
            slots: self.sampled,
        }
    }
}

/// What the finalist `at` has to be better by, as a share of what base alone does.
fn handicap(at: usize) -> f64 {
    if at < VALUES { 0.0 } else { HANDICAP }
}

/// Slots of a miniature of a tier of `slots` slots.
fn sampled(slots: u32) -> u32 {
    let share = slots / SAMPLE_SHARE;
    share.clamp(SAMPLE_MIN, SAMPLE_MAX).min(slots)
}

/// The time that a page written to flash takes, in random reads of base; 1 at most.
fn time(costs: &Costs) -> f64 {
    let saving = costs.random_saving();
    let time = match saving > 0.0 {
        true => costs.flash_write / saving,
        false => 0.0,
    };
    time.min(1.0)
}

/// The options of a miniature of `sampled` slots: what is counted in requests is scaled.
fn scaled(options: &PolicyOptions, sampled: u32) -> PolicyOptions {
    let mut scaled = options.clone();
    scaled.capacity = sampled;
    if sampled < options.capacity {
        let window = options.clic.window_of(options.capacity);
        let share = u64::from(sampled) as f64 / f64::from(options.capacity);
        scaled.clic.window = ((window as f64 * share) as u64).max(WINDOW_MIN);
    }
    scaled
}

impl TierPolicy for Auto {
    fn name(&self) -> &'static str {
        "auto"
    }

    fn on_request(&mut self, access: &Access, resident: Option<SlotId>) {
        self.tell(access, resident);
        if self.is_sampled(access.page) {
            self.run_miniatures(access, resident.is_some());
        }
    }

    fn on_aside(&mut self, access: &Access, resident: Option<SlotId>, why: Aside) {
        self.tell(access, resident);
        match why {
            Aside::Reserve if self.is_sampled(access.page) => self.run_miniatures(access, true),
            Aside::Part if self.is_sampled(access.page) => self.pass_miniatures(access),
            _ => {}
        }
    }

    fn decide(&mut self, access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        if let Some(second) = &mut self.second {
            second.tell(slots, self.capacity, access.number);
        }
        if self.absent == Some(access.page) {
            self.look(slots);
        }
        match (self.second_leading().is_some(), &mut self.second) {
            (true, Some(second)) => second.policy.decide(access, why, slots),
            _ => self.value.decide(access, why, slots),
        }
    }

    fn surplus(&mut self, slots: &SlotTable) -> Option<SlotId> {
        match (self.second_leading().is_some(), &mut self.second) {
            (true, Some(second)) => second.policy.surplus(slots),
            _ => self.value.surplus(slots),
        }
    }

    fn on_admit(&mut self, access: &Access, slot: SlotId) {
        self.value.on_admit(access, slot);
        if let Some(second) = self.second.as_mut().filter(|second| second.knows(slot)) {
            second.policy.on_admit(access, slot);
        }
        // What comes before the first request, as from a list of hot pages, begins no race.
        if self.requests > 0 && self.is_sampled(access.page) {
            self.race.charge(self.price());
            self.call();
        }
    }

    fn on_found(&mut self, access: &Access, slot: SlotId) {
        self.value.on_found(access, slot);
        if let Some(second) = self.second.as_mut().filter(|second| second.knows(slot)) {
            second.policy.on_found(access, slot);
        }
    }

    fn on_written(&mut self, page: PageId) {
        self.live().for_each(|policy| policy.on_written(page));
    }

    fn on_remove(&mut self, page: PageId, slot: SlotId, why: Removal) {
        self.value.on_remove(page, slot, why);
        if let Some(second) = self.second.as_mut().filter(|second| second.knows(slot)) {
            second.policy.on_remove(page, slot, why);
        }
        let is_gone = matches!(why, Removal::Trimmed | Removal::Stale | Removal::Outdated);
        if is_gone && self.is_sampled(page) {
            for (_, mini) in &mut self.minis {
                mini.forget(page, why);
            }
        }
    }

    fn on_trim(&mut self, object: ObjectId, first: u64) {
        self.live().for_each(|policy| policy.on_trim(object, first));
        for (_, mini) in &mut self.minis {
            mini.trim(object, first);
        }
    }

    fn on_pool_hits(&mut self, page: PageId, hits: u32) {
        self.live()
            .for_each(|policy| policy.on_pool_hits(page, hits));
    }

    fn on_pool(&mut self, page: PageId, buffered: bool) {
        self.live()
            .for_each(|policy| policy.on_pool(page, buffered));
    }

    fn on_reserve(&mut self, page: PageId, reserved: bool) {
        self.live()
            .for_each(|policy| policy.on_reserve(page, reserved));
    }

    fn on_time(&mut self, now_ms: u64) {
        self.live().for_each(|policy| policy.on_time(now_ms));
    }

    fn dirty_pages(&self) -> DirtyPages {
        self.leading().dirty_pages()
    }

    fn keeps_outdated(&self) -> bool {
        self.leading().keeps_outdated()
    }

    fn on_dirty(&mut self, access: &Access, slot: SlotId) {
        self.value.on_dirty(access, slot);
        if let Some(second) = self.second.as_mut().filter(|second| second.knows(slot)) {
            second.policy.on_dirty(access, slot);
        }
    }

    fn on_clean(&mut self, slot: SlotId) {
        self.value.on_clean(slot);
        if let Some(second) = self.second.as_mut().filter(|second| second.knows(slot)) {
            second.policy.on_clean(slot);
        }
    }

    fn write_buffer(&self) -> Option<WriteBuffer> {
        self.leading().write_buffer()
    }

    fn is_buffered(&self, slot: SlotId) -> bool {
        self.leading().is_buffered(slot)
    }

    fn is_synchronous(&self) -> bool {
        self.leading().is_synchronous()
    }

    fn worth(&self, page: PageId) -> f64 {
        self.leading().worth(page)
    }

    fn taught(&mut self, learned: &Learned, slots: f64) {
        self.live().for_each(|policy| policy.taught(learned, slots));
    }

    fn learned(&self) -> Option<Learned> {
        Some(Learned {
            race: Some(self.standing()),
            ..self.leading().learned().unwrap_or_default()
        })
    }

    fn bytes(&self) -> usize {
        let second = self
            .second
            .as_ref()
            .map_or(0, |second| second.policy.bytes());
        let minis: usize = self.minis.iter().map(|(_, mini)| mini.bytes()).sum();
        self.value.bytes() + second + minis
    }

    fn bytes_full(&self) -> usize {
        let second = self.second.as_ref();
        let second = second.map_or(0, |second| second.policy.bytes_full());
        let minis: usize = self.minis.iter().map(|(_, mini)| mini.bytes_full()).sum();
        self.value.bytes_full() + second + minis
    }

    fn assert_invariants(&self, slots: &SlotTable) {
        self.value.assert_invariants(slots);
        if let Some(second) = &self.second {
            assert!(second.told <= self.capacity, "invariant 2");
            if second.told == self.capacity {
                second.policy.assert_invariants(slots);
            }
        }
        let second = self.second.as_ref().map(|second| second.finalist);
        let leader = self.race.leader();
        assert!(leader < VALUES || second == Some(leader), "invariant 3");
        let counted = COUNTED
            .get(leader)
            .is_none_or(|counted| self.value.counts(*counted));
        assert!(counted, "invariant 4");
        for (_, mini) in &self.minis {
            mini.assert_invariants();
            let mut pages = mini.pages();
            assert!(pages.all(|page| self.is_sampled(page)), "invariant 1");
        }
        self.race.assert_invariants();
    }
}
