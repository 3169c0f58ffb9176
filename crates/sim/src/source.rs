//! Where the records of a trace come from.

use crate::error::SimError;
use std::path::PathBuf;
use thermocline_core::HintSchema;
use thermocline_trace::{Addressing, Catalog, ImportOptions, ReadError, Source, TraceRecord};

/// The records of one trace, once from beginning to end.
pub trait Records: Iterator<Item = Result<TraceRecord, ReadError>> {
    /// Bytes per page, when the trace says; 1 when it counts in pages.
    fn page_size(&self) -> Option<u32>;

    /// Whether offsets and lengths count pages, not bytes.
    fn counts_pages(&self) -> bool;

    /// The names of its hint types.
    fn schema(&self) -> &HintSchema;

    /// Names behind the numbers of the records read so far, when it has any.
    fn catalog(&self) -> Option<&Catalog>;
}

/// Opens a trace from its beginning, as often as it is asked to: a trace that does not fit in
/// memory is read once for every run.
pub type Opener = Box<dyn Fn() -> Result<Box<dyn Records>, SimError> + Send + Sync>;

/// An opener of the trace at `path`, in any format.
#[must_use]
pub fn opener(path: PathBuf, options: ImportOptions) -> Opener {
    Box::new(move || Ok(Box::new(thermocline_trace::open(&path, &options)?)))
}

impl Records for Source {
    fn page_size(&self) -> Option<u32> {
        self.meta().page_size
    }

    fn counts_pages(&self) -> bool {
        self.meta().addressing == Addressing::Pages
    }

    fn schema(&self) -> &HintSchema {
        Source::schema(self)
    }

    fn catalog(&self) -> Option<&Catalog> {
        Some(Source::catalog(self))
    }
}

/// Records that are in memory already.
#[derive(Clone, Debug, Default)]
pub struct VecRecords {
    records: std::vec::IntoIter<TraceRecord>,
    page_size: Option<u32>,
    schema: HintSchema,
}

impl VecRecords {
    /// A trace of `records` whose pages have `page_size` bytes.
    #[must_use]
    pub fn new(records: Vec<TraceRecord>, page_size: u32) -> Self {
        Self {
            records: records.into_iter(),
            page_size: Some(page_size),
            schema: HintSchema::default(),
        }
    }

    /// An opener of the same records, time and again.
    #[must_use]
    pub fn opener(records: Vec<TraceRecord>, page_size: u32) -> Opener {
        let trace = Self::new(records, page_size);
        Box::new(move || Ok(Box::new(trace.clone())))
    }
}

impl Iterator for VecRecords {
    type Item = Result<TraceRecord, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.records.next().map(Ok)
    }
}

impl Records for VecRecords {
    fn page_size(&self) -> Option<u32> {
        self.page_size
    }

    fn counts_pages(&self) -> bool {
        false
    }

    fn schema(&self) -> &HintSchema {
        &self.schema
    }

    fn catalog(&self) -> Option<&Catalog> {
        None
    }
}
