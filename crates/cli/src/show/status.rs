//! `status`: what a mount says about itself, once or refreshed.

use crate::failure::{Code, Failure, Outcome};
use crate::reader;
use crate::serve::beacon;
use crate::serve::client;
use crate::show::report::{Report, live, text};
use crate::show::terminal::Terminal;
use clap::{Args, ValueHint};
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Shown at the end of `status --help`.
pub(crate) const HELP: &str = "\
On a terminal the report is refreshed until `q` or Ctrl-C; elsewhere it is printed once. OFF says
why flash is not used, LOST which dirty pages it does not give back. Exit code 5 when no mount is
there or its process is gone, 6 when it gives no answer for 10 seconds.
  thermocline status --once /srv/pgdata
  thermocline status --metrics /srv/pgdata > thermocline.prom";

/// `thermocline status`.
#[derive(Args, Debug)]
pub(crate) struct StatusArgs {
    /// Where it is mounted
    #[arg(value_hint = ValueHint::DirPath)]
    pub(crate) mountpoint: PathBuf,
    /// Print the statistics as JSON
    #[arg(long, conflicts_with_all = ["live", "metrics"])]
    pub(crate) json: bool,
    /// Print the statistics in Prometheus text format
    #[arg(long, conflicts_with = "live")]
    pub(crate) metrics: bool,
    /// Print the statistics in OpenMetrics text format
    #[arg(long, conflicts_with_all = ["live", "metrics", "json"])]
    pub(crate) openmetrics: bool,
    /// Refresh until interrupted, even when the output is not a terminal
    #[arg(long, visible_alias = "watch", conflicts_with = "once")]
    pub(crate) live: bool,
    /// Print once, even on a terminal
    #[arg(long)]
    pub(crate) once: bool,
    /// Seconds between refreshes
    #[arg(long, value_name = "SECONDS", default_value_t = 1,
          value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) interval: u64,
}

/// Shows the statistics.
pub(crate) fn run(args: &StatusArgs) -> Outcome {
    if args.metrics {
        return print(&client::read(&args.mountpoint, "metrics")?);
    }
    if args.openmetrics {
        return print(&client::read(&args.mountpoint, "openmetrics")?);
    }
    if args.json {
        return print(&client::read(&args.mountpoint, "stats.json")?);
    }
    if args.live || (!args.once && io::stdout().is_terminal()) {
        return live(args);
    }
    print(&text::render(&fetch(&args.mountpoint)?, None))
}

/// Refreshes until the reader leaves, until the mount ends or the reader goes away: on a terminal
/// as one screen, elsewhere as one report after another.
fn live(args: &StatusArgs) -> Outcome {
    let terminal = match io::stdout().is_terminal() {
        true => Terminal::take()?,
        false => None,
    };
    let mut earlier: Option<Report> = None;
    loop {
        let report = match fetch(&args.mountpoint) {
            Err(failure) if failure.code == Code::NotMounted && earlier.is_some() => {
                drop(terminal);
                let message = match beacon::of_mountpoint(&args.mountpoint) {
                    Some(_) => failure.message,
                    None => format!("{} was unmounted", args.mountpoint.display()),
                };
                return print(&format!("{message}\n"));
            }
            other => other?,
        };
        // After a remount there is nothing to compare with.
        let same = |before: &&Report| before.mount.pid == report.mount.pid;
        let before = earlier.as_ref().filter(same);
        let interval = Duration::from_secs(args.interval);
        let leaves = match &terminal {
            Some(terminal) => {
                terminal.draw(&live::render(&report, before, terminal.screen()))?;
                terminal.wants_to_leave(interval)?
            }
            None => {
                print(&text::render(&report, before))?;
                std::thread::sleep(interval);
                false
            }
        };
        if leaves {
            return Ok(());
        }
        earlier = Some(report);
    }
}

/// Prints `text`; ends the command when the reader has gone away.
pub(crate) fn print(text: &str) -> Outcome {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(reader::failed)
}

/// The statistics of the mount at `mountpoint`.
pub(crate) fn fetch(mountpoint: &Path) -> Result<Report, Failure> {
    let text = client::read(mountpoint, "stats.json")?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::new(
            Code::Failure,
            format!("cannot read the mount's statistics: {error}"),
        )
        .advise("the mount may run another version of thermocline; remount with this one")
    })
}
