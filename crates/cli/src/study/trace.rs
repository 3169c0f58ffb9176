//! `trace`: summaries of recorded requests, and conversion between formats.

use crate::failure::{Code, Failure, Outcome};
use crate::show::{beside, status};
use crate::study::import::{self, ImportArgs, explain};
use crate::units::Size;
use clap::{Args, Subcommand, ValueHint};
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use std::path::PathBuf;
use thermocline_trace::{
    Addressing, Format, Source, WriteError, WriteOptions, Written, open_files, parts_found,
    summarise,
};

/// `thermocline trace`.
#[derive(Debug, Subcommand)]
pub(crate) enum TraceCommand {
    /// Summarise trace files: requests, objects, hints, hit ratios, latencies
    Info(TraceInfoArgs),
    /// Write a trace in another format
    #[command(after_help = CONVERT_HELP)]
    Convert(Box<TraceConvertArgs>),
}

const CONVERT_HELP: &str = "\
Formats that can be written:
  parquet         the native one: nothing is lost
  csv             under the native column names; page size and start are lost
  oracle-general  libCacheSim's: one record per page, reads and writes alike, no hints
Only parquet says that a trace is a sample, and how many requests were not recorded.
A name that ends with .zst is written compressed (csv, oracle-general).";

/// `thermocline trace info`.
#[derive(Args, Debug)]
pub(crate) struct TraceInfoArgs {
    /// A trace: a file written by `mount --record`, later parts found by name, or several as one
    /// trace; or a file of another program, .zst, .xz and .gz too
    #[arg(required = true, value_hint = ValueHint::FilePath)]
    pub(crate) files: Vec<PathBuf>,
    /// Objects and hint values to list at most
    #[arg(long, value_name = "COUNT", default_value_t = 20)]
    pub(crate) top: usize,
    /// Page size to count pages with [default: the trace's own, or 4KiB]
    #[arg(long, value_name = "SIZE")]
    pub(crate) page_size: Option<Size>,
    /// Print the summary as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) import: ImportArgs,
}

/// `thermocline trace convert`.
#[derive(Args, Debug)]
pub(crate) struct TraceConvertArgs {
    /// The trace to read: any format, .zst, .xz and .gz too
    #[arg(value_name = "IN", value_hint = ValueHint::FilePath)]
    pub(crate) input: PathBuf,
    /// The file to write
    #[arg(value_name = "OUT", value_hint = ValueHint::FilePath)]
    pub(crate) output: PathBuf,
    /// Format to write [default: told by the name]
    #[arg(long, value_name = "FORMAT", value_parser = import::format_parser(&WRITABLE))]
    pub(crate) to: Option<String>,
    /// Page size requests are split with [default: the trace's own, or 4KiB]; where they are not
    /// split, what parquet notes as the trace's own; a sample keeps its own in parquet
    #[arg(long, value_name = "SIZE")]
    pub(crate) page_size: Option<Size>,
    /// One row per page instead of one per request (oracle-general always has)
    #[arg(long)]
    pub(crate) split: bool,
    /// Replace the file when it is there
    #[arg(long)]
    pub(crate) force: bool,
    /// Print what was written as JSON
    #[arg(long)]
    pub(crate) json: bool,
    #[command(flatten)]
    pub(crate) import: ImportArgs,
}

const WRITABLE: [Format; 3] = [Format::Parquet, Format::Csv, Format::OracleGeneral];

/// Prints the summary of one trace: a file with its later parts, or exactly the files named.
pub(crate) fn info(args: &TraceInfoArgs) -> Outcome {
    let page_size = page_size(args.page_size)?;
    let source = open_files(&args.files, &args.import.options()?);
    let source = source.map_err(|error| explain(&error))?;
    in_bytes(&source, page_size)?;
    let summary = summarise(source, args.top, page_size);
    let summary = summary.map_err(|error| explain(&error))?;
    let text = if args.json {
        json(&summary)?
    } else {
        summary.table()
    };
    status::print(&text)
}

/// Writes a trace in another format and says what became of it.
pub(crate) fn convert(args: &TraceConvertArgs) -> Outcome {
    let options = WriteOptions {
        format: args.to.as_deref().and_then(Format::from_name),
        page_size: page_size(args.page_size)?,
        split: args.split,
        overwrite: args.force,
    };
    apart(args, &options)?;
    let source = thermocline_trace::open(&args.input, &args.import.options()?);
    let source = source.map_err(|error| explain(&error))?;
    in_bytes(&source, options.page_size)?;
    let (share, dropped) = (source.meta().sample.share(), source.meta().dropped);
    let bar = progress_bar(source.bytes_total());
    let written = thermocline_trace::convert(source, &args.output, &options, |read, _| {
        bar.set_position(read);
    });
    bar.finish_and_clear();
    let written = written.map_err(refused)?;
    if written.format != Format::Parquet && (share < 1.0 || dropped > 0) {
        let mut facts = Vec::new();
        if share < 1.0 {
            facts.push(format!("has {:.1} % of all extents", 100.0 * share));
        }
        if dropped > 0 {
            facts.push(format!("lacks {dropped} requests that were not recorded"));
        }
        let (facts, format) = (facts.join(" and "), written.format);
        eprintln!("note: this {facts}; {format} does not say so and will be read as the whole");
    }
    let text = if args.json {
        json(&summary(&written))?
    } else {
        sentences(&written, args)
    };
    status::print(&text)
}

/// Refuses to write over what is read: the file itself, or parts of its trace.
fn apart(args: &TraceConvertArgs, options: &WriteOptions) -> Outcome {
    let same = args.input.canonicalize().ok() == args.output.canonicalize().ok();
    if same && args.output.exists() {
        return Err(Failure::usage("a trace cannot be converted onto itself"));
    }
    let mut written = vec![args.output.clone()];
    let format = options.format.or_else(|| Format::of_name(&args.output));
    if format == Some(Format::Parquet) {
        // What is replaced goes with all its parts. A directory that cannot be read is refused
        // when the file is made.
        written.extend(parts_found(&args.output).unwrap_or_default());
        // Under a link it has the parts of what the link leads to as well.
        if let Ok(target) = args.output.canonicalize() {
            written.extend(parts_found(&target).unwrap_or_default());
        }
    }
    let read = std::slice::from_ref(&args.input);
    let mut written = written.iter();
    written.try_for_each(|file| beside::apart("OUT", Some(file), read))
}

/// Refuses a page size where the trace has no bytes to count or split by it.
fn in_bytes(source: &Source, page_size: Option<u32>) -> Outcome {
    match (source.meta().addressing, page_size) {
        (Addressing::Pages, Some(size)) => {
            let fact = format!("--page-size {size} would mean nothing: the trace counts in pages");
            Err(Failure::usage(fact).advise("leave it out; --unit says how large CSV pages are"))
        }
        _ => Ok(()),
    }
}

/// Draws on standard error, and only where that is a terminal.
fn progress_bar(bytes: u64) -> ProgressBar {
    let bar = ProgressBar::new(bytes);
    let style = ProgressStyle::with_template("{bar:40} {bytes}/{total_bytes} {eta}");
    if let Ok(style) = style {
        bar.set_style(style);
    }
    bar
}

fn page_size(size: Option<Size>) -> Result<Option<u32>, Failure> {
    let checked = size.map(|size| crate::config::page_size("--page-size", size));
    checked.transpose()
}

fn refused(error: WriteError) -> Failure {
    match error {
        WriteError::Read(error) => explain(&error),
        WriteError::Record(error) => Failure::from(error),
        error @ (WriteError::UnknownFormat { .. } | WriteError::ReadOnly { .. }) => {
            Failure::usage(error.to_string())
                .advise("say --to parquet, --to csv or --to oracle-general")
        }
        error @ WriteError::Sample { own, .. } => {
            Failure::usage(error.to_string()).advise(format!(
                "--page-size {own}, or leave it out: commands that read the trace take --page-size"
            ))
        }
        error @ WriteError::Unfit { .. } => Failure::new(Code::Failure, error.to_string()),
    }
}

#[derive(Serialize)]
struct Summary {
    format: &'static str,
    requests: u64,
    rows: u64,
    left_out: u64,
    split_page_size: Option<u32>,
    far_pages: u64,
    bytes: u64,
}

fn summary(written: &Written) -> Summary {
    Summary {
        format: written.format.name(),
        requests: written.requests,
        rows: written.rows,
        left_out: written.left_out,
        split_page_size: written.split,
        far_pages: written.far_pages,
        bytes: written.bytes,
    }
}

fn sentences(written: &Written, args: &TraceConvertArgs) -> String {
    let rows = match written.split {
        None => format!("{} requests", written.requests),
        Some(1) => format!("{} requests, {} pages", written.requests, written.rows),
        Some(size) => format!(
            "{} requests split into {} pages of {size} B",
            written.requests, written.rows
        ),
    };
    let (path, bytes) = (args.output.display(), written.bytes);
    let mut text = format!("{path}: {} of {rows}, {bytes} B\n", written.format);
    if written.left_out > 0 {
        text += &format!(
            "left out: {} requests that read or write no page (trims, syncs, empty ones)\n",
            written.left_out
        );
    }
    if written.far_pages > 0 {
        text += &format!(
            "{} records have a page beyond 2^40 or an object beyond 2^24: their number is hashed\n",
            written.far_pages
        );
    }
    text
}

fn json(summary: &impl Serialize) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(summary);
    text.map(|text| text + "\n")
        .map_err(|e| Failure::new(Code::Failure, format!("cannot print the summary: {e}")))
}
