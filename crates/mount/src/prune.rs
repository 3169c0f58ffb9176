//! Pruning: the kernel is asked to forget inodes before their descriptors run out.
//!
//! Each node holds a descriptor ([`crate::inode`]), and the kernel forgets an inode of its own
//! accord under memory pressure alone. So a mount of many files would reach the limit on open
//! files, and the next file could not be opened. From [`Pruner::most`] nodes on, a thread tells
//! the kernel which inodes to forget, and the kernel drops those that nobody uses. They are found
//! again by their names. Linux 6.18 and later are told of inodes (`FUSE_NOTIFY_PRUNE`). Earlier
//! kernels are told that names are not valid any more (`FUSE_NOTIFY_INVAL_ENTRY`). That way waits
//! for its turn among those who change the directory: when many threads make files in one, it
//! falls behind, and files may still not be opened.
//!
//! No lock of ours is held while the kernel is told: it may wait for a request to end that is under
//! way in the same directory.
//!
//! States: *idle* → *wanted* (a lookup found too many nodes) → *idle* before a round; *ended*. A
//! round that fails is followed by the next one that is wanted, after a pause.
//!
//! # Invariants
//! 1. Only files are taken, and of files those that are not open at that moment and have a name.
//!    A directory may be somebody's current one, and of a file without a name the kernel's inode
//!    is all that is left. An open that comes in between is not harmed, since the kernel keeps an
//!    inode that is in use.
//! 2. A round tells the kernel of no more inodes than there are too many.
//!
//! Cost of a round: a list of all nodes, then a `stat` of each, and a write to `/dev/fuse` for each
//! 512 that are given up (the older way: two more `stat`s and a write for each). Which ones go is
//! left to chance, as no reads of an open file come by here. Memory: none between rounds.

use std::ffi::OsString;
use std::fs::File;
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::fs::Fs;
use crate::inode::Node;
use crate::lock::{lock, try_lock, wait, wait_for};
use crate::sys;
use crate::transport::{forget_name, forget_nodes, is_unmount};

/// Pause after a round that found little to give up, so that open files are not looked through at
/// every lookup.
const PAUSE: Duration = Duration::from_millis(100);

/// Inodes that the kernel is told of at once.
const BATCH: usize = 512;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Idle,
    Wanted,
    Ended,
}

/// What a lookup and the pruning thread know of each other.
#[derive(Debug)]
pub(crate) struct Pruner {
    most: usize,
    state: Mutex<State>,
    changed: Condvar,
}

impl Pruner {
    /// For at most about `most` nodes; for as many as there are without a limit.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most: most.max(2),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    /// Has a round made when there are too many nodes.
    pub(crate) fn note(&self, nodes: usize) {
        if nodes <= self.most {
            return;
        }
        let mut state = lock(&self.state);
        if *state == State::Idle {
            *state = State::Wanted;
            self.changed.notify_all();
        }
    }

    /// Ends the thread.
    pub(crate) fn end(&self) {
        *lock(&self.state) = State::Ended;
        self.changed.notify_all();
    }

    /// Waits until a round is wanted; false when there will be none.
    fn next(&self) -> bool {
        let mut state = lock(&self.state);
        while *state == State::Idle {
            state = wait(&self.changed, state);
        }
        if *state == State::Wanted {
            *state = State::Idle;
            return true;
        }
        false
    }

    /// Waits for [`PAUSE`], or until the end; lookups that want a round meanwhile wait too.
    fn pause(&self) {
        let begun = Instant::now();
        let mut state = lock(&self.state);
        while *state != State::Ended {
            let left = PAUSE.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return;
            }
            state = wait_for(&self.changed, state, left);
        }
    }

    /// Makes rounds until the end, or until there is no mount.
    fn run(&self, fs: &Fs, kernel: &mut Kernel<'_>) {
        let mut is_said = false;
        while self.next() {
            // An eighth less than the limit: rounds are as rare as that many lookups.
            let surplus = fs.held().0.saturating_sub(self.most - self.most / 8);
            let told = match fs.prune(surplus, kernel) {
                Ok(told) => told,
                Err(error) if is_unmount(&error) => return,
                Err(error) => {
                    if !is_said {
                        sys::say(format_args!("inodes could not be pruned for now: {error}"));
                    }
                    is_said = true;
                    0
                }
            };
            assert!(told <= surplus, "invariant 2");
            if told < surplus / 2 {
                self.pause();
            }
        }
    }
}

/// How the kernel is told.
struct Kernel<'a> {
    device: &'a File,
    /// Whether it knows `FUSE_NOTIFY_PRUNE`.
    prunes: bool,
}

impl Kernel<'_> {
    /// Has the nodes forgotten; how many it was told of.
    fn forget(&mut self, fs: &Fs, nodes: &[Arc<Node>]) -> io::Result<usize> {
        if self.prunes {
            let ids: Vec<u64> = nodes.iter().map(|node| node.id()).collect();
            match forget_nodes(self.device, &ids) {
                Err(error) if error.raw_os_error() == Some(libc::EINVAL) => self.prunes = false,
                told => return told.map(|()| ids.len()),
            }
        }
        assert!(!self.prunes, "one way or the other");
        let mut told = 0;
        for node in nodes {
            let Some((parent, name)) = fs.place_of(node) else {
                continue;
            };
            match forget_name(self.device, parent, &name) {
                Ok(()) => told += 1,
                // The kernel has forgotten the directory or the name meanwhile.
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(told)
    }
}

impl Fs {
    /// Has the kernel forget up to `surplus` inodes; how many it was told of.
    fn prune(&self, surplus: usize, kernel: &mut Kernel<'_>) -> io::Result<usize> {
        let mut nodes = self.nodes().all();
        nodes.retain(|node| self.is_spare(node));
        nodes.truncate(surplus);
        let parts = nodes.chunks(BATCH);
        parts.map(|part| kernel.forget(self, part)).sum()
    }

    /// Whether a node may be forgotten (invariant 1).
    fn is_spare(&self, node: &Node) -> bool {
        let is_file =
            |stat: sys::Stat| stat.st_mode & libc::S_IFMT != libc::S_IFDIR && stat.st_nlink > 0;
        // Whoever has the lock may be waiting for base.
        let object = try_lock(&node.object);
        object.is_some_and(|object| !object.is_held()) && node.stat().is_ok_and(is_file)
    }

    /// The directory's id and the name under which the kernel may know a file.
    fn place_of(&self, node: &Node) -> Option<(u64, OsString)> {
        let path = sys::path(node.fd()).ok()?;
        let (directory, name) = (path.parent()?, path.file_name()?);
        if !node.is(&sys::stat_path(&path).ok()?) {
            return None;
        }
        let directory = sys::stat_path(directory).ok()?;
        let parent = self.nodes().numbered(&directory)?;
        assert_ne!(
            parent.id(),
            node.id(),
            "invariant 1: a file, not a directory"
        );
        Some((parent.id(), name.into()))
    }
}

/// How many of the process's descriptors nodes may have, and how many files that are closed but
/// not yet on base. The rest is for open files, and for what comes while others are given up.
pub(crate) fn shares_of(open_files: u64) -> [usize; 2] {
    let open_files = usize::try_from(open_files).unwrap_or(usize::MAX);
    [open_files / 8 * 3, open_files / 8]
}

/// The pruning thread's work, on a mount served by `device`.
pub(crate) fn run(fs: &Fs, device: &File) {
    let prunes = true;
    fs.pruner().run(fs, &mut Kernel { device, prunes });
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use thermocline::classify::Rules;
    use thermocline::{Engine, EngineConfig};

    use super::*;
    use crate::inode::ROOT;
    use crate::mount::file_devices;

    #[test]
    fn a_round_that_fails_is_not_the_last() {
        let base = tempfile::tempdir().unwrap();
        let engine = Engine::start(EngineConfig::default(), None).unwrap();
        let path = base.path().into();
        let fs = Fs::new(path, engine, file_devices(), Rules::default(), None);
        let fs = fs.unwrap().with_inodes_max(2);
        // What is no `/dev/fuse`, and not even to be written.
        let device = File::open("/dev/null").unwrap();
        let rounds = std::thread::scope(|scope| {
            scope.spawn(|| run(&fs, &device));
            for number in 0..8 {
                let name = format!("f{number}");
                std::fs::write(base.path().join(&name), b"x").unwrap();
                fs.lookup(ROOT, OsStr::new(&name)).unwrap();
            }
            let begun = Instant::now();
            let mut rounds = 0;
            while rounds < 3 && begun.elapsed() < Duration::from_secs(20) {
                let wanted = *lock(&fs.pruner().state) == State::Wanted;
                rounds += u32::from(!wanted);
                fs.pruner().note(fs.held().0);
                std::thread::sleep(Duration::from_millis(1));
            }
            fs.pruner().end();
            rounds
        });
        assert_eq!(rounds, 3);
    }
}
