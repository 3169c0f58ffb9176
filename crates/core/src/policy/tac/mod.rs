//! TAC: temperature-aware caching (VLDB 2010 §3).
//!
//! *Algorithm*: a region of 32 contiguous pages of one object has a temperature: the time that
//! reading its pages from base has cost, or would have cost, beyond reading them from flash,
//! aged. A page is as warm as its region. While there is room every page read from base is
//! admitted; afterwards only one warmer than the coldest page on flash, which it replaces. A
//! write never admits; it updates the copy that is there (§3.2). The coldest page is found by a
//! heap, and a newcomer must be at least 1 % warmer (`tac`), or by temperature bands
//! (`tac-bands-lru`, `tac-bands-mru`; §3.3). `tac-blocks` replaces whole blocks of slots (§3.2).
//!
//! *Write-back* (§4.4) has two variants. `tac` and its bands keep dirty pages in a reserved area:
//! they refuse every dirty page that is not on flash, which sends it to the tier's write-back
//! reserve. `tac-mixed` keeps them among the clean ones: a dirty page comes in by the same rule of
//! temperature, and writes warm a region too. Where a page is on flash already, both write the
//! new version there (§3.2). Flushing past a threshold, in the order of base, is the tier's work.
//!
//! *Cost*: O(1) to learn; to decide, O(log slots) with the heap, O(1) with bands, O(log blocks)
//! with blocks. *Memory*: 8.5 bytes a slot for the heap, 9 for bands, 9 a block for blocks, and 24
//! to 48 bytes a region, at most 4096 or [`TacConfig::regions_per_slot`] (half a
//! region) for each slot.
//!
//! # Where the paper leaves a choice
//! - *Which requests warm a region* (§3.1 says every request, §1.3 every read): reads only, from
//!   wherever they are served. The benefit of a flash copy is a cheaper read; under write-through
//!   a write costs base the same with or without it.
//!   Under `tac-mixed` a write that flash absorbs saves W_D − W_S, and adds that. It is the most
//!   it can save: the page goes to base in the end, after more writes and beside its neighbours.
//! - *Labels* (§3.1): a window of 20 requests; a region seen more than twice in the window makes
//!   those requests sequential. A label exists when its window closes, and the cost is added
//!   then. A hint that says sequential or random is believed at once instead and does not enter
//!   the window ([`Labels::Hint`], the default).
//! - *Ageing* (§3.1 "halved after a certain number of accesses"; ×0.8 in the IEEE bulletin §2.2):
//!   factor and interval are settings. It touches no region: see `regions.rs`.
//! - *Victim* (§3.3): the heap's keys may be stale, and pages may be in too cold a band; at most
//!   five are put right in one search. What that guarantees is in `coldest.rs` and `bands.rs`.
//! - *Growth* (§3.3 had a fixed region table): at the bound the colder half of the regions is
//!   forgotten; a forgotten region is as cold as one never seen.

mod bands;
mod blocks;
mod coldest;
mod regions;

pub use bands::Order;

use super::{Access, Decision, Op, Opportunity, PolicyOptions, Refusal, Removal, TierPolicy};
use crate::page::{ObjectId, PageId, SlotId};
use crate::tier::SlotTable;
use bands::Bands;
use blocks::Blocks;
use coldest::Coldest;
use regions::Regions;

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
    /// Regions remembered for each slot at most, and at least 4096 in all; above 0. Past that
    /// the colder half is forgotten.
    pub regions_per_slot: f32,
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
    /// Pages looked at again before one is taken for the coldest (§3.3: 5).
    pub refreshes: u32,
    /// Where labels come from.
    pub labels: Labels,
    /// Temperature bands, 1 to 255 (§3.3: 50 to 100).
    pub bands: u32,
    /// Slots of a block that `tac-blocks` replaces as a whole; at least 1. (§3.2 speaks of a full
    /// erase block and names no size; 32 pages of 8 KiB are 256 KiB.)
    pub block_pages: u32,
}

impl Default for TacConfig {
    fn default() -> Self {
        Self {
            region_pages: 32,
            regions_per_slot: 0.5,
            window: 20,
            sequential_above: 2,
            ageing_factor: 0.5,
            ageing_requests: 0,
            margin: 0.01,
            refreshes: 5,
            labels: Labels::Hint,
            bands: 64,
            block_pages: 32,
        }
    }
}

/// How the coldest page is found.
#[derive(Debug)]
enum Victims {
    Heap(Coldest),
    Bands(Bands),
    Blocks(Blocks),
}

/// See the module text.
#[derive(Debug)]
pub struct Tac {
    name: &'static str,
    /// 1 + how much warmer than the coldest page a newcomer must be.
    margin: f64,
    /// Whether dirty pages come in among clean ones, and writes warm.
    mixed: bool,
    regions: Regions,
    victims: Victims,
}

impl Tac {
    /// An empty policy for `options.capacity` slots, with the smoothed heap.
    #[must_use]
    pub fn new(options: &PolicyOptions) -> Self {
        let heap = Coldest::new(options.capacity, options.tac.refreshes);
        Self::with_victims(options, "tac", Victims::Heap(heap))
    }

    /// An empty policy for `options.capacity` slots, with temperature bands.
    #[must_use]
    pub fn with_bands(options: &PolicyOptions, order: Order) -> Self {
        let config = &options.tac;
        let bands = Bands::new(options.capacity, config.bands, order, config.refreshes);
        let name = match order {
            Order::Lru => "tac-bands-lru",
            Order::Mru => "tac-bands-mru",
        };
        Self::with_victims(options, name, Victims::Bands(bands))
    }

    /// An empty policy for `options.capacity` slots, with the smoothed heap and dirty pages among
    /// clean ones.
    #[must_use]
    pub fn mixed(options: &PolicyOptions) -> Self {
        Self {
            name: "tac-mixed",
            mixed: true,
            ..Self::new(options)
        }
    }

    /// An empty policy for `options.capacity` slots that replaces whole blocks.
    #[must_use]
    pub fn with_blocks(options: &PolicyOptions) -> Self {
        let config = &options.tac;
        let blocks = Blocks::new(options.capacity, config.block_pages, config.refreshes);
        Self::with_victims(options, "tac-blocks", Victims::Blocks(blocks))
    }

    fn with_victims(options: &PolicyOptions, name: &'static str, victims: Victims) -> Self {
        Self {
            name,
            margin: 1.0 + f64::from(options.tac.margin),
            mixed: false,
            regions: Regions::new(&options.tac, &options.costs, options.capacity),
            victims,
        }
    }

    /// Temperature of the region of `page` now, in microseconds of base time saved.
    #[must_use]
    pub fn temperature(&self, page: PageId) -> f32 {
        self.regions.temperature(page)
    }

    /// Regions remembered.
    #[must_use]
    pub fn regions(&self) -> usize {
        self.regions.len()
    }

    /// Blocks of slots whose replacement was begun; 0 where pages are replaced one by one.
    #[must_use]
    pub fn blocks_opened(&self) -> u64 {
        match &self.victims {
            Victims::Blocks(blocks) => blocks.opened(),
            Victims::Heap(_) | Victims::Bands(_) => 0,
        }
    }

    /// The page to be replaced by one of `heat`, more than 0.
    fn victim(&mut self, heat: f64, slots: &SlotTable) -> Result<SlotId, Refusal> {
        let coldest = match &mut self.victims {
            Victims::Heap(heap) => Ok(heap.victim(&self.regions, slots)),
            Victims::Blocks(blocks) => Ok(blocks.victim(&self.regions, slots)),
            Victims::Bands(bands) => Err(bands.victim(heat, &self.regions, slots)),
        };
        let found = match coldest {
            Ok(Some((coldest, slot))) if heat >= coldest * self.margin => Ok(slot),
            Ok(found) => Err(found.is_none()),
            Err(of_bands) => of_bands,
        };
        found.map_err(|pinned| match pinned {
            true => Refusal::Pinned,
            false => Refusal::Cold,
        })
    }
}

impl TierPolicy for Tac {
    fn name(&self) -> &'static str {
        self.name
    }

    fn on_request(&mut self, access: &Access, resident: Option<SlotId>) {
        if let Some(factor) = self.regions.age() {
            match &mut self.victims {
                Victims::Heap(heap) => heap.scale(factor),
                Victims::Bands(bands) => bands.scale(factor),
                Victims::Blocks(blocks) => blocks.scale(factor),
            }
        }
        match access.op {
            Op::Read => self.regions.learn(access),
            Op::Write if self.mixed => self.regions.learn_write(access.page),
            Op::Write => {}
        }
        let Victims::Bands(bands) = &mut self.victims else {
            return;
        };
        bands.on_request();
        if let (Op::Read, Some(slot)) = (access.op, resident) {
            bands.on_read(slot, self.regions.heat(access.page));
        }
    }

    fn decide(&mut self, access: &Access, why: Opportunity, slots: &SlotTable) -> Decision {
        if let Victims::Blocks(blocks) = &mut self.victims {
            blocks.settle(&self.regions, slots);
        }
        if why != Opportunity::Read && !(why == Opportunity::Clean && self.mixed) {
            return Decision::Refuse(Refusal::Opportunity);
        }
        if slots.has_room() {
            return Decision::Admit;
        }
        let heat = self.regions.heat(access.page);
        if heat <= 0.0 {
            return Decision::Refuse(Refusal::Cold);
        }
        match self.victim(heat, slots) {
            Ok(slot) => Decision::Replace(slot),
            Err(why) => Decision::Refuse(why),
        }
    }

    fn on_admit(&mut self, access: &Access, slot: SlotId) {
        let heat = self.regions.heat(access.page);
        match &mut self.victims {
            Victims::Heap(heap) => heap.insert(slot, heat),
            Victims::Bands(bands) => bands.insert(slot, heat),
            Victims::Blocks(blocks) => blocks.insert(slot),
        }
    }

    fn on_remove(&mut self, _page: PageId, slot: SlotId, why: Removal) {
        match &mut self.victims {
            Victims::Heap(heap) => heap.remove(slot),
            Victims::Bands(bands) => bands.remove(slot),
            Victims::Blocks(blocks) => blocks.remove(slot, why == Removal::Evicted),
        }
    }

    fn on_trim(&mut self, object: ObjectId, first: u64) {
        self.regions.trim(object, first);
    }

    fn worth(&self, page: PageId) -> f64 {
        self.regions.heat(page)
    }

    fn bytes(&self) -> usize {
        let victims = match &self.victims {
            Victims::Heap(heap) => heap.bytes(),
            Victims::Bands(bands) => bands.bytes(),
            Victims::Blocks(blocks) => blocks.bytes(),
        };
        victims + self.regions.bytes()
    }

    fn assert_invariants(&self, slots: &SlotTable) {
        self.regions.assert_invariants();
        match &self.victims {
            Victims::Heap(heap) => heap.assert_invariants(&self.regions, slots),
            Victims::Bands(bands) => bands.assert_invariants(&self.regions, slots),
            Victims::Blocks(blocks) => blocks.assert_invariants(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint::{HintSet, RequestType, hint_type};
    use crate::page::BlockId;

    /// A tier whose slot n holds the first page of region n, and nothing known yet.
    pub(super) fn full_tier(capacity: u32) -> (Regions, SlotTable) {
        let options = PolicyOptions::new(capacity);
        let regions = Regions::new(&options.tac, &options.costs, capacity);
        let mut slots = SlotTable::new(capacity);
        for slot in 0..capacity {
            let page = PageId::new(ObjectId(1), 32 * u64::from(slot));
            assert_eq!(
                slots.restore(page, BlockId(slot), false, false),
                Some(SlotId(slot))
            );
        }
        (regions, slots)
    }

    /// So many random reads of a region.
    pub(super) fn warm(regions: &mut Regions, region: u64, reads: u32) {
        let hints = HintSet::UNKNOWN.with(hint_type::REQUEST, RequestType::Read.value());
        for _ in 0..reads {
            regions.learn(&Access {
                page: PageId::new(ObjectId(1), 32 * region),
                op: Op::Read,
                hints,
                number: 0,
            });
        }
    }
}
