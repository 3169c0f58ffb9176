//! LRU-2, 2Q, ARC, MQ and TQ against the plainest code there is for each, on random streams with
//! trims: hit for hit the same.

use proptest::prelude::*;
use thermocline_core::policy::{
    self, Access, Decision, Lru2, Mq, Op, Opportunity, PolicyOptions, Refusal, Removal, TierPolicy,
};
use thermocline_core::tier::SlotTable;
use thermocline_core::{BlockId, HintSet, ObjectId, PageId, RequestType, SlotId, hint_type};

#[derive(Clone, Copy, Debug)]
enum Step {
    Request(u64, RequestType),
    Trim(u64),
}

/// What a step did: whether the page was there.
trait Plain {
    fn request(&mut self, page: u64, request: RequestType) -> bool;
    /// The page is gone if it was there; what is remembered of it otherwise stays.
    fn trim(&mut self, page: u64) -> bool;
}

fn take<T>(list: &mut Vec<T>, of_page: impl Fn(&T) -> bool) -> Option<T> {
    let at = list.iter().position(of_page)?;
    Some(list.remove(at))
}

fn take_page(list: &mut Vec<u64>, page: u64) -> bool {
    take(list, |p| *p == page).is_some()
}

/// FAST 2003, figure 4, with a real step; lists are oldest first.
#[derive(Default)]
struct PlainArc {
    c: usize,
    p: f64,
    t1: Vec<u64>,
    t2: Vec<u64>,
    b1: Vec<u64>,
    b2: Vec<u64>,
}

impl PlainArc {
    fn replace(&mut self, in_b2: bool) {
        if self.t1.len() + self.t2.len() < self.c {
            return;
        }
        let size = self.t1.len() as f64;
        let above = size > self.p || (in_b2 && size == self.p);
        if !self.t1.is_empty() && (above || self.t2.is_empty()) {
            self.b1.push(self.t1.remove(0));
        } else {
            self.b2.push(self.t2.remove(0));
        }
    }

    fn case_iv(&mut self) {
        let total = self.t1.len() + self.t2.len() + self.b1.len() + self.b2.len();
        if self.t1.len() + self.b1.len() == self.c {
            if self.t1.len() < self.c {
                self.b1.remove(0);
                self.replace(false);
            } else {
                self.t1.remove(0);
            }
        } else if total >= self.c {
            if total == 2 * self.c {
                self.b2.remove(0);
            }
            self.replace(false);
        }
    }
}

impl Plain for PlainArc {
    fn request(&mut self, page: u64, _request: RequestType) -> bool {
        if take_page(&mut self.t1, page) || take_page(&mut self.t2, page) {
            self.t2.push(page);
            return true;
        }
        let (one, two) = (self.b1.len() as f64, self.b2.len() as f64);
        if self.b1.contains(&page) {
            self.p = (self.p + (two / one).max(1.0)).min(self.c as f64);
            self.replace(false);
            take_page(&mut self.b1, page);
            self.t2.push(page);
        } else if self.b2.contains(&page) {
            self.p = (self.p - (one / two).max(1.0)).max(0.0);
            self.replace(true);
            take_page(&mut self.b2, page);
            self.t2.push(page);
        } else {
            self.case_iv();
            self.t1.push(page);
        }
        false
    }

    fn trim(&mut self, page: u64) -> bool {
        take_page(&mut self.t1, page) || take_page(&mut self.t2, page)
    }
}

/// VLDB 1994, §3.2; lists are oldest first.
#[derive(Default)]
struct PlainTwoQ {
    c: usize,
    a1in: Vec<u64>,
    a1out: Vec<u64>,
    am: Vec<u64>,
}

impl PlainTwoQ {
    fn reclaim(&mut self) {
        if self.a1in.len() + self.am.len() < self.c {
            return;
        }
        if self.a1in.len() > self.c / 4 || self.am.is_empty() {
            self.a1out.push(self.a1in.remove(0));
            if self.a1out.len() > self.c / 2 {
                self.a1out.remove(0);
            }
        } else {
            self.am.remove(0);
        }
    }
}

impl Plain for PlainTwoQ {
    fn request(&mut self, page: u64, _request: RequestType) -> bool {
        if take_page(&mut self.am, page) {
            self.am.push(page);
            return true;
        }
        if self.a1in.contains(&page) {
            return true;
        }
        let back = take_page(&mut self.a1out, page);
        self.reclaim();
        match back {
            true => self.am.push(page),
            false => self.a1in.push(page),
        }
        false
    }

    fn trim(&mut self, page: u64) -> bool {
        take_page(&mut self.a1in, page) || take_page(&mut self.am, page)
    }
}

#[derive(Clone, Copy)]
struct Counted {
    page: u64,
    requests: u32,
    expires: u64,
}

/// USENIX 2001, §4; queues are oldest first.
#[derive(Default)]
struct PlainMq {
    c: usize,
    lifetime: u64,
    now: u64,
    queues: [Vec<Counted>; 8],
    out: Vec<Counted>,
}

impl PlainMq {
    fn adjust(&mut self) {
        for k in 1..8 {
            if self.queues[k].first().is_some_and(|e| e.expires < self.now) {
                let mut entry = self.queues[k].remove(0);
                entry.expires = self.now + self.lifetime;
                self.queues[k - 1].push(entry);
            }
        }
    }

    fn take(&mut self, page: u64) -> Option<Counted> {
        self.queues
            .iter_mut()
            .find_map(|queue| take(queue, |e| e.page == page))
    }

    fn evict(&mut self) {
        if self.queues.iter().map(Vec::len).sum::<usize>() == self.c {
            let lowest = self.queues.iter_mut().find(|queue| !queue.is_empty());
            self.out.extend(lowest.map(|queue| queue.remove(0)));
        }
        if self.out.len() > 4 * self.c {
            self.out.remove(0);
        }
    }
}

impl Plain for PlainMq {
    fn request(&mut self, page: u64, _request: RequestType) -> bool {
        self.now += 1;
        self.adjust();
        let there = self.take(page);
        let known = there.or_else(|| take(&mut self.out, |e| e.page == page));
        if there.is_none() {
            self.evict();
        }
        let requests = known.map_or(1, |e| e.requests + 1);
        let expires = self.now + self.lifetime;
        self.queues[requests.ilog2().min(7) as usize].push(Counted {
            page,
            requests,
            expires,
        });
        there.is_some()
    }

    fn trim(&mut self, page: u64) -> bool {
        self.take(page).is_some()
    }
}

/// SIGMOD 1993, §2: `(page, last request, the one before or 0)`.
#[derive(Default)]
struct PlainLru2 {
    c: usize,
    history: usize,
    now: u64,
    pages: Vec<(u64, u64, u64)>,
    out: Vec<(u64, u64)>,
}

impl Plain for PlainLru2 {
    fn request(&mut self, page: u64, _request: RequestType) -> bool {
        self.now += 1;
        if let Some((_, last, _)) = take(&mut self.pages, |e| e.0 == page) {
            self.pages.push((page, self.now, last));
            return true;
        }
        let before = take(&mut self.out, |e| e.0 == page).map_or(0, |e| e.1);
        if self.pages.len() == self.c {
            let victim = self.pages.iter().copied().min_by_key(|e| (e.2, e.1));
            let victim = victim.expect("the cache has slots");
            take(&mut self.pages, |e| e.0 == victim.0);
            self.out.push((victim.0, victim.1));
        }
        if self.out.len() > self.history {
            self.out.remove(0);
        }
        self.pages.push((page, self.now, before));
        false
    }

    fn trim(&mut self, page: u64) -> bool {
        take(&mut self.pages, |e| e.0 == page).is_some()
    }
}

/// Thesis §3.4: low and high priority, oldest first.
#[derive(Default)]
struct PlainTq {
    c: usize,
    low: Vec<u64>,
    high: Vec<u64>,
}

impl Plain for PlainTq {
    fn request(&mut self, page: u64, request: RequestType) -> bool {
        let there = self.trim(page);
        if self.low.len() + self.high.len() == self.c {
            match self.low.is_empty() {
                true => self.high.remove(0),
                false => self.low.remove(0),
            };
        }
        match request {
            RequestType::ReplacementWrite | RequestType::SynchronousWrite => self.high.push(page),
            _ => self.low.push(page),
        }
        there
    }

    fn trim(&mut self, page: u64) -> bool {
        take_page(&mut self.low, page) || take_page(&mut self.high, page)
    }
}

fn page_id(page: u64) -> PageId {
    PageId::new(ObjectId(1), page)
}

fn access(page: u64, request: RequestType) -> Access {
    Access {
        page: page_id(page),
        op: match request {
            RequestType::Read | RequestType::SequentialRead | RequestType::Unknown => Op::Read,
            _ => Op::Write,
        },
        hints: HintSet::UNKNOWN.with(hint_type::REQUEST, request.value()),
        number: 0,
    }
}

/// One request as the tier makes it; true when the page was there.
fn request(policy: &mut dyn TierPolicy, slots: &mut SlotTable, access: &Access) -> bool {
    let resident = slots.find(access.page);
    policy.on_request(access, resident);
    if resident.is_some() {
        return true;
    }
    let why = match access.op {
        Op::Read => Opportunity::Read,
        Op::Write => Opportunity::Write,
    };
    match policy.decide(access, why, slots) {
        Decision::Admit => {}
        Decision::Replace(victim) => {
            let page = slots.remove(victim);
            policy.on_remove(page, victim, Removal::Evicted);
        }
        Decision::Refuse(why) => panic!("refused: {why:?}"),
    }
    let slot = slots.admit(access.page).expect("room was made");
    policy.on_admit(access, slot);
    false
}

/// Runs both; the answers of every step must agree.
fn compare(policy: &mut dyn TierPolicy, plain: &mut dyn Plain, capacity: u32, steps: &[Step]) {
    let mut slots = SlotTable::new(capacity);
    for (number, step) in steps.iter().enumerate() {
        let (there, expected) = match *step {
            Step::Request(page, hint) => (
                request(policy, &mut slots, &access(page, hint)),
                plain.request(page, hint),
            ),
            Step::Trim(page) => {
                let slot = slots.find(page_id(page));
                if let Some(slot) = slot {
                    slots.remove(slot);
                    policy.on_remove(page_id(page), slot, Removal::Trimmed);
                }
                (slot.is_some(), plain.trim(page))
            }
        };
        assert_eq!(there, expected, "step {number}: {step:?}");
        policy.assert_invariants(&slots);
    }
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let request = prop::sample::select(RequestType::ALL);
    // Half of the requests go to few pages, so that pages come back soon and late.
    let page = prop_oneof![0u64..8, 0u64..40];
    let step =
        (page, request, prop::bool::weighted(0.03)).prop_map(|(page, request, trim)| match trim {
            true => Step::Trim(page),
            false => Step::Request(page, request),
        });
    prop::collection::vec(step, 1..600)
}

fn built(name: &str, capacity: u32) -> Box<dyn TierPolicy> {
    policy::build(name, &PolicyOptions::new(capacity)).expect("a known policy")
}

proptest! {
    #[test]
    fn arc_equals_plain_arc(capacity in 1u32..20, steps in steps()) {
        let c = capacity as usize;
        let mut plain = PlainArc { c, ..PlainArc::default() };
        compare(&mut *built("arc", capacity), &mut plain, capacity, &steps);
    }

    #[test]
    fn two_q_equals_plain_two_q(capacity in 1u32..20, steps in steps()) {
        let c = capacity as usize;
        let mut plain = PlainTwoQ { c, ..PlainTwoQ::default() };
        compare(&mut *built("2q", capacity), &mut plain, capacity, &steps);
    }

    #[test]
    fn mq_equals_plain_mq(capacity in 1u32..20, lifetime in 1u64..60, steps in steps()) {
        let c = capacity as usize;
        let mut plain = PlainMq { c, lifetime, ..PlainMq::default() };
        let mut mq = Mq::with_lifetime(&PolicyOptions::new(capacity), lifetime);
        compare(&mut mq, &mut plain, capacity, &steps);
    }

    #[test]
    fn lru2_equals_plain_lru2(capacity in 1u32..20, history in 0u32..40, steps in steps()) {
        let (c, kept) = (capacity as usize, history as usize);
        let mut plain = PlainLru2 { c, history: kept, ..PlainLru2::default() };
        let mut lru2 = Lru2::with_history(&PolicyOptions::new(capacity), history);
        compare(&mut lru2, &mut plain, capacity, &steps);
    }

    #[test]
    fn tq_equals_plain_tq(capacity in 1u32..20, steps in steps()) {
        let c = capacity as usize;
        let mut plain = PlainTq { c, ..PlainTq::default() };
        compare(&mut *built("tq", capacity), &mut plain, capacity, &steps);
    }
}

const RIVALS: [&str; 5] = ["lru2", "2q", "arc", "mq", "tq"];

/// Pages that are being read stay; when all are, the newcomer is refused and nothing has changed.
#[test]
fn pinned_pages_are_passed_over() {
    for name in RIVALS {
        let mut policy = built(name, 4);
        let mut slots = SlotTable::new(4);
        // Two of the four are requested twice: both lists of every rival have pages.
        for page in [0, 1, 2, 3, 0, 1] {
            request(
                &mut *policy,
                &mut slots,
                &access(page, RequestType::SynchronousWrite),
            );
        }
        for slot in (0..4).map(SlotId) {
            slots.start_write(slot);
            slots.end_write(slot, slots.generation(slot), Some(BlockId(slot.0)));
            slots.pin(slot);
        }
        let newcomer = access(9, RequestType::Read);
        let mut decide = |slots: &SlotTable| policy.decide(&newcomer, Opportunity::Read, slots);
        assert_eq!(decide(&slots), Decision::Refuse(Refusal::Pinned), "{name}");
        for free in (0..4).map(SlotId) {
            slots.unpin(free);
            assert_eq!(decide(&slots), Decision::Replace(free), "{name}");
            slots.pin(free);
        }
        policy.assert_invariants(&slots);
    }
}

/// Only what was evicted is remembered: a page that was dropped comes back as a stranger.
#[test]
fn only_evictions_are_remembered() {
    for (why, target) in [(Removal::Evicted, 1.0), (Removal::Stale, 0.0)] {
        let mut arc = policy::Arc::new(&PolicyOptions::new(2));
        let mut slots = SlotTable::new(2);
        request(&mut arc, &mut slots, &access(7, RequestType::Read));
        let slot = slots.find(page_id(7)).expect("just admitted");
        slots.remove(slot);
        arc.on_remove(page_id(7), slot, why);
        request(&mut arc, &mut slots, &access(7, RequestType::Read));
        assert_eq!(arc.target(), target, "{why:?}");
    }
}
