//! Who is told of lost writes.
//!
//! Linux tells each open file description once that a write which it had acknowledged was lost. Of
//! two syncs through one description that run at the same time only one is told, and it may end
//! later than the other. Whoever believes in base after a sync needs a description of his own,
//! opened before the writes that the sync is for.

use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// What [`super::Device::witness`] gives.
#[derive(Debug)]
pub struct Witness(Teller);

#[derive(Debug)]
enum Teller {
    Nobody,
    /// The device tells every sync of what it lost.
    Itself,
    /// The system tells this open file description.
    Description(File),
}

impl Witness {
    /// Nobody: [`super::Device::sync_before`] is a plain sync, and another sync at the same time
    /// may be told in its place.
    pub const NONE: Self = Self(Teller::Nobody);

    /// Of a device that tells every sync of what it lost.
    pub const NOT_NEEDED: Self = Self(Teller::Itself);

    /// Whether [`super::Device::sync_before`] is told for sure.
    #[must_use]
    pub fn is_there(&self) -> bool {
        !matches!(self.0, Teller::Nobody)
    }

    /// Whether it is told of a loss once, and nobody else in its place.
    pub(crate) fn is_told_once(&self) -> bool {
        matches!(self.0, Teller::Description(_))
    }

    /// One of what `file` means, even where it was renamed or unlinked; nobody where the system
    /// gives no other description of it (no descriptor left, no right to read it, no `/proc`).
    pub(super) fn of(file: &File) -> Self {
        // A lease that somebody has on the file must not hold this up.
        let opened = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(format!("/proc/self/fd/{}", file.as_raw_fd()));
        Self(opened.map_or(Teller::Nobody, Teller::Description))
    }

    pub(super) fn file(&self) -> Option<&File> {
        match &self.0 {
            Teller::Description(file) => Some(file),
            Teller::Nobody | Teller::Itself => None,
        }
    }
}
