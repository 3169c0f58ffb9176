//! What the commands that work on traces share: reading, device models, progress bars.

mod memory;
mod notes;

use crate::config::{self, Config};
use crate::failure::{Code, Failure, Outcome};
use crate::show::status;
use crate::study::simulate::{self, Order, TierSize, TraceInput, WriteMode};
use crate::units::{Size, show_bytes};
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};
use indicatif::{ProgressBar, ProgressStyle};
pub(crate) use memory::fits;
use notes::Notes;
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use thermocline_core::Costs;
use thermocline_sim::device::{BASES, Devices, FLASHES, Timing};
use thermocline_sim::experiment::Progress;
use thermocline_sim::workload::Facts;
use thermocline_sim::{
    Bypassed, Interleave, Noise, Opener, SimError, Workload, WorkloadOptions, Writes,
};
use thermocline_trace::Sample;

/// A bar appears when something takes longer than this.
const PATIENCE: Duration = Duration::from_secs(2);

/// How a trace becomes page requests.
#[derive(Args, Clone, Debug)]
pub(crate) struct Reading {
    #[command(flatten)]
    pub(crate) input: TraceInput,
    /// What writes do
    #[arg(long, value_enum, default_value_t)]
    pub(crate) writes: WriteMode,
    /// How several traces become one
    #[arg(long, value_enum, default_value_t)]
    pub(crate) interleave: Order,
    /// Memory for the decoded trace; a longer one is read again from its files
    #[arg(long, value_name = "SIZE", default_value = "2GiB")]
    pub(crate) memory: Size,
}

impl Reading {
    /// Reads the traces once.
    pub(crate) fn open(&self) -> Result<Workload, Failure> {
        self.open_with(Noise::default())
    }

    /// A sample of the part of the traces from one share of their records to another.
    pub(crate) fn open_part(
        &self,
        from: f64,
        to: f64,
        sample: Sample,
    ) -> Result<Workload, Failure> {
        let page_size = self.input.page_size()?;
        let openers = self.input.openers()?.into_iter();
        let parts = openers.map(|open| {
            let part = thermocline_sim::part(open, from, to);
            thermocline_sim::sampled(part, sample, page_size)
        });
        self.open_all(parts.collect(), Noise::default())
    }

    /// The same with hint types that mean nothing.
    pub(crate) fn open_with(&self, noise: Noise) -> Result<Workload, Failure> {
        let workload = self.open_all(self.input.openers()?, noise)?;
        let share = workload.facts().share;
        if share < 1.0 {
            eprintln!(
                "note: this is a sample of {:.1} % of all extents; sizes, times and rates are \
                 those of the sample (advise reckons with it)",
                100.0 * share
            );
        }
        Ok(workload)
    }

    fn open_all(&self, openers: Vec<Opener>, noise: Noise) -> Result<Workload, Failure> {
        let options = WorkloadOptions {
            page_size: self.input.page_size()?,
            writes: match self.writes {
                WriteMode::Allocate => Writes::Allocate,
                WriteMode::NoAllocate => Writes::NoAllocate,
                WriteMode::AsReads => Writes::AsReads,
                WriteMode::Ignore => Writes::Ignore,
            },
            bypassed: match self.input.bypassed {
                true => Bypassed::Include,
                false => Bypassed::Skip,
            },
            interleave: match self.interleave {
                Order::Time => Interleave::Time,
                Order::RoundRobin => Interleave::RoundRobin,
            },
            noise,
            memory: self
                .memory
                .bytes(config::PAGE_SIZE_MIN as u32)
                .unwrap_or(u64::MAX),
        };
        let bar = ProgressBar::new_spinner();
        bar.set_style(style(
            "{spinner} reading, {human_pos} page requests {elapsed}",
        ));
        let begin = Instant::now();
        let workload = Workload::open(openers, options, &mut |requests| {
            if begin.elapsed() > PATIENCE {
                bar.set_position(requests);
            }
        });
        bar.finish_and_clear();
        workload.map_err(|error| match error {
            SimError::PageSize { trace, size } => self.input.odd_page_size(trace, size),
            error => simulate::explain(&error),
        })
    }
}

/// `size` in pages of the workload, at least one.
pub(crate) fn pages(option: &str, size: &TierSize, facts: &Facts) -> Result<u32, Failure> {
    match size.pages(facts.distinct_pages, facts.page_size) {
        Some(0) => Err(
            Failure::usage(format!("{option} {size} holds not one page"))
                .advise("a larger size, or pages such as 100p"),
        ),
        Some(pages) => Ok(pages),
        None => Err(
            Failure::usage(format!("{option} {size} is more than 4,294,967,295 pages"))
                .advise("a smaller size, or larger pages"),
        ),
    }
}

/// `all` without those that were there before: what is written in two ways is run once.
pub(crate) fn once<T: PartialEq>(all: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut kept = Vec::new();
    for item in all {
        if !kept.contains(&item) {
            kept.push(item);
        }
    }
    kept
}

/// The devices of a model, and who waits for them.
#[derive(Args, Clone, Debug)]
pub(crate) struct ModelArgs {
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
    /// Read base once over up to so many bytes that are on flash, where one I/O needs pages on both
    /// sides; 0: never. By default as the live tier: what goes by in the time of a seek
    #[arg(long, value_name = "SIZE")]
    pub(crate) bridge: Option<Size>,
}

impl ModelArgs {
    /// The file with measured costs, where `--base` names one.
    pub(crate) fn file(&self) -> Option<PathBuf> {
        let file = || PathBuf::from(&self.base);
        Timing::base(&self.base).is_none().then(file)
    }

    /// The models called so, or measured costs in a file of that name.
    pub(crate) fn models(&self, page_size: u32) -> Result<Devices, Failure> {
        let models = devices(&self.base, &self.flash_device, page_size)?;
        let too_large = || Failure::usage("--bridge is too large");
        let bridge = self
            .bridge
            .map(|size| size.bytes(page_size).ok_or_else(too_large));
        Ok(Devices {
            bridge: bridge.transpose()?,
            ..models
        })
    }
}

/// The base device called `base`, or measured costs in a file of that name, and flash.
pub(crate) fn devices(base: &str, flash: &str, page_size: u32) -> Result<Devices, Failure> {
    if let (Some(base), Some(flash)) = (Timing::base(base), Timing::flash(flash)) {
        return Ok(Devices {
            base,
            flash,
            bridge: None,
        });
    }
    let path = Path::new(base);
    if !path.exists() {
        let names = BASES.join(", ");
        let fact = format!("--base {base} is neither a device nor a file");
        return Err(Failure::usage(fact).advise(format!(
            "{names}, or a file written by thermocline calibrate --config"
        )));
    }
    let config = Config::load(Some(path))?;
    let (costs, measured) = (config.costs, config.page_size()?);
    if measured != page_size {
        eprintln!(
            "note: {base} has costs of pages of {}; base's are reckoned for pages of {}, flash's \
             taken as they are",
            show_bytes(measured.into()),
            show_bytes(page_size.into())
        );
    }
    let costs = Costs {
        base_random_read: costs.base_random_read_us * 1e3,
        base_sequential_read: costs.base_sequential_read_us * 1e3,
        base_random_write: costs.base_random_write_us * 1e3,
        flash_read: costs.flash_read_us * 1e3,
        flash_write: costs.flash_write_us * 1e3,
    };
    Ok(Devices::calibrated_for(&costs, measured, page_size))
}

/// Does `work` under a bar that says `what` is being done and appears after two seconds.
pub(crate) fn watched<T: Send>(
    what: &str,
    work: impl FnOnce(&Progress) -> Result<T, SimError> + Send,
) -> Result<T, Failure> {
    let progress = Progress::default();
    let mut notes = Notes::new(what);
    let bar = ProgressBar::new(0).with_style(style(&format!(
        "{what} {{wide_bar}} {{percent}} % {{human_pos}} page requests, {{eta}} left"
    )));
    let results = std::thread::scope(|scope| {
        let work = scope.spawn(|| work(&progress));
        let begin = Instant::now();
        while !work.is_finished() {
            std::thread::sleep(Duration::from_millis(5));
            if begin.elapsed() > PATIENCE {
                let (total, done) = (&progress.total, &progress.done);
                let (total, done) = (total.load(Ordering::Relaxed), done.load(Ordering::Relaxed));
                bar.set_length(total);
                bar.set_position(done);
                notes.print(begin.elapsed(), done, total);
            }
        }
        work.join()
    });
    bar.finish_and_clear();
    match results {
        Ok(results) => results.map_err(|error| simulate::explain(&error)),
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// A progress bar that appears after two seconds; lines where standard error is no terminal.
pub(crate) struct Bar {
    bar: ProgressBar,
    begin: Instant,
    notes: Mutex<Notes>,
}

impl Bar {
    /// A bar up to `length` for `what`; `template` is indicatif's.
    pub(crate) fn new(what: &str, template: &str, length: u64) -> Self {
        let style = style(&format!("{what} {template}"));
        Self {
            bar: ProgressBar::new(length).with_style(style),
            begin: Instant::now(),
            notes: Mutex::new(Notes::new(what)),
        }
    }

    /// What is being done now, where the template has a place for it.
    pub(crate) fn tell(&self, message: &'static str) {
        self.bar.set_message(message);
    }

    /// That much is done.
    pub(crate) fn set(&self, position: u64) {
        let elapsed = self.begin.elapsed();
        if elapsed > PATIENCE {
            self.bar.set_position(position);
            let mut notes = self.notes.lock().unwrap_or_else(PoisonError::into_inner);
            notes.print(elapsed, position, self.bar.length().unwrap_or(0));
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn style(template: &str) -> ProgressStyle {
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}

/// Prints `value` as JSON.
pub(crate) fn print_json(value: &impl Serialize) -> Outcome {
    status::print(&json(value)?)
}

/// Results as JSON, a line end after them.
pub(crate) fn json(value: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|e| Failure::new(Code::Failure, format!("cannot print the results: {e}")))?;
    Ok(text + "\n")
}
