//! A device in memory.

use crate::lock::RwLock;
use std::io;

use super::{Device, Witness};

/// A growable device in memory: one vector behind one lock. Reads share the lock.
///
/// For tests, and for callers that want an engine without files. Holes take memory.
#[derive(Debug, Default)]
pub struct MemoryDevice {
    bytes: RwLock<Vec<u8>>,
}

impl MemoryDevice {
    /// An empty device.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A device of `len` zero bytes.
    #[must_use]
    pub fn with_len(len: usize) -> Self {
        Self::from_bytes(vec![0; len])
    }

    /// A device that holds `bytes`.
    #[must_use]
    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        Self {
            bytes: RwLock::new(bytes),
        }
    }

    /// A copy of all bytes.
    #[must_use]
    pub fn snapshot(&self) -> Vec<u8> {
        self.bytes.read().clone()
    }

    fn bytes_mut(&self) -> crate::lock::RwLockWriteGuard<'_, Vec<u8>> {
        // No code panics while it holds the lock half-way through a change.
        self.bytes.write()
    }
}

/// Where `offset` is in memory, or an error: nothing that large fits.
fn index(offset: u64) -> io::Result<usize> {
    let too_large = || io::Error::from_raw_os_error(libc::EFBIG);
    let at = usize::try_from(offset).map_err(|_| too_large())?;
    (at <= isize::MAX.unsigned_abs())
        .then_some(at)
        .ok_or_else(too_large)
}

impl Device for MemoryDevice {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let bytes = self.bytes.read();
        let from = usize::try_from(offset)
            .unwrap_or(usize::MAX)
            .min(bytes.len());
        let len = buf.len().min(bytes.len() - from);
        buf[..len].copy_from_slice(&bytes[from..from + len]);
        debug_assert!(len == buf.len() || from + len == bytes.len());
        Ok(len)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        let from = index(offset)?;
        let to = index(offset.saturating_add(buf.len() as u64))?;
        if buf.is_empty() {
            return Ok(());
        }
        let mut bytes = self.bytes_mut();
        let before = bytes.len();
        if before < to {
            bytes.resize(to, 0);
        }
        bytes[from..to].copy_from_slice(buf);
        debug_assert_eq!(bytes.len(), before.max(to), "no write cuts");
        Ok(())
    }

    fn sync(&self, _data_only: bool) -> io::Result<()> {
        Ok(())
    }

    fn witness(&self) -> Witness {
        Witness::NOT_NEEDED
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.read().len() as u64)
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let len = index(len)?;
        self.bytes_mut().resize(len, 0);
        Ok(())
    }

    fn reserve(&self, offset: u64, len: u64, _ahead: u64) -> io::Result<()> {
        let end = index(offset.saturating_add(len))?;
        let mut bytes = self.bytes_mut();
        let length = bytes.len().max(end);
        bytes.resize(length, 0);
        Ok(())
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        let mut bytes = self.bytes_mut();
        let end = bytes.len();
        let clip = |at: u64| usize::try_from(at).unwrap_or(usize::MAX).min(end);
        bytes[clip(offset)..clip(offset.saturating_add(len))].fill(0);
        assert_eq!(bytes.len(), end, "punching keeps the length");
        Ok(())
    }

    fn label(&self) -> String {
        "memory".into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_short_only_at_the_end() {
        let device = MemoryDevice::from_bytes((0..10).collect());
        let mut buf = [0; 4];
        assert_eq!(device.read_at(&mut buf, 4).unwrap(), 4);
        assert_eq!(buf, [4, 5, 6, 7]);
        assert_eq!(device.read_at(&mut buf, 8).unwrap(), 2);
        assert_eq!(device.read_at(&mut buf, 10).unwrap(), 0);
        assert_eq!(device.read_at(&mut buf, u64::MAX).unwrap(), 0);
    }

    #[test]
    fn a_write_past_the_end_leaves_zeros_between() {
        let device = MemoryDevice::from_bytes(vec![1, 2]);
        device.write_at(&[9], 5).unwrap();
        assert_eq!(device.snapshot(), [1, 2, 0, 0, 0, 9]);
        device.write_at(&[], 100).unwrap();
        assert_eq!(device.len().unwrap(), 6);
        assert!(device.write_at(&[1], u64::MAX).is_err());
    }

    #[test]
    fn punch_and_set_len() {
        let device = MemoryDevice::from_bytes(vec![1; 6]);
        device.punch(1, 2).unwrap();
        device.punch(5, u64::MAX).unwrap();
        device.punch(100, 1).unwrap();
        assert_eq!(device.snapshot(), [1, 0, 0, 1, 1, 0]);
        device.set_len(2).unwrap();
        device.set_len(3).unwrap();
        assert_eq!(device.snapshot(), [1, 0, 0]);
    }
}
