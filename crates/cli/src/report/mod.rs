//! What a mount says about itself: one structure, shown as text, as JSON and as metrics.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Everything `.thermocline/stats.json` holds.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The mount.
    pub(crate) mount: MountFacts,
}

/// What is mounted where, by which process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct MountFacts {
    /// Process that serves.
    pub(crate) pid: u32,
    /// Version of the program that serves.
    pub(crate) version: String,
    /// Directory below.
    pub(crate) base: PathBuf,
    /// Directory where it is seen.
    pub(crate) mountpoint: PathBuf,
    /// Cache file; empty without one.
    pub(crate) cache: PathBuf,
    /// Log of the process.
    pub(crate) log: PathBuf,
    /// Emulated device the base is slowed down to; empty for none.
    pub(crate) emulated_base: String,
    /// When it was mounted, in seconds since 1970.
    pub(crate) since: u64,
}
