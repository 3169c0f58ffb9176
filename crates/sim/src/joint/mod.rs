//! DRAM pool and tier managed together, in write-back: the comparisons of thesis §6.5.
//!
//! Drives [`thermocline_core::Hierarchy`] itself: pool and tier policies, page cleaners, reserve,
//! destaging and the journal of the map are those of the live tier. Device time comes from the
//! models of [`crate::device`] in the closed loop of [`crate::closed_loop`].
//!
//! | module | holds |
//! |---|---|
//! | `combination` | a pool policy over a tier policy |
//! | `instant` | the state machine with I/O that takes no time |
//! | `bytes` | which version of a page is where: for tests |
//! | `journal` | what the map's journal and checkpoints would take |
//! | `flow`, `meter`, `result` | counting |

mod bytes;
mod combination;
mod flow;
mod instant;
mod journal;
mod meter;
mod result;
#[cfg(test)]
mod tests;

pub use bytes::{At, Bytes, Unfollowed};
pub use combination::{Combination, NO_TIER};
pub use flow::Flow;
pub use instant::{Instant, Served};
pub use result::{JointResult, ZoneCost};

use crate::closed_loop::ClosedLoop;
use crate::device::Devices;
use crate::error::SimError;
use crate::experiment::Progress;
use crate::meter::Layout;
use crate::parallel;
use crate::request::Kind;
use crate::workload::Workload;
use meter::Meter;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use thermocline_core::ObjectId;
use thermocline_core::hierarchy::{HierarchyOptions, Watermarks};
use thermocline_core::policy::PolicyOptions;

/// What to run over a workload.
#[derive(Clone, Debug)]
pub struct JointExperiment {
    /// Pool and tier policies.
    pub combinations: Vec<Combination>,
    /// Sizes of the database: different pages of the trace / pages of the tier.
    pub databases: Vec<f64>,
    /// Sizes of the pool: frames / pages of the tier.
    pub pools: Vec<f64>,
    /// Share of the tier set aside for dirty pages that the policy does not hold.
    pub reserve: f64,
    /// Whether a page there is weighed as one on flash.
    pub reserve_as_flash: bool,
    /// When dirty pages of flash are written to base.
    pub watermarks: Watermarks,
    /// Pages dirty in the pool for longer are written out, ms of the trace.
    pub recovery_age_ms: u64,
    /// Page requests that only warm up.
    pub warm_up: u64,
    /// Device models; without them nothing is said about time.
    pub devices: Option<Devices>,
    /// Clients of the closed loop.
    pub clients: u32,
    /// Transactions in the whole trace.
    pub transactions: Option<f64>,
    /// Sizes of eviction zones to count, per cent of the tier.
    pub zones: Vec<f64>,
    /// Parameters of the policies; capacity and costs are set by run.
    pub policy_options: PolicyOptions,
    /// Threads; 0 for as many as the machine has.
    pub threads: usize,
}

impl Default for JointExperiment {
    fn default() -> Self {
        Self {
            combinations: Vec::new(),
            databases: vec![0.8, 1.5, 3.0],
            pools: vec![0.1, 0.2, 0.4],
            reserve: 0.05,
            reserve_as_flash: false,
            watermarks: Watermarks::default(),
            recovery_age_ms: u64::MAX,
            warm_up: 0,
            devices: None,
            clients: 1,
            transactions: None,
            zones: Vec::new(),
            policy_options: PolicyOptions::new(0),
            threads: 0,
        }
    }
}

/// One run to do on its own: see [`run_each`].
#[derive(Clone, Debug)]
pub struct JointSetting {
    /// Pool and tier policies.
    pub combination: Combination,
    /// Pages of the tier: the policy's, the reserve's and those of pinned objects.
    pub tier_pages: u32,
    /// Frames of the pool.
    pub frames: u32,
    /// Objects that are wholly on flash from the beginning, and stay.
    pub pinned: Vec<ObjectId>,
    /// Objects that base alone serves.
    pub bypassed: Vec<ObjectId>,
}

/// Runs every combination at every size: by database, combination, pool. Same workload and
/// options, same results, whatever the threads.
///
/// # Errors
/// When a policy is unknown, the warm-up leaves nothing, or the traces cannot be read again.
pub fn run(
    workload: &Workload,
    experiment: &JointExperiment,
    progress: &Progress,
) -> Result<Vec<JointResult>, SimError> {
    let pages = workload.facts().distinct_pages as f64;
    let mut settings = Vec::new();
    let mut sizes = Vec::new();
    for &database in &experiment.databases {
        let tier_pages = (pages / database).max(2.0) as u32;
        for combination in &experiment.combinations {
            for &pool in &experiment.pools {
                settings.push(JointSetting {
                    combination: combination.clone(),
                    tier_pages,
                    frames: (f64::from(tier_pages) * pool) as u32,
                    pinned: Vec::new(),
                    bypassed: Vec::new(),
                });
                sizes.push((database, pool));
            }
        }
    }
    let mut results = run_each(workload, experiment, &settings, progress)?;
    for (result, (database, pool)) in results.iter_mut().zip(sizes) {
        (result.database, result.pool) = (database, pool);
    }
    Ok(results)
}

/// One run for each of `settings`, in order; combinations, databases and pools of `experiment` are
/// not used.
///
/// # Errors
/// As [`run`].
pub fn run_each(
    workload: &Workload,
    experiment: &JointExperiment,
    settings: &[JointSetting],
    progress: &Progress,
) -> Result<Vec<JointResult>, SimError> {
    let facts = workload.facts();
    if experiment.warm_up >= facts.requests {
        return Err(SimError::WarmUp {
            warm_up: experiment.warm_up,
            requests: facts.requests,
        });
    }
    let layout = Layout::new(&facts.extents, facts.page_size);
    let bench = Bench {
        workload,
        experiment,
        layout,
        sampled: sampled(workload, settings)?,
        progress,
    };
    let total = settings.len() as u64 * facts.requests;
    progress.total.store(total, Ordering::Relaxed);
    let results = parallel::each(settings, experiment.threads, |job| bench.run_one(job));
    results.into_iter().collect()
}

/// The pages of each pinned object that a sample has; nothing of a whole trace, of which all
/// pages of a pinned object are there.
fn sampled(
    workload: &Workload,
    settings: &[JointSetting],
) -> Result<BTreeMap<ObjectId, BTreeSet<u64>>, SimError> {
    let mut pages = BTreeMap::new();
    if workload.facts().share < 1.0 {
        let pinned = settings.iter().flat_map(|setting| &setting.pinned);
        pages = pinned.map(|object| (*object, BTreeSet::new())).collect();
    }
    if pages.is_empty() {
        return Ok(pages);
    }
    workload.for_each_chunk(|chunk, _| {
        for request in chunk.iter().filter(|request| request.kind() != Kind::Trim) {
            if let Some(of) = pages.get_mut(&request.object) {
                of.insert(request.index);
            }
        }
    })?;
    Ok(pages)
}

/// What all runs share.
struct Bench<'a> {
    workload: &'a Workload,
    experiment: &'a JointExperiment,
    layout: Layout,
    sampled: BTreeMap<ObjectId, BTreeSet<u64>>,
    progress: &'a Progress,
}

impl Bench<'_> {
    fn run_one(&self, job: &JointSetting) -> Result<JointResult, SimError> {
        let options = self.options(job);
        let unknown = |_| SimError::UnknownPolicy(job.combination.to_string());
        let mut instant = Instant::new(&options, &self.layout, Unfollowed).map_err(unknown)?;
        let experiment = self.experiment;
        let facts = self.workload.facts();
        let queues = experiment.devices.as_ref();
        let queues =
            queues.map(|devices| ClosedLoop::new(devices, experiment.clients, facts.page_size));
        for object in &job.pinned {
            match self.sampled.get(object) {
                Some(pages) => instant.keep(*object, pages.iter().copied()),
                None => instant.keep(*object, 0..facts.extents[object.0 as usize]),
            }
        }
        let mut meter = Meter::new(queues, experiment.warm_up, facts);
        self.workload.for_each_chunk(|chunk, hint_sets| {
            for request in chunk {
                let around = job.bypassed.contains(&request.object);
                if request.kind() == Kind::Trim {
                    if !around {
                        instant.trim(request);
                    }
                    continue;
                }
                meter.start(|| instant.flow());
                let served = match around {
                    true => instant.go_around(request),
                    false => instant.serve(request, &hint_sets[request.hints as usize]),
                };
                meter.count(request, served, |steps| instant.take_steps(steps));
            }
            let done = chunk.len() as u64;
            self.progress.done.fetch_add(done, Ordering::Relaxed);
        })?;
        let counted = meter.finish(&instant.flow());
        let mut result = self.blank(job, &options);
        result.dirty_in_pool = u64::from(instant.hierarchy().pool().dirty());
        result.dirty_on_flash = u64::from(instant.hierarchy().slots().dirty());
        let hierarchy = instant.hierarchy();
        let bytes = hierarchy.slots().bytes() + hierarchy.policy().bytes();
        result.metadata_bytes = bytes as u64;
        result.count(&counted, self.transactions());
        result.count_zones(&experiment.zones);
        Ok(result)
    }

    /// Transactions of the part that is counted: as large a share as it has of the requests.
    fn transactions(&self) -> Option<f64> {
        let requests = self.workload.facts().requests;
        let counted = requests - self.experiment.warm_up;
        let all = self.experiment.transactions;
        all.map(|all| all * counted as f64 / requests as f64)
    }

    /// Options of the hierarchy.
    fn options(&self, job: &JointSetting) -> HierarchyOptions {
        let facts = self.workload.facts();
        let tier = job.tier_pages;
        let none = job.combination.tier == NO_TIER;
        let number = |pages: u64| u32::try_from(pages).unwrap_or(u32::MAX);
        let taken = job.pinned.iter().map(|object| facts.pages_of(*object));
        let taken = number(taken.sum());
        // A sample may have more pages of an object than its share. All are on flash.
        let found = job.pinned.iter().filter_map(|of| self.sampled.get(of));
        let found = number(found.map(|pages| pages.len() as u64).sum());
        let reserve = match job.combination.back {
            true => (f64::from(tier) * self.experiment.reserve) as u32,
            false => 0,
        };
        let mut policy_options = self.experiment.policy_options.clone();
        policy_options.capacity = match none {
            true => 0,
            // A policy has a slot at least.
            false => tier.saturating_sub(reserve).saturating_sub(taken).max(1),
        };
        if let Some(devices) = &self.experiment.devices {
            policy_options.costs = devices.costs(facts.page_size);
        }
        // Without slots nothing is ever asked of the policy but to count.
        let policy = if none { "lru" } else { &job.combination.tier };
        let mut options = HierarchyOptions::new(policy, policy_options);
        options.frames = job.frames;
        options.keeps = if none { 0 } else { taken.max(found) };
        options.pool_policy.clone_from(&job.combination.pool);
        options.reserve = reserve;
        options.reserve_as_flash = self.experiment.reserve_as_flash;
        options.write_back = job.combination.back;
        options.buffers = none;
        options.watermarks = self.experiment.watermarks;
        options.recovery_age = self.experiment.recovery_age_ms;
        options
    }

    fn blank(&self, job: &JointSetting, options: &HierarchyOptions) -> JointResult {
        let tier_pages = match job.combination.tier == NO_TIER {
            true => 0,
            false => job.tier_pages,
        };
        JointResult {
            combination: job.combination.to_string(),
            write_back: options.write_back,
            tier_pages: u64::from(tier_pages),
            reserve_pages: u64::from(options.reserve),
            pool_pages: u64::from(options.frames),
            page_size: self.workload.facts().page_size,
            warm_up_requests: self.experiment.warm_up,
            clients: self.experiment.clients,
            ..JointResult::default()
        }
    }
}
