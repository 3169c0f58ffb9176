//! Streams of requests, and a tier that takes them: what the benches of policies share.

use std::time::{Duration, Instant};
use thermocline_core::policy::{
    self, Access, Decision, Op, Opportunity, PolicyOptions, Removal, TierPolicy,
};
use thermocline_core::tier::SlotTable;
use thermocline_core::{HintSet, ObjectId, PageId, hash, hint_type};

/// CPU nanoseconds of this thread so far, then two other numbers.
const SCHEDSTAT: &str = "/proc/thread-self/schedstat";

/// Time that `work` takes: of the CPU, or by the clock where CPU time cannot be had.
pub(crate) fn timed(work: impl FnOnce()) -> Duration {
    let cpu_time = || {
        let text = std::fs::read_to_string(SCHEDSTAT).ok()?;
        let nanoseconds = text.split(' ').next()?.parse().ok()?;
        Some(Duration::from_nanos(nanoseconds))
    };
    let (cpu, clock) = (cpu_time(), Instant::now());
    work();
    let elapsed = clock.elapsed();
    match (cpu, cpu_time()) {
        (Some(before), Some(after)) => after - before,
        _ => elapsed,
    }
}

/// Page numbers in the order they are asked for.
pub(crate) struct Stream {
    /// What it is called.
    pub(crate) name: &'static str,
    /// Page numbers.
    pub(crate) pages: Vec<u64>,
    /// Slots of the tier that takes it.
    pub(crate) capacity: u32,
}

/// A number in `1..=most`, n with probability log(1 + 1/n) / log(most + 1): about 1/n.
fn zipf(draw: u64, most: u64) -> u64 {
    let uniform = (draw >> 11) as f64 / (1u64 << 53) as f64;
    (((most + 1) as f64).powf(uniform) as u64).clamp(1, most)
}

/// See the text of `policies.rs`.
pub(crate) fn zipf_stream() -> Stream {
    let rank = |i| zipf(hash::mix(1, i), 1 << 20);
    // An odd factor scatters the ranks over the pages, each to its own.
    let scattered = |i| (rank(i) * 0x9E37_79B1) & ((1 << 20) - 1);
    Stream {
        name: "zipf",
        pages: (0..2_000_000).map(scattered).collect(),
        capacity: (1 << 20) / 10,
    }
}

/// See the text of `policies.rs`.
pub(crate) fn mixed_stream() -> Stream {
    let page = |i: u64| {
        let draw = hash::mix(2, i);
        match draw % 10 {
            0..=4 => (zipf(hash::mix(3, i), 1 << 16) * 0x9E37_79B1) & ((1 << 16) - 1),
            5..=7 => (1 << 20) + i * 3 / 10 % 150_000,
            _ => (1 << 30) + i / 5,
        }
    };
    Stream {
        name: "mixed",
        pages: (0..2_000_000).map(page).collect(),
        capacity: 100_000,
    }
}

/// See the text of `policies.rs`.
pub(crate) fn file_stream() -> Option<Stream> {
    let path = std::env::var("THERMOCLINE_BENCH_PAGES").ok()?;
    let bytes = std::fs::read(&path).expect("THERMOCLINE_BENCH_PAGES names a file");
    let (words, _) = bytes.as_chunks::<8>();
    let pages: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
    assert!(!pages.is_empty(), "{path} holds page numbers");
    let mut distinct = pages.clone();
    distinct.sort_unstable();
    distinct.dedup();
    Some(Stream {
        name: "file",
        pages,
        capacity: (distinct.len() as u32 / 10).max(1),
    })
}

/// A tier in use.
pub(crate) struct Tier<'a> {
    stream: &'a Stream,
    /// The policy.
    pub(crate) policy: Box<dyn TierPolicy>,
    /// What is on flash.
    pub(crate) slots: SlotTable,
    hints: [HintSet; 16],
    /// Requests so far.
    pub(crate) requests: u64,
    /// Those of pages that were not on flash.
    pub(crate) misses: u64,
}

impl<'a> Tier<'a> {
    /// An empty tier under the policy `name`.
    pub(crate) fn new(name: &str, stream: &'a Stream) -> Self {
        let options = PolicyOptions::new(stream.capacity);
        let hints = std::array::from_fn(|i| {
            HintSet::UNKNOWN
                .with(hint_type::FILE_KIND, i as u32 % 4)
                .with(hint_type::PAGE_TYPE, i as u32 / 4)
        });
        Self {
            stream,
            policy: policy::build(name, &options).expect("a known policy"),
            slots: SlotTable::new(stream.capacity),
            hints,
            requests: 0,
            misses: 0,
        }
    }

    /// The next `requests` requests of the stream, which begins again at its end.
    pub(crate) fn run(&mut self, requests: usize) {
        for at in self.requests as usize..self.requests as usize + requests {
            self.read(self.stream.pages[at % self.stream.pages.len()]);
        }
    }

    /// Reads one page, given by number.
    pub(crate) fn read(&mut self, index: u64) {
        self.requests += 1;
        let access = Access {
            page: page(index),
            op: Op::Read,
            hints: self.hints[index as usize % 16],
            number: self.requests,
        };
        self.request(&access);
    }

    fn request(&mut self, access: &Access) {
        let resident = self.slots.find(access.page);
        self.policy.on_request(access, resident);
        if resident.is_some() {
            return;
        }
        self.misses += 1;
        let read = Opportunity::Read;
        match self.policy.decide(access, read, &self.slots) {
            Decision::Refuse(_) => return,
            Decision::Admit => {}
            Decision::Replace(victim) => {
                let left = self.slots.remove(victim);
                self.policy.on_remove(left, victim, Removal::Evicted);
            }
        }
        let slot = self.slots.admit(access.page).expect("there is room");
        self.policy.on_admit(access, slot);
    }
}

/// The page of a number.
pub(crate) fn page(index: u64) -> PageId {
    PageId::new(ObjectId(1), index)
}
