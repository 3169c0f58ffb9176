//! `status`: what a mount says about itself.

use crate::args::StatusArgs;
use crate::commands::control;
use crate::failure::{Code, Failure, Outcome};
use crate::report::Report;
use std::path::Path;

/// Shows the statistics.
pub(crate) fn run(args: &StatusArgs) -> Outcome {
    if args.metrics {
        print!("{}", control::read(&args.mountpoint, "metrics")?);
        return Ok(());
    }
    if args.json {
        print!("{}", control::read(&args.mountpoint, "stats.json")?);
        return Ok(());
    }
    fetch(&args.mountpoint)?;
    Ok(())
}

/// The statistics of the mount at `mountpoint`.
pub(crate) fn fetch(mountpoint: &Path) -> Result<Report, Failure> {
    let text = control::read(mountpoint, "stats.json")?;
    serde_json::from_str(&text).map_err(|error| {
        Failure::new(
            Code::Failure,
            format!("cannot read the mount's statistics: {error}"),
        )
        .advise("the mount may run another version of thermocline; remount with this one")
    })
}
