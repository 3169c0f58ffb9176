//! Keeps other processes off a database: SQLite's own lock bytes, held as one write lock.
//!
//! Open-file-description locks conflict with the record locks the stock VFS takes and, unlike
//! those, do not vanish when some other descriptor of the file is closed.
//!
//! A change that others make after the lock is noticed by the file's times. They move once a tick
//! of the kernel's clock, so the lock is kept until the tick of the file's last change is over.
//! Where times are coarser than that, or by another clock, [`BaseClock::shows_changes_after`] tells
//! whether they will show it.

use std::fs::{File, Metadata};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use thermocline::Stamp;
use thermocline::claim::Clocks;

/// First lock byte (`PENDING_BYTE` in SQLite's `os.h`).
const PENDING_BYTE: i64 = 0x4000_0000;
/// Pending, reserved, and the 510 shared bytes.
const LOCK_BYTES: i64 = 512;
/// Longer than a tick of any kernel. A file whose times are further ahead has them from another
/// clock.
const TICK_MAX_NS: i64 = 20_000_000;
/// Some file systems keep whole seconds, and FAT every other one.
const WHOLE_SECONDS_NS: i64 = 2_000_000_000;

/// The lock, held; dropping it lets go. Closing the file would not do: the engine may have it open
/// for longer.
pub(crate) struct Hold {
    file: Arc<File>,
    clock: BaseClock,
}

impl Drop for Hold {
    fn drop(&mut self) {
        self.wait_for_later_times();
        // Letting go of a lock that is held does not fail on an open file.
        let _ended = set(&self.file, libc::F_UNLCK);
    }
}

impl Hold {
    /// Waits until whoever changes the file gives it a later time than it has.
    fn wait_for_later_times(&self) {
        let Ok(meta) = self.file.metadata() else {
            return;
        };
        let changed = changed_ns(&meta);
        for _ in 0..TICK_MAX_NS / 1_000_000 {
            let ahead = changed.saturating_sub(self.clock.tick_ns());
            if !(0..=TICK_MAX_NS).contains(&ahead) {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// The clock that base gives its files their times by, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BaseClock {
    granularity_ns: i64,
    offset_ns: i64,
}

impl BaseClock {
    pub(crate) fn new(known: Clocks) -> Self {
        let granularity_ns = i64::try_from(known.granularity.as_nanos()).unwrap_or(i64::MAX);
        Self {
            granularity_ns: granularity_ns.max(TICK_MAX_NS),
            offset_ns: known.offset_ns,
        }
    }

    /// The time that a file changed now gets, in nanoseconds since 1970.
    pub(crate) fn tick_ns(self) -> i64 {
        let mut now = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // SAFETY: `now` is the structure that the call fills.
        let rc = unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut now) };
        debug_assert_eq!(rc, 0, "Linux has this clock");
        Stamp::nanoseconds(now.tv_sec, now.tv_nsec).saturating_add(self.offset_ns)
    }

    /// Whether whoever changes a file once its lock is let go gives it other times than `meta` has.
    /// `written`: no later than the last write of this process.
    pub(crate) fn shows_changes_after(self, meta: &Metadata, written: Option<i64>) -> bool {
        let (changed, now) = (changed_ns(meta), self.tick_ns());
        let age = now.saturating_sub(changed);
        let whole = meta.ctime_nsec() == 0 && meta.mtime_nsec() == 0;
        let granularity = match whole {
            true => self.granularity_ns.max(WHOLE_SECONDS_NS),
            false => self.granularity_ns,
        };
        let behind = written.is_some_and(|at| changed.saturating_add(granularity) < at);
        // A tick is waited for when the lock is let go.
        let is_old = granularity <= TICK_MAX_NS || age >= granularity;
        !behind && age >= -TICK_MAX_NS && is_old
    }
}

fn changed_ns(meta: &Metadata) -> i64 {
    Stamp::nanoseconds(meta.ctime(), meta.ctime_nsec())
}

/// Tries to take the lock: a write lock, or a read lock for a file that could be opened for reading
/// only or whose readers are not to be disturbed. `Ok(None)`: another process holds a conflicting
/// lock.
pub(crate) fn try_hold(
    file: &Arc<File>,
    writable: bool,
    clock: BaseClock,
) -> io::Result<Option<Hold>> {
    let kind = if writable {
        libc::F_WRLCK
    } else {
        libc::F_RDLCK
    };
    let taken = set(file, kind)?;
    let file = Arc::clone(file);
    Ok(taken.then_some(Hold { file, clock }))
}

/// Sets the lock bytes to `kind`; whether nobody was in the way.
fn set(file: &File, kind: libc::c_int) -> io::Result<bool> {
    let lock = libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: PENDING_BYTE,
        l_len: LOCK_BYTES,
        l_pid: 0,
    };
    // SAFETY: the descriptor is open for the length of the call and `lock` is a valid flock that
    // F_OFD_SETLK only reads.
    let rc = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &lock) };
    if rc == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn shown(clock: Clocks, changed_before: Duration, written: bool) -> bool {
        let file = tempfile::tempfile().unwrap();
        let clock = BaseClock::new(clock);
        let written = written.then(|| clock.tick_ns());
        let _ = (&file).write_all(b"x");
        thread::sleep(changed_before);
        clock.shows_changes_after(&file.metadata().unwrap(), written)
    }

    #[test]
    fn a_change_is_shown_once_the_times_are_older_than_the_clock_is_coarse() {
        let clock = |granularity, offset_ns| Clocks {
            granularity: Duration::from_millis(granularity),
            offset_ns,
        };
        assert!(shown(clock(20, 0), Duration::ZERO, true));
        assert!(!shown(clock(60_000, 0), Duration::ZERO, true));
        assert!(shown(clock(100, 0), Duration::from_millis(200), true));
        // Base's clock is a minute behind or ahead of what it was said to be.
        assert!(!shown(clock(20, 60_000_000_000), Duration::ZERO, true));
        assert!(!shown(clock(20, -60_000_000_000), Duration::ZERO, false));
    }
}
