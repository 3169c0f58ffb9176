//! Which sizes of flash and memory are worth their money for a workload.
//!
//! Every flash size under every pool size is simulated; device models give I/Os per second,
//! prices give the cost. Figures of time are those of a model.
//!
//! - *Policy*: of those named, the one with the highest product of I/Os per second over all
//!   sizes; one policy for all sizes, as a mount has one.
//! - *Efficient*: an option is efficient when every faster one costs more.
//! - *Envelope*: the efficient options on the upper concave hull of speed over cost, from base
//!   alone; between two of them mixing sizes could do no better than the line.
//! - *Recommended*: the envelope is climbed while a step gains at least `worth` for each doubling
//!   of the cost (the first step, from nothing: at least `worth`). With a target instead: the
//!   cheapest option that reaches it.
//! - *Mean time of an I/O*: clients × elapsed / I/Os (Little's law: a client always waits).
//! - *Memory*: the pool, and what policy and slot map hold.
//! - *Wear*: flash bytes written in the trace's own time, against a rating in drive writes per
//!   day over some years, of a drive as large as the tier; not told from a trace so short that one
//!   checkpoint more or less would change it.

use crate::advice::WEAR_SECONDS_MIN;
use crate::error::SimError;
use crate::experiment::{Experiment, Progress, Results, run};
use crate::result::RunResult;
use crate::workload::Workload;
use serde::Serialize;
use std::sync::atomic::Ordering;

const GIB: f64 = (1u64 << 30) as f64;
const MS_PER_DAY: f64 = 86_400_000.0;
const SECONDS_PER_DAY: f64 = 86_400.0;
const DAYS_PER_YEAR: f64 = 365.0;

/// What storage costs.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Prices {
    /// Of a GiB of flash.
    pub flash_per_gib: f64,
    /// Of a GiB of memory.
    pub dram_per_gib: f64,
}

/// How much may be written to a drive.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Endurance {
    /// Times its size each day.
    pub drive_writes_per_day: f64,
    /// Years for which that is promised.
    pub years: f64,
}

/// What an option has to reach.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    /// This many times the I/Os per second of base alone.
    Speedup(f64),
    /// I/Os per second.
    IosPerSecond(f64),
    /// Milliseconds that an I/O takes in the mean, at most.
    MeanMs(f64),
}

/// What to plan.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// Policies, devices, clients, warm-up; its sizes are not used.
    pub experiment: Experiment,
    /// Sizes of flash, pages; base without flash is always among the options.
    pub flash: Vec<u32>,
    /// Sizes of the pool, frames; none at all is always among the options.
    pub pools: Vec<u32>,
    /// Prices.
    pub prices: Prices,
    /// The rating of the flash drive.
    pub endurance: Endurance,
    /// The least gain that a doubling of the cost is worth: 0.1 is a tenth.
    pub worth: f64,
    /// What is wanted, when it is known.
    pub target: Option<Target>,
}

/// One combination of sizes.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Choice {
    /// Size of flash, pages.
    pub flash_pages: u64,
    /// Size of flash, bytes.
    pub flash_bytes: u64,
    /// Size of the pool, bytes.
    pub pool_bytes: u64,
    /// Memory that policy and slot map hold, bytes.
    pub metadata_bytes: u64,
    /// Of flash and memory.
    pub cost: f64,
    /// I/Os per second (model).
    pub ios_per_s: f64,
    /// The same, over that of base alone (model).
    pub speedup: f64,
    /// Mean time of an I/O, ms (model).
    pub mean_io_ms: f64,
    /// Reads that base did not serve.
    pub read_hit_ratio: Option<f64>,
    /// Bytes written to flash each day at the trace's own pace; null when it has none, or is too
    /// short to tell.
    pub flash_bytes_per_day: Option<f64>,
    /// Years until as much is written as the drive is rated for; null when nothing is written.
    pub endurance_years: Option<f64>,
    /// Whether every faster option costs more.
    pub efficient: bool,
    /// Whether it is on the envelope.
    pub envelope: bool,
}

/// Why that option.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// More is not worth it.
    Knee,
    /// More may be worth it: no larger size was tried.
    Largest,
    /// Nothing is worth its money.
    Nothing,
    /// The cheapest that reaches the target.
    Target,
    /// The fastest there is, which does not reach the target.
    Missed,
}

/// What came out.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Plan {
    /// The policy of all options.
    pub policy: String,
    /// Prices they were counted with.
    pub prices: Prices,
    /// The rating they were counted with.
    pub endurance: Endurance,
    /// All options, by cost; the first is base alone.
    pub options: Vec<Choice>,
    /// Position of the recommended option.
    pub recommended: usize,
    /// Why.
    pub reason: Reason,
    /// Position of the fastest option that costs at most twice as much.
    pub next: Option<usize>,
    /// Seconds of the trace that the figures are of.
    pub seconds: f64,
    /// Whether that is long enough to tell wear.
    pub tells_wear: bool,
}

/// Simulates all sizes and finds the option. Same workload and options, same plan.
///
/// # Errors
/// As [`run`]; no devices in the experiment is a mistake of the caller.
pub fn plan(
    workload: &Workload,
    options: &PlanOptions,
    progress: &Progress,
) -> Result<Plan, SimError> {
    assert!(
        options.experiment.devices.is_some(),
        "time comes from devices"
    );
    let mut pools = options.pools.clone();
    pools.push(0);
    pools.sort_unstable();
    pools.dedup();
    let mut results = Vec::new();
    for frames in pools {
        let experiment = Experiment {
            capacities: options.flash.clone(),
            frames,
            bound: false,
            ..options.experiment.clone()
        };
        progress.done.store(0, Ordering::Relaxed);
        results.push(run(workload, &experiment, progress)?);
    }
    let policy = fastest(&options.experiment.policies, &results);
    let days = days(workload, options.experiment.warm_up);
    let seconds = days * SECONDS_PER_DAY;
    let tells_wear = seconds >= WEAR_SECONDS_MIN;
    let days = if tells_wear { days } else { 0.0 };
    let mut choices = Vec::new();
    for results in &results {
        let runs = results.runs.iter().filter(|run| run.policy == policy);
        let all = runs.chain([&results.base_only]);
        choices.extend(all.map(|run| choice(run, options, days)));
    }
    Ok(Plan {
        seconds,
        tells_wear,
        ..decide(policy, choices, options)
    })
}

/// Time of the counted part of the trace: the share of its duration that its requests have.
pub(crate) fn days(workload: &Workload, warm_up: u64) -> f64 {
    let facts = workload.facts();
    let counted = (facts.requests - warm_up) as f64 / facts.requests as f64;
    facts.duration_ms as f64 * counted / MS_PER_DAY
}

/// The policy with the highest product of I/Os per second.
fn fastest(policies: &[String], results: &[Results]) -> String {
    let score = |policy: &String| {
        let runs = results.iter().flat_map(|results| &results.runs);
        let of_policy = runs.filter(|run| run.policy == *policy);
        of_policy.map(|run| run.rate().ln()).sum::<f64>()
    };
    // The first named of equals.
    let best = policies.iter().rev();
    let best = best.max_by(|a, b| score(a).total_cmp(&score(b)));
    best.cloned().unwrap_or_default()
}

pub(crate) fn choice(run: &RunResult, options: &PlanOptions, days: f64) -> Choice {
    let page = u64::from(run.page_size);
    let flash_bytes = run.capacity_pages.saturating_mul(page);
    let pool_bytes = run.pool_pages.saturating_mul(page);
    // Without flash there is no map: the run without a tier has one of no slots.
    let metadata_bytes = match run.capacity_pages {
        0 => 0,
        _ => run.metadata_bytes,
    };
    let Prices {
        flash_per_gib,
        dram_per_gib,
    } = options.prices;
    let memory = (pool_bytes + metadata_bytes) as f64;
    let written = run.flash_writes.saturating_mul(page) as f64;
    let per_day = (days > 0.0).then(|| written / days);
    let Endurance {
        drive_writes_per_day,
        years,
    } = options.endurance;
    let rated = flash_bytes as f64 * drive_writes_per_day * DAYS_PER_YEAR * years;
    let written_a_year = per_day.map(|bytes| bytes * DAYS_PER_YEAR);
    Choice {
        flash_pages: run.capacity_pages,
        flash_bytes,
        pool_bytes,
        metadata_bytes,
        cost: (flash_bytes as f64 * flash_per_gib + memory * dram_per_gib) / GIB,
        ios_per_s: run.rate(),
        mean_io_ms: match run.ios {
            0 => 0.0,
            ios => f64::from(run.clients) * run.elapsed_ms / ios as f64,
        },
        read_hit_ratio: run.read_hit_ratio,
        flash_bytes_per_day: per_day,
        endurance_years: written_a_year
            .filter(|a_year| *a_year > 0.0)
            .map(|a_year| rated / a_year),
        ..Choice::default()
    }
}

pub(crate) fn decide(policy: String, mut choices: Vec<Choice>, options: &PlanOptions) -> Plan {
    choices.sort_by(|a, b| {
        let order = a.cost.total_cmp(&b.cost);
        order.then(b.ios_per_s.total_cmp(&a.ios_per_s))
    });
    let alone = choices
        .iter()
        .position(|c| c.flash_bytes + c.pool_bytes == 0);
    // Where something is free base alone is not first by cost.
    let alone = choices.remove(alone.unwrap_or(0));
    choices.insert(0, alone);
    let base = choices[0].ios_per_s;
    let mut best = 0.0;
    for choice in &mut choices {
        choice.speedup = choice.ios_per_s / base;
        choice.efficient = choice.ios_per_s > best;
        best = choice.ios_per_s.max(best);
    }
    let envelope = envelope(&choices);
    envelope.iter().for_each(|&at| choices[at].envelope = true);
    let (recommended, reason) = match options.target {
        Some(target) => reach(&choices, target),
        None => climb(&choices, &envelope, options.worth),
    };
    Plan {
        next: next(&choices, recommended),
        policy,
        prices: options.prices,
        endurance: options.endurance,
        options: choices,
        recommended,
        reason,
        seconds: 0.0,
        tells_wear: false,
    }
}

/// The upper concave hull of speed over cost: from one option the next is the steepest above.
fn envelope(choices: &[Choice]) -> Vec<usize> {
    let mut hull = vec![0];
    loop {
        let last = &choices[hull[hull.len() - 1]];
        let slope = |choice: &Choice| {
            let more = choice.cost - last.cost;
            let gain = choice.ios_per_s - last.ios_per_s;
            if more > 0.0 {
                gain / more
            } else {
                f64::INFINITY
            }
        };
        let faster = |&at: &usize| choices[at].efficient && choices[at].ios_per_s > last.ios_per_s;
        let above = (0..choices.len()).filter(faster);
        // Of equals the one furthest on.
        let next = above.max_by(|&a, &b| slope(&choices[a]).total_cmp(&slope(&choices[b])));
        match next {
            Some(next) => hull.push(next),
            None => return hull,
        }
    }
}

/// Up the envelope while it is worth it.
fn climb(choices: &[Choice], envelope: &[usize], worth: f64) -> (usize, Reason) {
    for step in envelope.windows(2) {
        let (from, to) = (&choices[step[0]], &choices[step[1]]);
        let gain = to.ios_per_s / from.ios_per_s;
        let doublings = match from.cost > 0.0 {
            true => (to.cost / from.cost).log2(),
            false => 1.0,
        };
        if gain.powf(1.0 / doublings.max(f64::MIN_POSITIVE)) < 1.0 + worth {
            let reason = if step[0] == 0 {
                Reason::Nothing
            } else {
                Reason::Knee
            };
            return (step[0], reason);
        }
    }
    match envelope.last() {
        Some(&last) if last > 0 => (last, Reason::Largest),
        _ => (0, Reason::Nothing),
    }
}

/// The cheapest option that reaches `target`, or the fastest.
fn reach(choices: &[Choice], target: Target) -> (usize, Reason) {
    let reaches = |choice: &Choice| match target {
        Target::Speedup(times) => choice.speedup >= times,
        Target::IosPerSecond(rate) => choice.ios_per_s >= rate,
        Target::MeanMs(ms) => choice.mean_io_ms <= ms,
    };
    if let Some(at) = choices.iter().position(reaches) {
        return (at, Reason::Target);
    }
    let fastest = choices.iter().rposition(|choice| choice.efficient);
    (fastest.unwrap_or(0), Reason::Missed)
}

/// The fastest option that costs more than option `at` and at most twice as much.
fn next(choices: &[Choice], at: usize) -> Option<usize> {
    let limit = 2.0 * choices[at].cost * (1.0 + 1e-9);
    let dearer = |&other: &usize| {
        let cost = choices[other].cost;
        cost > choices[at].cost && cost <= limit
    };
    let more = (0..choices.len()).filter(dearer);
    more.max_by(|&a, &b| choices[a].ios_per_s.total_cmp(&choices[b].ios_per_s))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(worth: f64, target: Option<Target>) -> PlanOptions {
        PlanOptions {
            experiment: Experiment::default(),
            flash: vec![],
            pools: vec![],
            prices: Prices {
                flash_per_gib: 1.0,
                dram_per_gib: 10.0,
            },
            endurance: Endurance {
                drive_writes_per_day: 1.0,
                years: 5.0,
            },
            worth,
            target,
        }
    }

    /// Options of these costs and speeds; the first is base alone.
    fn decided(points: &[(f64, f64)], worth: f64, target: Option<Target>) -> Plan {
        let choice = |(at, &(cost, ios_per_s)): (usize, &(f64, f64))| Choice {
            flash_bytes: at as u64,
            cost,
            ios_per_s,
            mean_io_ms: 1000.0 / ios_per_s,
            ..Choice::default()
        };
        let choices = points.iter().enumerate().map(choice).collect();
        decide("lru".into(), choices, &options(worth, target))
    }

    #[test]
    fn the_knee_is_where_a_doubling_gains_too_little() {
        let points = [
            (0.0, 100.0),
            (1.0, 200.0),
            (2.0, 300.0),
            (4.0, 312.0),
            (8.0, 315.0),
        ];
        let plan = decided(&points, 0.1, None);
        assert_eq!((plan.recommended, plan.reason), (2, Reason::Knee));
        assert_eq!(plan.next, Some(3));
        assert_eq!(plan.options[2].speedup, 3.0);
        let plan = decided(&points, 0.02, None);
        assert_eq!(plan.recommended, 3);
        let plan = decided(&points, 5.0, None);
        assert_eq!((plan.recommended, plan.reason), (0, Reason::Nothing));
        let plan = decided(&points[..3], 0.1, None);
        assert_eq!(
            (plan.recommended, plan.reason, plan.next),
            (2, Reason::Largest, None)
        );
    }

    #[test]
    fn a_cliff_behind_a_plateau_is_found() {
        // A loop: nothing helps until all of it fits.
        let points = [
            (0.0, 100.0),
            (1.0, 100.5),
            (2.0, 101.0),
            (4.0, 102.0),
            (8.0, 900.0),
        ];
        let plan = decided(&points, 0.1, None);
        assert_eq!(plan.recommended, 4);
        let on: Vec<bool> = plan.options.iter().map(|choice| choice.envelope).collect();
        assert_eq!(on, [true, false, false, false, true]);
    }

    #[test]
    fn what_is_slower_and_dearer_is_not_efficient() {
        let plan = decided(
            &[(0.0, 100.0), (3.0, 150.0), (2.0, 180.0), (5.0, 200.0)],
            0.1,
            None,
        );
        let efficient = plan.options.iter().map(|c| (c.cost, c.efficient));
        let expected = [(0.0, true), (2.0, true), (3.0, false), (5.0, true)];
        assert_eq!(efficient.collect::<Vec<_>>(), expected);
    }

    #[test]
    fn a_target_takes_the_cheapest_that_reaches_it() {
        let points = [(0.0, 100.0), (1.0, 200.0), (2.0, 300.0)];
        let reached = |target| {
            let plan = decided(&points, 0.1, Some(target));
            (plan.recommended, plan.reason)
        };
        assert_eq!(reached(Target::Speedup(1.5)), (1, Reason::Target));
        assert_eq!(reached(Target::IosPerSecond(201.0)), (2, Reason::Target));
        assert_eq!(reached(Target::MeanMs(10.0)), (0, Reason::Target));
        assert_eq!(reached(Target::Speedup(4.0)), (2, Reason::Missed));
    }

    #[test]
    fn money_and_wear_are_counted() {
        let run = RunResult {
            capacity_pages: 1 << 18,
            pool_pages: 1 << 17,
            page_size: 4096,
            metadata_bytes: 1 << 29,
            flash_writes: 1 << 19,
            ios: 1000,
            elapsed_ms: 2000.0,
            clients: 4,
            ios_per_s: Some(500.0),
            ..RunResult::default()
        };
        let choice = choice(&run, &options(0.1, None), 0.5);
        // 1 GiB of flash, half a GiB each of pool and metadata.
        assert_eq!((choice.flash_bytes, choice.cost), (1 << 30, 11.0));
        assert_eq!(choice.mean_io_ms, 8.0);
        // 2 GiB in half a day are four drive writes a day: a quarter of five years.
        assert_eq!(choice.flash_bytes_per_day, Some(4.0 * GIB));
        assert_eq!(choice.endurance_years, Some(1.25));
    }
}
