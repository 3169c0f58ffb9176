//! Which traces, and how to read them: shared by the commands that work on traces.

use crate::config;
use crate::failure::{Failure, Outcome};
use crate::show::beside;
use crate::study::import::ImportArgs;
use crate::units::Size;
use clap::{Args, ValueHint};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use thermocline_sim::{Opener, opener};
use thermocline_trace::parts_of;

/// Trace files and what they do not say about themselves.
#[derive(Args, Clone, Debug)]
pub(crate) struct TraceInput {
    /// Traces: recorded by `mount --record`, or of another tool (oracleGeneral, vscsi, MSR, .lis,
    /// blkparse, CSV; compressed or not). Several are several clients of one tier. A recording's
    /// later parts (t.0002.parquet) are read with its first, and are no clients of their own
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
        let mut options = self.import.options()?;
        options.several = self.traces.len() > 1;
        let whole = self.whole();
        for part in self.traces.iter().filter(|path| !whole.contains(path)) {
            let part = part.display();
            eprintln!("note: {part} is a later part of a trace that is named, and read with it");
        }
        let open = |path: &&PathBuf| opener((*path).clone(), options.clone());
        Ok(whole.iter().map(open).collect())
    }

    /// The traces without those files that are later parts of another one, which brings them along.
    fn whole(&self) -> Vec<&PathBuf> {
        // A single one is not looked at: what comes through a pipe can be read once.
        if let [one] = &self.traces[..] {
            return vec![one];
        }
        let native = self.traces.iter().filter(|path| is_native(path));
        let later = native.flat_map(|path| parts_of(path).unwrap_or_default().into_iter().skip(1));
        let later: Vec<_> = later.map(|part| part.canonicalize().ok()).collect();
        let is_whole = |path: &&PathBuf| match path.canonicalize() {
            Ok(path) => !later.contains(&Some(path)),
            Err(_) => true,
        };
        self.traces.iter().filter(is_whole).collect()
    }

    /// What a trace, counted from 1, says whose own page size is none.
    pub(crate) fn odd_page_size(&self, trace: usize, size: u32) -> Failure {
        let whole = self.whole();
        let path = whole.get(trace.saturating_sub(1));
        let name = path.map_or("a trace".into(), |path| path.display().to_string());
        let fact = format!(
            "{name} has pages of {size} B (as it says, or --unit), no power of two from 512"
        );
        Failure::usage(fact).advise(super::PAGE_SIZE)
    }

    /// Refuses an output, which `option` names, that would overwrite one of the traces, or of the
    /// files in `also`, which are read too.
    pub(crate) fn apart_from(
        &self,
        option: &str,
        output: Option<&PathBuf>,
        also: &[Option<PathBuf>],
    ) -> Outcome {
        let also = also.iter().flatten();
        let read: Vec<PathBuf> = self.traces.iter().chain(also).cloned().collect();
        beside::apart(option, output, &read)
    }

    /// The same of a page that `--html` asks for, which replaces pages alone.
    pub(crate) fn page_apart_from(
        &self,
        page: Option<&PathBuf>,
        also: &[Option<PathBuf>],
    ) -> Outcome {
        self.apart_from("--html", page, also)?;
        beside::only_pages("--html", page)
    }

    /// The traces' names, for titles.
    pub(crate) fn title(&self) -> String {
        let name = |path: &PathBuf| {
            let name = path.file_name().unwrap_or(path.as_os_str());
            name.to_string_lossy().into_owned()
        };
        self.whole()
            .into_iter()
            .map(name)
            .collect::<Vec<_>>()
            .join(", ")
    }
}

/// Whether `path` is of the native format, whose later parts are found by name.
fn is_native(path: &Path) -> bool {
    if !path.is_file() {
        return false;
    }
    let mut head = [0; 4];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut head));
    read.is_ok() && head == *b"PAR1"
}
