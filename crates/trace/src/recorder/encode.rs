//! Rows to columns: one row group at a time.

use std::collections::HashMap;
use std::hash::Hash;
use std::io::Write;
use std::sync::Arc;

use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::data_type::{ByteArray, ByteArrayType, Int32Type, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter};
use parquet::schema::types::ColumnPath;
use thermocline_core::ObjectId;

use super::{RecorderOptions, Shared, lock};
use crate::column::{FORMAT_VERSION, Fixed, key, parquet_schema};
use crate::record::TraceRecord;

/// A part under construction.
pub(super) struct Part<W: Write + Send> {
    file: SerializedFileWriter<W>,
    hint_types: usize,
}

impl<W: Write + Send> Part<W> {
    pub(super) fn new(
        sink: W,
        options: &RecorderOptions,
        number: u32,
    ) -> Result<Self, ParquetError> {
        let schema = parquet_schema(&options.schema)?;
        let properties = Arc::new(properties(options, number)?);
        let file = SerializedFileWriter::new(sink, schema, properties)?;
        Ok(Self {
            file,
            hint_types: options.schema.names().len(),
        })
    }

    /// Writes `rows` as one row group.
    pub(super) fn write(
        &mut self,
        rows: &[TraceRecord],
        shared: &Shared,
    ) -> Result<(), ParquetError> {
        assert!(!rows.is_empty(), "a row group has rows");
        let mut group = self.file.next_row_group()?;
        for at in 0..Fixed::ALL.len() + self.hint_types {
            let Some(mut column) = group.next_column()? else {
                return Err(ParquetError::General("schema has too few columns".into()));
            };
            match Fixed::ALL.get(at) {
                Some(&fixed) => write_fixed(&mut column, fixed, rows, shared)?,
                None => write_hint(&mut column, at - Fixed::ALL.len(), rows, shared)?,
            }
            column.close()?;
        }
        group.close()?;
        Ok(())
    }

    /// Writes the directory and returns the size of the file in bytes.
    pub(super) fn close(mut self, dropped: u64) -> Result<u64, ParquetError> {
        self.file
            .append_key_value_metadata(pair(key::DROPPED, dropped));
        self.file.finish()?;
        self.file.inner_mut().flush()?;
        Ok(self.file.bytes_written() as u64)
    }
}

fn pair(key: &str, value: impl ToString) -> KeyValue {
    KeyValue::new(key.to_string(), value.to_string())
}

fn properties(options: &RecorderOptions, number: u32) -> Result<WriterProperties, ParquetError> {
    let product = format!("thermocline {}", env!("CARGO_PKG_VERSION"));
    let metadata = vec![
        pair(key::VERSION, FORMAT_VERSION),
        pair(key::PAGE_SIZE, options.page_size),
        pair(key::START, options.start_unix_ns),
        pair(key::PRODUCT, &product),
        pair(key::PART, number),
    ];
    let mut builder = WriterProperties::builder()
        .set_created_by(product)
        .set_key_value_metadata(Some(metadata))
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(options.zstd_level)?))
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_max_row_group_row_count(None);
    // Numbers that hardly repeat: a dictionary would only cost time.
    for (column, encoding) in [
        (Fixed::Time, Encoding::DELTA_BINARY_PACKED),
        (Fixed::Offset, Encoding::PLAIN),
        (Fixed::Latency, Encoding::PLAIN),
    ] {
        let path = ColumnPath::from(column.name());
        builder = builder
            .set_column_dictionary_enabled(path.clone(), false)
            .set_column_encoding(path, encoding);
    }
    Ok(builder.build())
}

fn write_fixed(
    column: &mut SerializedColumnWriter<'_>,
    fixed: Fixed,
    rows: &[TraceRecord],
    shared: &Shared,
) -> Result<(), ParquetError> {
    match fixed {
        Fixed::Time => write_i64(column, rows, |row| row.time_ns),
        Fixed::Offset => write_i64(column, rows, |row| row.offset),
        Fixed::Length => write_i64(column, rows, |row| row.length),
        Fixed::Latency => write_i64(column, rows, |row| row.latency_ns),
        Fixed::Client => {
            // The column is annotated as unsigned: same 32 bits.
            let values: Vec<i32> = rows.iter().map(|row| row.client.cast_signed()).collect();
            column
                .typed::<Int32Type>()
                .write_batch(&values, None, None)
                .map(drop)
        }
        Fixed::Operation => write_text(column, rows, |row| row.op, |op| op.name().into()),
        Fixed::Served => write_text(column, rows, |row| row.served, |place| place.name().into()),
        Fixed::Object => {
            let name = |object: ObjectId| lock(&shared.names).object(object);
            write_text(column, rows, |row| row.object, name)
        }
    }
}

/// Values beyond what a signed column holds (292 years, 8 EiB) are written as its largest.
fn write_i64(
    column: &mut SerializedColumnWriter<'_>,
    rows: &[TraceRecord],
    value: impl Fn(&TraceRecord) -> u64,
) -> Result<(), ParquetError> {
    let signed = |row| i64::try_from(value(row)).unwrap_or(i64::MAX);
    let values: Vec<i64> = rows.iter().map(signed).collect();
    column
        .typed::<Int64Type>()
        .write_batch(&values, None, None)
        .map(drop)
}

/// Texts are made once per distinct key and shared by the rows.
fn write_text<K: Copy + Eq + Hash>(
    column: &mut SerializedColumnWriter<'_>,
    rows: &[TraceRecord],
    key: impl Fn(&TraceRecord) -> K,
    name: impl Fn(K) -> String,
) -> Result<(), ParquetError> {
    let mut texts = Texts::new(name);
    let values: Vec<ByteArray> = rows.iter().map(|row| texts.get(key(row))).collect();
    column
        .typed::<ByteArrayType>()
        .write_batch(&values, None, None)
        .map(drop)
}

fn write_hint(
    column: &mut SerializedColumnWriter<'_>,
    position: usize,
    rows: &[TraceRecord],
    shared: &Shared,
) -> Result<(), ParquetError> {
    let mut texts = Texts::new(|value| lock(&shared.names).value(position, value));
    let mut values = Vec::with_capacity(rows.len());
    let mut levels = Vec::with_capacity(rows.len());
    for row in rows {
        let value = row.hints.get(position);
        levels.push(i16::from(value != 0));
        if value != 0 {
            values.push(texts.get(value));
        }
    }
    debug_assert_eq!(levels.len(), rows.len());
    column
        .typed::<ByteArrayType>()
        .write_batch(&values, Some(&levels), None)
        .map(drop)
}

struct Texts<K, F> {
    made: HashMap<K, ByteArray>,
    last: Option<(K, ByteArray)>,
    name: F,
}

impl<K: Copy + Eq + Hash, F: Fn(K) -> String> Texts<K, F> {
    fn new(name: F) -> Self {
        Self {
            made: HashMap::new(),
            last: None,
            name,
        }
    }

    fn get(&mut self, key: K) -> ByteArray {
        if let Some((last, text)) = &self.last
            && *last == key
        {
            return text.clone();
        }
        let make = || ByteArray::from((self.name)(key).into_bytes());
        let text = self.made.entry(key).or_insert_with(make).clone();
        self.last = Some((key, text.clone()));
        text
    }
}
