//! Blocking I/O that gives up at a deadline.
//!
//! A thread blocked in `pread` on a sick device cannot be called back. So each thread that
//! does I/O with a deadline owns a *lane*: a small io_uring and one buffer. The kernel moves
//! data to and from the lane's buffer, never the caller's, and the wait has a time limit.
//!
//! States of a lane: *idle* (in its thread's slot) -> *waiting* (taken out, one request in the
//! kernel) -> *idle*, or -> *buried* (time is up: the thread walks away) -> dropped.
//!
//! Invariants
//! 1. An idle lane has no request in the kernel; a waiting lane has at most one.
//! 2. A buried lane is dropped only after its completion was seen; until then the kernel may
//!    write to its buffer, which therefore stays allocated.
//! 3. `Abandoned::count` is the number of buried lanes of that device. At [`ABANDONED_MAX`]
//!    further requests fail at once, so a dead device cannot eat memory: at most
//!    `ABANDONED_MAX` x (1 MiB + ring) per device, plus one request per thread in a race.
//!
//! Cost: one copy of the data, and one `io_uring_enter` in place of one `pread`. Each thread
//! that uses deadlines keeps a ring and a buffer of the longest transfer it made (at least
//! 64 KiB, at most 1 MiB), registered with the kernel when the limit on locked memory allows.

use crate::lock::Mutex;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};

use super::{ALIGNMENT, AlignedBuf, is_aligned};

/// Requests one device may leave unfinished in the kernel before new ones fail at once.
pub(super) const ABANDONED_MAX: u32 = 32;

/// The most bytes one request moves; longer transfers are split by the caller.
pub(super) const TRANSFER_MAX: usize = 1 << 20;

/// A lane's first buffer. It grows to the next power of two when a longer request comes.
const TRANSFER_FIRST: usize = 64 << 10;

// A buffer that doubles from the first length stops at the longest, and is aligned throughout.
const _: () = assert!(TRANSFER_FIRST.is_power_of_two() && TRANSFER_MAX.is_power_of_two());
const _: () = assert!(ALIGNMENT <= TRANSFER_FIRST && TRANSFER_FIRST <= TRANSFER_MAX);
// The kernel takes lengths and gives results of 31 bits.
const _: () = assert!(TRANSFER_MAX <= i32::MAX as usize && ABANDONED_MAX > 0);

/// How many requests of one device are still in the kernel after their deadline.
#[derive(Debug, Default)]
pub(super) struct Abandoned {
    count: AtomicU32,
}

impl Abandoned {
    /// The number now, after dropping what has finished since.
    pub(super) fn count(&self) -> u32 {
        if self.count.load(Ordering::Acquire) > 0 {
            reap();
        }
        self.count.load(Ordering::Acquire)
    }
}

/// One request: on which file, where, until when, and on whose account.
#[derive(Clone, Copy)]
pub(super) struct Call<'a> {
    pub(super) file: BorrowedFd<'a>,
    pub(super) offset: u64,
    pub(super) until: Instant,
    pub(super) abandoned: &'a Arc<Abandoned>,
}

/// What the request does.
pub(super) enum Operation<'a> {
    Read(&'a mut [u8]),
    Write(&'a [u8]),
    Sync { data_only: bool },
}

impl Operation<'_> {
    /// Bytes this one request moves.
    fn len(&self) -> usize {
        match self {
            Self::Read(buf) => buf.len().min(TRANSFER_MAX),
            Self::Write(buf) => buf.len().min(TRANSFER_MAX),
            Self::Sync { .. } => 0,
        }
    }
}

/// Does at most [`TRANSFER_MAX`] bytes of `operation` and returns how many it did.
/// `None`: this system has no io_uring for us; do it another way.
pub(super) fn perform(call: Call<'_>, operation: Operation<'_>) -> Option<io::Result<usize>> {
    if call.abandoned.count() >= ABANDONED_MAX {
        return Some(Err(expired()));
    }
    let mut lane = take_lane()?;
    let len = operation.len();
    lane.fit(len);
    if let Operation::Write(data) = &operation {
        lane.buf[..len].copy_from_slice(&data[..len]);
    }
    let entry = lane.entry(call, &operation);
    match lane.run(&entry, call.until) {
        Ended::Done(result) => {
            assert!(
                *result.as_ref().unwrap_or(&0) <= len,
                "the kernel moves no more than was asked for"
            );
            if let (Operation::Read(buf), Ok(n)) = (operation, &result) {
                buf[..*n].copy_from_slice(&lane.buf[..*n]);
            }
            put_back(lane);
            Some(result)
        }
        Ended::NotStarted(error) => Some(Err(error)),
        Ended::Expired => {
            bury(lane, Arc::clone(call.abandoned));
            Some(Err(expired()))
        }
    }
}

fn expired() -> io::Error {
    io::Error::new(
        io::ErrorKind::TimedOut,
        "the device did not answer within its deadline",
    )
}

/// A ring with at most one request, and the buffer that request uses. Dropped in field order:
/// the ring, which lets go of the buffer, before the buffer.
struct Lane {
    ring: IoUring,
    buf: AlignedBuf,
    /// Whether `buf` is registered with `ring` as buffer 0.
    fixed: bool,
}

/// How a wait ended.
enum Ended {
    /// The kernel is done with the request and the buffer.
    Done(io::Result<usize>),
    /// The kernel never got the request.
    NotStarted(io::Error),
    /// The kernel still has the request and the buffer.
    Expired,
}

thread_local! {
    static LANE: Cell<Option<Lane>> = const { Cell::new(None) };
}

/// This thread's lane, or a new one. `None` when there can be none.
fn take_lane() -> Option<Lane> {
    /// Set once the system has refused io_uring for good.
    static REFUSED: AtomicBool = AtomicBool::new(false);
    if let Some(lane) = LANE.try_with(Cell::take).ok()? {
        return Some(lane);
    }
    if REFUSED.load(Ordering::Relaxed) {
        return None;
    }
    match Lane::new() {
        Ok(lane) => Some(lane),
        Err(error) => {
            let code = error.raw_os_error();
            if matches!(code, Some(libc::ENOSYS | libc::EPERM | libc::EOPNOTSUPP)) {
                REFUSED.store(true, Ordering::Relaxed);
            }
            None
        }
    }
}

/// Puts an idle lane into its thread's slot, from which it was taken.
fn put_back(mut lane: Lane) {
    debug_assert!(lane.is_idle(), "only an idle lane is kept");
    let other = LANE.with(|slot| slot.replace(Some(lane)));
    debug_assert!(other.is_none(), "a thread has one lane");
}

/// Whether this thread can do I/O with a deadline.
pub(super) fn available() -> bool {
    match take_lane() {
        Some(lane) => {
            put_back(lane);
            true
        }
        None => false,
    }
}

impl Lane {
    fn new() -> io::Result<Self> {
        // Only this thread submits. Kernels before 6.0 refuse the flag. Deferred completion would
        // be faster still by a fraction of a microsecond, but then a buried lane could complete
        // only when the thread that buried it enters the kernel for it.
        let ring = IoUring::builder()
            .setup_single_issuer()
            .build(2)
            .or_else(|_| IoUring::new(2))?;
        if !ring.params().is_feature_ext_arg() {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        let mut lane = Self {
            ring,
            buf: AlignedBuf::new(TRANSFER_FIRST),
            fixed: false,
        };
        lane.register();
        Ok(lane)
    }

    /// Whether no request is on its way to the kernel and no answer lies unread.
    fn is_idle(&mut self) -> bool {
        self.ring.submission().is_empty() && self.ring.completion().is_empty()
    }

    /// Registers the buffer; without it each request maps the buffer's pages anew.
    fn register(&mut self) {
        debug_assert!(!self.fixed, "one buffer at a time");
        let iovec = libc::iovec {
            iov_base: self.buf.as_mut_ptr().cast(),
            iov_len: self.buf.len(),
        };
        // SAFETY: the memory stays allocated until it is unregistered or the ring is closed:
        // `fit` unregisters before it replaces the buffer, and the ring is dropped first.
        self.fixed = unsafe { self.ring.submitter().register_buffers(&[iovec]) }.is_ok();
    }

    /// Makes the buffer at least `len` long. The lane is idle, so the kernel is not using it.
    fn fit(&mut self, len: usize) {
        assert!(
            len <= TRANSFER_MAX,
            "longer transfers are split by the caller"
        );
        if len <= self.buf.len() {
            return;
        }
        if self.fixed {
            // Should this fail, the ring keeps its own hold on the pages until it is closed.
            let _ = self.ring.submitter().unregister_buffers();
            self.fixed = false;
        }
        self.buf = AlignedBuf::new(len.next_power_of_two());
        self.register();
        assert!(len <= self.buf.len() && self.buf.len() <= TRANSFER_MAX);
    }

    fn entry(&mut self, call: Call<'_>, operation: &Operation<'_>) -> squeue::Entry {
        let file = Fd(call.file.as_raw_fd());
        let len = u32::try_from(operation.len()).unwrap_or(u32::MAX);
        assert!(
            len as usize <= self.buf.len(),
            "the request fits the lane's buffer"
        );
        let at = self.buf.as_mut_ptr();
        debug_assert!(is_aligned(at.addr() as u64), "direct I/O wants it");
        match (operation, self.fixed) {
            (Operation::Read(_), true) => opcode::ReadFixed::new(file, at, len, 0)
                .offset(call.offset)
                .build(),
            (Operation::Read(_), false) => {
                opcode::Read::new(file, at, len).offset(call.offset).build()
            }
            (Operation::Write(_), true) => opcode::WriteFixed::new(file, at, len, 0)
                .offset(call.offset)
                .build(),
            (Operation::Write(_), false) => opcode::Write::new(file, at, len)
                .offset(call.offset)
                .build(),
            (Operation::Sync { data_only }, _) => {
                let flags = if *data_only {
                    FsyncFlags::DATASYNC
                } else {
                    FsyncFlags::empty()
                };
                opcode::Fsync::new(file).flags(flags).build()
            }
        }
    }

    /// Submits `entry` and waits for it, at most `until`.
    fn run(&mut self, entry: &squeue::Entry, until: Instant) -> Ended {
        debug_assert!(self.is_idle(), "one request at a time");
        // SAFETY: the entry points into `self.buf`, which outlives the request: the lane goes
        // back to its slot or is dropped only when the request is done, else it is buried.
        if unsafe { self.ring.submission().push(entry) }.is_err() {
            return Ended::NotStarted(io::ErrorKind::ResourceBusy.into());
        }
        loop {
            let left = Timespec::from(until.saturating_duration_since(Instant::now()));
            let args = SubmitArgs::new().timespec(&left);
            let entered = self.ring.submitter().submit_with_args(1, &args);
            if let Some(completion) = self.ring.completion().next() {
                return Ended::Done(outcome(completion.result()));
            }
            let pending = !self.ring.submission().is_empty();
            let retry = match &entered {
                Ok(_) => true,
                Err(error) => error.raw_os_error() == Some(libc::EINTR),
            };
            match (pending, retry && Instant::now() < until) {
                (_, true) => {}
                (false, false) => return Ended::Expired,
                (true, false) => {
                    return Ended::NotStarted(entered.err().unwrap_or_else(expired));
                }
            }
        }
    }
}

/// A completion's result: bytes, or a negated error number.
fn outcome(result: i32) -> io::Result<usize> {
    debug_assert!(result >= -4095, "a negative result is an error number");
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(result.wrapping_neg()))
}

/// A lane whose request outlived its deadline, and the count it is part of.
struct Buried {
    lane: Lane,
    owner: Arc<Abandoned>,
}

static GRAVEYARD: Mutex<Vec<Buried>> = Mutex::new(Vec::new());

fn bury(mut lane: Lane, owner: Arc<Abandoned>) {
    let submitted = lane.ring.submission().is_empty();
    assert!(submitted, "the kernel has the request");
    owner.count.fetch_add(1, Ordering::AcqRel);
    GRAVEYARD.lock().push(Buried { lane, owner });
}

/// Drops every buried lane the kernel has finished with.
fn reap() {
    let mut graves = GRAVEYARD.lock();
    graves.retain_mut(|grave| {
        let finished = grave.lane.ring.completion().next().is_some();
        if finished {
            debug_assert!(grave.lane.is_idle(), "its one request is over");
            let before = grave.owner.count.fetch_sub(1, Ordering::AcqRel);
            assert!(before > 0, "a buried lane is counted");
        }
        !finished
    });
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;
    use std::time::Duration;

    use super::*;

    fn call<'a>(file: BorrowedFd<'a>, ms: u64, abandoned: &'a Arc<Abandoned>) -> Call<'a> {
        let until = Instant::now() + Duration::from_millis(ms);
        Call {
            file,
            offset: u64::MAX,
            until,
            abandoned,
        }
    }

    /// A pipe without data stands for a device that does not answer.
    #[test]
    fn a_silent_device_times_out_and_is_reaped_when_it_answers() {
        if !available() {
            return;
        }
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let abandoned = Arc::new(Abandoned::default());
        let mut buf = [0u8; 8];
        for _ in 0..3 {
            let result = perform(
                call(reader.as_fd(), 5, &abandoned),
                Operation::Read(&mut buf),
            );
            assert_eq!(result.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        assert_eq!(abandoned.count(), 3);
        assert_eq!(buf, [0; 8], "the caller's buffer is untouched");
        // The late answers go to the buried lanes, 8 bytes each; then the thread is well again.
        writer.write_all(&[7; 24]).unwrap();
        while abandoned.count() > 0 {
            std::thread::yield_now();
        }
        assert_eq!(buf, [0; 8]);
        writer.write_all(&[9; 8]).unwrap();
        let result = perform(
            call(reader.as_fd(), 60_000, &abandoned),
            Operation::Read(&mut buf),
        );
        assert_eq!(result.unwrap().unwrap(), 8);
        assert_eq!(buf, [9; 8]);
        drop(writer);
        assert_eq!(reader.read(&mut buf).unwrap(), 0);
    }

    #[test]
    fn too_many_abandoned_requests_fail_at_once() {
        if !available() {
            return;
        }
        let (reader, writer) = std::io::pipe().unwrap();
        let abandoned = Arc::new(Abandoned::default());
        let mut buf = [0u8; 1];
        for _ in 0..=ABANDONED_MAX {
            let result = perform(
                call(reader.as_fd(), 1, &abandoned),
                Operation::Read(&mut buf),
            );
            assert_eq!(result.unwrap().unwrap_err().kind(), io::ErrorKind::TimedOut);
        }
        assert_eq!(
            abandoned.count(),
            ABANDONED_MAX,
            "the last one never reached the kernel"
        );
        drop(writer);
        while abandoned.count() > 0 {
            std::thread::yield_now();
        }
    }

    #[test]
    fn errors_come_through() {
        if !available() {
            return;
        }
        let (_reader, writer) = std::io::pipe().unwrap();
        let abandoned = Arc::new(Abandoned::default());
        let mut buf = [0u8; 1];
        let result = perform(
            call(writer.as_fd(), 1000, &abandoned),
            Operation::Read(&mut buf),
        );
        assert_eq!(
            result.unwrap().unwrap_err().raw_os_error(),
            Some(libc::EBADF)
        );
        let sync = Operation::Sync { data_only: true };
        let result = perform(call(writer.as_fd(), 1000, &abandoned), sync);
        assert_eq!(
            result.unwrap().unwrap_err().raw_os_error(),
            Some(libc::EINVAL)
        );
    }
}
