//! TAC: temperature-aware caching (VLDB 2010 §3), with the smoothed heap.
//!
//! *Algorithm*: a region of 32 contiguous pages of one object has a temperature: the time that
//! reading its pages from base has cost, or would have cost, beyond reading them from flash,
//! aged. A page is as warm as its region. While there is room every page read from base is
//! admitted; afterwards only one at least 1 % warmer than the coldest page on flash, which it
//! replaces (§3.2, §3.3). A write never admits; it updates the copy that is there (§3.2).
//!
//! *Cost*: O(1) to learn, O(log slots) to decide. *Memory*: 20 bytes a slot for the heap,
//! and 25 to 50 bytes a region, at most max(4096, slots / 2) regions.
//!
//! # Where the paper leaves a choice
//! - *Which requests warm a region* (§3.1 says every request, §1.3 every read): reads only, from
//!   wherever they are served. The benefit of a flash copy is a cheaper read; under write-through
//!   a write costs base the same with or without it.
//! - *Labels* (§3.1): a window of 20 requests; a region seen more than twice in the window makes
//!   those requests sequential. A label exists when its window closes, and the cost is added
//!   then. A hint that says sequential or random is believed at once instead and does not enter
//!   the window ([`Labels::Hint`], the default).
//! - *Ageing* (§3.1 "halved after a certain number of accesses"; ×0.8 in the IEEE bulletin §2.2):
//!   factor and interval are settings. It is lazy: a region carries the epoch of its last change.
//! - *Victim* (§3.3): the heap's keys may be stale; the top is refreshed and sunk at most five
//!   times. Keys are logarithms of temperatures inflated by the age of the world, so ageing never
//!   changes an order and a stale key is always a lower bound.
//! - *Growth* (§3.3 had a fixed region table): at the bound the colder half of the regions without
//!   recent cost is forgotten; a forgotten region is as cold as one never seen.

use super::{Access, Decision, Op, Opportunity, PolicyOptions, Refusal, Removal, TierPolicy};
use crate::hash;
use crate::heap::IndexedHeap;
use crate::hint::RequestType;
use crate::page::{ObjectId, PageId, RegionId, SlotId};
use crate::tier::SlotTable;
use hashbrown::HashTable;

/// Where the labels sequential and random come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Labels {
    /// From the request's hint when it has one, else from the window.
    Hint,
    /// Always from the window (§3.1).
    Window,
}

/// Parameters of TAC.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TacConfig {
    /// Pages per region: 8 to 64 (§3.1: 32).
    pub region_pages: u32,
    /// Requests per labelling window (§3.1 footnote: 20).
    pub window: u32,
    /// A region seen more often than this in a window is being read sequentially (§3.1: 2).
    pub sequential_above: u32,
    /// Factor applied to every temperature when it ages, in (0, 1] (§3.1: 0.5).
    pub ageing_factor: f32,
    /// Requests between two agings; 0 means 8 requests a slot.
    pub ageing_requests: u64,
    /// How much warmer than the coldest page a newcomer must be (§3.3: 0.01).
    pub margin: f32,
    /// Times the heap's top is refreshed before it is taken for the coldest (§3.3: 5).
    pub refreshes: u32,
    /// Where labels come from.
    pub labels: Labels,
}

impl Default for TacConfig {
    fn default() -> Self {
        Self {
            region_pages: 32,
            window: 20,
            sequential_above: 2,
            ageing_factor: 0.5,
            ageing_requests: 0,
            margin: 0.01,
            refreshes: 5,
            labels: Labels::Hint,
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Region {
    id: RegionId,
    /// Temperature when last changed, in microseconds saved.
    temperature: f32,
    /// Epoch of that change.
    epoch: u32,
}

/// See the module text.
#[derive(Debug)]
pub struct Tac {
    config: TacConfig,
    random_saving: f32,
    sequential_saving: f32,
    regions: HashTable<Region>,
    regions_max: usize,
    /// Requests waiting for their label.
    window: Vec<RegionId>,
    epoch: u32,
    requests_in_epoch: u64,
    ageing_requests: u64,
    heap: IndexedHeap,
    /// Candidates set aside while a victim is looked for; kept to allocate once.
    set_aside: Vec<(f64, u32)>,
    /// Whether a region was ever forgotten or trimmed: its pages' keys may then be too warm.
    forgot: bool,
}

/// Victims tried before an admission is refused because all of them are pinned.
const PINNED_MAX: usize = 16;

impl Tac {
    /// An empty policy for `options.capacity` slots.
    #[must_use]
    pub fn new(options: &PolicyOptions) -> Self {
        let config = options.tac;
        assert!(
            (8..=64).contains(&config.region_pages),
            "regions have 8 to 64 pages"
        );
        assert!(config.window > 0, "a window holds requests");
        assert!(
            config.ageing_factor > 0.0 && config.ageing_factor <= 1.0,
            "ageing cools"
        );
        let automatic = 8 * u64::from(options.capacity).max(1024);
        Self {
            config,
            random_saving: (options.costs.random_saving() / 1000.0) as f32,
            sequential_saving: (options.costs.sequential_saving() / 1000.0) as f32,
            regions: HashTable::new(),
            regions_max: (options.capacity as usize / 2).max(4096),
            window: Vec::with_capacity(config.window as usize),
            epoch: 0,
            requests_in_epoch: 0,
            ageing_requests: match config.ageing_requests {
                0 => automatic,
                n => n,
            },
            heap: IndexedHeap::new(options.capacity),
            set_aside: Vec::with_capacity(PINNED_MAX),
            forgot: false,
        }
    }

    /// Temperature of the region of `page` now, in microseconds of base time saved.
    #[must_use]
    pub fn temperature(&self, page: PageId) -> f32 {
        let id = self.region_of(page);
        let found = self.regions.find(hash::of_region(id), |r| r.id == id);
        found.map_or(0.0, |r| self.aged(r))
    }

    /// Regions remembered.
    #[must_use]
    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    fn region_of(&self, page: PageId) -> RegionId {
        page.region(u64::from(self.config.region_pages))
    }

    fn aged(&self, region: &Region) -> f32 {
        let epochs = (self.epoch - region.epoch).min(1000) as i32;
        region.temperature * self.config.ageing_factor.powi(epochs)
    }

    fn scale(&self, region: &Region) -> f64 {
        scale(region, f64::from(self.config.ageing_factor).ln())
    }

    fn key_of(&self, page: PageId) -> f64 {
        let id = self.region_of(page);
        let found = self.regions.find(hash::of_region(id), |r| r.id == id);
        found.map_or(f64::NEG_INFINITY, |r| self.scale(r))
    }

    fn add_cost(&mut self, id: RegionId, saving: f32) {
        let hash = hash::of_region(id);
        let (epoch, factor) = (self.epoch, self.config.ageing_factor);
        if let Some(region) = self.regions.find_mut(hash, |r| r.id == id) {
            let epochs = (epoch - region.epoch).min(1000) as i32;
            region.temperature = region.temperature * factor.powi(epochs) + saving;
            region.epoch = epoch;
            return;
        }
        if self.regions.len() >= self.regions_max {
            self.forget_cold_regions();
        }
        let region = Region {
            id,
            temperature: saving,
            epoch,
        };
        self.regions
            .insert_unique(hash, region, |r| hash::of_region(r.id));
        debug_assert!(
            self.regions.len() <= self.regions_max,
            "the region table is bounded"
        );
    }

    /// Makes room in the region table: drops the colder half. O(regions), once per half table of
    /// new regions.
    fn forget_cold_regions(&mut self) {
        let mut keys: Vec<f64> = self.regions.iter().map(|r| self.scale(r)).collect();
        let middle = keys.len() / 2;
        let (_, median, _) = keys.select_nth_unstable_by(middle, f64::total_cmp);
        let median = *median;
        let ln_factor = f64::from(self.config.ageing_factor).ln();
        let mut excess = self.regions.len() - middle;
        self.regions.retain(|r| {
            let drop = excess > 0 && scale(r, ln_factor) <= median;
            excess -= usize::from(drop);
            !drop
        });
        self.forgot = true;
        debug_assert!(self.regions.len() < self.regions_max, "room was made");
    }

    /// Labels and charges the requests of a full window (§3.1).
    fn close_window(&mut self) {
        let window = std::mem::take(&mut self.window);
        for &id in &window {
            let seen = window.iter().filter(|other| **other == id).count();
            let sequential = seen > self.config.sequential_above as usize;
            self.add_cost(
                id,
                if sequential {
                    self.sequential_saving
                } else {
                    self.random_saving
                },
            );
        }
        self.window = window;
        self.window.clear();
    }

    fn learn(&mut self, access: &Access) {
        let id = self.region_of(access.page);
        let hint = match self.config.labels {
            Labels::Hint => access.hints.request(),
            Labels::Window => RequestType::Unknown,
        };
        match hint {
            RequestType::SequentialRead => self.add_cost(id, self.sequential_saving),
            RequestType::Read => self.add_cost(id, self.random_saving),
            _ => {
                self.window.push(id);
                if self.window.len() >= self.config.window as usize {
                    self.close_window();
                }
            }
        }
    }

    fn age(&mut self) {
        self.requests_in_epoch += 1;
        if self.requests_in_epoch >= self.ageing_requests {
            self.requests_in_epoch = 0;
            self.epoch += 1;
        }
    }

    /// Refreshes the top of the heap at most `refreshes` times (§3.3), then gives it.
    fn coldest(&mut self, slots: &SlotTable) -> Option<(f64, u32)> {
        for _ in 0..self.config.refreshes {
            let (stale, id) = self.heap.peek()?;
            let key = slots
                .page(SlotId(id))
                .map_or(stale, |page| self.key_of(page));
            if key == stale {
                break;
            }
            self.heap.update(id, key);
        }
        self.heap.peek()
    }

    /// The coldest evictable page; pinned ones are set aside and put back.
    fn coldest_evictable(&mut self, slots: &SlotTable) -> Option<(f64, SlotId)> {
        let mut found = None;
        debug_assert!(self.set_aside.is_empty());
        while let Some((key, id)) = self.coldest(slots) {
            if slots.evictable(SlotId(id)) {
                found = Some((key, SlotId(id)));
                break;
            }
            if self.set_aside.len() == PINNED_MAX {
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
}

/// Position of a region's temperature on the scale of logarithms on which ageing moves nothing.
fn scale(region: &Region, ln_factor: f64) -> f64 {
    match region.temperature > 0.0 {
        true => f64::from(region.temperature).ln() - f64::from(region.epoch) * ln_factor,
        false => f64::NEG_INFINITY,
    }
}

impl TierPolicy for Tac {
    fn name(&self) -> &'static str {
        "tac"
    }

    fn on_request(&mut self, access: &Access, _resident: Option<SlotId>) {
        self.age();
        if access.op == Op::Read {
            self.learn(access);
        }
    }

    fn decide(&mut self, access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        if why != Opportunity::Read {
            return Decision::Refuse(Refusal::Opportunity);
        }
        if slots.has_room() {
            return Decision::Admit;
        }
        let newcomer = self.key_of(access.page);
        let Some((coldest, victim)) = self.coldest_evictable(slots) else {
            return Decision::Refuse(Refusal::Pinned);
        };
        let margin = f64::from(1.0 + self.config.margin).ln();
        let warm_enough = newcomer > f64::NEG_INFINITY && newcomer >= coldest + margin;
        match warm_enough {
            true => Decision::Replace(victim),
            false => Decision::Refuse(Refusal::Cold),
        }
    }

    fn on_admit(&mut self, access: &Access, slot: SlotId) {
        self.heap.insert(slot.0, self.key_of(access.page));
    }

    fn on_remove(&mut self, _page: PageId, slot: SlotId, _why: Removal) {
        let removed = self.heap.remove(slot.0);
        debug_assert!(removed.is_some(), "every resident is in the heap");
    }

    fn on_trim(&mut self, object: ObjectId, first: u64) {
        let pages = u64::from(self.config.region_pages);
        // A region that is only partly cut keeps its temperature.
        let first = first.div_ceil(pages);
        self.regions
            .retain(|r| r.id.object != object || r.id.index < first);
        self.forgot = true;
    }

    fn worth(&self, page: PageId) -> f64 {
        self.key_of(page)
    }

    fn bytes(&self) -> usize {
        self.heap.bytes() + self.regions.allocation_size()
    }

    fn assert_invariants(&self, slots: &SlotTable) {
        self.heap.assert_invariants();
        assert_eq!(
            self.heap.len(),
            slots.resident() as usize,
            "the heap holds the residents"
        );
        assert!(
            self.regions.len() <= self.regions_max,
            "the region table is bounded"
        );
        for (slot, page) in slots.residents() {
            let key = self.heap.key(slot.0).unwrap_or(f64::NAN);
            let bound = self.key_of(page) + 1e-4;
            assert!(key <= bound || self.forgot, "stale keys are lower bounds");
        }
    }
}
