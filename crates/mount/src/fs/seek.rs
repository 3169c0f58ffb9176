//! `SEEK_DATA` and `SEEK_HOLE`: base knows where a file has data, but not of the pages that are
//! newer in DRAM or on flash.
//!
//! The tier is asked before base each time. What it has given to base in between, base knows of
//! when it is asked; the other way round a page could be missed by both.

use std::io;
use std::os::fd::AsRawFd;

use thermocline::DirtyPages;

use super::Fs;
use crate::handle::Handle;
use crate::sys;

impl Fs {
    /// Seeks to data or to a hole.
    ///
    /// # Errors
    /// `ENXIO` behind the last, `EINVAL` for other kinds of seek.
    pub fn lseek(&self, handle: u64, offset: i64, whence: i32) -> io::Result<i64> {
        let handle = self.handle(handle)?;
        let Handle::File(file) = &*handle else {
            return Err(sys::errno(libc::EBADF));
        };
        let fd = file.object.file.as_raw_fd();
        let dirty = self.objects.engine().dirty_of(&file.object.object);
        let found = match whence {
            libc::SEEK_DATA => data(fd, &dirty, offset),
            libc::SEEK_HOLE => hole(fd, &dirty, offset),
            _ => return Err(sys::errno(libc::EINVAL)),
        }?;
        assert!(found >= offset, "{found} lies before {offset}");
        Ok(found)
    }
}

fn data(fd: i32, dirty: &DirtyPages<'_>, offset: i64) -> io::Result<i64> {
    let newer = dirty.run_from(offset.cast_unsigned());
    let on_base = sys::lseek(fd, offset, libc::SEEK_DATA);
    let Some(newer) = newer else {
        return on_base;
    };
    // Base's length is the file's.
    if newer.start >= sys::stat(fd)?.st_size.cast_unsigned() {
        return on_base;
    }
    let newer = newer.start.cast_signed().max(offset);
    match on_base {
        Ok(at) => Ok(at.min(newer)),
        Err(error) if error.raw_os_error() == Some(libc::ENXIO) => Ok(newer),
        Err(error) => Err(error),
    }
}

fn hole(fd: i32, dirty: &DirtyPages<'_>, offset: i64) -> io::Result<i64> {
    let length = sys::stat(fd)?.st_size;
    let mut at = offset;
    while at < length {
        match dirty.run_from(at.cast_unsigned()) {
            Some(newer) if newer.start <= at.cast_unsigned() => {
                at = newer.end.cast_signed();
                continue;
            }
            _ => {}
        }
        let on_base = sys::lseek(fd, at, libc::SEEK_HOLE)?;
        if on_base == at {
            return Ok(at);
        }
        assert!(on_base > at, "base's hole {on_base} lies before {at}");
        at = on_base;
    }
    match at == offset {
        true => sys::lseek(fd, offset, libc::SEEK_HOLE), // at or behind the end
        false => Ok(length),
    }
}
