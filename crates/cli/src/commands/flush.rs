//! `flush` and `detach`: what only the tier holds goes to base.

use crate::args::{DetachArgs, FlushArgs, UmountArgs};
use crate::commands::{control, umount};
use crate::failure::{Code, Failure, Outcome};
use crate::pace::Pace;
use crate::units::show_count;
use indicatif::{ProgressBar, ProgressStyle};
use std::path::Path;
use std::time::{Duration, Instant};

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
        control::write(&args.mountpoint, "flush", "stop")?;
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
    let before = control::read(mountpoint, "write_back")?;
    control::write(mountpoint, "write_back", "off")?;
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
        let _goes_on = control::write(mountpoint, "write_back", "on");
    }
    ended?;
    println!("base is whole without the cache");
    Ok(())
}

/// Starts a flush and follows it to its end.
fn flush(mountpoint: &Path) -> Result<Flushed, Failure> {
    control::write(mountpoint, "flush", "start")?;
    let bar = bar();
    let started = Instant::now();
    let mut pace = Pace::default();
    loop {
        let text = control::read(mountpoint, "flush")?;
        let now = Progress::parse(&text).ok_or_else(|| control::not_understood(&text))?;
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
