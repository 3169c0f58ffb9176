//! What the command line says about the format of a trace.

use crate::failure::{Code, Failure};
use crate::units::Size;
use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use thermocline_trace::{CsvColumns, Format, ImportOptions, ReadError};

/// Names of the formats `formats`, as values of an option.
pub(crate) fn format_parser(formats: &[Format]) -> impl TypedValueParser<Value = String> + use<> {
    PossibleValuesParser::new(formats.iter().map(|format| format.name()))
}

/// Options of every command that reads a trace.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Traces of other programs")]
pub(crate) struct ImportArgs {
    /// Format of the trace [default: told by its name and first bytes]
    #[arg(long, value_name = "FORMAT", value_parser = format_parser(&Format::ALL))]
    pub(crate) from: Option<String>,
    /// What the columns of a CSV file are, as WHAT=COLUMN,... with WHAT one of time, time_us (also
    /// _ns, _ms, _s), op, object, offset, length, page, pages, client, hint:NAME; rows to leave
    /// out as skip:COLUMN=VALUE; several columns for one object as object=a+b. The file is then
    /// read as CSV whatever it looks like
    #[arg(long, value_name = "MAPPING")]
    pub(crate) columns: Option<CsvColumns>,
    /// Bytes per page of CSV page columns, or per block of .lis (512); other formats refuse it
    #[arg(long, value_name = "SIZE")]
    pub(crate) unit: Option<Size>,
    /// Which action of blkparse text stands for a request: Q when queued, D when sent to the device
    #[arg(long, value_name = "LETTER", default_value_t = 'Q')]
    pub(crate) action: char,
}

impl ImportArgs {
    /// The same for the library.
    ///
    /// # Errors
    /// When the unit is not in bytes, or 0.
    pub(crate) fn options(&self) -> Result<ImportOptions, Failure> {
        let unit = self.unit.map(unit_bytes).transpose()?;
        Ok(ImportOptions {
            format: self.from.as_deref().and_then(Format::from_name),
            columns: self.columns.clone(),
            unit,
            blkparse_action: self.action,
            several: false,
        })
    }
}

fn unit_bytes(size: Size) -> Result<u32, Failure> {
    let bytes = match size {
        Size::Bytes(bytes) => u32::try_from(bytes).ok(),
        Size::Pages(_) => None,
    };
    bytes.filter(|&bytes| bytes > 0).ok_or_else(|| {
        Failure::usage(format!("--unit {size}: expected 1 to 4294967295 bytes"))
            .advise("8KiB for PostgreSQL, 512 for disk blocks")
    })
}

/// What to try about a trace that cannot be read.
pub(crate) fn explain(error: &ReadError) -> Failure {
    let failure = Failure::new(Code::Failure, error.to_string());
    match error {
        ReadError::Unfinished { .. } => {
            failure.advise("unmount, which finishes the recording, then ask again")
        }
        ReadError::Version { .. } => failure.advise("read it with the program that wrote it"),
        ReadError::Mismatch { .. } => failure.advise("name the files of one recording only"),
        ReadError::Together { .. } => Failure::usage(error.to_string())
            .advise("one trace at a time; simulate takes several, each a client"),
        ReadError::UnknownFormat { .. } => failure.advise(format!(
            "say it with --from: {}",
            Format::ALL.map(Format::name).join(", ")
        )),
        ReadError::Column { .. } => {
            failure.advise("say what the columns are with --columns, e.g. time=ts,op=rw,page=block")
        }
        ReadError::Unused { option, .. } => Failure::usage(error.to_string())
            .advise(format!("leave --{option} out; --from says another format")),
        ReadError::Line { .. } | ReadError::Record { .. } => {
            failure.advise("when this is another format than it looks, say so with --from")
        }
        _ => failure,
    }
}
