//! What recording costs a request, and what the writer thread costs per record.
//!
//! `cargo bench -p thermocline-trace`. The queue is large enough that nothing is dropped while a
//! sample runs, except in the last group, which measures exactly the full queue.

use std::hint::black_box;
use std::path::PathBuf;
use std::sync::Barrier;
use std::time::{Duration, Instant};

use criterion::{Criterion, criterion_group, criterion_main};
use thermocline_core::{FileKind, HintSet, ObjectId, RequestType, Role, hint_type};
use thermocline_trace::{Op, Recorder, RecorderOptions, Served, TraceRecord};

fn record(number: u64) -> TraceRecord {
    let hints = HintSet::UNKNOWN
        .with(hint_type::FILE_KIND, FileKind::Relation.value())
        .with(hint_type::REQUEST, RequestType::Read.value())
        .with(hint_type::ROLE, Role::Backend.value());
    let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    TraceRecord {
        time_ns: number * 1000,
        client: (mixed >> 60) as u32,
        op: Op::Read,
        served: if mixed.is_multiple_of(3) {
            Served::Base
        } else {
            Served::Flash
        },
        object: ObjectId((mixed >> 40) as u32 % 20),
        offset: (mixed % 1_000_000) * 8192,
        length: 8192,
        latency_ns: 80_000 + mixed % 40_000,
        hints,
    }
}

fn start(directory: &tempfile::TempDir, queue_records: usize) -> (PathBuf, Recorder) {
    let path = directory.path().join("bench.parquet");
    let options = RecorderOptions {
        queue_records,
        overwrite: true,
        ..RecorderOptions::default()
    };
    let recorder = Recorder::create(&path, options).expect("create");
    (path, recorder)
}

/// Time of `count` calls of `record`, spread over `threads`, without creation and finishing.
fn calls(threads: u64, count: u64) -> Duration {
    let directory = tempfile::tempdir().expect("directory");
    let mut total = Duration::ZERO;
    let mut left = count;
    while left > 0 {
        let now = left.min(1 << 18);
        left -= now;
        let (_, recorder) = start(&directory, 1 << 20);
        let each = now.div_ceil(threads);
        let barrier = Barrier::new(threads as usize);
        let times: Vec<Duration> = std::thread::scope(|scope| {
            let spawn = |thread: u64| {
                let (recorder, barrier) = (recorder.clone(), &barrier);
                scope.spawn(move || {
                    barrier.wait();
                    let begin = Instant::now();
                    for number in thread * each..(thread + 1) * each {
                        recorder.record(black_box(record(number)));
                    }
                    begin.elapsed()
                })
            };
            let running: Vec<_> = (0..threads).map(spawn).collect();
            running
                .into_iter()
                .map(|thread| thread.join().expect("thread"))
                .collect()
        });
        assert_eq!(
            recorder.dropped(),
            0,
            "the queue was meant to hold everything"
        );
        total += times.into_iter().max().unwrap_or_default();
        recorder.finish().expect("finish");
    }
    total
}

/// Time from the first record to the closed file.
fn whole(count: u64) -> Duration {
    let directory = tempfile::tempdir().expect("directory");
    let (path, recorder) = start(&directory, 1 << 16);
    let begin = Instant::now();
    for number in 0..count {
        recorder.record(record(number));
        if number % 4096 == 0 {
            std::thread::yield_now();
        }
    }
    let summary = recorder.finish().expect("finish");
    let elapsed = begin.elapsed();
    if count > 100_000 {
        let per_row = summary.bytes as f64 / summary.written as f64;
        println!(
            "{per_row:.1} B per row, {} of {count} dropped",
            summary.dropped
        );
    }
    assert!(path.exists());
    elapsed
}

fn bench(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("record");
    group
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(3));
    group.bench_function("build only", |b| {
        let mut number = 0;
        b.iter(|| {
            number += 1;
            black_box(record(number))
        });
    });
    for threads in [1, 2, 8] {
        let name = format!("{threads} threads");
        group.bench_function(name, |b| b.iter_custom(|count| calls(threads, count)));
    }
    group.bench_function("queue full", |b| {
        let directory = tempfile::tempdir().expect("directory");
        let (_, recorder) = start(&directory, 64);
        b.iter(|| recorder.record(black_box(record(1))));
    });
    group.bench_function("to the closed file", |b| b.iter_custom(whole));
    group.finish();
}

criterion_group!(benches, bench);
criterion_main!(benches);
