//! Handles: what the kernel's open files refer to.
//!
//! A handle lives from the reply to an open until the kernel's release. Its number is an index
//! into one table; the table's lock is held for the look-up only, never across I/O.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use crate::inode::Node;
use crate::object::OpenObject;
use crate::sys;

/// An open regular file.
#[derive(Debug)]
pub(crate) struct FileHandle {
    pub(crate) node: Arc<Node>,
    pub(crate) object: Arc<OpenObject>,
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
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let slot = table.free.pop().unwrap_or(table.slots.len());
        if slot == table.slots.len() {
            table.slots.push(handle);
        } else {
            debug_assert!(table.slots[slot].is_none());
            table.slots[slot] = handle;
        }
        slot as u64
    }

    /// The handle with this number; `EBADF` when there is none.
    pub(crate) fn get(&self, number: u64) -> io::Result<Arc<Handle>> {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        let slot = table.slots.get(number as usize);
        slot.cloned()
            .flatten()
            .ok_or_else(|| sys::errno(libc::EBADF))
    }

    /// Takes the handle out of the table.
    pub(crate) fn remove(&self, number: u64) -> io::Result<Arc<Handle>> {
        let mut table = self.table.write().unwrap_or_else(PoisonError::into_inner);
        let handle = table.slots.get_mut(number as usize).and_then(Option::take);
        if handle.is_some() {
            table.free.push(number as usize);
        }
        handle.ok_or_else(|| sys::errno(libc::EBADF))
    }

    /// How many handles are open.
    pub(crate) fn len(&self) -> usize {
        let table = self.table.read().unwrap_or_else(PoisonError::into_inner);
        table.slots.len() - table.free.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
