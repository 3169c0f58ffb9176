//! Advice on a tier from what was recorded: size, policy, what to pin, what to leave out.
//!
//! Every line of the advice is a pair of [`State`]s, *now* and *then*, and both were simulated on
//! the trace. The *gain* is the part of the virtual time that goes (closed loop, device models).
//! Lines are what is worth simulating; what they say comes from the run and from nothing else:
//!
//! - *Size*: the sizes asked for, under the policy there is; chosen as [`plan`](mod@crate::plan)
//!   does, while a doubling of the cost gains at least `worth`.
//! - *Policy*: the fastest of those named, at the size there is or that was advised.
//! - *Pin*: objects with the most time still lost on base per page, each tried.
//! - *Bypass*: objects with the most flash writes beyond their hits, each tried.
//! - *Memory*: what the same money would gain as buffers of the database: a pool above what was.
//! - *Write-back*: what it would gain if writes stayed on flash; both modes are run by [`joint`],
//!   which drives the live tier's own state machine, with no pool but the mount's own, which passes
//!   writes on at once, as syncs would have it. Where they stay there already,
//!   all states are run so, and nothing is said of memory: a pool that absorbs writes would stand
//!   for buffers that the database's log lets it keep dirty, which nobody recorded.
//!
//! A size, a policy or a pin is advised only where its gain is above its uncertainty, and above
//! [`GAIN_MIN`]; a bypass where it saves writes and costs next to no time. Lines influence each
//! other, so each was found and run on what the lines before it lead to; memory is instead of the
//! size, and write-back beside the pins and bypasses. [`Advice::together`] is all the others.
//!
//! *Uncertainty* ([`Gain`]): the trace is cut into [`BLOCKS`] blocks of time; how much the gain
//! differs between them, and between the halves of the trace, says how far that of another period
//! as long may be from this one (95 %). That holds where the load goes on as it was; a new kind of
//! load is not in the trace.

mod gain;
mod lines;
mod sample;

pub use gain::{BLOCKS, Gain};

use crate::error::SimError;
use crate::experiment::{Experiment, NO_TIER, Progress, Setting, run_each};
use crate::joint::{self, Combination, JointExperiment, JointResult, JointSetting};
use crate::placement::{self, Fixed, ObjectProfile};
use crate::plan::{Endurance, Plan, Prices};
use crate::result::RunResult;
use crate::workload::Workload;
use lines::Adviser;
use sample::Scale;
use serde::{Deserialize, Serialize};
use thermocline_core::ObjectId;

/// Page reads after the warm-up that advice needs at least.
pub const READS_MIN: u64 = 10_000;
/// The least gain that is worth a line, per cent.
pub const GAIN_MIN: f64 = 1.0;
/// Seconds of a trace below which nothing is said about wear.
pub const WEAR_SECONDS_MIN: f64 = 60.0;

/// A tier as it is or as it would be.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct State {
    /// Its size, bytes; 0 for no tier.
    pub flash_bytes: u64,
    /// Its policy.
    pub policy: String,
    /// Memory above the tier, bytes: the mount's own pool, and what the database's buffers have
    /// beyond what they had.
    pub memory_bytes: u64,
    /// Objects that are wholly on flash, by [`ObjectProfile::path`].
    pub pinned: Vec<String>,
    /// Objects that are never on flash.
    pub bypassed: Vec<String>,
    /// Whether writes stay on flash.
    #[serde(default)]
    pub write_back: bool,
}

/// What a line is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Kind {
    /// How large the tier is.
    Size,
    /// Which policy it has.
    Policy,
    /// An object to keep on flash.
    Pin,
    /// An object to keep off flash.
    Bypass,
    /// Memory for the database instead of flash.
    Memory,
    /// Writes to flash first, to base later.
    #[serde(rename = "WRITE-BACK")]
    WriteBack,
}

/// One piece of advice.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// The same advice has the same id in another run.
    pub id: String,
    /// What it is about.
    pub kind: Kind,
    /// What it starts from.
    pub now: State,
    /// What it leads to.
    pub then: State,
    /// The virtual time that goes.
    pub gain: Gain,
    /// Bytes per page.
    pub page_size: u64,
    /// Money for what is to be bought.
    pub cost: f64,
    /// The object of a pin or a bypass.
    pub object: Option<ObjectProfile>,
    /// The object that loses most, and by which part of the virtual time of reads.
    pub loser: Option<(String, f64)>,
    /// Pages written to flash: 0.1 is a tenth more than now; none where nothing was written.
    pub more_flash_writes: Option<f64>,
    /// Years the flash lasts, now and then; none where nothing is said.
    pub years: [Option<f64>; 2],
    /// Bytes that only flash has at the end, in write-back.
    pub dirty_bytes: Option<u64>,
    /// Requests to base per second of the trace that go; none where the trace has no time.
    pub base_requests_saved: Option<f64>,
}

/// What to advise on.
#[derive(Clone, Debug)]
pub struct Question {
    /// Devices, clients, warm-up; its policies and sizes are not used.
    pub experiment: Experiment,
    /// The tier there is.
    pub now: State,
    /// Sizes to try, pages.
    pub sizes: Vec<u32>,
    /// Policies to try.
    pub policies: Vec<String>,
    /// Prices.
    pub prices: Prices,
    /// The rating of the flash drive.
    pub endurance: Endurance,
    /// The least gain that a doubling of the cost is worth.
    pub worth: f64,
}

/// One way to use the same flash, for comparison.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Placement {
    /// What it is called.
    pub name: String,
    /// Flash it fills or may fill, bytes.
    pub flash_bytes: u64,
    /// Virtual time it saves against base alone.
    pub gain: Gain,
    /// The objects it puts wholly on flash, by [`ObjectProfile::path`].
    pub objects: Vec<String>,
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Advice {
    /// The lines; the first is the first to follow.
    pub lines: Vec<Line>,
    /// All lines but those of memory and write-back, where there is more than one.
    pub together: Option<Gain>,
    /// All sizes under the policy there is.
    pub plan: Plan,
    /// Virtual time saved by size against base alone.
    pub sizes: Vec<(u64, Gain)>,
    /// Whole objects and parts of objects instead of a cache, at the size of the lines.
    pub placements: Vec<Placement>,
    /// Whether the trace is long enough to say anything of wear.
    pub tells_wear: bool,
    /// All objects.
    pub profiles: Vec<ObjectProfile>,
}

/// Advises. Same workload and question, same advice.
///
/// # Errors
/// As [`run_each`]; [`SimError::Evidence`] when the trace is too short for advice.
pub fn advise(
    workload: &Workload,
    question: &Question,
    progress: &Progress,
) -> Result<Advice, SimError> {
    evidence(workload, question.experiment.warm_up)?;
    let facts = workload.facts();
    if facts.share == 1.0 {
        return Adviser::new(workload, question, progress)?.advise();
    }
    let scale = Scale::new(facts, question.now.flash_bytes);
    let asked = scale.question(question);
    let advice = Adviser::new(workload, &asked, progress)?.advise()?;
    Ok(scale.advice(question, advice))
}

/// The same advice has the same id in another run.
fn id(kind: Kind, then: &State, object: Option<&ObjectProfile>) -> String {
    let subject = match (object, kind) {
        (Some(row), _) => row.path.clone(),
        (None, Kind::Policy | Kind::WriteBack) => then.policy.clone(),
        (None, Kind::Memory) => then.memory_bytes.to_string(),
        (None, _) => then.flash_bytes.to_string(),
    };
    let word = match kind {
        Kind::WriteBack => "write-back".to_string(),
        kind => format!("{kind:?}").to_lowercase(),
    };
    format!("{word}:{subject}")
}

/// The gain that following `now` to `then` has on `workload`, and the runs of both.
///
/// # Errors
/// As [`advise`]; [`SimError::NoObject`] when a state names an object that the trace has not.
pub fn follow(
    workload: &Workload,
    experiment: &Experiment,
    now: &State,
    then: &State,
    progress: &Progress,
) -> Result<Gain, SimError> {
    evidence(workload, experiment.warm_up)?;
    let rows = placement::profile(workload)?;
    let scale = Scale::new(workload.facts(), now.flash_bytes);
    let [now, then] = &[now, then].map(|state| scale.state_of_sample(state));
    let by = Simulator::of(&[now, then]);
    let runs = run_states(workload, experiment, &rows, &[now, then], by, progress)?;
    Ok(Gain::between(&runs[0], &runs[1]))
}

/// What runs states. Only what the same one ran is compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Simulator {
    /// The tier in write-through: [`run_each`].
    Through,
    /// The state machine of the live tier, in the mode of each state: [`joint`].
    Joint,
}

impl Simulator {
    /// The one that can run all of `states`.
    fn of(states: &[&State]) -> Self {
        match states.iter().any(|state| state.write_back) {
            true => Self::Joint,
            false => Self::Through,
        }
    }
}

/// A joint run in the words of the others.
fn plain(state: &State, joint: JointResult) -> RunResult {
    let seconds = joint.elapsed_ms / 1e3;
    RunResult {
        policy: state.policy.clone(),
        capacity_pages: joint.tier_pages,
        pool_pages: joint.pool_pages,
        page_size: joint.page_size,
        warm_up_requests: joint.warm_up_requests,
        requests: joint.requests,
        reads: joint.reads,
        writes: joint.writes,
        flash_reads: joint.flash_reads,
        flash_writes: joint.flash_writes,
        base_reads: joint.base_reads,
        base_writes: joint.base_writes,
        ios: joint.ios,
        ios_per_s: (seconds > 0.0).then(|| joint.ios as f64 / seconds),
        clients: joint.clients,
        elapsed_ms: joint.elapsed_ms,
        metadata_bytes: joint.metadata_bytes,
        dirty_bytes: joint.dirty_on_flash * u64::from(joint.page_size),
        // No samples: the times begin where the warm-up ends.
        sample_ms: joint.ends_ms,
        by_object: joint.by_object,
        base_ios: joint.base_ios,
        ..RunResult::default()
    }
}

/// Whether there is enough to advise on.
fn evidence(workload: &Workload, warm_up: u64) -> Result<(), SimError> {
    let facts = workload.facts();
    let counted = facts.requests.saturating_sub(warm_up) as f64 / facts.requests as f64;
    let reads = (facts.reads as f64 * counted) as u64;
    if reads < READS_MIN {
        return Err(SimError::Evidence {
            reads,
            needed: READS_MIN,
            seconds: facts.duration_ms as f64 / 1e3,
        });
    }
    Ok(())
}

/// A run of each state, in order.
fn run_states(
    workload: &Workload,
    experiment: &Experiment,
    rows: &[ObjectProfile],
    states: &[&State],
    by: Simulator,
    progress: &Progress,
) -> Result<Vec<RunResult>, SimError> {
    if by == Simulator::Joint {
        return run_joint(workload, experiment, rows, states, progress);
    }
    let page_size = workload.facts().page_size;
    let setting = |state: &&State| {
        Ok(Setting {
            policy: policy(state),
            capacity: pages(state.flash_bytes, page_size),
            frames: pages(state.memory_bytes, page_size),
            fixed: Fixed {
                pinned: objects(rows, &state.pinned)?,
                bypassed: objects(rows, &state.bypassed)?,
                ..Fixed::default()
            },
        })
    };
    let settings: Result<Vec<Setting>, SimError> = states.iter().map(setting).collect();
    run_each(workload, experiment, &settings?, progress)
}

fn run_joint(
    workload: &Workload,
    experiment: &Experiment,
    rows: &[ObjectProfile],
    states: &[&State],
    progress: &Progress,
) -> Result<Vec<RunResult>, SimError> {
    let page_size = workload.facts().page_size;
    let setting = |state: &&State| {
        Ok(JointSetting {
            combination: Combination {
                pool: "lru".into(),
                tier: policy(state),
                back: state.write_back && state.flash_bytes > 0,
            },
            tier_pages: pages(state.flash_bytes, page_size),
            frames: pages(state.memory_bytes, page_size),
            pinned: objects(rows, &state.pinned)?,
            bypassed: objects(rows, &state.bypassed)?,
        })
    };
    let settings: Result<Vec<JointSetting>, SimError> = states.iter().map(setting).collect();
    let experiment = JointExperiment {
        warm_up: experiment.warm_up,
        devices: experiment.devices.clone(),
        clients: experiment.clients,
        policy_options: experiment.policy_options.clone(),
        reserve: experiment.reserve,
        // Syncs are not in a run, and each would empty the mount's own pool of dirty pages.
        recovery_age_ms: 0,
        threads: experiment.threads,
        ..JointExperiment::default()
    };
    let runs = joint::run_each(workload, &experiment, &settings?, progress)?;
    let runs = states.iter().zip(runs);
    Ok(runs.map(|(state, run)| plain(state, run)).collect())
}

fn policy(state: &State) -> String {
    match state.flash_bytes {
        0 => NO_TIER.into(),
        _ => state.policy.clone(),
    }
}

fn pages(bytes: u64, page_size: u32) -> u32 {
    u32::try_from(bytes / u64::from(page_size)).unwrap_or(u32::MAX)
}

/// The objects of these names.
fn objects(rows: &[ObjectProfile], names: &[String]) -> Result<Vec<ObjectId>, SimError> {
    let find = |name: &String| {
        let row = rows.iter().find(|row| row.path == *name);
        let missing = || SimError::NoObject(name.clone());
        row.map(|row| row.object).ok_or_else(missing)
    };
    names.iter().map(find).collect()
}
