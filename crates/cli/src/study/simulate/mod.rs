//! `simulate`: policies and sizes of the tier compared on recorded requests.

mod conclusion;
mod input;
mod page;
mod size;
mod table;

use crate::failure::{Code, Failure, Outcome};
use crate::show;
use crate::study::modelled::{self, ModelArgs, Reading};
use crate::study::parameters::{self, ParameterArgs};
use crate::study::plan::price;
use crate::units::Size;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueEnum, ValueHint};
use conclusion::Ranking;
pub(crate) use input::TraceInput;
pub(crate) use size::{Amount, TierSize};
use std::path::PathBuf;
use thermocline_sim::experiment::{Experiment, Results};
use thermocline_sim::opt::{OPT, OPT_BYPASS};
use thermocline_sim::{Noise, SimError, Workload};

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
  CLIC with the values of the thesis beside the defaults, and with a window of your own:
    thermocline simulate tpcc.parquet --policy clic --preset paper
    thermocline simulate tpcc.parquet --policy clic,lru --set clic.window=100000
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
    pub(crate) reading: Reading,
    /// Policies to compare, separated by commas; "all" for every one. "opt" and "opt-bypass"
    /// know the future and show what is possible
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = COMPARED,
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
    #[command(flatten)]
    pub(crate) parameters: ParameterArgs,
    #[command(flatten)]
    pub(crate) devices: ModelArgs,
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
    /// Drive writes a day that `value` steers towards, of a drive of the tier's size
    #[arg(long, value_name = "WRITES", value_parser = price)]
    pub(crate) drive_writes_per_day: Option<f64>,
    /// Memory that `auto` and `value` may take in each run [default: as much as they like]
    #[arg(long, value_name = "SIZE")]
    pub(crate) policy_memory: Option<Size>,
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
    /// By time since the first record of each
    #[default]
    Time,
    /// One request of each in turn, until the shortest ends
    RoundRobin,
}

/// Names for `--policy`.
fn policies() -> impl Iterator<Item = &'static str> {
    let opt = [OPT, OPT_BYPASS, "all"];
    parameters::names().chain(opt)
}

/// Simulates and prints.
pub(crate) fn run(args: &SimulateArgs) -> Outcome {
    let read = [args.devices.file(), args.parameters.config.clone()];
    let input = &args.reading.input;
    input.page_apart_from(args.html.as_ref(), &read)?;
    let noise = Noise {
        types: args.noise,
        seed: args.seed,
    };
    check_allowance(args)?;
    let workload = args.reading.open_with(noise)?;
    let experiment = experiment(args, &workload)?;
    let work = |progress: &_| thermocline_sim::run(&workload, &experiment, progress);
    let results = modelled::watched("simulating", work)?;
    let ranking = Ranking::of(&experiment, &results, workload.facts());
    if let Some(path) = &args.html {
        let title = args.reading.input.title();
        let html = page::html(&title, &workload, &experiment, &results, &ranking);
        show::beside::write(path, &html)?;
    }
    let text = match args.json {
        true => json(&results)?,
        false => table::text(args, &workload, &experiment, &results, &ranking),
    };
    show::status::print(&text)?;
    if let (Some(path), false) = (&args.html, args.json) {
        println!("Picture written to {}.", path.display());
    }
    Ok(())
}

/// The policies that are compared when none is named.
const COMPARED: &str = "auto,tac,lru,opt";

/// Whether somebody asks for `auto` by name.
fn names_auto(args: &SimulateArgs) -> bool {
    let default = COMPARED.split(',').eq(args.policy.iter());
    !default && args.policy.iter().any(|name| name == "auto")
}

/// Refuses an allowance of drive writes for `auto`, which has none, as a mount does.
fn check_allowance(args: &SimulateArgs) -> Outcome {
    match (args.drive_writes_per_day, names_auto(args)) {
        (Some(writes), true) if writes > 0.0 => {
            let policy = "auto";
            let fact = format!("{writes} drive writes a day are no matter of the policy {policy}");
            Err(Failure::usage(fact).advise("--policy value, or no --drive-writes-per-day"))
        }
        _ => Ok(()),
    }
}

fn experiment(args: &SimulateArgs, workload: &Workload) -> Result<Experiment, Failure> {
    let facts = workload.facts();
    let pages = |name: &str, size: &TierSize| modelled::pages(name, size, facts);
    let capacities = args.flash.iter().map(|size| pages("--flash", size));
    let capacities = modelled::once(capacities.collect::<Result<Vec<_>, _>>()?);
    let all = args.policy.iter().any(|name| name == "all");
    let known = thermocline_sim::opt::names().into_iter();
    let policies = match all {
        true if workload.decoded().is_none() => known
            .filter(|name| !thermocline_sim::opt::is_opt(name))
            .map(String::from)
            .collect(),
        true => known.map(String::from).collect(),
        false => args.policy.clone(),
    };
    let mut policies = policies;
    let allowed = args.drive_writes_per_day.is_some_and(|writes| writes > 0.0);
    if allowed && policies.iter().any(|name| name == "auto") {
        eprintln!("note: auto is left out: it has no allowance of drive writes");
        policies.retain(|name| name != "auto");
    }
    let policies = args.parameters.beside(policies, |name| name)?;
    let memory = args
        .policy_memory
        .and_then(|size| size.bytes(facts.page_size));
    let threads = args.threads.unwrap_or(0);
    modelled::fits("--flash", &policies, &capacities, memory, threads)?;
    let mut policy_options = args.parameters.options()?;
    policy_options.seed = args.seed;
    policy_options.memory = memory;
    policy_options.value.drive_writes_per_day = args.drive_writes_per_day;
    Ok(Experiment {
        policies,
        capacities,
        frames: match args.pool.pages(facts.distinct_pages, facts.page_size) {
            Some(frames) => frames,
            None => pages("--pool", &args.pool)?,
        },
        warm_up: args.warm_up.of(facts.requests),
        devices: Some(args.devices.models(facts.page_size)?),
        clients: args.devices.clients,
        policy_options,
        charge_metadata: args.charge_metadata,
        learned: args.learned,
        bound: true,
        threads: args.threads.unwrap_or(0),
        ..Experiment::default()
    })
}

fn json(results: &Results) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(&results.runs);
    text.map(|text| text + "\n")
        .map_err(|e| Failure::new(Code::Failure, format!("cannot print the results: {e}")))
}

/// What gives a trace another page size.
pub(crate) const PAGE_SIZE: &str = "--page-size SIZE";

/// What a failed simulation says.
pub(crate) fn explain(error: &SimError) -> Failure {
    let text = error.to_string();
    let advice = match error {
        SimError::Read(error) => return crate::study::import::explain(error),
        SimError::ReadOnce { .. } => "write it to a file; where the whole is read, more --memory",
        SimError::Extents { .. } => "a smaller --page-size",
        SimError::TooMany { .. } => "a larger --page-size, or a part of the trace",
        SimError::PageSize { .. } => PAGE_SIZE,
        SimError::TooLong { .. } => "thermocline trace info, or a larger --page-size",
        SimError::Nothing { bypassed: 1.., .. } => "--include-bypassed",
        SimError::Nothing { ignored: 1.., .. } => "--writes allocate",
        SimError::WarmUp { .. } => "a shorter --warm-up, such as 20%",
        SimError::Future { .. } => "more --memory, or a --policy list without opt",
        SimError::Noise { .. } => "a smaller --noise",
        SimError::Shares { .. } => "traces recorded with the same --share",
        SimError::PageSizes { .. } => PAGE_SIZE,
        SimError::Evidence { .. } | SimError::NoObject(_) => text.split("; ").nth(1).unwrap_or(""),
        _ => return Failure::new(Code::Failure, text),
    };
    // The command was right: the load it looked at was not enough.
    let code = match error {
        SimError::Evidence { .. } => Code::Failure,
        _ => Code::Usage,
    };
    let fact = text.split("; ").next().unwrap_or(&text);
    Failure::new(code, fact).advise(advice)
}
