//! `trace`: summaries of recorded requests.

use crate::args::TraceInfoArgs;
use crate::commands::status;
use crate::failure::{Code, Failure, Outcome};
use thermocline_trace::{ImportOptions, ReadError, TraceInfo, summarise};

/// Prints the summary of one trace: a file with its later parts, or exactly the files named.
pub(crate) fn info(args: &TraceInfoArgs) -> Outcome {
    let page_size = args
        .page_size
        .map(|size| crate::config::page_size("--page-size", size));
    let page_size = page_size.transpose()?;
    let source = thermocline_trace::open_files(&args.files, &ImportOptions::default());
    let summary = source.and_then(|source| summarise(source, args.top, page_size));
    let summary = summary.map_err(|error| explain(&error))?;
    let text = if args.json {
        json(&summary)?
    } else {
        summary.table()
    };
    status::print(&text)
}

fn json(summary: &TraceInfo) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(summary);
    text.map(|text| text + "\n")
        .map_err(|e| Failure::new(Code::Failure, format!("cannot print the summary: {e}")))
}

fn explain(error: &ReadError) -> Failure {
    let failure = Failure::new(Code::Failure, error.to_string());
    match error {
        ReadError::Unfinished { .. } => {
            failure.advise("unmount, which finishes the recording, then ask again")
        }
        ReadError::Version { .. } => failure.advise("read it with the program that wrote it"),
        ReadError::Mismatch { .. } => failure.advise("name the files of one recording only"),
        _ => failure,
    }
}
