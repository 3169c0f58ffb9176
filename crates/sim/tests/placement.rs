//! What a placement saves by its profile is what its run saves in the simulator.

use thermocline_core::{Costs, HintSet, ObjectId, RequestType, hash::mix, hint_type};
use thermocline_sim::device::Devices;
use thermocline_sim::experiment::{Experiment, NO_TIER, Progress, Setting, run_each};
use thermocline_sim::joint::{self, JointExperiment, JointSetting};
use thermocline_sim::mrc::Rate;
use thermocline_sim::placement::{
    Fill, Fixed, Holding, ObjectProfile, curves, divide, greedy, items, profile,
};
use thermocline_sim::{RunResult, VecRecords, Workload, WorkloadOptions, sampled};
use thermocline_trace::{Op, Sample, Served, TraceRecord};

const COSTS: Costs = Costs {
    base_random_read: 8000.0,
    base_sequential_read: 100.0,
    base_random_write: 9000.0,
    flash_read: 50.0,
    flash_write: 300.0,
};

/// Single pages at random of four objects: small and hot, large and warm, written, and cold. Each
/// other page is left out, so that no two are neighbours.
fn records() -> Vec<TraceRecord> {
    let record = |number: u64| {
        let draw = mix(number, 77) >> 20;
        let (object, pages) = [(0, 50), (0, 50), (1, 2000), (2, 200), (3, 5000)][draw as usize % 5];
        let write = object == 2 && !draw.is_multiple_of(3);
        TraceRecord {
            time_ns: number * 1_000_000,
            client: 1,
            op: if write { Op::Write } else { Op::Read },
            served: Served::Base,
            object: ObjectId(object),
            offset: 2 * (mix(draw, 5) % pages) * 4096,
            length: 4096,
            latency_ns: 0,
            hints: HintSet::UNKNOWN.with(hint_type::REQUEST, RequestType::Read.value()),
        }
    };
    (0..20_000).map(record).collect()
}

fn workload() -> Workload {
    sampled_workload(Sample::ALL)
}

/// A sample of the same.
fn sampled_workload(sample: Sample) -> Workload {
    let opener = sampled(VecRecords::opener(records(), 4096), sample, None);
    Workload::open(vec![opener], WorkloadOptions::default(), &mut |_| {}).expect("opens")
}

fn run(workload: &Workload, settings: &[Setting]) -> Vec<RunResult> {
    let experiment = Experiment {
        devices: Some(Devices::calibrated(&COSTS, 4096)),
        threads: 1,
        ..Experiment::default()
    };
    run_each(workload, &experiment, settings, &Progress::default()).expect("runs")
}

fn setting(policy: &str, capacity: u64, fixed: Fixed) -> Setting {
    Setting {
        policy: policy.into(),
        capacity: capacity as u32,
        frames: 0,
        fixed,
    }
}

fn chosen(rows: &[ObjectProfile], holding: Holding, capacity: u64) -> (Vec<ObjectId>, f64) {
    let items = items(rows, &COSTS, holding);
    let chosen = greedy(&items, capacity, Fill::Skip);
    let objects = chosen.items.iter().map(|&at| rows[at].object);
    (objects.collect(), chosen.benefit)
}

#[test]
fn the_benefit_is_what_moving_an_object_saves() {
    let workload = workload();
    let rows = profile(&workload).expect("profiles");
    let (moved, benefit) = chosen(&rows, Holding::Moved, 600);
    assert_eq!(moved.len(), 2, "the hot and the written one: {rows:?}");
    let fixed = Fixed {
        moved,
        ..Fixed::default()
    };
    let pages = fixed.pages(workload.facts());
    let none = setting(NO_TIER, 0, Fixed::default());
    let runs = run(&workload, &[none, setting("lru", pages, fixed)]);
    let saved = (runs[0].elapsed_ms - runs[1].elapsed_ms) * 1e6;
    assert!((saved / benefit - 1.0).abs() < 0.001, "{saved} {benefit}");
    assert_eq!(
        (runs[0].base_writes, runs[1].base_writes),
        (runs[0].writes, 0)
    );
    assert_eq!(runs[1].flash_writes, runs[1].writes);
}

#[test]
fn pinned_objects_hit_and_bypassed_ones_leave_flash_alone() {
    let workload = workload();
    let rows = profile(&workload).expect("profiles");
    let (pinned, benefit) = chosen(&rows, Holding::Copied, 100);
    let others = rows.iter().map(|row| row.object);
    let fixed = Fixed {
        pinned: pinned.clone(),
        bypassed: others.filter(|object| !pinned.contains(object)).collect(),
        ..Fixed::default()
    };
    let pages = fixed.pages(workload.facts());
    let none = setting(NO_TIER, 0, Fixed::default());
    let runs = run(&workload, &[none, setting("lru", pages + 500, fixed)]);
    for row in &rows {
        let totals = runs[1].by_object[row.object.0 as usize];
        let hits = if pinned.contains(&row.object) {
            totals.reads
        } else {
            0
        };
        assert_eq!((totals.read_hits, totals.flash_writes), (hits, 0));
    }
    assert_eq!((runs[1].slots, runs[1].flash_writes), (500, 0));
    assert_eq!(runs[1].base_writes, runs[1].writes);
    let saved = (runs[0].elapsed_ms - runs[1].elapsed_ms) * 1e6;
    assert!((saved / benefit - 1.0).abs() < 0.001, "{saved} {benefit}");
}

#[test]
fn an_object_of_a_sample_takes_its_share_of_flash() {
    let workload = sampled_workload(Sample::of(0.25).expect("a share"));
    let facts = workload.facts();
    let rows = profile(&workload).expect("profiles");
    for (row, extent) in rows.iter().zip(&facts.extents) {
        let share = (*extent as f64 / 4.0).round().max(1.0);
        assert_eq!(row.pages, share as u64, "{row:?} of {extent}");
    }
    // The large one is pinned, and there is room for the sample of the two hot ones beside it.
    let large = rows.iter().max_by_key(|row| row.pages).expect("a row");
    let tier = large.pages + 250;
    let fixed = Fixed {
        pinned: vec![large.object],
        ..Fixed::default()
    };
    let runs = run(&workload, &[setting("lru", tier, fixed)]);
    assert_eq!(runs[0].slots, 250);
    let setting = JointSetting {
        combination: "lru+lru:through".parse().expect("a combination"),
        tier_pages: tier as u32,
        frames: 0,
        pinned: vec![large.object],
        bypassed: rows
            .iter()
            .filter(|row| row.pages > 200 && row.object != large.object)
            .map(|row| row.object)
            .collect(),
    };
    let experiment = JointExperiment {
        threads: 1,
        ..JointExperiment::default()
    };
    let joint = joint::run_each(&workload, &experiment, &[setting], &Progress::default());
    let joint = &joint.expect("runs")[0].by_object;
    let pinned = joint[large.object.0 as usize];
    assert_eq!(pinned.read_hits, pinned.reads, "all of it is on flash");
    let small = rows.iter().filter(|row| row.pages <= 200);
    for totals in small.map(|row| joint[row.object.0 as usize]) {
        assert!(totals.read_hits * 10 > totals.reads * 8, "{totals:?}");
    }
}

#[test]
fn parts_of_objects_save_what_their_curves_say() {
    let workload = workload();
    let rows = profile(&workload).expect("profiles");
    let curves = curves(&workload, &rows, &COSTS, Rate::ALL, &Progress::default());
    let curves = curves.expect("curves");
    let shares = divide(&curves, 1500);
    assert!(shares.len() > 1, "{shares:?}");
    // Sizes of a curve are what was given: the sum of the points is what it says.
    let said: f64 = shares
        .iter()
        .map(|share| {
            let curve = &curves[share.object.0 as usize].points;
            let point = curve.iter().find(|point| point.0 == share.pages);
            point.expect("a point").1
        })
        .sum();
    let fixed = Fixed {
        shares,
        ..Fixed::default()
    };
    let none = setting(NO_TIER, 0, Fixed::default());
    let runs = run(&workload, &[none, setting("lru", 1500, fixed)]);
    let saved = (runs[0].elapsed_ms - runs[1].elapsed_ms) * 1e6;
    // Pages written to flash keep its reads waiting a little, and nothing else differs.
    assert!((saved / said - 1.0).abs() < 0.02, "{saved} {said}");
}
