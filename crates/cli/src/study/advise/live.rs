//! Advice on a running mount: its requests are recorded for a while, and its size, policy and pins
//! are those to start from.

use super::{AdviseArgs, Cache};
use crate::config::Config;
use crate::failure::{Code, Failure, Outcome};
use crate::serve::signals::Signals;
use crate::serve::{client, record, reshape};
use crate::study::simulate::{self, TierSize};
use crate::units::Size;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thermocline::Pins;
use thermocline_sim::Workload;
use thermocline_sim::experiment::Experiment;
use thermocline_sim::placement;

/// The mountpoint that is named instead of traces.
pub(super) fn mountpoint(args: &AdviseArgs) -> Result<Option<&Path>, Failure> {
    let traces = &args.reading.input.traces;
    match traces.iter().find(|path| path.is_dir()) {
        None => Ok(None),
        Some(mountpoint) if traces.len() == 1 => Ok(Some(mountpoint)),
        Some(mountpoint) => {
            let fact = format!("{} is a directory among traces", mountpoint.display());
            Err(Failure::usage(fact).advise("one mountpoint alone, or traces"))
        }
    }
}

/// Records and advises.
pub(super) fn run(args: &AdviseArgs, mountpoint: &Path) -> Outcome {
    // "." and ".." have no name, and commands that are printed hold elsewhere too.
    let mountpoint = &mountpoint
        .canonicalize()
        .map_err(|error| Failure::io("look at", mountpoint, &error))?;
    let report = reshape::report(mountpoint)?;
    let Some(tier) = report.stats.tier else {
        let message = format!("the mount at {} has no flash tier", mountpoint.display());
        return Err(Failure::new(Code::Failure, message)
            .advise("record it with `thermocline record`, and advise on the trace"));
    };
    let config = Config::parse(&client::read(mountpoint, "config")?, "the mount's settings")?;
    let directory = tempfile::tempdir()
        .map_err(|error| Failure::io("write to", &std::env::temp_dir(), &error))?;
    let mut name = mountpoint.file_name().unwrap_or("root".as_ref()).to_owned();
    name.push(".parquet");
    let trace = directory.path().join(name);
    let end = End::watched(directory.path())?;
    let recorded = record::record(mountpoint, &trace, args.length, args.share, &end.asked);
    end.recorded()?;
    if recorded?.requests == 0 {
        let seconds = args.length.as_secs();
        let message = format!("nothing was asked of the mount in {seconds} s");
        return Err(
            Failure::new(Code::Failure, message).advise("again while the database is at work")
        );
    }
    let mut args = args.clone();
    args.reading.input.traces = vec![trace];
    let pool = config.pool.size.bytes(config.page_size()?);
    args.pool_bytes = pool.unwrap_or(u64::MAX);
    args.pins = config.tier.pin;
    args.write_back = tier.write_back;
    args.policy.get_or_insert(tier.policy);
    // In write-back the reserve is part of the tier, as the simulator has it.
    let pages = tier.slots + tier.reserve;
    args.cache = Some(Cache {
        bytes: tier.bytes,
        pages,
        reserve: match tier.write_back {
            true => f64::from(tier.reserve) / f64::from(pages.max(1)),
            false => config.dirty.reserve,
        },
    });
    let size = Size::Pages(pages.into());
    args.size.get_or_insert(TierSize::Size(size));
    args.mount
        .get_or_insert_with(|| mountpoint.display().to_string());
    super::of_traces(&args)
}

/// What a signal asks for: the mount goes on recording when the command just ends, into a file
/// that nobody will look at.
#[derive(Default)]
struct End {
    asked: AtomicBool,
    /// The recording is over, and only its file is left.
    recorded: AtomicBool,
}

impl End {
    /// Watches for signals; once nothing is recorded, or at the second, one removes `directory`
    /// and ends the process at once.
    #[expect(
        clippy::disallowed_methods,
        reason = "what is simulated then is lost anyway, and nothing else is under way"
    )]
    fn watched(directory: &Path) -> Result<Arc<Self>, Failure> {
        let (end, directory) = (Arc::new(Self::default()), directory.to_path_buf());
        let seen = Arc::clone(&end);
        Signals::block()?.watch(move |earlier| {
            seen.asked.store(true, Ordering::SeqCst);
            if earlier > 0 || seen.recorded.load(Ordering::SeqCst) {
                // It ends all the same.
                let _ = std::fs::remove_dir_all(&directory);
                eprintln!("error: {ENDED}");
                std::process::exit(Code::Failure as i32);
            }
        })?;
        Ok(end)
    }

    /// Says that the recording is over; the failure when its end was asked for.
    fn recorded(&self) -> Outcome {
        self.recorded.store(true, Ordering::SeqCst);
        match self.asked.load(Ordering::SeqCst) {
            true => Err(Failure::new(Code::Failure, ENDED)),
            false => Ok(()),
        }
    }
}

/// What is said when a signal came.
const ENDED: &str = "ended by a signal; the recording was stopped and removed";

/// The share of the tier that write-back sets aside, or would.
pub(super) fn reserve(args: &AdviseArgs) -> f64 {
    let cache = args.cache.as_ref();
    cache.map_or(Experiment::default().reserve, |cache| cache.reserve)
}

/// Objects of the trace that are pinned.
pub(super) fn pinned(args: &AdviseArgs, workload: &Workload) -> Result<Vec<String>, Failure> {
    if args.pins.is_empty() {
        return Ok(Vec::new());
    }
    let pins = Pins {
        paths: args.pins.clone(),
        ..Pins::default()
    };
    let rows = placement::profile(workload).map_err(|error| simulate::explain(&error))?;
    let pinned = rows.into_iter().filter(|row| pins.matches(&row.file));
    Ok(pinned.map(|row| row.path).collect())
}
