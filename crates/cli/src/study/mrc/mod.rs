//! `mrc`: miss ratio by size of the tier, from a sample of the pages.

mod table;

use crate::failure::{Failure, Outcome};
use crate::show::status;
use crate::study::modelled::{self, Reading};
use crate::study::parameters::{self, ParameterArgs};
use crate::study::simulate::{Amount, TierSize};
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};
use std::path::PathBuf;
use std::str::FromStr;
use thermocline_core::policy::NAMES;
use thermocline_sim::Workload;
use thermocline_sim::mrc::{self, Curve, MrcOptions, Rate};

/// Shown at the end of `mrc --help`.
pub(crate) const EXAMPLES: &str = "\
Examples:
  How large must the tier be for this recording?
    thermocline mrc tpcc.parquet
  Do other policies need less?
    thermocline mrc tpcc.parquet --policy lru,arc,tac,clic
  Does the window of the thesis suit CLIC better than the default?
    thermocline mrc tpcc.parquet --policy clic --preset paper
  A long trace, looking at a hundredth of its pages:
    thermocline mrc month.oracleGeneral.bin.zst --rate 1%
  The curve at sizes of your own, for a program:
    thermocline mrc tpcc.parquet --sizes 1GiB,2GiB,4GiB,8GiB --json

A page is looked at always or never (SHARDS). LRU gets every size from one stack of pages, other
policies run in a small tier for each size. With --rate 1 the counts are exactly those of
thermocline simulate. docs/simulator.md says how far samples are off.";

/// Pages that a sample holds about, unless told otherwise.
const SAMPLE_PAGES: u64 = 1 << 16;
/// The device models whose costs TAC weighs.
const BASE: &str = "hdd";
const FLASH: &str = "ssd";

/// `thermocline mrc`.
#[derive(Args, Debug)]
pub(crate) struct MrcArgs {
    #[command(flatten)]
    pub(crate) reading: Reading,
    /// Policies to draw, separated by commas; "all" for every one
    #[arg(long, value_name = "NAME,...", value_delimiter = ',', default_value = "lru",
          value_parser = PossibleValuesParser::new(parameters::names().chain(["all"])))]
    pub(crate) policy: Vec<String>,
    #[command(flatten)]
    pub(crate) parameters: ParameterArgs,
    /// Sizes of the tier: shares of the trace's different pages (5%), bytes (2GiB) or pages
    /// (4096p)
    #[arg(
        long,
        value_name = "SIZE,...",
        value_delimiter = ',',
        default_value = "0.1%,0.2%,0.5%,1%,2%,3%,5%,7%,10%,15%,20%,30%,40%,50%,60%,80%,100%"
    )]
    pub(crate) sizes: Vec<TierSize>,
    /// Share of the pages to look at: 0.1 or 10%; 1 is exact [default: 65,536 pages or all]
    #[arg(long, value_name = "SHARE")]
    pub(crate) rate: Option<Share>,
    /// Page requests at the start that warm the tier and are not counted: a number, or a share
    /// of the trace (20%)
    #[arg(long, value_name = "REQUESTS|%", default_value = "0")]
    pub(crate) warm_up: Amount,
    /// Seed of the policies that draw lots
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Threads; as many as the machine has processors if not given
    #[arg(long, value_name = "COUNT")]
    pub(crate) threads: Option<usize>,
    /// Write a picture of the curves, as one HTML file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,
    /// Print the curves as JSON: an array of one object for each policy
    #[arg(long)]
    pub(crate) json: bool,
}

/// A share of the pages, above 0 and at most 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Share(Rate);

impl FromStr for Share {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = text.trim();
        let share = match number.strip_suffix('%') {
            Some(percent) => percent.trim().parse().map(|p: f64| p / 100.0),
            None => number.parse(),
        };
        let rate = share.ok().and_then(Rate::of).map(Self);
        rate.ok_or_else(|| format!("\"{text}\" is not a share; write 0.1 or 10%, at most 1"))
    }
}

/// Draws and prints.
pub(crate) fn run(args: &MrcArgs) -> Outcome {
    let read = [args.parameters.config.clone()];
    let input = &args.reading.input;
    input.page_apart_from(args.html.as_ref(), &read)?;
    let workload = args.reading.open()?;
    let options = options(args, &workload)?;
    let work = |progress: &_| mrc::curves(&workload, &options, progress);
    let curves = modelled::watched("sampling", work)?;
    check(&curves)?;
    if let Some(path) = &args.html {
        table::page(args, &workload, &curves, path)?;
    }
    match args.json {
        true => modelled::print_json(&curves),
        false => status::print(&table::text(args, &workload, &curves)),
    }
}

fn options(args: &MrcArgs, workload: &Workload) -> Result<MrcOptions, Failure> {
    let facts = workload.facts();
    let size = |size: &TierSize| match size {
        // The smallest shares of a short trace are not worth an error.
        TierSize::Share(_) => modelled::pages("--sizes", size, facts).or(Ok(1)),
        TierSize::Size(_) => modelled::pages("--sizes", size, facts),
    };
    let sizes: Result<Vec<u32>, Failure> = args.sizes.iter().map(size).collect();
    let mut sizes = sizes?;
    sizes.sort_unstable();
    sizes.dedup();
    let mut policy_options = args.parameters.options()?;
    policy_options.seed = args.seed;
    policy_options.costs = modelled::devices(BASE, FLASH, facts.page_size)?.costs(facts.page_size);
    let all = args.policy.iter().any(|name| name == "all");
    let rate = args.rate.map(|share| share.0);
    let policies = match all {
        true => NAMES.iter().map(ToString::to_string).collect(),
        false => args.policy.clone(),
    };
    let policies = args.parameters.beside(policies, |name| name)?;
    let rate = rate.unwrap_or_else(|| Rate::for_pages(facts.distinct_pages, SAMPLE_PAGES));
    // Caches of a sample are as much smaller as it is.
    let small = |slots: &u32| (f64::from(*slots) * rate.share()) as u32;
    let slots: Vec<u32> = sizes.iter().map(small).collect();
    let writes = workload.options().writes;
    let tiers = policies.iter().filter(|name| !mrc::is_stack(name, writes));
    let tiers: Vec<String> = tiers.cloned().collect();
    // All tiers follow one pass over the trace, whatever the threads.
    modelled::fits("--sizes", &tiers, &slots, None, usize::MAX).map_err(|failure| {
        failure.advise("fewer or smaller --sizes, fewer policies, or a smaller --rate")
    })?;
    Ok(MrcOptions {
        policies,
        sizes,
        rate,
        warm_up: args.warm_up.of(facts.requests),
        policy_options,
        threads: args.threads.unwrap_or(0),
    })
}

/// A sample of nothing says nothing.
fn check(curves: &[Curve]) -> Outcome {
    match curves.iter().find(|c| c.sampled_reads == 0 && c.reads > 0) {
        None => Ok(()),
        Some(curve) => Err(Failure::usage(format!(
            "no read is in the sample: --rate {} of {} pages is too small for {}",
            curve.rate, curve.distinct_pages, curve.policy
        ))
        .advise("a larger --rate, or none")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shares_are_numbers_or_percent() {
        let share = |text: &str| text.parse::<Share>().map(|share| share.0);
        assert_eq!(share("0.25"), share("25%"));
        assert_eq!(share("1"), Ok(Rate::ALL));
        for text in ["0", "0%", "1.5", "101%", "x", "", "-1"] {
            let error = share(text).expect_err(text);
            assert!(error.contains(&format!("\"{text}\"")), "{error}");
        }
    }
}
