//! CAC, cost-adjusted caching, and CC (thesis §6.4, §6.5): flash managed jointly with the DRAM
//! pool above it, for write-back.
//!
//! *Algorithm*: a page is considered when it is cleaned or leaves the DRAM pool. It comes in if a
//! slot is free, else over the page of least benefit B if its own is larger. B is the device time
//! that flash saves (equation 6.2) on the requests that the page would have had, had it always
//! been on flash, over those it would have had, had it never been: a pool that knows costs keeps
//! pages of flash less long, so a page has more physical requests while it is on flash, by the
//! miss rate expansion factor α of its group (equations 6.3 to 6.6, 6.10). A hot page that the
//! pool would keep has a negative B: it leaves flash, and the requests that flash alone caused
//! end. `cc` does not anticipate: α is 1, which makes 6.2 the plain equation 6.1.
//!
//! *Cost*: O(1) expected and O(log slots) for the heap; O(1) for a hit in the pool; O(pages) once
//! in seven fadings. *Memory*: 9 bytes a slot, and for every page that is on flash, in the pool
//! or in the outqueue 77 to 82 bytes, up to twice that while arrays double: with the outqueue of
//! 1 entry a slot 177 to 235 bytes a slot, measured. A group has 66.
//!
//! # Where the thesis leaves a choice
//! - *Measurement interval* (§6.4.1 "over some measurement interval"; its experiments count from
//!   the start): all counts are halved every [`CacConfig::fade_requests`] requests, so that what
//!   is hot may change. Halving changes neither α nor the order of pages.
//! - *Logical read rate* (§6.4.2): logical reads for every [`CacConfig::rate_requests`] requests
//!   that reached the tier, both faded alike; time is counted in requests.
//! - *Object*: what the hints name, else the page's own object. A wrong name moves a page to
//!   another group, no more.
//! - *α without evidence*: see `groups.rs`.
//! - *Writes* (6.5, 6.6) are expected to grow by α as reads do. A hot page that is written often
//!   then has a negative B however much base pays for its writes;
//!   [`CacConfig::writes_expand`] turns that off.
//! - *When groups are updated*: lazily, as §6.4.2 says: when a page leaves the pool, is written
//!   to flash or leaves flash. Without a pool, where a page leaves as soon as it is read, with
//!   every request.
//! - *Sequential reads* (§6.4.3) are those whose hint says so. They count neither as physical nor
//!   as logical reads.
//! - *Priorities* in the heap change when a page of flash is read or written (§6.4.4), not when
//!   its group's α changes.
//! - *Equal benefit*: the newcomer stays out (§6.4.1: B(p') < B(p)).
//! - *Outqueue*: 1 entry a slot (§6.5.1). A trimmed page of flash is forgotten; what is known of
//!   absent ones leaves by age.
//! - *The reserve* of write-back, which the thesis does not have, is on the way to base: requests
//!   for a page there count as off flash. Where we are told of it they count as on flash (R_S), and
//!   the page is remembered while it is there.
//! - *No pool* (no frame was ever announced): pages come in when they are read, else nothing
//!   clean ever would. Every logical read is a physical one then: α is 1 and CAC is CC.
//! - *Write-through*: B counts the writes that write-back would save. Choose `tac` there.

mod benefit;
mod groups;
mod pace;
mod pages;

pub use benefit::{Counts, Estimates, Measured};

use super::{
    Access, Decision, Op, Opportunity, PolicyOptions, Pooled, Refusal, Removal, TierPolicy,
};
use crate::cost::Costs;
use crate::heap::IndexedHeap;
use crate::hint::{RequestType, hint_type};
use crate::page::{PageId, SlotId};
use crate::tier::SlotTable;
use groups::{Groups, Key, NO_GROUP, Rates};
use pace::Pace;
use pages::{At, Known, Pages};

/// Parameters of CAC and CC.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacConfig {
    /// Outqueue entries per slot (§6.5.1: 1); never fewer than 8 in all.
    pub outqueue_per_page: u32,
    /// Requests in which a page of band 1 has one logical read (§6.4.2: as many as come in a
    /// minute); 0 means a sixteenth of the slots. Fewer make wider bands: more pages in a group
    /// and more evidence, but of pages that are less alike.
    pub rate_requests: u64,
    /// Bands of logical read rates; the last holds all higher rates (§6.4.2: 1000).
    pub bands: u32,
    /// Requests after which all counts are halved; 0 means 32 a slot, `u64::MAX` never.
    pub fade_requests: u64,
    /// Whether α, which is a ratio of read misses, also tells how many more writes a page has on
    /// flash (§6.4.1, equations 6.5 and 6.6: it does). If not, writes are taken as measured.
    pub writes_expand: bool,
}

impl Default for CacConfig {
    fn default() -> Self {
        Self {
            outqueue_per_page: 1,
            rate_requests: 0,
            bands: 1000,
            fade_requests: 0,
            writes_expand: true,
        }
    }
}

impl CacConfig {
    /// [`CacConfig::rate_requests`] in a tier of `capacity` slots.
    #[must_use]
    pub fn rate_requests_of(&self, capacity: u32) -> u64 {
        match self.rate_requests {
            0 => u64::from(capacity / 16).max(1),
            given => given,
        }
    }

    /// [`CacConfig::fade_requests`] in a tier of `capacity` slots.
    #[must_use]
    pub fn fade_requests_of(&self, capacity: u32) -> u64 {
        match self.fade_requests {
            0 => 32 * u64::from(capacity.max(32)),
            given => given,
        }
    }
}

/// The outqueue is not so small that a newcomer leaves it before it is decided about.
const ABSENT_MIN: u32 = 8;

/// See the module text.
#[derive(Debug)]
pub struct Cac {
    name: &'static str,
    /// Whether α is looked at.
    anticipates: bool,
    costs: Costs,
    capacity: u32,
    absent_max: u32,
    rate_requests: u64,
    bands: u32,
    writes_expand: bool,
    pace: Pace,
    pages: Pages,
    groups: Groups,
    /// Benefits as of the last request of each page on flash, in the unit of [`Pace::one`].
    heap: IndexedHeap,
    /// Candidates set aside while a victim is looked for; kept to allocate once.
    set_aside: Vec<(f64, u32)>,
    pooled: Pooled,
    admit_on_write: bool,
}

impl Cac {
    /// An empty CAC for `options.capacity` slots.
    #[must_use]
    pub fn new(options: &PolicyOptions) -> Self {
        Self::named("cac", true, options)
    }

    /// An empty CC for `options.capacity` slots.
    #[must_use]
    pub fn cc(options: &PolicyOptions) -> Self {
        Self::named("cc", false, options)
    }

    fn named(name: &'static str, anticipates: bool, options: &PolicyOptions) -> Self {
        let (config, capacity) = (&options.cac, options.capacity);
        assert!(config.bands > 0, "a rate is in a band");
        let absent_max = config.outqueue_per_page.saturating_mul(capacity);
        let absent_max = absent_max.clamp(ABSENT_MIN, u32::MAX / 2);
        Self {
            name,
            anticipates,
            costs: options.costs,
            capacity,
            absent_max,
            rate_requests: config.rate_requests_of(capacity),
            bands: config.bands,
            writes_expand: config.writes_expand,
            pace: Pace::new(config.fade_requests_of(capacity)),
            pages: Pages::new(absent_max),
            groups: Groups::default(),
            heap: IndexedHeap::new(capacity),
            set_aside: Vec::new(),
            pooled: Pooled::default(),
            admit_on_write: options.admit_on_write,
        }
    }

    /// What was measured of `page`; a request of now counts [`Cac::one`].
    #[must_use]
    pub fn measured(&self, page: PageId) -> Option<Measured> {
        self.known(page).map(|known| known.measured)
    }

    /// What a request counts now; 1 where counts do not fade.
    #[must_use]
    pub fn one(&self) -> u32 {
        self.pace.one()
    }

    /// The miss rate expansion factor of the group of `page`; 1 for `cc`.
    #[must_use]
    pub fn alpha(&self, page: PageId) -> f64 {
        self.known(page).map_or(1.0, |known| self.alpha_of(known))
    }

    /// B of `page` as it would be estimated now, in nanoseconds.
    #[must_use]
    pub fn benefit(&self, page: PageId) -> f64 {
        let known = self.known(page);
        known.map_or(0.0, |known| self.key(known)) / f64::from(self.one())
    }

    /// Pages remembered that are neither on flash nor in the pool.
    #[must_use]
    pub fn absent(&self) -> u32 {
        self.pages.absent()
    }

    /// Groups with an α of their own.
    #[must_use]
    pub fn groups(&self) -> usize {
        self.groups.len()
    }

    fn known(&self, page: PageId) -> Option<&Known> {
        self.pages.find(page).and_then(|at| self.pages.get(at))
    }

    fn alpha_of(&self, known: &Known) -> f64 {
        if !self.anticipates {
            return 1.0;
        }
        match known.counted.group {
            NO_GROUP => self.groups.alpha_under(self.group_of(known), self.one()),
            group => self.groups.alpha_of(group, self.one()),
        }
    }

    /// B in the unit of the heap.
    fn key(&self, known: &Known) -> f64 {
        let alpha = self.alpha_of(known);
        let of_writes = if self.writes_expand { alpha } else { 1.0 };
        let estimates = known.measured.estimates(alpha, of_writes);
        estimates.benefit(&self.costs)
    }

    /// The group a page belongs to by its logical read rate now.
    fn group_of(&self, known: &Known) -> Key {
        let shortest = self.rate_requests.saturating_mul(self.one().into());
        let time = self.pace.time().max(shortest);
        let reads = known.measured.logical().saturating_mul(self.rate_requests);
        let band = (reads / time).min(u64::from(self.bands) - 1);
        Key {
            object: match known.hint {
                0 => known.page().object.0,
                hint => hint,
            },
            hinted: known.hint != 0,
            band: band as u32,
        }
    }

    /// Brings the page's group up to date.
    fn count(&mut self, at: At) {
        let Some(known) = self.pages.get(at) else {
            return;
        };
        if !self.anticipates {
            return;
        }
        let (key, rates) = (self.group_of(known), Rates::of(&known.measured));
        let mut counted = known.counted;
        self.groups.count(&mut counted, key, rates);
        if let Some(known) = self.pages.get_mut(at) {
            known.counted = counted;
        }
    }

    /// Puts the page where it is now, and forgets the oldest of those that are nowhere.
    fn put(&mut self, at: At, resident: bool, buffered: bool) {
        self.pages.put(at, resident, buffered);
        self.forget_excess();
    }

    fn forget_excess(&mut self) {
        while let Some(known) = self.pages.pop_excess() {
            self.groups.forget(&known.counted);
        }
    }

    fn step(&mut self) {
        let Some(shift) = self.pace.step() else {
            return;
        };
        self.groups.clear_sums();
        for known in self.pages.iter_mut() {
            for count in known.measured.counts() {
                *count >>= shift;
            }
            known.counted.rates.shift(shift);
            self.groups.recount(&known.counted);
        }
        self.heap.scale_keys(1.0 / f64::from(1u32 << shift));
    }

    /// The evictable page of least benefit, with that.
    fn least(&mut self, slots: &SlotTable) -> Option<(f64, SlotId)> {
        debug_assert!(self.set_aside.is_empty());
        let mut found = None;
        while let Some((key, id)) = self.heap.peek() {
            if slots.evictable(SlotId(id)) {
                found = Some((key, SlotId(id)));
                break;
            }
            self.heap.remove(id);
            self.set_aside.push((key, id));
        }
        for (key, id) in self.set_aside.drain(..) {
            self.heap.insert(id, key);
        }
        found
    }

    /// What the request says about the page's object.
    fn note_object(&mut self, at: At, access: &Access) {
        let object = access.hints.get(hint_type::OBJECT);
        if let Some(known) = self.pages.get_mut(at).filter(|_| object != 0) {
            known.hint = object;
        }
    }

    fn measure(&mut self, at: At, access: &Access, resident: bool) {
        let one = self.one();
        let Some(known) = self.pages.get_mut(at) else {
            return;
        };
        debug_assert_eq!(known.resident, resident, "told of every change");
        let counts = known.measured.side(known.is_on_flash());
        if access.op == Op::Write {
            counts.writes = counts.writes.saturating_add(one);
        } else if access.hints.request() != RequestType::SequentialRead {
            counts.reads = counts.reads.saturating_add(one);
            counts.logical = counts.logical.saturating_add(one);
        }
    }
}

impl TierPolicy for Cac {
    fn name(&self) -> &'static str {
        self.name
    }

    fn on_request(&mut self, access: &Access, resident: Option<SlotId>) {
        self.step();
        let at = self.pages.find_or_add(access.page);
        self.note_object(at, access);
        self.measure(at, access, resident.is_some());
        self.pages.refresh(at);
        let buffered = self.pages.get(at).is_some_and(|known| known.buffered);
        self.put(at, resident.is_some(), buffered);
        if !self.pooled.0 || (access.op == Op::Write && resident.is_some()) {
            self.count(at);
        }
        let key = self.pages.get(at).map(|known| self.key(known));
        if let (Some(slot), Some(key)) = (resident, key) {
            self.heap.update(slot.0, key);
        }
    }

    fn decide(&mut self, access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        if !self.pooled.takes(why, self.admit_on_write) {
            return Decision::Refuse(Refusal::Opportunity);
        }
        if slots.has_room() {
            return Decision::Admit;
        }
        let own = self.known(access.page).map_or(0.0, |known| self.key(known));
        match self.least(slots) {
            None => Decision::Refuse(Refusal::Pinned),
            Some((least, slot)) if least < own => Decision::Replace(slot),
            Some(_) => Decision::Refuse(Refusal::Cold),
        }
    }

    fn on_admit(&mut self, access: &Access, slot: SlotId) {
        let at = self.pages.find_or_add(access.page);
        self.note_object(at, access);
        let buffered = self.pages.get(at).is_some_and(|known| known.buffered);
        self.put(at, true, buffered);
        self.count(at);
        let key = self.pages.get(at).map_or(0.0, |known| self.key(known));
        self.heap.insert(slot.0, key);
    }

    fn on_remove(&mut self, page: PageId, slot: SlotId, why: Removal) {
        let removed = self.heap.remove(slot.0);
        debug_assert!(removed.is_some(), "every resident is in the heap");
        let Some(at) = self.pages.find(page) else {
            return;
        };
        if why == Removal::Trimmed {
            if let Some(known) = self.pages.forget(at) {
                self.groups.forget(&known.counted);
            }
            return;
        }
        self.count(at);
        let buffered = self.pages.get(at).is_some_and(|known| known.buffered);
        self.put(at, false, buffered);
    }

    fn on_pool_hits(&mut self, page: PageId, hits: u32) {
        let hits = hits.saturating_mul(self.one());
        let at = self.pages.find(page);
        if let Some(known) = at.and_then(|at| self.pages.get_mut(at)) {
            let counts = known.measured.side(known.is_on_flash());
            counts.logical = counts.logical.saturating_add(hits);
        }
    }

    fn on_pool(&mut self, page: PageId, buffered: bool) {
        self.pooled.announce();
        let at = match buffered {
            true => Some(self.pages.find_or_add(page)),
            // A page that was trimmed is known no longer.
            false => self.pages.find(page),
        };
        let Some(at) = at else { return };
        if !buffered {
            self.count(at);
        }
        let resident = self.pages.get(at).is_some_and(|known| known.resident);
        self.put(at, resident, buffered);
    }

    fn on_reserve(&mut self, page: PageId, reserved: bool) {
        let at = match reserved {
            true => Some(self.pages.find_or_add(page)),
            false => self.pages.find(page),
        };
        let Some(at) = at else { return };
        self.count(at);
        self.pages.set_reserved(at, reserved);
        self.forget_excess();
    }

    fn keeps_outdated(&self) -> bool {
        false
    }

    fn worth(&self, page: PageId) -> f64 {
        self.known(page).map_or(0.0, |known| self.key(known))
    }

    fn bytes(&self) -> usize {
        self.pages.bytes()
            + self.groups.bytes()
            + self.heap.bytes()
            + self.set_aside.capacity() * size_of::<(f64, u32)>()
    }

    /// Of the pages in the pool, whose number the policy does not know, and of groups nothing.
    fn bytes_full(&self) -> usize {
        let pages = self.capacity as usize + self.absent_max as usize;
        self.heap.bytes() + Pages::bytes_of(pages)
    }

    fn assert_invariants(&self, slots: &SlotTable) {
        self.pages.assert_invariants();
        self.heap.assert_invariants();
        let counted = self.pages.iter().map(|known| &known.counted);
        self.groups.assert_invariants(counted);
        assert_eq!(self.heap.len(), slots.resident() as usize, "the residents");
        for (slot, page) in slots.residents() {
            assert!(self.heap.key(slot.0).is_some(), "a resident has a priority");
            let known = self.known(page).is_some_and(|known| known.resident);
            assert!(known, "a resident is known as one");
        }
        let residents = self.pages.iter().filter(|known| known.resident);
        assert_eq!(residents.count(), self.heap.len(), "and nobody else is");
        let reserved = self.pages.iter().filter(|known| known.reserved);
        let reserved = reserved.count();
        // All of them, or where nobody tells none.
        assert!(reserved == 0 || reserved == slots.reserved() as usize);
        for (slot, page) in slots.occupied().filter(|(slot, _)| slots.is_reserve(*slot)) {
            let known = self.known(page).is_some_and(|known| known.reserved);
            assert!(
                known || reserved == 0,
                "{page:?} in {slot:?} is of the reserve"
            );
        }
    }
}
