//! Asking a mount that may hang, with a deadline.
//!
//! Its process may be stopped, or have no thread left that does not wait for base. A request that
//! it took and does not answer cannot be interrupted, not even by the end of who made it. So a
//! child makes the request. It is left behind, with nothing of its parent's open, when there is no
//! answer in time; it ends with the mount.

use std::ffi::{CString, c_int};
use std::io::{self, PipeReader, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr;
use std::time::{Duration, Instant};

/// The longest a mount may take to answer.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// What the file at `path` holds. An error of kind [`io::ErrorKind::TimedOut`] means that there was
/// no answer within `patience`.
pub(crate) fn read(path: &Path, patience: Duration) -> io::Result<Vec<u8>> {
    by_child(path, patience, copy)
}

/// Whether `path` is a directory; errors as for [`read`].
pub(crate) fn is_directory(path: &Path, patience: Duration) -> io::Result<bool> {
    let mode = by_child(path, patience, look)?;
    Ok(mode == [1])
}

/// Has a child do `what` with `path`, and gives the bytes that it wrote.
///
/// Behind them stands the number of the error that ended it, or 0.
fn by_child(
    path: &Path,
    patience: Duration,
    what: fn(&CString, RawFd) -> c_int,
) -> io::Result<Vec<u8>> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    let (reader, writer) = io::pipe()?;
    let until = Instant::now() + patience;
    // SAFETY: the child makes nothing but system calls on memory that was there before, so it
    // needs no lock that another thread may hold.
    let child = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => {
            let answer = alone_with(writer.as_raw_fd());
            let error = what(&path, answer);
            put(answer, &error.to_ne_bytes());
            // SAFETY: no pointers. Nothing of the parent's is flushed or dropped.
            unsafe { libc::_exit(0) }
        }
        child => child,
    };
    drop(writer);
    let answer = before(reader, until);
    let flags = match &answer {
        Ok(_) => 0,
        Err(_) => {
            // SAFETY: no pointers; the child was not waited for, so the number is still its own.
            unsafe { libc::kill(child, libc::SIGKILL) };
            // It may not be able to end. Then it does once the mount has.
            libc::WNOHANG
        }
    };
    // SAFETY: nothing is written where the pointer is null.
    unsafe { libc::waitpid(child, ptr::null_mut(), flags) };
    let mut answer = answer?;
    let error = answer.split_off(answer.len().saturating_sub(size_of::<c_int>()));
    match error.try_into().map(c_int::from_ne_bytes) {
        Ok(0) => Ok(answer),
        Ok(error) => Err(io::Error::from_raw_os_error(error)),
        Err(_) => Err(io::Error::other("the process that asked was ended")),
    }
}

/// All that comes until the other end is closed.
fn before(mut pipe: PipeReader, until: Instant) -> io::Result<Vec<u8>> {
    let (mut all, mut part) = (Vec::new(), vec![0; 64 << 10]);
    loop {
        if !is_ready(pipe.as_raw_fd(), until)? {
            return Err(io::ErrorKind::TimedOut.into());
        }
        match pipe.read(&mut part) {
            Ok(0) => return Ok(all),
            Ok(count) => all.extend_from_slice(&part[..count]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Whether something can be read before `until`.
fn is_ready(fd: RawFd, until: Instant) -> io::Result<bool> {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    loop {
        let left = until.saturating_duration_since(Instant::now()).as_millis();
        let left = c_int::try_from(left).unwrap_or(c_int::MAX);
        // SAFETY: one element, as said; it outlives the call.
        match unsafe { libc::poll(&raw mut poll, 1, left) } {
            -1 if io::Error::last_os_error().kind() == io::ErrorKind::Interrupted => {}
            -1 => return Err(io::Error::last_os_error()),
            ready => return Ok(ready > 0),
        }
    }
}

/// In the child: closes everything but `writer`, which is number 0 then. Whoever reads the
/// parent's output would wait for its end until the child has ended, too.
fn alone_with(writer: RawFd) -> RawFd {
    // SAFETY: no pointers. The child uses no other descriptor.
    unsafe {
        libc::dup2(writer, 0);
        // Before Linux 5.9 there is no such call.
        if libc::syscall(libc::SYS_close_range, 1, u32::MAX, 0) == -1 {
            for other in 1..1024 {
                libc::close(other);
            }
        }
    }
    0
}

/// In the child: writes all of `bytes`; `false` when nobody reads.
fn put(answer: RawFd, bytes: &[u8]) -> bool {
    let mut left = bytes;
    while !left.is_empty() {
        // SAFETY: the bytes outlive the call.
        let count = unsafe { libc::write(answer, left.as_ptr().cast(), left.len()) };
        match usize::try_from(count)
            .ok()
            .and_then(|count| left.get(count..))
        {
            Some(rest) => left = rest,
            None => return false,
        }
    }
    true
}

/// In the child: the number of the last error.
fn error() -> c_int {
    io::Error::last_os_error()
        .raw_os_error()
        .unwrap_or(libc::EIO)
}

/// In the child: writes what a file holds to `answer`.
fn copy(path: &CString, answer: RawFd) -> c_int {
    let mut part = [0_u8; 16 << 10];
    // SAFETY: a terminated string that outlives the call.
    let fd = unsafe { libc::open(path.as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if fd == -1 {
        return error();
    }
    loop {
        // SAFETY: `part` has as many bytes as said.
        let count = unsafe { libc::read(fd, part.as_mut_ptr().cast(), part.len()) };
        match usize::try_from(count)
            .ok()
            .and_then(|count| part.get(..count))
        {
            Some([]) => return 0,
            Some(bytes) if put(answer, bytes) => {}
            Some(_) => return libc::EPIPE,
            None => return error(),
        }
    }
}

/// In the child: writes 1 to `answer` for a directory, 0 for anything else.
fn look(path: &CString, answer: RawFd) -> c_int {
    let mut found = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: a terminated string that outlives the call, and room for one `stat`.
    if unsafe { libc::stat(path.as_ptr(), found.as_mut_ptr()) } == -1 {
        return error();
    }
    // SAFETY: it was filled.
    let mode = unsafe { found.assume_init() }.st_mode;
    put(answer, &[u8::from(mode & libc::S_IFMT == libc::S_IFDIR)]);
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_there_is_read_whole() {
        let directory = tempfile::tempdir().expect("directory");
        let file = directory.path().join("f");
        let text: Vec<u8> = (0..300_000_u32).map(|n| (n % 251) as u8).collect();
        std::fs::write(&file, &text).expect("write");
        assert_eq!(read(&file, PATIENCE).expect("reads"), text);
        std::fs::write(&file, "").expect("write");
        assert_eq!(read(&file, PATIENCE).expect("reads"), b"");
        assert!(is_directory(directory.path(), PATIENCE).expect("looks"));
        assert!(!is_directory(&file, PATIENCE).expect("looks"));
        let none = directory.path().join("none");
        for error in [
            read(&none, PATIENCE).expect_err("none"),
            is_directory(&none, PATIENCE).expect_err("none"),
        ] {
            assert_eq!(error.kind(), io::ErrorKind::NotFound);
        }
        let error = read(directory.path(), PATIENCE).expect_err("a directory");
        assert_eq!(error.raw_os_error(), Some(libc::EISDIR));
    }

    /// Opening a pipe that nobody writes to waits for ever.
    #[test]
    fn what_does_not_answer_is_left() {
        let directory = tempfile::tempdir().expect("directory");
        let path = directory.path().join("pipe");
        let name = CString::new(path.as_os_str().as_bytes()).expect("path");
        // SAFETY: a terminated string that outlives the call.
        assert_eq!(unsafe { libc::mkfifo(name.as_ptr(), 0o600) }, 0);
        let late = read(&path, Duration::from_millis(50)).expect_err("late");
        assert_eq!(late.kind(), io::ErrorKind::TimedOut);
    }
}
