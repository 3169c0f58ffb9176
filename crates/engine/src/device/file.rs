//! Regular files and block devices.
//!
//! One file, one descriptor, and a second from the first request on that needs it. Requests whose
//! offset and length are multiples of 4096 go past the page cache (`O_DIRECT`); all others, and
//! everything when direct I/O is off or the file system refuses it, are buffered. The kernel keeps
//! the two coherent (a direct read writes dirty pages back first, a direct write drops cached
//! pages), as long as no buffered and direct requests for the same 4096 bytes run at the same time.
//!
//! States: *direct* (the descriptor has `O_DIRECT`, another is opened for buffered requests) ->
//! *buffered* (it has not, and serves everything), when the file system refuses direct I/O, or
//! when there is no descriptor left for the other.
//!
//! # Invariants
//! 1. What is buffered by its alignment never goes to a descriptor that has `O_DIRECT`; where
//!    another device of the same description has set that since, it is taken away again.
//!
//! With a deadline every read, write and sync is bounded in time; see the `deadline` module.
//! Where the system has no io_uring (old kernel, container policy) requests fall back to plain
//! calls that block for as long as the device does; [`FileDevice::deadline_enforced`] tells.
//! `len`, `set_len`, `reserve` and `punch` are never bounded.

use std::cell::Cell;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use super::deadline::{self, Abandoned, BATCH_MAX, Call, Operation, TRANSFER_MAX};
use super::{ALIGNMENT, AlignedBuf, Data, Device, DirectFile, Transfer, Witness, is_aligned};

// Lengths and offsets of files fit a `usize`, and the number of BLKGETSIZE64 is the right one.
const _: () = assert!(usize::BITS == 64);
const _: () = assert!(TRANSFER_MAX.is_multiple_of(ALIGNMENT));

/// The deadline of a batch without one.
const NEVER: Duration = Duration::from_secs(u32::MAX as u64);

/// How to open a [`FileDevice`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// Past the page cache where alignment allows. Default true.
    pub direct: bool,
    /// Writes fail with `EROFS`. Default false.
    pub read_only: bool,
    /// Create the file when it is missing (mode 0600). Default false.
    pub create: bool,
    /// Create the file and fail when it exists (mode 0600). Default false.
    pub create_new: bool,
    /// The longest a read, write or sync may take. Default none.
    pub deadline: Option<Duration>,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            direct: true,
            read_only: false,
            create: false,
            create_new: false,
            deadline: None,
        }
    }
}

/// A regular file or block device.
///
/// ```
/// use thermocline::device::{Device, FileDevice, FileOptions};
///
/// # let dir = tempfile::tempdir()?;
/// let options = FileOptions { create: true, ..FileOptions::default() };
/// let device = FileDevice::open(dir.path().join("file"), options)?;
/// device.write_at(&[7; 100], 0)?;
/// device.sync(true)?;
/// assert_eq!(device.len()?, 100);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct FileDevice {
    /// Whoever opened it may hold it too: descriptors are scarce where many files are open.
    file: Arc<File>,
    /// Whether `file` has `O_DIRECT`; never again once it has not.
    direct: AtomicBool,
    /// For requests that are not aligned, where `file` is direct: opened at the first of them;
    /// `None` when the system refused.
    other: OnceLock<Option<File>>,
    options: FileOptions,
    block: bool,
    name: String,
    abandoned: Arc<Abandoned>,
}

impl FileDevice {
    /// Opens `path`.
    ///
    /// # Errors
    /// Those of `open`; `InvalidInput` when it is neither a regular file nor a block device.
    pub fn open(path: impl AsRef<Path>, options: FileOptions) -> io::Result<Self> {
        let path = path.as_ref();
        let file = OpenOptions::new()
            .read(true)
            .write(!options.read_only)
            .create(options.create && !options.read_only)
            .create_new(options.create_new && !options.read_only)
            .mode(0o600)
            .open(path)?;
        Self::from_file(file, path.display().to_string(), options)
    }

    /// Takes over an open file; `name` is what [`Device::label`] shows.
    ///
    /// The second descriptor is a reopening of this one through `/proc/self/fd`, so it is the
    /// same file even when it was opened relative to a directory, renamed or unlinked. When
    /// that fails, all I/O is buffered. `O_APPEND` on the description is cleared (it would
    /// override write offsets), and `O_DIRECT` is set where `options.direct` asks for it, cleared
    /// where not: whoever shares `file` reads and writes by that. `options.create*` mean nothing
    /// here.
    ///
    /// # Errors
    /// Those of `fstat` and `fcntl`; `InvalidInput` when `file` is neither a regular file nor a
    /// block device.
    pub fn from_file(
        file: impl Into<Arc<File>>,
        name: impl Into<String>,
        options: FileOptions,
    ) -> io::Result<Self> {
        let file = file.into();
        let kind = file.metadata()?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            let message = "neither a regular file nor a block device";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let flags = status_flags(&file)?;
        let plain = flags & !(libc::O_APPEND | libc::O_DIRECT);
        let direct = options.direct && set_status_flags(&file, plain | libc::O_DIRECT).is_ok();
        if !direct && plain != flags {
            set_status_flags(&file, plain)?;
        }
        let set = status_flags(&file)? & (libc::O_APPEND | libc::O_DIRECT);
        assert_eq!(set, if direct { libc::O_DIRECT } else { 0 }, "invariant 1");
        let read_only = options.read_only || flags & libc::O_ACCMODE == libc::O_RDONLY;
        Ok(Self {
            file,
            direct: AtomicBool::new(direct),
            other: OnceLock::new(),
            options: FileOptions {
                read_only,
                ..options
            },
            block: kind.is_block_device(),
            name: name.into(),
            abandoned: Arc::default(),
        })
    }

    /// Whether aligned requests go past the page cache.
    #[must_use]
    pub fn is_direct(&self) -> bool {
        self.direct.load(Ordering::Acquire)
    }

    /// Whether a deadline was asked for and this thread can keep it.
    #[must_use]
    pub fn deadline_enforced(&self) -> bool {
        self.options.deadline.is_some() && deadline::available()
    }

    /// The deadline asked for.
    #[must_use]
    pub fn deadline(&self) -> Option<Duration> {
        self.options.deadline
    }

    /// Requests that passed their deadline and are still in the kernel. While this is not 0, a
    /// write reported as timed out can still reach the device.
    #[must_use]
    pub fn abandoned(&self) -> u32 {
        self.abandoned.count()
    }

    /// The descriptor for buffered requests.
    fn buffered(&self) -> &File {
        if !self.is_direct() {
            return &self.file;
        }
        match self.other.get_or_init(|| self.reopen_buffered().ok()) {
            Some(other) => other,
            None => {
                self.give_up_direct();
                &self.file
            }
        }
    }

    fn reopen_buffered(&self) -> io::Result<File> {
        let keep = libc::O_SYNC | libc::O_DSYNC;
        let flags = status_flags(&self.file)? & keep;
        let file = OpenOptions::new()
            .read(true)
            .write(!self.options.read_only)
            .custom_flags(flags)
            .open(format!("/proc/self/fd/{}", self.file.as_raw_fd()))?;
        let (ours, theirs) = (self.file.metadata()?, file.metadata()?);
        debug_assert_eq!((ours.dev(), ours.ino()), (theirs.dev(), theirs.ino()));
        Ok(file)
    }

    /// Whether what a buffered request used has `O_DIRECT`: invariant 1.
    fn is_made_direct(&self, used: &File) -> bool {
        let shared = std::ptr::eq(used, &raw const *self.file);
        shared && status_flags(used).is_ok_and(|flags| flags & libc::O_DIRECT != 0)
    }

    /// From now on everything is buffered. What is under way ends as it began.
    fn give_up_direct(&self) {
        let plain = status_flags(&self.file).map(|flags| flags & !libc::O_DIRECT);
        // Taking the flag away asks nobody. Should it fail, requests say so one by one.
        let cleared = plain.and_then(|plain| set_status_flags(&self.file, plain));
        debug_assert!(cleared.is_ok(), "invariant 1");
        self.direct.store(false, Ordering::Release);
    }

    /// The descriptor for a request of `len` bytes at `offset`, and whether it is direct.
    fn route(&self, offset: u64, len: usize) -> (&File, bool) {
        // An offset no file can have is no reason to give up direct I/O for good (see `settle`).
        let aligned = is_aligned(offset | len as u64) && i64::try_from(offset).is_ok();
        if aligned && self.is_direct() {
            return (&self.file, true);
        }
        (self.buffered(), false)
    }

    /// Runs `attempt`, once more buffered when the file system refuses direct I/O at this late
    /// point, and again whenever a signal interrupts it.
    fn settle(
        &self,
        offset: u64,
        len: usize,
        mut attempt: impl FnMut(&File, bool) -> io::Result<usize>,
    ) -> io::Result<usize> {
        loop {
            let (file, direct) = self.route(offset, len);
            match attempt(file, direct) {
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e)
                    if e.raw_os_error() == Some(libc::EINVAL)
                        && (direct || self.is_made_direct(file)) =>
                {
                    self.give_up_direct();
                    debug_assert!(!self.is_direct(), "the next attempt is another one");
                }
                result => return result,
            }
        }
    }

    /// One read: what one system call gives.
    fn read_some(&self, buf: &mut [u8], offset: u64, until: Option<Instant>) -> io::Result<usize> {
        self.settle(offset, buf.len(), |file, direct| {
            if let Some(result) = self.bounded(file, offset, until, Operation::Read(buf)) {
                return result;
            }
            if !direct || is_aligned(buf.as_ptr().addr() as u64) {
                return file.read_at(buf, offset);
            }
            with_bounce(buf.len(), |bounce| {
                let n = file.read_at(bounce, offset)?;
                buf[..n].copy_from_slice(&bounce[..n]);
                Ok(n)
            })
        })
    }

    /// One write: what one system call takes.
    fn write_some(&self, data: &[u8], offset: u64, until: Option<Instant>) -> io::Result<usize> {
        self.settle(offset, data.len(), |file, direct| {
            if let Some(result) = self.bounded(file, offset, until, Operation::Write(data)) {
                return result;
            }
            if !direct || is_aligned(data.as_ptr().addr() as u64) {
                return file.write_at(data, offset);
            }
            with_bounce(data.len(), |bounce| {
                bounce.copy_from_slice(&data[..bounce.len()]);
                file.write_at(bounce, offset)
            })
        })
    }

    /// The request with a deadline; `None` when there is none to keep.
    fn bounded(
        &self,
        file: &File,
        offset: u64,
        until: Option<Instant>,
        operation: Operation<'_>,
    ) -> Option<io::Result<usize>> {
        let call = Call {
            file: file.as_fd(),
            offset,
            until: until?,
            abandoned: &self.abandoned,
        };
        deadline::perform(call, operation)
    }

    /// When a request that starts now must be done.
    fn until(&self) -> Option<Instant> {
        self.options
            .deadline
            .map(|deadline| Instant::now() + deadline)
    }

    /// Has transfers that fit one lane under way at once; false when they are to be done singly.
    fn transfer_together(&self, group: &mut [Transfer<'_>]) -> bool {
        let fits = |one: &Transfer<'_>| {
            let writes = matches!(one.data, Data::Write(_));
            let aligned = is_aligned(one.offset | one.len() as u64) && !one.is_empty();
            aligned && i64::try_from(one.offset).is_ok() && !(writes && self.options.read_only)
        };
        if group.len() < 2 || !group.iter().all(fits) {
            return false;
        }
        let (file, _) = self.route(group[0].offset, group[0].len());
        let call = Call {
            file: file.as_fd(),
            offset: 0,
            until: self.until().unwrap_or_else(|| Instant::now() + NEVER),
            abandoned: &self.abandoned,
        };
        deadline::perform_all(call, group).is_some()
    }

    fn sync_through(&self, file: &File, data_only: bool) -> io::Result<()> {
        let operation = Operation::Sync { data_only };
        match self.bounded(file, 0, self.until(), operation) {
            Some(result) => result.map(|_| ()),
            None if data_only => file.sync_data(),
            None => file.sync_all(),
        }
    }

    fn check_writable(&self) -> io::Result<()> {
        if self.options.read_only {
            return Err(io::Error::from_raw_os_error(libc::EROFS));
        }
        Ok(())
    }

    /// Writes zeros where the file system cannot deallocate.
    fn write_zeros(&self, offset: u64, len: u64) -> io::Result<()> {
        debug_assert!(!self.options.read_only && len > 0);
        let end = offset.saturating_add(len).min(self.len()?);
        let zeros = AlignedBuf::new(TRANSFER_MAX.min(usize::try_from(len).unwrap_or(usize::MAX)));
        let mut at = offset;
        while at < end {
            let part = zeros
                .len()
                .min(usize::try_from(end - at).unwrap_or(usize::MAX));
            debug_assert!(part > 0, "every write brings the end nearer");
            self.write_at(&zeros[..part], at)?;
            at += part as u64;
        }
        debug_assert!(at == end.max(offset), "nothing past the end");
        Ok(())
    }
}

impl Device for FileDevice {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let until = self.until();
        let mut done = 0;
        while done < buf.len() {
            let n = self.read_some(&mut buf[done..], offset + done as u64, until)?;
            assert!(n <= buf.len() - done, "read more than asked for");
            if n == 0 {
                break;
            }
            done += n;
        }
        debug_assert!(done <= buf.len());
        Ok(done)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.check_writable()?;
        let until = self.until();
        let mut done = 0;
        while done < buf.len() {
            let n = self.write_some(&buf[done..], offset + done as u64, until)?;
            assert!(n <= buf.len() - done, "wrote more than asked for");
            if n == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            done += n;
        }
        debug_assert_eq!(done, buf.len(), "never short on success");
        Ok(())
    }

    fn transfer(&self, batch: &mut [Transfer<'_>]) {
        let mut rest = batch;
        while !rest.is_empty() {
            let mut bytes = 0;
            let fits = |one: &&Transfer<'_>| {
                bytes += one.len();
                bytes <= TRANSFER_MAX
            };
            let count = rest.iter().take(BATCH_MAX).take_while(fits).count();
            let (group, later) = rest.split_at_mut(count.max(1));
            let together = self.transfer_together(group);
            for one in group {
                if !together || is_to_be_repeated(one) {
                    one.perform(self);
                }
            }
            rest = later;
        }
    }

    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.sync_through(&self.file, data_only)
    }

    fn witness(&self) -> Witness {
        Witness::of(&self.file)
    }

    fn sync_before(&self, witness: &Witness, data_only: bool) -> io::Result<()> {
        self.sync_through(witness.file().unwrap_or(&self.file), data_only)
    }

    fn len(&self) -> io::Result<u64> {
        if self.block {
            block_len(&self.file)
        } else {
            Ok(self.file.metadata()?.len())
        }
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.check_writable()?;
        if self.block {
            return Err(io::ErrorKind::Unsupported.into());
        }
        self.file.set_len(len)
    }

    fn reserve(&self, offset: u64, len: u64, ahead: u64) -> io::Result<()> {
        self.check_writable()?;
        if self.block {
            return Err(io::ErrorKind::Unsupported.into());
        }
        if ahead > 0 {
            // Only where the pieces of a file are on the disk depends on it.
            let keep = libc::FALLOC_FL_KEEP_SIZE;
            let _ = allocate(&self.file, keep, offset, len.saturating_add(ahead));
        }
        allocate(&self.file, 0, offset, len)
    }

    fn give_back(&self) -> io::Result<()> {
        self.check_writable()?;
        // A cut to the length there is frees what lies behind it.
        self.set_len(self.len()?)
    }

    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check_writable()?;
        if len == 0 {
            return Ok(());
        }
        match punch_hole(&self.file, offset, len) {
            Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::EINVAL)) => {
                self.write_zeros(offset, len)
            }
            result => result,
        }
    }

    fn drop_cached(&self, offset: u64, len: u64) -> bool {
        if self.is_direct() {
            return false;
        }
        let number = |value: u64| libc::off_t::try_from(value).unwrap_or(libc::off_t::MAX);
        let fd = self.file.as_raw_fd();
        // Advice: what the system does with it changes no byte.
        // SAFETY: the descriptor is open; the other arguments are plain numbers.
        unsafe {
            libc::posix_fadvise(fd, number(offset), number(len), libc::POSIX_FADV_DONTNEED);
        }
        true
    }

    fn can_write(&self) -> bool {
        !self.options.read_only
    }

    fn direct(&self) -> Option<DirectFile<'_>> {
        self.is_direct().then(|| DirectFile {
            file: self.file.as_fd(),
            deadline: self.options.deadline,
            abandoned: &self.abandoned,
            meters: None,
        })
    }

    fn late(&self) -> u32 {
        self.abandoned.count()
    }

    fn label(&self) -> String {
        let kind = if self.block { "block device" } else { "file" };
        format!("{kind} {}", self.name)
    }
}

/// Whether a transfer that was under way with others did less than it would by itself: it ended
/// short, was interrupted, or its file system refuses direct I/O.
fn is_to_be_repeated(one: &Transfer<'_>) -> bool {
    match &one.result {
        Ok(moved) => *moved < one.len(),
        Err(error) => matches!(
            error.raw_os_error(),
            Some(libc::EINVAL | libc::EINTR | libc::EAGAIN)
        ),
    }
}

thread_local! {
    static BOUNCE: Cell<Option<AlignedBuf>> = const { Cell::new(None) };
}

/// Lends this thread's aligned buffer, `len` bytes of it but at most [`TRANSFER_MAX`]. The
/// buffer keeps the longest length it was used with.
fn with_bounce<R>(len: usize, body: impl FnOnce(&mut [u8]) -> R) -> R {
    let len = len.min(TRANSFER_MAX);
    assert!(len.is_multiple_of(ALIGNMENT), "only direct I/O bounces");
    debug_assert!(len > 0, "a request without bytes makes no system call");
    let kept = BOUNCE.try_with(Cell::take).ok().flatten();
    let mut buf = match kept {
        Some(buf) if buf.len() >= len => buf,
        _ if len <= deadline::TRANSFER_FIRST => AlignedBuf::new(len.next_power_of_two()),
        _ => AlignedBuf::in_huge_page(TRANSFER_MAX),
    };
    assert!(buf.len() >= len && is_aligned(buf.as_ptr().addr() as u64));
    let result = body(&mut buf[..len]);
    // A thread that is ending has no slot any more; the buffer is simply dropped then.
    let _ = BOUNCE.try_with(|slot| slot.set(Some(buf)));
    result
}

fn status_flags(file: &File) -> io::Result<i32> {
    // SAFETY: the descriptor is open, and F_GETFL takes no argument.
    let flags = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GETFL) };
    if flags < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(flags)
    }
}

fn set_status_flags(file: &File, flags: i32) -> io::Result<()> {
    // SAFETY: the descriptor is open, and F_SETFL takes an int.
    let result = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETFL, flags) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

/// Length of a block device in bytes.
fn block_len(file: &File) -> io::Result<u64> {
    /// `_IOR(0x12, 114, size_t)` of `linux/fs.h`, on 64-bit systems.
    const BLKGETSIZE64: libc::Ioctl = 0x8008_1272u32 as libc::Ioctl;
    let mut len = 0u64;
    // SAFETY: the descriptor is open, and BLKGETSIZE64 writes one u64 to the pointer.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64, &raw mut len) };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        debug_assert!(len.is_multiple_of(512), "whole sectors");
        Ok(len)
    }
}

/// `fallocate`, which never writes zeros itself where the file system cannot allocate.
fn allocate(file: &File, mode: i32, offset: u64, len: u64) -> io::Result<()> {
    let number =
        |value| i64::try_from(value).map_err(|_| io::Error::from_raw_os_error(libc::EFBIG));
    let (from, len) = (number(offset)?, number(len)?);
    loop {
        // SAFETY: the descriptor is open; the other arguments are plain numbers.
        if unsafe { libc::fallocate(file.as_raw_fd(), mode, from, len) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EINTR) => {}
            Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::ENODEV) => {
                return Err(io::ErrorKind::Unsupported.into());
            }
            _ => return Err(error),
        }
    }
}

fn punch_hole(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let Ok(from) = i64::try_from(offset) else {
        return Ok(()); // Past the end of any file.
    };
    let len = i64::try_from(len).unwrap_or(i64::MAX).min(i64::MAX - from);
    debug_assert!(from >= 0 && len >= 0 && from.checked_add(len).is_some());
    let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
    loop {
        // SAFETY: the descriptor is open; the other arguments are plain numbers.
        if unsafe { libc::fallocate(file.as_raw_fd(), mode, from, len) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::EINTR) {
            return Err(error);
        }
    }
}
