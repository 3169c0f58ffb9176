//! `advise`: what to change about a tier, by what was recorded of its load.

mod check;
mod line;
mod live;
mod text;

use crate::failure::{Failure, Outcome};
use crate::serve::record::{Share, share as recorded};
use crate::show::{beside, status};
use crate::study::modelled::{self, ModelArgs, Reading};
use crate::study::plan::{percent, price};
use crate::study::simulate::{Amount, TierSize};
use crate::units::{in_percent, sample, span};
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};
use std::path::PathBuf;
use std::time::Duration;
use thermocline_core::policy::{NAMES, PolicyOptions};
use thermocline_sim::Workload;
use thermocline_sim::advice::{self, Question, State};
use thermocline_sim::experiment::Experiment;
use thermocline_sim::plan::{Endurance, Prices};
use thermocline_sim::workload::Facts;
use thermocline_trace::Sample;

/// Shown at the end of `advise --help`.
pub(crate) const EXAMPLES: &str = "\
Examples:
  What should I change about this mount, going by the next ten minutes?
    thermocline advise /srv/pgdata --for 10m
  What should I buy, pin and leave out for the database that was recorded?
    thermocline advise tpcc.parquet --base network
  The tier there is, and commands that can be pasted:
    thermocline advise tpcc.parquet --size 8GiB --policy tac --mount /srv/pgdata
  Did last week's advice hold this week?
    thermocline advise monday.parquet --json > advice.json
    thermocline advise tuesday.parquet --check advice.json

Nothing is changed: every line has the command that follows it, and the one that undoes it. Gains
are simulated, of the time that the database waits for its I/Os; after ± stands how far another
period as long may be from it (95 %). docs/advise.md says how lines are found.";

/// The cache of a running mount. What is simulated is pages, and commands take its length: map,
/// journal and spare blocks as well.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cache {
    /// Its length, bytes.
    pub(crate) bytes: u64,
    /// Pages that it has room for, those of the reserve included.
    pub(crate) pages: u32,
    /// Share of them that write-back sets aside.
    pub(crate) reserve: f64,
}

impl Cache {
    /// How long it is with room for `pages` pages: as much longer as they are more.
    fn length(&self, pages: u64) -> u64 {
        let now = u64::from(self.pages.max(1));
        if pages == now {
            return self.bytes;
        }
        let length = u128::from(self.bytes) * u128::from(pages);
        let length = u64::try_from(length.div_ceil(u128::from(now))).unwrap_or(u64::MAX);
        length.checked_next_multiple_of(4096).unwrap_or(length)
    }
}

/// `thermocline advise`.
#[derive(Args, Clone, Debug)]
pub(crate) struct AdviseArgs {
    #[command(flatten)]
    pub(crate) reading: Reading,
    /// Size of the tier there is: bytes, pages (4096p) or a share of the trace's different pages;
    /// without it there is none yet
    #[arg(long, value_name = "SIZE")]
    pub(crate) size: Option<TierSize>,
    /// Policy of the tier there is, or of the one to buy [default: auto]
    #[arg(long, value_name = "NAME", value_parser = PossibleValuesParser::new(NAMES))]
    pub(crate) policy: Option<String>,
    /// Where it is mounted, for the commands that are printed [default: MOUNTPOINT]
    #[arg(long, value_name = "MOUNTPOINT", value_hint = ValueHint::DirPath)]
    pub(crate) mount: Option<String>,
    /// How long to record a running mount: 90s, 5m, 2h, 1d; at most 31d
    #[arg(long = "for", value_name = "TIME", default_value = "5m", value_parser = span)]
    pub(crate) length: Duration,
    /// How much of a running mount's requests to record, as `record --share` has it
    #[arg(long, value_name = "PERCENT|auto", default_value = "auto", value_parser = recorded)]
    pub(crate) share: Share,
    /// Files that are pinned: those of the running mount.
    #[arg(skip)]
    pub(crate) pins: Vec<String>,
    /// Memory of the running mount's own pool, bytes.
    #[arg(skip)]
    pub(crate) pool_bytes: u64,
    /// The cache of the running mount.
    #[arg(skip)]
    pub(crate) cache: Option<Cache>,
    /// The tier there is is in write-back: writes stay on its flash
    #[arg(long, requires = "size")]
    pub(crate) write_back: bool,
    /// Sizes to try [default: 0.25 to 4 times the one there is; else 2% to 100% of the pages]
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',')]
    pub(crate) sizes: Vec<TierSize>,
    /// Keep the size there is: nothing is bought
    #[arg(long, conflicts_with = "sizes")]
    pub(crate) keep_size: bool,
    /// Policies to try
    #[arg(long, value_name = "NAME,...", value_delimiter = ',',
          default_value = "auto,tac,lru,arc,s3-fifo,w-tinylfu,clic,dp-clic,value",
          value_parser = PossibleValuesParser::new(NAMES))]
    pub(crate) policies: Vec<String>,
    /// Where in the trace to begin: a share of its requests
    #[arg(long, value_name = "PERCENT", default_value = "0%", value_parser = share)]
    pub(crate) begin: f64,
    /// Where to end
    #[arg(long, value_name = "PERCENT", default_value = "100%", value_parser = share)]
    pub(crate) end: f64,
    /// Simulate a sample of the trace: so much of all its extents of 32 pages
    #[arg(long, value_name = "PERCENT", default_value = "100%", value_parser = sample)]
    pub(crate) sample: Sample,
    /// Price of a GiB of flash; the default is an assumption
    #[arg(long, value_name = "PRICE", default_value = "0.10", value_parser = price)]
    pub(crate) flash_price: f64,
    /// Price of a GiB of memory; the default is an assumption
    #[arg(long, value_name = "PRICE", default_value = "4", value_parser = price)]
    pub(crate) dram_price: f64,
    /// What prices are in
    #[arg(long, value_name = "NAME", default_value = "€")]
    pub(crate) currency: String,
    /// The least gain in I/Os per second for which the cost may double
    #[arg(long, value_name = "PERCENT", default_value = "10%", value_parser = percent)]
    pub(crate) worth: f64,
    #[command(flatten)]
    pub(crate) devices: ModelArgs,
    /// Drive writes per day that the flash drive is rated for; the default is an assumption
    #[arg(long, value_name = "WRITES", default_value = "1", value_parser = price)]
    pub(crate) dwpd: f64,
    /// Years for which it is rated
    #[arg(long, value_name = "YEARS", default_value = "5", value_parser = price)]
    pub(crate) years: f64,
    /// Page requests at the start that warm the tier and are not counted: a number, or a share
    #[arg(long, value_name = "REQUESTS|%", default_value = "20%")]
    pub(crate) warm_up: Amount,
    /// Seed of the policies that draw lots
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    /// Runs at the same time; as many as the machine has processors if not given
    #[arg(long, value_name = "COUNT")]
    pub(crate) threads: Option<usize>,
    /// Compare what an earlier `advise --json` said with what following it would have gained on
    /// this trace
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "html")]
    pub(crate) check: Option<PathBuf>,
    /// Write the curve of sizes and the advice as one HTML file
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) html: Option<PathBuf>,
    /// Print the lines as a JSON array
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the last table, with the objects that each way puts on flash, as a JSON array
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "check")]
    pub(crate) placements: Option<PathBuf>,
}

/// A share from 0 to 1, written in per cent.
fn share(text: &str) -> Result<f64, String> {
    let number = in_percent(text).unwrap_or(f64::NAN);
    match (0.0..=100.0).contains(&number) {
        true => Ok(number / 100.0),
        false => Err(format!("\"{text}\" is not a share; write 0% to 100%")),
    }
}

/// Advises and prints, or checks earlier advice.
pub(crate) fn run(args: &AdviseArgs) -> Outcome {
    match live::mountpoint(args)? {
        Some(mountpoint) => live::run(args, mountpoint),
        None => of_traces(args),
    }
}

fn of_traces(args: &AdviseArgs) -> Outcome {
    let input = &args.reading.input;
    let read = [args.devices.file(), args.check.clone()];
    input.page_apart_from(args.html.as_ref(), &read)?;
    input.apart_from("--placements", args.placements.as_ref(), &read)?;
    if args.begin >= args.end {
        let fact = format!("--begin {}% is not before --end", 100.0 * args.begin);
        return Err(Failure::usage(fact).advise("--begin 0% --end 50%"));
    }
    let workload = args.reading.open_part(args.begin, args.end, args.sample)?;
    let question = question(args, &workload)?;
    if let Some(path) = &args.check {
        return check::run(args, &workload, &question.experiment, path);
    }
    let work = |progress: &_| advice::advise(&workload, &question, progress);
    let advice = modelled::watched("simulating", work)?;
    if let Some(path) = &args.html {
        text::page(args, &workload, &question, &advice, path)?;
    }
    if let Some(path) = &args.placements {
        let text = modelled::json(&advice.placements)?;
        beside::write(path, &text)?;
    }
    if args.json {
        let lines = advice
            .lines
            .iter()
            .map(|line| line::Printed::new(args, line));
        return modelled::print_json(&lines.collect::<Vec<_>>());
    }
    status::print(&text::text(args, &workload, &question, &advice))
}

fn question(args: &AdviseArgs, workload: &Workload) -> Result<Question, Failure> {
    let facts = &all(workload);
    let page = u64::from(facts.page_size);
    let size = args.size.as_ref();
    let now = size
        .map(|size| modelled::pages("--size", size, facts))
        .transpose()?;
    if args.keep_size && now.is_none() {
        return Err(
            Failure::usage("--keep-size without --size keeps no size").advise("--size 8GiB")
        );
    }
    let sizes = sizes(args, workload, now)?;
    // A sample has a tier as much smaller as it is.
    let small = |pages: &u32| (f64::from(*pages) * facts.share) as u32;
    let slots: Vec<u32> = sizes.iter().map(small).collect();
    if args.check.is_none() {
        fit(args, &slots, now.map(|pages| small(&pages)))?;
    }
    let mut policy_options = PolicyOptions::new(0);
    policy_options.seed = args.seed;
    Ok(Question {
        experiment: Experiment {
            warm_up: args.warm_up.of(facts.requests),
            devices: Some(args.devices.models(facts.page_size)?),
            clients: args.devices.clients,
            policy_options,
            reserve: live::reserve(args),
            threads: args.threads.unwrap_or(0),
            ..Experiment::default()
        },
        now: State {
            flash_bytes: u64::from(now.unwrap_or(0)) * page,
            policy: args.policy.clone().unwrap_or_else(|| "auto".into()),
            memory_bytes: args.pool_bytes / page * page,
            pinned: live::pinned(args, workload)?,
            write_back: args.write_back,
            ..State::default()
        },
        sizes,
        policies: args.policies.clone(),
        prices: Prices {
            flash_per_gib: args.flash_price,
            dram_per_gib: args.dram_price,
        },
        endurance: Endurance {
            drive_writes_per_day: args.dwpd,
            years: args.years,
        },
        worth: args.worth,
    })
}

/// Refuses tiers whose tables do not fit into memory: those of `slots`, and of the `now` there is.
fn fit(args: &AdviseArgs, slots: &[u32], now: Option<u32>) -> Outcome {
    let threads = args.threads.unwrap_or(0);
    let sample = match args.cache {
        Some(_) => "--share",
        None => "--sample",
    };
    let ways_out = |first: &str| format!("{first}, a smaller {sample} such as 10%, or --threads 1");
    let (what, first) = match now {
        _ if !args.sizes.is_empty() => ("--sizes", "smaller sizes"),
        Some(_) if args.keep_size => ("advise", "larger pages"),
        Some(_) => ("advise", "--keep-size"),
        None => ("advise", "smaller --sizes"),
    };
    // Sizes are tried under the policy there is, policies at the size there is.
    let policy = args.policy.clone().unwrap_or_else(|| "auto".into());
    modelled::fits(what, &[policy], slots, None, threads)
        .map_err(|failure| failure.advise(ways_out(first)))?;
    let one: Vec<u32> = now.or(slots.last().copied()).into_iter().collect();
    modelled::fits("advise", &args.policies, &one, None, threads)
        .map_err(|failure| failure.advise(ways_out("fewer --policies")))
}

/// What is in the trace that was sampled.
fn all(workload: &Workload) -> Facts {
    let facts = workload.facts();
    Facts {
        distinct_pages: facts.all_pages(),
        ..facts.clone()
    }
}

/// Sizes to try, pages, in ascending order.
fn sizes(args: &AdviseArgs, workload: &Workload, now: Option<u32>) -> Result<Vec<u32>, Failure> {
    let facts = &all(workload);
    let given = args.sizes.iter();
    let given = given.map(|size| modelled::pages("--sizes", size, facts));
    let mut sizes: Vec<u32> = given.collect::<Result<_, _>>()?;
    if sizes.is_empty() {
        let (whole, shares): (u64, &[f64]) = match now {
            Some(now) if args.keep_size => (u64::from(now), &[1.0]),
            Some(now) => (u64::from(now), &[0.25, 0.5, 1.0, 2.0, 4.0]),
            None => (facts.distinct_pages, &[0.02, 0.05, 0.1, 0.2, 0.4, 0.7, 1.0]),
        };
        let size = |share: &f64| (whole as f64 * share).round().max(1.0) as u32;
        sizes = shares.iter().map(size).collect();
    }
    sizes.sort_unstable();
    sizes.dedup();
    Ok(sizes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_trace_are_in_per_cent() {
        assert_eq!((share("0%"), share("50%")), (Ok(0.0), Ok(0.5)));
        for text in ["0.5", "50", "101%", "-1%"] {
            assert!(share(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_cache_is_as_much_longer_as_it_has_more_pages() {
        let cache = Cache {
            bytes: 4 << 20,
            pages: 500,
            reserve: 0.1,
        };
        let lengths = [500, 1000, 250, 501].map(|pages| cache.length(pages));
        assert_eq!(lengths, [4 << 20, 8 << 20, 2 << 20, (4 << 20) + 3 * 4096]);
        assert_eq!(cache.length(u64::MAX), u64::MAX);
    }
}
