//! Contents of files, and what is open.

use std::io;

use super::attributes::entry_out;
use super::{Call, REQUEST_MAX, off_t};
use crate::fs::{Opened, WriteOptions};
use crate::passthrough::BackingId;
use crate::protocol::{
    CreateIn, CreateOut, FSYNC_FDATASYNC, FallocateIn, FsyncIn, LseekIn, LseekOut, OpenIn, OpenOut,
    ReadIn, ReleaseIn, WRITE_CACHE, WRITE_KILL_SUIDGID, WriteIn, WriteOut, fopen, malformed, put,
};

impl Call<'_> {
    pub(super) fn open(&self, out: &mut [u8]) -> io::Result<usize> {
        let args: OpenIn = self.args()?;
        let opened = self.fs.open(self.node(), args.flags)?;
        Ok(put(out, &self.open_out(opened)))
    }

    pub(super) fn create(&self, out: &mut [u8]) -> io::Result<usize> {
        let (args, (name, _)): (CreateIn, _) = (self.args()?, self.request.name()?);
        let made = self
            .fs
            .create(self.caller(), self.node(), name, args.mode, args.flags);
        let (entry, opened) = made?;
        let answer = CreateOut {
            entry: entry_out(&entry),
            open: self.open_out(opened),
        };
        Ok(put(out, &answer))
    }

    /// How the kernel is to treat what was opened.
    fn open_out(&self, opened: Opened) -> OpenOut {
        // A close has nothing to wait for; told so with the open it does not wait until the first
        // `FLUSH` was answered either. But for maps, whose pages are the kernel's until then.
        let no_flush = if opened.mapped { 0 } else { fopen::NOFLUSH };
        let (open_flags, backing_id) = match self.backing(opened) {
            Some(id) => (fopen::PASSTHROUGH | fopen::NOFLUSH, id),
            // Data bypasses the kernel's page cache, which would hide hits, merge reads and split
            // pages. Shared maps of such files need a kernel from 6.6 on; before, those few files
            // are opened through the page cache.
            None if opened.mapped && !self.frontend.direct_mmap => (0, 0),
            None => (
                fopen::DIRECT_IO | fopen::PARALLEL_DIRECT_WRITES | no_flush,
                0,
            ),
        };
        let is_passed = open_flags & fopen::PASSTHROUGH != 0;
        assert_eq!(is_passed, backing_id > 0, "0 is no backing file");
        OpenOut {
            fh: opened.handle,
            open_flags,
            backing_id,
        }
    }

    /// The file by which the kernel serves what was opened, if it is to. It stays registered while
    /// the object is open, which the handle sees to.
    fn backing(&self, opened: Opened) -> Option<u32> {
        let object = self.fs.object(opened.handle)?;
        let allowed = || self.fs.allow_passthrough(opened.handle);
        let register = |file: &_| BackingId::open(&self.frontend.device, file);
        let passthrough = &self.frontend.passthrough;
        let backing = passthrough.of(&object.backing, &object.file, allowed, register);
        backing.map(|backing| backing.number())
    }

    pub(super) fn read(&self, out: &mut [u8]) -> io::Result<usize> {
        let args: ReadIn = self.args()?;
        let size = (args.size as usize).min(REQUEST_MAX);
        let (offset, out) = (off_t(args.offset)?, &mut out[..size]);
        let len = self.fs.read(self.caller(), args.fh, offset, out)?;
        assert!(len <= size, "{len} of {size} bytes");
        Ok(len)
    }

    pub(super) fn write(&self, out: &mut [u8]) -> io::Result<usize> {
        let args: WriteIn = self.args()?;
        let data = self.request.payload.get(..args.size as usize);
        let data = data.ok_or_else(malformed)?;
        if data.len() > REQUEST_MAX {
            return Err(malformed());
        }
        let mut caller = self.caller();
        if args.write_flags & WRITE_CACHE != 0 {
            caller.tid = 0; // a page of a shared map: whoever the kernel happens to name
        }
        let options = WriteOptions {
            flags: args.flags,
            strip: args.write_flags & WRITE_KILL_SUIDGID != 0,
            capability: self.frontend.killpriv,
        };
        let offset = off_t(args.offset)?;
        self.fs.write(caller, args.fh, offset, data, options)?;
        let answer = WriteOut {
            size: args.size,
            padding: 0,
        };
        Ok(put(out, &answer))
    }

    pub(super) fn fsync(&self) -> io::Result<usize> {
        let args: FsyncIn = self.args()?;
        let data_only = args.fsync_flags & FSYNC_FDATASYNC != 0;
        self.fs.fsync(args.fh, data_only).map(|()| 0)
    }

    pub(super) fn fallocate(&self) -> io::Result<usize> {
        let args: FallocateIn = self.args()?;
        let (offset, len) = (off_t(args.offset)?, off_t(args.length)?);
        // The kernel does not say who may keep set-id bits here: root may.
        if self.frontend.killpriv && self.request.header.uid != 0 {
            self.fs.strip(args.fh)?;
        }
        let done = self.fs.fallocate(args.fh, offset, len, args.mode);
        done.map(|()| 0)
    }

    pub(super) fn lseek(&self, out: &mut [u8]) -> io::Result<usize> {
        let args: LseekIn = self.args()?;
        let offset = self.fs.lseek(args.fh, args.offset, args.whence)?;
        assert!(offset >= 0, "an offset of {offset}");
        Ok(put(out, &LseekOut { offset }))
    }

    /// Closes a file or a directory.
    pub(super) fn release(&self) -> io::Result<usize> {
        let args: ReleaseIn = self.args()?;
        self.fs.release(args.fh).map(|()| 0)
    }
}
