//! The FUSE side: translates the kernel's requests into operations of [`Fs`] and back.
//!
//! Handlers are synchronous: a thread of the session serves one request to its end.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BackingId, BsdFileFlags, Errno, FileAttr, FileHandle, FileType, FopenFlags, Generation,
    INodeNo, InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate,
    ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyLseek, ReplyOpen, ReplyStatfs,
    ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use thermocline::device::AlignedBuf;

use crate::fs::{Caller, Entry, Fs, Opened, SetAttr, Time, WriteOptions};
use crate::inode::ROOT;
use crate::passthrough::Passthrough;
use crate::serving::{Served, Serving};
use crate::sys::Stat;

/// How long the kernel may keep names and attributes. Changes through the mount are seen at
/// once whatever this is; it only bounds how late changes made on the base directly are seen.
const TTL: Duration = Duration::from_secs(1);
/// The largest request, in bytes: the kernel's own limit (`fs.fuse.max_pages_limit`).
const REQUEST_MAX: u32 = 1 << 20;
/// Readahead and other background requests the kernel may have in flight.
const BACKGROUND_MAX: u16 = 64;
/// Node ids are never reused for another inode while the kernel knows them.
const GENERATION: Generation = Generation(0);

/// Bytes of a thread's read buffer before its first larger request.
const BUFFER_LEN: usize = 128 << 10;

thread_local! {
    /// Where reads are assembled: one buffer a thread, so that a request allocates nothing.
    static BUFFER: RefCell<AlignedBuf> = RefCell::new(AlignedBuf::new(BUFFER_LEN));
}

/// An [`Fs`] as the kernel sees it.
pub(crate) struct Frontend {
    served: Served,
    /// Whether files opened for direct I/O can be mapped shared.
    direct_mmap: bool,
    passthrough: Passthrough,
}

impl Frontend {
    pub(crate) fn new(fs: Arc<Fs>, passthrough: Passthrough) -> Self {
        Self {
            served: Served::new(fs),
            direct_mmap: false,
            passthrough,
        }
    }

    /// The file system, for the request at hand.
    fn fs(&self) -> Serving<'_> {
        self.served.fs()
    }

    /// The file by which the kernel serves what was opened, if it is to.
    fn backing(
        &self,
        opened: Opened,
        register: impl FnOnce(&File) -> io::Result<BackingId>,
    ) -> Option<Arc<BackingId>> {
        let fs = self.fs();
        let object = fs.object(opened.handle)?;
        let allowed = || fs.allow_passthrough(&object);
        self.passthrough
            .of(&object.backing, &object.file, allowed, register)
    }

    /// Data bypasses the kernel's page cache, which would hide hits, merge reads and split
    /// pages. Shared maps of such files need a kernel from 6.6 on; before, those few files
    /// are opened through the page cache.
    fn open_flags(&self, opened: Opened) -> FopenFlags {
        if opened.mapped && !self.direct_mmap {
            FopenFlags::empty()
        } else {
            FopenFlags::FOPEN_DIRECT_IO | FopenFlags::FOPEN_PARALLEL_DIRECT_WRITES
        }
    }
}

fn caller(request: &Request) -> Caller {
    Caller {
        uid: request.uid(),
        gid: request.gid(),
        tid: request.pid(),
    }
}

fn time(seconds: i64, nanos: i64) -> SystemTime {
    let nanos = nanos.clamp(0, 999_999_999); // a damaged base may say anything
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let start = if seconds < 0 {
        UNIX_EPOCH - whole
    } else {
        UNIX_EPOCH + whole
    };
    start + Duration::from_nanos(nanos.unsigned_abs())
}

fn kind(mode: u32) -> FileType {
    match mode & libc::S_IFMT {
        libc::S_IFDIR => FileType::Directory,
        libc::S_IFLNK => FileType::Symlink,
        libc::S_IFIFO => FileType::NamedPipe,
        libc::S_IFSOCK => FileType::Socket,
        libc::S_IFBLK => FileType::BlockDevice,
        libc::S_IFCHR => FileType::CharDevice,
        _ => FileType::RegularFile,
    }
}

fn listed_kind(kind: u8) -> FileType {
    self::kind(u32::from(kind) << 12) // IFTODT and back
}

fn attr(id: u64, stat: &Stat) -> FileAttr {
    assert!(id >= ROOT, "0 is no node");
    assert!(
        stat.st_size >= 0 && stat.st_blocks >= 0,
        "lengths of node {id}"
    );
    FileAttr {
        ino: INodeNo(id),
        size: stat.st_size.unsigned_abs(),
        blocks: stat.st_blocks.unsigned_abs(),
        atime: time(stat.st_atime, stat.st_atime_nsec),
        mtime: time(stat.st_mtime, stat.st_mtime_nsec),
        ctime: time(stat.st_ctime, stat.st_ctime_nsec),
        crtime: UNIX_EPOCH,
        kind: kind(stat.st_mode),
        perm: (stat.st_mode & 0o7777) as u16,
        nlink: stat.st_nlink as u32,
        uid: stat.st_uid,
        gid: stat.st_gid,
        rdev: stat.st_rdev as u32,
        blksize: stat.st_blksize as u32,
        flags: 0,
    }
}

fn reply_entry(result: io::Result<Entry>, reply: ReplyEntry) {
    match result {
        Ok(entry) => reply.entry(&TTL, &attr(entry.id, &entry.stat), GENERATION),
        Err(error) => reply.error(errno(&error)),
    }
}

fn reply_attr(result: io::Result<Stat>, reply: ReplyAttr) {
    match result {
        Ok(stat) => reply.attr(&TTL, &attr(stat.st_ino, &stat)),
        Err(error) => reply.error(errno(&error)),
    }
}

fn reply_empty(result: io::Result<()>, reply: ReplyEmpty) {
    match result {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(errno(&error)),
    }
}

fn reply_xattr(result: io::Result<(usize, Vec<u8>)>, size: u32, reply: ReplyXattr) {
    match result {
        Ok((len, _)) if size == 0 => reply.size(len as u32),
        Ok((_, value)) => {
            assert!(value.len() <= size as usize, "more than was asked for");
            reply.data(&value);
        }
        Err(error) => reply.error(errno(&error)),
    }
}

/// What a program sees of an error without a number of its own.
fn errno(error: &io::Error) -> Errno {
    match error.raw_os_error() {
        Some(code) => Errno::from_i32(code),
        None => match error.kind() {
            io::ErrorKind::InvalidInput => Errno::EINVAL,
            io::ErrorKind::StorageFull => Errno::ENOSPC,
            io::ErrorKind::Unsupported => Errno::EOPNOTSUPP,
            io::ErrorKind::PermissionDenied => Errno::EACCES,
            io::ErrorKind::NotFound => Errno::ENOENT,
            _ => Errno::EIO,
        },
    }
}

fn set_time(time: TimeOrNow) -> Time {
    match time {
        TimeOrNow::Now => Time::Now,
        TimeOrNow::SpecificTime(at) => match at.duration_since(UNIX_EPOCH) {
            Ok(since) => Time::At(since.as_secs().cast_signed(), since.subsec_nanos()),
            // `fuser` takes the nanoseconds away from the seconds instead of adding them.
            Err(before) => {
                let before = before.duration();
                let seconds = before.as_secs();
                Time::At(seconds.wrapping_neg().cast_signed(), before.subsec_nanos())
            }
        },
    }
}

impl fuser::Filesystem for Frontend {
    fn init(&mut self, _request: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Not `FUSE_ATOMIC_O_TRUNC`: the kernel then truncates as `truncate` does, and takes set-id
        // bits away with it; an open that truncates would not say whether to. Nor
        // `FUSE_HANDLE_KILLPRIV_V2`, with which nothing says so for `fallocate`.
        let wanted = [
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
        ];
        for flag in wanted {
            // A kernel without one of them is served all the same.
            let supported = config.add_capabilities(flag).is_ok();
            if flag == InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP {
                self.direct_mmap = supported;
            }
        }
        // Depth 1: base is no stacked file system, and this one can be below one.
        let passthrough = config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
            && config.set_max_stack_depth(1).is_ok();
        if !passthrough {
            self.passthrough.refuse();
        }
        let limits = config.set_max_write(REQUEST_MAX).is_ok()
            && config.set_max_background(BACKGROUND_MAX).is_ok();
        assert!(limits, "limits that every kernel takes");
        Ok(())
    }

    fn lookup(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        reply_entry(self.fs().lookup(parent.0, name), reply);
    }

    fn forget(&self, _request: &Request, ino: INodeNo, count: u64) {
        self.fs().forget(ino.0, count);
    }

    fn getattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        _handle: Option<FileHandle>,
        reply: ReplyAttr,
    ) {
        reply_attr(self.fs().getattr(ino.0), reply);
    }

    fn setattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _handle: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (atime, mtime) = (atime.map(set_time), mtime.map(set_time));
        let set = SetAttr {
            mode,
            uid,
            gid,
            size,
            atime,
            mtime,
        };
        reply_attr(self.fs().setattr(ino.0, &set), reply);
    }

    fn readlink(&self, _request: &Request, ino: INodeNo, reply: ReplyData) {
        match self.fs().readlink(ino.0) {
            Ok(target) => reply.data(target.as_bytes()),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn mknod(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let entry = self
            .fs()
            .mknod(caller(request), parent.0, name, mode, u64::from(rdev));
        reply_entry(entry, reply);
    }

    fn mkdir(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        reply_entry(
            self.fs().mkdir(caller(request), parent.0, name, mode),
            reply,
        );
    }

    fn unlink(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(self.fs().unlink(parent.0, name), reply);
    }

    fn rmdir(&self, _request: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(self.fs().rmdir(parent.0, name), reply);
    }

    fn symlink(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let target = target.as_os_str();
        reply_entry(
            self.fs().symlink(caller(request), parent.0, name, target),
            reply,
        );
    }

    fn rename(
        &self,
        _request: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (from, to) = ((parent.0, name), (new_parent.0, new_name));
        reply_empty(self.fs().rename(from, to, flags.bits()), reply);
    }

    fn link(
        &self,
        _request: &Request,
        ino: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        reply_entry(self.fs().link(ino.0, new_parent.0, new_name), reply);
    }

    fn open(&self, _request: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        match self.fs().open(ino.0, flags.0) {
            Ok(opened) => {
                let handle = FileHandle(opened.handle);
                match self.backing(opened, |file| reply.open_backing(file)) {
                    Some(id) => reply.opened_passthrough(handle, FopenFlags::empty(), &id),
                    None => reply.opened(handle, self.open_flags(opened)),
                }
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn create(
        &self,
        request: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        match self
            .fs()
            .create(caller(request), parent.0, name, mode, flags)
        {
            Ok((entry, opened)) => {
                let (attr, handle) = (attr(entry.id, &entry.stat), FileHandle(opened.handle));
                match self.backing(opened, |file| reply.open_backing(file)) {
                    Some(id) => {
                        let flags = FopenFlags::empty();
                        reply.created_passthrough(&TTL, &attr, GENERATION, handle, flags, &id);
                    }
                    None => {
                        let flags = self.open_flags(opened);
                        reply.created(&TTL, &attr, GENERATION, handle, flags);
                    }
                }
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn read(
        &self,
        request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let size = size.min(REQUEST_MAX) as usize;
        BUFFER.with_borrow_mut(|buffer| {
            if buffer.len() < size {
                *buffer = AlignedBuf::new(REQUEST_MAX as usize);
            }
            let buf = &mut buffer[..size];
            match self.fs().read(caller(request), handle.0, offset, buf) {
                Ok(len) => {
                    assert!(len <= size, "{len} of {size} bytes");
                    reply.data(&buf[..len]);
                }
                Err(error) => reply.error(errno(&error)),
            }
        });
    }

    fn write(
        &self,
        request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        write_flags: WriteFlags,
        flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let most = REQUEST_MAX as usize;
        assert!(data.len() <= most, "a request of {} bytes", data.len());
        let mut caller = caller(request);
        if write_flags.contains(WriteFlags::FUSE_WRITE_CACHE) {
            caller.tid = 0; // a page of a shared map: whoever the kernel happens to name
        }
        let options = WriteOptions {
            flags: flags.0,
            strip: write_flags.contains(WriteFlags::FUSE_WRITE_KILL_SUIDGID),
        };
        let fs = self.fs();
        match fs.write(caller, handle.0, offset, data, options) {
            Ok(()) => reply.written(data.len() as u32),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn release(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        reply_empty(self.fs().release(handle.0), reply);
    }

    fn flush(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _handle: FileHandle,
        _lock_owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        // Writes are with the base when they return; the kernel need not ask again.
        reply.error(Errno::ENOSYS);
    }

    fn fsync(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        reply_empty(self.fs().fsync(handle.0, data_only), reply);
    }

    fn opendir(&self, _request: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        match self.fs().opendir(ino.0) {
            Ok(handle) => reply.opened(FileHandle(handle), FopenFlags::empty()),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn readdir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let result = self.fs().readdir(handle.0, offset, &mut |entry| {
            reply.add(
                INodeNo(entry.ino),
                entry.next,
                listed_kind(entry.kind),
                entry.name,
            )
        });
        match result {
            Ok(()) => reply.ok(),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn releasedir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        reply_empty(self.fs().release(handle.0), reply);
    }

    fn fsyncdir(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        data_only: bool,
        reply: ReplyEmpty,
    ) {
        reply_empty(self.fs().fsyncdir(handle.0, data_only), reply);
    }

    fn statfs(&self, _request: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        match self.fs().statfs() {
            Ok(s) => reply.statfs(
                s.f_blocks,
                s.f_bfree,
                s.f_bavail,
                s.f_files,
                s.f_ffree,
                s.f_bsize as u32,
                s.f_namemax as u32,
                s.f_frsize as u32,
            ),
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn setxattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        reply_empty(self.fs().setxattr(ino.0, name, value, flags), reply);
    }

    fn getxattr(
        &self,
        _request: &Request,
        ino: INodeNo,
        name: &OsStr,
        size: u32,
        reply: ReplyXattr,
    ) {
        reply_xattr(self.fs().getxattr(ino.0, name, size), size, reply);
    }

    fn listxattr(&self, _request: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        reply_xattr(self.fs().listxattr(ino.0, size), size, reply);
    }

    fn removexattr(&self, _request: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        reply_empty(self.fs().removexattr(ino.0, name), reply);
    }

    fn fallocate(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        reply_empty(self.fs().fallocate(handle.0, offset, length, mode), reply);
    }

    fn lseek(
        &self,
        _request: &Request,
        _ino: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        match self.fs().lseek(handle.0, offset, whence) {
            Ok(at) => {
                assert!(at >= 0, "an offset of {at}");
                reply.offset(at);
            }
            Err(error) => reply.error(errno(&error)),
        }
    }

    fn access(
        &self,
        _request: &Request,
        _ino: INodeNo,
        _mask: fuser::AccessFlags,
        reply: ReplyEmpty,
    ) {
        // The kernel checks permissions itself (`default_permissions`).
        reply.error(Errno::ENOSYS);
    }

    fn copy_file_range(
        &self,
        _request: &Request,
        _ino_in: INodeNo,
        _handle_in: FileHandle,
        _offset_in: u64,
        _ino_out: INodeNo,
        _handle_out: FileHandle,
        _offset_out: u64,
        _len: u64,
        _flags: fuser::CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        // The kernel copies with reads and writes, which the tier sees.
        reply.error(Errno::ENOSYS);
    }
}
