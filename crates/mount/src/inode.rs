//! Nodes: the inodes the kernel knows about.
//!
//! A node is *live* from the first lookup that finds its inode until the kernel has forgotten
//! as many lookups as it was given. Names play no part: a node holds an `O_PATH` descriptor,
//! so it survives renames, further links and the removal of its last name.
//!
//! A live node owns its descriptor, so on most file systems its inode cannot be freed and its
//! number cannot be given to another file while anybody can still ask for the node. A file system
//! in user space, or on a server, does not know of the descriptor ([`sys::frees_numbers`]): there
//! another inode may get the number. It gets a node of its own, and the older one is *superseded*:
//! only who has its id finds it.
//!
//! # Invariants
//! 1. One live node per (device, inode number), but for superseded ones: the two maps hold the same
//!    nodes otherwise.
//! 2. `lookups` > 0 for every node in the table except the root, which is never forgotten.
//! 3. On the base directory's own device a node's id *is* the inode number, so that programs
//!    which compare `st_ino` over time (log followers, incremental backups) see what they see
//!    on the base. Inodes of other devices below the base, and the numbers 0 and 1, get ids from
//!    a counter in the upper half.
//!
//! Cost: one descriptor and about 200 bytes a live node. The kernel forgets nodes under memory
//! pressure only, so the limit on open files is raised to the system's `fs.nr_open` where that is
//! permitted, and the kernel is asked to forget some when they use much of it ([`crate::prune`]).

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use crate::lock::lock;
use crate::object::{ObjectSlot, is_file};
use crate::sys::{self, Stat};

/// The id of the mount's root directory.
pub const ROOT: u64 = 1;
/// Ids at and above this one are not inode numbers of the base's device.
const FIRST_FOREIGN: u64 = 1 << 63;
/// Ids at and above this one (and below [`FIRST_FOREIGN`]) are the control directory's.
pub(crate) const FIRST_CONTROL: u64 = 1 << 62;

/// What identifies an inode while it is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    dev: u64,
    ino: u64,
}

/// One live inode.
#[derive(Debug)]
pub(crate) struct Node {
    id: u64,
    key: Key,
    /// Numbers come back on its device.
    frees: bool,
    fd: OwnedFd,
    lookups: AtomicU64,
    /// The inode as an object of the tier, while a handle has it open.
    pub(crate) object: Mutex<ObjectSlot>,
    /// The descriptor that made the file, for the first to open it.
    pub(crate) fresh: Mutex<Option<File>>,
    /// The file, open, once it has lost its last name where its number would be free otherwise.
    pub(crate) kept: Mutex<Option<Arc<File>>>,
    /// Held while the mode is changed.
    pub(crate) mode: Mutex<()>,
    /// The file was seen without set-id bits and file capabilities, and got none since through
    /// the mount; changed under `mode`.
    pub(crate) harmless: AtomicBool,
}

impl Node {
    /// The id the kernel knows the node by.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }

    /// Whether this is the inode that `stat` is of.
    pub(crate) fn is(&self, stat: &Stat) -> bool {
        (self.key.dev, self.key.ino) == (stat.st_dev, stat.st_ino)
    }

    /// The `O_PATH` descriptor.
    pub(crate) fn fd(&self) -> RawFd {
        self.fd.as_raw_fd()
    }

    /// Attributes as the base has them now.
    pub(crate) fn stat(&self) -> io::Result<Stat> {
        sys::stat(self.fd())
    }

    /// Whether it is the inode behind `fd`, which has its number, where numbers come back.
    fn is_behind(&self, fd: RawFd) -> bool {
        match (sys::file_handle(self.fd()), sys::file_handle(fd)) {
            (Some(ours), Some(theirs)) if ours == theirs => true,
            // It may be another name of the same inode: some give each name a handle.
            (Some(_), Some(_)) => {
                let linked = |stat: Stat| is_file(&stat) && stat.st_nlink > 1;
                self.stat().is_ok_and(linked)
            }
            // Where nothing else tells: an inode that is gone answers no more.
            _ => self.stat().is_ok(),
        }
    }

    /// Whether its number may be another inode's once nobody has the file open.
    pub(crate) fn frees_number(&self) -> bool {
        self.frees
    }

    fn new(id: u64, key: Key, frees: bool, fd: OwnedFd) -> Arc<Self> {
        let object = Mutex::new(ObjectSlot::default());
        Arc::new(Self {
            id,
            key,
            frees,
            fd,
            lookups: AtomicU64::new(1),
            object,
            fresh: Mutex::default(),
            kept: Mutex::default(),
            mode: Mutex::default(),
            harmless: AtomicBool::new(false),
        })
    }
}

#[derive(Debug)]
struct Maps {
    by_id: HashMap<u64, Arc<Node>>,
    by_key: HashMap<Key, u64>,
    next_foreign: u64,
    /// Nodes that are superseded.
    superseded: usize,
}

/// All live nodes.
#[derive(Debug)]
pub(crate) struct Nodes {
    base_dev: u64,
    /// Whether numbers come back on a device; asked once of each.
    frees: Mutex<HashMap<u64, bool>>,
    maps: Mutex<Maps>,
}

impl Nodes {
    /// A table with the root in it.
    pub(crate) fn new(root: OwnedFd) -> io::Result<Self> {
        let stat = sys::stat(root.as_raw_fd())?;
        let key = Key {
            dev: stat.st_dev,
            ino: stat.st_ino,
        };
        let kind = stat.st_mode & libc::S_IFMT;
        assert_eq!(kind, libc::S_IFDIR, "the root is a directory");
        let frees = sys::frees_numbers(root.as_raw_fd());
        let node = Node::new(ROOT, key, frees, root);
        let maps = Maps {
            by_id: HashMap::from([(ROOT, node)]),
            by_key: HashMap::from([(key, ROOT)]),
            next_foreign: FIRST_FOREIGN,
            superseded: 0,
        };
        Ok(Self {
            base_dev: stat.st_dev,
            frees: Mutex::new(HashMap::from([(key.dev, frees)])),
            maps: Mutex::new(maps),
        })
    }

    fn maps(&self) -> MutexGuard<'_, Maps> {
        lock(&self.maps)
    }

    /// The live node with this id; `ESTALE` when there is none.
    pub(crate) fn get(&self, id: u64) -> io::Result<Arc<Node>> {
        self.maps()
            .by_id
            .get(&id)
            .cloned()
            .ok_or_else(|| sys::errno(libc::ESTALE))
    }

    /// The live node for an inode found under a name, counting one lookup.
    pub(crate) fn lookup(&self, fd: OwnedFd, stat: &Stat) -> Arc<Node> {
        let key = Key {
            dev: stat.st_dev,
            ino: stat.st_ino,
        };
        let frees = self.frees_numbers(key.dev, fd.as_raw_fd());
        let other = match frees {
            true => self
                .live(key)
                .filter(|node| !node.is_behind(fd.as_raw_fd())),
            false => None,
        };
        let mut maps = self.maps();
        if let Some(other) = other {
            maps.supersede(&other);
        }
        if let Some(node) = maps.by_key.get(&key).and_then(|id| maps.by_id.get(id)) {
            let before = node.lookups.fetch_add(1, Ordering::Relaxed);
            assert!(before > 0, "invariant 2: node {} is forgotten", node.id);
            assert_eq!(node.key, key, "invariant 1");
            return Arc::clone(node);
        }
        let id = maps.new_id(key, self.base_dev);
        assert!(
            id == key.ino && key.dev == self.base_dev || id > FIRST_FOREIGN,
            "invariant 3: node {id}"
        );
        let node = Node::new(id, key, frees, fd);
        let before = maps.by_id.insert(id, Arc::clone(&node));
        maps.by_key.insert(key, id);
        assert!(before.is_none(), "node id {id} is already live");
        maps.check();
        node
    }

    /// The live node of the inode behind a descriptor, without counting a lookup.
    pub(crate) fn peek(&self, fd: RawFd) -> io::Result<Option<Arc<Node>>> {
        let node = self.numbered(&sys::stat(fd)?);
        Ok(node.filter(|node| !node.frees || node.is_behind(fd)))
    }

    /// Whether numbers come back on a device, of which `fd` is.
    fn frees_numbers(&self, device: u64, fd: RawFd) -> bool {
        let known = lock(&self.frees).get(&device).copied();
        known.unwrap_or_else(|| {
            // Without the lock: it may be slow to answer.
            let frees = sys::frees_numbers(fd);
            lock(&self.frees).insert(device, frees);
            frees
        })
    }

    /// The live node that has the number of an inode, which may have been another one's.
    pub(crate) fn numbered(&self, stat: &Stat) -> Option<Arc<Node>> {
        self.live(Key {
            dev: stat.st_dev,
            ino: stat.st_ino,
        })
    }

    fn live(&self, key: Key) -> Option<Arc<Node>> {
        let maps = self.maps();
        maps.by_key
            .get(&key)
            .and_then(|id| maps.by_id.get(id))
            .cloned()
    }

    /// Takes back `count` lookups. The node dies with the last: it is the answer then.
    pub(crate) fn forget(&self, id: u64, count: u64) -> Option<Arc<Node>> {
        if id == ROOT {
            return None;
        }
        let mut maps = self.maps();
        let node = maps.by_id.get(&id)?;
        let before = node.lookups.fetch_sub(count, Ordering::Relaxed);
        assert!(
            before >= count,
            "invariant 2: node {id}: {count} of {before} lookups forgotten"
        );
        if before > count {
            return None;
        }
        let node = maps.by_id.remove(&id);
        if let Some(node) = &node {
            match maps.by_key.get(&node.key) == Some(&id) {
                true => drop(maps.by_key.remove(&node.key)),
                false => {
                    assert!(
                        maps.superseded > 0,
                        "invariant 1: the maps hold the same nodes"
                    );
                    maps.superseded -= 1;
                }
            }
        }
        maps.check();
        node
    }

    /// How many nodes are live.
    pub(crate) fn len(&self) -> usize {
        self.maps().by_id.len()
    }

    /// Every live node.
    pub(crate) fn all(&self) -> Vec<Arc<Node>> {
        self.maps().by_id.values().cloned().collect()
    }
}

impl Maps {
    fn check(&self) {
        let current = self.by_id.len() - self.superseded;
        assert_eq!(current, self.by_key.len(), "invariant 1");
        assert!(!self.by_id.is_empty(), "invariant 2: the root stays");
    }

    /// The number of `node` is another inode's by now; unless somebody else saw that before.
    fn supersede(&mut self, node: &Node) {
        let current = self.by_key.get(&node.key) == Some(&node.id)
            && self
                .by_id
                .get(&node.id)
                .is_some_and(|live| std::ptr::eq(&**live, node));
        if current && node.id != ROOT {
            let before = self.by_key.remove(&node.key);
            assert_eq!(before, Some(node.id), "invariant 1: it was the newest");
            self.superseded += 1;
            assert!(self.superseded < self.by_id.len(), "the root stays");
        }
    }

    fn new_id(&mut self, key: Key, base_dev: u64) -> u64 {
        let own = key.dev == base_dev && key.ino > ROOT && key.ino < FIRST_CONTROL;
        // A superseded node may have it as long as the kernel knows that one.
        if own && !self.by_id.contains_key(&key.ino) {
            return key.ino;
        }
        self.next_foreign += 1;
        assert!(
            self.next_foreign > FIRST_FOREIGN,
            "invariant 3: ids are used up"
        );
        self.next_foreign
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    fn table() -> (tempfile::TempDir, Nodes, RawFd) {
        let dir = tempfile::tempdir().unwrap();
        let nodes = Nodes::new(sys::open_base(dir.path()).unwrap()).unwrap();
        let root = nodes.get(ROOT).unwrap().fd();
        (dir, nodes, root)
    }

    fn find(nodes: &Nodes, root: RawFd, name: &str) -> Arc<Node> {
        let fd = sys::open_node(root, OsStr::new(name)).unwrap();
        let stat = sys::stat(fd.as_raw_fd()).unwrap();
        nodes.lookup(fd, &stat)
    }

    #[test]
    fn two_names_of_one_inode_are_one_node() {
        let (dir, nodes, root) = table();
        std::fs::write(dir.path().join("a"), b"x").unwrap();
        std::fs::hard_link(dir.path().join("a"), dir.path().join("b")).unwrap();
        let (a, b) = (find(&nodes, root, "a"), find(&nodes, root, "b"));
        assert_eq!(a.id(), b.id());
        assert_eq!(a.id(), a.stat().unwrap().st_ino);
        nodes.forget(a.id(), 1);
        assert!(nodes.get(a.id()).is_ok());
        nodes.forget(a.id(), 1);
        assert!(nodes.get(a.id()).is_err());
        assert_eq!(nodes.len(), 1);
    }

    #[test]
    fn a_node_survives_rename_and_unlink() {
        let (dir, nodes, root) = table();
        std::fs::write(dir.path().join("a"), b"x").unwrap();
        let a = find(&nodes, root, "a");
        std::fs::rename(dir.path().join("a"), dir.path().join("c")).unwrap();
        assert_eq!(
            sys::path(a.fd()).unwrap(),
            dir.path().canonicalize().unwrap().join("c")
        );
        std::fs::remove_file(dir.path().join("c")).unwrap();
        assert_eq!(a.stat().unwrap().st_nlink, 0);
    }

    #[test]
    fn numbers_stay_where_the_kernel_holds_the_inode_itself() {
        let (_dir, nodes, root) = table();
        let device = nodes.base_dev;
        assert!(!nodes.frees_numbers(device, root));
        // Of what is not known nothing is promised.
        let other = sys::open_base(std::path::Path::new("/proc")).unwrap();
        assert!(nodes.frees_numbers(device + 1, other.as_raw_fd()));
    }

    #[test]
    fn names_with_slashes_and_dots_are_refused() {
        let (_dir, _nodes, root) = table();
        for name in ["", ".", "..", "a/b", "../etc"] {
            assert!(sys::open_node(root, OsStr::new(name)).is_err(), "{name:?}");
        }
    }
}
