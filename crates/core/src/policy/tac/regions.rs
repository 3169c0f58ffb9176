//! Temperatures of regions (TAC §3.1): who is warm, and by how much.
//!
//! A temperature is kept as *heat*: the savings added so far, each multiplied by the weight of
//! the epoch it came in. Ageing raises the weight of what is still to come instead of lowering
//! what has been, so it touches no region and never changes an order: comparing heats compares
//! temperatures. Temperature = heat / weight now. When the weight grows out of bounds every heat
//! is scaled down once ([`Regions::age`]).
//!
//! The table is in parts, by hash, so that no request waits while all of it is made larger, or
//! while the colder half of all regions is looked for: each part grows and forgets by itself, and
//! of what is spread by hash the colder halves of all parts are the colder half of all. With one
//! part, up to some 26,000 slots, it is exactly that.

use super::{Labels, TacConfig};
use crate::cost::Costs;
use crate::hash;
use crate::hint::RequestType;
use crate::page::{ObjectId, PageId, RegionId};
use crate::policy::Access;
use hashbrown::HashTable;
use std::cmp::Ordering;
use std::collections::BTreeMap;

/// Weight at which heats are scaled down: far from the largest number, and far enough from 1 that
/// what is lost at the other end was nothing.
const WEIGHT_MAX: f64 = 1e200;

/// Regions that one part of the table holds at most: as many as 2^14 places take, less a little.
const PART_MAX: usize = 13_600;

/// Regions that are remembered in the smallest tier, at most.
const REGIONS_MIN: usize = 4096;

/// A region with its heat. Packed: there is one for every two pages on flash at most.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed)]
struct Region {
    index: u64,
    heat: f64,
    object: u32,
}

impl Region {
    fn new(id: RegionId, heat: f64) -> Self {
        let (object, index) = (id.object.0, id.index);
        Self {
            index,
            heat,
            object,
        }
    }

    fn id(&self) -> RegionId {
        RegionId {
            object: ObjectId(self.object),
            index: self.index,
        }
    }

    /// The colder first; of regions as warm as each other, by place. How the table has them would
    /// be another order with another version of it.
    fn colder(&self, other: &Self) -> Ordering {
        let (own, others) = (self.heat, other.heat);
        let by_heat = own.total_cmp(&others);
        by_heat.then_with(|| self.id().cmp(&other.id()))
    }
}

/// See the module text.
#[derive(Debug)]
pub(super) struct Regions {
    region_pages: u64,
    labels: Labels,
    window_requests: u32,
    sequential_above: u32,
    random_saving: f64,
    sequential_saving: f64,
    write_saving: f64,
    /// 1 / ageing factor.
    growth: f64,
    epoch_requests: u64,
    requests_in_epoch: u64,
    /// What a saving that is made now weighs; more than an earlier one, as those have aged.
    weight: f64,
    /// See the module text.
    parts: Vec<HashTable<Region>>,
    /// Regions that a part holds at most.
    part_max: usize,
    /// Regions of each object lie below this.
    ends: BTreeMap<ObjectId, u64>,
    /// Regions of the requests that wait for their label, with how many there are of each.
    window: Vec<(RegionId, u32)>,
    in_window: u32,
    /// Whether a region was ever forgotten or trimmed: its pages were warmer before.
    forgot: bool,
}

impl Regions {
    pub(super) fn new(config: &TacConfig, costs: &Costs, capacity: u32) -> Self {
        assert!(
            (8..=64).contains(&config.region_pages),
            "regions have 8 to 64 pages"
        );
        assert!(config.window > 0, "a window holds requests");
        assert!(
            config.ageing_factor > 0.0 && config.ageing_factor <= 1.0,
            "ageing cools"
        );
        assert!(config.regions_per_slot > 0.0, "regions can be remembered");
        let max = f64::from(capacity) * f64::from(config.regions_per_slot);
        let max = (max as usize).max(REGIONS_MIN);
        let parts = max.div_ceil(PART_MAX);
        Self {
            region_pages: u64::from(config.region_pages),
            labels: config.labels,
            window_requests: config.window,
            sequential_above: config.sequential_above,
            random_saving: costs.random_saving() / 1000.0,
            sequential_saving: costs.sequential_saving() / 1000.0,
            write_saving: costs.write_saving() / 1000.0,
            growth: 1.0 / f64::from(config.ageing_factor),
            epoch_requests: match config.ageing_requests {
                0 => 8 * u64::from(capacity).max(1024),
                n => n,
            },
            requests_in_epoch: 0,
            weight: 1.0,
            parts: vec![HashTable::new(); parts],
            part_max: max.div_ceil(parts),
            ends: BTreeMap::new(),
            window: Vec::with_capacity(config.window as usize),
            in_window: 0,
            forgot: false,
        }
    }

    /// Counts one request towards the next ageing. `Some(factor)` when every heat was multiplied
    /// by `factor`: whoever keeps heats does the same. O(1), O(regions) once in 660 halvings.
    pub(super) fn age(&mut self) -> Option<f64> {
        self.requests_in_epoch += 1;
        if self.requests_in_epoch < self.epoch_requests {
            return None;
        }
        self.requests_in_epoch = 0;
        self.weight *= self.growth;
        (self.weight > WEIGHT_MAX).then(|| self.scale_down())
    }

    fn scale_down(&mut self) -> f64 {
        let factor = 1.0 / self.weight;
        for region in self.parts.iter_mut().flatten() {
            region.heat *= factor;
        }
        self.weight = 1.0;
        debug_assert!(factor > 0.0 && factor < 1.0);
        factor
    }

    /// Learns from one read. The label is the request's own or comes from the window, and the
    /// cost is added when the label is known (§3.1).
    pub(super) fn learn(&mut self, access: &Access) {
        let id = self.region_of(access.page);
        let hint = match self.labels {
            Labels::Hint => access.hints.request(),
            Labels::Window => RequestType::Unknown,
        };
        match hint {
            RequestType::SequentialRead => self.add(id, self.sequential_saving),
            RequestType::Read => self.add(id, self.random_saving),
            _ => self.await_label(id),
        }
    }

    /// Learns from one write that flash absorbs, or would have.
    pub(super) fn learn_write(&mut self, page: PageId) {
        self.add(self.region_of(page), self.write_saving);
    }

    fn await_label(&mut self, id: RegionId) {
        match self.window.iter_mut().rev().find(|(other, _)| *other == id) {
            Some((_, requests)) => *requests += 1,
            None => self.window.push((id, 1)),
        }
        self.in_window += 1;
        if self.in_window >= self.window_requests {
            self.close_window();
        }
    }

    /// Labels and charges the requests of a full window.
    fn close_window(&mut self) {
        let mut window = std::mem::take(&mut self.window);
        for (id, requests) in window.drain(..) {
            let saving = match requests > self.sequential_above {
                true => self.sequential_saving,
                false => self.random_saving,
            };
            self.add(id, saving * f64::from(requests));
        }
        self.window = window;
        self.in_window = 0;
        debug_assert!(self.window.is_empty());
    }

    fn add(&mut self, id: RegionId, saving: f64) {
        let hash = hash::of_region(id);
        let heat = saving * self.weight;
        let part = self.part(hash);
        if let Some(region) = self.parts[part].find_mut(hash, |r| r.id() == id) {
            region.heat += heat;
            return;
        }
        if self.parts[part].len() >= self.part_max {
            self.forget_cold(part);
        }
        let region = Region::new(id, heat);
        self.parts[part].insert_unique(hash, region, |r| hash::of_region(r.id()));
        let end = self.ends.entry(id.object).or_default();
        *end = (*end).max(id.index.saturating_add(1));
    }

    /// The part of the table that a region of `hash` is in: by bits that the part does not look at.
    fn part(&self, hash: u64) -> usize {
        let bits = (hash >> 20) & u64::from(u32::MAX);
        ((bits * self.parts.len() as u64) >> 32) as usize
    }

    /// Makes room in a part of the region table: drops its colder half ([`Region::colder`]). O(its
    /// regions), once per half of its regions that come.
    fn forget_cold(&mut self, part: usize) {
        let table = &mut self.parts[part];
        let mut regions: Vec<Region> = table.iter().copied().collect();
        let dropped = regions.len().div_ceil(2);
        let (_, last, _) = regions.select_nth_unstable_by(dropped - 1, Region::colder);
        let last = *last;
        table.retain(|region| region.colder(&last).is_gt());
        assert!(table.len() < self.part_max, "room was made");
        self.forgot = true;
    }

    /// Forgets the regions of `object` from page `first` on. A region that is only partly cut
    /// keeps its temperature. O(its regions from there on), or O(regions) if that is less.
    pub(super) fn trim(&mut self, object: ObjectId, first: u64) {
        let first = first.div_ceil(self.region_pages);
        // Those whose label is still to come would bring their regions back.
        let in_window = &mut self.in_window;
        self.window.retain(|(id, requests)| {
            let goes = id.object == object && id.index >= first;
            *in_window -= if goes { *requests } else { 0 };
            !goes
        });
        let Some(end) = self.ends.get(&object).copied().filter(|end| first < *end) else {
            return;
        };
        if end - first < self.len() as u64 {
            for index in first..end {
                self.forget(RegionId { object, index });
            }
        } else {
            let goes = |r: &Region| r.object == object.0 && r.index >= first;
            let parts = self.parts.iter_mut();
            parts.for_each(|part| part.retain(|r| !goes(r)));
        }
        match first {
            0 => self.ends.remove(&object),
            _ => self.ends.insert(object, first),
        };
        self.forgot = true;
    }

    fn forget(&mut self, id: RegionId) {
        let hash = hash::of_region(id);
        let part = self.part(hash);
        if let Ok(found) = self.parts[part].find_entry(hash, |r| r.id() == id) {
            found.remove();
        }
    }

    /// Heat of the region of `page`; 0 when nothing is known of it.
    pub(super) fn heat(&self, page: PageId) -> f64 {
        if self.ends.is_empty() {
            return 0.0;
        }
        let id = self.region_of(page);
        let hash = hash::of_region(id);
        let found = self.parts[self.part(hash)].find(hash, |r| r.id() == id);
        found.map_or(0.0, |r| r.heat)
    }

    /// Temperature of the region of `page` now, in microseconds of base time saved.
    pub(super) fn temperature(&self, page: PageId) -> f32 {
        (self.heat(page) / self.weight) as f32
    }

    /// Whether some page may be colder than it was.
    pub(super) fn forgot(&self) -> bool {
        self.forgot
    }

    pub(super) fn len(&self) -> usize {
        self.parts.iter().map(HashTable::len).sum()
    }

    pub(super) fn bytes(&self) -> usize {
        let parts = self.parts.iter();
        parts.map(HashTable::allocation_size).sum::<usize>()
            + self.parts.capacity() * size_of::<HashTable<Region>>()
            + self.ends.len() * 20
    }

    pub(super) fn assert_invariants(&self) {
        for part in &self.parts {
            assert!(part.len() <= self.part_max, "the region table is bounded");
        }
        for region in self.parts.iter().flatten() {
            let end = self.ends.get(&region.id().object);
            assert!(end.is_some_and(|end| region.index < *end), "an end is one");
        }
        assert!(self.in_window < self.window_requests, "full windows close");
        let waiting: u32 = self.window.iter().map(|(_, requests)| requests).sum();
        assert_eq!(waiting, self.in_window);
    }

    fn region_of(&self, page: PageId) -> RegionId {
        page.region(self.region_pages)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint::{HintSet, hint_type};
    use crate::policy::Op;

    fn read(regions: &mut Regions, index: u64) {
        let hints = HintSet::UNKNOWN.with(hint_type::REQUEST, RequestType::Read.value());
        regions.learn(&Access {
            page: PageId::new(ObjectId(1), index),
            op: Op::Read,
            hints,
            number: 0,
        });
    }

    /// Temperatures are what halving every region at every ageing gives, through any number of
    /// changes of the unit.
    #[test]
    fn lazy_ageing_equals_eager_halving() {
        let config = TacConfig {
            ageing_requests: 1,
            ..TacConfig::default()
        };
        let costs = Costs::default();
        let saving = costs.random_saving() / 1000.0;
        let mut regions = Regions::new(&config, &costs, 8);
        let (mut warm, mut cool) = (0.0, 0.0);
        let mut changes = 0;
        for step in 0..2500u64 {
            changes += u32::from(regions.age().is_some());
            (warm, cool) = (warm / 2.0, cool / 2.0);
            read(&mut regions, 0);
            warm += saving;
            if step % 10 == 0 {
                read(&mut regions, 32);
                cool += saving;
            }
            let found = [0, 32].map(|p| regions.temperature(PageId::new(ObjectId(1), p)));
            assert!((f64::from(found[0]) - warm).abs() < 1e-3 * warm);
            assert!((f64::from(found[1]) - cool).abs() < 1e-3 * cool);
        }
        assert!(changes >= 3, "the unit changed {changes} times");
        regions.assert_invariants();
    }

    /// Many parts, and objects of which a trim looks at every region, or at the whole table.
    #[test]
    fn a_trim_forgets_the_regions_of_its_object_alone() {
        let capacity = 8 * PART_MAX as u32;
        let mut regions = Regions::new(&TacConfig::default(), &Costs::default(), capacity);
        assert!(regions.parts.len() > 1);
        let page = |object, region: u64| PageId::new(ObjectId(object), 32 * region);
        for region in 0..1000 {
            for (object, region) in [(1, region), (2, region), (3, region << 40)] {
                regions.add(page(object, region).region(32), 1.0);
            }
        }
        regions.assert_invariants();
        let known = |regions: &Regions, object, shift| {
            (0..1000u64)
                .filter(|r| regions.heat(page(object, r << shift)) > 0.0)
                .count()
        };
        // 10 pages of region 600 stay, so it does.
        regions.trim(ObjectId(1), 600 * 32 + 10);
        assert_eq!(known(&regions, 1, 0), 601);
        regions.trim(ObjectId(3), (1 << 40) * 32);
        assert_eq!(known(&regions, 3, 40), 1);
        regions.trim(ObjectId(1), 0);
        regions.trim(ObjectId(9), 0);
        assert_eq!((known(&regions, 1, 0), known(&regions, 2, 0)), (0, 1000));
        assert_eq!(regions.len(), 1001);
        regions.assert_invariants();
    }

    /// Of regions that are equally warm those of lower addresses go, in whatever order they came.
    #[test]
    fn equally_warm_regions_are_forgotten_by_place() {
        let most = REGIONS_MIN as u64;
        let region = |at: u64| RegionId {
            object: ObjectId((at % 2) as u32),
            index: at / 2,
        };
        for step in [1, 5, 1001] {
            let mut regions = Regions::new(&TacConfig::default(), &Costs::default(), 8);
            (0..most).for_each(|at| regions.add(region(at * step % most), 1.0));
            // A warm one, whose place is the first.
            regions.add(region(0), 1.0);
            regions.add(region(most), 1.0);
            assert_eq!(regions.len() as u64, most / 2 + 1, "{step}");
            let is_known =
                |at| regions.heat(PageId::new(region(at).object, 32 * region(at).index)) > 0.0;
            assert!(is_known(0) && is_known(most), "{step}");
            let known = (1..most).filter(|at| is_known(*at));
            assert!(known.eq((3..most).step_by(2)), "{step}");
            regions.assert_invariants();
        }
    }

    /// A request of an object that is gone brings no region of it back, nor its end.
    #[test]
    fn a_trim_forgets_what_waits_for_its_label() {
        let config = TacConfig {
            window: 8,
            ..TacConfig::default()
        };
        let mut regions = Regions::new(&config, &Costs::default(), 8);
        let page = |object, region: u64| PageId::new(ObjectId(object), 32 * region);
        let read = |regions: &mut Regions, object, region| {
            regions.learn(&Access {
                page: page(object, region),
                op: Op::Read,
                hints: HintSet::UNKNOWN,
                number: 0,
            });
        };
        for (object, region) in [(1, 0), (1, 0), (2, 0), (2, 5)] {
            read(&mut regions, object, region);
        }
        regions.trim(ObjectId(1), 0);
        regions.trim(ObjectId(2), 32);
        regions.assert_invariants();
        (0..7).for_each(|_| read(&mut regions, 3, 0));
        assert!(regions.window.is_empty(), "it was full, and closed");
        assert!(regions.ends.keys().eq(&[ObjectId(2), ObjectId(3)]));
        assert_eq!(regions.heat(page(2, 5)), 0.0);
        assert!(regions.heat(page(2, 0)) > 0.0);
        regions.assert_invariants();
    }

    /// Ten times as many as there is room for: what is warmer than most stays.
    #[test]
    fn a_table_in_parts_keeps_the_warmer_regions() {
        let capacity = 4 * PART_MAX as u32;
        let mut regions = Regions::new(&TacConfig::default(), &Costs::default(), capacity);
        let id = |index| RegionId {
            object: ObjectId(1),
            index,
        };
        for index in 0..20 * PART_MAX as u64 {
            regions.add(id(index), if index < 1000 { 10.0 } else { 1.0 });
        }
        assert!(regions.forgot() && regions.len() <= 2 * PART_MAX);
        let warm =
            (0..1000).filter(|index| regions.heat(PageId::new(ObjectId(1), 32 * index)) > 0.0);
        assert_eq!(warm.count(), 1000);
        regions.assert_invariants();
    }
}
