//! Whole joint simulations of a generated trace: totals that must not change unnoticed, and laws.

use thermocline_core::hash::mix;
use thermocline_core::{HintSet, ObjectId, hint_type};
use thermocline_sim::device::{Devices, Timing};
use thermocline_sim::experiment::{Experiment, NO_TIER, Progress, Setting};
use thermocline_sim::joint::{JointExperiment, JointResult, JointSetting, run, run_each};
use thermocline_sim::{SimError, VecRecords, Workload, WorkloadOptions};
use thermocline_trace::{Op, Served, TraceRecord};

const PAGE: u64 = 4096;
const COMBINATIONS: [&str; 8] = [
    "lru+cc",
    "gd2l+cc",
    "gd2l+cac",
    "lru+lc",
    "lru+mv-fifo",
    "lru+tac",
    "lru+tac:through",
    "lru+none",
];

/// 20,000 I/Os: skewed reads, often followed by a write of the same page; scans of another object;
/// an object that grows.
fn trace() -> Vec<TraceRecord> {
    let request = |number: u64| {
        let draw = |salt: u64| mix(mix(7, number), salt);
        let before = |salt: u64| mix(mix(7, number.saturating_sub(1)), salt);
        let skewed = |draw: &dyn Fn(u64) -> u64| draw(1) % (draw(2) % 3000 + 1);
        let (op, object, page, request) = match draw(3) % 100 {
            0..55 => (Op::Read, 0, skewed(&draw), 1),
            55..80 => (Op::Write, 0, skewed(&before), 6),
            80..98 => (Op::Read, 1, number % 2000, 2),
            _ => (Op::Write, 2, number / 200, 6),
        };
        TraceRecord {
            time_ns: number * 1_000_000,
            client: 0,
            op,
            served: Served::Unknown,
            object: ObjectId(object),
            offset: page * PAGE,
            length: PAGE,
            latency_ns: 0,
            hints: HintSet::UNKNOWN
                .with(0, object + 1)
                .with(hint_type::REQUEST, request),
        }
    };
    (0..20_000).map(request).collect()
}

fn workload() -> Workload {
    let openers = vec![VecRecords::opener(trace(), PAGE as u32)];
    Workload::open(openers, WorkloadOptions::default(), &mut |_| {}).expect("opens")
}

fn experiment(combinations: &[&str]) -> JointExperiment {
    let parse = |text: &&str| text.parse().expect("a combination");
    JointExperiment {
        combinations: combinations.iter().map(parse).collect(),
        databases: vec![0.8, 3.0],
        pools: vec![0.1, 0.4],
        recovery_age_ms: 3000,
        warm_up: 5000,
        devices: Some(Devices {
            base: Timing::base("hdd").expect("a preset"),
            flash: Timing::flash("ssd").expect("a preset"),
            bridge: Some(0),
        }),
        transactions: Some(1000.0),
        zones: vec![1.0, 10.0, 100.0],
        ..JointExperiment::default()
    }
}

fn simulate(experiment: &JointExperiment) -> Vec<JointResult> {
    run(&workload(), experiment, &Progress::default()).expect("runs")
}

#[test]
fn what_is_counted_adds_up() {
    let requests = workload().facts().requests - 5000;
    let results = simulate(&experiment(&COMBINATIONS));
    assert_eq!(results.len(), COMBINATIONS.len() * 4);
    for run in &results {
        let name = &run.combination;
        assert_eq!(run.reads + run.writes, requests, "{name}");
        assert_eq!(
            run.reads,
            run.pool_hits + run.flash_reads + run.base_reads,
            "{name}"
        );
        let written = run.writes_through + run.cleaned_to_base + run.destage_writes;
        assert_eq!(run.base_writes, written, "{name}");
        assert!(run.destage_ios <= run.destage_writes, "{name}");
        let misses = run.miss_rate.expect("reads") * run.reads as f64;
        assert_eq!(
            misses.round() as u64,
            run.flash_reads + run.base_reads,
            "{name}"
        );
        assert!(run.transactions == Some(1000.0 * requests as f64 / (requests + 5000) as f64));
        let parts = run
            .base_ms_per_transaction
            .zip(run.flash_ms_per_transaction);
        let sum = parts.map_or(0.0, |(base, flash)| base + flash);
        assert!(
            (sum - run.ms_per_transaction.unwrap_or(1.0)).abs() < 1e-9,
            "{name}"
        );
        for share in [run.base_utilisation, run.flash_utilisation] {
            assert!(
                share.is_some_and(|share| (0.0..=1.0).contains(&share)),
                "{name}"
            );
        }
        if !run.write_back {
            assert_eq!(run.base_writes, run.writes, "{name}");
            assert_eq!(run.dirty_in_pool + run.dirty_on_flash, 0, "{name}");
        }
        let fewer = |pair: &[thermocline_sim::joint::ZoneCost]| pair[0].bytes >= pair[1].bytes;
        assert!(
            run.zones.windows(2).all(fewer),
            "{name}: larger zones are written less often"
        );
    }
}

#[test]
fn without_a_tier_base_serves_what_the_pool_does_not() {
    let results = simulate(&experiment(&["lru+none", "gd2l+none"]));
    for run in &results {
        assert_eq!(
            (run.flash_reads, run.flash_writes, run.tier_pages),
            (0, 0, 0)
        );
        assert_eq!(run.base_writes, run.writes);
    }
    // All pages cost the same without flash: GD2L is LRU.
    for (lru, gd2l) in results
        .chunks(4)
        .flat_map(|both| both[..2].iter().zip(&both[2..]))
    {
        assert_eq!(lru.base_reads, gd2l.base_reads);
    }
}

#[test]
fn threads_change_nothing_and_clients_change_time_only() {
    let mut experiment = experiment(&COMBINATIONS[2..5]);
    experiment.threads = 1;
    let one = simulate(&experiment);
    experiment.threads = 4;
    assert_eq!(one, simulate(&experiment));
    experiment.clients = 8;
    for (one, eight) in one.iter().zip(simulate(&experiment)) {
        assert!(eight.elapsed_ms < one.elapsed_ms, "{}", one.combination);
        assert_eq!(
            (
                one.base_reads,
                one.flash_writes,
                one.base_writes,
                one.journal_bytes
            ),
            (
                eight.base_reads,
                eight.flash_writes,
                eight.base_writes,
                eight.journal_bytes
            )
        );
    }
}

#[test]
fn a_warm_up_longer_than_the_trace_is_refused() {
    let mut experiment = experiment(&["lru+cc"]);
    experiment.warm_up = 1 << 40;
    let refused = run(&workload(), &experiment, &Progress::default());
    assert!(matches!(refused, Err(SimError::WarmUp { .. })));
}

/// Reads of pool, flash and base, pages to flash and to base, journal bytes: of the combination
/// with a database of three times the tier and a pool of 10 % of it.
type Golden = (&'static str, [u64; 6]);

const GOLDEN: [Golden; 8] = [
    ("lru+cc", [669, 5527, 4612, 4992, 1960, 606_208]),
    ("gd2l+cc", [379, 5916, 4513, 4726, 1924, 532_480]),
    ("gd2l+cac", [367, 5919, 4522, 4811, 1890, 528_384]),
    ("lru+lc", [669, 4925, 5214, 8424, 1980, 634_880]),
    ("lru+mv-fifo", [669, 3945, 6194, 9144, 2738, 1_048_576]),
    ("lru+tac", [669, 5749, 4390, 4579, 1300, 516_096]),
    ("lru+tac:through", [678, 5819, 4311, 4080, 4192, 507_904]),
    ("lru+none", [678, 0, 10130, 0, 4192, 0]),
];

#[test]
fn totals_are_what_they_were() {
    let results = simulate(&experiment(&COMBINATIONS));
    let of_three = results
        .iter()
        .filter(|run| run.database == 3.0 && run.pool == 0.1);
    let found: Vec<_> = of_three
        .map(|run| {
            let totals = [
                run.pool_hits,
                run.flash_reads,
                run.base_reads,
                run.flash_writes,
                run.base_writes,
                run.journal_bytes + run.checkpoint_bytes,
            ];
            (run.combination.as_str(), totals)
        })
        .collect();
    assert_eq!(found, GOLDEN);
}

/// What `advise` asks of a tier in write-back.
#[test]
fn pinned_objects_are_always_on_flash_and_bypassed_ones_never() {
    let workload = workload();
    let experiment = experiment(&[]);
    let setting = |combination: &str, pinned: &[u32], bypassed: &[u32]| JointSetting {
        combination: combination.parse().expect("a combination"),
        tier_pages: 4000,
        frames: 0,
        pinned: pinned.iter().copied().map(ObjectId).collect(),
        bypassed: bypassed.iter().copied().map(ObjectId).collect(),
    };
    let settings = [
        setting("lru+lru", &[1], &[0]),
        setting("lru+lru:through", &[1], &[0]),
        setting("lru+none", &[], &[]),
    ];
    let runs = run_each(&workload, &experiment, &settings, &Progress::default()).expect("runs");
    for run in &runs[..2] {
        let [skewed, scanned] = [run.by_object[0], run.by_object[1]];
        assert_eq!((skewed.read_hits, skewed.flash_writes), (0, 0));
        assert!(scanned.reads > 0);
        assert_eq!(scanned.read_hits, scanned.reads, "{}", run.combination);
        assert_eq!(run.tier_pages, 4000);
    }
    // Base alone takes as long as in the simulator of write-through.
    let alone = Experiment {
        warm_up: experiment.warm_up,
        devices: experiment.devices.clone(),
        clients: experiment.clients,
        ..Experiment::default()
    };
    let none = Setting {
        policy: NO_TIER.into(),
        ..Setting::default()
    };
    let plain = thermocline_sim::experiment::run_each;
    let plain = plain(&workload, &alone, &[none], &Progress::default()).expect("runs");
    assert_eq!(runs[2].base_ios, plain[0].base_ios);
    assert_eq!(runs[2].ios, plain[0].ios);
    assert!((runs[2].elapsed_ms - plain[0].elapsed_ms).abs() < 1e-6);
}

#[test]
fn a_trace_that_goes_on_after_months_is_aged_as_before() {
    let results = |gap_days: u64| {
        let mut trace = trace();
        for record in &mut trace[1..] {
            // Half an hour, and the gap before it.
            record.time_ns = 100 * record.time_ns + gap_days * 86_400_000_000_000;
        }
        let openers = vec![VecRecords::opener(trace, PAGE as u32)];
        let workload = Workload::open(openers, WorkloadOptions::default(), &mut |_| {});
        let experiment = JointExperiment {
            databases: vec![3.0],
            pools: vec![0.4],
            ..experiment(&["lru+lc", "gd2l+cac"])
        };
        run(&workload.expect("opens"), &experiment, &Progress::default()).expect("runs")
    };
    let (soon, late) = (results(0), results(60));
    for (soon, late) in soon.iter().zip(&late) {
        let name = &soon.combination;
        // The age of a page is known to half a second then, of three.
        let near = |a: u64, b: u64| a.abs_diff(b) as f64 <= 0.02 * a.max(b) as f64;
        assert!(
            near(soon.pool_hits, late.pool_hits),
            "{name}: {soon:?} {late:?}"
        );
        assert!(
            near(soon.flash_reads, late.flash_reads),
            "{name}: {soon:?} {late:?}"
        );
        let written = |run: &JointResult| run.flash_writes + run.base_writes;
        assert!(
            near(written(soon), written(late)),
            "{name}: {soon:?} {late:?}"
        );
    }
}
