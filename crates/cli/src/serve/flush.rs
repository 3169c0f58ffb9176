//! `flush` and `detach`: what only the tier holds goes to base.

use crate::failure::{Code, Failure, Outcome};
use crate::serve::umount::UmountArgs;
use crate::serve::{client, umount};
use crate::show::pace::Pace;
use crate::units::show_count;
use clap::{Args, ValueHint};
use indicatif::{ProgressBar, ProgressStyle};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Shown at the end of `flush --help`.
pub(crate) const HELP: &str = "\
In write-back, base is whole only together with the cache until its dirty pages are written back.
A flush does that as fast as base can, in the order of base; the mount goes on serving, slower.
While a database writes as fast as base takes, it has no end, and says so; then
  thermocline mode MOUNTPOINT write-through
keeps pages from becoming dirty. An interrupted command leaves the flush at work; --stop ends it.
The remaining time is what is left at the rate of the last ten seconds.";

/// `thermocline flush`.
#[derive(Args, Debug)]
pub(crate) struct FlushArgs {
    /// Where it is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,
    /// End a flush that another command started
    #[arg(long, conflicts_with = "json")]
    pub(crate) stop: bool,
    /// Print the outcome as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

/// `thermocline detach`.
#[derive(Args, Debug)]
pub(crate) struct DetachArgs {
    /// Where it is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,
    /// Seconds to wait for the map to be saved, after the last news in the log
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub(crate) timeout: u64,
}

/// How often progress is asked for.
const ASK_EVERY: Duration = Duration::from_millis(200);

/// What a flush did.
#[derive(Debug, PartialEq)]
struct Flushed {
    pages: u64,
    left: u64,
    seconds: f64,
}

/// Flushes a running mount.
pub(crate) fn run(args: &FlushArgs) -> Outcome {
    if args.stop {
        client::write(&args.mountpoint, "flush", "stop")?;
        println!("no longer in a hurry; dirty pages are written back in the background");
        return Ok(());
    }
    let flushed = flush(&args.mountpoint)?;
    let Flushed {
        pages,
        left,
        seconds,
    } = flushed;
    if args.json {
        let shown = serde_json::json!({ "pages": pages, "left": left, "seconds": seconds });
        println!("{shown}");
    } else {
        let pages = show_count(pages);
        println!("{pages} pages written back in {seconds:.1} s; {left} became dirty meanwhile");
    }
    Ok(())
}

/// Writes through, flushes and unmounts. A mount that cannot be unmounted goes on as before.
pub(crate) fn detach(args: &DetachArgs) -> Outcome {
    let mountpoint = &args.mountpoint;
    let before = client::read(mountpoint, "write_back")?;
    client::write(mountpoint, "write_back", "off")?;
    let ended = flush(mountpoint).and_then(|flushed| {
        println!("{} pages written back", show_count(flushed.pages));
        umount::run(&UmountArgs {
            mountpoint: mountpoint.clone(),
            lazy: false,
            keep_dirty: false,
            timeout: args.timeout,
        })
    });
    if ended.is_err() && before.trim() == "on" {
        // The mount may be gone; the first failure is what counts.
        let _goes_on = client::write(mountpoint, "write_back", "on");
    }
    ended?;
    println!("base is whole without the cache");
    Ok(())
}

/// Starts a flush and follows it to its end.
fn flush(mountpoint: &Path) -> Result<Flushed, Failure> {
    client::write(mountpoint, "flush", "start")?;
    let bar = bar();
    let started = Instant::now();
    let mut pace = Pace::default();
    loop {
        let text = client::read(mountpoint, "flush")?;
        let now = Progress::parse(&text).ok_or_else(|| client::not_understood(&text))?;
        pace.note(started.elapsed(), now.left);
        bar.set_length(now.total);
        bar.set_position(now.total - now.left.min(now.total));
        bar.set_message(pace.describe());
        match now.state {
            "running" => std::thread::sleep(ASK_EVERY),
            "done" => {
                bar.finish_and_clear();
                return Ok(Flushed {
                    pages: now.total - now.left.min(now.total),
                    left: now.left,
                    seconds: started.elapsed().as_secs_f64(),
                });
            }
            other => {
                bar.finish_and_clear();
                return Err(ended_early(mountpoint, other, now.left));
            }
        }
    }
}

fn bar() -> ProgressBar {
    let template = "{bar:40} {pos} of {len} pages, {msg}";
    let style = ProgressStyle::with_template(template);
    ProgressBar::new(0).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
}

fn ended_early(mountpoint: &Path, state: &str, left: u64) -> Failure {
    let shown = mountpoint.display();
    let message = format!(
        "the flush of {shown} {state}; {} pages are dirty",
        show_count(left)
    );
    Failure::new(Code::Failure, message).advise(format!(
        "thermocline status {shown} lists pages that were lost; thermocline flush {shown} again"
    ))
}

/// What the control file says.
#[derive(Debug, PartialEq, Eq)]
struct Progress<'a> {
    left: u64,
    total: u64,
    state: &'a str,
}

impl<'a> Progress<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let (counts, state) = text.trim_end().split_once('\n')?;
        let (left, total) = counts.strip_prefix("dirty ")?.split_once(" of ")?;
        Some(Self {
            left: left.parse().ok()?,
            total: total.parse().ok()?,
            state: state.strip_prefix("state ")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_control_file_is_understood() {
        let running = Progress {
            left: 3,
            total: 10,
            state: "running",
        };
        assert_eq!(
            Progress::parse("dirty 3 of 10\nstate running\n"),
            Some(running)
        );
        let failed = Progress::parse("dirty 3 of 10\nstate failed: disk full\n").expect("parses");
        assert_eq!(failed.state, "failed: disk full");
        assert_eq!(Progress::parse("dirty 3\n"), None);
        assert_eq!(Progress::parse("dirty x of 3\nstate idle\n"), None);
    }
}
