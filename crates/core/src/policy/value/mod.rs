//! Value: keeps the pages that an online model says are worth most.
//!
//! *Algorithm*: V(page) is about E[e^(-d/H)], d being the requests until the page is read next, 0
//! when it is written before; a page with V near 1 is read soon. A model learns V from what
//! became of sampled pages ([`learner`]): a sum of weights found under the page's hint set, the
//! ages and distances of its requests, and the requests of its extent and its neighbours
//! ([`features`]). A full tier evicts by sampling: of residents drawn by lot, the least worthy of
//! those drawn lately among them, the page with the lowest odds o = V / (1 - V) is the victim, and
//! it leaves when o(newcomer) > 1.1 o(victim) + κ. Most are drawn only when a page is to leave:
//! while newcomers are refused the least worthy stays the same. κ is what a flash write must earn
//! in read hits, the dial for wear ([`wear`]). A newcomer far below the least worthy of late is
//! refused unseen; what those were fades by it, so that pages on flash that grow cold are looked at
//! again. Hint types that say nothing are left out ([`hint_types`]). Nothing is known beforehand
//! about any hint.
//!
//! *What is counted*: read hits, or what reads cost base alone in random reads (`value-time`). V is
//! c V there, c being the mean cost of reads of the page's extent ([`features`]). That mean says
//! more than the page's own reads: the first page of a run costs base much and the others little,
//! and it is the run that is to be kept or left. What is learned is the same for both, so
//! `auto` can change between the two at once. In write-through, where a transfer takes a tenth of
//! a random read or less, a page has odds of 0.11 at most by time, below κ, once its extent's mean
//! is that of reads in order: it comes in only where there is room.
//!
//! *Write-back*, which the first page that is cleaned shows: a page is worth the device time it
//! saves, of reads and of writes ([`money`]). κ is the time of a write to flash then, and 0 for a
//! page that is newer than base: refused, it would be written to flash as well, or is there
//! already, in the reserve. Under a DRAM pool a page is considered when it is cleaned or leaves the
//! pool, not when it is read, and a clean copy gives up its slot when its page is made dirty in
//! DRAM, as for CAC.
//!
//! *Cost*: a hit costs the samples that end and are taken (less than one a request in the mean, and
//! at a quarter of the requests a few lots); a miss besides evaluations of 17 tables: about four
//! where the page is refused, [`DRAWS`] and a few where one leaves, twice as many in write-back.
//! *Memory*: for each slot six pages remembered, on flash or not, of 33 bytes; a sample under
//! observation of 68; 28 for its entry and places of extents and blocks, up to 52 where the
//! slots are no power of two; besides 1 MiB whatever the size. Write-back takes 0.3 MiB more, and
//! has 65,536 samples at least (4.3 MiB): allocated once, when the first page is cleaned. Else
//! nothing is allocated after the start.
//!
//! # States of a page
//! ```text
//! unknown --request--> remembered --admit--> on flash
//!    ^                     |   ^                    |
//!    +------line full------+   +-------remove-------+
//! ```
//!
//! # Choices
//! - *Free slots* are filled by whatever comes, as under every policy.
//! - *Writes* renew the copy. That a write ends a page's worth is what the targets say.
//! - *Pages that come without a request* (restart, change of policy) count as just read, and
//!   nothing was written for those that are on flash already.
//! - *A resident page that is not remembered* (its line was full of pages on flash) is worth what
//!   victims are worth.
//!
//! # Invariants (checked by [`TierPolicy::assert_invariants`], with those of the parts)
//! 1. The entry of a slot is that of its page, and the entry is marked as on flash.
//! 2. No other entry is.
//! 3. Slots are counted by the hint set of their page's entry.

mod features;
mod hint_types;
mod learner;
mod math;
mod model;
mod money;
mod pages;
mod samples;
#[cfg(test)]
mod tests;
mod wear;
mod worth;

use super::{
    Access, Decision, Learned, Opportunity, PolicyOptions, Pooled, Refusal, Removal, TierPolicy,
    streams, takes,
};
use crate::page::{PageId, SlotId};
use crate::tier::SlotTable;
use learner::Learner;
use money::{Money, Outlook};
use samples::NONE;
use std::cmp::Ordering;
use wear::Dial;

/// Residents drawn by lot for an eviction.
const DRAWS: u32 = 16;
/// As many of them are drawn before it is known whether there is one.
const LOOKS: u32 = 2;
/// Candidates, the least worthy of those that were drawn.
const KEPT: usize = 8;
/// Odds of a newcomer over those of its victim, at least.
const MARGIN: f32 = 1.1;
/// A newcomer with less than this share of the odds of victims of late is refused unseen.
const HOPELESS: f32 = 0.7;
/// Numbers that hint sets may have.
const HINT_SETS: usize = 1 << 16;
/// Weight of one more in the mean odds of the least worthy candidates.
const VICTIM_STEP: f32 = 0.02;
/// What is left of that mean after a newcomer that was refused unseen.
const VICTIM_FADE: f32 = 1.0 - 1.0 / 256.0;

/// What a page is worth.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Counted {
    /// Read hits.
    Hits,
    /// What these cost base alone, in random reads.
    Time,
}

/// Parameters of `value`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ValueConfig {
    /// Pages remembered that are not on flash, for each slot.
    pub ghosts: u32,
    /// Pages under observation at most, for each slot.
    pub samples: f32,
    /// Share of the requests whose page is sampled.
    pub fresh: f32,
    /// Share of the requests at which a page drawn by lot is sampled.
    pub by_lot: f32,
    /// How often the places for extents, one a slot or up to two, are halved.
    pub extents_halved: u32,
    /// The wear dial: drive writes a day, of a drive of the tier's size, that flash writes are to
    /// stay below. `None`: whatever earns its price of 0.12 read hits is written.
    pub drive_writes_per_day: Option<f64>,
}

impl Default for ValueConfig {
    fn default() -> Self {
        Self {
            ghosts: 5,
            samples: 1.0,
            fresh: 0.25,
            by_lot: 0.25,
            extents_halved: 0,
            drive_writes_per_day: None,
        }
    }
}

/// What is remembered where memory is short, most first: pages that are not on flash, for each
/// slot; samples for each slot; shares of samples at requests and by lot; how often the places of
/// extents are halved.
const FORMS: [(u32, f32, f32, f32, u32); 5] = [
    (5, 1.0, 0.25, 0.25, 0),
    (3, 1.0, 0.25, 0.25, 0),
    (2, 1.0, 0.25, 0.25, 0),
    (3, 0.5, 0.1, 0.4, 1),
    (1, 0.25, 0.1, 0.4, 2),
];

impl ValueConfig {
    /// The form `at`, where `FORMS` has one.
    fn form(self, at: usize) -> Option<Self> {
        let (ghosts, samples, fresh, by_lot, extents_halved) = *FORMS.get(at)?;
        Some(Self {
            ghosts,
            samples,
            fresh,
            by_lot,
            extents_halved,
            ..self
        })
    }

    /// Bytes that a tier of `slots` slots takes with it, in write-back 5 MiB more. O(1).
    #[must_use]
    pub fn bytes(&self, slots: u32) -> u64 {
        let lists = KEPT * size_of::<(f32, u32)>();
        let slot = (u64::from(slots) + HINT_SETS as u64) * 4;
        Learner::bytes_for(slots, self) + slot + lists as u64
    }

    /// These, so that a tier of `slots` slots takes at most `memory` bytes: as they are, or else
    /// the first form that takes less and fits; `None` where none does. A form that has not so many
    /// numbers as entries fits nowhere.
    #[must_use]
    pub fn within(&self, slots: u32, memory: u64) -> Option<Self> {
        let most = self.bytes(slots);
        let forms = (0..FORMS.len()).filter_map(|at| self.form(at));
        let less = forms.filter(|form| form.bytes(slots) < most);
        let mut all = std::iter::once(*self).chain(less);
        all.find(|form| form.bytes(slots) <= memory && Learner::has_numbers(slots, form))
    }

    /// These, with as little memory as there can be.
    #[must_use]
    pub fn smallest(&self, slots: u32) -> Self {
        let forms = (0..FORMS.len()).filter_map(|at| self.form(at));
        let smaller = forms.chain(std::iter::once(*self));
        let smallest = smaller.min_by_key(|form| form.bytes(slots));
        smallest.unwrap_or(*self)
    }
}

/// See the module text.
#[derive(Debug)]
pub struct Value {
    learner: Learner,
    counted: Counted,
    dial: Dial,
    /// Entry of the page in each slot.
    entries: Vec<u32>,
    /// Slots whose page was last requested with each hint set, by its number.
    residents: Vec<u32>,
    /// Odds and slots of those that may leave next: see [`Value::lowest`].
    candidates: Vec<(f32, u32)>,
    /// Odds of the least worthy candidates of late, whether they left or not.
    mean_victim: f32,
    admit_on_write: bool,
    money: Money,
    pooled: Pooled,
}

impl Value {
    /// An empty policy for `options.capacity` slots.
    #[must_use]
    pub fn new(options: &PolicyOptions) -> Self {
        let capacity = options.capacity;
        let memory = options.memory.unwrap_or(u64::MAX);
        let fits = options.value.within(capacity, memory);
        let config = &fits.unwrap_or_else(|| options.value.smallest(capacity));
        let in_order = streams::in_order(&options.costs) as f32;
        Self {
            learner: Learner::new(capacity, options.seed, config, in_order),
            counted: Counted::Hits,
            dial: Dial::new(config.drive_writes_per_day, capacity),
            entries: vec![NONE; capacity as usize],
            residents: vec![0; HINT_SETS],
            candidates: Vec::with_capacity(KEPT),
            mean_victim: 0.0,
            admit_on_write: options.admit_on_write,
            money: Money::new(&options.costs),
            pooled: Pooled::default(),
        }
    }

    /// An empty policy that counts base's time: `value-time`.
    #[must_use]
    pub fn of_time(options: &PolicyOptions) -> Self {
        Self {
            counted: Counted::Time,
            ..Self::new(options)
        }
    }

    /// Counts this from now on. What was learned stays: it is the same for both. O(1).
    pub(super) fn count(&mut self, counted: Counted) {
        if self.counted != counted {
            self.counted = counted;
            self.forget_odds();
        }
    }

    /// Odds are of another kind from now on.
    fn forget_odds(&mut self) {
        self.candidates.clear();
        self.mean_victim = 0.0;
    }

    /// Whether it counts this.
    pub(super) fn counts(&self, counted: Counted) -> bool {
        self.counted == counted
    }

    /// Read hits that a flash write must earn now, where there need not be one.
    #[must_use]
    pub fn kappa(&self) -> f32 {
        match self.learner.is_back() && !self.dial.is_following() {
            true => self.money.flash_write(),
            false => self.dial.kappa(),
        }
    }

    /// What a page that comes in must earn: nothing where it is `dirty`, as flash has it already or
    /// gets it anyway.
    fn price(&self, dirty: bool) -> f32 {
        match dirty {
            true => 0.0,
            false => self.kappa(),
        }
    }

    /// What a read of the page in `entry` counts.
    fn cost(&self, entry: u32) -> f32 {
        match self.counted {
            Counted::Time if entry != NONE => self.learner.cost(entry),
            _ => 1.0,
        }
    }

    /// Odds of the page in `entry`, or in write-back what it saves, in what is counted. `dirty`
    /// says whether it is newer than base, or would be as it comes in.
    fn odds(&self, entry: u32, dirty: bool) -> f32 {
        if entry == NONE {
            return self.mean_victim;
        }
        let cost = self.cost(entry);
        if !self.learner.is_back() {
            return odds_at(self.learner.odds(entry), cost);
        }
        let outlook = self.learner.outlook(entry);
        let counted = Outlook {
            reads: cost * outlook.reads,
            ..outlook
        };
        self.money.saved(counted, dirty)
    }

    /// Whether a page is considered on this opportunity. The first page cleaned shows that this is
    /// write-back.
    fn considers(&mut self, why: Opportunity) -> bool {
        if why == Opportunity::Clean && !self.learner.is_back() {
            self.learner.count_writes();
            self.forget_odds();
        }
        match self.learner.is_back() {
            true => self.pooled.takes(why, self.admit_on_write),
            false => takes(why, self.admit_on_write),
        }
    }

    /// Odds now of the page in `slot`; `None` where there is none that can leave.
    fn odds_in(&self, slot: u32, slots: &SlotTable) -> Option<f32> {
        let leaves = slots.page(SlotId(slot)).is_some() && slots.evictable(SlotId(slot));
        leaves.then(|| self.odds(self.entries[slot as usize], slots.is_dirty(SlotId(slot))))
    }

    /// Draws so many residents by lot; the least worthy of them and of the candidates are the
    /// candidates then.
    fn draw_candidates(&mut self, draws: u32, slots: &SlotTable) {
        let capacity = self.entries.len() as u32;
        for _ in 0..draws.min(capacity) {
            let slot = self.learner.draw(capacity);
            if self.candidates.iter().any(|(_, other)| *other == slot) {
                continue;
            }
            let Some(odds) = self.odds_in(slot, slots) else {
                continue;
            };
            if self.candidates.len() < KEPT {
                self.candidates.push((odds, slot));
                continue;
            }
            let one = (odds, slot);
            let most = self.candidates.iter_mut().max_by(|a, b| by_odds(a, b));
            if let Some(most) = most.filter(|most| by_odds(&one, most).is_lt()) {
                *most = one;
            }
        }
        debug_assert!(self.candidates.len() <= KEPT, "as allocated");
    }

    /// The odds of the least worthy candidate, and its place. Odds of candidates are of when they
    /// were last looked at; those of the least worthy are of now.
    fn lowest(&mut self, slots: &SlotTable) -> Option<(f32, usize)> {
        let mut looked_at = [false; KEPT];
        loop {
            let places = self.candidates.iter().enumerate();
            let (at, &(odds, slot)) = places.min_by(|a, b| by_odds(a.1, b.1))?;
            if looked_at[at] {
                return Some((odds, at));
            }
            match self.odds_in(slot, slots) {
                Some(odds) => {
                    self.candidates[at].0 = odds;
                    looked_at[at] = true;
                }
                None => {
                    self.candidates.swap_remove(at);
                    looked_at[at] = looked_at[self.candidates.len()];
                }
            }
        }
    }

    /// Whether a page with these odds is to take the place of one with the odds `lowest`.
    fn is_worth_more(&self, odds: f32, lowest: f32, dirty: bool) -> bool {
        let least = match lowest > 0.0 {
            true => MARGIN * lowest,
            false => lowest / MARGIN,
        };
        odds > least + self.price(dirty)
    }

    /// Draws `draws` residents, and looks for the least worthy candidate: its odds and place.
    fn look(&mut self, draws: u32, slots: &SlotTable) -> Option<(f32, usize)> {
        self.draw_candidates(draws, slots);
        self.lowest(slots)
    }

    /// The page in `slot` has this entry now, and the slot has been [`Self::release`]d.
    fn hold(&mut self, slot: SlotId, entry: u32) {
        debug_assert_eq!(self.entries[slot.at()], NONE, "it was released");
        self.entries[slot.at()] = entry;
        if entry != NONE {
            self.learner.pages.set_on_flash(entry, true);
            self.residents[usize::from(self.learner.pages.get(entry).hints)] += 1;
        }
    }

    /// The entry of the page in `slot`, which it has no longer, or `NONE`.
    fn release(&mut self, slot: SlotId) -> u32 {
        let entry = std::mem::replace(&mut self.entries[slot.at()], NONE);
        if entry != NONE {
            self.residents[usize::from(self.learner.pages.get(entry).hints)] -= 1;
        }
        entry
    }
}

/// c V / (1 - c V), where V / (1 - V) are the `odds` and c is the `cost`.
fn odds_at(odds: f32, cost: f32) -> f32 {
    cost * odds / (1.0 + (1.0 - cost) * odds)
}

/// Candidates by their odds; by slot where these are the same.
fn by_odds(a: &(f32, u32), b: &(f32, u32)) -> Ordering {
    a.0.total_cmp(&b.0).then(a.1.cmp(&b.1))
}

impl TierPolicy for Value {
    fn name(&self) -> &'static str {
        match self.counted {
            Counted::Hits => "value",
            Counted::Time => "value-time",
        }
    }

    fn on_request(&mut self, access: &Access, resident: Option<SlotId>) {
        if let Some(slot) = resident {
            self.release(slot);
        }
        let entry = self.learner.on_request(access, resident.is_some());
        if let Some(slot) = resident {
            self.hold(slot, entry);
        }
    }

    fn decide(&mut self, access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        if !self.considers(why) {
            return Decision::Refuse(Refusal::Opportunity);
        }
        if slots.has_room() {
            return Decision::Admit;
        }
        let entry = self.learner.pages.find(access.page);
        // A page of the reserve is offered when it is read.
        let reserved = slots.find(access.page);
        let dirty = reserved.is_some_and(|slot| slots.is_dirty(slot));
        let dirty = dirty || why == Opportunity::Clean;
        let odds = self.odds(entry.unwrap_or(NONE), dirty);
        if odds < HOPELESS * self.mean_victim {
            self.mean_victim *= VICTIM_FADE;
            return Decision::Refuse(Refusal::Cold);
        }
        let mut found = self.look(LOOKS, slots);
        let comes = found.is_some_and(|(lowest, _)| self.is_worth_more(odds, lowest, dirty));
        if comes {
            found = self.look(DRAWS - LOOKS, slots);
        }
        let Some((lowest, at)) = found else {
            return Decision::Refuse(Refusal::Pinned);
        };
        self.mean_victim += VICTIM_STEP * (lowest - self.mean_victim);
        match comes {
            true => Decision::Replace(SlotId(self.candidates.swap_remove(at).1)),
            false => Decision::Refuse(Refusal::Cold),
        }
    }

    fn on_admit(&mut self, access: &Access, slot: SlotId) {
        let entry = self.learner.introduce(access.page);
        self.hold(slot, entry);
    }

    fn on_found(&mut self, access: &Access, slot: SlotId) {
        let entry = self.learner.found(access.page, access.number);
        self.hold(slot, entry);
    }

    fn on_written(&mut self, _page: PageId) {
        self.dial.on_write();
    }

    fn on_remove(&mut self, _page: PageId, slot: SlotId, why: Removal) {
        // The odds of a candidate are those of its page.
        self.candidates.retain(|(_, other)| *other != slot.0);
        let entry = self.release(slot);
        if entry == NONE {
            return;
        }
        self.learner.pages.set_on_flash(entry, false);
        if why == Removal::Trimmed {
            self.learner.forget(entry);
        }
    }

    fn on_pool(&mut self, page: PageId, buffered: bool) {
        self.pooled.announce();
        self.learner.set_buffered(page, buffered);
    }

    fn keeps_outdated(&self) -> bool {
        !self.learner.is_back()
    }

    fn on_time(&mut self, now_ms: u64) {
        self.dial.on_time(now_ms);
    }

    fn worth(&self, page: PageId) -> f64 {
        let entry = self.learner.pages.find(page);
        f64::from(self.odds(entry.unwrap_or(NONE), false))
    }

    fn learned(&self) -> Option<Learned> {
        let residents = |number| self.residents[usize::from(number)];
        Some(self.learner.learned(residents))
    }

    fn bytes(&self) -> usize {
        let lists = self.candidates.capacity() * size_of::<(f32, u32)>();
        let slots = (self.entries.capacity() + self.residents.capacity()) * 4;
        self.learner.bytes() + slots + lists
    }

    fn assert_invariants(&self, slots: &SlotTable) {
        self.learner.assert_invariants();
        self.dial.assert_invariants();
        let mut held = 0;
        let mut residents = vec![0; HINT_SETS];
        for entry in self.entries.iter().filter(|entry| **entry != NONE) {
            residents[usize::from(self.learner.pages.get(*entry).hints)] += 1;
        }
        assert!(residents == self.residents, "invariant 3");
        for (slot, page) in slots.residents() {
            let entry = self.entries[slot.at()];
            let found = self.learner.pages.find(page);
            if entry != NONE {
                assert_eq!(found, Some(entry), "invariant 1");
                assert!(self.learner.pages.is_on_flash(entry), "invariant 1");
                held += 1;
            }
        }
        assert_eq!(self.learner.pages.on_flash(), held, "invariant 2");
    }
}
