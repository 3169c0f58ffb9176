//! Files that bypass the tier, read and written by the kernel on base itself.
//!
//! What the kernel then does without asking: reads, writes and maps, also synchronous ones. What
//! still comes to the mount: opening, `fsync`, truncating and allocating, names and attributes.
//! `include/uapi/linux/fuse.h` has the protocol (`FOPEN_PASSTHROUGH`, from Linux 6.9 on), and
//! `fs/fuse/iomode.c` its rules: while an inode is open this way every open of it must be, with
//! the same backing file.
//!
//! States of an open inode: *undecided* -> *through the kernel* or *through the mount*, decided
//! when the first open is answered, until the inode is closed.
//!
//! # Invariants
//! 1. One inode has one backing file at a time, from the first open to the last close: its handles
//!    share one object, and that keeps what was decided.

use std::fs::File;
use std::io;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use crate::lock::lock;
use crate::sys;

/// A file that the kernel reads and writes for the mount; until this is dropped, or the mount is
/// no more.
#[derive(Debug)]
pub(crate) struct BackingId {
    /// Weak: a file left open must not keep alive the connection of a mount that nobody serves.
    device: Weak<File>,
    number: u32,
}

impl BackingId {
    /// Tells the kernel of a file.
    ///
    /// # Errors
    /// `EPERM` without the right to, `EOPNOTSUPP` and others where the kernel cannot; those of
    /// this file, and of a lack of memory.
    pub(crate) fn open(device: &Arc<File>, file: &File) -> io::Result<Self> {
        let number = sys::backing_open(device, file)?;
        assert!(number > 0, "0 is no file");
        Ok(Self {
            device: Arc::downgrade(device),
            number,
        })
    }

    /// What the kernel calls it.
    pub(crate) fn number(&self) -> u32 {
        self.number
    }
}

impl Drop for BackingId {
    fn drop(&mut self) {
        if let Some(device) = self.device.upgrade() {
            // It cannot be done twice, and nothing can be done about an error.
            let _ = sys::backing_close(&device, self.number);
        }
    }
}

/// How the requests of one open inode go.
#[derive(Debug, Default)]
enum Way {
    #[default]
    Undecided,
    Kernel(Arc<BackingId>),
    Mount,
}

/// The way of one open inode.
#[derive(Debug, Default)]
pub(crate) struct Backing(Mutex<Way>);

/// Whether a mount uses passthrough at all.
#[derive(Debug)]
pub(crate) struct Passthrough {
    wanted: bool,
    /// The kernel or our rights do not allow it: not asked again.
    refused: AtomicBool,
}

impl Passthrough {
    /// Decides for a base directory. Where another host may mount the same base, all requests stay
    /// with the mount: it stops at once when the base is taken over, and the kernel would not.
    pub(crate) fn new(wanted: bool, base: RawFd) -> Self {
        Self {
            wanted: wanted && sys::is_of_one_host(base),
            refused: AtomicBool::new(false),
        }
    }

    /// Whether the kernel is to be asked for it at all.
    pub(crate) fn is_wanted(&self) -> bool {
        self.wanted
    }

    /// The kernel, or our rights, do not allow it.
    pub(crate) fn refuse(&self) {
        self.refused.store(true, Ordering::Relaxed);
    }

    /// The backing file for a reply to an open of the inode with `backing`; `None`: its requests
    /// go through the mount. `allowed` is asked, and the `file` registered, once an inode.
    pub(crate) fn of(
        &self,
        backing: &Backing,
        file: &File,
        allowed: impl FnOnce() -> bool,
        register: impl FnOnce(&File) -> io::Result<BackingId>,
    ) -> Option<Arc<BackingId>> {
        let mut way = lock(&backing.0);
        if let Way::Undecided = &*way {
            *way = Way::Mount;
            let possible = self.wanted && !self.refused.load(Ordering::Relaxed);
            if possible && allowed() {
                match register(file) {
                    Ok(id) => *way = Way::Kernel(Arc::new(id)),
                    Err(error) if is_for_good(&error) => self.refuse(),
                    Err(_) => {} // for now: the next inode may have better luck
                }
            }
        }
        match &*way {
            Way::Kernel(id) => Some(Arc::clone(id)),
            Way::Mount => None,
            Way::Undecided => panic!("invariant 1: it was decided"),
        }
    }
}

/// Whether an error of registering a file says that none can be: the kernel does not know how to,
/// or we may not.
fn is_for_good(error: &io::Error) -> bool {
    let codes = [libc::EPERM, libc::EOPNOTSUPP, libc::ENOTTY, libc::EINVAL];
    error
        .raw_os_error()
        .is_some_and(|code| codes.contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers an open of an inode: whether the kernel serves it, and whether it was asked to.
    fn open(passthrough: &Passthrough, backing: &Backing, error: Option<i32>) -> (bool, bool) {
        let file = File::open("/dev/null").unwrap();
        let mut asked = false;
        let register = |_: &File| {
            asked = true;
            let id = BackingId {
                device: Weak::new(),
                number: 1,
            };
            error.map_or(Ok(id), |code| Err(sys::errno(code)))
        };
        let served = passthrough.of(backing, &file, || true, register).is_some();
        (served, asked)
    }

    fn wanted() -> Passthrough {
        Passthrough {
            wanted: true,
            refused: AtomicBool::new(false),
        }
    }

    #[test]
    fn what_fails_for_one_file_is_tried_for_the_next() {
        let passthrough = wanted();
        for code in [libc::ENOMEM, libc::ELOOP, libc::EBADF] {
            let backing = Backing::default();
            assert_eq!(open(&passthrough, &backing, Some(code)), (false, true));
            // It was decided, until the inode is closed.
            assert_eq!(open(&passthrough, &backing, None), (false, false));
            assert_eq!(open(&passthrough, &Backing::default(), None), (true, true));
        }
    }

    #[test]
    fn what_the_kernel_cannot_do_is_asked_for_once() {
        for code in [libc::EPERM, libc::EOPNOTSUPP, libc::ENOTTY, libc::EINVAL] {
            let passthrough = wanted();
            let first = open(&passthrough, &Backing::default(), Some(code));
            let next = open(&passthrough, &Backing::default(), None);
            assert_eq!((first, next), ((false, true), (false, false)), "{code}");
        }
    }
}
