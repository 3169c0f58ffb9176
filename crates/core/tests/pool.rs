//! The DRAM pool against the plainest code there is: queues as vectors, every search a scan.

use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use thermocline_core::pool::{self, Clock, FlashMove, Gd2l, Pool, PoolPolicy};
use thermocline_core::{Costs, FrameId, HintSet, ObjectId, PageId, RequestType, hint_type};

fn page(index: u64) -> PageId {
    PageId::new(ObjectId(1), index)
}

/// R_S and R_D.
fn costs(flash_read: u32, base_read: u32) -> Costs {
    Costs {
        flash_read: f64::from(flash_read),
        base_random_read: f64::from(base_read),
        ..Costs::default()
    }
}

fn pool_of(policy: &str, frames: u32, costs: &Costs) -> Pool {
    let policy = pool::build(policy, frames, costs).expect("a known policy");
    Pool::with_policy(policy, frames)
}

/// The first `depth` frames in eviction order.
fn tail(policy: &dyn PoolPolicy, depth: u32) -> Vec<FrameId> {
    let mut found = Vec::new();
    policy.tail(depth, &mut |frame| {
        found.push(frame);
        true
    });
    found
}

fn frames(ids: &[u32]) -> Vec<FrameId> {
    ids.iter().copied().map(FrameId).collect()
}

/// Reads `index`; true when it was in the pool.
fn read(pool: &mut Pool, index: u64, on_flash: bool, prefetched: bool) -> bool {
    if let Some(frame) = pool.find(page(index)) {
        pool.touch(frame);
        return true;
    }
    if let Some(victim) = pool.victim() {
        assert_eq!(pool.remove(victim.frame), victim.page);
    }
    let filled = pool.fill(page(index), HintSet::UNKNOWN, on_flash, prefetched);
    assert!(filled.is_some(), "a clean pool always has room");
    false
}

/// GreedyDual as the thesis states it first (§6.2): every page has its H, the lowest leaves and is
/// subtracted from all others. Equal H: pages on flash first, then the one used longest ago.
struct GreedyDual {
    capacity: usize,
    /// Page, H, on base alone, time of last use.
    pages: Vec<(u64, u32, bool, usize)>,
}

impl GreedyDual {
    fn read(&mut self, index: u64, on_flash: bool, cost: u32, now: usize) -> Option<u64> {
        if let Some(found) = self.pages.iter_mut().find(|p| p.0 == index) {
            *found = (index, cost, !on_flash, now);
            return None;
        }
        let mut victim = None;
        if self.pages.len() == self.capacity {
            let lowest = self.pages.iter().map(|p| (p.1, p.2, p.3, p.0)).min();
            let (h, _, _, least) = lowest.expect("a full pool has pages");
            self.pages.retain(|p| p.0 != least);
            self.pages.iter_mut().for_each(|p| p.1 -= h);
            victim = Some(least);
        }
        self.pages.push((index, cost, !on_flash, now));
        victim
    }
}

proptest! {
    /// Residency is fixed and everything is read on demand: GD2L is GreedyDual.
    #[test]
    fn gd2l_is_greedy_dual(
        capacity in 1u32..12,
        (flash, base) in (0u32..40, 0u32..40),
        on_flash in prop::collection::btree_set(0u64..30, 0..30),
        stream in prop::collection::vec(0u64..30, 1..400),
    ) {
        let mut pool = pool_of("gd2l", capacity, &costs(flash, base));
        let mut naive = GreedyDual { capacity: capacity as usize, pages: Vec::new() };
        for (now, &index) in stream.iter().enumerate() {
            let flashed = on_flash.contains(&index);
            let cost = if flashed { flash } else { base };
            let gone = naive.read(index, flashed, cost, now);
            read(&mut pool, index, flashed, false);
            prop_assert!(gone.is_none_or(|gone| pool.find(page(gone)).is_none()));
            prop_assert_eq!(pool.filled() as usize, naive.pages.len());
            prop_assert!(naive.pages.iter().all(|p| pool.find(page(p.0)).is_some()));
            pool.assert_invariants();
        }
    }

    /// CLOCK as a queue: the hand is at its front, and who is passed over goes to its end.
    #[test]
    fn clock_is_a_queue_with_second_chances(
        capacity in 1usize..12,
        stream in prop::collection::vec((0u64..24, any::<bool>()), 1..400),
    ) {
        let mut pool = pool_of("clock", capacity as u32, &Costs::default());
        let mut queue: Vec<(u64, bool)> = Vec::new();
        for (index, prefetched) in stream {
            let found = queue.iter_mut().find(|entry| entry.0 == index);
            let hit = found.map(|entry| entry.1 = true).is_some();
            if !hit {
                while queue.len() == capacity {
                    let (page, referenced) = queue.remove(0);
                    if referenced {
                        queue.push((page, false));
                    }
                }
                queue.push((index, false));
            }
            prop_assert_eq!(read(&mut pool, index, false, prefetched), hit);
            prop_assert!(queue.iter().all(|entry| pool.find(page(entry.0)).is_some()));
            let soon = queue.iter().filter(|e| !e.1).chain(queue.iter().filter(|e| e.1));
            let soon: Vec<PageId> = soon.map(|entry| page(entry.0)).collect();
            if queue.len() == capacity {
                let order = tail(pool.policy(), capacity as u32);
                let order: Vec<PageId> = order.iter().filter_map(|f| pool.page(*f)).collect();
                prop_assert_eq!(order, soon);
            }
            pool.assert_invariants();
        }
    }
}

/// LRU with the midpoint (one queue) and GD2L (two) as vectors of pages and H; index 0 is the tail.
struct Plain {
    one_queue: bool,
    queues: [Vec<(u64, u64)>; 2],
    inflation: u64,
    costs: [u64; 2],
}

#[derive(Clone, Copy, PartialEq)]
enum Place {
    Head,
    Middle,
    Tail,
}

impl Plain {
    fn insert(&mut self, index: u64, on_flash: bool, place: Place) {
        let which = usize::from(!on_flash || self.one_queue);
        let fresh = self.inflation + self.costs[which];
        let queue = &mut self.queues[which];
        let (at, next, when_empty) = match place {
            Place::Head => return queue.push((index, fresh)),
            // The midpoint page is the last of those behind the newcomer.
            Place::Middle => (queue.len() * 3 / 8, (queue.len() * 3 / 8).max(1) - 1, fresh),
            Place::Tail => (0, 0, self.inflation),
        };
        let h = queue.get(next).map_or(when_empty, |there| there.1);
        queue.insert(at, (index, h));
    }

    /// Takes `index` out; whether it was in Q_S.
    fn remove(&mut self, index: u64) -> bool {
        let was_on_flash = self.queues[0].iter().any(|p| p.0 == index);
        self.queues
            .iter_mut()
            .for_each(|q| q.retain(|p| p.0 != index));
        was_on_flash
    }

    /// A move after which the page is or is not on flash.
    fn flash_move(&mut self, index: u64, how: FlashMove) {
        let enters = how != FlashMove::Left;
        if self.one_queue
            || self.queues[usize::from(!enters)]
                .iter()
                .any(|p| p.0 == index)
        {
            return;
        }
        self.remove(index);
        let tail = how == FlashMove::EnteredByReplacement;
        self.insert(
            index,
            enters,
            if tail { Place::Tail } else { Place::Middle },
        );
    }

    /// Pages in eviction order with their H.
    fn order(&self) -> Vec<(u64, u64)> {
        let mut order = self.queues.concat();
        order.sort_by_key(|p| if self.one_queue { 0 } else { p.1 });
        order
    }
}

#[derive(Clone, Debug)]
enum Op {
    Read { index: u64, prefetched: bool },
    Write(u64),
    Busy(u64, bool),
    Clean(u64),
    Move(u64, FlashMove),
    Trim(u64),
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let index = || 0u64..24;
    let how = prop::sample::select(vec![
        FlashMove::EnteredByReplacement,
        FlashMove::EnteredByRecovery,
        FlashMove::Entered,
        FlashMove::Left,
    ]);
    let op = prop_oneof![
        8 => (index(), any::<bool>())
            .prop_map(|(index, prefetched)| Op::Read { index, prefetched }),
        3 => index().prop_map(Op::Write),
        2 => (index(), any::<bool>()).prop_map(|(index, busy)| Op::Busy(index, busy)),
        2 => index().prop_map(Op::Clean),
        4 => (index(), how).prop_map(|(index, how)| Op::Move(index, how)),
        1 => index().prop_map(Op::Trim),
    ];
    prop::collection::vec(op, 1..300)
}

/// The pool and what is known about it from plain code.
struct World {
    pool: Pool,
    /// None for CLOCK, whose order has a test of its own.
    plain: Option<Plain>,
    on_flash: BTreeSet<u64>,
    /// Dirty pages with their times, the oldest first.
    dirty: Vec<(u64, u64)>,
    busy: BTreeSet<u64>,
}

impl World {
    fn new(policy: &str, frames: u32, flash: u32, base: u32) -> Self {
        let plain = Plain {
            one_queue: policy == "lru",
            queues: [Vec::new(), Vec::new()],
            inflation: 0,
            costs: [flash, base].map(u64::from),
        };
        Self {
            pool: pool_of(policy, frames, &costs(flash, base)),
            plain: (policy != "clock").then_some(plain),
            on_flash: BTreeSet::new(),
            dirty: Vec::new(),
            busy: BTreeSet::new(),
        }
    }

    fn is_dirty(&self, index: u64) -> bool {
        self.dirty.iter().any(|d| d.0 == index)
    }

    fn read(&mut self, index: u64, prefetched: bool) {
        if let Some(frame) = self.pool.find(page(index)) {
            self.pool.touch(frame);
            if let Some(plain) = &mut self.plain {
                let was_on_flash = plain.remove(index);
                plain.insert(index, was_on_flash, Place::Head);
            }
            return;
        }
        self.make_room();
        let on_flash = self.on_flash.contains(&index);
        let room = self.pool.filled() < self.pool.capacity();
        let filled = self
            .pool
            .fill(page(index), HintSet::UNKNOWN, on_flash, prefetched);
        assert_eq!(filled.is_some(), room);
        if let (true, Some(plain)) = (room, &mut self.plain) {
            let place = if prefetched {
                Place::Middle
            } else {
                Place::Head
            };
            plain.insert(index, on_flash, place);
        }
    }

    fn make_room(&mut self) {
        let full = self.pool.filled() == self.pool.capacity();
        let order = self.plain.as_ref().map(Plain::order);
        let (dirty, busy) = (&self.dirty, &self.busy);
        let may = |p: &(u64, u64)| dirty.iter().all(|d| d.0 != p.0) && !busy.contains(&p.0);
        let wanted = order.map(|order| order.into_iter().find(may).filter(|_| full));
        let victim = self.pool.victim();
        if let Some(victim) = &victim {
            assert!(full && may(&(victim.page.index, 0)), "free frames go first");
            self.pool.remove(victim.frame);
        }
        let (Some(wanted), Some(plain)) = (wanted, &mut self.plain) else {
            return;
        };
        assert_eq!(victim.map(|v| v.page.index), wanted.map(|w| w.0));
        if let Some((index, h)) = wanted {
            plain.inflation = plain.inflation.max(h);
            plain.remove(index);
        }
    }

    fn write(&mut self, index: u64, now: u64) {
        let Some(frame) = self.pool.find(page(index)) else {
            return;
        };
        let write = HintSet::UNKNOWN.with(hint_type::REQUEST, RequestType::Write.value());
        self.pool.set_dirty(frame, &write, now);
        assert_eq!(self.pool.hints(frame), &write, "the write's hints are kept");
        if !self.is_dirty(index) {
            self.dirty.push((index, now));
        }
    }

    fn apply(&mut self, op: &Op, now: u64) {
        match *op {
            Op::Read { index, prefetched } => self.read(index, prefetched),
            Op::Write(index) => self.write(index, now),
            Op::Busy(index, busy) => {
                if let Some(frame) = self.pool.find(page(index)) {
                    self.pool.set_busy(frame, busy);
                    self.busy.remove(&index);
                    self.busy.extend(busy.then_some(index));
                }
            }
            Op::Clean(index) => {
                if let Some(frame) = self.pool.find(page(index)) {
                    self.pool.set_clean(frame);
                    self.dirty.retain(|d| d.0 != index);
                }
            }
            Op::Move(index, how) => {
                self.on_flash.remove(&index);
                self.on_flash
                    .extend((how != FlashMove::Left).then_some(index));
                if let Some(frame) = self.pool.find(page(index)) {
                    self.pool.set_on_flash(frame, how);
                    self.plain.iter_mut().for_each(|p| p.flash_move(index, how));
                }
            }
            Op::Trim(index) => {
                for frame in self.pool.in_range(ObjectId(1), index, index) {
                    self.pool.remove(frame);
                    self.dirty.retain(|d| d.0 != index);
                    self.busy.remove(&index);
                    self.plain.iter_mut().for_each(|p| _ = p.remove(index));
                }
            }
        }
    }

    fn check(&self, depth: u32) {
        self.pool.assert_invariants();
        let index = |frame: FrameId| self.pool.page(frame).expect("filled").index;
        let order: Vec<u64> = tail(self.pool.policy(), u32::MAX)
            .into_iter()
            .map(index)
            .collect();
        if let Some(plain) = &self.plain {
            let expected: Vec<u64> = plain.order().iter().map(|p| p.0).collect();
            assert_eq!(order, expected, "eviction order");
            let sorted = |queue: &Vec<(u64, u64)>| queue.is_sorted_by_key(|p| p.1);
            assert!(plain.queues.iter().all(sorted), "the model's queues too");
        }
        let soon = tail(self.pool.policy(), depth);
        assert_eq!(soon.len(), order.len().min(depth as usize));
        let idle = |index: &u64| self.is_dirty(*index) && !self.busy.contains(index);
        let replaced = soon.into_iter().map(index).find(idle);
        assert_eq!(
            self.pool.next_replacement(depth, |_| true).map(index),
            replaced
        );
        let oldest = self.dirty.iter().find(|d| idle(&d.0)).copied();
        let found = self.pool.oldest_dirty(u32::MAX, |_| true);
        assert_eq!(found.map(|(frame, since)| (index(frame), since)), oldest);
        let all = self.pool.dirty_of(ObjectId(1)).into_iter().map(index);
        assert!(all.eq(self.dirty.iter().map(|d| d.0).collect::<BTreeSet<_>>()));
        assert_eq!(self.pool.dirty() as usize, self.dirty.len());
    }
}

proptest! {
    /// Reads, writes, cleaning, moves to and from flash and trims in any order.
    #[test]
    fn equals_plain_code(
        policy in prop::sample::select(pool::NAMES.to_vec()),
        capacity in 0u32..14,
        (flash, base) in (0u32..40, 0u32..40),
        depth in 0u32..16,
        ops in ops(),
    ) {
        let mut world = World::new(policy, capacity, flash, base);
        for (now, op) in (0u64..).zip(&ops) {
            world.apply(op, now);
            world.check(depth);
        }
    }
}

#[test]
fn pages_change_queue_as_the_thesis_says() {
    // H: 1 in Q_S for frames 0 to 3, 10 in Q_D for 4 to 7, tails first.
    let mut gd2l = Gd2l::new(8, &costs(1, 10));
    (0..8).for_each(|id| gd2l.on_fill(FrameId(id), id < 4, false));
    assert_eq!(tail(&gd2l, 8), frames(&[0, 1, 2, 3, 4, 5, 6, 7]));
    // A replacement write: the tail of Q_S.
    gd2l.on_flash(FrameId(7), FlashMove::EnteredByReplacement);
    assert_eq!(tail(&gd2l, 8), frames(&[7, 0, 1, 2, 3, 4, 5, 6]));
    // A recoverability write: the middle of Q_S, 3/8 of 5 pages from its tail.
    gd2l.on_flash(FrameId(6), FlashMove::EnteredByRecovery);
    assert_eq!(tail(&gd2l, 8), frames(&[7, 6, 0, 1, 2, 3, 4, 5]));
    // Evicted from flash: the middle of Q_D, which is its tail with 2 pages.
    gd2l.on_flash(FrameId(1), FlashMove::Left);
    assert_eq!(tail(&gd2l, 8), frames(&[7, 6, 0, 2, 3, 1, 4, 5]));
    // No moves: new versions of pages that are there.
    for how in [
        FlashMove::EnteredByReplacement,
        FlashMove::EnteredByRecovery,
    ] {
        gd2l.on_flash(FrameId(3), how);
    }
    gd2l.on_flash(FrameId(4), FlashMove::Left);
    assert_eq!(tail(&gd2l, 8), frames(&[7, 6, 0, 2, 3, 1, 4, 5]));
    // Used again it has the H of its queue, no matter how it came there.
    gd2l.on_touch(FrameId(7));
    assert_eq!(tail(&gd2l, 5), frames(&[6, 0, 2, 3, 7]));
    gd2l.assert_invariants();
}

#[test]
fn moves_into_an_empty_queue() {
    let of = |how: FlashMove| {
        let mut gd2l = Gd2l::new(3, &costs(10, 1));
        (0..2).for_each(|id| gd2l.on_fill(FrameId(id), false, false));
        gd2l.on_flash(FrameId(1), how);
        gd2l.on_fill(FrameId(2), true, false);
        gd2l.assert_invariants();
        tail(&gd2l, 3)
    };
    // At the tail it has H = L = 0 and leaves first; in the middle it is as if just read.
    assert_eq!(of(FlashMove::EnteredByReplacement), frames(&[1, 0, 2]));
    assert_eq!(of(FlashMove::EnteredByRecovery), frames(&[0, 1, 2]));
    assert_eq!(of(FlashMove::Entered), frames(&[0, 1, 2]));
}

#[test]
fn inflation_never_falls() {
    let mut gd2l = Gd2l::new(3, &costs(1, 10));
    gd2l.on_fill(FrameId(0), false, false);
    gd2l.on_fill(FrameId(1), true, false);
    // Frame 1 has the lower H but may not leave: L is 10 now.
    assert_eq!(gd2l.victim(&|frame| frame != FrameId(1)), Some(FrameId(0)));
    gd2l.on_remove(FrameId(0));
    gd2l.on_fill(FrameId(0), true, false);
    // H = 1 leaves: L stays 10, and the next page on flash gets 11 like the one before it.
    assert_eq!(gd2l.victim(&|_| true), Some(FrameId(1)));
    gd2l.on_remove(FrameId(1));
    gd2l.on_fill(FrameId(1), true, false);
    gd2l.on_fill(FrameId(2), false, false);
    gd2l.assert_invariants();
    assert_eq!(tail(&gd2l, 3), frames(&[0, 1, 2]));
}

#[test]
fn replacement_writes_go_by_h_and_recovery_writes_by_age() {
    let mut pool = pool_of("gd2l", 6, &costs(1, 10));
    let write = HintSet::UNKNOWN;
    // Pages 0 to 2 on flash, 3 to 5 on base; made dirty from the last to the first.
    (0..6).for_each(|index| _ = read(&mut pool, index, index < 3, false));
    for (now, index) in (0u64..).zip([5u64, 4, 2, 1]) {
        let frame = pool.find(page(index)).expect("buffered");
        pool.set_dirty(frame, &write, now);
    }
    assert_eq!(
        pool.next_replacement(1, |_| true),
        None,
        "page 0 leaves next and is clean"
    );
    let mut replaced = Vec::new();
    let mut ages = Vec::new();
    while let Some(frame) = pool.next_replacement(6, |_| true) {
        replaced.push(pool.page(frame).expect("filled").index);
        pool.set_busy(frame, true);
    }
    assert_eq!(
        pool.oldest_dirty(u32::MAX, |_| true),
        None,
        "all are on their way"
    );
    (0..6).for_each(|id| pool.set_busy(FrameId(id), false));
    while let Some((frame, since)) = pool.oldest_dirty(u32::MAX, |_| true) {
        ages.push((pool.page(frame).expect("filled").index, since));
        pool.set_clean(frame);
    }
    assert_eq!(replaced, [1, 2, 4, 5]);
    assert_eq!(ages, [(5, 0), (4, 1), (2, 2), (1, 3)]);
    assert_eq!(pool.dirty(), 0);
}

#[test]
fn a_dirty_frame_keeps_its_age_and_time_does_not_fall() {
    let mut pool = Pool::new(3);
    (0..3).for_each(|index| _ = read(&mut pool, index, false, false));
    let frame = |pool: &Pool, index| pool.find(page(index)).expect("buffered");
    for (index, now) in [(0, 5), (1, 7), (0, 9), (2, 3)] {
        let frame = frame(&pool, index);
        pool.set_dirty(frame, &HintSet::UNKNOWN, now);
        pool.assert_invariants();
    }
    assert_eq!(pool.victim(), None, "all are dirty");
    assert_eq!(
        pool.oldest_dirty(u32::MAX, |_| true),
        Some((frame(&pool, 0), 5))
    );
    // Cleaned and written again it is the youngest; removed it is none.
    let first = frame(&pool, 0);
    pool.set_clean(first);
    assert_eq!(pool.victim().map(|v| v.frame), Some(first));
    pool.set_dirty(first, &HintSet::UNKNOWN, 9);
    let second = frame(&pool, 1);
    pool.remove(second);
    assert_eq!(
        pool.oldest_dirty(u32::MAX, |_| true),
        Some((frame(&pool, 2), 7))
    );
    pool.assert_invariants();
}

#[test]
fn the_hand_clears_bits_even_of_frames_that_stay() {
    let mut clock = Clock::new(3);
    (0..3).for_each(|id| clock.on_fill(FrameId(id), false, false));
    clock.on_touch(FrameId(0));
    assert_eq!(tail(&clock, 3), frames(&[1, 2, 0]));
    assert_eq!(tail(&clock, 1), frames(&[0]), "one frame ahead of the hand");
    assert_eq!(clock.victim(&|frame| frame == FrameId(2)), Some(FrameId(2)));
    // The hand passed 0 (bit cleared) and 1 (may not leave), and stands at 0 again.
    assert_eq!(tail(&clock, 3), frames(&[0, 1, 2]));
    assert_eq!(clock.victim(&|_| false), None);
}

/// Hot pages read on demand beside a scan: `(page, part of a scan)`. splitmix64, no library.
fn stream() -> Vec<(u64, bool)> {
    let mut state = 42u64;
    let mut next = move || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = state;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    };
    let request = |i: u64| match next() {
        // 30 %: a scan that never comes back; 20 %: a loop; the rest is hot.
        draw if draw % 10 < 3 => (100_000 + i, true),
        draw if draw % 10 < 5 => (10_000 + i % 300, false),
        draw => (draw / 16 % 200, false),
    };
    (0..20_000).map(request).collect()
}

/// Hits, and the device time of the misses in µs: odd pages are on flash.
fn run(policy: &str, midpoint: bool) -> (usize, usize) {
    let mut pool = pool_of(policy, 128, &costs(100, 5_000));
    let (mut hits, mut micros) = (0, 0);
    for (index, scan) in stream() {
        let on_flash = index % 2 == 1;
        match read(&mut pool, index, on_flash, scan && midpoint) {
            true => hits += 1,
            false => micros += if on_flash { 100 } else { 5_000 },
        }
    }
    pool.assert_invariants();
    (hits, micros)
}

#[test]
fn golden_hits() {
    let found: BTreeMap<&str, (usize, usize)> = pool::NAMES
        .iter()
        .map(|name| (*name, run(name, true)))
        .collect();
    let golden = [
        ("clock", (3_283, 42_625_900)),
        ("gd2l", (3_895, 32_980_300)),
        ("lru", (3_828, 41_258_200)),
    ];
    assert_eq!(found, BTreeMap::from(golden));
    let without = run("lru", false);
    assert!(without.0 < found["lru"].0, "the midpoint resists the scan");
    assert!(found["gd2l"].1 < found["lru"].1, "GD2L saves time");
}

#[test]
fn policies_by_name() {
    for name in pool::NAMES {
        let policy = pool::build(name, 100, &Costs::default()).expect("known");
        assert_eq!(policy.name(), *name);
        assert!(
            (100..=1_800).contains(&policy.bytes()),
            "{name}: {}",
            policy.bytes()
        );
    }
    assert!(pool::build("none", 1, &Costs::default()).is_none());
    let pool = Pool::new(100);
    assert_eq!(pool.policy().name(), "lru");
    assert_eq!(
        pool.bytes(),
        100 * (116 + 9),
        "116 bytes a frame and LRU's 9"
    );
}
