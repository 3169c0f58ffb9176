//! `trace`: summaries of recorded requests, and conversion between formats.

use crate::args::{TraceConvertArgs, TraceInfoArgs};
use crate::commands::status;
use crate::failure::{Code, Failure, Outcome};
use crate::import::explain;
use crate::units::Size;
use indicatif::{ProgressBar, ProgressStyle};
use serde::Serialize;
use thermocline_trace::{Format, WriteError, WriteOptions, Written, open_files, summarise};

/// Prints the summary of one trace: a file with its later parts, or exactly the files named.
pub(crate) fn info(args: &TraceInfoArgs) -> Outcome {
    let page_size = page_size(args.page_size)?;
    let source = open_files(&args.files, &args.import.options()?);
    let summary = source.and_then(|source| summarise(source, args.top, page_size));
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
    let same = args.input.canonicalize().ok() == args.output.canonicalize().ok();
    if same && args.output.exists() {
        return Err(Failure::usage("a trace cannot be converted onto itself"));
    }
    let source = thermocline_trace::open(&args.input, &args.import.options()?);
    let source = source.map_err(|error| explain(&error))?;
    let bar = progress_bar(source.bytes_total());
    let written = thermocline_trace::convert(source, &args.output, &options, |read, _| {
        bar.set_position(read);
    });
    bar.finish_and_clear();
    let written = written.map_err(refused)?;
    let text = if args.json {
        json(&summary(&written))?
    } else {
        sentences(&written, args)
    };
    status::print(&text)
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
