//! What can go wrong.

use crate::key::KeyKind;
use std::io;

/// Why a filter cannot be built, opened or asked. None of these is ever turned into an answer.
#[derive(Debug, thiserror::Error)]
pub enum FilterError {
    /// The device failed.
    #[error("{device}: {source}")]
    Device {
        /// The device's label.
        device: String,
        /// The reason.
        source: io::Error,
    },
    /// No filter begins there.
    #[error("{device}: not a filter")]
    NotAFilter {
        /// The device's label.
        device: String,
    },
    /// A filter of another version of the format.
    #[error("{device}: filter format version {found}, this program reads version {known}")]
    Version {
        /// The device's label.
        device: String,
        /// Version found.
        found: u32,
        /// Version known.
        known: u32,
    },
    /// The build was cut short, by a crash or an error.
    #[error("{device}: the build of this filter never ended, so keys are missing from it")]
    Unfinished {
        /// The device's label.
        device: String,
    },
    /// Bytes are missing at the end.
    #[error("{device}: truncated: {found} bytes of {expected}")]
    Truncated {
        /// The device's label.
        device: String,
        /// Bytes there are.
        found: u64,
        /// Bytes there should be.
        expected: u64,
    },
    /// Bytes are not those that were written.
    #[error("{device}: damaged: {what}")]
    Damaged {
        /// The device's label.
        device: String,
        /// Which part.
        what: String,
    },
    /// A key of another kind than the filter's.
    #[error("the filter's keys are of kind {expected}, this key is of kind {found}")]
    Kind {
        /// What the filter was built with.
        expected: KeyKind,
        /// What was given.
        found: KeyKind,
    },
    /// An option is out of range.
    #[error("{option} must be {expected}")]
    Option {
        /// The option.
        option: &'static str,
        /// Its range.
        expected: String,
    },
    /// A worker thread could not be started.
    #[error("cannot start a worker thread: {0}")]
    Thread(io::Error),
    /// Asked on after an error, which was told.
    #[error("given up after an earlier error: {reason}")]
    Lost {
        /// That error.
        reason: String,
    },
    /// A worker thread panicked: a defect of this crate.
    #[error("a worker thread panicked")]
    Panicked,
}
