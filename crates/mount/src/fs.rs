//! The file system: operations on nodes and handles, without FUSE.
//!
//! Names and attributes are the base's own; this layer adds nothing to them and caches
//! nothing. File contents go through the tier. Operations are grouped by what they work on:
//! [`names`] (directory entries), [`attr`] (attributes, extended attributes), [`file`]
//! (contents of files), [`seek`] (where they have any), [`dir`] (listings).
//!
//! Every operation may be called from many threads. Locks are held for look-ups only, never
//! across I/O, except a node's own: its object slot while that one inode is opened or closed, and
//! the one of its mode.

mod attr;
mod dir;
mod file;
mod names;
mod seek;

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thermocline::classify::Rules;
use thermocline::{Engine, Object};

use crate::acting::Acting;
use crate::control::{Control, ControlFiles};
use crate::handle::{Handle, Handles};
use crate::inode::{Node, Nodes};
use crate::object::{DeviceFactory, Objects};
use crate::plans::{PlanReader, PlanSource};
use crate::prune::Pruner;
use crate::roles::Roles;
use crate::sys::{self, Stat};

pub use attr::{SetAttr, Time};
pub use dir::Listed;
pub use file::{Opened, WriteOptions};

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Thread; 0 when the kernel asks on nobody's behalf.
    pub tid: u32,
}

/// A node as the kernel is told about it.
#[derive(Clone, Copy)]
pub struct Entry {
    /// The node's id.
    pub id: u64,
    /// Its attributes.
    pub stat: Stat,
}

/// A file system over a base directory.
pub struct Fs {
    nodes: Nodes,
    handles: Handles,
    objects: Objects,
    control: Option<Control>,
    roles: Roles,
    plans: Option<PlanReader>,
    pruner: Pruner,
    privileged: bool,
}

impl std::fmt::Debug for Fs {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fs")
            .field("nodes", &self.nodes.len())
            .finish_non_exhaustive()
    }
}

impl Fs {
    /// A file system over `base`, which must be a directory.
    ///
    /// # Errors
    /// Whatever opening the directory gives.
    pub fn new(
        base: PathBuf,
        engine: Arc<Engine>,
        devices: DeviceFactory,
        rules: Rules,
        control: Option<Arc<dyn ControlFiles>>,
    ) -> io::Result<Self> {
        let base = base.canonicalize()?;
        assert!(base.is_absolute());
        let nodes = Nodes::new(sys::open_base(&base)?)?;
        Ok(Self {
            nodes,
            handles: Handles::default(),
            objects: Objects::new(engine, devices, base, rules),
            control: control.map(Control::new),
            roles: Roles::start()?,
            plans: None,
            pruner: Pruner::new(usize::MAX),
            privileged: sys::effective_uid() == 0,
        })
    }

    /// The same, with hints from query plans for reads.
    ///
    /// # Errors
    /// Whatever starting a thread gives.
    pub fn with_plans(self, source: Option<PlanSource>) -> io::Result<Self> {
        let plans = source.map(PlanReader::start).transpose()?;
        Ok(Self { plans, ..self })
    }

    /// The same, with a login at a server that tells what its threads are: an option file.
    ///
    /// # Errors
    /// That of opening the option file, and of starting a thread.
    pub(crate) fn with_login(self, options: &Path) -> io::Result<Self> {
        let roles = Roles::start_with(options)?;
        Ok(Self { roles, ..self })
    }

    /// The same, with the kernel asked to forget inodes when it holds more than `most`.
    #[must_use]
    pub(crate) fn with_inodes_max(self, most: usize) -> Self {
        Self {
            pruner: Pruner::new(most),
            ..self
        }
    }

    pub(crate) fn pruner(&self) -> &Pruner {
        &self.pruner
    }

    pub(crate) fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    /// Opens the files that dirty pages of the tier wait for, and compares the others that it has
    /// pages of; to be called before the first request. `discard` gives up pages whose files are
    /// gone or were changed.
    ///
    /// # Errors
    /// Those of [`Engine::adopt`].
    pub fn adopt_dirty(
        &self,
        discard: impl Into<thermocline::Discard>,
    ) -> Result<(), thermocline::Error> {
        let find = |identity: &thermocline::Identity, name: &str, anywhere: bool| {
            self.objects.find(identity, name, anywhere)
        };
        self.objects.engine().adopt(&find, discard)
    }

    /// Opens the regular file at `name`, a path relative to the base, past the kernel; `None` where
    /// there is none. To be closed by [`Engine::close_aside`].
    ///
    /// # Errors
    /// Those of opening it.
    pub fn open_named(&self, name: &str) -> io::Result<Option<Arc<Object>>> {
        self.objects.open_named(name)
    }

    /// How many inodes and how many open files the kernel holds.
    #[must_use]
    pub fn held(&self) -> (usize, usize) {
        (self.nodes.len(), self.handles.len())
    }

    /// Closes what the kernel left open when the mount went away.
    pub fn close_all(&self) {
        for node in self.nodes.all() {
            self.objects.close(&node);
        }
    }

    fn control(&self) -> io::Result<&Control> {
        self.control
            .as_ref()
            .ok_or_else(|| sys::errno(libc::ENOENT))
    }

    /// A node that names can be made or removed in.
    fn dir(&self, id: u64) -> io::Result<Arc<Node>> {
        if Control::owns(id) {
            Err(sys::errno(libc::EPERM))
        } else {
            self.node(id)
        }
    }

    /// The node with this id, while the base is ours to use.
    fn node(&self, id: u64) -> io::Result<Arc<Node>> {
        self.objects.engine().check_fence()?;
        self.nodes.get(id)
    }

    /// Has inodes pruned when there are too many. To be called before one more is opened: without a
    /// descriptor left nothing after that would be reached.
    fn make_room(&self) {
        self.pruner.note(self.nodes.len());
    }

    /// The node under a name, counted as one lookup.
    fn find(&self, parent: &Node, name: &OsStr) -> io::Result<Entry> {
        self.make_room();
        let fd = sys::open_node(parent.fd(), name)?;
        let mut stat = sys::stat(fd.as_raw_fd())?;
        let node = self.nodes.lookup(fd, &stat);
        // The kernel answers `stat` with what it is told here.
        if self.objects.touch(&node) {
            stat = node.stat().ok().filter(|now| node.is(now)).unwrap_or(stat);
        }
        self.count_blocks(node.fd(), &mut stat);
        assert!(node.is(&stat), "node {} is another inode", node.id());
        Ok(Entry {
            id: node.id(),
            stat,
        })
    }

    /// Runs `make`, which makes an inode, as the caller: what it makes belongs to the caller with
    /// the mode asked for.
    fn made_by<T>(&self, caller: Caller, make: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
        sys::own_umask();
        if !self.privileged {
            return make();
        }
        let acting = Acting::start(caller.uid, caller.gid)?;
        let made = make();
        drop(acting);
        assert_eq!(sys::fs_user(), 0, "the thread is root's again");
        made
    }

    /// The handle with this number, for what uses the base.
    fn handle(&self, handle: u64) -> io::Result<Arc<Handle>> {
        let found = self.handles.get(handle)?;
        match &*found {
            Handle::File(_) | Handle::Dir(_) => self.objects.engine().check_fence()?,
            // Control files say what is wrong.
            Handle::Control(_) | Handle::ControlDir => {}
        }
        Ok(found)
    }
}
