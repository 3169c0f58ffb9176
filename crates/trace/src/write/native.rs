//! The native format, from records that were not recorded here. Rows keep their order.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use parquet::errors::ParquetError;

use super::output::Output;
use super::{Head, Refused, Sink, WriteError};
use crate::catalog::Catalog;
use crate::column::check_hint_names;
use crate::reader::Addressing;
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
    /// Offsets are page numbers, whose column is unsigned.
    pages: bool,
    /// Records that the recorder of the trace dropped.
    dropped: u64,
}

/// Refuses what the columns, which are signed, would hold another number for.
fn signed(row: &TraceRecord, pages: bool) -> Result<(), String> {
    for (what, number, unit) in [
        ("time", row.time_ns, " ns"),
        ("offset", if pages { 0 } else { row.offset }, ""),
        ("length", row.length, ""),
        ("latency", row.latency_ns, " ns"),
    ] {
        if i64::try_from(number).is_err() {
            let most = i64::MAX;
            return Err(format!(
                "its {what}, {number}{unit}, exceeds {most}, the most of Parquet's column; csv \
                 holds it"
            ));
        }
    }
    Ok(())
}

impl TraceWriter {
    pub(super) fn create(path: &Path, head: &Head, overwrite: bool) -> Result<Self, WriteError> {
        check_hint_names(head.schema)?;
        let (output, file) = Output::create_first(path, overwrite)?;
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
            pages: head.addressing == Addressing::Pages,
            rows: Vec::with_capacity(GROUP_ROWS),
            dropped: head.dropped,
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
        signed(row, self.pages).map_err(Refused::Unfit)?;
        self.rows.push(*row);
        if self.rows.len() == GROUP_ROWS {
            self.flush(catalog)?;
        }
        Ok(())
    }

    fn finish(mut self: Box<Self>, catalog: &Catalog) -> Result<(u64, u64), WriteError> {
        self.flush(catalog)?;
        let Self {
            output,
            mut part,
            dropped,
            ..
        } = *self;
        part.close(dropped)
            .map_err(|error| failed(&output, error))?;
        Ok((output.commit()?, 0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reader::Addressing;
    use crate::record::{Op, Served};
    use crate::{ImportOptions, Sample, WriteOptions, convert, open, open_files};
    use thermocline_core::{HintSchema, HintSet, ObjectId};

    #[test]
    fn dropped_records_are_passed_on() {
        let dir = tempfile::tempdir().unwrap();
        let [seven, none, copy] = ["a", "b", "c"].map(|name| dir.path().join(name));
        for (path, dropped) in [(&seven, 7), (&none, 0)] {
            let head = Head {
                schema: &HintSchema::default(),
                addressing: Addressing::Bytes,
                page_size: 4096,
                start_unix_ns: 0,
                sample: Sample::default(),
                dropped,
                split: false,
            };
            let writer = TraceWriter::create(path, &head, false).unwrap();
            let mut writer: Box<dyn Sink> = Box::new(writer);
            let row = TraceRecord {
                time_ns: 0,
                client: 0,
                op: Op::Read,
                served: Served::Base,
                object: ObjectId(0),
                offset: 0,
                length: 4096,
                latency_ns: 0,
                hints: HintSet::UNKNOWN,
            };
            assert!(writer.write(&row, &Catalog::new()).is_ok());
            writer.finish(&Catalog::new()).unwrap();
        }
        let options = WriteOptions {
            format: Some(crate::Format::Parquet),
            ..WriteOptions::default()
        };
        let source = open(&seven, &ImportOptions::default()).unwrap();
        convert(source, &copy, &options, |_, _| {}).unwrap();
        let copied = open(&copy, &ImportOptions::default()).unwrap();
        assert_eq!(copied.meta().dropped, 7);
        let both = open_files(&[seven, none], &ImportOptions::default()).unwrap();
        assert_eq!(both.meta().dropped, 7);
    }
}
