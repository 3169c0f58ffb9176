//! The demonstration: TPC-C-shaped transactions in an embedded SQLite, on an emulated hard disk,
//! with and without a flash tier.
//!
//! The database is loaded once and copied for every run; every run does the same transactions
//! (same seed), so runs differ in nothing but where pages come from.

mod bands;
mod clock;
mod outcome;
mod picture;
mod report;
mod run;
mod tpcc;

use crate::failure::{Failure, Outcome as Done};
use crate::show::beside;
use crate::units::Size;
use anyhow::{Context, Result};
use clap::ValueHint;
use indicatif::{ProgressBar, ProgressStyle};
use outcome::{Band, Outcome};
use run::{Plan, Setup};
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thermocline_core::policy::NAMES;

/// Most SQLite takes per page.
const PAGE_SIZES: std::ops::RangeInclusive<u32> = 512..=65_536;

/// What `demo --help` ends with.
pub(crate) const EXPLANATION: &str = "\
Loads a TPC-C-shaped database into an embedded SQLite, then runs the same transactions with its
pages on an emulated hard disk alone, with a flash tier above the disk under each policy, and on
the fast device alone. Prints a table and writes a picture of the hit ratio and of the pages read
over time.

Only the hard disk is emulated: a model of a 7200-rpm drive (seek, rotation, transfer) says how
long each request takes, and that time is added to the run's clock instead of being waited for
(--real-time waits). Flash and all-SSD are a real file in --dir, as fast as that is.";

/// `thermocline demo`.
#[derive(clap::Args, Debug)]
pub(crate) struct DemoArgs {
    /// Size of the database; rounded down to warehouses of about 7 MB, a tenth of TPC-C's
    #[arg(long, value_name = "SIZE", default_value = "84MB")]
    db_size: Size,
    /// Size of the flash tier [default: a quarter of the database]
    #[arg(long, value_name = "SIZE")]
    flash: Option<Size>,
    /// Pages of a region, whose temperature TAC keeps: 8 to 64. The paper's 32 is for databases of
    /// gigabytes; this one is small
    #[arg(long, value_name = "PAGES", default_value_t = 8,
          value_parser = clap::value_parser!(u32).range(8..=64))]
    region_pages: u32,
    /// Memory for pages: SQLite's cache and the pool below it [default: 2.5 % of the database]
    #[arg(long, value_name = "SIZE")]
    dram: Option<Size>,
    /// Page size of the database
    #[arg(long, value_name = "SIZE", default_value = "4KiB")]
    page_size: Size,
    /// Tier policies to run, in this order
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "lru,tac,auto",
          value_parser = clap::builder::PossibleValuesParser::new(NAMES))]
    policies: Vec<String>,
    /// Transactions measured in each run
    #[arg(long, value_name = "COUNT", default_value_t = 3_000,
          value_parser = clap::value_parser!(u64).range(1..))]
    transactions: u64,
    /// Transactions before, while the tier fills [default: as many as are measured]
    #[arg(long, value_name = "COUNT")]
    warm_up: Option<u64>,
    /// Wall-clock seconds a run may take; it is cut short after that, and the table says so
    #[arg(long, value_name = "SECONDS", default_value_t = 20,
          value_parser = clap::value_parser!(u64).range(1..))]
    seconds: u64,
    /// How unequally busy the warehouses are: the n-th busiest gets 1/n^SKEW of the orders; 0 for
    /// equally, as TPC-C has it
    #[arg(long, default_value_t = 1.0)]
    skew: f64,
    /// Seed of the data and of the transactions
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Really wait for the emulated disk; takes minutes, raise --seconds with it
    #[arg(long)]
    real_time: bool,
    /// Directory for the temporary files, on the fast device [default: the system's]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    dir: Option<PathBuf>,
    /// Where to write the picture
    #[arg(long, value_name = "FILE", default_value = "thermocline-demo.html",
          value_hint = ValueHint::FilePath)]
    out: PathBuf,
    /// Print the results as JSON: an array of one object per run
    #[arg(long)]
    json: bool,
}

/// Runs the demonstration.
pub(crate) fn run(args: &DemoArgs) -> Done {
    let page_size = page_size(args.page_size)?;
    beside::only_pages("--out", Some(&args.out))?;
    let (outcomes, bands, summary) = demonstrate(args, page_size)?;
    let html = picture::html(&outcomes, &bands, &summary, args.region_pages);
    beside::write(&args.out, &html)?;
    if args.json {
        let json = serde_json::to_string_pretty(&outcomes).map_err(anyhow::Error::from)?;
        println!("{json}");
        return Ok(());
    }
    println!("\n{}", report::table(&outcomes));
    report::notes(&outcomes)
        .iter()
        .for_each(|note| println!("{note}"));
    println!("picture: {}", args.out.display());
    Ok(())
}

fn page_size(size: Size) -> Result<u32, Failure> {
    let bytes = size.bytes(1).and_then(|bytes| u32::try_from(bytes).ok());
    match bytes.filter(|b| b.is_power_of_two() && PAGE_SIZES.contains(b)) {
        Some(bytes) => Ok(bytes),
        None => Err(Failure::usage(format!("SQLite has no pages of {size}"))
            .advise("use a power of two from 512 to 64KiB")),
    }
}

type Demonstrated = (Vec<Outcome>, Vec<Band>, Vec<String>);

fn demonstrate(args: &DemoArgs, page_size: u32) -> Result<Demonstrated> {
    let directory = match &args.dir {
        Some(dir) => tempfile::TempDir::new_in(dir),
        None => tempfile::TempDir::new(),
    };
    let directory = directory.context("cannot make a directory for temporary files")?;
    let plan = prepare(args, page_size, directory.path())?;
    let bands = bands::of(&plan.template)?;
    let summary = report::summary(&plan)?;
    if !args.json {
        summary.iter().for_each(|line| println!("{line}"));
    }
    let tiers = args.policies.iter().cloned().map(Setup::Tier);
    let setups = [Setup::HardDisk]
        .into_iter()
        .chain(tiers)
        .chain([Setup::AllSsd]);
    let mut outcomes = vec![];
    for setup in setups {
        let bar = bar(plan.warm_up + plan.transactions, setup.name());
        let outcome = run::run(&plan, &setup, &bar);
        bar.finish_and_clear();
        outcomes.push(outcome.with_context(|| format!("run {:?} failed", setup.name()))?);
    }
    compare(&mut outcomes);
    Ok((outcomes, bands, summary))
}

/// Loads the database and settles the sizes that depend on its own.
fn prepare(args: &DemoArgs, page_size: u32, directory: &Path) -> Result<Plan> {
    let wanted = args
        .db_size
        .bytes(page_size)
        .context("the database would be too large")?;
    let scale = tpcc::Scale::for_size(wanted, args.skew);
    let template = directory.join("loaded.db");
    load(&template, scale, page_size, args.seed)?;
    let bytes = std::fs::metadata(&template)?.len();
    let given = |size: Option<Size>, default: u64| {
        size.map_or(Some(default), |size| size.bytes(page_size))
            .context("a size is too large")
    };
    let dram = given(args.dram, bytes / 40)?;
    Ok(Plan {
        directory: directory.to_owned(),
        template,
        scale,
        seed: args.seed.wrapping_add(1),
        page_size,
        flash_bytes: given(args.flash, bytes / 4)?,
        region_pages: args.region_pages,
        pool_bytes: dram - dram / 4,
        cache_bytes: dram / 4,
        checkpoint_pages: 1_000,
        warm_up: args.warm_up.unwrap_or(args.transactions),
        transactions: args.transactions,
        limit: Duration::from_secs(args.seconds),
        real_time: args.real_time,
    })
}

fn load(path: &Path, scale: tpcc::Scale, page_size: u32, seed: u64) -> Result<()> {
    let bar = bar(scale.load_steps(), "load");
    let db = Connection::open(path)?;
    db.execute_batch(&format!(
        "PRAGMA page_size={page_size}; PRAGMA journal_mode=off; PRAGMA synchronous=off; \
         PRAGMA locking_mode=exclusive; PRAGMA cache_size=-65536"
    ))?;
    tpcc::load(&db, scale, seed, &mut |rows| bar.inc(rows))?;
    db.close().map_err(|(_, error)| error)?;
    bar.finish_and_clear();
    Ok(())
}

fn compare(outcomes: &mut [Outcome]) {
    let alone = outcomes
        .iter()
        .find(|run| run.name == "hdd")
        .map(|run| run.transactions_per_second);
    for run in outcomes {
        run.speed_up = alone.map(|alone| run.transactions_per_second / alone.max(1e-9));
    }
}

/// A progress bar on standard error; nothing when that is not a terminal.
fn bar(length: u64, name: &str) -> ProgressBar {
    let style =
        ProgressStyle::with_template("{prefix:>6} {wide_bar:.cyan/dim} {percent:>3} % {eta:>4}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    ProgressBar::new(length)
        .with_style(style)
        .with_prefix(name.to_owned())
}
