//! `calibrate`: what a page costs on the user's own two devices, into the configuration.

use crate::config::{self, Config};
use crate::failure::{Code, Failure, Outcome};
use crate::settings;
use crate::show::table::Table;
use crate::study::modelled::Bar;
use crate::units::{Size, show_bytes, show_nanoseconds};
use clap::builder::PossibleValuesParser;
use clap::{Args, ValueHint};
use serde::Serialize;
use std::path::{Path, PathBuf};
use std::time::Duration;
use thermocline::calibrate::{self, CalibrateOptions, DeviceCosts, Measured, Progress};
use thermocline::config::CostSettings;
use thermocline::device::{Device, FileDevice, FileOptions, ShapedDisk};
use thermocline_core::model::Model;

/// Shown at the end of `calibrate --help`.
pub(crate) const HELP: &str = "\
Measures reads and writes, random and in order, of a scratch file in each directory. Take files as
large as there is room for, and measure while nothing else uses the devices. A block device is
refused, because measuring overwrites: give a directory on a file system of that flash before the
device becomes a cache.
  thermocline calibrate --base /bulk --cache /ssd --config tier.toml --scratch 16GiB";

/// `thermocline calibrate`.
#[derive(Args, Debug)]
pub(crate) struct CalibrateArgs {
    /// A directory on the base device; a scratch file is written there and removed
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) base: PathBuf,
    /// A directory on a file system of the flash device, or the place of the cache file in one; as
    /// with base
    #[arg(long, value_name = "DIR|FILE", value_hint = ValueHint::AnyPath)]
    pub(crate) cache: PathBuf,
    /// Configuration file to write the costs to; others of its lines stay as they are
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    /// Page size to measure with [config: tier.page_size]
    #[arg(long, value_name = "SIZE")]
    pub(crate) page_size: Option<Size>,
    /// Size of the scratch files; a short one makes a hard disk look fast: its arm hardly moves
    #[arg(long, value_name = "SIZE", default_value = "1GiB")]
    pub(crate) scratch: Size,
    /// Seconds for each measurement at most; filling the scratch file takes as long as it takes
    #[arg(long, value_name = "SECONDS", default_value_t = 5,
          value_parser = clap::value_parser!(u64).range(1..=600))]
    pub(crate) seconds: u64,
    /// Slow the base down to an emulated device, to try things out
    #[arg(long, value_name = "DEVICE", value_parser = PossibleValuesParser::new(Model::PRESETS))]
    pub(crate) emulate_base: Option<String>,
    /// Print the result as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// Steps of a device's progress bar in one of its phases.
const STEPS: u64 = 1000;
/// Measured phases of a device.
const PHASES: u64 = 4;

/// What was measured, for `--json`.
#[derive(Serialize)]
struct Calibration {
    base: DeviceCosts,
    flash: DeviceCosts,
    costs: CostSettings,
}

/// Measures both devices, prints the figures and stores the costs.
pub(crate) fn run(args: &CalibrateArgs) -> Outcome {
    // A file that cannot be edited is better refused before the measuring than after.
    let config = Config::load(args.config.as_deref().filter(|path| path.exists()))?;
    let options = options(args, &config)?;
    let base = open(&args.base, options.span)?;
    let flash = open(&flash_directory(&args.cache)?, options.span)?;
    let base = slowed(base, args.emulate_base.as_deref(), options.span);
    let base = measure("base", &*base, &options)?;
    let flash = measure("flash", &flash, &options)?;
    let costs = costs(&base, &flash);
    let calibration = Calibration { base, flash, costs };
    if args.json {
        let text = serde_json::to_string_pretty(&calibration);
        let text = text.map_err(|e| Failure::new(Code::Failure, e.to_string()))?;
        println!("{text}");
    } else {
        print!("{}", show(&calibration));
    }
    store(args, &calibration)
}

fn options(args: &CalibrateArgs, config: &Config) -> Result<CalibrateOptions, Failure> {
    let stored = config.page_size()?;
    let page_size = match args.page_size {
        Some(size) => config::page_size("--page-size", size)?,
        None => stored,
    };
    // Whoever reads the file takes its costs for those of the pages that it says.
    if let Some(path) = args.config.as_ref().filter(|_| page_size != stored) {
        let (asked, stored) = (show_bytes(page_size.into()), show_bytes(stored.into()));
        let fact = format!(
            "--page-size {asked}: {} is for pages of {stored}, and its costs would be too",
            path.display()
        );
        return Err(Failure::usage(fact).advise("no --page-size, or tier.page_size in the file"));
    }
    let span = args
        .scratch
        .bytes(page_size)
        .filter(|bytes| *bytes >= 1 << 20);
    let span = span.ok_or_else(|| {
        Failure::usage(format!(
            "--scratch {} is not accepted: 1MiB at least",
            args.scratch
        ))
    })?;
    let duration = Duration::from_secs(args.seconds);
    Ok(CalibrateOptions {
        duration,
        page_size,
        span,
        ..CalibrateOptions::default()
    })
}

/// The directory on flash: the one given, or the one the cache file is to be in.
fn flash_directory(cache: &Path) -> Result<PathBuf, Failure> {
    if cache.is_dir() {
        return Ok(cache.to_path_buf());
    }
    // What is there may be a link: its file is elsewhere, and may be a device.
    let found = cache.metadata().ok();
    let device = match &found {
        Some(found) => !found.is_file(),
        None => cache.starts_with("/dev"),
    };
    let place = cache.canonicalize().ok().filter(|_| found.is_some());
    let place = place.unwrap_or_else(|| cache.to_path_buf());
    if device {
        return Err(
            Failure::usage(format!("{} is a device, not a directory", cache.display()))
                .advise("measuring overwrites: give a directory on a file system of that device"),
        );
    }
    let parent = place
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    Ok(parent.unwrap_or(Path::new(".")).to_path_buf())
}

fn open(directory: &Path, span: u64) -> Result<FileDevice, Failure> {
    calibrate::scratch(directory, span, FileOptions::default()).map_err(|error| {
        let failure = Failure::io("make a scratch file in", directory, &error);
        match error.kind() {
            std::io::ErrorKind::StorageFull => {
                let size = Size::Bytes(span);
                failure.advise(format!(
                    "free {size} there, or a smaller --scratch than {size}"
                ))
            }
            _ => failure,
        }
    })
}

/// The device at the pace of the emulated one, if there is to be one.
fn slowed(device: FileDevice, emulated: Option<&str>, span: u64) -> Box<dyn Device> {
    match emulated.and_then(Model::preset) {
        Some(model) => {
            // The scratch file stands for a full drive: the arm moves over all of it.
            Box::new(ShapedDisk::new(model, span).attach(device, 0))
        }
        None => Box::new(device),
    }
}

fn measure(
    role: &str,
    device: &dyn Device,
    options: &CalibrateOptions,
) -> Result<DeviceCosts, Failure> {
    let bar = Bar::new(
        &format!("measuring {role}"),
        "{bar:30} {msg}",
        PHASES * STEPS,
    );
    let mut advance = |progress: Progress| {
        let within = (progress.share * STEPS as f64) as u64;
        bar.tell(progress.phase.name());
        bar.set(progress.phase as u64 * STEPS + within);
    };
    let costs = calibrate::calibrate(device, options, &mut advance);
    drop(bar);
    costs.map_err(|error| {
        let reason = crate::failure::reason(&error);
        Failure::new(
            Code::Failure,
            format!("cannot measure {role} {}: {reason}", device.label()),
        )
    })
}

/// The measured costs as settings. Sequential rates per page are those of large requests.
fn costs(base: &DeviceCosts, flash: &DeviceCosts) -> CostSettings {
    let write = |costs: &DeviceCosts| {
        costs
            .random_write
            .map_or(costs.random_read.mean_us, |write| write.mean_us)
    };
    CostSettings {
        base_random_read_us: base.random_read.mean_us,
        base_sequential_read_us: base.sequential_read.mean_us,
        base_random_write_us: write(base),
        flash_read_us: flash.random_read.mean_us,
        flash_write_us: write(flash),
    }
}

fn show(calibration: &Calibration) -> String {
    let mut table = Table::new(&["device", "I/O", "per page", "p50", "p99", "rate"]).left(2);
    for (role, costs) in [("base", &calibration.base), ("flash", &calibration.flash)] {
        let write = costs.random_write;
        let rows = [
            ("random read", Some(costs.random_read)),
            ("random write", write),
            ("sequential read", Some(costs.sequential_read)),
            ("sequential write", Some(costs.sequential_write)),
        ];
        for (name, measured) in rows {
            if let Some(measured) = measured {
                table.row(row(role, name, &measured));
            }
        }
    }
    let said = |costs: &DeviceCosts| match costs.page_cache {
        true => format!(
            "{}\n       refuses direct I/O: read through the system's page cache, emptied before \
             each read; what the system keeps all the same looks faster than it is",
            costs.device
        ),
        false => format!("{}, past the page cache", costs.device),
    };
    let (base, flash) = (said(&calibration.base), said(&calibration.flash));
    let page = show_bytes(calibration.base.page_size.into());
    let saved = calibration.costs.base_random_read_us / calibration.costs.flash_read_us.max(1e-3);
    format!(
        "base   {base}\nflash  {flash}\n\npages of {page}; sequential requests of 1 MiB\n{table}\n\
         A random read takes {saved:.1} times as long from base as from flash{}\n",
        verdict(saved)
    )
}

/// Base must be so many times as slow for a tier to be worth the trouble.
const WORTH: f64 = 2.0;

/// The end of the sentence about how many times as long a read takes from base.
fn verdict(saved: f64) -> &'static str {
    match saved < WORTH {
        true => {
            ": a tier will not help here.\n\
             Is base the slow storage, and flash another device? If so, a tier gains nothing."
        }
        false => ".",
    }
}

fn row(role: &str, name: &str, measured: &Measured) -> [String; 6] {
    let time = |microseconds: f64| show_nanoseconds((microseconds * 1e3).round() as u64);
    [
        role.to_string(),
        name.to_string(),
        time(measured.mean_us),
        time(measured.median_us),
        time(measured.p99_us),
        format!("{:.1} MiB/s", measured.mib_per_s),
    ]
}

/// Writes the costs to the configuration, or says how to.
fn store(args: &CalibrateArgs, calibration: &Calibration) -> Outcome {
    let Some(path) = &args.config else {
        if !args.json {
            println!("Not stored: --config FILE writes these costs into a configuration.");
        }
        return Ok(());
    };
    let (base, flash) = (&calibration.base.device, &calibration.flash.device);
    let note = format!("Measured by thermocline calibrate: base {base}, flash {flash}.");
    settings::store_costs(path, &calibration.costs, &note)?;
    if !args.json {
        println!("Costs written to {}.", path.display());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(mean_us: f64) -> Measured {
        Measured {
            mean_us,
            ..Measured::default()
        }
    }

    #[test]
    fn each_figure_becomes_its_setting() {
        let device = |random, write, sequential| DeviceCosts {
            random_read: measured(random),
            random_write: Some(measured(write)),
            sequential_read: measured(sequential),
            ..DeviceCosts::default()
        };
        let costs = costs(&device(8000.0, 9000.0, 60.0), &device(80.0, 20.0, 3.0));
        let expected = CostSettings {
            base_random_read_us: 8000.0,
            base_sequential_read_us: 60.0,
            base_random_write_us: 9000.0,
            flash_read_us: 80.0,
            flash_write_us: 20.0,
        };
        assert_eq!(costs, expected);
    }

    #[test]
    fn flash_that_is_no_faster_is_said_to_be_no_help() {
        let told = |base, flash| {
            let device = |mean| DeviceCosts {
                random_read: measured(mean),
                ..DeviceCosts::default()
            };
            let (base, flash) = (device(base), device(flash));
            let costs = costs(&base, &flash);
            show(&Calibration { base, flash, costs })
        };
        let same = told(80.0, 80.0);
        assert!(
            same.contains("1.0 times as long") && same.contains("will not help"),
            "{same}"
        );
        let disk = told(8000.0, 80.0);
        assert!(!disk.contains("will not help"), "{disk}");
    }

    #[test]
    fn costs_are_stored_for_the_pages_that_the_file_is_for() {
        let args = |config: Option<&str>| CalibrateArgs {
            base: ".".into(),
            cache: ".".into(),
            config: config.map(PathBuf::from),
            page_size: Some(Size::Bytes(16384)),
            scratch: Size::Bytes(1 << 20),
            seconds: 1,
            emulate_base: None,
            json: false,
        };
        let config = |text| Config::parse(text, "t").expect("parses");
        let others = config("[tier]\npage_size = \"8KiB\"\n");
        assert!(options(&args(None), &others).is_ok());
        let failure = options(&args(Some("t.toml")), &others).expect_err("refused");
        let parts = ["t.toml is for pages of 8.0 KiB", "16.0 KiB"];
        assert!(
            parts.iter().all(|part| failure.message.contains(part)),
            "{failure}"
        );
        let same = config("[tier]\npage_size = \"16KiB\"\n");
        assert!(options(&args(Some("t.toml")), &same).is_ok());
    }

    #[test]
    fn the_place_of_a_cache_file_is_its_directory() {
        let directory = tempfile::tempdir().expect("dir");
        let file = directory.path().join("tier");
        assert_eq!(flash_directory(&file).expect("directory"), directory.path());
        assert_eq!(
            flash_directory(directory.path()).expect("directory"),
            directory.path()
        );
        assert_eq!(
            flash_directory(Path::new("tier")).expect("directory"),
            Path::new(".")
        );
        assert!(flash_directory(Path::new("/dev/nvme0n1")).is_err());
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("/dev/null", &link).expect("link");
        let refused = flash_directory(&link).expect_err("a device");
        assert!(refused.message.contains("is a device"), "{refused}");
        // The cache file is where a link to it leads.
        let elsewhere = tempfile::tempdir().expect("dir");
        let (file, link) = (elsewhere.path().join("tier"), directory.path().join("tier"));
        std::fs::write(&file, "").expect("file");
        std::os::unix::fs::symlink(&file, &link).expect("link");
        let found = flash_directory(&link).expect("directory");
        assert_eq!(found, elsewhere.path().canonicalize().expect("there"));
    }
}
