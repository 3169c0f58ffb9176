//! Traces of other programs, one decoder per format.
//!
//! A decoder sees one unit (a line, or a record of fixed size) at a time and keeps no more than
//! a few words between units; whatever the bytes are, it returns a record or a reason, never
//! panics and never allocates more than the unit's own length.

mod blkparse;
mod csv;
mod ids;
mod input;
mod lis;
mod msr;
mod number;
pub(crate) mod oracle_general;
mod vscsi;

use thermocline_core::{HintSet, ObjectId};

pub use csv::CsvColumns;
pub(crate) use csv::{PAGE_ID, is_no_hint};
pub(crate) use input::Input;

use crate::catalog::Catalog;
use crate::error::ReadError;
use crate::format::Format;
use crate::reader::Addressing;
use crate::record::{Op, Served, TraceRecord};
use crate::source::ImportOptions;

/// How a format cuts its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A line of text.
    Line,
    /// This many bytes.
    Bytes(usize),
}

/// What one unit turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decoded {
    /// A request.
    Record(TraceRecord),
    /// Something that is no request and means nothing (a blank line, a marker, a header).
    Nothing,
    /// A request or an event that is left out on purpose; counted.
    Skipped,
    /// No request follows, whatever else does.
    End,
}

/// Turns units into records.
pub(crate) trait Decoder: Send {
    /// Decodes one unit. The reason of an error is a phrase that follows its place.
    fn decode(&mut self, unit: &[u8], catalog: &mut Catalog) -> Result<Decoded, String>;

    /// The start of the trace, nanoseconds since 1970-01-01 UTC, as soon as it is known.
    fn start_unix_ns(&self) -> Option<u64> {
        None
    }
}

/// A decoder ready to read, and what is known of the trace before its first record.
pub(crate) struct Opened {
    pub(crate) decoder: Box<dyn Decoder>,
    pub(crate) unit: Unit,
    pub(crate) catalog: Catalog,
    pub(crate) page_size: Option<u32>,
    pub(crate) addressing: Addressing,
}

impl Opened {
    /// A trace of bytes in objects.
    fn bytes(decoder: impl Decoder + 'static, unit: Unit) -> Self {
        Self {
            decoder: Box::new(decoder),
            unit,
            catalog: Catalog::new(),
            page_size: None,
            addressing: Addressing::Bytes,
        }
    }

    /// A trace of page numbers.
    fn pages(decoder: impl Decoder + 'static, unit: Unit) -> Self {
        Self {
            page_size: Some(1),
            addressing: Addressing::Pages,
            ..Self::bytes(decoder, unit)
        }
    }
}

/// Prepares to read `input` as `format`, which is not Parquet.
pub(crate) fn open(
    format: Format,
    input: &mut Input,
    options: &ImportOptions,
) -> Result<Opened, ReadError> {
    match format {
        Format::OracleGeneral => Ok(oracle_general::open()),
        Format::Vscsi => vscsi::open(input),
        Format::Msr => Ok(msr::open()),
        Format::Lis => Ok(lis::open(options)),
        Format::Ids => Ok(ids::open()),
        Format::Blkparse => Ok(blkparse::open(options)),
        Format::Csv => csv::open(input, options),
        Format::Parquet => Err(ReadError::Format {
            path: input.path().to_path_buf(),
            reason: "Parquet has to be in a file that is not compressed".into(),
        }),
    }
}

/// The id of an object by name, as a decoder returns it.
fn object(catalog: &mut Catalog, name: &str) -> Result<ObjectId, String> {
    let id = catalog.object(name);
    id.ok_or_else(|| "more objects than can be numbered".into())
}

/// A read of `length` at `offset` about which nothing else is known.
fn read_of(object: ObjectId, offset: u64, length: u64) -> TraceRecord {
    TraceRecord {
        time_ns: 0,
        client: 0,
        op: Op::Read,
        served: Served::Unknown,
        object,
        offset,
        length,
        latency_ns: 0,
        hints: HintSet::UNKNOWN,
    }
}
