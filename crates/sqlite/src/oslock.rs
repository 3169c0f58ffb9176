//! Keeps other processes off a database: SQLite's own lock bytes, held as one write lock.
//!
//! Open-file-description locks conflict with the record locks the stock VFS takes and, unlike
//! those, do not vanish when some other descriptor of the file is closed.
//!
//! A change that others make after the lock is noticed by the file's times. They move once a tick
//! of the kernel's clock, so the lock is kept until the tick of the file's last change is over.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// First lock byte (`PENDING_BYTE` in SQLite's `os.h`).
const PENDING_BYTE: i64 = 0x4000_0000;
/// Pending, reserved, and the 510 shared bytes.
const LOCK_BYTES: i64 = 512;
/// Longer than a tick of any kernel. A file whose times are further ahead has them from another
/// clock.
const TICK_MAX: Duration = Duration::from_millis(20);

/// The lock, held; dropping it lets go. Closing the file would not do: the engine may have it open
/// for longer.
pub(crate) struct Hold(Arc<File>);

impl Drop for Hold {
    fn drop(&mut self) {
        wait_for_later_times(&self.0);
        // Letting go of a lock that is held does not fail on an open file.
        let _ended = set(&self.0, libc::F_UNLCK);
    }
}

/// Waits until whoever changes the file gives it a later time than it has.
fn wait_for_later_times(file: &File) {
    let Ok(meta) = file.metadata() else { return };
    let (seconds, rest) = (meta.ctime().try_into(), meta.ctime_nsec().try_into());
    let (Ok(seconds), Ok(rest)) = (seconds, rest) else {
        return;
    };
    let changed = Duration::new(seconds, rest);
    for _ in 0..TICK_MAX.as_millis() {
        let ahead = changed.checked_sub(tick());
        if ahead.is_none_or(|ahead| ahead > TICK_MAX) {
            return;
        }
        thread::sleep(Duration::from_millis(1));
    }
}

/// The time that a file changed now gets, since 1970.
fn tick() -> Duration {
    let mut now = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `now` is the structure that the call fills.
    let rc = unsafe { libc::clock_gettime(libc::CLOCK_REALTIME_COARSE, &raw mut now) };
    debug_assert_eq!(rc, 0, "Linux has this clock");
    let (seconds, rest) = (now.tv_sec.try_into(), now.tv_nsec.try_into());
    Duration::new(seconds.unwrap_or(0), rest.unwrap_or(0))
}

/// Tries to take the lock: a write lock, or a read lock for a file that could be opened for reading
/// only or whose readers are not to be disturbed. `Ok(None)`: another process holds a conflicting
/// lock.
pub(crate) fn try_hold(file: &Arc<File>, writable: bool) -> io::Result<Option<Hold>> {
    let kind = if writable {
        libc::F_WRLCK
    } else {
        libc::F_RDLCK
    };
    let taken = set(file, kind)?;
    Ok(taken.then(|| Hold(Arc::clone(file))))
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
