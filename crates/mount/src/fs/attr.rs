//! Attributes: `stat`, mode, owner, times, length, extended attributes, file system statistics.

use std::ffi::OsStr;
use std::io;
use std::os::fd::RawFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use thermocline::claim::ATTRIBUTE;

use super::{Caller, Fs, Stat};
use crate::control::Control;
use crate::handle::Handle;
use crate::inode::{Node, ROOT};
use crate::lock::lock;
use crate::object::is_file;
use crate::sys;

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Time {
    /// The base's own clock.
    Now,
    /// Seconds since 1970 and nanoseconds.
    At(i64, u32),
}

/// Room for names of extended attributes that are added while they are listed.
const XATTR_ROOM: usize = 1024;
/// The system lists no more of them (`XATTR_LIST_MAX`).
const XATTRS_MAX: usize = 64 << 10;

/// Attributes to change; `None` leaves one as it is.
#[derive(Clone, Copy, Debug, Default)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Length in bytes.
    pub size: Option<u64>,
    /// Access time.
    pub atime: Option<Time>,
    /// Modification time.
    pub mtime: Option<Time>,
    /// With a length: set-id bits go.
    pub strip: bool,
}

impl Fs {
    /// Attributes of a node.
    ///
    /// # Errors
    /// Whatever the base reports.
    pub fn getattr(&self, id: u64) -> io::Result<Stat> {
        if Control::owns(id) {
            return self.control()?.stat(id);
        }
        let node = match id {
            // The way to the control files stays open.
            ROOT => self.nodes.get(id)?,
            _ => self.node(id)?,
        };
        self.objects.touch(&node);
        let mut stat = node.stat()?;
        self.count_blocks(node.fd(), &mut stat);
        if id != ROOT {
            stat.st_ino = id;
        }
        Ok(stat)
    }

    /// Changes attributes; returns what they are afterwards.
    ///
    /// # Errors
    /// Whatever the base reports. Attributes before the failed one are changed.
    pub fn setattr(&self, id: u64, set: &SetAttr) -> io::Result<Stat> {
        if Control::owns(id) {
            // A shell's `>` truncates before it writes.
            let only_size = SetAttr {
                size: None,
                mtime: None,
                atime: None,
                ..*set
            };
            let refused = only_size.mode.or(only_size.uid).or(only_size.gid).is_some();
            return if refused {
                Err(sys::errno(libc::EPERM))
            } else {
                self.getattr(id)
            };
        }
        let node = self.node(id)?;
        if let Some(size) = set.size {
            let object = self.objects.acquire(&node)?;
            let result = match object.write_error {
                Some(code) => Err(sys::errno(code)),
                None if set.strip => self.strip_privileges(&node, true),
                None => Ok(()),
            };
            let result = result.and_then(|()| self.objects.engine().truncate(&object.object, size));
            self.objects.release(&node);
            result?;
        }
        // What was written before shows now, not later than what is set here.
        self.objects.touch(&node);
        self.objects.change(node.fd(), || {
            let chown = set.uid.is_some() || set.gid.is_some();
            let _mode = (chown || set.mode.is_some()).then(|| {
                let guard = lock(&node.mode);
                node.harmless.store(false, Ordering::Release);
                guard
            });
            if chown {
                sys::chown(node.fd(), set.uid, set.gid)?;
            }
            if let Some(mode) = set.mode {
                sys::chmod(node.fd(), mode)?;
            }
            if set.atime.is_some() || set.mtime.is_some() {
                let times = [timespec(set.atime), timespec(set.mtime)];
                self.objects.set_times(node.fd(), times)?;
            }
            Ok(())
        })?;
        self.getattr(id)
    }

    /// Statistics of the base's file system.
    ///
    /// # Errors
    /// Whatever the base reports.
    pub fn statfs(&self) -> io::Result<libc::statvfs64> {
        sys::statvfs(self.node(ROOT)?.fd())
    }

    /// Sets an extended attribute, with the flags of `setxattr`.
    ///
    /// # Errors
    /// `EPERM` for what is not the caller's to change, and whatever the base reports.
    pub fn setxattr(
        &self,
        caller: Caller,
        id: u64,
        name: &OsStr,
        value: &[u8],
        flags: i32,
    ) -> io::Result<()> {
        let node = self.changeable(caller, id, name)?;
        let _mode = lock(&node.mode);
        node.harmless.store(false, Ordering::Release); // it may be a file capability
        self.objects
            .change(node.fd(), || sys::setxattr(node.fd(), name, value, flags))
    }

    /// An extended attribute; with `size` 0 its length alone.
    ///
    /// # Errors
    /// `ENODATA` when there is none, `ERANGE` when it is longer than `size`.
    pub fn getxattr(&self, id: u64, name: &OsStr, size: u32) -> io::Result<(usize, Vec<u8>)> {
        if is_mark(id, name) {
            return Err(sys::errno(libc::ENODATA));
        }
        let node = self.attributed(id)?;
        let mut value = vec![0; size as usize];
        let len = sys::getxattr(node.fd(), name, &mut value)?;
        value.truncate(len);
        Ok((len, value))
    }

    /// The names of the extended attributes; with `size` 0 their length alone. Those of `trusted.`
    /// are root's to see.
    ///
    /// # Errors
    /// `ERANGE` when they are longer than `size`.
    pub fn listxattr(&self, caller: Caller, id: u64, size: u32) -> io::Result<(usize, Vec<u8>)> {
        let node = self.attributed(id)?;
        let size = size as usize;
        let names = every_xattr(&node)?;
        let seen = |name: &[u8]| {
            let name = name.strip_suffix(b"\0").unwrap_or(name);
            let of_root = name.starts_with(b"trusted.");
            !is_mark(id, OsStr::from_bytes(name)) && (caller.uid == 0 || !of_root)
        };
        let names = names.split_inclusive(|byte| *byte == 0);
        let names: Vec<u8> = names.filter(|name| seen(name)).flatten().copied().collect();
        match size {
            0 => Ok((names.len(), Vec::new())),
            _ if names.len() > size => Err(sys::errno(libc::ERANGE)),
            _ => Ok((names.len(), names)),
        }
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `ENODATA` when there is none, `EPERM` when it is not the caller's to change.
    pub fn removexattr(&self, caller: Caller, id: u64, name: &OsStr) -> io::Result<()> {
        let node = self.changeable(caller, id, name)?;
        self.objects
            .change(node.fd(), || sys::removexattr(node.fd(), name))
    }

    /// Attributes by handle, for files without a name.
    ///
    /// # Errors
    /// `EBADF` when the handle is not of a file.
    pub fn getattr_of(&self, handle: u64) -> io::Result<Stat> {
        match &*self.handle(handle)? {
            Handle::File(file) => self.getattr(file.node.id()),
            _ => Err(sys::errno(libc::EBADF)),
        }
    }

    /// A file of which base has no block at all, but the tier has: programs (`tar -S`) take a file
    /// without blocks for one long hole, and do not look.
    pub(super) fn count_blocks(&self, fd: RawFd, stat: &mut Stat) {
        let without = is_file(stat) && stat.st_size > 0 && stat.st_blocks == 0;
        if without && self.objects.is_newer(fd, stat) {
            stat.st_blocks = 1;
        }
    }

    /// Takes file capabilities from a file that is about to be changed, and set-id bits when
    /// `set_id`: by somebody without the right to keep them. File systems of the kernel do so
    /// too. That a file has none is remembered while it is known to the kernel: bits that are set
    /// on base meanwhile, behind the mount's back, stay.
    ///
    /// # Errors
    /// Whatever the base reports.
    pub(super) fn strip_privileges(&self, node: &Node, set_id: bool) -> io::Result<()> {
        if node.harmless.load(Ordering::Acquire) {
            return Ok(());
        }
        let _mode = lock(&node.mode);
        let mode = node.stat()?.st_mode & 0o7777;
        let stripped = without_set_id(mode);
        assert_eq!(
            without_set_id(stripped),
            stripped,
            "nothing is left to strip"
        );
        let capability = OsStr::new("security.capability");
        let has_capability = sys::has_xattr(node.fd(), capability);
        if has_capability || stripped != mode && set_id {
            // After a crash it is to be known that the mount did it.
            self.objects.change(node.fd(), || {
                if stripped != mode && set_id {
                    sys::chmod(node.fd(), stripped)?;
                }
                match sys::removexattr(node.fd(), capability) {
                    Err(error) if error.raw_os_error() == Some(libc::ENODATA) => Ok(()),
                    Err(error) if has_capability => Err(error),
                    _ => Ok(()),
                }
            })?;
        }
        node.harmless
            .store(set_id || stripped == mode, Ordering::Release);
        Ok(())
    }

    /// The node, if the caller may change this attribute of it. The kernel checks all others, but
    /// leaves `system.` to the file system: base would take root's mount for the caller.
    fn changeable(&self, caller: Caller, id: u64, name: &OsStr) -> io::Result<Arc<Node>> {
        let node = self.attributed(id)?;
        let theirs = || Ok::<_, io::Error>(caller.uid == 0 || node.stat()?.st_uid == caller.uid);
        if is_mark(id, name) || name.as_bytes().starts_with(b"system.") && !theirs()? {
            return Err(sys::errno(libc::EPERM));
        }
        Ok(node)
    }

    fn attributed(&self, id: u64) -> io::Result<Arc<Node>> {
        if Control::owns(id) {
            Err(sys::errno(libc::EOPNOTSUPP))
        } else {
            self.node(id)
        }
    }
}

/// The names of all extended attributes, whatever is added meanwhile.
fn every_xattr(node: &Node) -> io::Result<Vec<u8>> {
    let mut room = sys::listxattr(node.fd(), &mut [])? + XATTR_ROOM;
    loop {
        let mut names = vec![0; room];
        match sys::listxattr(node.fd(), &mut names) {
            Ok(len) => {
                assert!(len <= room, "{len} bytes of names");
                names.truncate(len);
                return Ok(names);
            }
            Err(error) if error.raw_os_error() == Some(libc::ERANGE) && room < XATTRS_MAX => {
                room = (room * 2).min(XATTRS_MAX);
            }
            Err(error) => return Err(error),
        }
    }
}

/// Whether a file has set-id bits or capabilities, or may have: its attributes cannot be read.
pub(super) fn has_privileges(node: &Node) -> bool {
    let plain = |stat: Stat| without_set_id(stat.st_mode & 0o7777) == stat.st_mode & 0o7777;
    !node.stat().is_ok_and(plain) || sys::has_xattr(node.fd(), OsStr::new("security.capability"))
}

/// Whether that is the mark of the base: not the database's to see or change.
fn is_mark(id: u64, name: &OsStr) -> bool {
    id == ROOT && name == ATTRIBUTE
}

/// A mode after a write: set-group-id without the group's right to execute means something else.
fn without_set_id(mode: u32) -> u32 {
    let group = libc::S_ISGID | libc::S_IXGRP;
    let stripped = match mode & group == group {
        true => mode & !(libc::S_ISUID | libc::S_ISGID),
        false => mode & !libc::S_ISUID,
    };
    assert_eq!((mode ^ stripped) & 0o1777, 0, "other bits stay");
    stripped
}

fn timespec(time: Option<Time>) -> libc::timespec {
    let (tv_sec, tv_nsec) = match time {
        None => (0, libc::UTIME_OMIT),
        Some(Time::Now) => (0, libc::UTIME_NOW),
        Some(Time::At(seconds, nanos)) => (seconds, i64::from(nanos)),
    };
    libc::timespec { tv_sec, tv_nsec }
}
