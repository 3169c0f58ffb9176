//! The native format, from records that were not recorded here. Rows keep their order.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use parquet::errors::ParquetError;

use super::output::Output;
use super::{Head, Refused, Sink, WriteError};
use crate::catalog::Catalog;
use crate::column::check_hint_names;
use crate::record::TraceRecord;
use crate::recorder::{Part, RecorderOptions};

/// Rows per row group.
const GROUP_ROWS: usize = 1 << 16;

/// Zstandard level: written once, read often.
const LEVEL: i32 = 9;

pub(super) struct TraceWriter {
    output: Output,
    part: Part<BufWriter<File>>,
    /// The row group being filled.
    rows: Vec<TraceRecord>,
}

impl TraceWriter {
    pub(super) fn create(path: &Path, head: &Head, overwrite: bool) -> Result<Self, WriteError> {
        check_hint_names(head.schema)?;
        let (output, file) = Output::create(path, overwrite)?;
        let options = RecorderOptions {
            schema: head.schema.clone(),
            page_size: head.page_size,
            start_unix_ns: head.start_unix_ns,
            sample: head.sample,
            zstd_level: LEVEL,
            ..RecorderOptions::default()
        };
        let sink = BufWriter::with_capacity(1 << 16, file);
        let part = Part::new(sink, &options, head.addressing, 1);
        let part = part.map_err(|error| failed(&output, error))?;
        Ok(Self {
            output,
            part,
            rows: Vec::with_capacity(GROUP_ROWS),
        })
    }

    fn flush(&mut self, catalog: &Catalog) -> Result<(), WriteError> {
        if self.rows.is_empty() {
            return Ok(());
        }
        let written = self.part.write(&self.rows, catalog);
        written.map_err(|error| failed(&self.output, error))?;
        self.rows.clear();
        Ok(())
    }
}

fn failed(output: &Output, error: ParquetError) -> WriteError {
    output.failed(std::io::Error::other(error))
}

impl Sink for TraceWriter {
    fn write(&mut self, row: &TraceRecord, catalog: &Catalog) -> Result<(), Refused> {
        debug_assert!(self.rows.len() < GROUP_ROWS);
        self.rows.push(*row);
        if self.rows.len() == GROUP_ROWS {
            self.flush(catalog)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, catalog: &Catalog) -> Result<(u64, u64), WriteError> {
        self.flush(catalog)?;
        let Self { output, part, .. } = *self;
        part.close(0).map_err(|error| failed(&output, error))?;
        Ok((output.commit()?, 0))
    }
}
