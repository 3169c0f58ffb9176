//! Open files as objects of the tier.
//!
//! States of a slot (one per node): *closed* (no handle has the inode open) and *open* (one
//! object, shared by `users` handles and operations in progress).
//! Transitions: [`Objects::acquire`] closed → open and open → open; [`Objects::release`]
//! open → open, and open → closed when the last user goes.
//!
//! Invariants
//! 1. `users` > 0 exactly while the slot holds an object.
//! 2. Handles of one inode share one base descriptor, opened for writing whenever the base
//!    allows it: permission was checked by the kernel when the handle was opened.
//! 3. An inode without a name left is trimmed when its last user goes, not when the name goes:
//!    databases unlink temporary files first and use them afterwards.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use thermocline::classify::path::object_group;
use thermocline::classify::{Access, FileClass, Rules, Streams};
use thermocline::device::Device;
use thermocline::{Engine, Identity, ObjectSpec, Stamp};
use thermocline_core::hint::{HintSet, RequestType, Role, hint_type};
use thermocline_core::page::ObjectId;

use crate::inode::Node;
use crate::lock::lock;
use crate::search;
use crate::sys::{self, Stat};

/// Makes the device an open base file is served by, perhaps at the pace of an emulated disk.
pub type DeviceFactory =
    Arc<dyn Fn(File, &BaseFile<'_>) -> io::Result<Arc<dyn Device>> + Send + Sync>;

/// What a [`DeviceFactory`] is told about a base file.
#[derive(Clone, Copy, Debug)]
pub struct BaseFile<'a> {
    /// Path relative to the mount.
    pub name: &'a str,
    /// The same number for the same inode every time: its place on an emulated disk.
    pub key: u64,
    /// What the rules say. Files that are not cached by the tier are best left to the page
    /// cache, as they are without a mount.
    pub class: FileClass,
}

/// One inode that is open.
pub(crate) struct OpenObject {
    /// The id the engine knows the inode by.
    pub(crate) id: ObjectId,
    /// The base file; for what the engine has no word for (seek, allocate).
    pub(crate) file: Arc<File>,
    /// What the rules said when it was opened.
    pub(crate) class: FileClass,
    /// Whether programs share memory through this file.
    pub(crate) mapped: bool,
    /// Why the base file could only be opened for reading.
    pub(crate) write_error: Option<i32>,
    hints: HintSet,
    streams: Mutex<Streams>,
}

impl std::fmt::Debug for OpenObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenObject")
            .field("id", &self.id)
            .field("class", &self.class)
            .finish()
    }
}

impl OpenObject {
    /// Hints of a read by `role`.
    pub(crate) fn read_hints(&self, role: Role, offset: u64, len: u64) -> HintSet {
        let access = lock(&self.streams).note(offset, len);
        let request = match access {
            Access::Sequential => RequestType::SequentialRead,
            Access::Random => RequestType::Read,
        };
        self.with(request, role)
    }

    /// Hints of a write by `role`.
    pub(crate) fn write_hints(&self, role: Role) -> HintSet {
        let request = match role {
            Role::Checkpointer | Role::Recovery => RequestType::RecoveryWrite,
            Role::BackgroundWriter => RequestType::ReplacementWrite,
            Role::Backend | Role::ParallelWorker | Role::Maintenance | Role::Autovacuum => {
                RequestType::SynchronousWrite
            }
            _ => RequestType::Write,
        };
        self.with(request, role)
    }

    fn with(&self, request: RequestType, role: Role) -> HintSet {
        let hints = self.hints.with(hint_type::REQUEST, request.value());
        hints.with(hint_type::ROLE, role.value())
    }
}

/// The object of one node.
#[derive(Debug, Default)]
pub(crate) struct ObjectSlot {
    open: Option<Arc<OpenObject>>,
    users: u32,
}

impl ObjectSlot {
    fn check(&self) {
        assert_eq!(self.open.is_some(), self.users > 0, "invariant 1");
    }
}

/// Opens inodes as objects, and closes them.
pub(crate) struct Objects {
    engine: Arc<Engine>,
    devices: DeviceFactory,
    base: PathBuf,
    rules: Rules,
}

impl Objects {
    /// `base` is the base directory's canonical path.
    pub(crate) fn new(
        engine: Arc<Engine>,
        devices: DeviceFactory,
        base: PathBuf,
        rules: Rules,
    ) -> Self {
        Self {
            engine,
            devices,
            base,
            rules,
        }
    }

    /// The engine behind all objects.
    pub(crate) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// One use of the node's object more, opening it if it is closed.
    pub(crate) fn acquire(&self, node: &Node) -> io::Result<Arc<OpenObject>> {
        let mut slot = lock(&node.object);
        slot.check();
        let object = match &slot.open {
            Some(object) => Arc::clone(object),
            None => Arc::new(self.open(node)?),
        };
        slot.open = Some(Arc::clone(&object));
        slot.users += 1;
        Ok(object)
    }

    /// One use less; the last one closes the object and trims it if the inode has no name.
    pub(crate) fn release(&self, node: &Node) {
        let mut slot = lock(&node.object);
        slot.check();
        assert!(
            slot.users > 0,
            "node {} is released more often than opened",
            node.id()
        );
        slot.users -= 1;
        if slot.users > 0 {
            return;
        }
        let Some(object) = slot.open.take() else {
            return;
        };
        if sys::stat(object.file.as_raw_fd()).is_ok_and(|stat| stat.st_nlink == 0) {
            self.engine.trim(object.id);
        }
        self.engine.close_object(object.id);
    }

    /// The inode behind an `O_PATH` descriptor is about to lose a name: if that is its last, dirty
    /// pages of it are not waited for after a crash.
    pub(crate) fn losing_name(&self, fd: &OwnedFd) -> io::Result<()> {
        match sys::stat(fd.as_raw_fd()) {
            Ok(stat) if is_file(&stat) && stat.st_nlink == 1 => {
                self.engine.before_unlink(&identity(fd.as_raw_fd(), &stat))
            }
            _ => Ok(()),
        }
    }

    /// It did not lose it.
    pub(crate) fn kept_name(&self, fd: &OwnedFd) {
        if let Ok(stat) = sys::stat(fd.as_raw_fd()) {
            self.engine.not_unlinked(&identity(fd.as_raw_fd(), &stat));
        }
    }

    /// The inode behind an `O_PATH` descriptor lost a name: if that was its last and nothing has
    /// it open, its pages are dropped now.
    pub(crate) fn lost_name(&self, fd: &OwnedFd) {
        let Ok(stat) = sys::stat(fd.as_raw_fd()) else {
            return;
        };
        if is_file(&stat) && stat.st_nlink == 0 {
            self.engine.forget(&identity(fd.as_raw_fd(), &stat));
        }
    }

    /// Closes the node's object whatever users it has; for the end of the mount.
    pub(crate) fn close(&self, node: &Node) {
        let users = lock(&node.object).users;
        for _ in 0..users {
            self.release(node);
        }
    }

    /// Tells the tier the node's present name, if the node is open.
    pub(crate) fn renamed(&self, node: &Node) {
        let Some(id) = lock(&node.object).open.as_ref().map(|object| object.id) else {
            return;
        };
        if let Ok(name) = self.name(node) {
            self.engine.rename(id, &name);
        }
    }

    /// The node's path relative to the base; absolute when the base itself was moved. Names are
    /// for rules and for people: a file that lies deeper than the longest path that the system
    /// tells is called by its number.
    fn name(&self, node: &Node) -> io::Result<String> {
        let path = match sys::path(node.fd()) {
            Err(error) if error.raw_os_error() == Some(libc::ENAMETOOLONG) => {
                return Ok(format!("(path too long)/{}", node.id()));
            }
            path => path?,
        };
        let relative = path.strip_prefix(&self.base).unwrap_or(&path);
        assert_ne!(relative.as_os_str(), "", "base itself is no file");
        Ok(relative.to_string_lossy().into_owned())
    }

    /// Finds the file that pages belong to: under its name, or, `anywhere`, wherever it is now.
    ///
    /// # Errors
    /// Those of searching; and those of opening the file for writing, when it was to be searched
    /// for: then something waits to be written to it.
    pub(crate) fn find(
        &self,
        wanted: &Identity,
        name: &str,
        anywhere: bool,
    ) -> io::Result<Option<ObjectSpec>> {
        let base = sys::open_base(&self.base)?;
        let found = match search::under_name(base.as_raw_fd(), name, wanted) {
            Some(found) => Some((found, name.to_owned())),
            None if anywhere => search::anywhere(base.as_raw_fd(), wanted)?
                .map(|(found, path)| (found, search::name_of(&path))),
            None => None,
        };
        let Some((found, name)) = found else {
            return Ok(None);
        };
        let file = match search::open(&found, !anywhere) {
            Err(_) if !anywhere => return Ok(None), // its clean pages are not worth a refusal
            opened => opened?,
        };
        let (spec, _) = self.spec(Arc::new(file), name, *wanted)?;
        Ok(Some(spec))
    }

    /// Whether the tier has bytes of the inode behind a descriptor that base has not.
    pub(crate) fn is_newer(&self, fd: RawFd, stat: &Stat) -> bool {
        self.engine.is_newer_than_base(&identity(fd, stat))
    }

    /// A base file as the engine is given it, and what the rules say of it.
    fn spec(
        &self,
        file: Arc<File>,
        name: String,
        identity: Identity,
    ) -> io::Result<(ObjectSpec, FileClass)> {
        let class = self.rules.class(&name, || head(&file));
        let known = BaseFile {
            name: &name,
            key: thermocline_core::hash::mix(identity.device, identity.inode),
            class,
        };
        let base = (self.devices)(file.try_clone()?, &known)?;
        let spec = ObjectSpec {
            group: object_group(&name, class.dialect).to_owned(),
            name,
            identity,
            base,
            kind: class.kind,
            dialect: class.dialect,
            cached: class.cached,
            stamp: Arc::new(move || stamp(&file)),
        };
        assert_eq!(spec.cached, class.cached, "the rules decide");
        Ok((spec, class))
    }

    fn open(&self, node: &Node) -> io::Result<OpenObject> {
        let (file, write_error) = open_file(node)?;
        let name = self.name(node)?;
        let stat = sys::stat(file.as_raw_fd())?;
        assert!(is_file(&stat), "{name}: only regular files are objects");
        assert!(node.is(&stat), "invariant 2: {name} is another inode");
        let mapped = name.ends_with("-shm") || name.contains("pg_dynshmem/");
        let file = Arc::new(file);
        let identity = identity(node.fd(), &stat);
        let (spec, class) = self.spec(Arc::clone(&file), name, identity)?;
        // The engine adds the object hint, which it makes from the group.
        let hints = HintSet::UNKNOWN.with(hint_type::FILE_KIND, class.kind.value());
        let id = self.engine.open_object(spec)?;
        let streams = Mutex::default();
        Ok(OpenObject {
            id,
            file,
            class,
            mapped,
            write_error,
            hints,
            streams,
        })
    }
}

pub(crate) fn is_file(stat: &Stat) -> bool {
    stat.st_mode & libc::S_IFMT == libc::S_IFREG
}

/// The base file of a node, for writing if the base lets us.
fn open_file(node: &Node) -> io::Result<(File, Option<i32>)> {
    // Whoever made a file may write it, whatever its mode.
    if let Some(file) = lock(&node.fresh).take() {
        return Ok((file, None));
    }
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    match sys::reopen(node.fd(), libc::O_RDWR | flags) {
        Ok(fd) => Ok((File::from(fd), None)),
        Err(error) if sys::refuses_writers(&error) => {
            let fd = sys::reopen(node.fd(), libc::O_RDONLY | flags)?;
            Ok((File::from(fd), error.raw_os_error()))
        }
        Err(error) => Err(error),
    }
}

/// Which file a descriptor (`O_PATH` will do) stands for.
pub(crate) fn identity(fd: RawFd, stat: &Stat) -> Identity {
    Identity {
        device: stat.st_dev,
        inode: stat.st_ino,
        generation: sys::generation(fd),
    }
}

/// What tells whether a file was changed without the engine's knowledge.
fn stamp(file: &File) -> Option<Stamp> {
    let stat = sys::stat(file.as_raw_fd()).ok()?;
    let nanos = |seconds: i64, nanos: i64| seconds.saturating_mul(1_000_000_000) + nanos;
    Some(Stamp {
        length: stat.st_size.unsigned_abs(),
        mtime_ns: nanos(stat.st_mtime, stat.st_mtime_nsec),
        ctime_ns: nanos(stat.st_ctime, stat.st_ctime_nsec),
    })
}

/// The first bytes of a file, for classifiers that know a format by its header.
fn head(file: &File) -> Vec<u8> {
    let mut head = vec![0; 100];
    let len = file.read_at(&mut head, 0).unwrap_or(0);
    assert!(len <= head.len(), "{len} bytes of a header");
    head.truncate(len);
    head
}
