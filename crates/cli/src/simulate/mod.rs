//! `simulate`: policies and sizes of the tier compared on recorded requests.

mod input;
mod page;
mod size;
mod table;

use crate::config::{self, Config};
use crate::failure::{Code, Failure, Outcome};
use crate::{commands, units};
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum, ValueHint};
use indicatif::{ProgressBar, ProgressStyle};
pub(crate) use input::TraceInput;
pub(crate) use size::{Amount, TierSize};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use thermocline_core::Costs;
use thermocline_core::policy::PolicyOptions;
use thermocline_sim::device::{BASES, Devices, FLASHES, Timing};
use thermocline_sim::experiment::{Experiment, Progress, Results};
use thermocline_sim::{Bypassed, Interleave, Noise, SimError, Workload, WorkloadOptions, Writes};
use units::Size;

/// Shown at the end of `simulate --help`.
pub(crate) const EXAMPLES: &str = "\
Examples:
  Which policy suits this recording, with flash for 1 to 20 % of its pages?
    thermocline simulate tpcc.parquet --policy all --flash 1%,5%,10%,20%
  The same as a picture:
    thermocline simulate tpcc.parquet --policy all --html tpcc.html
  8 GiB of flash under 1 GiB of memory, over a network volume, 16 clients:
    thermocline simulate tpcc.parquet --policy tac,lru --flash 8GiB --pool 1GiB \\
      --base network --clients 16
  What did CLIC learn about the hints?
    thermocline simulate tpcc.parquet --policy clic --flash 10% --learned
  Miss counts to hold against another simulator (its writes are reads):
    thermocline simulate t.oracleGeneral.bin --policy lru,arc,opt --flash 489p \\
      --writes as-reads --json

Requests (I/Os) are split into pages; every count is of pages unless it says I/O. Policies decide
in the order of the trace; time is virtual and comes from device models. docs/simulator.md has
the definitions.";

/// `thermocline simulate`.
#[derive(Args, Debug)]
pub(crate) struct SimulateArgs {
    #[command(flatten)]
    pub(crate) input: TraceInput,
    /// Policies to compare, separated by commas; "all" for every one. "opt" and "opt-bypass"
    /// know the future and show what is possible
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "tac,lru,opt",
          value_parser = PossibleValuesParser::new(policies()))]
    pub(crate) policy: Vec<String>,
    /// Sizes of the tier: shares of the trace's different pages (5%), bytes (2GiB) or pages
    /// (4096p)
    #[arg(
        long,
        value_name = "SIZE,...",
        value_delimiter = ',',
        default_value = "1%,5%,10%,20%"
    )]
    pub(crate) flash: Vec<TierSize>,
    /// Memory for a pool of pages above the tier (LRU); written as a size of the tier
    #[arg(long, value_name = "SIZE", default_value = "0")]
    pub(crate) pool: TierSize,
    /// Bulk storage below the tier: hdd, hdd-15k, ssd, network, s3-like, baleen, or a
    /// configuration file that `thermocline calibrate` wrote, whose costs then hold for flash too
    #[arg(long, value_name = "DEVICE|FILE", default_value = "hdd",
          value_hint = ValueHint::AnyPath)]
    pub(crate) base: String,
    /// The tier's device
    #[arg(long, value_name = "DEVICE", default_value = "ssd",
          value_parser = PossibleValuesParser::new(FLASHES))]
    pub(crate) flash_device: String,
    /// Clients that each wait for their I/O, then take the next of the trace
    #[arg(long, value_name = "COUNT", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=4096))]
    pub(crate) clients: u32,
    /// What writes do
    #[arg(long, value_enum, default_value_t)]
    pub(crate) writes: WriteMode,
    /// Page requests at the start that warm the tier and are not counted: a number, or a share
    /// of the trace (20%)
    #[arg(long, value_name = "REQUESTS|%", default_value = "0")]
    pub(crate) warm_up: Amount,
    /// Seed of the policies that draw lots, and of --noise
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Take the memory of the policy and of the map from the tier's size
    #[arg(long)]
    pub(crate) charge_metadata: bool,
    /// Show what policies learned about the hints
    #[arg(long)]
    pub(crate) learned: bool,
    /// Add this many hint types that mean nothing, of 10 values each (Zipf 1)
    #[arg(long, value_name = "TYPES", default_value_t = 0)]
    pub(crate) noise: usize,
    /// How several traces become one
    #[arg(long, value_enum, default_value_t)]
    pub(crate) interleave: Order,
    /// Memory for the decoded trace; a longer one is read again for every run (and opt, which
    /// needs it all, is not possible)
    #[arg(long, value_name = "SIZE", default_value = "2GiB")]
    pub(crate) memory: Size,
    /// Runs at the same time; as many as the machine has processors if not given
    #[arg(long, value_name = "COUNT")]
    pub(crate) threads: Option<usize>,
    /// Write a picture: hit ratio by size and over time, as one HTML file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,
    /// Print the results as JSON: an array of one object for each policy and size
    #[arg(long)]
    pub(crate) json: bool,
}

/// `--writes`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum WriteMode {
    /// To base, renewing the copy on flash; policies may admit a written page
    #[default]
    Allocate,
    /// The same, but policies by recency admit only what is read
    NoAllocate,
    /// As if they were reads: what simulators without writes do
    AsReads,
    /// As if they were not in the trace
    Ignore,
}

/// `--interleave`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Order {
    /// By time since the start of each
    #[default]
    Time,
    /// One request of each in turn, until the shortest ends
    RoundRobin,
}

/// Names for `--policy`.
fn policies() -> impl Iterator<Item = &'static str> {
    thermocline_sim::opt::names().into_iter().chain(["all"])
}

/// Simulates and prints.
pub(crate) fn run(args: &SimulateArgs) -> Outcome {
    let workload = open(args)?;
    let experiment = experiment(args, &workload)?;
    let results = simulate(&workload, &experiment)?;
    if let Some(path) = &args.html {
        let title = args.input.title();
        let html = page::html(&title, &workload, &experiment, &results);
        std::fs::write(path, html).map_err(|error| Failure::io("write", path, &error))?;
    }
    let text = match args.json {
        true => json(&results)?,
        false => table::text(args, &workload, &experiment, &results),
    };
    commands::status::print(&text)?;
    if let (Some(path), false) = (&args.html, args.json) {
        println!("Picture written to {}.", path.display());
    }
    Ok(())
}

fn open(args: &SimulateArgs) -> Result<Workload, Failure> {
    let options = WorkloadOptions {
        page_size: args.input.page_size()?,
        writes: match args.writes {
            WriteMode::Allocate => Writes::Allocate,
            WriteMode::NoAllocate => Writes::NoAllocate,
            WriteMode::AsReads => Writes::AsReads,
            WriteMode::Ignore => Writes::Ignore,
        },
        bypassed: match args.input.bypassed {
            true => Bypassed::Include,
            false => Bypassed::Skip,
        },
        interleave: match args.interleave {
            Order::Time => Interleave::Time,
            Order::RoundRobin => Interleave::RoundRobin,
        },
        noise: Noise {
            types: args.noise,
            seed: args.seed,
        },
        memory: args
            .memory
            .bytes(config::PAGE_SIZE_MIN as u32)
            .unwrap_or(u64::MAX),
    };
    let bar = ProgressBar::new_spinner().with_message("reading");
    bar.set_style(style("{spinner} {msg} {human_pos} page requests {elapsed}"));
    let begin = Instant::now();
    let openers = args.input.openers()?;
    let workload = Workload::open(openers, options, &mut |requests| {
        if begin.elapsed() > Duration::from_secs(2) {
            bar.set_position(requests);
        }
    });
    bar.finish_and_clear();
    workload.map_err(|error| explain(&error))
}

fn experiment(args: &SimulateArgs, workload: &Workload) -> Result<Experiment, Failure> {
    let facts = workload.facts();
    let pages = |name: &str, size: &TierSize| {
        size.pages(facts.distinct_pages, facts.page_size)
            .ok_or_else(|| {
                Failure::usage(format!("{name} {size} is more than 4,294,967,295 pages"))
                    .advise("a smaller size, or larger pages")
            })
    };
    let mut capacities = Vec::new();
    for size in &args.flash {
        match pages("--flash", size)? {
            0 => {
                let failure = Failure::usage(format!("--flash {size} holds not one page"));
                return Err(failure.advise("a larger size, or pages such as 100p"));
            }
            capacity => capacities.push(capacity),
        }
    }
    let all = args.policy.iter().any(|name| name == "all");
    let known = policies().filter(|name| *name != "all");
    let policies = match all {
        true if workload.decoded().is_none() => known
            .filter(|name| !thermocline_sim::opt::is_opt(name))
            .map(String::from)
            .collect(),
        true => known.map(String::from).collect(),
        false => args.policy.clone(),
    };
    let mut policy_options = PolicyOptions::new(0);
    policy_options.seed = args.seed;
    Ok(Experiment {
        policies,
        capacities,
        frames: pages("--pool", &args.pool)?,
        warm_up: args.warm_up.of(facts.requests),
        devices: Some(devices(args, facts.page_size)?),
        clients: args.clients,
        policy_options,
        charge_metadata: args.charge_metadata,
        learned: args.learned,
        bound: true,
        threads: args.threads.unwrap_or(0),
    })
}

/// The devices named; a file brings both.
fn devices(args: &SimulateArgs, page_size: u32) -> Result<Devices, Failure> {
    let flash = Timing::flash(&args.flash_device);
    if let (Some(base), Some(flash)) = (Timing::base(&args.base), flash) {
        return Ok(Devices { base, flash });
    }
    let path = Path::new(&args.base);
    if !path.exists() {
        let names = BASES.join(", ");
        return Err(Failure::usage(format!(
            "--base {} is neither a device nor a file",
            args.base
        ))
        .advise(format!(
            "{names}, or a file written by thermocline calibrate --config"
        )));
    }
    let costs = Config::load(Some(path))?.costs;
    let costs = Costs {
        base_random_read: costs.base_random_read_us * 1e3,
        base_sequential_read: costs.base_sequential_read_us * 1e3,
        base_random_write: costs.base_random_write_us * 1e3,
        flash_read: costs.flash_read_us * 1e3,
        flash_write: costs.flash_write_us * 1e3,
    };
    Ok(Devices::calibrated(&costs, page_size))
}

/// Runs the experiment under a progress bar that shows after two seconds.
fn simulate(workload: &Workload, experiment: &Experiment) -> Result<Results, Failure> {
    let progress = Progress::default();
    let bar = ProgressBar::new(0).with_style(style(
        "simulating {wide_bar} {percent} % {human_pos} page requests, {eta} left",
    ));
    let results = std::thread::scope(|scope| {
        let work = scope.spawn(|| thermocline_sim::run(workload, experiment, &progress));
        let begin = Instant::now();
        while !work.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
            if begin.elapsed() > Duration::from_secs(2) {
                bar.set_length(progress.total.load(Ordering::Relaxed));
                bar.set_position(progress.done.load(Ordering::Relaxed));
            }
        }
        work.join()
    });
    bar.finish_and_clear();
    match results {
        Ok(results) => results.map_err(|error| explain(&error)),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

fn json(results: &Results) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(&results.runs);
    text.map(|text| text + "\n")
        .map_err(|e| Failure::new(Code::Failure, format!("cannot print the results: {e}")))
}

/// What a failed simulation says.
pub(crate) fn explain(error: &SimError) -> Failure {
    let advice = match error {
        SimError::Read(error) => return crate::import::explain(error),
        SimError::TooLong { .. } => "thermocline trace info, or a larger --page-size",
        SimError::Nothing { bypassed: 1.., .. } => "--include-bypassed",
        SimError::Nothing { ignored: 1.., .. } => "--writes allocate",
        SimError::WarmUp { .. } => "a shorter --warm-up, such as 20%",
        SimError::Future { .. } => "more --memory, or a --policy list without opt",
        SimError::Noise { .. } => "a smaller --noise",
        SimError::PageSizes { .. } => "--page-size SIZE",
        _ => return Failure::new(Code::Failure, error.to_string()),
    };
    let text = error.to_string();
    let fact = text.split("; ").next().unwrap_or(&text);
    Failure::new(Code::Usage, fact).advise(advice)
}
