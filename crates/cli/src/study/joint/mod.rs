//! `joint`: pool and tier policies together, in write-back, compared on recorded requests.

mod table;

use crate::failure::{Failure, Outcome};
use crate::show::status;
use crate::study::modelled::{self, ModelArgs, Reading};
use crate::study::parameters::ParameterArgs;
use crate::study::simulate::Amount;
use clap::{Args, ValueHint};
use std::path::PathBuf;
use std::str::FromStr;
use thermocline_core::hierarchy::Watermarks;
use thermocline_sim::joint::{self, Combination, JointExperiment, NO_TIER};
use thermocline_sim::{Workload, Writes};

/// Shown at the end of `joint --help`.
pub(crate) const EXAMPLES: &str = "\
Examples:
  Which pool and tier policies together take the least device time?
    thermocline joint postgres-tpcc-0.parquet --warm-up 40%
  The same per transaction, as tables 6.12 to 6.18 of the thesis, on a disk that the database fills:
    thermocline joint postgres-tpcc-0.parquet --warm-up 40% --transactions 7071 --base-filled
  One combination, a database three times the tier, pools of three sizes, eight clients:
    thermocline joint t.parquet --combination gd2l+cac --database 3 --pool 10%,20%,40% --clients 8
  CAC as the thesis has it (counts never fade) beside the default:
    thermocline joint t.parquet --combination gd2l+cac,gd2l+cac:paper
  What an eviction zone would have cost instead of the journal:
    thermocline joint t.parquet --combination gd2l+cac --zone 1%,2%,5%,10%,100%

The trace should hold nearly every page its database asks for: record it with the smallest buffer
the database works with. docs/simulator.md has the definitions.";

/// `thermocline joint`.
#[derive(Args, Debug)]
pub(crate) struct JointArgs {
    #[command(flatten)]
    pub(crate) reading: Reading,
    /// Policies of pool and tier, separated by commas: lru, clock or gd2l, a plus sign, and a
    /// policy of the tier or none; write-back, or write-through with :through at the end
    #[arg(
        long,
        value_name = "POOL+TIER,...",
        value_delimiter = ',',
        value_parser = Combination::from_str,
        default_value = "lru+cc,gd2l+cc,gd2l+cac,lru+lc,lru+mv-fifo"
    )]
    pub(crate) combination: Vec<Combination>,
    /// How many times as large as the tier the trace's different pages are
    #[arg(long, value_name = "TIMES,...", value_delimiter = ',', value_parser = times,
          default_value = "0.8,1.5,3")]
    pub(crate) database: Vec<f64>,
    /// Memory for the pool, as shares of the tier
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', value_parser = percent,
          default_value = "10%,20%,40%")]
    pub(crate) pool: Vec<f64>,
    #[command(flatten)]
    pub(crate) parameters: ParameterArgs,
    #[command(flatten)]
    pub(crate) devices: ModelArgs,
    /// The pages of the trace fill the base disk: its arm moves over all of it for them. Otherwise
    /// they lie together on a disk that is otherwise empty
    #[arg(long)]
    pub(crate) base_filled: bool,
    /// Page requests at the start that warm pool and tier and are not counted: a number, or a
    /// share of the trace
    #[arg(long, value_name = "REQUESTS|%", default_value = "40%")]
    pub(crate) warm_up: Amount,
    /// Transactions in the whole trace: device time is then told per transaction
    #[arg(long, value_name = "COUNT", value_parser = transactions)]
    pub(crate) transactions: Option<f64>,
    /// Share of the tier set aside for dirty pages that the policy does not hold: at most 90%
    #[arg(long, value_name = "PERCENT", value_parser = reserve, default_value = "5%")]
    pub(crate) reserve: f64,
    /// Pool and tier policies weigh a page there as one on flash, which serves it; else as one of
    /// base, where it soon is
    #[arg(long)]
    pub(crate) reserve_as_flash: bool,
    /// Share of dirty pages on flash above which they are written back to base
    #[arg(long, value_name = "PERCENT", value_parser = percent, default_value = "80%")]
    pub(crate) dirty_high: f64,
    /// Seconds of the trace after which a page that is dirty in the pool is written out
    #[arg(long, value_name = "SECONDS", default_value_t = 30)]
    pub(crate) recovery_age: u32,
    /// Eviction zones to count, as shares of the tier
    #[arg(long, value_name = "PERCENT,...", value_delimiter = ',', value_parser = percent)]
    pub(crate) zone: Vec<f64>,
    /// Seed of the policies that draw lots
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Runs at the same time; as many as the machine has processors if not given
    #[arg(long, value_name = "COUNT")]
    pub(crate) threads: Option<usize>,
    /// Write the tables and a picture of them as one HTML file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,
    /// Print the results as JSON: an array of one object for each combination and size
    #[arg(long)]
    pub(crate) json: bool,
}

fn times(text: &str) -> Result<f64, String> {
    let value: f64 = text.trim().parse().unwrap_or(f64::NAN);
    match (0.01..=1e6).contains(&value) {
        true => Ok(value),
        false => Err(format!("\"{text}\" is not a factor; write 0.8 or 3")),
    }
}

/// A share of one.
fn percent(text: &str) -> Result<f64, String> {
    let number = text.trim().strip_suffix('%').unwrap_or("");
    let value: f64 = number.trim().parse().unwrap_or(f64::NAN);
    match (0.0..=1000.0).contains(&value) {
        true => Ok(value / 100.0),
        false => Err(format!("\"{text}\" is not a share; write 10%")),
    }
}

/// A share that leaves the policy some of the tier.
fn reserve(text: &str) -> Result<f64, String> {
    let share = percent(text)?;
    match share <= 0.9 {
        true => Ok(share),
        false => Err(format!("\"{text}\" leaves too little; write at most 90%")),
    }
}

fn transactions(text: &str) -> Result<f64, String> {
    let count: f64 = text.trim().parse().unwrap_or(f64::NAN);
    match count > 0.0 && count.is_finite() {
        true => Ok(count),
        false => Err(format!(
            "\"{text}\" is not a number of transactions; write 7071"
        )),
    }
}

/// Simulates and prints.
pub(crate) fn run(args: &JointArgs) -> Outcome {
    let read = [args.devices.file(), args.parameters.config.clone()];
    let input = &args.reading.input;
    input.page_apart_from(args.html.as_ref(), &read)?;
    let workload = args.reading.open()?;
    let experiment = experiment(args, &workload)?;
    let work = |progress: &_| joint::run(&workload, &experiment, progress);
    let results = modelled::watched("simulating", work)?;
    let text = table::text(args, &workload, &experiment, &results);
    if let Some(path) = &args.html {
        table::page(args, &results, &text, path)?;
    }
    match args.json {
        true => modelled::print_json(&results),
        false => status::print(&text),
    }
}

fn experiment(args: &JointArgs, workload: &Workload) -> Result<JointExperiment, Failure> {
    let facts = workload.facts();
    let mut devices = args.devices.models(facts.page_size)?;
    if args.base_filled {
        let pages: u64 = facts.extents.iter().sum();
        let bytes = pages.saturating_mul(u64::from(facts.page_size));
        devices.base = devices.base.filled_by(bytes);
    }
    let mut policy_options = args.parameters.options()?;
    policy_options.seed = args.seed;
    policy_options.admit_on_write = workload.options().writes == Writes::Allocate;
    let watermarks = Watermarks::default();
    let gap = watermarks.dirty_high - watermarks.dirty_low;
    let experiment = JointExperiment {
        combinations: args
            .parameters
            .beside(args.combination.clone(), |pair| &mut pair.tier)?,
        databases: modelled::once(args.database.iter().copied()),
        pools: modelled::once(args.pool.iter().copied()),
        reserve: args.reserve,
        reserve_as_flash: args.reserve_as_flash,
        watermarks: Watermarks {
            dirty_high: args.dirty_high,
            dirty_low: (args.dirty_high - gap).max(0.0),
            ..watermarks
        },
        recovery_age_ms: u64::from(args.recovery_age) * 1000,
        warm_up: args.warm_up.of(facts.requests),
        devices: Some(devices),
        clients: args.devices.clients,
        transactions: args.transactions,
        zones: modelled::once(args.zone.iter().map(|share| share * 100.0)),
        policy_options,
        threads: args.threads.unwrap_or(0),
    };
    fit(&experiment, facts.distinct_pages)?;
    Ok(experiment)
}

/// Refuses tiers, by the `pages` of the trace, whose tables do not fit into memory.
fn fit(experiment: &JointExperiment, pages: u64) -> Outcome {
    let slots = |database: &f64| (pages as f64 / database) as u32;
    let slots: Vec<u32> = experiment.databases.iter().map(slots).collect();
    let pairs = experiment.combinations.iter();
    let tiers = pairs.filter(|pair| pair.tier != NO_TIER);
    // Each with every pool.
    let runs = tiers.flat_map(|pair| experiment.pools.iter().map(|_| pair.tier.clone()));
    let runs: Vec<String> = runs.collect();
    modelled::fits("--database", &runs, &slots, None, experiment.threads)
        .map_err(|failure| failure.advise("a larger --database, --threads 1, or larger pages"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_and_shares() {
        assert_eq!(times("1.5"), Ok(1.5));
        assert_eq!(percent("10%"), Ok(0.1));
        for text in ["0", "x", "-1", "NaN"] {
            assert!(times(text).is_err(), "{text}");
        }
        for text in ["10", "x%", "-1%", "%"] {
            assert!(percent(text).is_err(), "{text}");
        }
        assert_eq!((reserve("90%"), transactions("7e3")), (Ok(0.9), Ok(7000.0)));
        assert!(reserve("91%").is_err() && reserve("10").is_err());
        for text in ["0", "-5", "inf", "NaN", "many"] {
            assert!(transactions(text).is_err(), "{text}");
        }
    }
}
