//! Requests per second that each policy takes, with the slot table around it and no I/O.
//!
//! `cargo bench -p thermocline-core`. Streams: `zipf`, a million pages, the n-th of them asked for
//! with probability about 1/n, a tenth on flash; `mixed`, of ten requests five to 65,536 hot pages
//! (Zipf as well), three in a loop of 150,000 pages, two in a scan, 100,000 slots; and, when
//! `THERMOCLINE_BENCH_PAGES` names a file of page numbers (64-bit little-endian words), those, a
//! tenth of the distinct ones on flash. Every request is a read with one of 16 hint sets that
//! follow from its page number.
//!
//! First the whole stream goes through an empty tier; the table at the end is about that pass:
//! requests per second, as a ratio to LRU's, miss ratio, and what the policy holds. The samples go
//! on from there, in a full tier. Time is CPU time of this thread where the system tells it
//! (Linux), so that other work on the machine changes little.

#![allow(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::disallowed_macros,
    reason = "the decisions are pure; measuring them takes a clock, a file and a terminal"
)]

use std::cell::RefCell;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use thermocline_core::policy::{
    self, Access, Decision, Op, Opportunity, PolicyOptions, Removal, TierPolicy,
};
use thermocline_core::tier::SlotTable;
use thermocline_core::{HintSet, ObjectId, PageId, hash, hint_type};

/// Requests per iteration.
const CHUNK: usize = 20_000;
/// CPU nanoseconds of this thread so far, then two other numbers.
const SCHEDSTAT: &str = "/proc/thread-self/schedstat";

/// Time that `work` takes: of the CPU, or by the clock where CPU time cannot be had.
fn timed(work: impl FnOnce()) -> Duration {
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

struct Stream {
    name: &'static str,
    pages: Vec<u64>,
    capacity: u32,
}

/// A number in `1..=most`, n with probability log(1 + 1/n) / log(most + 1): about 1/n.
fn zipf(draw: u64, most: u64) -> u64 {
    let uniform = (draw >> 11) as f64 / (1u64 << 53) as f64;
    (((most + 1) as f64).powf(uniform) as u64).clamp(1, most)
}

fn zipf_stream() -> Stream {
    let rank = |i| zipf(hash::mix(1, i), 1 << 20);
    // An odd factor scatters the ranks over the pages, each to its own.
    let scattered = |i| (rank(i) * 0x9E37_79B1) & ((1 << 20) - 1);
    Stream {
        name: "zipf",
        pages: (0..2_000_000).map(scattered).collect(),
        capacity: (1 << 20) / 10,
    }
}

fn mixed_stream() -> Stream {
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

fn file_stream() -> Option<Stream> {
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
struct Tier<'a> {
    stream: &'a Stream,
    policy: Box<dyn TierPolicy>,
    slots: SlotTable,
    hints: [HintSet; 16],
    requests: u64,
    misses: u64,
}

impl<'a> Tier<'a> {
    fn new(name: &str, stream: &'a Stream) -> Self {
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

    fn run(&mut self, requests: usize) {
        for _ in 0..requests {
            let index = self.stream.pages[self.requests as usize % self.stream.pages.len()];
            self.requests += 1;
            let access = Access {
                page: PageId::new(ObjectId(1), index),
                op: Op::Read,
                hints: self.hints[index as usize % 16],
                number: self.requests,
            };
            self.request(&access);
        }
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

/// What is printed about one policy.
struct Row {
    name: &'static str,
    seconds_per_request: f64,
    miss_ratio: f64,
    bytes_per_slot: f64,
}

fn first_pass<'a>(name: &'static str, stream: &'a Stream) -> (Tier<'a>, Row) {
    let mut tier = Tier::new(name, stream);
    let taken = timed(|| tier.run(stream.pages.len()));
    let requests = tier.requests as f64;
    let row = Row {
        name,
        seconds_per_request: taken.as_secs_f64() / requests,
        miss_ratio: tier.misses as f64 / requests,
        bytes_per_slot: tier.policy.bytes() as f64 / f64::from(stream.capacity),
    };
    (tier, row)
}

fn measure(criterion: &mut Criterion, stream: &Stream) -> Vec<Row> {
    let mut group = criterion.benchmark_group(stream.name);
    group.throughput(Throughput::Elements(CHUNK as u64));
    let mut rows = Vec::new();
    for name in policy::NAMES {
        let first = RefCell::new(None);
        group.bench_function(BenchmarkId::from_parameter(name), |bencher| {
            let mut first = first.borrow_mut();
            let (tier, _) = first.get_or_insert_with(|| first_pass(name, stream));
            bencher
                .iter_custom(|iterations| timed(|| (0..iterations).for_each(|_| tier.run(CHUNK))));
        });
        // A policy that the command line left out has no pass.
        rows.extend(first.into_inner().map(|(_, row)| row));
    }
    group.finish();
    rows
}

fn print(stream: &Stream, rows: &[Row]) {
    let lru = rows.iter().find(|row| row.name == "lru");
    println!("\n{}, {} slots", stream.name, stream.capacity);
    println!("policy           M requests/s   of LRU's   misses   policy bytes/slot");
    for row in rows {
        println!(
            "{:<16} {:>12.2} {:>10.2} {:>7.1}% {:>19.1}",
            row.name,
            1e-6 / row.seconds_per_request,
            lru.map_or(f64::NAN, |lru| lru.seconds_per_request) / row.seconds_per_request,
            100.0 * row.miss_ratio,
            row.bytes_per_slot,
        );
    }
    println!();
}

fn policies(criterion: &mut Criterion) {
    let streams = [Some(zipf_stream()), Some(mixed_stream()), file_stream()];
    for stream in streams.iter().flatten() {
        let rows = measure(criterion, stream);
        if !rows.is_empty() {
            print(stream, &rows);
        }
    }
}

criterion_group! {
    name = benches;
    config = Criterion::default()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(1));
    targets = policies
}
criterion_main!(benches);
