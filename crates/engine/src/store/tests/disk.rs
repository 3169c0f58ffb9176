//! A disk in memory that loses what was not synced.

use crate::device::Device;
use std::collections::BTreeSet;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Mutex};

const SECTOR: usize = 512;

/// Random numbers (splitmix64).
#[derive(Clone)]
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        thermocline_core::hash::mix(self.0, 1)
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

#[derive(Default)]
struct Inner {
    /// What survives for certain.
    durable: Vec<u8>,
    /// What is read.
    now: Vec<u8>,
    unsynced: BTreeSet<usize>,
    /// I/Os until the power goes; none: it stays.
    left: Option<u64>,
    written: u64,
    cannot_punch: bool,
    /// Bytes that cannot be read until they are written.
    unreadable: Range<usize>,
}

/// See the module text. A clone is the same disk.
#[derive(Clone, Default)]
pub(super) struct Disk(Arc<Mutex<Inner>>);

impl Disk {
    pub(super) fn of(bytes: Vec<u8>) -> Self {
        let disk = Self::default();
        {
            let mut inner = disk.0.lock().unwrap();
            inner.durable = bytes.clone();
            inner.now = bytes;
        }
        disk
    }

    /// The power goes after this many more writes and syncs.
    pub(super) fn fail_after(&self, ios: u64) {
        self.0.lock().unwrap().left = Some(ios);
    }

    pub(super) fn unreadable(&self, bytes: Range<u64>) {
        self.0.lock().unwrap().unreadable = bytes.start as usize..bytes.end as usize;
    }

    /// As a block device that cannot discard.
    pub(super) fn no_punch(&self) {
        self.0.lock().unwrap().cannot_punch = true;
    }

    pub(super) fn written(&self) -> u64 {
        self.0.lock().unwrap().written
    }

    pub(super) fn bytes(&self) -> Vec<u8> {
        self.0.lock().unwrap().now.clone()
    }

    /// What is there after the power comes back: of each sector not synced the old or the new.
    pub(super) fn crashed(&self, random: &mut Random) -> Self {
        let inner = self.0.lock().unwrap();
        let mut bytes = inner.durable.clone();
        bytes.resize(inner.now.len(), 0);
        let keep = [0, 10, 50, 90, 100][random.below(5) as usize];
        for &sector in &inner.unsynced {
            let range = sector * SECTOR..((sector + 1) * SECTOR).min(bytes.len());
            if random.chance(keep) && range.start < range.end {
                bytes[range.clone()].copy_from_slice(&inner.now[range]);
            }
        }
        Self::of(bytes)
    }

    fn step(inner: &mut Inner) -> io::Result<()> {
        match &mut inner.left {
            Some(0) => Err(io::Error::other("no power")),
            Some(left) => {
                *left -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
}

impl Device for Disk {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let inner = self.0.lock().unwrap();
        let from = (offset as usize).min(inner.now.len());
        let length = buf.len().min(inner.now.len() - from);
        if from < inner.unreadable.end && inner.unreadable.start < from + length {
            return Err(io::Error::other("a sector cannot be read"));
        }
        buf[..length].copy_from_slice(&inner.now[from..from + length]);
        Ok(length)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let mut inner = self.0.lock().unwrap();
        let dying = Self::step(&mut inner);
        let (from, to) = (offset as usize, offset as usize + buf.len());
        assert!(to <= inner.now.len(), "a store does not write past its end");
        inner.now[from..to].copy_from_slice(buf);
        inner.unsynced.extend(from / SECTOR..to.div_ceil(SECTOR));
        inner.written += buf.len() as u64;
        if from <= inner.unreadable.start && inner.unreadable.end <= to {
            inner.unreadable = 0..0;
        }
        // The write that the power cut interrupts may still have reached some sectors.
        dying
    }

    fn sync(&self, _data_only: bool) -> io::Result<()> {
        let mut inner = self.0.lock().unwrap();
        Self::step(&mut inner)?;
        inner.durable = inner.now.clone();
        inner.unsynced.clear();
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().now.len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut inner = self.0.lock().unwrap();
        Self::step(&mut inner)?;
        inner.now.resize(len as usize, 0);
        inner.durable.truncate(len as usize);
        let sectors = len as usize / SECTOR;
        inner.unsynced.retain(|&s| s < sectors);
        Ok(())
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        if self.0.lock().unwrap().cannot_punch {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.write_at(&vec![0; len as usize], offset)
    }

    fn label(&self) -> String {
        "disk that forgets".into()
    }
}
