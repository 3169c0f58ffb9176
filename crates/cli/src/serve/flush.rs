//! `flush` and `detach`: what only the tier holds goes to base.

use crate::failure::{Code, Failure, Outcome};
use crate::serve::follow::{PagesBar, follow};
use crate::serve::umount::UmountArgs;
use crate::serve::{client, umount};
use crate::units::show_count;
use clap::{Args, ValueHint};
use std::path::{Path, PathBuf};

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

/// Shown at the end of `detach --help`.
pub(crate) const DETACH_HELP: &str = "\
As `mode write-through`, `flush` and `umount`, one after the other. The database can work until the
flush is done; `umount` alone writes back after the database was stopped. While files are open at
the end it is refused, and the mount goes on as before. When the time-out ends the command (exit
code 1), the process goes on: `umount` again waits for it.
  thermocline detach /srv/pgdata";

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
    let mut bar = PagesBar::new("pages");
    let ended = follow(mountpoint, "flush", |now| {
        bar.note(now);
        match now.state {
            "running" => None,
            "done" => Some(Ok((now.total.saturating_sub(now.count), now.count))),
            other => Some(Err(ended_early(mountpoint, other, now.count))),
        }
    });
    let seconds = bar.end();
    let (pages, left) = ended??;
    Ok(Flushed {
        pages,
        left,
        seconds,
    })
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
