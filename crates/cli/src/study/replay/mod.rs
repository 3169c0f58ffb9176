//! `replay`: a trace's requests done on real files through the live engine, and timed.
//!
//! The method of the TAC paper (VLDB 2010 §4.1): the same requests, one policy after another,
//! each with a cold tier; what counts is how long they take.

mod drive;
mod files;

use crate::failure::{Code, Failure, Outcome};
use crate::serve::signals::Signals;
use crate::show::status;
use crate::show::table::Table;
use crate::study::modelled::{self, Bar, Reading};
use crate::study::parameters::{self, ParameterArgs, changed};
use crate::study::simulate::{TierSize, WriteMode};
use crate::units::{show_bytes, show_count, show_nanoseconds, show_share};
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum, ValueHint};
use drive::Measured;
use files::{BaseFiles, Layout};
use std::fmt::Write;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thermocline::config::CostSettings;
use thermocline_core::HintSet;
use thermocline_core::model::Model;
use thermocline_core::policy::PolicyOptions;
use thermocline_mount::raise_open_files;
use thermocline_sim::request::Kind;
use thermocline_sim::{PageRequest, Workload};

/// The policy that is no tier.
const NO_TIER: &str = "none";

/// Shown at the end of `replay --help`.
pub(crate) const EXAMPLES: &str = "\
Examples:
  Does the tier help on this machine's disks?
    thermocline replay tpcc.parquet --directory /disk/replay --cache /ssd/replay.cache --size 10%
  Four clients, under other policies:
    thermocline replay tpcc.parquet --directory /disk/replay --cache /ssd/replay.cache \\
      --size 2GiB --policy none,arc,clic --threads 4
  On an emulated hard disk, whose time is added up instead of waited for:
    thermocline replay tpcc.parquet --directory /tmp/replay --cache /tmp/replay.cache \\
      --size 10% --emulate-base hdd

Files as long as the trace's objects are made in --directory and removed afterwards; a directory
with anything else in it is refused. Every policy starts with a cold tier. Base is read past the
page cache. docs/simulator.md says what is measured.";

/// `thermocline replay`.
#[derive(Args, Debug)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    pub(crate) reading: Reading,
    /// Directory for the base files, on the bulk storage: new or empty; what is made there is
    /// removed afterwards
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) directory: PathBuf,
    /// File for the tier, on flash; it is made for every policy and removed
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) cache: Option<PathBuf>,
    /// Size of the tier: a share of the trace's different pages (5%), bytes (2GiB) or pages
    /// (4096p), of which some hold the map
    #[arg(long)]
    pub(crate) size: Option<TierSize>,
    /// Policies, one after another; "none" is base alone
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "none,lru,tac,auto",
          value_parser = PossibleValuesParser::new(parameters::names().chain([NO_TIER])))]
    pub(crate) policy: Vec<String>,
    #[command(flatten)]
    pub(crate) parameters: ParameterArgs,
    /// Memory for a pool of pages above the tier, written as a size of the tier
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub(crate) pool: TierSize,
    /// Clients: threads that each do an I/O, then take the next of the trace
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub(crate) threads: u32,
    /// When an I/O is done
    #[arg(long, value_enum, default_value_t)]
    pub(crate) speed: Speed,
    /// Base files with bytes in them, or as holes, which are made at once but read faster
    #[arg(long, value_enum, default_value_t)]
    pub(crate) prepare: Prepare,
    /// Leave the base files for the next replay of the same trace
    #[arg(long)]
    pub(crate) keep: bool,
    /// Slow base down to an emulated device. One client at full speed does not wait for it: its
    /// time is added up
    #[arg(long, value_name = "DEVICE", value_parser = PossibleValuesParser::new(Model::PRESETS))]
    pub(crate) emulate_base: Option<String>,
    /// What policies that weigh costs take base to be: a device as in simulate --base, or a
    /// configuration file that `thermocline calibrate` wrote
    #[arg(long, value_name = "DEVICE|FILE", default_value = "hdd",
          value_hint = ValueHint::AnyPath)]
    pub(crate) costs: String,
    /// Check every page read
    #[arg(long)]
    pub(crate) verify: bool,
    /// After every I/O wait, off the clock, until what goes to flash is there: decisions are
    /// then those of simulate
    #[arg(long, conflicts_with = "speed")]
    pub(crate) settle: bool,
    /// Seed of the policies that draw lots
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print the results as JSON: an array of one object for each policy
    #[arg(long)]
    pub(crate) json: bool,
}

/// `--speed`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Speed {
    /// As soon as a client is free
    #[default]
    Closed,
    /// Not before the time it has in the trace
    Recorded,
}

/// `--prepare`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Prepare {
    /// Bytes are written
    #[default]
    Fill,
    /// Holes
    Sparse,
}

/// Everything the runs have in common.
struct Replay<'a> {
    layout: &'a Layout,
    files: &'a BaseFiles,
    requests: &'a [PageRequest],
    hint_sets: &'a [HintSet],
    /// Where each I/O or trim begins among the requests.
    starts: Vec<u32>,
    cache: Option<PathBuf>,
    flash_bytes: u64,
    pool_bytes: u64,
    admit_on_write: bool,
    seed: u64,
    costs: CostSettings,
    policy_options: PolicyOptions,
    threads: u32,
    emulated: Option<Model>,
    /// I/Os wait for their time in the trace.
    recorded: bool,
    settle: bool,
    verify: bool,
    /// A signal asked for the end.
    ended: Arc<AtomicBool>,
}

impl Replay<'_> {
    /// Whether base's time is added up instead of waited for.
    fn virtual_time(&self) -> bool {
        self.emulated.is_some() && self.threads == 1 && !self.recorded
    }
}

/// Replays and prints.
pub(crate) fn run(args: &ReplayArgs) -> Outcome {
    check(args)?;
    let policy_options = args.parameters.options()?;
    let policies = args.parameters.beside(args.policy.clone(), |name| name)?;
    let workload = args.reading.open()?;
    let facts = workload.facts();
    let layout = Layout {
        page_size: facts.page_size,
        extents: facts.extents.clone(),
        filled: args.prepare == Prepare::Fill,
    };
    files::check(&layout)?;
    let Some(requests) = workload.decoded() else {
        let fact = "the trace does not fit into --memory, and replay needs it there";
        return Err(Failure::usage(fact).advise("more --memory"));
    };
    let (flash_bytes, pool_bytes) = (size(args, &workload)?, pool(args, &workload)?);
    let costs = costs(args, facts.page_size)?;
    enough_open_files(layout.extents.len(), raise_open_files()?)?;
    let ended = watched_end()?;
    let files = BaseFiles::prepare(&args.directory, &layout, args.keep, &ended)?;
    let replay = Replay {
        layout: &layout,
        files: &files,
        requests,
        hint_sets: workload.hint_sets(),
        starts: starts(requests),
        cache: args.cache.clone(),
        flash_bytes,
        pool_bytes,
        admit_on_write: args.reading.writes == WriteMode::Allocate,
        seed: args.seed,
        costs,
        policy_options,
        threads: args.threads,
        emulated: args.emulate_base.as_deref().and_then(Model::preset),
        recorded: args.speed == Speed::Recorded,
        settle: args.settle,
        verify: args.verify,
        ended,
    };
    let mut runs = Vec::new();
    for policy in &policies {
        let template = "{wide_bar} {percent} % {human_pos} I/Os, {eta} left";
        let bar = Bar::new(policy, template, replay.starts.len() as u64);
        let tier = (policy != NO_TIER).then_some(policy.as_str());
        let run = drive::run(&replay, tier, &bar);
        runs.push(run?);
    }
    compare(&mut runs);
    match args.json {
        true => modelled::print_json(&runs)?,
        false => status::print(&text(args, &workload, &replay, &runs))?,
    }
    for run in &runs {
        if let Some(why) = &run.off {
            let policy = &run.policy;
            eprintln!("{policy}: the tier went off, base served the rest: {why}");
        }
    }
    intact(&runs)
}

/// Descriptors for all but base files: standard streams, the cache, what the engine watches.
const OTHER_FILES: u64 = 64;

/// Refuses more files than may be open at once: each is opened for as long as a run takes.
fn enough_open_files(files: usize, limit: u64) -> Outcome {
    let needed = files as u64 + OTHER_FILES;
    if needed <= limit {
        return Ok(());
    }
    let fact = format!("{files} objects need as many open files, and the limit is {limit}");
    Err(Failure::usage(fact).advise(format!("a higher limit: ulimit -n {needed}")))
}

/// Becomes true when a signal asks for the end. It comes after the I/Os under way.
fn watched_end() -> Result<Arc<AtomicBool>, Failure> {
    let ended = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&ended);
    Signals::block()?.watch(move |_| seen.store(true, Ordering::Relaxed))?;
    Ok(ended)
}

/// What a replay says that a signal ended.
fn ended() -> Failure {
    Failure::new(
        Code::Failure,
        "ended by a signal; what it made was removed, but for base files with --keep",
    )
}

fn check(args: &ReplayArgs) -> Outcome {
    let tier = args.policy.iter().any(|policy| policy != NO_TIER);
    if tier && (args.cache.is_none() || args.size.is_none()) {
        return Err(Failure::usage("a tier needs --cache and --size")
            .advise("--cache FILE --size SIZE, or --policy none"));
    }
    if args.settle && args.threads > 1 {
        return Err(Failure::usage("--settle is for one client").advise("--threads 1"));
    }
    Ok(())
}

fn size(args: &ReplayArgs, workload: &Workload) -> Result<u64, Failure> {
    let facts = workload.facts();
    let pages = args
        .size
        .as_ref()
        .map(|size| modelled::pages("--size", size, facts));
    let pages = pages.transpose()?.unwrap_or(0);
    let tiers = args.policy.iter().filter(|name| *name != NO_TIER);
    let tiers: Vec<String> = tiers.cloned().collect();
    // One after another; the engine bounds what a policy learns.
    modelled::fits("--size", &tiers, &[pages], Some(0), 1)
        .map_err(|failure| failure.advise("a smaller size, or larger pages"))?;
    Ok(u64::from(pages) * u64::from(facts.page_size))
}

fn pool(args: &ReplayArgs, workload: &Workload) -> Result<u64, Failure> {
    let facts = workload.facts();
    let pages = args.pool.pages(facts.distinct_pages, facts.page_size);
    let pages = pages.ok_or_else(|| {
        Failure::usage(format!("--pool {} is too large", args.pool)).advise("a smaller pool")
    })?;
    Ok(u64::from(pages) * u64::from(facts.page_size))
}

/// What the policies are told about costs: the same as in a simulation.
fn costs(args: &ReplayArgs, page_size: u32) -> Result<CostSettings, Failure> {
    let costs = modelled::devices(&args.costs, "ssd", page_size)?.costs(page_size);
    Ok(CostSettings {
        base_random_read_us: costs.base_random_read / 1e3,
        base_sequential_read_us: costs.base_sequential_read / 1e3,
        base_random_write_us: costs.base_random_write / 1e3,
        flash_read_us: costs.flash_read / 1e3,
        flash_write_us: costs.flash_write / 1e3,
    })
}

fn starts(requests: &[PageRequest]) -> Vec<u32> {
    let begins = |request: &PageRequest| request.kind() == Kind::Trim || request.pages() > 0;
    let numbered = (0u32..).zip(requests);
    let first = numbered.filter(|(_, request)| begins(request));
    first.map(|(at, _)| at).collect()
}

/// Sets every run beside base alone.
fn compare(runs: &mut [Measured]) {
    let alone = runs.iter().find(|run| run.policy == NO_TIER);
    let Some(alone) = alone.map(|run| run.elapsed_s) else {
        return;
    };
    for run in runs {
        run.speedup = (run.elapsed_s > 0.0).then(|| alone / run.elapsed_s);
    }
}

fn intact(runs: &[Measured]) -> Outcome {
    match runs.iter().find(|run| run.wrong_pages > 0) {
        None => Ok(()),
        Some(run) => Err(Failure::new(
            Code::Failure,
            format!(
                "{}: {} pages were not what was written",
                run.policy, run.wrong_pages
            ),
        )),
    }
}

fn text(args: &ReplayArgs, workload: &Workload, replay: &Replay, runs: &[Measured]) -> String {
    let facts = workload.facts();
    let total = replay.layout.total().unwrap_or(u64::MAX);
    let base = match (&replay.emulated, replay.virtual_time()) {
        (None, _) => String::new(),
        (Some(model), true) => format!(", emulated {} whose time is added up", model.name()),
        (Some(model), false) => format!(", emulated {}", model.name()),
    };
    let mut out = format!("trace     {}\n", args.reading.input.title());
    let _ = writeln!(
        out,
        "requests  {} I/Os of {} pages of {}: {} reads, {} writes\n\
         base      {}: {} in {} files{base}",
        show_count(facts.ios),
        show_count(facts.requests),
        show_bytes(facts.page_size.into()),
        show_count(facts.reads),
        show_count(facts.writes),
        args.directory.display(),
        show_bytes(total),
        replay.layout.extents.len(),
    );
    if let (Some(cache), Some(run)) = (&args.cache, runs.iter().find(|run| run.slots > 0)) {
        let (cache, size) = (cache.display(), show_bytes(replay.flash_bytes));
        let slots = show_count(run.slots.into());
        let _ = writeln!(
            out,
            "flash     {cache}: {size}, {slots} slots, cold for each policy"
        );
    }
    let speed = match args.speed {
        Speed::Closed => "as fast as they go",
        Speed::Recorded => "at the pace of the trace",
    };
    let _ = writeln!(out, "clients   {}, {speed}", args.threads);
    let names: Vec<String> = runs.iter().map(|run| run.policy.clone()).collect();
    out += &changed(&names, &replay.policy_options);
    out += "\n";
    out + &table(runs).to_string()
}

fn table(runs: &[Measured]) -> Table {
    let mut table = Table::new(&[
        "policy",
        "elapsed",
        "I/O/s",
        "speed-up",
        "per I/O",
        "read hits",
        "pool",
        "flash",
        "base reads",
        "flash writes",
        "base time",
    ]);
    let seconds = |seconds: f64| show_nanoseconds((seconds * 1e9) as u64);
    for run in runs {
        table.row([
            run.policy.clone(),
            seconds(run.elapsed_s),
            show_count(run.ios_per_s.round() as u64),
            run.speedup
                .map_or("-".into(), |speedup| format!("{speedup:.2}")),
            seconds(run.mean_io_us / 1e6),
            show_share(run.pool_hits + run.flash_reads, run.reads),
            show_share(run.pool_hits, run.reads),
            show_share(run.flash_reads, run.reads),
            show_count(run.base_reads),
            show_count(run.flash_writes),
            seconds(run.base_s),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_objects_than_may_be_open_are_refused_before_anything_is_made() {
        assert!(enough_open_files(960, 1024).is_ok());
        let failure = enough_open_files(961, 1024).expect_err("one too many");
        assert!(failure.message.contains("961 objects"), "{failure}");
        let advice = failure.advice.expect("a way out");
        assert!(advice.contains("ulimit -n 1025"), "{advice}");
    }
}
