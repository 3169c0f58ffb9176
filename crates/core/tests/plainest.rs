//! LIRS, S3-FIFO, SIEVE and W-TinyLFU counted again by the plainest code there is: every queue a
//! vector, every search a scan, straight from the papers.

use proptest::prelude::*;
use thermocline_core::policy::{self, Access, Decision, Op, Opportunity, PolicyOptions, Removal};
use thermocline_core::sketch::Sketch;
use thermocline_core::tier::SlotTable;
use thermocline_core::{HintSet, ObjectId, PageId, hash};

/// Which requests of `stream` hit, with the policy called `name`.
fn hits(name: &str, capacity: u32, stream: &[u64]) -> Vec<bool> {
    let mut policy = policy::build(name, &PolicyOptions::new(capacity)).expect("a known policy");
    let mut slots = SlotTable::new(capacity);
    let mut hits = Vec::new();
    for (at, &index) in stream.iter().enumerate() {
        let page = PageId::new(ObjectId(1), index);
        let access = Access {
            page,
            op: Op::Read,
            hints: HintSet::UNKNOWN,
            number: at as u64 + 1,
        };
        let resident = slots.find(page);
        policy.on_request(&access, resident);
        hits.push(resident.is_some());
        if resident.is_some() {
            continue;
        }
        match policy.decide(&access, Opportunity::Read, &slots) {
            Decision::Admit => {}
            Decision::Replace(victim) => {
                let left = slots.remove(victim);
                policy.on_remove(left, victim, Removal::Evicted);
            }
            Decision::Refuse(reason) => panic!("nothing is pinned: {reason:?}"),
        }
        let slot = slots.admit(page).expect("room was made");
        policy.on_admit(&access, slot);
        policy.assert_invariants(&slots);
    }
    hits
}

/// Hot pages, a loop and strangers, in proportions that vary.
fn streams() -> impl Strategy<Value = Vec<u64>> {
    let hot = (0u64..6).boxed();
    let warm = (0u64..30).boxed();
    let any = (0u64..200).boxed();
    let piece = prop_oneof![
        4 => prop::collection::vec(hot, 1..12),
        4 => prop::collection::vec(warm, 1..20),
        1 => prop::collection::vec(any, 1..20),
        1 => (0u64..100, 1u64..25, 1usize..3).prop_map(|(first, len, times)| {
            (0..times).flat_map(|_| first..first + len).collect()
        }),
    ];
    prop::collection::vec(piece, 1..40).prop_map(|pieces| pieces.concat())
}

/// NSDI 2024, Algorithm 1. Index 0 is the tail.
fn sieve(capacity: usize, stream: &[u64]) -> Vec<bool> {
    let mut queue: Vec<(u64, bool)> = Vec::new();
    let mut hand = 0;
    let mut hits = Vec::new();
    for &page in stream {
        let found = queue.iter_mut().find(|e| e.0 == page);
        hits.push(found.is_some());
        if let Some(entry) = found {
            entry.1 = true;
            continue;
        }
        if queue.len() == capacity {
            while queue[hand].1 {
                queue[hand].1 = false;
                hand = (hand + 1) % queue.len();
            }
            queue.remove(hand);
            // A hand beyond the head starts at the tail, even when a newcomer stands there now.
            if hand == queue.len() {
                hand = 0;
            }
        }
        queue.push((page, false));
    }
    hits
}

/// SOSP 2023, Algorithm 1. Index 0 is the tail.
fn s3_fifo(capacity: usize, stream: &[u64]) -> Vec<bool> {
    let (mut small, mut main) = (Vec::<(u64, u8)>::new(), Vec::<(u64, u8)>::new());
    let mut ghosts: Vec<u64> = Vec::new();
    let mut hits = Vec::new();
    for &page in stream {
        let found = small.iter_mut().chain(&mut main).find(|e| e.0 == page);
        hits.push(found.is_some());
        if let Some(entry) = found {
            entry.1 = (entry.1 + 1).min(3);
            continue;
        }
        let was_ghost = ghosts.contains(&page);
        ghosts.retain(|g| *g != page);
        while small.len() + main.len() == capacity {
            if main.len() > capacity - capacity / 10 || small.is_empty() {
                let (page, count) = main.remove(0);
                if count > 0 {
                    main.push((page, count - 1));
                }
                continue;
            }
            // S goes on until one page has left it for good.
            while let Some((page, count)) = (!small.is_empty()).then(|| small.remove(0)) {
                if count <= 1 {
                    ghosts.push(page);
                    break;
                }
                main.push((page, 0));
            }
        }
        if ghosts.len() > capacity * 9 / 10 {
            ghosts.remove(0);
        }
        match was_ghost {
            true => main.push((page, 0)),
            false => small.push((page, 0)),
        }
    }
    hits
}

/// TOS 2017, with the sketch of the product. Index 0 is the least recent.
fn w_tiny_lfu(capacity: usize, stream: &[u64]) -> Vec<bool> {
    let [mut window, mut probation, mut protected] = [const { Vec::<u64>::new() }; 3];
    let mut sketch = Sketch::new(capacity as u32);
    let seed = PolicyOptions::new(1).seed;
    let hash = |page| hash::mix(seed, hash::of_page(PageId::new(ObjectId(1), page)));
    let window_max = (capacity / 100).max(1);
    let protected_max = (capacity - window_max) * 4 / 5;
    let mut hits = Vec::new();
    for &page in stream {
        let lists = [&mut window, &mut probation, &mut protected];
        let found = lists.map(|list| {
            let at = list.iter().position(|p| *p == page);
            at.map(|at| list.remove(at)).is_some()
        });
        hits.push(found.contains(&true));
        if found[0] {
            window.push(page);
            continue;
        }
        sketch.add(hash(page));
        if found[1] || found[2] {
            protected.push(page);
            if protected.len() > protected_max {
                probation.push(protected.remove(0));
            }
            continue;
        }
        window.push(page);
        if window.len() > window_max {
            probation.push(window.remove(0));
        }
        if window.len() + probation.len() + protected.len() > capacity {
            // The page that just left the window against the oldest of the main part.
            let candidate = probation.pop().expect("it just came");
            let main = if probation.is_empty() {
                &mut protected
            } else {
                &mut probation
            };
            let wins = |main: u64| sketch.count(hash(candidate)) > sketch.count(hash(main));
            if main.first().is_some_and(|main| wins(*main)) {
                main.remove(0);
                probation.push(candidate);
            }
        }
    }
    hits
}

/// SIGMETRICS 2002, §3, with the bounds of the product. Index 0 is the bottom of S, the front of Q
/// and the first to have departed.
#[derive(Default)]
struct Lirs {
    stack: Vec<u64>,
    queue: Vec<u64>,
    lir: Vec<u64>,
    departed: Vec<u64>,
}

impl Lirs {
    fn prune(&mut self) {
        while self.stack.first().is_some_and(|p| !self.lir.contains(p)) {
            let page = self.stack.remove(0);
            self.departed.retain(|p| *p != page);
        }
    }

    /// Takes `page` to the top of S; true when it was in S.
    fn lift(&mut self, page: u64) -> bool {
        let was_in = self.stack.contains(&page);
        self.stack.retain(|p| *p != page);
        self.stack.push(page);
        was_in
    }

    fn make_lir(&mut self, page: u64, lir_max: usize) {
        self.lir.push(page);
        self.prune();
        if self.lir.len() > lir_max {
            let lowest = self.stack.remove(0);
            self.lir.retain(|p| *p != lowest);
            self.queue.push(lowest);
        }
        self.prune();
    }

    fn evict(&mut self, capacity: usize) {
        let victim = self.queue.remove(0);
        if self.stack.contains(&victim) {
            if self.departed.len() == capacity {
                let longest = self.departed.remove(0);
                self.stack.retain(|p| *p != longest);
            }
            self.departed.push(victim);
        }
    }

    fn request(&mut self, page: u64, capacity: usize) -> bool {
        let lir_max = capacity - (capacity / 100).max(1);
        let was_lir = self.lir.contains(&page);
        let hit = was_lir || self.queue.contains(&page);
        if !hit && self.lir.len() + self.queue.len() == capacity {
            self.evict(capacity);
        }
        let was_in_stack = self.lift(page);
        self.departed.retain(|p| *p != page);
        self.queue.retain(|p| *p != page);
        let room = !hit && self.lir.len() < lir_max;
        if lir_max > 0 && !was_lir && (was_in_stack || room) {
            self.make_lir(page, lir_max);
        } else if !was_lir {
            self.queue.push(page);
        }
        self.prune();
        hit
    }
}

fn lirs(capacity: usize, stream: &[u64]) -> Vec<bool> {
    let mut lirs = Lirs::default();
    let requests = stream.iter();
    requests.map(|page| lirs.request(*page, capacity)).collect()
}

proptest! {
    #[test]
    fn lirs_equals_the_plainest_code(
        capacity in prop_oneof![1usize..=20, 200usize..=320],
        stream in streams(),
    ) {
        prop_assert_eq!(hits("lirs", capacity as u32, &stream), lirs(capacity, &stream));
    }

    #[test]
    fn w_tiny_lfu_equals_the_plainest_code(
        capacity in prop_oneof![1usize..=20, 200usize..=320],
        stream in streams(),
    ) {
        prop_assert_eq!(hits("w-tinylfu", capacity as u32, &stream), w_tiny_lfu(capacity, &stream));
    }

    #[test]
    fn sieve_equals_the_plainest_code(capacity in 1usize..=20, stream in streams()) {
        prop_assert_eq!(hits("sieve", capacity as u32, &stream), sieve(capacity, &stream));
    }

    #[test]
    fn s3_fifo_equals_the_plainest_code(capacity in 1usize..=20, stream in streams()) {
        prop_assert_eq!(hits("s3-fifo", capacity as u32, &stream), s3_fifo(capacity, &stream));
    }
}
