//! Contents of files: open, read, write, sync, allocate, seek.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;

use thermocline::Request;

use super::{Caller, Entry, Fs};
use crate::control::Control;
use crate::handle::{ControlHandle, FileHandle, Handle};
use crate::inode::Node;
use crate::sys;

/// An open file.
#[derive(Clone, Copy, Debug)]
pub struct Opened {
    /// The handle's number.
    pub handle: u64,
    /// Whether programs map this file shared, so that a kernel which cannot map files opened
    /// for direct I/O must be given a cached one.
    pub mapped: bool,
}

impl Fs {
    /// Opens a file with the flags of `open` (`O_TRUNC` included).
    ///
    /// # Errors
    /// Whatever the base reports.
    pub fn open(&self, id: u64, flags: i32) -> io::Result<Opened> {
        if Control::owns(id) {
            let (index, content) = self.control()?.open(id)?;
            let handle = self
                .handles
                .add(Handle::Control(ControlHandle { index, content }));
            return Ok(Opened {
                handle,
                mapped: false,
            });
        }
        let node = self.node(id)?;
        self.open_node(node, flags)
    }

    /// Makes a regular file and opens it.
    ///
    /// # Errors
    /// `EEXIST` with `O_EXCL`; `ESTALE` without, when somebody made the file on the base since
    /// the kernel looked, which makes it look again and open what is there, with its checks.
    pub fn create(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        mode: u32,
        flags: i32,
    ) -> io::Result<(Entry, Opened)> {
        let parent = self.parent_for_new(parent, name)?;
        sys::create(parent.fd(), name, mode).map_err(|error| match error.raw_os_error() {
            Some(libc::EEXIST) if flags & libc::O_EXCL == 0 => sys::errno(libc::ESTALE),
            _ => error,
        })?;
        let entry = self.adopt(caller, &parent, name, Some(mode))?;
        let opened = self
            .nodes
            .get(entry.id)
            .and_then(|node| self.open_node(node, flags));
        match opened {
            Ok(opened) => Ok((entry, opened)),
            Err(error) => {
                self.forget(entry.id, 1);
                Err(error)
            }
        }
    }

    fn open_node(&self, node: Arc<Node>, flags: i32) -> io::Result<Opened> {
        let object = self.objects.acquire(&node)?;
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let result = match object.write_error {
            Some(code) if writes || flags & libc::O_TRUNC != 0 => Err(sys::errno(code)),
            _ if flags & libc::O_TRUNC != 0 => self.objects.engine().truncate(object.id, 0),
            _ => Ok(()),
        };
        if let Err(error) = result {
            self.objects.release(&node);
            return Err(error);
        }
        let mapped = object.mapped;
        let handle = self.handles.add(Handle::File(FileHandle { node, object }));
        Ok(Opened { handle, mapped })
    }

    /// Closes a handle, of a file or a directory.
    ///
    /// # Errors
    /// `EBADF` when there is no such handle.
    pub fn release(&self, handle: u64) -> io::Result<()> {
        if let Handle::File(file) = &*self.handles.remove(handle)? {
            self.objects.release(&file.node);
        }
        Ok(())
    }

    /// Fills `buf` from `offset`; short at the end of the file.
    ///
    /// # Errors
    /// Whatever the tier reports.
    pub fn read(
        &self,
        caller: Caller,
        handle: u64,
        offset: u64,
        buf: &mut [u8],
    ) -> io::Result<usize> {
        match &*self.handle(handle)? {
            Handle::File(FileHandle { object, .. }) => {
                let role = self.roles.of(caller.tid);
                let hints = object.read_hints(role, offset, buf.len() as u64);
                let request = Request {
                    object: object.id,
                    offset,
                    hints,
                    client: caller.tid,
                };
                self.objects.engine().read(&request, buf)
            }
            Handle::Control(ControlHandle { content, .. }) => {
                let from = content
                    .len()
                    .min(usize::try_from(offset).unwrap_or(usize::MAX));
                let len = buf.len().min(content.len() - from);
                buf[..len].copy_from_slice(&content[from..from + len]);
                Ok(len)
            }
            Handle::Dir(_) | Handle::ControlDir => Err(sys::errno(libc::EISDIR)),
        }
    }

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// Whatever the tier reports.
    pub fn write(&self, caller: Caller, handle: u64, offset: u64, data: &[u8]) -> io::Result<()> {
        match &*self.handle(handle)? {
            Handle::File(FileHandle { object, .. }) => {
                let hints = object.write_hints(self.roles.of(caller.tid));
                let request = Request {
                    object: object.id,
                    offset,
                    hints,
                    client: caller.tid,
                };
                self.objects.engine().write(&request, data)
            }
            Handle::Control(ControlHandle { index, .. }) => self.control()?.write(*index, data),
            Handle::Dir(_) | Handle::ControlDir => Err(sys::errno(libc::EISDIR)),
        }
    }

    /// Makes a file's completed writes durable on the base.
    ///
    /// # Errors
    /// Whatever the base reports.
    pub fn fsync(&self, handle: u64, data_only: bool) -> io::Result<()> {
        match &*self.handle(handle)? {
            Handle::File(file) => self.objects.engine().sync(file.object.id, data_only),
            Handle::Control(_) => Ok(()),
            Handle::Dir(_) | Handle::ControlDir => Err(sys::errno(libc::EINVAL)),
        }
    }

    /// Allocates, punches or zeroes a range, with the mode bits of `fallocate`.
    ///
    /// # Errors
    /// `EOPNOTSUPP` for modes that move data, and whatever the base reports.
    pub fn fallocate(&self, handle: u64, offset: u64, len: u64, mode: i32) -> io::Result<()> {
        const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
        const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE;
        const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
        if mode & !(KEEP | PUNCH | ZERO) != 0 {
            return Err(sys::errno(libc::EOPNOTSUPP));
        }
        let handle = self.handle(handle)?;
        let Handle::File(FileHandle { object, .. }) = &*handle else {
            return Err(sys::errno(libc::EBADF));
        };
        if mode & PUNCH != 0 {
            return self.objects.engine().punch(object.id, offset, len);
        }
        if mode & ZERO != 0 {
            // The tier forgets the range first; allocating zeroes changes no content then.
            self.objects.engine().punch(object.id, offset, len)?;
        }
        let end = offset.saturating_add(len);
        sys::fallocate(&object.file, mode, signed(offset)?, signed(len)?)?;
        if mode & KEEP == 0 {
            self.objects.engine().set_length(object.id, end);
        }
        Ok(())
    }

    /// Seeks to data or to a hole.
    ///
    /// # Errors
    /// `ENXIO` behind the last, `EINVAL` for other kinds of seek.
    pub fn lseek(&self, handle: u64, offset: i64, whence: i32) -> io::Result<i64> {
        if whence != libc::SEEK_DATA && whence != libc::SEEK_HOLE {
            return Err(sys::errno(libc::EINVAL));
        }
        match &*self.handle(handle)? {
            Handle::File(file) => sys::lseek(file.object.file.as_raw_fd(), offset, whence),
            _ => Err(sys::errno(libc::EBADF)),
        }
    }
}

fn signed(value: u64) -> io::Result<i64> {
    i64::try_from(value).map_err(|_| sys::errno(libc::EFBIG))
}
