//! Directory entries: look up, make, remove, link, rename.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::{Caller, Entry, Fs};
use crate::control::{CONTROL_DIR, Control};
use crate::inode::{Node, ROOT};
use crate::object::is_own_name;
use crate::sys;

/// How long removing or listing a directory waits for files that base has put aside.
const ASIDE_PATIENCE: Duration = Duration::from_secs(1);
const ASIDE_PAUSE: Duration = Duration::from_millis(2);

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
                assert!(Control::owns(id), "{id} is not the control directory's");
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
        if Control::owns(id) {
            return;
        }
        // The descriptor is closed here, without a lock.
        if let Some(node) = self.nodes.forget(id, count) {
            self.objects.forgotten(&node);
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
        let room = self.room_for(&parent)?;
        self.made_by(caller, || sys::mknod(parent.fd(), name, mode, rdev))?;
        self.find_in(room, &parent, name)
    }

    /// Makes a directory.
    ///
    /// # Errors
    /// `EEXIST`, and whatever the base reports.
    pub fn mkdir(&self, caller: Caller, parent: u64, name: &OsStr, mode: u32) -> io::Result<Entry> {
        let parent = self.parent_for_new(parent, name)?;
        let room = self.room_for(&parent)?;
        self.made_by(caller, || sys::mkdir(parent.fd(), name, mode))?;
        self.find_in(room, &parent, name)
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
        let room = self.room_for(&parent)?;
        self.made_by(caller, || sys::symlink(target, parent.fd(), name))?;
        self.find_in(room, &parent, name)
    }

    /// Another name for a node.
    ///
    /// # Errors
    /// `EEXIST`, and whatever the base reports.
    pub fn link(&self, id: u64, parent: u64, name: &OsStr) -> io::Result<Entry> {
        let node = self.dir(id)?;
        let parent = self.parent_for_new(parent, name)?;
        let room = self.room_for(&parent)?;
        self.objects
            .change(node.fd(), || sys::link(node.fd(), parent.fd(), name))?;
        self.find_in(room, &parent, name)
    }

    /// A descriptor's room, taken before a name is made: who is told that it failed finds no name.
    fn room_for(&self, parent: &Node) -> io::Result<OwnedFd> {
        self.make_room();
        sys::open_directory(parent.fd())
    }

    /// Finds the name that was made, in the room that was kept for it.
    fn find_in(&self, room: OwnedFd, parent: &Node, name: &OsStr) -> io::Result<Entry> {
        drop(room);
        let found = self.find(parent, name)?;
        assert!(found.id != parent.id(), "a directory is not in itself");
        Ok(found)
    }

    /// Removes a file's name.
    ///
    /// # Errors
    /// `ENOENT`, and whatever the base reports.
    pub fn unlink(&self, parent: u64, name: &OsStr) -> io::Result<()> {
        let parent = self.parent_of(parent, name)?;
        // What cannot be looked at keeps its name: the tier could not be told.
        let victim = sys::open_node(parent.fd(), name)?;
        self.losing_name(&victim, &parent, || sys::unlink(parent.fd(), name, false))
    }

    /// Does what takes a name in `parent` from `victim`, telling the tier before and after.
    fn losing_name(
        &self,
        victim: &OwnedFd,
        parent: &Arc<Node>,
        change: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let node = self.nodes.peek(victim.as_raw_fd())?;
        self.objects
            .losing_name(victim, node.as_deref(), parent, change)
    }

    /// Removes an empty directory. Some bases keep a removed file under a name of their own while
    /// it is open, as the tier may have it: then it is closed first, and for at most
    /// [`ASIDE_PATIENCE`] the kernel is waited for, which tells late that nobody has it: also
    /// of a file that was removed long ago.
    ///
    /// # Errors
    /// `ENOTEMPTY`, and whatever the base reports.
    pub fn rmdir(&self, parent: u64, name: &OsStr) -> io::Result<()> {
        let parent = self.parent_of(parent, name)?;
        let mut pauses = ASIDE_PATIENCE.as_millis() / ASIDE_PAUSE.as_millis();
        loop {
            let removed = sys::unlink(parent.fd(), name, true);
            let Err(error) = &removed else {
                return removed;
            };
            let is_full = matches!(error.raw_os_error(), Some(libc::ENOTEMPTY | libc::EEXIST));
            let waits = is_full && pauses > 0 && sys::puts_aside(parent.fd());
            let path = sys::descriptor_path(parent.fd()).join(name);
            // Those may be gone by now.
            if !waits || held(&path) == Held::Others {
                return removed;
            }
            pauses -= 1;
            self.let_go_of_put_aside();
        }
    }

    /// Waits, as [`Self::rmdir`] does, before a directory is listed in which nothing is left but
    /// files that base has put aside: whoever removed them may ask whether it is empty. Where the
    /// last change of the directory is older, somebody has those files open, and nothing is waited
    /// for.
    pub(super) fn wait_for_put_aside(&self, directory: &Node) {
        let fd = directory.fd();
        let is_new = || sys::stat(fd).is_ok_and(|stat| is_new(&stat));
        if !is_new() || !sys::puts_aside(fd) {
            return;
        }
        let path = sys::descriptor_path(fd);
        let until = Instant::now() + ASIDE_PATIENCE;
        while held(&path) == Held::PutAside && is_new() && Instant::now() < until {
            self.let_go_of_put_aside();
        }
    }

    /// Closes what the tier has open of files without a name, or gives the kernel a moment.
    fn let_go_of_put_aside(&self) {
        if !self.objects.bury() {
            std::thread::sleep(ASIDE_PAUSE);
        }
    }

    /// Moves a name, with the flags of `renameat2`. None leaves a whiteout: that would be the
    /// mount's, not the caller's.
    ///
    /// # Errors
    /// `EEXIST` with `RENAME_NOREPLACE`, `EINVAL` for flags the base does not know, and
    /// whatever the base reports.
    pub fn rename(&self, from: (u64, &OsStr), to: (u64, &OsStr), flags: u32) -> io::Result<()> {
        let old_parent = self.parent_of(from.0, from.1)?;
        let new_parent = self.parent_for_new(to.0, to.1)?;
        if flags & libc::RENAME_WHITEOUT != 0 {
            return Err(sys::errno(libc::EINVAL));
        }
        let exchange = flags & libc::RENAME_EXCHANGE != 0;
        let moved = sys::open_node(old_parent.fd(), from.1)?;
        let victim = match sys::open_node(new_parent.fd(), to.1) {
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => None,
            found => Some(found?),
        };
        let rename = || sys::rename((old_parent.fd(), from.1), (new_parent.fd(), to.1), flags);
        // The moved inode's time of change changes too, and that of one it changes places with.
        self.objects.change(moved.as_raw_fd(), || match &victim {
            Some(other) if exchange => self.objects.change(other.as_raw_fd(), rename),
            Some(victim) => self.losing_name(victim, &new_parent, rename),
            None => rename(),
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
        if self.is_control(parent, name) {
            return Err(sys::errno(libc::EEXIST));
        }
        self.dir(parent)
    }

    /// A directory that `name` may be taken from. What base has under the control directory's name
    /// may be its mark.
    fn parent_of(&self, parent: u64, name: &OsStr) -> io::Result<Arc<Node>> {
        if self.is_control(parent, name) {
            return Err(sys::errno(libc::EPERM));
        }
        self.dir(parent)
    }

    fn is_control(&self, parent: u64, name: &OsStr) -> bool {
        self.control.is_some() && parent == ROOT && name == CONTROL_DIR
    }

    /// Tells the tier what a file is called now.
    fn note_name(&self, parent: RawFd, name: &OsStr) {
        if let Ok(fd) = sys::open_node(parent, name) {
            self.objects.renamed(fd.as_raw_fd());
        }
    }
}

/// What is in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Held {
    /// Nothing.
    Nothing,
    /// Files that base has put aside, and nothing else.
    PutAside,
    /// Something else, or nobody can tell.
    Others,
}

fn held(directory: &Path) -> Held {
    let Ok(entries) = std::fs::read_dir(directory) else {
        return Held::Others;
    };
    let mut held = Held::Nothing;
    for entry in entries {
        match entry {
            Ok(entry) if is_own_name(&entry.file_name()) => held = Held::PutAside,
            _ => return Held::Others,
        }
    }
    held
}

/// Whether entries of a directory were made or removed within [`ASIDE_PATIENCE`].
fn is_new(directory: &sys::Stat) -> bool {
    let kind = directory.st_mode & libc::S_IFMT;
    assert_eq!(kind, libc::S_IFDIR, "entries are in a directory");
    let age = changed_at(directory).elapsed();
    age.is_ok_and(|age| age < ASIDE_PATIENCE)
}

/// When entries of a directory were last made or removed.
fn changed_at(stat: &sys::Stat) -> SystemTime {
    let whole = Duration::from_secs(u64::try_from(stat.st_mtime).unwrap_or(0));
    let rest = Duration::from_nanos(u64::try_from(stat.st_mtime_nsec).unwrap_or(0));
    UNIX_EPOCH + whole + rest
}
