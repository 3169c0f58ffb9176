//! Rivals of the Buffered Bloom filter that are on the SSD as well, each with one thread.

pub(crate) mod cascade;
pub(crate) mod paged;
pub(crate) mod regions;

use crate::Outcome;
use std::fs::{File, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// Bytes of the pages that are read at random.
pub(crate) const PAGE: usize = 4096;

/// A scratch file read and written past the page cache.
pub(crate) struct Scratch {
    file: File,
    pub(crate) reads: u64,
    pub(crate) writes: u64,
    pub(crate) written: u64,
}

impl Scratch {
    /// An empty file at `path`.
    pub(crate) fn create(path: &str) -> Outcome<Self> {
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(true);
        let file = options.custom_flags(libc::O_DIRECT).open(path)?;
        Ok(Self {
            file,
            reads: 0,
            writes: 0,
            written: 0,
        })
    }

    /// Fills `bytes` (aligned, whole pages) from `offset`.
    pub(crate) fn read(&mut self, bytes: &mut [u8], offset: u64) -> Outcome<()> {
        self.reads += 1;
        Ok(self.file.read_exact_at(bytes, offset)?)
    }

    pub(crate) fn write(&mut self, bytes: &[u8], offset: u64) -> Outcome<()> {
        self.writes += 1;
        self.written += bytes.len() as u64;
        Ok(self.file.write_all_at(bytes, offset)?)
    }
}

/// Bytes that begin where a device wants them to.
pub(crate) struct Aligned {
    bytes: Vec<u8>,
    start: usize,
    len: usize,
}

impl Aligned {
    pub(crate) fn zeroed(len: usize) -> Self {
        let bytes = vec![0; len + PAGE];
        let start = bytes.as_ptr().align_offset(PAGE);
        Self { bytes, start, len }
    }

    pub(crate) fn get(&self) -> &[u8] {
        &self.bytes[self.start..self.start + self.len]
    }

    pub(crate) fn get_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.start + self.len]
    }
}
