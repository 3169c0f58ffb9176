//! Keeps other processes off a database: SQLite's own lock bytes, held as one write lock.
//!
//! Open-file-description locks conflict with the record locks the stock VFS takes and, unlike
//! those, do not vanish when some other descriptor of the file is closed.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

/// First lock byte (`PENDING_BYTE` in SQLite's `os.h`).
const PENDING_BYTE: i64 = 0x4000_0000;
/// Pending, reserved, and the 510 shared bytes.
const LOCK_BYTES: i64 = 512;

/// The lock, held; dropping it lets go. Closing the file would not do: the engine may have it open
/// for longer.
pub(crate) struct Hold(Arc<File>);

impl Drop for Hold {
    fn drop(&mut self) {
        // Letting go of a lock that is held does not fail on an open file.
        let _ended = set(&self.0, libc::F_UNLCK);
    }
}

/// Tries to take the lock: a write lock, or a read lock when the file could be opened for reading
/// only. `Ok(None)`: another process holds a conflicting lock.
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
