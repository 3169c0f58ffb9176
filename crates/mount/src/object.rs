//! Open files as objects of the tier.
//!
//! States of a slot (one per node): *closed* (no handle has the inode open), *open* (one object,
//! shared by `users` handles and operations in progress), and *nameless* (the inode's last name is
//! gone: the object stays open, with users or without).
//! Transitions: [`Objects::acquire`] closed → open and open → open, or closed → nameless when the
//! last name went before; [`Objects::release`]
//! open → open, and open → closed when the last user goes; [`Objects::losing_name`] → nameless;
//! [`Objects::forgotten`] nameless → closed.
//!
//! # Invariants
//! 1. The slot holds an object exactly while `users` > 0 or it is nameless.
//! 2. Handles of one inode share one base descriptor, opened for writing whenever the base
//!    allows it: permission was checked by the kernel when the handle was opened.
//! 3. The pages of an inode without a name go when the kernel has forgotten it, not when the name
//!    goes: databases unlink temporary files first and use them afterwards, and whoever has the
//!    inode in any way can open it again.

use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use thermocline::classify::path::object_group;
use thermocline::classify::plan::Relation;
use thermocline::classify::{Access, Dialect, FileClass, Rules, Streams};
use thermocline::device::Device;
use thermocline::{Engine, Grave, Identity, Object, ObjectSpec, Stamp, TouchFn};
use thermocline_core::hint::{HintSet, RequestType, Role, hint_type};

use crate::inode::Node;
use crate::lock::lock;
use crate::passthrough::Backing;
use crate::search;
use crate::sys::{self, Stat};

/// Makes the device an open base file is served by, perhaps at the pace of an emulated disk.
pub type DeviceFactory =
    Arc<dyn Fn(Arc<File>, &BaseFile<'_>) -> io::Result<Arc<dyn Device>> + Send + Sync>;

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
    /// What the engine knows the inode by.
    pub(crate) object: Arc<Object>,
    /// The base file; for what the engine has no word for (seek, allocate).
    pub(crate) file: Arc<File>,
    /// What the rules said when it was opened.
    pub(crate) class: FileClass,
    /// Whether programs share memory through this file.
    pub(crate) mapped: bool,
    /// Why the base file could only be opened for reading.
    pub(crate) write_error: Option<i32>,
    /// Whether the kernel serves it.
    pub(crate) backing: Backing,
    /// The table or index it is, where query plans have a word for it.
    pub(crate) relation: Option<Relation>,
    hints: HintSet,
    streams: Mutex<Streams>,
}

impl std::fmt::Debug for OpenObject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OpenObject")
            .field("object", &self.object)
            .field("class", &self.class)
            .finish()
    }
}

impl OpenObject {
    /// Hints of a read by `role`, and what the detector of streams says of it.
    pub(crate) fn read_hints(&self, role: Role, offset: u64, len: u64) -> (HintSet, Access) {
        let access = lock(&self.streams).note(offset, len);
        let request = match access {
            Access::Sequential => RequestType::SequentialRead,
            Access::Random => RequestType::Read,
        };
        (self.with(request, role), access)
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
    /// The inode has no name; the object stays open until the kernel has forgotten the node.
    nameless: bool,
}

impl ObjectSlot {
    /// Whether somebody has the inode open, or nothing but the kernel's inode is left of it.
    pub(crate) fn is_held(&self) -> bool {
        self.users > 0 || self.nameless
    }

    fn check(&self) {
        assert_eq!(
            self.open.is_some(),
            self.users > 0 || self.nameless,
            "invariant 1"
        );
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
            None => {
                assert_eq!(slot.users, 0, "invariant 2: users share what is open");
                let object = Arc::new(self.open(node)?);
                slot.nameless = self.note_nameless(&object);
                object
            }
        };
        slot.open = Some(Arc::clone(&object));
        slot.users += 1;
        Ok(object)
    }

    /// Tells the tier of a file that had lost its last name before it was opened; whether it had.
    fn note_nameless(&self, open: &OpenObject) -> bool {
        let Ok(stat) = sys::stat(open.file.as_raw_fd()) else {
            return false;
        };
        // Some file systems count no links. Only what the system calls deleted has lost its name.
        let name = sys::path(open.file.as_raw_fd()).unwrap_or_default();
        let deleted = name.as_os_str().as_encoded_bytes().ends_with(b" (deleted)");
        if stat.st_nlink > 0 || !deleted {
            return false;
        }
        // Nobody knows which directory had the name.
        let file = Arc::clone(&open.file);
        let grave = Grave {
            directory: (stat.st_dev, stat.st_ino),
            sync: Arc::new(move || sys::sync_file_system_of(&file)),
            kept: sys::frees_numbers(open.file.as_raw_fd()).then(|| Arc::clone(&open.file)),
        };
        let identity = identity(open.file.as_raw_fd(), &stat);
        self.engine.unlinked(&identity, grave);
        true
    }

    /// Whether `object` is the one that the node's handles share.
    pub(crate) fn is_open(&self, node: &Node, object: &Arc<OpenObject>) -> bool {
        let slot = lock(&node.object);
        let open = slot.open.as_ref();
        open.is_some_and(|open| Arc::ptr_eq(open, object))
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
        if slot.users == 0 && !slot.nameless {
            self.close_slot(&mut slot);
        }
    }

    /// Changes the metadata of the inode behind a descriptor (`O_PATH` will do), so that the tier
    /// knows that it was the mount that did it.
    pub(crate) fn change<T>(
        &self,
        fd: RawFd,
        change: impl FnOnce() -> io::Result<T>,
    ) -> io::Result<T> {
        let stat = sys::stat(fd)?;
        if !is_file(&stat) {
            return change();
        }
        let now = || stamp_of(fd);
        let identity = identity(fd, &stat);
        self.engine.change_metadata(&identity, now, change)
    }

    /// Sets the times of the inode behind a descriptor; within [`Objects::change`].
    pub(crate) fn set_times(&self, fd: RawFd, times: [libc::timespec; 2]) -> io::Result<()> {
        let identity = identity(fd, &sys::stat(fd)?);
        self.engine
            .set_times(&identity, || sys::set_times(fd, times))
    }

    /// Does what takes a name in the directory `parent` from the inode behind an `O_PATH`
    /// descriptor. If that is its last, its pages stay until base has made that durable and nobody
    /// can ask for them any more: while the kernel knows the inode (`node`) somebody can.
    pub(crate) fn losing_name(
        &self,
        victim: &OwnedFd,
        node: Option<&Node>,
        parent: &Arc<Node>,
        change: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<()> {
        let fd = victim.as_raw_fd();
        let before = sys::stat(fd)?;
        if !is_file(&before) {
            return change();
        }
        let identity = identity(fd, &before);
        let last = before.st_nlink == 1;
        // What is open keeps its number, which is all that tells it from a file made later.
        let kept = match last && parent.frees_number() {
            true => sys::reopen(fd, libc::O_RDONLY | libc::O_NONBLOCK).ok(),
            false => None,
        };
        let kept = kept.map(|kept| Arc::new(File::from(kept)));
        if last {
            self.engine.before_unlink(&identity);
        }
        let changed = self.change(fd, change);
        if is_gone(fd, last && changed.is_ok()) {
            let mut kept = kept;
            if let Some(node) = node {
                self.keep_until_forgotten(node);
                let mut held = lock(&node.kept);
                // It may have lost the name that base had given it since.
                kept = kept.or_else(|| held.clone());
                held.clone_from(&kept);
            }
            self.engine
                .unlinked(&identity, grave(parent, before.st_dev, kept));
        } else if last {
            self.engine.not_unlinked(&identity);
        }
        changed
    }

    /// Closes what has no name any more and nobody has open; whether there was anything.
    pub(crate) fn bury(&self) -> bool {
        self.engine.bury()
    }

    /// A node without a name keeps its object open until the kernel has forgotten it.
    fn keep_until_forgotten(&self, node: &Node) {
        let mut slot = lock(&node.object);
        if slot.open.is_none() && self.engine.is_newer(&identity_of(node)) {
            // Its bytes are in the tier alone: whoever still has the inode may open it again.
            slot.open = self.open(node).ok().map(Arc::new);
        }
        slot.nameless = slot.open.is_some();
    }

    /// The kernel has forgotten the node.
    pub(crate) fn forgotten(&self, node: &Node) {
        let mut slot = lock(&node.object);
        assert_eq!(slot.users, 0, "invariant 3: an open inode is not forgotten");
        self.close_slot(&mut slot);
    }

    fn close_slot(&self, slot: &mut ObjectSlot) {
        assert_eq!(slot.users, 0, "invariant 1: nobody uses what is closed");
        slot.nameless = false;
        if let Some(object) = slot.open.take() {
            self.engine.close_object(&object.object);
        }
    }

    /// Closes the node's object whatever users it has; for the end of the mount.
    pub(crate) fn close(&self, node: &Node) {
        let mut slot = lock(&node.object);
        slot.users = 0;
        self.close_slot(&mut slot);
    }

    /// Lets the times of an open file show what was written to it; whether it is open.
    pub(crate) fn touch(&self, node: &Node) -> bool {
        let open = lock(&node.object).open.clone();
        open.is_some_and(|open| {
            self.engine.touch(&open.object);
            true
        })
    }

    /// Tells the tier what the file behind a descriptor is called now.
    pub(crate) fn renamed(&self, fd: RawFd) {
        let stat = sys::stat(fd).ok().filter(is_file);
        let Some(stat) = stat else { return };
        if let Ok(name) = self.name(fd, stat.st_ino) {
            self.engine.rename_file(&identity(fd, &stat), &name);
        }
    }

    /// The path of a descriptor relative to the base; absolute when the base itself was moved.
    /// Names are for rules and for people: a file that lies deeper than the longest path that the
    /// system tells is called by its number.
    fn name(&self, fd: RawFd, number: u64) -> io::Result<String> {
        let path = match sys::path(fd) {
            Err(error) if error.raw_os_error() == Some(libc::ENAMETOOLONG) => {
                return Ok(format!("(path too long)/{number}"));
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
            Err(_) if !anywhere => None, // its clean pages are not worth a refusal
            Err(error) => return Err(error),
            Ok(Some(found)) => Some((found, name.to_owned())),
            Ok(None) if anywhere => search::anywhere(base.as_raw_fd(), wanted)?
                .map(|(found, path)| (found, search::name_of(&path))),
            Ok(None) => None,
        };
        let Some((found, name)) = found else {
            return Ok(None);
        };
        let file = match search::open(&found, !anywhere) {
            Err(_) if !anywhere => return Ok(None), // not worth one either
            opened => opened?,
        };
        let (spec, _) = self.spec(Arc::new(file), name, *wanted)?;
        Ok(Some(spec))
    }

    /// Opens the regular file at `name`, a path relative to the base, where there is one, aside.
    ///
    /// # Errors
    /// Those of opening it.
    pub(crate) fn open_named(&self, name: &str) -> io::Result<Option<Arc<Object>>> {
        let base = sys::open_base(&self.base)?;
        let Some(found) = search::walk(base.as_raw_fd(), name)? else {
            return Ok(None);
        };
        let stat = sys::stat(found.as_raw_fd())?;
        if !is_file(&stat) {
            return Ok(None);
        }
        let identity = identity(found.as_raw_fd(), &stat);
        let file = Arc::new(search::open(&found, true)?);
        let (spec, _) = self.spec(file, name.to_owned(), identity)?;
        self.engine.open_aside(spec).map(Some)
    }

    /// Whether the tier has bytes of the inode behind a descriptor that base has not.
    pub(crate) fn is_newer(&self, fd: RawFd, stat: &Stat) -> bool {
        self.engine.is_newer(&identity(fd, stat))
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
        let base = (self.devices)(Arc::clone(&file), &known)?;
        let spec = ObjectSpec {
            group: object_group(&name, class.dialect).to_owned(),
            name,
            identity,
            base,
            kind: class.kind,
            dialect: class.dialect,
            cached: class.cached,
            touch: touch(&file),
            stamp: Arc::new(move || stamp_of(file.as_raw_fd())),
        };
        assert_eq!(spec.cached, class.cached, "the rules decide");
        Ok((spec, class))
    }

    fn open(&self, node: &Node) -> io::Result<OpenObject> {
        let (file, write_error) = open_file(node)?;
        let mut name = self.name(node.fd(), node.id())?;
        let stat = sys::stat(file.as_raw_fd())?;
        // The rules are about the name that it had.
        if stat.st_nlink == 0
            && let Some(before) = name.strip_suffix(" (deleted)")
        {
            name.truncate(before.len());
        }
        assert!(is_file(&stat), "{name}: only regular files are objects");
        if !node.is(&stat) {
            // An overlay copies a file up when it is opened for writing. The kernel looks again.
            return Err(sys::errno(libc::ESTALE));
        }
        let mapped = name.ends_with("-shm") || name.contains("pg_dynshmem/");
        let file = Arc::new(file);
        let identity = identity(node.fd(), &stat);
        let relation = Relation::of_path(&name);
        let (spec, class) = self.spec(Arc::clone(&file), name, identity)?;
        let relation = relation.filter(|_| class.dialect == Dialect::Postgres);
        // The engine adds the object hint, which it makes from the group.
        let hints = HintSet::UNKNOWN.with(hint_type::FILE_KIND, class.kind.value());
        let object = self.engine.open_object(spec)?;
        // The tier itself may have it open since it could only be read.
        let write_error = write_error.or_else(|| (!object.can_write()).then_some(libc::EROFS));
        assert!(
            object.can_write() || write_error.is_some(),
            "a writer is told at once that base takes nothing"
        );
        let streams = Mutex::default();
        Ok(OpenObject {
            object,
            file,
            class,
            mapped,
            write_error,
            backing: Backing::default(),
            relation,
            hints,
            streams,
        })
    }
}

/// Whether the file behind a descriptor has no name any more; `taken`: its last one was taken.
fn is_gone(fd: RawFd, taken: bool) -> bool {
    match sys::stat(fd) {
        // Of a file that is gone base need not tell anything any more.
        Err(_) => taken,
        Ok(stat) => stat.st_nlink == 0 || taken && is_put_aside(fd),
    }
}

/// Whether base has given the file a name of its own, because it is open: NFS does so instead of
/// removing it, and so do file systems in user space. It removes it when nobody has it open.
fn is_put_aside(fd: RawFd) -> bool {
    let path = sys::path(fd).unwrap_or_default();
    let name = path.file_name().unwrap_or_default();
    // Otherwise it is the name that was taken, and another one was made meanwhile.
    is_own_name(name) && !name.as_bytes().ends_with(b" (deleted)")
}

/// Whether base gives such names to files that it puts aside.
pub(crate) fn is_own_name(name: &OsStr) -> bool {
    let name = name.as_bytes();
    name.starts_with(b".nfs") || name.starts_with(b".fuse_hidden")
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

fn identity_of(node: &Node) -> Identity {
    let stat = node.stat();
    stat.map_or_else(|_| Identity::default(), |stat| identity(node.fd(), &stat))
}

/// How the loss of a name in `parent` is made durable.
fn grave(parent: &Arc<Node>, device: u64, kept: Option<Arc<File>>) -> Grave {
    let directory = Arc::clone(parent);
    Grave {
        directory: (device, directory.id()),
        sync: Arc::new(move || sys::sync_directory(directory.fd())),
        kept,
    }
}

/// Sets the time of contents of a base file: now, or ns since 1970.
fn touch(file: &Arc<File>) -> TouchFn {
    let file = Arc::clone(file);
    Arc::new(move |at| {
        let mtime = match at {
            None => libc::timespec {
                tv_sec: 0,
                tv_nsec: libc::UTIME_NOW,
            },
            Some(ns) => libc::timespec {
                tv_sec: ns.div_euclid(1_000_000_000),
                tv_nsec: ns.rem_euclid(1_000_000_000),
            },
        };
        let atime = libc::timespec {
            tv_sec: 0,
            tv_nsec: libc::UTIME_OMIT,
        };
        sys::set_times(file.as_raw_fd(), [atime, mtime])
    })
}

/// What tells whether a file was changed without the engine's knowledge.
fn stamp_of(fd: RawFd) -> Option<Stamp> {
    let stat = sys::stat(fd).ok()?;
    Some(Stamp {
        length: stat.st_size.unsigned_abs(),
        mtime_ns: Stamp::nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
        ctime_ns: Stamp::nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inode::{Nodes, ROOT};
    use std::ffi::OsStr;
    use std::fs;
    use std::path::Path;
    use thermocline::classify::Rule;
    use thermocline::{EngineConfig, Request, Store, StoreOptions};

    fn engine(cache: &Path) -> Arc<Engine> {
        let options = StoreOptions {
            page_size: 4096,
            size: Some(4 << 20),
            ..StoreOptions::default()
        };
        let config = EngineConfig {
            page_size: 4096,
            policy: "lru".into(),
            write_back: true,
            ..EngineConfig::default()
        };
        Engine::start(config, Some(Store::open(cache, &options).unwrap())).unwrap()
    }

    fn objects(base: &Path, cache: &Path) -> Objects {
        let rule = Rule {
            path: "**".into(),
            kind: Some("relation".into()),
            cache: Some(true),
            dialect: None,
        };
        let rules = Rules::new(vec![rule]).unwrap();
        let devices = crate::mount::file_devices();
        Objects::new(engine(cache), devices, base.into(), rules)
    }

    /// Whether the next start after a crash waits for a file with dirty pages whose name `a` was
    /// taken, in that base gave it the name `aside`.
    fn is_waited_for(aside: &str) -> bool {
        let dir = tempfile::tempdir().unwrap();
        let (base, cache) = (dir.path().join("base"), dir.path().join("cache"));
        fs::create_dir(&base).unwrap();
        fs::write(base.join("a"), [1; 8192]).unwrap();
        let objects = objects(&base, &cache);
        let nodes = Nodes::new(sys::open_base(&base).unwrap()).unwrap();
        let root = nodes.get(ROOT).unwrap();
        let find = || sys::open_node(root.fd(), OsStr::new("a")).unwrap();
        let node = nodes.lookup(find(), &sys::stat(find().as_raw_fd()).unwrap());
        let open = objects.acquire(&node).unwrap();
        let request = Request {
            object: &open.object,
            offset: 0,
            hints: HintSet::UNKNOWN,
            client: 0,
        };
        objects.engine.write(&request, &[2; 4096]).unwrap();
        objects.engine.sync(&open.object, false).unwrap();
        let put_aside = || fs::rename(base.join("a"), base.join(aside));
        let lost = objects.losing_name(&find(), Some(&node), &root, put_aside);
        lost.unwrap();
        // What it writes from now on is not waited for either.
        objects.engine.write(&request, &[3; 8192]).unwrap();
        objects.engine.sync(&open.object, false).unwrap();
        fs::copy(&cache, dir.path().join("crashed")).unwrap();
        fs::remove_file(base.join(aside)).unwrap();
        let after = self::objects(&base, &dir.path().join("crashed"));
        let find =
            |wanted: &Identity, name: &str, anywhere: bool| after.find(wanted, name, anywhere);
        let waited_for = after.engine.adopt(&find, false).is_err();
        objects.release(&node);
        waited_for
    }

    #[test]
    fn rules_are_about_the_name_that_a_file_had() {
        let dir = tempfile::tempdir().unwrap();
        let objects = objects(dir.path(), &dir.path().join("cache"));
        let nodes = Nodes::new(sys::open_base(dir.path()).unwrap()).unwrap();
        fs::write(dir.path().join("x-shm"), b"x").unwrap();
        let root = nodes.get(ROOT).unwrap().fd();
        let fd = sys::open_node(root, OsStr::new("x-shm")).unwrap();
        let stat = sys::stat(fd.as_raw_fd()).unwrap();
        let node = nodes.lookup(fd, &stat);
        fs::remove_file(dir.path().join("x-shm")).unwrap();
        assert!(objects.acquire(&node).unwrap().mapped);
        objects.release(&node);
        objects.forgotten(&node);
    }

    #[test]
    fn a_file_that_base_puts_aside_instead_of_removing_it_is_gone() {
        assert!(!is_waited_for(".nfs000000000001"));
        assert!(!is_waited_for(".fuse_hidden0000000100000001"));
        assert!(is_waited_for("b"), "a name of somebody's choice");
    }
}
