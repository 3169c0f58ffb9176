//! Handles: what the kernel's open files refer to.
//!
//! A handle lives from the reply to an open until the kernel's release. Its number is an index
//! into one table; the table's lock is held for the look-up only, never across I/O.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, RwLock};

use thermocline::Told;

use crate::inode::Node;
use crate::lock::{read, write};
use crate::object::OpenObject;
use crate::sys;

/// What a change is followed by before its caller is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Durable {
    /// `fdatasync`.
    Data,
    /// `fsync`.
    Everything,
}

impl Durable {
    /// What `flags` of `open` or of a write ask for.
    pub(crate) fn from_flags(flags: i32) -> Option<Self> {
        // `O_SYNC` has the bit of `O_DSYNC` in it.
        match flags & libc::O_SYNC {
            libc::O_SYNC => Some(Self::Everything),
            both if both & libc::O_DSYNC != 0 => Some(Self::Data),
            _ => None,
        }
    }
}

/// An open regular file.
#[derive(Debug)]
pub(crate) struct FileHandle {
    pub(crate) node: Arc<Node>,
    pub(crate) object: Arc<OpenObject>,
    /// What every change by this handle is followed by (`O_SYNC`, `O_DSYNC`).
    pub(crate) durable: Option<Durable>,
    /// Failed syncs of base that its fsyncs have told of.
    pub(crate) told: Told,
}

/// An open directory. The lock keeps a seek and the reads after it together.
#[derive(Debug)]
pub(crate) struct DirHandle {
    pub(crate) is_root: bool,
    pub(crate) stream: Mutex<OwnedFd>,
}

/// An open control file: what it said when it was opened.
#[derive(Debug)]
pub(crate) struct ControlHandle {
    pub(crate) index: usize,
    pub(crate) content: Vec<u8>,
}

/// Anything open.
#[derive(Debug)]
pub(crate) enum Handle {
    File(FileHandle),
    Dir(DirHandle),
    Control(ControlHandle),
    ControlDir,
}

#[derive(Debug, Default)]
struct Table {
    slots: Vec<Option<Arc<Handle>>>,
    free: Vec<usize>,
}

/// All open handles.
#[derive(Debug, Default)]
pub(crate) struct Handles {
    table: RwLock<Table>,
}

impl Handles {
    /// Adds a handle; returns its number.
    pub(crate) fn add(&self, handle: Handle) -> u64 {
        let handle = Some(Arc::new(handle));
        let mut table = write(&self.table);
        let slot = table.free.pop().unwrap_or(table.slots.len());
        if slot == table.slots.len() {
            table.slots.push(handle);
        } else {
            assert!(table.slots[slot].is_none(), "handle {slot} is in use");
            table.slots[slot] = handle;
        }
        slot as u64
    }

    /// The handle with this number; `EBADF` when there is none.
    pub(crate) fn get(&self, number: u64) -> io::Result<Arc<Handle>> {
        let table = read(&self.table);
        let slot = table.slots.get(number as usize);
        slot.cloned()
            .flatten()
            .ok_or_else(|| sys::errno(libc::EBADF))
    }

    /// Takes the handle out of the table.
    pub(crate) fn remove(&self, number: u64) -> io::Result<Arc<Handle>> {
        let mut table = write(&self.table);
        let handle = table.slots.get_mut(number as usize).and_then(Option::take);
        if handle.is_some() {
            table.free.push(number as usize);
        }
        assert!(
            table.free.len() <= table.slots.len(),
            "a number is free once"
        );
        handle.ok_or_else(|| sys::errno(libc::EBADF))
    }

    /// How many handles are open.
    pub(crate) fn len(&self) -> usize {
        let table = read(&self.table);
        assert!(
            table.free.len() <= table.slots.len(),
            "a number is free once"
        );
        table.slots.len() - table.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_ask_for_what_the_kernel_means() {
        assert_eq!(Durable::from_flags(libc::O_RDWR | libc::O_APPEND), None);
        assert_eq!(Durable::from_flags(libc::O_DSYNC), Some(Durable::Data));
        let both = libc::O_SYNC | libc::O_DIRECT | libc::O_WRONLY;
        assert_eq!(Durable::from_flags(both), Some(Durable::Everything));
    }

    #[test]
    fn numbers_are_reused_only_after_removal() {
        let handles = Handles::default();
        let (a, b) = (
            handles.add(Handle::ControlDir),
            handles.add(Handle::ControlDir),
        );
        assert_ne!(a, b);
        assert!(handles.remove(a).is_ok());
        assert!(handles.get(a).is_err() && handles.remove(a).is_err());
        assert_eq!(handles.add(Handle::ControlDir), a);
        assert_eq!(handles.len(), 2);
        assert!(handles.get(99).is_err());
    }
}
