//! What a page looks like now: the indices of its weights.
//!
//! Ages and distances are counted in requests and told apart by powers, or half powers, of two.
//! Extents are runs of 32 pages; blocks are aligned runs of 2, 4, … 128 extents. Extents and
//! blocks have no entry of their own: they share the places their address hashes to, so where
//! there are more of them than places they are taken for one another, and memory stays what it is.
//!
//! *Cost of a read*, of base alone: a read is in order when the request before it, of whatever
//! kind, was a read of the page before. Streams side by side count as random: where they were in
//! order here, pages read at random lost hits and time both (`evaluation/results/value.md`). An
//! extent has a fading mean: what its first read cost, and a [`COST_READS`]th of each later one's.
//! So the pages of a run are worth the same: where the first page alone is on flash base saves
//! nothing. After a first read at random some 200 reads in order bring the mean near theirs.
//!
//! Memory: 20 bytes an extent's place and 4 a block's, with a power of two of places each, one a
//! slot or up to two, or fewer where memory is short.

use super::math::{exp2, half_log2, log2};
use super::model::{Indices, TABLES, WEIGHTS};
use super::pages::{Pages, Past};
use crate::hash;
use crate::page::{ObjectId, PageId};

/// Pages of an extent, as a power of two.
const EXTENT: u32 = 5;
/// Blocks of 2¹ to 2⁷ extents.
const LEVELS: u32 = 8;
/// One part in so many of the mean is the newest read's cost.
const COST_READS: f32 = 64.0;
/// What was not read within the look-out, or never.
const NEVER: u32 = 63;

/// The time, in requests, and the times that are long for a tier of this size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    /// Low half of the number of the request at hand, never 0.
    pub now: u32,
    /// Slots, or 64 if there are fewer.
    pub slots: u32,
}

impl Clock {
    /// Requests since `then`, if that ever was.
    fn since(&self, then: u32) -> Option<u32> {
        (then != 0).then(|| self.now.wrapping_sub(then))
    }

    /// The epoch: an eighth of the slots long, for ages that are told apart coarsely.
    pub(super) fn epoch(&self) -> u16 {
        (self.now / (self.slots / 8)) as u16
    }

    fn log2(&self, then: u32) -> u32 {
        self.since(then).map_or(NEVER, log2)
    }

    fn half_log2(&self, then: u32) -> u32 {
        self.since(then).map_or(NEVER, |age| half_log2(age).min(62))
    }

    /// What is left of 1 after `age` requests; rates fade over five times the slots.
    pub(super) fn left(&self, age: u32) -> f32 {
        const FADE: f32 = std::f32::consts::LOG2_E / 5.0;
        exp2(-(age as f32) / self.slots as f32 * FADE)
    }
}

#[derive(Clone, Copy, Debug)]
struct Extent {
    /// Last read, 0 if never.
    read: u32,
    /// When the rates were renewed.
    stamp: u32,
    /// Reads and writes, fading.
    reads: f32,
    writes: f32,
    /// What a read of it costs base alone, in random reads: the mean of late.
    cost: f32,
}

impl Extent {
    const UNKNOWN: Self = Self {
        read: 0,
        stamp: 0,
        reads: 0.0,
        writes: 0.0,
        cost: 1.0,
    };
}

/// See the module text.
#[derive(Clone, Debug)]
pub(super) struct Extents {
    extents: Vec<Extent>,
    /// Last reads of blocks of all levels.
    blocks: Vec<u32>,
    /// The page after the last one, where the last request was a read.
    next: Option<PageId>,
    /// What a read in order costs base, in random reads.
    in_order: f32,
}

impl Extents {
    /// Bytes for a tier of `slots` slots with as many places, halved `halved` times.
    pub(super) fn bytes_for(slots: u32, halved: u32) -> u64 {
        Self::places(slots, halved) as u64 * (size_of::<Extent>() as u64 + 4)
    }

    fn places(slots: u32, halved: u32) -> usize {
        ((slots as usize).next_power_of_two() >> halved).max(4096)
    }

    /// For a tier of `slots` slots, with as many places, halved `halved` times.
    /// A read in order costs base `in_order` random reads.
    pub(super) fn new(slots: u32, halved: u32, in_order: f32) -> Self {
        let places = Self::places(slots, halved);
        Self {
            extents: vec![Extent::UNKNOWN; places],
            blocks: vec![0; places],
            next: None,
            in_order,
        }
    }

    /// `page` is read or written.
    pub(super) fn on_request(&mut self, clock: &Clock, page: PageId, is_read: bool) {
        let number = page.index as u32 >> EXTENT;
        let at = self.extent_at(page.object, number);
        let cost = self.cost(page, is_read);
        let extent = &mut self.extents[at];
        let left = clock.left(clock.now.wrapping_sub(extent.stamp));
        extent.reads *= left;
        extent.writes *= left;
        extent.stamp = clock.now;
        if !is_read {
            extent.writes += 1.0;
            return;
        }
        extent.reads += 1.0;
        match extent.read {
            0 => extent.cost = cost,
            _ => extent.cost += (cost - extent.cost) / COST_READS,
        }
        extent.read = clock.now;
        for level in 1..LEVELS {
            let at = self.block_at(page.object, level, number >> level);
            self.blocks[at] = clock.now;
        }
    }

    /// What a read of `page`, the request at hand, costs base alone, in random reads; of a write
    /// nothing is said.
    fn cost(&mut self, page: PageId, is_read: bool) -> f32 {
        let is_next = self.next == Some(page);
        let next = page.index.checked_add(1);
        let next = next.map(|index| PageId::new(page.object, index));
        self.next = next.filter(|_| is_read);
        match is_next {
            true => self.in_order,
            false => 1.0,
        }
    }

    /// What a read of the extent of `page` costs base alone, in random reads: the mean of late, 1
    /// where none is known.
    pub(super) fn mean_cost(&self, page: PageId) -> f32 {
        self.extent(page).cost
    }

    /// Bytes held.
    pub(super) fn bytes(&self) -> usize {
        self.extents.capacity() * size_of::<Extent>() + self.blocks.capacity() * 4
    }

    fn extent(&self, page: PageId) -> &Extent {
        &self.extents[self.extent_at(page.object, page.index as u32 >> EXTENT)]
    }

    /// The smallest block beside the extent of `page`, after it or before, that was read within
    /// a quarter of the slots, as a power of two of extents; `LEVELS` where there is none.
    fn beside(&self, clock: &Clock, page: PageId, after: bool) -> u32 {
        let number = page.index as u32 >> EXTENT;
        let recent = |level: u32| {
            let block = number >> level;
            let beside = match after {
                true => block.checked_add(1),
                false => block.checked_sub(1),
            };
            let read = beside.map(|block| match level {
                0 => self.extents[self.extent_at(page.object, block)].read,
                _ => self.blocks[self.block_at(page.object, level, block)],
            });
            let age = read.and_then(|read| clock.since(read));
            age.is_some_and(|age| age < clock.slots / 4)
        };
        (0..LEVELS).find(|level| recent(*level)).unwrap_or(LEVELS)
    }

    fn extent_at(&self, object: ObjectId, number: u32) -> usize {
        place(object, u64::from(number), self.extents.len())
    }

    fn block_at(&self, object: ObjectId, level: u32, block: u32) -> usize {
        let address = u64::from(level) << 32 | u64::from(block);
        place(object, address, self.blocks.len())
    }
}

/// The place, of a power of two of them, of an address in an object.
fn place(object: ObjectId, address: u64, places: usize) -> usize {
    let hash = hash::quick(hash::quick(u64::from(object.0) + 1) ^ address);
    (hash >> 32) as usize & (places - 1)
}

/// A count told apart by the value up to 3, above by powers of two, at most 7.
fn coarse(count: u8) -> u32 {
    match count {
        0..=3 => u32::from(count),
        _ => (2 + count.ilog2()).min(7),
    }
}

/// `steps` times log₂(`rate` + 1), at most `max`.
fn of_rate(rate: f32, steps: u32, max: u32) -> u32 {
    // In 1/16: half powers of two of 16 (rate + 1), less those of 16.
    let sixteenths = (16.0 * rate.clamp(0.0, 1e6)) as u32 + 15;
    let halves = half_log2(sixteenths).saturating_sub(8);
    (halves * steps / 2).min(max)
}

/// The indices of a page with this past. About 20 cache lines.
pub(super) fn indices(
    clock: &Clock,
    past: &Past,
    in_pool: bool,
    pages: &Pages,
    extents: &Extents,
) -> Indices {
    let page = past.page();
    let hints = u32::from(past.hints) | u32::from(in_pool) << 16;
    let is_read = past.is_read_last(clock.now);
    let both = past.read != 0 && past.write != 0;
    let other = if both { u32::from(past.other) + 1 } else { 0 };
    let age = clock.half_log2(if is_read { past.read } else { past.write });
    let (read, read_half) = (clock.log2(past.read), clock.half_log2(past.read));
    let (distance_half, before) = (u32::from(past.distance), u32::from(past.before).div_ceil(2));
    let distance = distance_half.div_ceil(2);
    let (reads, writes) = (coarse(past.reads), u32::from(past.writes).min(7));
    let epochs = u32::from(clock.epoch().wrapping_sub(past.first));
    let seen = log2(epochs);
    let idle = clock.since(past.read).map_or(0.0, |age| clock.left(age));
    let warmth = f32::from(past.warmth) / 16.0 * idle;
    let extent = extents.extent(page);
    let left = clock.left(clock.now.wrapping_sub(extent.stamp));
    let extent_reads = of_rate(extent.reads * left, 2, 24);
    let extent_writes = of_rate(extent.writes * left, 1, 12);
    let extent_age = clock.log2(extent.read);
    let extent_half = clock.half_log2(extent.read);
    let behind = extents.beside(clock, page, false);
    let ahead = extents.beside(clock, page, true);
    let neighbour = |index: Option<u64>| {
        let entry = index.and_then(|index| pages.find(PageId::new(page.object, index)));
        entry.map_or(40, |entry| clock.log2(pages.get(entry).read))
    };
    let previous = neighbour(page.index.checked_sub(1));
    let next = neighbour(page.index.checked_add(1));
    let wrote = clock.log2(past.write);
    let keys: [[u32; 3]; TABLES] = [
        [hints, age, 0],
        [hints, other, 0],
        [hints, writes, 0],
        [hints, distance, 0],
        [read_half, distance_half, u32::from(in_pool)],
        [distance, before, 0],
        [reads, seen, 0],
        [extent_half, extent_reads, 0],
        [hints, extent_reads, 0],
        [of_rate(warmth, 3, 24), read, u32::from(in_pool)],
        [behind, ahead, extent_age],
        [hints, behind, ahead],
        [extent_writes, wrote, writes],
        [previous, read, 0],
        [next, read, 0],
        [hints, seen, 0],
        [hints, reads, of_rate(warmth, 1, 12)],
    ];
    let mut indices = Indices::default();
    for (index, [a, b, c]) in indices.iter_mut().zip(keys) {
        let key = u64::from(a) << 16 ^ u64::from(b) << 36 ^ u64::from(c) << 50;
        *index = (hash::quick(key) >> (u64::BITS - WEIGHTS.ilog2())) as u16;
    }
    indices
}
