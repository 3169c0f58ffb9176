//! The trace format of Thermocline: every request a tier served, with its hints.
//!
//! A trace is one Parquet file, or several *parts* that together are one recording. The first
//! columns are fixed (time, client, operation, object, offset, length, latency, where served);
//! **every further column is a hint type**, text, null when unknown. docs/trace-format.md
//! describes the columns for users of other tools.
//!
//! - [`Recorder`] writes a trace from a running engine without ever making a request wait.
//! - [`open`] streams the requests of a trace in this or any other [`Format`].
//! - [`convert`] writes a trace in another format.
//! - [`TraceReader`] streams the rows back, whoever wrote the file.
//! - [`summarise`] answers "what is in this trace?".
#![forbid(unsafe_code)]

mod catalog;
mod column;
mod error;
mod format;
mod import;
mod info;
mod parts;
mod reader;
mod record;
mod recorder;
mod sample;
mod source;
mod split;
mod write;

pub use catalog::Catalog;
pub use column::DATABASE;
pub use error::{ReadError, RecordError};
pub use format::Format;
pub use import::CsvColumns;
pub use info::{HintCounts, LatencySummary, ObjectSummary, OpSummary, TraceInfo, summarise};
pub use parts::{part_path, partial_path, parts_found, parts_of};
pub use reader::{Addressing, TraceMeta, TraceReader};
pub use record::{Op, Served, TraceRecord, printable};
pub use recorder::{Recorder, RecorderOptions, RecorderSummary};
pub use sample::{EXTENT_PAGES, Sample};
pub use source::{ImportOptions, Source, open, open_files, open_reader};
pub use split::pages_of;
pub use write::{WriteError, WriteOptions, Written, convert};
