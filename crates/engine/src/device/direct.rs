//! Reads that a caller's own ring makes in a device's stead.
//!
//! A thread that serves many requests from one ring submits its flash reads there too, so that it
//! sleeps in one place only. The device lends the file, says how long a read may take, and counts
//! the reads as if it had made them. What it cannot promise for a caller's ring (scripted faults,
//! an emulated disk's pace) it does not lend: [`Device::direct`](super::Device::direct) is `None`.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::time::Duration;

use super::deadline::{ABANDONED_MAX, Abandoned};
use super::metered::Meters;

/// A file for direct reads: offsets, lengths and addresses are multiples of
/// [`ALIGNMENT`](super::ALIGNMENT).
#[derive(Clone, Copy)]
pub struct DirectFile<'a> {
    pub(super) file: BorrowedFd<'a>,
    pub(super) deadline: Option<Duration>,
    pub(super) abandoned: &'a Arc<Abandoned>,
    pub(super) meters: Option<&'a Meters>,
}

impl<'a> DirectFile<'a> {
    /// What to read from.
    #[must_use]
    pub fn file(&self) -> BorrowedFd<'a> {
        self.file
    }

    /// The same with another file: a device that a tester has under control.
    #[doc(hidden)]
    #[must_use]
    pub fn redirected(self, file: BorrowedFd<'a>) -> Self {
        Self { file, ..self }
    }

    /// How long a read may take; `None`: for ever.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

    /// Whether so many requests are late that no more should be made.
    #[must_use]
    pub fn is_stuck(&self) -> bool {
        self.abandoned.count() >= ABANDONED_MAX
    }

    /// Counts a request that outlived its deadline, until what it returns is dropped: when the
    /// kernel has ended it.
    #[must_use]
    pub fn late(&self) -> Late {
        self.abandoned.add();
        Late(Arc::clone(self.abandoned))
    }

    /// Reads begin; what [`DirectFile::ended`] is to be told.
    pub(crate) fn begun(&self) -> u64 {
        self.meters.map_or(0, Meters::begin)
    }

    /// The reads that began at `begun` have ended, each as `results` says.
    pub(crate) fn ended(&self, begun: u64, results: &[io::Result<usize>]) {
        if let Some(meters) = self.meters {
            meters.end_reads(begun, results);
        }
    }
}

/// A request that is late: see [`DirectFile::late`].
#[derive(Debug)]
pub struct Late(Arc<Abandoned>);

impl Drop for Late {
    fn drop(&mut self) {
        self.0.remove();
    }
}
