//! CSV under the names of the native format: one line per request, or per page when split.
//!
//! Split, every line has a column `page_id`, one number per page of the trace, for programs that
//! know pages by a number only (libCacheSim: `obj-id-col`); reading back, it is ignored. A trace
//! that counts in pages has `page` and `pages` in place of `offset` and `length`.

use std::io::Write as _;
use std::path::Path;

use thermocline_core::HintSchema;

use super::oracle_general::PageNumbers;
use super::output::{Output, Stream};
use super::{Head, Refused, Sink, WriteError};
use crate::catalog::Catalog;
use crate::column::{Fixed, check_hint_names};
use crate::error::RecordError;
use crate::import::{PAGE_ID, is_no_hint};
use crate::reader::Addressing;
use crate::record::TraceRecord;
use crate::recorder::NameSource;

pub(super) struct CsvWriter {
    output: Output,
    stream: Stream,
    line: Vec<u8>,
    hint_types: usize,
    /// How pages are numbered, when lines are pages.
    numbers: Option<PageNumbers>,
}

impl CsvWriter {
    pub(super) fn create(path: &Path, head: &Head, overwrite: bool) -> Result<Self, WriteError> {
        check_hint_names(head.schema)?;
        check_columns(head.schema)?;
        let (output, file) = Output::create(path, overwrite)?;
        let stream = Stream::new(file, output.compressed());
        let mut writer = Self {
            stream: stream.map_err(|source| output.failed(source))?,
            output,
            line: Vec::new(),
            hint_types: head.schema.names().len(),
            numbers: head.split.then(|| PageNumbers::new(head.page_size)),
        };
        writer.header(head)?;
        Ok(writer)
    }

    fn header(&mut self, head: &Head) -> Result<(), WriteError> {
        let in_pages = head.addressing == Addressing::Pages;
        let fixed = Fixed::ALL.into_iter().map(|column| match column {
            Fixed::Offset if in_pages => "page",
            Fixed::Length if in_pages => "pages",
            _ => column.name(),
        });
        let hints = head.schema.names().iter().map(String::as_str);
        let page_id = self.numbers.is_some().then_some(PAGE_ID);
        for name in fixed.chain(hints).chain(page_id) {
            put_text(&mut self.line, name);
            self.line.push(b',');
        }
        self.end_line()
    }

    fn end_line(&mut self) -> Result<(), WriteError> {
        debug_assert_eq!(self.line.last(), Some(&b','));
        self.line.pop();
        self.line.push(b'\n');
        let written = self.stream.write_all(&self.line);
        self.line.clear();
        written.map_err(|source| self.output.failed(source))
    }

    fn put_fixed(&mut self, row: &TraceRecord, catalog: &Catalog) -> Result<(), Refused> {
        let object = catalog.object_text(row.object);
        let line = &mut self.line;
        // Writing to a Vec cannot fail.
        let _ = write!(line, "{},{},{},", row.time_ns, row.client, row.op.name());
        put_name(line, &object)?;
        let (offset, length) = (row.offset, row.length);
        let (latency, served) = (row.latency_ns, row.served.name());
        let _ = write!(line, ",{offset},{length},{latency},{served},");
        Ok(())
    }
}

impl Sink for CsvWriter {
    fn write(&mut self, row: &TraceRecord, catalog: &Catalog) -> Result<(), Refused> {
        self.line.clear();
        self.put_fixed(row, catalog)?;
        for position in 0..self.hint_types {
            match row.hints.get(position) {
                0 => {}
                value => put_name(&mut self.line, &catalog.value_text(position, value))?,
            }
            self.line.push(b',');
        }
        if let Some(numbers) = &mut self.numbers {
            let _ = write!(self.line, "{},", numbers.of(row));
        }
        Ok(self.end_line()?)
    }

    fn finish(self: Box<Self>, catalog: &Catalog) -> Result<(u64, u64), WriteError> {
        let finished = self.stream.finish();
        finished.map_err(|source| self.output.failed(source))?;
        let far = self.numbers.map_or(0, |numbers| numbers.far(catalog));
        Ok((self.output.commit()?, far))
    }
}

/// Refuses hint types that CSV has another column for: reading would take one for the other.
fn check_columns(schema: &HintSchema) -> Result<(), RecordError> {
    let taken = schema.names().iter().find(|name| is_no_hint(name));
    match taken {
        None => Ok(()),
        Some(name) => Err(RecordError::HintName {
            name: name.clone(),
            reason: "in CSV it stands for page numbers; parquet can hold it",
        }),
    }
}

/// Names with line breaks cannot be written: a line is a row.
fn put_name(line: &mut Vec<u8>, name: &str) -> Result<(), Refused> {
    if name.contains(['\n', '\r']) {
        return Err(Refused::Unfit(format!("{name:?} has a line break")));
    }
    put_text(line, name);
    Ok(())
}

/// Writes a cell, in quotes where it needs them.
fn put_text(line: &mut Vec<u8>, text: &str) {
    let plain = !text.contains([',', ';', '\t', '"']) && text.trim() == text;
    if plain {
        line.extend_from_slice(text.as_bytes());
        return;
    }
    line.push(b'"');
    line.extend_from_slice(text.replace('"', "\"\"").as_bytes());
    line.push(b'"');
}
