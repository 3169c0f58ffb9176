//! CSV with named columns.

use super::{Input, Opened};
use crate::error::ReadError;
use crate::source::ImportOptions;

/// What the columns of a CSV file are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CsvColumns {}

pub(super) fn open(input: &mut Input, options: &ImportOptions) -> Result<Opened, ReadError> {
    let _ = options;
    Err(ReadError::UnknownFormat {
        path: input.path().to_path_buf(),
    })
}
