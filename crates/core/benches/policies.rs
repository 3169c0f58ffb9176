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

mod streams;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use std::cell::RefCell;
use std::time::Duration;
use streams::{Stream, Tier, file_stream, mixed_stream, timed, zipf_stream};
use thermocline_core::policy;

/// Requests per iteration.
const CHUNK: usize = 20_000;

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
