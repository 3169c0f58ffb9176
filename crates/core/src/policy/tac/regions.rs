//! Temperatures of regions (TAC §3.1): who is warm, and by how much.
//!
//! A temperature is kept as *heat*: the savings added so far, each multiplied by the weight of
//! the epoch it came in. Ageing raises the weight of what is still to come instead of lowering
//! what has been, so it touches no region and never changes an order: comparing heats compares
//! temperatures. Temperature = heat / weight now. When the weight grows out of bounds every heat
//! is scaled down once ([`Regions::age`]).

use super::{Labels, TacConfig};
use crate::cost::Costs;
use crate::hash;
use crate::hint::RequestType;
use crate::page::{ObjectId, PageId, RegionId};
use crate::policy::Access;
use hashbrown::HashTable;

/// Weight at which heats are scaled down: far from the largest number, and far enough from 1 that
/// what is lost at the other end was nothing.
const WEIGHT_MAX: f64 = 1e200;

#[derive(Clone, Copy, Debug)]
struct Region {
    id: RegionId,
    heat: f64,
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
    /// Of a saving made now.
    weight: f64,
    table: HashTable<Region>,
    max: usize,
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
            table: HashTable::new(),
            max: (capacity as usize / 2).max(4096),
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
        for region in &mut self.table {
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
        if let Some(region) = self.table.find_mut(hash, |r| r.id == id) {
            region.heat += heat;
            return;
        }
        if self.table.len() >= self.max {
            self.forget_cold();
        }
        let region = Region { id, heat };
        self.table
            .insert_unique(hash, region, |r| hash::of_region(r.id));
        debug_assert!(self.table.len() <= self.max, "the region table is bounded");
    }

    /// Makes room in the region table: drops the colder half. O(regions), once per half table of
    /// new regions.
    fn forget_cold(&mut self) {
        let mut heats: Vec<f64> = self.table.iter().map(|r| r.heat).collect();
        let middle = heats.len() / 2;
        let (_, median, _) = heats.select_nth_unstable_by(middle, f64::total_cmp);
        let median = *median;
        let mut excess = self.table.len() - middle;
        self.table.retain(|r| {
            let drop = excess > 0 && r.heat <= median;
            excess -= usize::from(drop);
            !drop
        });
        self.forgot = true;
        debug_assert!(self.table.len() < self.max, "room was made");
    }

    /// Forgets the regions of `object` from page `first` on. A region that is only partly cut
    /// keeps its temperature. O(regions).
    pub(super) fn trim(&mut self, object: ObjectId, first: u64) {
        let first = first.div_ceil(self.region_pages);
        self.table
            .retain(|r| r.id.object != object || r.id.index < first);
        self.forgot = true;
    }

    /// Heat of the region of `page`; 0 when nothing is known of it.
    pub(super) fn heat(&self, page: PageId) -> f64 {
        let id = self.region_of(page);
        let found = self.table.find(hash::of_region(id), |r| r.id == id);
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
        self.table.len()
    }

    pub(super) fn bytes(&self) -> usize {
        self.table.allocation_size()
    }

    pub(super) fn assert_invariants(&self) {
        assert!(self.table.len() <= self.max, "the region table is bounded");
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
}
