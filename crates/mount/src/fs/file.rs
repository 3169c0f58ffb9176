//! Contents of files: open, read, write, sync, allocate.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use thermocline::{Engine, ReadStarted, Request, Told};
use thermocline_core::hint::HintSet;

use super::attr::has_privileges;
use super::{Caller, Entry, Fs, Stat};
use crate::control::Control;
use crate::handle::{ControlHandle, Durable, FileHandle, Handle};
use crate::inode::Node;
use crate::lock::lock;
use crate::object::{OpenObject, is_file};
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

/// What a write does besides writing.
#[derive(Clone, Copy, Debug, Default)]
pub struct WriteOptions {
    /// Flags as of `open`: with `O_SYNC` or `O_DSYNC` in them the write is durable when it
    /// returns. The kernel sets them for a single write too (`RWF_SYNC`, `RWF_DSYNC`).
    pub flags: i32,
    /// The writer may not keep set-id bits and file capabilities of the file.
    pub strip: bool,
    /// File capabilities go, whoever writes.
    pub capability: bool,
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
        let make = || sys::create(parent.fd(), name, mode);
        let made = self.made_by(caller, make);
        let made = made.map_err(|error| match error.raw_os_error() {
            Some(libc::EEXIST) if flags & libc::O_EXCL == 0 => sys::errno(libc::ESTALE),
            _ => error,
        })?;
        let stat = sys::stat(made.as_raw_fd())?;
        self.open_new(made, flags)
            .inspect_err(|_| self.remove_unopened(&parent, name, &stat))
    }

    /// A failed open leaves no file behind; unless the name is another file's by now.
    fn remove_unopened(&self, parent: &Node, name: &OsStr, made: &Stat) {
        let now = sys::open_node(parent.fd(), name).and_then(|fd| sys::stat(fd.as_raw_fd()));
        if now.is_ok_and(|now| (now.st_dev, now.st_ino) == (made.st_dev, made.st_ino)) {
            let _ = self.unlink(parent.id(), name);
        }
    }

    /// Opens the file that `made` made: by its descriptor, for its name may lead elsewhere by now.
    fn open_new(&self, made: OwnedFd, flags: i32) -> io::Result<(Entry, Opened)> {
        self.make_room();
        let fd = sys::reopen(made.as_raw_fd(), libc::O_PATH)?;
        let stat = sys::stat(fd.as_raw_fd())?;
        let node = self.nodes.lookup(fd, &stat);
        let id = node.id();
        assert!(is_file(&stat), "node {id} was made as a file");
        let before = lock(&node.fresh).replace(made.into());
        assert!(before.is_none(), "node {id} is made once");
        let opened = self.open_node(Arc::clone(&node), flags);
        // Somebody else may have opened it before.
        drop(lock(&node.fresh).take());
        match opened {
            Ok(opened) => Ok((Entry { id, stat }, opened)),
            Err(error) => {
                self.forget(id, 1);
                Err(error)
            }
        }
    }

    fn open_node(&self, node: Arc<Node>, flags: i32) -> io::Result<Opened> {
        let object = self.objects.acquire(&node)?;
        let writes = flags & libc::O_ACCMODE != libc::O_RDONLY;
        let result = match object.write_error {
            Some(code) if writes || flags & libc::O_TRUNC != 0 => Err(sys::errno(code)),
            _ if flags & libc::O_TRUNC != 0 => self.objects.engine().truncate(&object.object, 0),
            _ => Ok(()),
        };
        if let Err(error) = result {
            self.objects.release(&node);
            return Err(error);
        }
        let refused = writes && object.write_error.is_some();
        assert!(!refused, "node {} cannot be written", node.id());
        let mapped = object.mapped;
        let handle = self.handles.add(Handle::File(FileHandle {
            told: Told::by(&object.object),
            node,
            object,
            durable: Durable::from_flags(flags),
        }));
        Ok(Opened { handle, mapped })
    }

    /// The object of a file's handle.
    pub(crate) fn object(&self, handle: u64) -> Option<Arc<OpenObject>> {
        match &*self.handles.get(handle).ok()? {
            Handle::File(file) => {
                let shared = self.objects.is_open(&file.node, &file.object);
                assert!(shared, "invariant 1: handles of one inode share its object");
                Some(Arc::clone(&file.object))
            }
            _ => None,
        }
    }

    /// Whether the kernel may serve an open file from base: one that the rules keep out of the
    /// tier, and that has no privileges, which the kernel would not take away.
    pub(crate) fn allow_passthrough(&self, handle: u64) -> bool {
        let Ok(handle) = self.handles.get(handle) else {
            return false;
        };
        let Handle::File(FileHandle { node, object, .. }) = &*handle else {
            return false;
        };
        !object.class.cached
            && !has_privileges(node)
            && self.objects.engine().allow_passthrough(&object.object)
    }

    /// Takes set-id bits and file capabilities from an open file.
    ///
    /// # Errors
    /// Whatever the base reports.
    pub(crate) fn strip(&self, handle: u64) -> io::Result<()> {
        match &*self.handle(handle)? {
            Handle::File(file) => self.strip_privileges(&file.node, true),
            _ => Ok(()),
        }
    }

    /// Closes a handle, of a file or a directory. It leaves the table last: a file that nobody has
    /// open, as `status` counts, is one whose stamp was taken.
    ///
    /// Whatever the fence says: the kernel tells of a close once, and forgets the inode next.
    ///
    /// # Errors
    /// `EBADF` when there is no such handle.
    pub fn release(&self, handle: u64) -> io::Result<()> {
        if let Handle::File(file) = &*self.handles.get(handle)? {
            self.objects.release(&file.node);
        }
        self.handles.remove(handle)?;
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
                let hints = self.read_hints(caller, object, offset, buf.len() as u64);
                let request = Request {
                    object: &object.object,
                    offset,
                    hints,
                    client: caller.tid,
                };
                let read = self.objects.engine().read(&request, buf)?;
                assert!(read <= buf.len(), "{read} of {} bytes", buf.len());
                Ok(read)
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

    fn read_hints(&self, caller: Caller, object: &OpenObject, offset: u64, len: u64) -> HintSet {
        let role = self.roles.of(caller.tid);
        let (hints, detected) = object.read_hints(role, offset, len);
        match (&self.plans, object.relation) {
            (Some(plans), Some(relation)) => plans.hint(hints, (caller, role), relation, detected),
            _ => hints,
        }
    }

    /// Begins a read as [`Engine::start_read`] does, of at most `most` bytes from flash. Never
    /// waits for base, for the fence neither.
    pub(crate) fn start_read(
        &self,
        caller: Caller,
        handle: u64,
        offset: u64,
        buf: &mut [u8],
        most: usize,
    ) -> ReadStarted {
        // What it is used for is checked below: `handle` may wait for a look at the fence.
        let Ok(handle) = self.handles.get(handle) else {
            return ReadStarted::Waits;
        };
        let Handle::File(FileHandle { object, .. }) = &*handle else {
            return ReadStarted::Waits;
        };
        if !self.engine().passes_fence_now() {
            return ReadStarted::Waits;
        }
        let len = buf.len() as u64;
        let hints = || self.read_hints(caller, object, offset, len);
        let at = (offset, caller.tid);
        self.engine()
            .start_read(&object.object, at, buf, most, hints)
    }

    /// The engine behind it.
    pub fn engine(&self) -> &Engine {
        self.objects.engine()
    }

    /// Writes all of `data` at `offset`.
    ///
    /// # Errors
    /// Whatever the tier reports.
    pub fn write(
        &self,
        caller: Caller,
        handle: u64,
        offset: u64,
        data: &[u8],
        options: WriteOptions,
    ) -> io::Result<()> {
        match &*self.handle(handle)? {
            Handle::File(file) => {
                if options.strip || options.capability {
                    self.strip_privileges(&file.node, options.strip)?;
                }
                let object = &file.object;
                let hints = object.write_hints(self.roles.of(caller.tid));
                let request = Request {
                    object: &object.object,
                    offset,
                    hints,
                    client: caller.tid,
                };
                self.objects.engine().write(&request, data)?;
                self.make_durable(file, Durable::from_flags(options.flags))
            }
            Handle::Control(ControlHandle { index, .. }) => self.control()?.write(*index, data),
            Handle::Dir(_) | Handle::ControlDir => Err(sys::errno(libc::EISDIR)),
        }
    }

    fn make_durable(&self, file: &FileHandle, durable: Option<Durable>) -> io::Result<()> {
        let Some(durable) = durable else {
            return Ok(());
        };
        let engine = self.objects.engine();
        engine.sync_for(&file.object.object, &file.told, durable == Durable::Data)
    }

    /// Makes a file's completed writes durable on the base.
    ///
    /// # Errors
    /// Whatever the base reports; what it reported to another handle of the file too, once.
    pub fn fsync(&self, handle: u64, data_only: bool) -> io::Result<()> {
        match &*self.handle(handle)? {
            Handle::File(file) => {
                let (object, told) = (&file.object.object, &file.told);
                self.objects.engine().sync_for(object, told, data_only)
            }
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
        let Handle::File(file) = &*handle else {
            return Err(sys::errno(libc::EBADF));
        };
        let (object, engine) = (&file.object, self.objects.engine());
        let end = end_of(&object.file, offset, len)?;
        if mode & PUNCH != 0 {
            engine.punch(&object.object, offset, len)?;
            return self.make_durable(file, file.durable);
        }
        if mode & ZERO != 0 {
            engine.punch(&object.object, offset, len)?;
        }
        // Zeroed by now, or not to be: allocating alone changes no bytes, so that a write beside
        // it is not lost on base while the tier has it.
        let mode = mode & !ZERO;
        let (from, length) = (signed(offset)?, signed(len)?);
        let longest = if mode & KEEP == 0 { end } else { 0 };
        self.objects.change(object.file.as_raw_fd(), || {
            engine.allocate(&object.object, longest, || {
                sys::fallocate(&object.file, mode, from, length)
            })
        })?;
        self.make_durable(file, file.durable)
    }
}

/// Where a range ends; `EFBIG` when no file of this file system reaches that far.
fn end_of(file: &File, offset: u64, len: u64) -> io::Result<u64> {
    let too_far = || sys::errno(libc::EFBIG);
    let end = offset.checked_add(len).ok_or_else(too_far)?;
    // Base alone knows its longest file, and refuses to seek past it. Nothing uses the position.
    let reached = sys::lseek(file.as_raw_fd(), signed(end)?, libc::SEEK_SET);
    assert!(end >= offset);
    reached.map(|_| end).map_err(|_| too_far())
}

fn signed(value: u64) -> io::Result<i64> {
    i64::try_from(value).map_err(|_| sys::errno(libc::EFBIG))
}
