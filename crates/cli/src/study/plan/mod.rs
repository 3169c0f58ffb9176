//! `plan`: which sizes of flash and memory are worth their money.

pub(crate) mod table;

use crate::failure::{Failure, Outcome};
use crate::show::status;
use crate::study::modelled::{self, ModelArgs, Reading};
use crate::study::simulate::{Amount, TierSize};
use crate::units::in_percent;
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};
use serde::Serialize;
use std::path::PathBuf;
use std::str::FromStr;
use thermocline_core::policy::{NAMES, PolicyOptions};
use thermocline_sim::Workload;
use thermocline_sim::experiment::Experiment;
use thermocline_sim::plan::{self, Endurance, Plan, PlanOptions, Prices, Target};

/// Shown at the end of `plan --help`.
pub(crate) const EXAMPLES: &str = "\
Examples:
  What should I buy for this database?
    thermocline plan tpcc.parquet --flash-price 0.08 --dram-price 3.5
  The cheapest sizes that make it three times as fast on a network volume, 16 clients:
    thermocline plan tpcc.parquet --target 3x --base network --clients 16
  Sizes that can be bought, and a drive that may be written three times a day:
    thermocline plan tpcc.parquet --flash 8GiB,16GiB,32GiB --pool 1GiB,2GiB --dwpd 3

Every combination of sizes is simulated; time comes from device models. An option is efficient when
every faster one costs more. The recommended one is where the next doubling of the cost would gain
less than --worth, or the cheapest that reaches --target. docs/simulator.md has the formulas.";

/// `thermocline plan`.
#[derive(Args, Debug)]
pub(crate) struct PlanArgs {
    #[command(flatten)]
    pub(crate) reading: Reading,
    /// Price of a GiB of flash [assumed otherwise: 0.10]
    #[arg(long, value_name = "PRICE", value_parser = price)]
    pub(crate) flash_price: Option<f64>,
    /// Price of a GiB of memory [assumed otherwise: 4]
    #[arg(long, value_name = "PRICE", value_parser = price)]
    pub(crate) dram_price: Option<f64>,
    /// What prices are in
    #[arg(long, value_name = "NAME", default_value = "€")]
    pub(crate) currency: String,
    /// Sizes of flash to try: shares of the trace's different pages (5%), bytes (2GiB) or pages
    /// (4096p); none at all is tried too
    #[arg(
        long,
        value_name = "SIZE,...",
        value_delimiter = ',',
        default_value = "1%,2%,5%,10%,20%,50%,100%"
    )]
    pub(crate) flash: Vec<TierSize>,
    /// Sizes of the pool in memory to try, as those of flash; none at all is tried too
    #[arg(
        long,
        value_name = "SIZE,...",
        value_delimiter = ',',
        default_value = "1%,5%"
    )]
    pub(crate) pool: Vec<TierSize>,
    /// Policies to choose from, separated by commas: the fastest over all sizes is taken
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "auto,tac,lru",
          value_parser = PossibleValuesParser::new(NAMES))]
    pub(crate) policy: Vec<String>,
    /// What is wanted: 3x (times base alone), 5000/s (I/Os) or 2ms (an I/O in the mean); the
    /// cheapest sizes that reach it are recommended
    #[arg(long, value_name = "TARGET", value_parser = target)]
    pub(crate) target: Option<Target>,
    /// The least gain in I/Os per second for which the cost may double
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = percent)]
    pub(crate) worth: f64,
    #[command(flatten)]
    pub(crate) devices: ModelArgs,
    /// Drive writes per day that the flash drive is rated for [assumed otherwise: 1]
    #[arg(long, value_name = "WRITES", value_parser = price)]
    pub(crate) dwpd: Option<f64>,
    /// Years for which it is rated [assumed otherwise: 5]
    #[arg(long, value_name = "YEARS", value_parser = price)]
    pub(crate) years: Option<f64>,
    /// Page requests at the start that warm the tier and are not counted: a number, or a share
    /// of the trace
    #[arg(long, value_name = "REQUESTS|%", default_value = "20%")]
    pub(crate) warm_up: Amount,
    /// Seed of the policies that draw lots
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Runs at the same time; as many as the machine has processors if not given
    #[arg(long, value_name = "COUNT")]
    pub(crate) threads: Option<usize>,
    /// Write a picture of the options, as one HTML file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,
    /// Print the plan as JSON: all options, the recommended one, and the sentence
    #[arg(long)]
    pub(crate) json: bool,
}

/// What is assumed when nobody says: prices of a GiB, drive writes per day, years.
const FLASH_PRICE: f64 = 0.10;
const DRAM_PRICE: f64 = 4.0;
pub(crate) const DWPD: f64 = 1.0;
pub(crate) const YEARS: f64 = 5.0;

/// A number from 0.
pub(crate) fn price(text: &str) -> Result<f64, String> {
    let number: f64 = text.trim().parse().unwrap_or(f64::NAN);
    match (0.0..=1e12).contains(&number) {
        true => Ok(number),
        false => Err(format!("\"{text}\" is not a number from 0; write 0.08")),
    }
}

/// A gain of at least 0.1 %.
pub(crate) fn percent(text: &str) -> Result<f64, String> {
    let number = in_percent(text).unwrap_or(f64::NAN);
    match (0.1..=1000.0).contains(&number) {
        true => Ok(number / 100.0),
        false => Err(format!(
            "\"{text}\" is not a gain; write 10%, at least 0.1%"
        )),
    }
}

fn target(text: &str) -> Result<Target, String> {
    let text = text.trim();
    let number = |unit: &str| {
        let number = f64::from_str(text.strip_suffix(unit)?.trim()).ok()?;
        (number > 0.0 && number.is_finite()).then_some(number)
    };
    let speedup = number("x").map(Target::Speedup);
    let rate = || number("/s").map(Target::IosPerSecond);
    let micro = || number("us").or_else(|| number("µs"));
    let time = || number("ms").or_else(|| micro().map(|us| us / 1e3));
    let found = speedup.or_else(rate).or_else(|| time().map(Target::MeanMs));
    found.ok_or_else(|| format!("\"{text}\" is not a target; write 3x, 5000/s or 2ms"))
}

/// What `--json` prints.
#[derive(Serialize)]
struct Printed<'a> {
    recommendation: &'a str,
    model: [String; 2],
    currency: &'a str,
    #[serde(flatten)]
    plan: &'a Plan,
}

/// Plans and prints.
pub(crate) fn run(args: &PlanArgs) -> Outcome {
    let read = [args.devices.file()];
    let input = &args.reading.input;
    input.page_apart_from(args.html.as_ref(), &read)?;
    let workload = args.reading.open()?;
    let options = options(args, &workload)?;
    let work = |progress: &_| plan::plan(&workload, &options, progress);
    let plan = modelled::watched("simulating", work)?;
    if let Some(path) = &args.html {
        table::page(args, &workload, &options, &plan, path)?;
    }
    if !args.json {
        return status::print(&table::text(args, &workload, &options, &plan));
    }
    modelled::print_json(&Printed {
        recommendation: &table::recommendation(args, &plan),
        model: table::models(&options),
        currency: &args.currency,
        plan: &plan,
    })
}

fn options(args: &PlanArgs, workload: &Workload) -> Result<PlanOptions, Failure> {
    let facts = workload.facts();
    let pages = |option: &str, sizes: &[TierSize]| {
        let pages = sizes
            .iter()
            .map(|size| modelled::pages(option, size, facts));
        let pages: Result<Vec<u32>, Failure> = pages.collect();
        let mut pages = pages?;
        pages.sort_unstable();
        pages.dedup();
        Ok::<_, Failure>(pages)
    };
    let mut policy_options = PolicyOptions::new(0);
    policy_options.seed = args.seed;
    let devices = args.devices.models(facts.page_size)?;
    let flash = pages("--flash", &args.flash)?;
    let threads = args.threads.unwrap_or(0);
    modelled::fits("--flash", &args.policy, &flash, None, threads)?;
    Ok(PlanOptions {
        flash,
        pools: pages("--pool", &args.pool)?,
        experiment: Experiment {
            policies: args.policy.clone(),
            warm_up: args.warm_up.of(facts.requests),
            devices: Some(devices),
            clients: args.devices.clients,
            policy_options,
            threads: args.threads.unwrap_or(0),
            ..Experiment::default()
        },
        prices: Prices {
            flash_per_gib: args.flash_price.unwrap_or(FLASH_PRICE),
            dram_per_gib: args.dram_price.unwrap_or(DRAM_PRICE),
        },
        endurance: Endurance {
            drive_writes_per_day: args.dwpd.unwrap_or(DWPD),
            years: args.years.unwrap_or(YEARS),
        },
        worth: args.worth,
        target: args.target,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_of_three_kinds() {
        assert_eq!(target("3x"), Ok(Target::Speedup(3.0)));
        assert_eq!(target("5000/s"), Ok(Target::IosPerSecond(5000.0)));
        assert_eq!(target("2.5 ms"), Ok(Target::MeanMs(2.5)));
        assert_eq!(target("500us"), Ok(Target::MeanMs(0.5)));
        for text in ["", "3", "x", "-1x", "0ms", "fast", "NaNx"] {
            let error = target(text).expect_err(text);
            assert!(error.contains(&format!("\"{text}\"")), "{error}");
        }
    }

    #[test]
    fn prices_and_gains_are_numbers() {
        assert_eq!(
            (price("0.08"), percent("10%"), percent("5 %")),
            (Ok(0.08), Ok(0.1), Ok(0.05))
        );
        assert!(price("-1").is_err() && price("cheap").is_err() && price("inf").is_err());
        assert!(percent("10").is_err() && percent("0.5").is_err());
        assert!(percent("0%").is_err() && percent("much").is_err());
    }
}
