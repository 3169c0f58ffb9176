//! `crash`: the crash tester's command.

use clap::{Parser, ValueEnum};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::IsTerminal;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use thermocline_core::policy;
use thermocline_crash::{Failure, Mode, Options, Tally, run, run_store};

/// Runs the engine on simulated disks that lose power at every request, and compares every byte.
#[derive(Parser)]
#[command(name = "crash", version)]
struct Arguments {
    /// Seeds to run, in each mode
    #[arg(long, default_value_t = 100)]
    seeds: u64,
    /// The first of them
    #[arg(long, default_value_t = 1)]
    first_seed: u64,
    /// Run this seed only
    #[arg(long, conflicts_with_all = ["seeds", "first_seed"])]
    seed: Option<u64>,
    /// Write modes
    #[arg(long, value_enum, default_value_t = Modes::Both)]
    mode: Modes,
    /// Steps of each workload
    #[arg(long, default_value_t = 150)]
    steps: u32,
    /// Tier policy at the start of each run, instead of all in turn; not of the store alone
    #[arg(long, value_name = "NAME", value_parser = policy)]
    policy: Option<&'static str>,
    /// Print every step
    #[arg(long)]
    trace: bool,
    /// Print the totals as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Modes {
    Through,
    Back,
    Both,
    /// The store alone
    Store,
}

impl Modes {
    fn list(self) -> &'static [Mode] {
        match self {
            Self::Through => &[Mode::Through],
            Self::Back => &[Mode::Back],
            Self::Both => &[Mode::Through, Mode::Back],
            Self::Store => &[Mode::Store],
        }
    }
}

/// A failure with what reproduces it.
struct Found {
    seed: u64,
    mode: Mode,
    policy: Option<&'static str>,
    failure: Failure,
}

impl Found {
    fn command(&self) -> String {
        let (seed, mode) = (self.seed, self.mode.name());
        let policy = self.policy.map(|name| format!(" --policy {name}"));
        let options = format!("--seed {seed} --mode {mode}{}", policy.unwrap_or_default());
        format!("cargo run --release -p thermocline-crash -- {options} --trace")
    }
}

/// The policy called `name`.
fn policy(name: &str) -> Result<&'static str, String> {
    let found = policy::NAMES.iter().find(|known| **known == name);
    let found = found.copied();
    found.ok_or_else(|| format!("no such policy; there are {}", policy::NAMES.join(", ")))
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let (first, count) = match arguments.seed {
        Some(seed) => (seed, 1),
        None => (arguments.first_seed, arguments.seeds),
    };
    let started = Instant::now();
    let mut tally = Tally::default();
    let mut found = Vec::new();
    let modes = arguments.mode.list();
    let bar = progress(count * modes.len() as u64, &arguments);
    for seed in first..first + count {
        for mode in modes {
            if let Err(failure) = one(seed, *mode, &arguments, &mut tally) {
                let mode = *mode;
                let one = Found {
                    seed,
                    mode,
                    policy: arguments.policy,
                    failure,
                };
                bar.suspend(|| print_failure(&one));
                found.push(one);
            }
            // Quick runs show no bar.
            if started.elapsed() > Duration::from_secs(2) {
                bar.set_message(format!("{} crash points", tally.crash_points));
                bar.set_position((seed - first) * modes.len() as u64 + 1);
            }
        }
    }
    bar.finish_and_clear();
    match arguments.json {
        true => print_json(count, &tally, &found, started.elapsed()),
        false => print_totals(count, &tally, &found, started.elapsed()),
    }
    match found.is_empty() {
        true => ExitCode::SUCCESS,
        false => ExitCode::FAILURE,
    }
}

/// One run; a panic of the engine is a failure like any other.
fn one(seed: u64, mode: Mode, arguments: &Arguments, tally: &mut Tally) -> Result<(), Failure> {
    let options = Options {
        steps: arguments.steps,
        policy: arguments.policy,
        trace: arguments.trace,
        ..Options::of(mode)
    };
    let result = catch_unwind(AssertUnwindSafe(|| match mode {
        Mode::Store => run_store(seed, &options, tally),
        _ => run(seed, &options, tally),
    }));
    result.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        Err(Failure {
            step: 0,
            during: "a step".into(),
            what: format!("panic: {}", text.unwrap_or_default()),
        })
    })
}

fn progress(runs: u64, arguments: &Arguments) -> ProgressBar {
    if arguments.json || arguments.trace || !std::io::stderr().is_terminal() {
        return ProgressBar::hidden();
    }
    let bar = ProgressBar::new(runs);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len} runs, {msg}, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

fn print_failure(found: &Found) {
    let Found {
        seed,
        mode,
        failure,
        ..
    } = found;
    let Failure { step, during, what } = failure;
    eprintln!(
        "FAILED seed {seed}, mode {}, step {step}, {during}",
        mode.name()
    );
    eprintln!("  {what}\n  {}", found.command());
}

fn print_totals(seeds: u64, tally: &Tally, found: &[Found], took: Duration) {
    println!(
        "{seeds} seeds, {} steps: {} crash points, {} recoveries ({} of second or third crashes), \
         {} failures, in {:.1} s",
        tally.steps,
        tally.crash_points,
        tally.recoveries,
        tally.second_crashes,
        found.len(),
        took.as_secs_f64(),
    );
    let mib = tally.bytes as f64 / (1 << 20) as f64;
    println!(
        "{mib:.0} MiB compared, {} resizes, {} pages warmed, {} requests failed by planned \
         faults, {} starts rightly refused",
        tally.resizes, tally.warmed, tally.refused, tally.refused_starts
    );
    println!(
        "{} crash points while the map was being read, {} recoveries that served before it was, {} \
         batches written while the one before was made durable, {} pages written again while a \
         sync wrote them",
        tally.crash_points_loading, tally.loads, tally.meanwhile, tally.rewrites
    );
    println!(
        "base served elsewhere {} times, {} times refused for what a cache owes it; rolled back {} \
         times; {} openings began while the cache was served; base was marked as whole {} times",
        tally.elsewhere, tally.refused_elsewhere, tally.rolled_back, tally.renewed, tally.settled
    );
}

fn print_json(seeds: u64, tally: &Tally, found: &[Found], took: Duration) {
    let failures = found.iter().map(|one| {
        serde_json::json!({
            "seed": one.seed,
            "mode": one.mode.name(),
            "step": one.failure.step,
            "during": one.failure.during,
            "what": one.failure.what,
            "reproduce": one.command(),
        })
    });
    let report = serde_json::json!({
        "seeds": seeds,
        "steps": tally.steps,
        "crash_points": tally.crash_points,
        "recoveries": tally.recoveries,
        "second_crashes": tally.second_crashes,
        "bytes_compared": tally.bytes,
        "resizes": tally.resizes,
        "warmed": tally.warmed,
        "crash_points_loading": tally.crash_points_loading,
        "recoveries_loading": tally.loads,
        "failed_requests": tally.refused,
        "refused_starts": tally.refused_starts,
        "batches_meanwhile": tally.meanwhile,
        "rewrites": tally.rewrites,
        "served_elsewhere": tally.elsewhere,
        "refused_elsewhere": tally.refused_elsewhere,
        "rolled_back": tally.rolled_back,
        "renewed": tally.renewed,
        "marked_whole": tally.settled,
        "seconds": took.as_secs_f64(),
        "failures": failures.collect::<Vec<_>>(),
    });
    println!("{report}");
}
