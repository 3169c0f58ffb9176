//! Directory entries: look up, make, remove, link, rename.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use super::{Caller, Entry, Fs};
use crate::control::{CONTROL_DIR, Control};
use crate::inode::{Node, ROOT};
use crate::sys;

impl Fs {
    /// Finds a name in a directory.
    ///
    /// # Errors
    /// `ENOENT`, and whatever the base reports.
    pub fn lookup(&self, parent: u64, name: &OsStr) -> io::Result<Entry> {
        if let Some(control) = &self.control {
            let id = if parent == ROOT && name == CONTROL_DIR {
                Some(Control::dir())
            } else if parent == Control::dir() {
                Some(control.find(name)?)
            } else {
                None
            };
            if let Some(id) = id {
                return Ok(Entry {
                    id,
                    stat: control.stat(id)?,
                });
            }
        }
        let parent = self.node(parent)?;
        self.find(&parent, name)
    }

    /// Takes back `count` lookups of a node.
    pub fn forget(&self, id: u64, count: u64) {
        if !Control::owns(id) {
            self.nodes.forget(id, count);
        }
    }

    /// Makes a file, fifo, socket or device node.
    ///
    /// # Errors
    /// `EEXIST`, and whatever the base reports.
    pub fn mknod(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        mode: u32,
        rdev: u64,
    ) -> io::Result<Entry> {
        let parent = self.parent_for_new(parent, name)?;
        sys::mknod(parent.fd(), name, mode, rdev)?;
        self.adopt(caller, &parent, name, Some(mode))
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// `EEXIST`, and whatever the base reports.
    pub fn mkdir(&self, caller: Caller, parent: u64, name: &OsStr, mode: u32) -> io::Result<Entry> {
        let parent = self.parent_for_new(parent, name)?;
        sys::mkdir(parent.fd(), name, mode)?;
        let inherited = parent.stat()?.st_mode & libc::S_ISGID;
        self.adopt(caller, &parent, name, Some(mode | inherited))
    }

    /// Makes a symbolic link.
    ///
    /// # Errors
    /// `EEXIST`, and whatever the base reports.
    pub fn symlink(
        &self,
        caller: Caller,
        parent: u64,
        name: &OsStr,
        target: &OsStr,
    ) -> io::Result<Entry> {
        let parent = self.parent_for_new(parent, name)?;
        sys::symlink(target, parent.fd(), name)?;
        self.adopt(caller, &parent, name, None)
    }

    /// Another name for a node.
    ///
    /// # Errors
    /// `EEXIST`, and whatever the base reports.
    pub fn link(&self, id: u64, parent: u64, name: &OsStr) -> io::Result<Entry> {
        let node = self.dir(id)?;
        let parent = self.parent_for_new(parent, name)?;
        sys::link(node.fd(), parent.fd(), name)?;
        self.find(&parent, name)
    }

    /// Removes a file's name.
    ///
    /// # Errors
    /// `ENOENT`, and whatever the base reports.
    pub fn unlink(&self, parent: u64, name: &OsStr) -> io::Result<()> {
        let parent = self.dir(parent)?;
        let victim = sys::open_node(parent.fd(), name);
        self.losing_name(victim.ok().as_ref(), || {
            sys::unlink(parent.fd(), name, false)
        })
    }

    /// Does what takes a name from `victim`, telling the tier before and after.
    fn losing_name(
        &self,
        victim: Option<&OwnedFd>,
        change: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let Some(victim) = victim else {
            return change();
        };
        self.objects.losing_name(victim)?;
        let changed = change();
        match &changed {
            Ok(()) => self.objects.lost_name(victim),
            Err(_) => self.objects.kept_name(victim),
        }
        changed
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// `ENOTEMPTY`, and whatever the base reports.
    pub fn rmdir(&self, parent: u64, name: &OsStr) -> io::Result<()> {
        sys::unlink(self.dir(parent)?.fd(), name, true)
    }

    /// Moves a name, with the flags of `renameat2`.
    ///
    /// # Errors
    /// `EEXIST` with `RENAME_NOREPLACE`, `EINVAL` for flags the base does not know, and
    /// whatever the base reports.
    pub fn rename(&self, from: (u64, &OsStr), to: (u64, &OsStr), flags: u32) -> io::Result<()> {
        let (old_parent, new_parent) = (self.dir(from.0)?, self.parent_for_new(to.0, to.1)?);
        let exchange = flags & libc::RENAME_EXCHANGE != 0;
        let victim = sys::open_node(new_parent.fd(), to.1);
        let victim = victim.ok().filter(|_| !exchange);
        self.losing_name(victim.as_ref(), || {
            sys::rename((old_parent.fd(), from.1), (new_parent.fd(), to.1), flags)
        })?;
        self.note_name(new_parent.fd(), to.1);
        if exchange {
            self.note_name(old_parent.fd(), from.1);
        }
        Ok(())
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// `EINVAL` when the node is none.
    pub fn readlink(&self, id: u64) -> io::Result<OsString> {
        sys::readlink(self.dir(id)?.fd())
    }

    /// A directory that `name` may be made in: not the control directory, nor over its name.
    pub(super) fn parent_for_new(&self, parent: u64, name: &OsStr) -> io::Result<Arc<Node>> {
        if self.control.is_some() && parent == ROOT && name == CONTROL_DIR {
            return Err(sys::errno(libc::EEXIST));
        }
        self.dir(parent)
    }

    /// Gives a new file to the caller with exactly the mode asked for, and looks it up.
    ///
    /// The kernel has applied the caller's umask; the process's own must not apply again. In
    /// a set-group-id directory the group is the directory's, as on the base.
    pub(super) fn adopt(
        &self,
        caller: Caller,
        parent: &Node,
        name: &OsStr,
        mode: Option<u32>,
    ) -> io::Result<Entry> {
        let fd = sys::open_node(parent.fd(), name)?;
        let stat = sys::stat(fd.as_raw_fd())?;
        let inherits_group = parent.stat()?.st_mode & libc::S_ISGID != 0;
        if self.privileged {
            let uid = (stat.st_uid != caller.uid).then_some(caller.uid);
            let gid = (!inherits_group && stat.st_gid != caller.gid).then_some(caller.gid);
            if uid.is_some() || gid.is_some() {
                sys::chown(fd.as_raw_fd(), uid, gid)?;
            }
        }
        if let Some(mode) = mode.filter(|mode| (mode ^ stat.st_mode) & 0o7777 != 0) {
            sys::chmod(fd.as_raw_fd(), mode)?;
        }
        let stat = sys::stat(fd.as_raw_fd())?;
        let node = self.nodes.lookup(fd, &stat);
        Ok(Entry {
            id: node.id(),
            stat,
        })
    }

    /// Tells the tier what an open file is called now.
    fn note_name(&self, parent: RawFd, name: &OsStr) {
        let Ok(fd) = sys::open_node(parent, name) else {
            return;
        };
        let Ok(stat) = sys::stat(fd.as_raw_fd()) else {
            return;
        };
        if let Some(node) = self.nodes.peek(&stat) {
            self.objects.renamed(&node);
        }
    }
}
