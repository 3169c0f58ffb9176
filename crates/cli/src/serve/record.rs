//! `record`: the requests of a running mount, for a while.

use crate::failure::{Code, Failure, Outcome, reason};
use crate::serve::follow::{Standing, follow};
use crate::serve::recording::SINCE_START;
use crate::serve::{client, preflight, reshape};
use crate::units::{sample, show_count, span};
use clap::{Args, ValueHint};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use thermocline::Stats;
use thermocline_trace::Sample;

/// Shown at the end of `record --help`.
pub(crate) const HELP: &str = "\
The mount writes the trace, with some 30 MiB of memory more meanwhile. Files that bypass the tier
and are open already are not in it. An interrupted command leaves the recording at work: it ends
when its time is over, with the mount, or by --stop. What a mount records by its own option ends
with it. A longer recording goes on in files beside this one.
  thermocline record /srv/pgdata monday.parquet --for 1h
  thermocline record /srv/pgdata --stop
  thermocline advise monday.parquet --mount /srv/pgdata";

/// `thermocline record`.
#[derive(Args, Debug)]
pub(crate) struct RecordArgs {
    /// Where it is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,
    /// The trace, a new file outside of the mount and its base
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath, required_unless_present = "stop")]
    pub(crate) file: Option<PathBuf>,
    /// For how long: 90s, 5m, 2h, 1d; at most 31d. A number alone means seconds
    #[arg(long = "for", value_name = "TIME", default_value = "5m", value_parser = span)]
    pub(crate) length: Duration,
    /// How much to record: all requests of so many of the extents of 32 pages; or "auto", as much
    /// as costs about 1 % of a processor at the rate seen for two seconds
    #[arg(long, value_name = "PERCENT|auto", default_value = "100%", value_parser = share)]
    pub(crate) share: Share,
    /// End the recording that another command started
    #[arg(long, conflicts_with_all = ["file", "json"])]
    pub(crate) stop: bool,
    /// Print the outcome as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// How much of the requests is recorded.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Share {
    /// By the rate at which requests come.
    Auto,
    /// That much.
    Of(Sample),
}

/// A share as people write it.
pub(crate) fn share(text: &str) -> Result<Share, String> {
    if text == "auto" {
        return Ok(Share::Auto);
    }
    sample(text).map(Share::Of)
}

/// Requests a second that are recorded for about 1 % of a processor: each takes 0.6 us of it
/// (docs/advise.md).
const RATE_MAX: f64 = 10_000.0;
/// The least share: 1 of so many extents.
const PARTS_MAX: f64 = 64.0;

impl Share {
    /// The sample of the requests to a mount.
    fn sample(self, mountpoint: &Path) -> Result<Sample, Failure> {
        if let Self::Of(sample) = self {
            return Ok(sample);
        }
        let before = reshape::report(mountpoint)?.stats;
        std::thread::sleep(Duration::from_secs(2));
        let after = reshape::report(mountpoint)?.stats;
        Ok(fitting(
            requests(&after) - requests(&before),
            after.uptime_s - before.uptime_s,
        ))
    }
}

/// As much of so many requests in so many seconds as may be recorded.
fn fitting(requests: f64, seconds: f64) -> Sample {
    let rate = requests / seconds.max(1e-3);
    let mut parts = 1.0;
    while rate / parts > RATE_MAX && parts < PARTS_MAX {
        parts *= 2.0;
    }
    Sample::of(1.0 / parts).unwrap_or(Sample::ALL)
}

/// Reads and writes since the start.
fn requests(stats: &Stats) -> f64 {
    let reads: u64 = stats.read_latency.values().map(|of| of.count).sum();
    (reads + stats.write_latency.count) as f64
}

/// What was recorded.
pub(crate) struct Recorded {
    pub(crate) requests: u64,
    lost: u64,
}

/// Records to a file, or ends a recording.
pub(crate) fn run(args: &RecordArgs) -> Outcome {
    let Some(path) = args.file.as_ref().filter(|_| !args.stop) else {
        return stop(&args.mountpoint);
    };
    let Recorded { requests, lost } = record(
        &args.mountpoint,
        path,
        args.length,
        args.share,
        &AtomicBool::new(false),
    )?;
    let shown = path.display().to_string();
    match args.json {
        true => {
            let facts = serde_json::json!({ "file": shown, "requests": requests, "lost": lost });
            println!("{facts}");
        }
        false => println!(
            "{} requests in {shown}, {} lost",
            show_count(requests),
            show_count(lost)
        ),
    }
    Ok(())
}

/// Ends the recording that another command started.
fn stop(mountpoint: &Path) -> Outcome {
    let text = client::read(mountpoint, "record")?;
    let now = Standing::parse(&text).ok_or_else(|| client::not_understood(&text))?;
    let shown = mountpoint.display();
    match now.state {
        "running" => {}
        SINCE_START => return Err(since_start(mountpoint)),
        _ => {
            let message = format!("nothing is recorded at {shown}");
            return Err(Failure::new(Code::Failure, message)
                .advise(format!("thermocline record {shown} FILE")));
        }
    }
    client::write(mountpoint, "record", "stop")?;
    println!("no longer recording");
    Ok(())
}

/// The failure for a mount that records by its own option.
fn since_start(mountpoint: &Path) -> Failure {
    let shown = mountpoint.display();
    let message = format!("the mount at {shown} records as it was told at its start");
    Failure::new(Code::Failure, message).advise(format!(
        "thermocline umount {shown} ends it; mount without --record (trace.record) then"
    ))
}

/// Starts a recording and follows it to its end, which comes early once `ended` is true.
pub(crate) fn record(
    mountpoint: &Path,
    path: &Path,
    length: Duration,
    share: Share,
    ended: &AtomicBool,
) -> Result<Recorded, Failure> {
    let facts = reshape::report(mountpoint)?.mount;
    let text = client::read(mountpoint, "record")?;
    if Standing::parse(&text).is_some_and(|now| now.state == SINCE_START) {
        return Err(since_start(mountpoint));
    }
    if !facts.record.as_os_str().is_empty() {
        let (shown, file) = (mountpoint.display(), facts.record.display());
        let message = format!("the mount at {shown} is recorded already, to {file}");
        return Err(Failure::new(Code::Failure, message)
            .advise(format!("thermocline record {shown} --stop, or wait")));
    }
    let path = place(path, &[&facts.base, &facts.mountpoint])?;
    let seconds = length.as_secs();
    let bits = share.sample(mountpoint)?.bits();
    let command = format!("start {seconds} {bits} {}", path.display());
    client::write(mountpoint, "record", &command)?;
    let bar = ProgressBar::new(seconds).with_style(style());
    let mut stopped = false;
    let outcome = follow(mountpoint, "record", |now| {
        bar.set_position(now.count);
        if now.state != "running" {
            return Some(Ok(recorded(now.state)));
        }
        if ended.load(Ordering::SeqCst) && !std::mem::replace(&mut stopped, true) {
            // It may be over by itself by now, which the next look shows; else nobody ends it.
            return client::write(mountpoint, "record", "stop").err().map(Err);
        }
        None
    });
    bar.finish_and_clear();
    outcome??.map_err(|state| {
        let shown = path.display();
        Failure::new(Code::Failure, format!("recording to {shown}: {state}"))
    })
}

/// What came of a recording that is over; else the state that says so.
fn recorded(state: &str) -> Result<Recorded, String> {
    let counts = state.strip_prefix("done ").and_then(|counts| {
        let (requests, lost) = counts.split_once(' ')?;
        let (requests, lost) = (requests.parse().ok()?, lost.parse().ok()?);
        Some(Recorded { requests, lost })
    });
    counts.ok_or_else(|| state.to_string())
}

/// The absolute path of a new file that is not among those `served`.
fn place(path: &Path, served: &[&PathBuf]) -> Result<PathBuf, Failure> {
    let shown = path.display();
    let absolute = std::path::absolute(path).map_err(|e| Failure::io("find", path, &e))?;
    let (parent, name) = (absolute.parent(), absolute.file_name());
    let found = parent.unwrap_or(Path::new("/")).canonicalize();
    let found = found.map_err(|error| {
        let why = reason(&error);
        Failure::usage(format!("cannot find the directory of {shown}: {why}"))
            .advise("a file in a directory that is there")
    })?;
    let found = found.join(name.unwrap_or_default());
    preflight::utf8("the path", &found, "a file whose whole path is")?;
    if let Some(directory) = served.iter().find(|directory| found.starts_with(directory)) {
        let fact = format!("{shown} is inside {}", directory.display());
        return Err(Failure::usage(fact).advise("a place outside of what is recorded"));
    }
    if found.exists() {
        return Err(Failure::usage(format!("{shown} is there already"))
            .advise("another name; recordings are not overwritten"));
    }
    Ok(found)
}

fn style() -> ProgressStyle {
    let template = "recording {wide_bar} {pos} of {len} s";
    ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar())
}
