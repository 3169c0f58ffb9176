//! Devices: the bytes below everything, behind one small trait.
//!
//! A device is blocking, thread-safe and byte-addressed. Wrappers stack: `Shaped<FileDevice>`
//! is a real file served at the pace of an emulated disk, `Metered<Faulty<..>>` measures what
//! a scripted fault costs. A wrapper says what it does in its [`Device::label`].
//!
//! Which one for what:
//! - [`FileDevice`]: a regular file or block device, direct I/O, optional deadline;
//! - [`MemoryDevice`]: a growable vector, for tests and for callers without a disk;
//! - [`Shaped`]: an emulated disk, SSD or network volume over a real file;
//! - [`Faulty`]: scripted errors, short reads, wrong bytes, delays, hangs;
//! - [`Metered`]: counters and latency percentiles.

mod aligned;
mod clock;
mod deadline;
mod direct;
mod faulty;
mod file;
mod memory;
mod metered;
mod shaped;
mod witness;

use std::io;
use std::sync::Arc;

pub use aligned::{ALIGNMENT, AlignedBuf, is_aligned};
#[doc(hidden)]
pub use direct::{DirectFile, Late};
pub use faulty::{FaultCounts, FaultScript, Faulty, ScriptError};
pub use file::{FileDevice, FileOptions};
pub use memory::MemoryDevice;
pub use metered::{DeviceMeter, Metered, Meters, OperationMeter};
pub use shaped::{DeviceUsage, Shaped, ShapedDisk};
pub use witness::Witness;

/// One read or write of a batch: see [`Device::transfer`].
#[derive(Debug)]
pub struct Transfer<'a> {
    /// Where it begins on the device.
    pub offset: u64,
    /// What moves.
    pub data: Data<'a>,
    /// How it went: bytes moved. [`Device::transfer`] sets it.
    pub result: io::Result<usize>,
}

/// The caller's side of a [`Transfer`].
#[derive(Debug)]
pub enum Data<'a> {
    /// To be filled from the device.
    Read(&'a mut [u8]),
    /// To be written to it.
    Write(&'a [u8]),
}

impl<'a> Transfer<'a> {
    /// A read of `buf.len()` bytes at `offset`.
    pub fn read(offset: u64, buf: &'a mut [u8]) -> Self {
        Self {
            offset,
            data: Data::Read(buf),
            result: Ok(0),
        }
    }

    /// A write of `bytes` at `offset`.
    #[must_use]
    pub fn write(offset: u64, bytes: &'a [u8]) -> Self {
        Self {
            offset,
            data: Data::Write(bytes),
            result: Ok(0),
        }
    }

    /// What is to be written, or what is in the buffer that is to be filled.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match &self.data {
            Data::Read(buf) => buf,
            Data::Write(bytes) => bytes,
        }
    }

    /// Whether `next` goes on where this ends, in the same direction.
    pub(crate) fn is_followed_by(&self, next: &Self) -> bool {
        let reads = |one: &Self| matches!(one.data, Data::Read(_));
        reads(self) == reads(next)
            && self.offset.checked_add(self.len() as u64) == Some(next.offset)
    }

    /// Bytes it is to move.
    #[must_use]
    pub fn len(&self) -> usize {
        self.bytes().len()
    }

    /// Whether there is nothing to move.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Does it by itself.
    pub fn perform(&mut self, device: &(impl Device + ?Sized)) {
        self.result = match &mut self.data {
            Data::Read(buf) => device.read_at(buf, self.offset),
            Data::Write(bytes) => device.write_at(bytes, self.offset).map(|()| bytes.len()),
        };
    }

    fn is_late(&self) -> bool {
        let late = |error: &io::Error| error.kind() == io::ErrorKind::TimedOut;
        self.result.as_ref().is_err_and(late)
    }
}

fn expired() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        "the device did not answer within its deadline",
    )
}

/// One file or block device. Offsets and lengths in bytes.
///
/// Every method may block for as long as the device takes; none spins. Calls may come from
/// many threads at once: calls on disjoint ranges are independent, overlapping calls without
/// outside ordering give a mix of old and new bytes, as with `pread` and `pwrite`.
///
/// Errors are those of the operating system. Wrappers add [`io::ErrorKind::TimedOut`]: the
/// device did not answer within its deadline. After that error the state of the range is
/// unknown *and may still change*: a write that timed out can reach the device at any later
/// time, so whoever gave it must not rely on the range until it was written again.
///
/// ```
/// use thermocline::device::{Device, MemoryDevice};
///
/// let device = MemoryDevice::new();
/// device.write_at(b"page", 4)?;
/// let mut bytes = [1; 16];
/// assert_eq!(device.read_at(&mut bytes, 0)?, 8, "short at the end");
/// assert_eq!(&bytes[..8], b"\0\0\0\0page");
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait Device: Send + Sync {
    /// Fills `buf` from `offset`; returns bytes read, short only at the end of the device
    /// (0 at and past it). On error the contents of `buf` are unspecified.
    ///
    /// # Errors
    /// Whatever the device reports, and `TimedOut`.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;

    /// Writes all of `buf` at `offset`, never less on `Ok`. Extends a file; the gap between
    /// the old end and `offset` reads zeros. Not durable before [`Device::sync`].
    ///
    /// # Errors
    /// Whatever the device reports, and `TimedOut`. Any part may have been written.
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()>;

    /// Does every transfer of `batch` as [`Device::read_at`] and [`Device::write_at`] would, in
    /// any order and perhaps all at once; each says by itself how it went. Ranges that overlap
    /// give what calls at the same time give.
    fn transfer(&self, batch: &mut [Transfer<'_>]) {
        batch.iter_mut().for_each(|one| one.perform(self));
    }

    /// Makes earlier completed writes durable. `data_only` may leave out metadata that is not
    /// needed to read the data back (`fdatasync`).
    ///
    /// # Errors
    /// Whatever the device reports. After an error, earlier writes may be lost even when a
    /// later `sync` succeeds.
    fn sync(&self, data_only: bool) -> io::Result<()>;

    /// Somebody who learns by himself of writes that are lost from now on. Costs a descriptor where
    /// there is one. [`Witness::NONE`] where the device cannot give one.
    fn witness(&self) -> Witness {
        Witness::NONE
    }

    /// As [`Device::sync`]. It fails too where another sync was told of a write that was lost since
    /// `witness` was made, be it earlier or at the same time.
    ///
    /// # Errors
    /// As [`Device::sync`].
    fn sync_before(&self, _witness: &Witness, data_only: bool) -> io::Result<()> {
        self.sync(data_only)
    }

    /// Length in bytes.
    ///
    /// # Errors
    /// Whatever the device reports.
    fn len(&self) -> io::Result<u64>;

    /// Whether the device has no bytes at all.
    ///
    /// # Errors
    /// As [`Device::len`].
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }

    /// Cuts or extends to `len` bytes; new bytes read zeros.
    ///
    /// # Errors
    /// `Unsupported` for a device of fixed size, else whatever the device reports.
    fn set_len(&self, len: u64) -> io::Result<()>;

    /// Sets room aside for a range of a file, and makes the file reach to its end if it was
    /// shorter: bytes that are there stay, new ones read zeros. Moves no data. Later writes of the
    /// range do not fail for lack of room, as far as the file system keeps that promise (those that
    /// never write in place may not). Not durable before [`Device::sync`]. `ahead` bytes more are
    /// wanted in one piece with it, behind the file's end: as much as there is room for, until
    /// [`Device::give_back`].
    ///
    /// # Errors
    /// `Unsupported`, and the file is as it was, where there is no such thing; else whatever the
    /// device reports: the file may be longer then, but no longer than to the end of the range.
    fn reserve(&self, _offset: u64, _len: u64, _ahead: u64) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Gives back what was set aside behind the file's end. Changes no byte, and not the length;
    /// nobody else may make the file longer meanwhile.
    ///
    /// # Errors
    /// Whatever the device reports; the room may be kept then.
    fn give_back(&self) -> io::Result<()> {
        Ok(())
    }

    /// Deallocates a range, which reads zeros afterwards. The length stays; the part of the
    /// range past the end is ignored.
    ///
    /// # Errors
    /// Whatever the device reports.
    fn punch(&self, offset: u64, len: u64) -> io::Result<()>;

    /// Makes the system forget what it keeps of a range in memory; whether it keeps anything:
    /// false where requests go past the page cache, or there is none. For measuring.
    fn drop_cached(&self, _offset: u64, _len: u64) -> bool {
        false
    }

    /// Requests that were given up ([`TimedOut`](io::ErrorKind::TimedOut)) and that the system has
    /// not ended: a write among them may still reach the device.
    fn late(&self) -> u32 {
        0
    }

    /// Whether it takes writes at all: a file that was opened to be read does not.
    fn can_write(&self) -> bool {
        true
    }

    /// The file that a caller's own ring may read; `None` when reads must come to the device.
    fn direct(&self) -> Option<DirectFile<'_>> {
        None
    }

    /// What to call it in output, e.g. `file /ssd/cache`,
    /// `emulated 7200-rpm disk over file /base/t`.
    fn label(&self) -> String;
}

/// Implements [`Device`] by calling through a pointer.
macro_rules! forward {
    ($pointer:ty) => {
        impl<D: Device + ?Sized> Device for $pointer {
            fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
                (**self).read_at(buf, offset)
            }
            fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
                (**self).write_at(buf, offset)
            }
            fn transfer(&self, batch: &mut [Transfer<'_>]) {
                (**self).transfer(batch);
            }
            fn sync(&self, data_only: bool) -> io::Result<()> {
                (**self).sync(data_only)
            }
            fn witness(&self) -> Witness {
                (**self).witness()
            }
            fn sync_before(&self, witness: &Witness, data_only: bool) -> io::Result<()> {
                (**self).sync_before(witness, data_only)
            }
            fn len(&self) -> io::Result<u64> {
                (**self).len()
            }
            fn set_len(&self, len: u64) -> io::Result<()> {
                (**self).set_len(len)
            }
            fn reserve(&self, offset: u64, len: u64, ahead: u64) -> io::Result<()> {
                (**self).reserve(offset, len, ahead)
            }
            fn give_back(&self) -> io::Result<()> {
                (**self).give_back()
            }
            fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
                (**self).punch(offset, len)
            }
            fn drop_cached(&self, offset: u64, len: u64) -> bool {
                (**self).drop_cached(offset, len)
            }
            fn late(&self) -> u32 {
                (**self).late()
            }
            fn can_write(&self) -> bool {
                (**self).can_write()
            }
            fn direct(&self) -> Option<DirectFile<'_>> {
                (**self).direct()
            }
            fn label(&self) -> String {
                (**self).label()
            }
        }
    };
}

forward!(Arc<D>);
forward!(Box<D>);
