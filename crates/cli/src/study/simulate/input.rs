//! Which traces, and how to read them: shared by the commands that work on traces.

use crate::config;
use crate::failure::Failure;
use crate::study::import::ImportArgs;
use crate::units::Size;
use clap::{Args, ValueHint};
use std::path::PathBuf;
use thermocline_sim::{Opener, opener};

/// Trace files and what they do not say about themselves.
#[derive(Args, Clone, Debug)]
pub(crate) struct TraceInput {
    /// Traces: recorded by `mount --record`, or of another tool (oracleGeneral, vscsi, MSR, .lis,
    /// blkparse, CSV; compressed or not). Several are several clients of one tier
    #[arg(required = true, value_name = "TRACE", value_hint = ValueHint::FilePath)]
    pub(crate) traces: Vec<PathBuf>,
    /// Page size of the simulation [default: the trace's own, or 4KiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) page_size: Option<Size>,
    /// Count requests that were recorded past the tier (rules, or a tier that was off) as well
    #[arg(long = "include-bypassed")]
    pub(crate) bypassed: bool,
    #[command(flatten)]
    pub(crate) import: ImportArgs,
}

impl TraceInput {
    /// The page size asked for.
    pub(crate) fn page_size(&self) -> Result<Option<u32>, Failure> {
        let size = self
            .page_size
            .map(|size| config::page_size("--page-size", size));
        size.transpose()
    }

    /// One opener for each trace.
    pub(crate) fn openers(&self) -> Result<Vec<Opener>, Failure> {
        let options = self.import.options()?;
        let open = |path: &PathBuf| opener(path.clone(), options.clone());
        Ok(self.traces.iter().map(open).collect())
    }

    /// The traces' names, for titles.
    pub(crate) fn title(&self) -> String {
        let name = |path: &PathBuf| {
            let name = path.file_name().unwrap_or(path.as_os_str());
            name.to_string_lossy().into_owned()
        };
        self.traces.iter().map(name).collect::<Vec<_>>().join(", ")
    }
}
