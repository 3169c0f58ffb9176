//! Names of columns and metadata keys, shared by the writing and the reading side.

use std::sync::Arc;

use parquet::basic::{LogicalType, Repetition, Type as PhysicalType};
use parquet::errors::ParquetError;
use parquet::schema::types::{Type, TypePtr};
use thermocline_core::HintSchema;

use crate::error::RecordError;
use crate::reader::Addressing;

/// The hint type that names the database of a request, where one mount serves several: whoever
/// replays the trace takes each for a client of its own.
pub const DATABASE: &str = "database";

/// Version of the format described in docs/trace-format.md.
pub(crate) const FORMAT_VERSION: u32 = 1;

/// Keys of the file's key-value metadata.
pub(crate) mod key {
    /// [`super::FORMAT_VERSION`].
    pub(crate) const VERSION: &str = "thermocline.trace_version";
    /// Bytes per page.
    pub(crate) const PAGE_SIZE: &str = "thermocline.page_size";
    /// What offsets count: `bytes` (also when missing) or `pages`.
    pub(crate) const ADDRESSING: &str = "thermocline.addressing";
    /// Start of the trace, nanoseconds since 1970-01-01 UTC.
    pub(crate) const START: &str = "thermocline.start_unix_ns";
    /// Which program wrote it.
    pub(crate) const PRODUCT: &str = "thermocline.product";
    /// Number of this part, from 1.
    pub(crate) const PART: &str = "thermocline.part";
    /// Records dropped since the start of the trace when this part was closed.
    pub(crate) const DROPPED: &str = "thermocline.dropped";
    /// The share of the extents that was recorded, above 0 and below 1; missing when all were.
    pub(crate) const SAMPLE: &str = "thermocline.sample";
}

/// The columns every trace has, in the order they are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fixed {
    Time,
    Client,
    Operation,
    Object,
    Offset,
    Length,
    Latency,
    Served,
}

impl Fixed {
    pub(crate) const ALL: [Self; 8] = [
        Self::Time,
        Self::Client,
        Self::Operation,
        Self::Object,
        Self::Offset,
        Self::Length,
        Self::Latency,
        Self::Served,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Time => "time_ns",
            Self::Client => "client",
            Self::Operation => "operation",
            Self::Object => "object",
            Self::Offset => "offset",
            Self::Length => "length",
            Self::Latency => "latency_ns",
            Self::Served => "served",
        }
    }

    pub(crate) fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|column| column.name() == name)
    }

    /// Whether a foreign file may leave the column out (client 0, latency 0, served unknown).
    pub(crate) const fn optional(self) -> bool {
        matches!(self, Self::Client | Self::Latency | Self::Served)
    }

    pub(crate) const fn is_text(self) -> bool {
        matches!(self, Self::Operation | Self::Object | Self::Served)
    }
}

/// The Parquet schema: the fixed columns, then one optional string column per hint type.
pub(crate) fn parquet_schema(
    hints: &HintSchema,
    addressing: Addressing,
) -> Result<TypePtr, ParquetError> {
    let mut fields = Vec::with_capacity(Fixed::ALL.len() + hints.names().len());
    for column in Fixed::ALL {
        fields.push(Arc::new(fixed_type(column, addressing)?));
    }
    for name in hints.names() {
        fields.push(Arc::new(text_type(name, Repetition::OPTIONAL)?));
    }
    Ok(Arc::new(
        Type::group_type_builder("trace")
            .with_fields(fields)
            .build()?,
    ))
}

/// Numbers of pages use all 64 bits; bytes stay signed, which more programs can read.
fn fixed_type(column: Fixed, addressing: Addressing) -> Result<Type, ParquetError> {
    let name = column.name();
    if column.is_text() {
        return text_type(name, Repetition::REQUIRED);
    }
    let builder = if column == Fixed::Client {
        Type::primitive_type_builder(name, PhysicalType::INT32)
            .with_logical_type(Some(LogicalType::integer(32, false)))
    } else if column == Fixed::Offset && addressing == Addressing::Pages {
        Type::primitive_type_builder(name, PhysicalType::INT64)
            .with_logical_type(Some(LogicalType::integer(64, false)))
    } else {
        Type::primitive_type_builder(name, PhysicalType::INT64)
    };
    builder.with_repetition(Repetition::REQUIRED).build()
}

fn text_type(name: &str, repetition: Repetition) -> Result<Type, ParquetError> {
    Type::primitive_type_builder(name, PhysicalType::BYTE_ARRAY)
        .with_logical_type(Some(LogicalType::String))
        .with_repetition(repetition)
        .build()
}

/// Columns of other programs' book-keeping, such as the row index pandas adds
/// (`__index_level_0__`): neither fixed nor hints.
pub(crate) fn is_ignored(name: &str) -> bool {
    name.starts_with("__")
}

/// Refuses hint types whose names cannot be columns next to the fixed ones.
pub(crate) fn check_hint_names(hints: &HintSchema) -> Result<(), RecordError> {
    for (position, name) in hints.names().iter().enumerate() {
        let refuse = |reason| {
            Err(RecordError::HintName {
                name: name.clone(),
                reason,
            })
        };
        if name.is_empty() {
            return refuse("it is empty");
        }
        if is_ignored(name) {
            return refuse("names with two leading underscores are ignored by readers");
        }
        if Fixed::from_name(name).is_some() {
            return refuse("a fixed column has this name");
        }
        if hints.names()[..position].contains(name) {
            return refuse("an earlier hint type has this name");
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fixed_columns_come_first_and_hints_are_nullable() {
        let schema = HintSchema::with_custom(["plan_node"]).unwrap();
        let parquet = parquet_schema(&schema, Addressing::Bytes).unwrap();
        let names: Vec<&str> = parquet.get_fields().iter().map(|f| f.name()).collect();
        assert_eq!(names[..2], ["time_ns", "client"]);
        assert_eq!(
            names[8..],
            [
                "hint_object",
                "file_kind",
                "request",
                "page_type",
                "role",
                "plan_level",
                "plan_access",
                "plan_operator",
                "plan_node"
            ]
        );
        assert!(parquet.get_fields()[16].is_optional());
        assert!(!parquet.get_fields()[0].is_optional());
    }

    #[test]
    fn names_that_cannot_be_columns_are_refused() {
        for bad in ["", "offset", "role", "__x"] {
            let schema = HintSchema::with_custom([bad]).unwrap();
            assert!(check_hint_names(&schema).is_err(), "{bad:?}");
        }
        assert!(check_hint_names(&HintSchema::default()).is_ok());
    }
}
