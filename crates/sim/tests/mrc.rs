//! Miss-ratio curves against the simulator itself.

use thermocline_core::hash::mix;
use thermocline_core::policy::{NAMES, PolicyOptions};
use thermocline_core::{HintSet, ObjectId};
use thermocline_sim::experiment::{Experiment, Progress, run};
use thermocline_sim::mrc::{Curve, Method, MrcOptions, Rate, curves};
use thermocline_sim::workload::BYTES_PER_REQUEST;
use thermocline_sim::{SimError, VecRecords, Workload, WorkloadOptions, Writes};
use thermocline_trace::{Op, Served, TraceRecord};

const PAGE: u64 = 4096;

/// `ios` I/Os over about `pages` pages: skewed reads, writes, partial writes, scans, trims.
fn trace(ios: u64, pages: u64) -> Vec<TraceRecord> {
    let request = |number: u64| {
        let draw = |salt: u64| mix(mix(7, number), salt);
        let skewed = draw(1) % (draw(2) % pages + 1);
        let (op, object, page, length) = match draw(3) % 1000 {
            0..700 => (Op::Read, 0, skewed, PAGE),
            700..800 => (Op::Write, 0, skewed, PAGE),
            800..830 => (Op::Write, 0, skewed, PAGE / 2),
            830..995 => (Op::Read, 1, number * 4 % pages, 4 * PAGE),
            _ => (Op::Trim, 1, draw(5) % pages, 16 * PAGE),
        };
        TraceRecord {
            time_ns: number * 1_000_000,
            client: 0,
            op,
            served: Served::Unknown,
            object: ObjectId(object),
            offset: page * PAGE,
            length,
            latency_ns: 0,
            hints: HintSet::UNKNOWN.with(0, object + 1),
        }
    };
    (0..ios).map(request).collect()
}

fn open(records: Vec<TraceRecord>, writes: Writes, memory: u64) -> Workload {
    let options = WorkloadOptions {
        writes,
        memory,
        ..WorkloadOptions::default()
    };
    let openers = vec![VecRecords::opener(records, PAGE as u32)];
    Workload::open(openers, options, &mut |_| {}).expect("opens")
}

fn options(policies: &[&str], sizes: &[u32], rate: Rate) -> MrcOptions {
    MrcOptions {
        policies: policies.iter().map(ToString::to_string).collect(),
        sizes: sizes.to_vec(),
        rate,
        warm_up: 0,
        policy_options: PolicyOptions::new(0),
        threads: 2,
    }
}

fn draw(workload: &Workload, options: &MrcOptions) -> Vec<Curve> {
    curves(workload, options, &Progress::default()).expect("curves")
}

/// Misses and flash writes of the simulator, by policy and size as [`draw`] has them.
fn simulated(workload: &Workload, options: &MrcOptions) -> Vec<Vec<(u64, u64)>> {
    let experiment = Experiment {
        policies: options.policies.clone(),
        capacities: options.sizes.clone(),
        warm_up: options.warm_up,
        bound: false,
        ..Experiment::default()
    };
    let results = run(workload, &experiment, &Progress::default()).expect("runs");
    let of = |policy: &String| {
        let runs = results.runs.iter().filter(|run| run.policy == *policy);
        runs.map(|run| (run.base_reads, run.flash_writes)).collect()
    };
    options.policies.iter().map(of).collect()
}

fn found(curves: &[Curve]) -> Vec<Vec<(u64, u64)>> {
    let points = |curve: &Curve| {
        let points = curve.points.iter();
        points.map(|p| (p.read_misses, p.flash_writes)).collect()
    };
    curves.iter().map(points).collect()
}

#[test]
fn with_every_page_the_lru_curve_is_the_simulator_at_every_size() {
    for writes in [Writes::Allocate, Writes::AsReads, Writes::Ignore] {
        let workload = open(trace(6000, 150), writes, 1 << 30);
        let sizes: Vec<u32> = (1..=330).collect();
        let mut options = options(&["lru"], &sizes, Rate::ALL);
        for warm_up in [0, 1000] {
            options.warm_up = warm_up;
            let curves = draw(&workload, &options);
            assert_eq!(curves[0].method, Method::StackDistance);
            assert_eq!(found(&curves), simulated(&workload, &options), "{writes:?}");
        }
    }
}

#[test]
fn with_every_page_each_policy_is_the_simulator() {
    for writes in [Writes::Allocate, Writes::NoAllocate] {
        let workload = open(trace(20_000, 1500), writes, 1 << 30);
        let options = options(NAMES, &[40, 300, 1200], Rate::ALL);
        let curves = draw(&workload, &options);
        assert_eq!(found(&curves), simulated(&workload, &options));
        let miniature = |curve: &Curve| curve.method == Method::Miniature;
        let stack = usize::from(writes == Writes::Allocate);
        assert_eq!(
            curves.iter().filter(|c| miniature(c)).count(),
            NAMES.len() - stack
        );
    }
}

/// Differences of the read miss ratio to that of every page, by policy: mean and largest.
fn errors(policies: &[&str], rate: f64) -> Vec<(f64, f64)> {
    let workload = open(trace(300_000, 40_000), Writes::Allocate, 1 << 30);
    let sizes = [500, 1000, 2000, 4000, 8000, 16_000, 32_000, 64_000];
    let rate = Rate::of(rate).expect("a rate");
    let sampled = draw(&workload, &options(policies, &sizes, rate));
    let exact = draw(&workload, &options(policies, &sizes, Rate::ALL));
    let error = |(a, b): (&Curve, &Curve)| {
        let pairs = a.points.iter().zip(&b.points);
        let ratio = |of: Option<f64>| of.expect("reads");
        let errors = pairs.map(|(a, b)| ratio(a.read_miss_ratio) - ratio(b.read_miss_ratio));
        let errors: Vec<f64> = errors.map(f64::abs).collect();
        let mean = errors.iter().sum::<f64>() / errors.len() as f64;
        (mean, errors.into_iter().fold(0.0, f64::max))
    };
    sampled.iter().zip(&exact).map(error).collect()
}

#[test]
fn a_tenth_of_the_pages_is_off_by_two_points_in_the_mean_and_three_at_most() {
    let policies = ["lru", "fifo", "arc", "s3-fifo"];
    for (policy, (mean, largest)) in policies.iter().zip(errors(&policies, 0.1)) {
        assert!(mean < 0.02 && largest < 0.03, "{policy}: {mean} {largest}");
        assert!(mean > 0.0, "{policy}: a sample is not exact");
    }
}

#[test]
fn streamed_or_in_memory_by_one_thread_or_two_it_is_the_same() {
    let rate = Rate::of(0.3).expect("a rate");
    let mut options = options(&["lru", "tac", "clic"], &[50, 400], rate);
    options.warm_up = 500;
    let records = trace(8000, 1500);
    let decoded = open(records.clone(), Writes::Allocate, 1 << 30);
    let streamed = open(records, Writes::Allocate, 3 * BYTES_PER_REQUEST);
    assert!(decoded.decoded().is_some() && streamed.decoded().is_none());
    let expected = draw(&decoded, &options);
    assert_eq!(draw(&streamed, &options), expected);
    options.threads = 1;
    assert_eq!(draw(&decoded, &options), expected);
    assert!(
        expected
            .iter()
            .all(|c| c.sampled_reads > 0 && c.sampled_reads < c.reads)
    );
}

#[test]
fn what_cannot_be_drawn_is_refused() {
    let workload = open(trace(100, 20), Writes::Allocate, 1 << 30);
    let refused = |options: &MrcOptions| {
        let result = curves(&workload, options, &Progress::default());
        result.expect_err("refused")
    };
    let opt = refused(&options(&["opt"], &[10], Rate::ALL));
    assert!(matches!(opt, SimError::UnknownPolicy(name) if name == "opt"));
    let mut late = options(&["lru"], &[10], Rate::ALL);
    late.warm_up = 1 << 40;
    assert!(matches!(refused(&late), SimError::WarmUp { .. }));
}
