//! Whole simulations of a generated trace: totals that must not change unnoticed, and laws.

use thermocline_core::hash::mix;
use thermocline_core::policy::NAMES;
use thermocline_core::{HintSet, ObjectId};
use thermocline_sim::device::{Devices, Timing};
use thermocline_sim::experiment::{Experiment, Progress, Results, run};
use thermocline_sim::{Interleave, RunResult, VecRecords, Workload, WorkloadOptions, Writes, opt};
use thermocline_trace::{Op, Served, TraceRecord};

const PAGE: u64 = 4096;

/// 20,000 I/Os: skewed reads and writes of one object, scans of another, a trim now and then.
fn trace(seed: u64) -> Vec<TraceRecord> {
    let request = |number: u64| {
        let draw = |salt: u64| mix(mix(seed, number), salt);
        let skewed = draw(1) % (draw(2) % 2000 + 1);
        let (op, object, page, pages) = match draw(3) % 100 {
            0..60 => (Op::Read, 0, skewed, 1 + draw(4) % 2),
            60..80 => (Op::Write, 0, skewed, 1),
            80..99 => (Op::Read, 1, number * 4 % 3000, 4),
            _ => (Op::Trim, 1, draw(5) % 3000, 16),
        };
        TraceRecord {
            time_ns: number * 1_000_000,
            client: 0,
            op,
            served: Served::Unknown,
            object: ObjectId(object),
            offset: page * PAGE,
            length: pages * PAGE,
            latency_ns: 0,
            hints: HintSet::UNKNOWN.with(0, object + 1),
        }
    };
    (0..20_000).map(request).collect()
}

fn open(options: WorkloadOptions) -> Workload {
    let openers = vec![VecRecords::opener(trace(1), PAGE as u32)];
    Workload::open(openers, options, &mut |_| {}).expect("opens")
}

fn all() -> Vec<String> {
    opt::names().into_iter().map(String::from).collect()
}

fn devices() -> Devices {
    Devices {
        base: Timing::base("hdd").expect("a preset"),
        flash: Timing::flash("ssd").expect("a preset"),
        bridge: Some(0),
    }
}

fn simulate(workload: &Workload, change: impl FnOnce(&mut Experiment)) -> Results {
    let mut experiment = Experiment {
        policies: all(),
        capacities: vec![100, 500, 1500],
        ..Experiment::default()
    };
    change(&mut experiment);
    run(workload, &experiment, &Progress::default()).expect("runs")
}

fn of<'a>(results: &'a Results, policy: &str, capacity: u64) -> &'a RunResult {
    let wanted = |run: &&RunResult| run.policy == policy && run.capacity_pages == capacity;
    results.runs.iter().find(wanted).expect("a run")
}

#[test]
fn what_is_counted_adds_up() {
    let workload = open(WorkloadOptions::default());
    let results = simulate(&workload, |e| e.frames = 50);
    assert_eq!(results.runs.len(), 3 * all().len());
    for run in results.runs.iter().chain([&results.base_only]) {
        assert_eq!(run.requests, workload.facts().requests, "{}", run.policy);
        assert_eq!(run.requests, run.reads + run.writes);
        assert_eq!(run.requests, run.hits + run.misses);
        assert_eq!(run.read_hits, run.pool_hits + run.flash_reads);
        assert_eq!(run.reads, run.read_hits + run.base_reads);
        assert_eq!(run.base_writes, run.writes);
        assert_eq!(run.compulsory_misses, workload.facts().first_touch_reads);
        assert_eq!(
            run.pool_hits, results.base_only.pool_hits,
            "the pool is above"
        );
        let sampled: u64 = run.samples.iter().map(|sample| sample.reads).sum();
        assert_eq!(sampled, run.reads);
    }
    assert_eq!(
        results.base_only.flash_reads + results.base_only.flash_writes,
        0
    );
}

#[test]
fn nobody_beats_the_bound() {
    let options = |writes| WorkloadOptions {
        writes,
        ..WorkloadOptions::default()
    };
    for writes in [
        Writes::Allocate,
        Writes::NoAllocate,
        Writes::AsReads,
        Writes::Ignore,
    ] {
        let workload = open(options(writes));
        let results = simulate(&workload, |e| e.frames = 0);
        for run in &results.runs {
            let share = run.opt_share.expect("a share");
            let (policy, capacity) = (&run.policy, run.capacity_pages);
            assert!(share <= 1.0, "{writes:?} {policy} {capacity} {share}");
        }
        for capacity in [100, 500, 1500] {
            let bound = of(&results, opt::OPT_BYPASS, capacity);
            assert_eq!(bound.opt_share, Some(1.0));
        }
        let pooled = simulate(&workload, |e| e.frames = 64);
        let mut runs = pooled.runs.iter().chain(&pooled.bound);
        assert!(runs.all(|run| run.opt_share.is_none()), "{writes:?}");
    }
}

/// MIN by brute force: the victim is found by looking through what is to come.
fn brute_force_min(pages: &[u64], capacity: usize) -> u64 {
    let mut tier: Vec<u64> = Vec::new();
    let mut misses = 0;
    for (at, page) in pages.iter().enumerate() {
        if tier.contains(page) {
            continue;
        }
        misses += 1;
        if tier.len() == capacity {
            let next = |page: &u64| {
                let ahead = pages[at + 1..].iter().position(|other| other == page);
                ahead.unwrap_or(usize::MAX)
            };
            let victim = (0..capacity).max_by_key(|&slot| next(&tier[slot]));
            tier.swap_remove(victim.expect("a victim"));
        }
        tier.push(*page);
    }
    misses
}

#[test]
fn opt_is_the_naive_min() {
    let pages: Vec<u64> = (0..1500)
        .map(|n| mix(9, n) % (mix(8, n) % 120 + 1))
        .collect();
    let record = |&page: &u64| TraceRecord {
        op: Op::Read,
        object: ObjectId(0),
        offset: page * PAGE,
        length: PAGE,
        ..trace(1)[0]
    };
    let records: Vec<TraceRecord> = pages.iter().map(record).collect();
    let openers = vec![VecRecords::opener(records, PAGE as u32)];
    let workload = Workload::open(openers, WorkloadOptions::default(), &mut |_| {}).expect("opens");
    let results = simulate(&workload, |e| {
        e.policies = vec![opt::OPT.into(), opt::OPT_BYPASS.into()];
        e.capacities = vec![1, 7, 40, 200];
    });
    for capacity in [1, 7, 40, 200] {
        let misses = of(&results, opt::OPT, capacity).misses;
        assert_eq!(misses, brute_force_min(&pages, capacity as usize));
        assert!(of(&results, opt::OPT_BYPASS, capacity).misses <= misses);
    }
}

#[test]
fn threads_and_memory_do_not_change_anything() {
    let workload = open(WorkloadOptions::default());
    let one = simulate(&workload, |e| e.threads = 1);
    let four = simulate(&workload, |e| e.threads = 4);
    assert_eq!(one, four);
    let small = open(WorkloadOptions {
        memory: 1000,
        ..WorkloadOptions::default()
    });
    assert!(small.decoded().is_none());
    let streamed = simulate(&small, |e| {
        e.policies = NAMES.iter().map(ToString::to_string).collect();
    });
    for run in &streamed.runs {
        let same = of(&one, &run.policy, run.capacity_pages);
        assert_eq!(
            (run.misses, run.flash_writes),
            (same.misses, same.flash_writes)
        );
        assert_eq!(
            (run.compulsory_misses, run.ios),
            (same.compulsory_misses, same.ios)
        );
    }
}

#[test]
fn opt_says_what_it_needs_when_the_future_is_not_in_memory() {
    let workload = open(WorkloadOptions {
        memory: 1000,
        ..WorkloadOptions::default()
    });
    let experiment = Experiment {
        policies: vec!["opt".into()],
        capacities: vec![10],
        ..Experiment::default()
    };
    let error = run(&workload, &experiment, &Progress::default()).expect_err("no future");
    assert!(error.to_string().contains("allow more memory"), "{error}");
}

#[test]
fn warm_up_is_left_out_of_every_count() {
    let workload = open(WorkloadOptions::default());
    let cold = simulate(&workload, |e| e.devices = Some(devices()));
    let warm = simulate(&workload, |e| {
        e.devices = Some(devices());
        e.warm_up = 10_000;
    });
    for (cold, warm) in cold.runs.iter().zip(&warm.runs) {
        assert_eq!(warm.requests + 10_000, cold.requests);
        assert!(warm.read_hits <= cold.read_hits && warm.ios < cold.ios);
        assert!(warm.device_ms < cold.device_ms && warm.elapsed_ms < cold.elapsed_ms);
        assert_eq!(cold.samples, warm.samples, "the curve shows the warm-up");
    }
    let experiment = Experiment {
        warm_up: workload.facts().requests,
        ..Experiment::default()
    };
    assert!(run(&workload, &experiment, &Progress::default()).is_err());
}

#[test]
fn more_clients_finish_sooner_and_decide_the_same() {
    let workload = open(WorkloadOptions::default());
    let with = |clients| {
        simulate(&workload, |e| {
            e.devices = Some(devices());
            e.clients = clients;
            e.policies = vec!["lru".into()];
        })
    };
    let (one, eight) = (with(1), with(8));
    for (one, eight) in one.runs.iter().zip(&eight.runs) {
        assert_eq!(one.misses, eight.misses);
        assert!(eight.elapsed_ms < one.elapsed_ms);
        assert!(one.speedup > Some(1.0), "{:?}", one.speedup);
        let device = one.base_device_ms + one.flash_device_ms;
        assert!((one.device_ms - device).abs() < 1e-9);
    }
}

#[test]
fn metadata_costs_slots() {
    let workload = open(WorkloadOptions::default());
    let results = simulate(&workload, |e| e.charge_metadata = true);
    for run in &results.runs {
        let charged = run.capacity_pages - run.slots;
        let offline = opt::is_opt(&run.policy);
        assert_eq!(charged == 0, offline, "{}: {charged}", run.policy);
    }
}

#[test]
fn several_traces_are_told_apart() {
    let openers = || {
        (1..3)
            .map(|seed| VecRecords::opener(trace(seed), PAGE as u32))
            .collect()
    };
    for interleave in [Interleave::Time, Interleave::RoundRobin] {
        let options = WorkloadOptions {
            interleave,
            ..WorkloadOptions::default()
        };
        let workload = Workload::open(openers(), options, &mut |_| {}).expect("opens");
        let facts = workload.facts();
        assert_eq!((facts.traces, facts.extents.len()), (2, 4));
        let results = simulate(&workload, |e| e.policies = vec!["lru".into()]);
        for run in &results.runs {
            let reads: u64 = run.by_client.iter().map(|client| client.reads).sum();
            let hits: u64 = run.by_client.iter().map(|client| client.read_hits).sum();
            assert_eq!((reads, hits), (run.reads, run.read_hits));
            assert!(run.by_client.iter().all(|client| client.reads > 0));
        }
    }
}

/// Misses and pages written to flash at 500 pages.
#[test]
fn golden_totals() {
    let workload = open(WorkloadOptions::default());
    let facts = workload.facts();
    let results = simulate(&workload, |_| {});
    let shape = (
        facts.requests,
        facts.reads,
        facts.distinct_pages,
        facts.first_touch_reads,
    );
    assert_eq!(shape, (36_829, 32_731, 4826, 6330));
    let names = ["lru", "fifo", "clock", "tac", opt::OPT, opt::OPT_BYPASS];
    let totals = names.map(|policy| {
        let run = of(&results, policy, 500);
        (run.misses, run.flash_writes)
    });
    let expected = [
        (31_085, 32_194),
        (31_605, 32_616),
        (30_700, 31_872),
        (24_140, 3792),
        (20_302, 21_798),
        (21_463, 10_425),
    ];
    assert_eq!(totals, expected);
}
