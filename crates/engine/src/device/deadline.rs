//! Blocking I/O that gives up at a deadline.
//!
//! A thread blocked in `pread` on a sick device cannot be called back. So each thread that
//! does I/O with a deadline owns a *lane*: a small io_uring and one buffer. The kernel moves
//! data to and from the lane's buffer, never the caller's, and the wait has a time limit.
//!
//! States of a lane: *idle* (in its thread's slot) -> *waiting* (taken out, the requests of one
//! call in the kernel) -> *idle*, or -> *buried* (time is up: the thread walks away) -> dropped.
//!
//! # Invariants
//! 1. An idle lane has no request in the kernel; a waiting lane has at most [`BATCH_MAX`], each
//!    with a part of the buffer of its own.
//! 2. A buried lane is dropped only after all its completions were seen; until then the kernel
//!    may write to its buffer, which therefore stays allocated.
//! 3. `Abandoned::count` is the number of buried lanes of that device, and of late requests on
//!    rings of callers (`direct.rs`). At [`ABANDONED_MAX`]
//!    further requests fail at once, so a dead device cannot eat memory: at most
//!    `ABANDONED_MAX` x (2 MiB + ring) per device, plus one request per thread in a race.
//!
//! Cost: one copy of the data, and one `io_uring_enter` in place of one `pread`. Each thread
//! that uses deadlines keeps a ring and a buffer of the longest transfer it made (at least 64 KiB,
//! at most 1 MiB), registered with the kernel when the limit on locked memory allows. A buffer
//! above 64 KiB is in a huge page of its own: it takes 2 MiB, and counts as that for the limit.

use crate::lock::Mutex;
use std::cell::Cell;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use io_uring::types::{Fd, FsyncFlags, SubmitArgs, Timespec};
use io_uring::{IoUring, opcode, squeue};

use super::{ALIGNMENT, AlignedBuf, Data, Transfer, expired, is_aligned};

/// Requests one device may leave unfinished in the kernel before new ones fail at once.
pub(super) const ABANDONED_MAX: u32 = 32;

/// The most bytes one request moves; longer transfers are split by the caller.
pub(super) const TRANSFER_MAX: usize = 1 << 20;

/// Requests of one batch at most; longer batches are split by the caller.
pub(super) const BATCH_MAX: usize = 128;

/// A lane's first buffer. When a longer request comes it grows to [`TRANSFER_MAX`], in a huge page,
/// which takes no more memory for that than for less.
pub(super) const TRANSFER_FIRST: usize = 64 << 10;

// A buffer of either length is aligned throughout.
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
    /// One more is late.
    pub(super) fn add(&self) {
        self.count.fetch_add(1, Ordering::AcqRel);
    }

    /// A late one was ended by the kernel.
    pub(super) fn remove(&self) {
        let before = self.count.fetch_sub(1, Ordering::AcqRel);
        assert!(before > 0, "invariant 3: what is late is counted");
    }

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
    let mut result = [None];
    match lane.run(&[entry], call.until, &mut result) {
        Ended::Done => {
            let [result] = result;
            let result = result.unwrap_or_else(|| Err(expired()));
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
        Ended::Expired { in_kernel } => {
            bury(lane, in_kernel, Arc::clone(call.abandoned));
            Some(Err(expired()))
        }
    }
}

/// Does all of `batch` at once: [`BATCH_MAX`] transfers and [`TRANSFER_MAX`] bytes at most, aligned
/// for `call.file`, whose offset is not used. Those that lie one behind the other are one request.
/// Each says how much of it was done: nothing, when a request of several failed. Those that were
/// not when time was up have [`expired`].
/// `None`: this system has no io_uring for us; nothing was done.
pub(super) fn perform_all(call: Call<'_>, batch: &mut [Transfer<'_>]) -> Option<()> {
    assert!(batch.len() <= BATCH_MAX, "longer batches are split");
    if call.abandoned.count() >= ABANDONED_MAX {
        batch.iter_mut().for_each(|one| one.result = Err(expired()));
        return Some(());
    }
    let mut lane = take_lane()?;
    lane.fit(batch.iter().map(Transfer::len).sum());
    let mut entries = Vec::with_capacity(batch.len());
    let mut at = 0;
    for adjacent in batch.chunk_by(Transfer::is_followed_by) {
        let from = at;
        for one in adjacent {
            if let Data::Write(bytes) = &one.data {
                lane.buf[at..at + bytes.len()].copy_from_slice(bytes);
            }
            at += one.len();
        }
        let reads = matches!(adjacent[0].data, Data::Read(_));
        let entry = lane.transfer(call.file, adjacent[0].offset, from..at, reads);
        entries.push(entry.user_data(entries.len() as u64));
    }
    let mut results: Vec<_> = entries.iter().map(|_| None).collect();
    let ended = lane.run(&entries, call.until, &mut results);
    let mut at = 0;
    for (adjacent, result) in batch.chunk_by_mut(Transfer::is_followed_by).zip(results) {
        let len: usize = adjacent.iter().map(Transfer::len).sum();
        let result = result.unwrap_or_else(|| Err(ended.error()));
        let moved = *result.as_ref().unwrap_or(&0);
        assert!(moved <= len, "the kernel moves no more than was asked for");
        share(adjacent, result, &lane.buf[at..at + moved]);
        at += len;
    }
    match ended {
        Ended::Done => put_back(lane),
        Ended::NotStarted(_) => {}
        Ended::Expired { in_kernel } => bury(lane, in_kernel, Arc::clone(call.abandoned)),
    }
    Some(())
}

/// Gives each of the transfers that were one request its share of what came of it: `moved`.
fn share(adjacent: &mut [Transfer<'_>], result: io::Result<usize>, moved: &[u8]) {
    let alone = adjacent.len() == 1;
    let late = result
        .as_ref()
        .is_err_and(|e| e.kind() == io::ErrorKind::TimedOut);
    let mut rest = moved;
    for one in adjacent.iter_mut() {
        let (mine, others) = rest.split_at(one.len().min(rest.len()));
        rest = others;
        if let Data::Read(buf) = &mut one.data {
            buf[..mine.len()].copy_from_slice(mine);
        }
        one.result = if late { Err(expired()) } else { Ok(mine.len()) };
    }
    if let (true, Err(error)) = (alone, result) {
        adjacent[0].result = Err(error);
    }
}

/// A ring for the requests of one call, and the buffer that they use. Dropped in field order:
/// the ring, which lets go of the buffer, before the buffer.
struct Lane {
    ring: IoUring,
    buf: AlignedBuf,
    /// Whether `buf` is registered with `ring` as buffer 0.
    fixed: bool,
}

/// How a wait ended.
enum Ended {
    /// The kernel is done with all requests and the buffer.
    Done,
    /// The kernel has nothing: it never got a request, or has ended those that it got.
    NotStarted(io::Error),
    /// The kernel still has so many requests, and the buffer.
    Expired { in_kernel: usize },
}

impl Ended {
    /// That of a request without a result.
    fn error(&self) -> io::Error {
        match self {
            Self::NotStarted(error) => match error.raw_os_error() {
                Some(code) => io::Error::from_raw_os_error(code),
                None => error.kind().into(),
            },
            Self::Done | Self::Expired { .. } => expired(),
        }
    }
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
    assert!(lane.is_idle(), "invariant 1: only an idle lane is kept");
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
        let entries = BATCH_MAX as u32;
        let ring = IoUring::builder()
            .setup_single_issuer()
            .build(entries)
            .or_else(|_| IoUring::new(entries))?;
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
        self.buf = AlignedBuf::in_huge_page(TRANSFER_MAX);
        self.register();
        assert!(len <= self.buf.len() && self.buf.len() <= TRANSFER_MAX);
    }

    fn entry(&mut self, call: Call<'_>, operation: &Operation<'_>) -> squeue::Entry {
        let flags = match operation {
            Operation::Read(_) | Operation::Write(_) => {
                let reads = matches!(operation, Operation::Read(_));
                return self.transfer(call.file, call.offset, 0..operation.len(), reads);
            }
            Operation::Sync { data_only: true } => FsyncFlags::DATASYNC,
            Operation::Sync { data_only: false } => FsyncFlags::empty(),
        };
        let file = Fd(call.file.as_raw_fd());
        opcode::Fsync::new(file).flags(flags).build()
    }

    /// A read into, or a write of, a part of the buffer.
    fn transfer(
        &mut self,
        file: BorrowedFd<'_>,
        offset: u64,
        part: Range<usize>,
        reads: bool,
    ) -> squeue::Entry {
        let file = Fd(file.as_raw_fd());
        assert!(
            part.end <= self.buf.len(),
            "the request fits the lane's buffer"
        );
        let len = u32::try_from(part.len()).unwrap_or(u32::MAX);
        let at = self.buf[part].as_mut_ptr();
        debug_assert!(is_aligned(at.addr() as u64), "direct I/O wants it");
        match (reads, self.fixed) {
            (true, true) => opcode::ReadFixed::new(file, at, len, 0)
                .offset(offset)
                .build(),
            (true, false) => opcode::Read::new(file, at, len).offset(offset).build(),
            (false, true) => opcode::WriteFixed::new(file, at, len, 0)
                .offset(offset)
                .build(),
            (false, false) => opcode::Write::new(file, at, len).offset(offset).build(),
        }
    }

    /// Submits `entries`, numbered from 0 by their user data, and waits for them, at most `until`.
    /// What has ended by then has a result.
    fn run(
        &mut self,
        entries: &[squeue::Entry],
        until: Instant,
        results: &mut [Option<io::Result<usize>>],
    ) -> Ended {
        debug_assert!(self.is_idle(), "invariant 1: the requests of one call");
        assert_eq!(entries.len(), results.len());
        // SAFETY: the entries point into `self.buf`, which outlives the requests: the lane goes
        // back to its slot or is dropped only when they are done, else it is buried.
        if unsafe { self.ring.submission().push_multiple(entries) }.is_err() {
            return Ended::NotStarted(io::ErrorKind::ResourceBusy.into());
        }
        let mut left = entries.len();
        loop {
            let time = Timespec::from(until.saturating_duration_since(Instant::now()));
            let args = SubmitArgs::new().timespec(&time);
            let entered = self.ring.submitter().submit_with_args(left, &args);
            for completion in self.ring.completion() {
                let result = &mut results[completion.user_data() as usize];
                assert!(result.is_none(), "a request completes once");
                *result = Some(outcome(completion.result()));
                left -= 1;
            }
            if left == 0 {
                return Ended::Done;
            }
            let code = entered.as_ref().err().map(io::Error::raw_os_error);
            let retry = matches!(
                code,
                None | Some(Some(libc::EINTR | libc::EAGAIN | libc::EBUSY))
            );
            if retry && Instant::now() < until {
                // The kernel lacks memory just now, which says nothing of the device.
                if matches!(code, Some(Some(libc::EAGAIN | libc::EBUSY))) {
                    std::thread::sleep(Duration::from_millis(1));
                }
                continue;
            }
            // What the kernel has not taken it never will: nobody enters this ring again.
            return match left - self.ring.submission().len() {
                0 => Ended::NotStarted(entered.err().unwrap_or_else(expired)),
                in_kernel => Ended::Expired { in_kernel },
            };
        }
    }
}

/// A completion's result: bytes, or a negated error number.
fn outcome(result: i32) -> io::Result<usize> {
    debug_assert!(result >= -4095, "a negative result is an error number");
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(result.wrapping_neg()))
}

/// A lane with requests that outlived their deadline, and the count it is part of.
struct Buried {
    lane: Lane,
    in_kernel: usize,
    owner: Arc<Abandoned>,
}

static GRAVEYARD: Mutex<Vec<Buried>> = Mutex::new(Vec::new());

fn bury(lane: Lane, in_kernel: usize, owner: Arc<Abandoned>) {
    assert!(in_kernel > 0, "invariant 2: the kernel has a request");
    owner.add();
    GRAVEYARD.lock().push(Buried {
        lane,
        in_kernel,
        owner,
    });
}

/// Drops every buried lane the kernel has finished with.
fn reap() {
    let mut graves = GRAVEYARD.lock();
    graves.retain_mut(|grave| {
        grave.in_kernel -= grave.lane.ring.completion().count();
        let finished = grave.in_kernel == 0;
        if finished {
            grave.owner.remove();
        }
        !finished
    });
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::fd::AsFd;

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

    /// Of a batch those that were answered in time are done, and late answers harm nobody.
    #[test]
    fn a_batch_that_is_answered_in_part_gives_that_part() {
        if !available() {
            return;
        }
        let (reader, mut writer) = std::io::pipe().unwrap();
        let abandoned = Arc::new(Abandoned::default());
        let (mut first, mut second) = ([0u8; ALIGNMENT], [0u8; ALIGNMENT]);
        writer.write_all(&[5; ALIGNMENT]).unwrap();
        let mut batch = [
            Transfer::read(u64::MAX, &mut first),
            Transfer::read(u64::MAX, &mut second),
        ];
        perform_all(call(reader.as_fd(), 50, &abandoned), &mut batch).unwrap();
        let done = batch
            .iter()
            .filter(|one| matches!(one.result, Ok(ALIGNMENT)));
        assert_eq!(done.count(), 1);
        let late = |one: &&Transfer<'_>| {
            let error = one.result.as_ref().err();
            error.is_some_and(|error| error.kind() == io::ErrorKind::TimedOut)
        };
        assert_eq!(batch.iter().filter(late).count(), 1);
        assert_eq!(
            abandoned.count(),
            1,
            "one lane, whatever it has in the kernel"
        );
        writer.write_all(&[7; ALIGNMENT]).unwrap();
        while abandoned.count() > 0 {
            std::thread::yield_now();
        }
        let both = [first[0], second[0]];
        assert!(both == [5, 0] || both == [0, 5], "{both:?}");
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

    /// What the kernel does not take says nothing of the device.
    #[test]
    fn requests_that_were_never_taken_are_not_late() {
        let Some(lane) = take_lane() else { return };
        let nothing = std::fs::File::open("/dev/null").unwrap();
        // SAFETY: both descriptors are open; the ring's is closed with the lane.
        let made = unsafe { libc::dup2(nothing.as_raw_fd(), lane.ring.as_raw_fd()) };
        assert!(made >= 0);
        put_back(lane);
        let abandoned = Arc::new(Abandoned::default());
        let (mut first, mut second) = ([0u8; ALIGNMENT], [0u8; ALIGNMENT]);
        let mut batch = [
            Transfer::read(0, &mut first),
            Transfer::read(1 << 20, &mut second),
        ];
        perform_all(call(nothing.as_fd(), 60_000, &abandoned), &mut batch).unwrap();
        for one in batch {
            let error = one.result.unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP), "{error}");
        }
        assert_eq!(abandoned.count(), 0);
    }
}
