//! Every policy at every size, several at a time.

use crate::closed_loop::{ClosedLoop, Elapsed};
use crate::device::Devices;
use crate::error::SimError;
use crate::joint::JointExperiment;
use crate::meter::{Counted, Layout, Meter};
use crate::opt::{self, OPT_BYPASS, OptTier};
use crate::outlook::Outlook;
use crate::parallel;
use crate::placement::{Fixed, FixedTier};
use crate::request::Kind;
use crate::result::{LearnedRow, LearnedTable, LearnedType, RunResult, WorthRow, ratio};
use crate::split::Writes;
use crate::tier::{PolicyTier, Tier};
use crate::workload::{BYTES_PER_REQUEST, Workload};
use std::sync::atomic::{AtomicU64, Ordering};
use thermocline_core::hint::HINT_TYPES_MAX;
use thermocline_core::policy::{self, Learned, PolicyOptions};

/// The name of the run without a tier.
pub const NO_TIER: &str = "none";

/// What to run over a workload.
#[derive(Clone, Debug)]
pub struct Experiment {
    /// Policies by name (see [`opt::names`]).
    pub policies: Vec<String>,
    /// Sizes of the tier, pages.
    pub capacities: Vec<u32>,
    /// Frames of the DRAM pool; 0 for none.
    pub frames: u32,
    /// Page requests that only warm up.
    pub warm_up: u64,
    /// Device models; without them nothing is said about time.
    pub devices: Option<Devices>,
    /// Clients of the closed loop.
    pub clients: u32,
    /// Parameters of the policies; capacity, costs and admission on writes are set by run.
    pub policy_options: PolicyOptions,
    /// Take the memory of policy and slot map from the tier's capacity (thesis §3.4.1).
    pub charge_metadata: bool,
    /// Report what policies learned.
    pub learned: bool,
    /// Run the bound [`OPT_BYPASS`] for the share of OPT, when the workload is in memory.
    pub bound: bool,
    /// Share of the tier that is set aside for dirty pages where writes stay on flash: for advice.
    pub reserve: f64,
    /// Threads; 0 for as many as the machine has.
    pub threads: usize,
}

/// One run to do on its own: see [`run_each`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Setting {
    /// The policy, or [`NO_TIER`].
    pub policy: String,
    /// Size of the tier, pages, with what `fixed` takes of it.
    pub capacity: u32,
    /// Frames of the DRAM pool above it; what is fixed does not go through it.
    pub frames: u32,
    /// What the policy does not decide about.
    pub fixed: Fixed,
}

impl Default for Experiment {
    fn default() -> Self {
        Self {
            policies: Vec::new(),
            capacities: Vec::new(),
            frames: 0,
            warm_up: 0,
            devices: None,
            clients: 1,
            policy_options: PolicyOptions::new(0),
            charge_metadata: false,
            learned: false,
            bound: true,
            reserve: JointExperiment::default().reserve,
            threads: 0,
        }
    }
}

/// Page requests done by all runs together, for a progress bar.
#[derive(Debug, Default)]
pub struct Progress {
    /// Page requests done.
    pub done: AtomicU64,
    /// Page requests of all runs; 0 until that is known.
    pub total: AtomicU64,
}

/// What came out.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// One per policy and size: by size, then in the order the policies were named.
    pub runs: Vec<RunResult>,
    /// Base alone, below the same pool.
    pub base_only: RunResult,
    /// [`OPT_BYPASS`] at every size, when it was run.
    pub bound: Vec<RunResult>,
}

/// Runs the experiment. Same workload and options, same results, whatever the threads.
///
/// # Errors
/// When a policy is unknown, the warm-up leaves nothing, OPT's future is not in memory, or the
/// traces cannot be read again.
pub fn run(
    workload: &Workload,
    experiment: &Experiment,
    progress: &Progress,
) -> Result<Results, SimError> {
    check(workload, experiment)?;
    let outlook = Outlook::new(workload, experiment.frames);
    let facts = workload.facts();
    let bench = Bench {
        workload,
        experiment,
        outlook: outlook.as_ref(),
        layout: Layout::new(&facts.extents, facts.page_size),
        progress,
    };
    let jobs = bench.jobs();
    progress
        .total
        .store(jobs.len() as u64 * facts.requests, Ordering::Relaxed);
    let results = parallel::each(&jobs, experiment.threads, |job| bench.run_one(job));
    let mut results = results
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?
        .into_iter();
    let mut take = |count: usize| results.by_ref().take(count).collect::<Vec<_>>();
    let sizes = experiment.capacities.len();
    let runs = take(sizes * experiment.policies.len());
    let bound = take(jobs.len() - 1 - runs.len());
    let base_only = take(1);
    let mut results = Results {
        runs,
        bound,
        base_only: base_only.into_iter().next().ok_or(SimError::Nothing {
            bypassed: 0,
            ignored: 0,
        })?,
    };
    results.compare();
    Ok(results)
}

impl Results {
    /// Sets every run beside base only and beside the bound.
    fn compare(&mut self) {
        let base_ms = self.base_only.elapsed_ms;
        // Nothing is faster than base alone where that takes no time: the pool serves all.
        let speedup = |run: &RunResult| {
            (run.elapsed_ms > 0.0 && base_ms > 0.0).then(|| base_ms / run.elapsed_ms)
        };
        for run in self.runs.iter_mut().chain(&mut self.bound) {
            run.speedup = speedup(run);
        }
        self.base_only.speedup = speedup(&self.base_only);
        // Under a pool it is no bound: what leaves the pool may be admitted, by others than OPT.
        if self.base_only.pool_pages > 0 {
            return;
        }
        for run in &mut self.runs {
            let same = |bound: &&RunResult| bound.capacity_pages == run.capacity_pages;
            let bound = self.bound.iter().find(same);
            run.opt_share = bound.and_then(|bound| ratio(run.flash_reads, bound.flash_reads));
        }
        for run in &mut self.bound {
            run.opt_share = ratio(run.flash_reads, run.flash_reads);
        }
    }
}

fn check(workload: &Workload, experiment: &Experiment) -> Result<(), SimError> {
    let requests = workload.facts().requests;
    if experiment.warm_up >= requests {
        return Err(SimError::WarmUp {
            warm_up: experiment.warm_up,
            requests,
        });
    }
    for name in &experiment.policies {
        let known = policy::resolve(name, &experiment.policy_options).is_some();
        if !known && !opt::is_opt(name) {
            return Err(SimError::UnknownPolicy(name.clone()));
        }
        if opt::is_opt(name) && workload.decoded().is_none() {
            return Err(SimError::Future {
                policy: name.clone(),
                needed: requests.saturating_mul(BYTES_PER_REQUEST),
                requests,
            });
        }
    }
    Ok(())
}

/// Does each run of `settings`, of no offline policy; the experiment's own policies and sizes are
/// not used. Results come in the order of the settings, and are compared with nothing.
///
/// # Errors
/// As [`run`].
pub fn run_each(
    workload: &Workload,
    experiment: &Experiment,
    settings: &[Setting],
    progress: &Progress,
) -> Result<Vec<RunResult>, SimError> {
    check(workload, experiment)?;
    let facts = workload.facts();
    let bench = Bench {
        workload,
        experiment,
        outlook: None,
        layout: Layout::new(&facts.extents, facts.page_size),
        progress,
    };
    let jobs: Vec<Job> = settings.iter().map(Job::of).collect();
    let total = jobs.len() as u64 * facts.requests;
    progress.done.store(0, Ordering::Relaxed);
    progress.total.store(total, Ordering::Relaxed);
    let results = parallel::each(&jobs, experiment.threads, |job| bench.run_one(job));
    results.into_iter().collect()
}

/// One run to do.
struct Job<'a> {
    policy: &'a str,
    capacity: u32,
    frames: u32,
    fixed: Option<&'a Fixed>,
}

impl<'a> Job<'a> {
    fn of(setting: &'a Setting) -> Self {
        Self {
            policy: &setting.policy,
            capacity: setting.capacity,
            frames: setting.frames,
            fixed: Some(&setting.fixed).filter(|fixed| !fixed.is_empty()),
        }
    }
}

/// What all runs share.
struct Bench<'a> {
    workload: &'a Workload,
    experiment: &'a Experiment,
    outlook: Option<&'a Outlook<'a>>,
    layout: Layout,
    progress: &'a Progress,
}

impl Bench<'_> {
    fn jobs(&self) -> Vec<Job<'_>> {
        let experiment = self.experiment;
        let frames = experiment.frames;
        let mut jobs = Vec::new();
        for &capacity in &experiment.capacities {
            let policies = experiment.policies.iter();
            let fixed = None;
            jobs.extend(policies.map(|policy| Job {
                policy,
                capacity,
                frames,
                fixed,
            }));
        }
        if experiment.bound && self.outlook.is_some() {
            let policy = OPT_BYPASS;
            let capacities = experiment.capacities.iter();
            let fixed = None;
            jobs.extend(capacities.map(|&capacity| Job {
                policy,
                capacity,
                frames,
                fixed,
            }));
        }
        jobs.push(Job {
            policy: NO_TIER,
            capacity: 0,
            frames,
            fixed: None,
        });
        jobs
    }

    fn run_one(&self, job: &Job) -> Result<RunResult, SimError> {
        let charged = match self.experiment.charge_metadata && !opt::is_opt(job.policy) {
            true => self.metadata_pages(job)?,
            false => 0,
        };
        let fixed = job
            .fixed
            .map_or(0, |fixed| fixed.pages(self.workload.facts()));
        let fixed = u32::try_from(fixed).unwrap_or(u32::MAX);
        let slots = job.capacity.saturating_sub(charged).saturating_sub(fixed);
        let mut result = self.blank(job, slots);
        let counted = match self.outlook.filter(|_| opt::is_opt(job.policy)) {
            Some(outlook) => {
                let on_write = self.admits_on_write();
                let mut tier = OptTier::new(outlook, job.policy, slots, on_write);
                let counted = self.drive(&mut tier, true)?;
                result.metadata_bytes = tier.bytes() as u64;
                counted
            }
            None => {
                let (tier, counted) = self.drive_policy(job, slots)?;
                result.metadata_bytes = tier.bytes() as u64;
                let learned = tier.policy().learned().filter(|_| self.experiment.learned);
                result.learned = learned.map(|learned| self.name(&learned));
                counted
            }
        };
        self.fill(&mut result, counted);
        Ok(result)
    }

    /// The policy's run, beside what is fixed.
    fn drive_policy(&self, job: &Job, slots: u32) -> Result<(PolicyTier, Counted), SimError> {
        let mut tier = self.tier(job, slots)?;
        let Some(fixed) = job.fixed else {
            let counted = self.drive(&mut tier, true)?;
            return Ok((tier, counted));
        };
        let objects = self.workload.facts().extents.len();
        let mut tier = FixedTier::new(tier, fixed, objects);
        let counted = self.drive(&mut tier, true)?;
        Ok((tier.into_inner(), counted))
    }

    fn admits_on_write(&self) -> bool {
        self.workload.options().writes == Writes::Allocate
    }

    fn tier(&self, job: &Job, slots: u32) -> Result<PolicyTier, SimError> {
        let page_size = self.workload.facts().page_size;
        let mut options = self.experiment.policy_options.clone();
        options.capacity = slots;
        options.admit_on_write = self.admits_on_write();
        if let Some(devices) = &self.experiment.devices {
            options.costs = devices.costs(page_size);
        }
        // Without slots nothing is ever asked of the policy but to count.
        let policy = job.policy;
        let name = if policy == NO_TIER { "lru" } else { policy };
        let built = policy::build(name, &options);
        let built = built.ok_or_else(|| SimError::UnknownPolicy(policy.to_string()))?;
        Ok(PolicyTier::new(built, slots, job.frames))
    }

    /// Pages' worth of memory that decisions take at full size, found by a run of its own.
    fn metadata_pages(&self, job: &Job) -> Result<u32, SimError> {
        let mut tier = self.tier(job, job.capacity)?;
        self.drive(&mut tier, false)?;
        let page_size = self.workload.facts().page_size as usize;
        Ok(u32::try_from(tier.bytes().div_ceil(page_size)).unwrap_or(u32::MAX))
    }

    /// Puts the whole workload through `tier`.
    fn drive<T: Tier>(&self, tier: &mut T, timed: bool) -> Result<Counted, SimError> {
        let facts = self.workload.facts();
        let devices = self.experiment.devices.as_ref().filter(|_| timed);
        let clients = self.experiment.clients;
        let queues = devices.map(|devices| ClosedLoop::new(devices, clients, facts.page_size));
        let warm_up = self.experiment.warm_up;
        let mut meter = Meter::new(&self.layout, queues, warm_up, facts.requests, facts.clients);
        let mut at = 0;
        self.workload.for_each_chunk(|chunk, hint_sets| {
            for request in chunk {
                if request.kind() == Kind::Trim {
                    tier.trim(at, request);
                } else {
                    let hints = &hint_sets[request.hints as usize];
                    let effect = tier.serve(at, request, hints);
                    let client = hints.client().saturating_sub(1) as usize;
                    meter.count(request, effect, client);
                }
                at += 1;
            }
            self.progress
                .done
                .fetch_add(chunk.len() as u64, Ordering::Relaxed);
        })?;
        Ok(meter.finish())
    }

    fn blank(&self, job: &Job, slots: u32) -> RunResult {
        let facts = self.workload.facts();
        RunResult {
            policy: job.policy.to_string(),
            capacity_pages: u64::from(job.capacity),
            slots: u64::from(slots),
            pool_pages: u64::from(job.frames),
            page_size: facts.page_size,
            distinct_pages: facts.distinct_pages,
            warm_up_requests: self.experiment.warm_up,
            clients: self.experiment.clients,
            ..RunResult::default()
        }
    }

    fn fill(&self, result: &mut RunResult, counted: Counted) {
        result.count(&counted.totals);
        result.samples = counted.samples;
        result.sample_ms = counted
            .sample_ns
            .iter()
            .map(|ns| *ns as f64 / 1e6)
            .collect();
        result.by_object = counted.objects;
        if self.workload.facts().clients > 1 {
            result.by_client = counted.clients;
            for (of, number) in result.by_client.iter_mut().zip(1..) {
                of.name = self.workload.client_name(number);
            }
        }
        if let Some(elapsed) = counted.elapsed {
            time(result, &elapsed);
        }
    }

    fn name(&self, learned: &Learned) -> LearnedTable {
        let describe = |hints: &thermocline_core::HintSet| {
            let known = (0..HINT_TYPES_MAX).filter(|&at| hints.get(at) != 0);
            let named = known.map(|at| {
                let name = self.workload.type_name(hints, at);
                format!("{name}={}", self.workload.value_name(hints, at))
            });
            named.collect::<Vec<_>>().join(" ")
        };
        let row = |set: &policy::LearnedHintSet| LearnedRow {
            hints: describe(&set.hints),
            client: set.hints.client(),
            requests: set.requests,
            rereads: set.rereads,
            distance: set.distance,
            priority: set.priority,
            resident: set.resident,
        };
        let worth = |of: &policy::LearnedWorth| WorthRow {
            hints: describe(&of.hints),
            client: of.hints.client(),
            age: of.age,
            worth: of.worth,
            samples: of.samples,
        };
        let any = self
            .workload
            .hint_sets()
            .first()
            .copied()
            .unwrap_or_default();
        let hint_type = |learned: &policy::LearnedHintType| LearnedType {
            name: self.workload.type_name(&any, learned.position),
            impurity: learned.impurity,
            used: learned.used,
        };
        LearnedTable {
            windows: learned.windows,
            window: learned.window,
            hint_sets: learned.hint_sets.iter().map(row).collect(),
            hint_types: learned.hint_types.iter().map(hint_type).collect(),
            worth: learned.worth.iter().map(worth).collect(),
            race: learned.race.as_ref().map(Into::into),
        }
    }
}

fn time(result: &mut RunResult, elapsed: &Elapsed) {
    let ms = |ns: u64| ns as f64 / 1e6;
    result.base_device_ms = ms(elapsed.base_busy_ns);
    result.flash_device_ms = ms(elapsed.flash_busy_ns);
    result.device_ms = result.base_device_ms + result.flash_device_ms;
    result.elapsed_ms = ms(elapsed.ns);
    result.base_ios = elapsed.base_ios;
    let seconds = elapsed.ns as f64 / 1e9;
    result.ios_per_s = (elapsed.ns > 0).then(|| result.ios as f64 / seconds);
}
