//! Keeps other processes off a database: SQLite's own lock bytes, held as one write lock.
//!
//! Open-file-description locks conflict with the record locks the stock VFS takes and, unlike
//! those, do not vanish when some other descriptor of the file is closed.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;

/// First lock byte (`PENDING_BYTE` in SQLite's `os.h`).
const PENDING_BYTE: i64 = 0x4000_0000;
/// Pending, reserved, and the 510 shared bytes.
const LOCK_BYTES: i64 = 512;

/// Tries to take the lock for as long as `file` stays open: a write lock, or a read lock when the
/// file could be opened for reading only. `Ok(false)`: another process holds a conflicting lock.
pub(crate) fn try_hold(file: &File, writable: bool) -> io::Result<bool> {
    let kind = if writable {
        libc::F_WRLCK
    } else {
        libc::F_RDLCK
    };
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
