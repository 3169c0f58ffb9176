//! Directory listings.
//!
//! The base's own directory offsets are handed out as they are, so a listing can be resumed
//! and rewound anywhere and nothing is kept per entry.

use std::ffi::OsStr;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Mutex;

use super::Fs;
use crate::control::{CONTROL_DIR, Control};
use crate::handle::{DirHandle, Handle};
use crate::inode::ROOT;
use crate::lock::lock;
use crate::sys;

const BUFFER_LEN: usize = 32 << 10;
/// Offset of the name in `struct linux_dirent64`.
const NAME_AT: usize = 19;

/// One entry of a listing.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// Inode number.
    pub ino: u64,
    /// Where a listing goes on after this entry.
    pub next: u64,
    /// `DT_REG`, `DT_DIR`, ...
    pub kind: u8,
    /// The name.
    pub name: &'a OsStr,
}

impl Fs {
    /// Opens a directory for listing. May wait for a moment: [`Self::wait_for_put_aside`].
    ///
    /// # Errors
    /// Whatever the base reports.
    pub fn opendir(&self, id: u64) -> io::Result<u64> {
        if id == Control::dir() {
            return Ok(self.handles.add(Handle::ControlDir));
        }
        let node = self.node(id)?;
        self.wait_for_put_aside(&node);
        let stream = sys::reopen(node.fd(), libc::O_RDONLY | libc::O_DIRECTORY)?;
        let handle = DirHandle {
            is_root: id == ROOT,
            stream: Mutex::new(stream),
        };
        Ok(self.handles.add(Handle::Dir(handle)))
    }

    /// Gives the entries from `offset` on to `emit` until it says that it is full.
    ///
    /// # Errors
    /// Whatever the base reports.
    pub fn readdir(
        &self,
        handle: u64,
        offset: u64,
        emit: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> io::Result<()> {
        match &*self.handle(handle)? {
            Handle::Dir(dir) => self.list(dir, offset, emit),
            Handle::ControlDir => self.list_control(offset, emit),
            _ => Err(sys::errno(libc::ENOTDIR)),
        }
    }

    fn list(
        &self,
        dir: &DirHandle,
        offset: u64,
        emit: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> io::Result<()> {
        let stream = lock(&dir.stream);
        sys::lseek(stream.as_raw_fd(), offset.cast_signed(), libc::SEEK_SET)?;
        let mut buf = vec![0; BUFFER_LEN];
        loop {
            let len = sys::getdents(stream.as_raw_fd(), &mut buf)?;
            if len == 0 {
                return Ok(());
            }
            let mut rest = &buf[..len];
            while let Some((entry, after)) = next_entry(rest) {
                rest = after;
                assert!(!entry.name.is_empty(), "an entry without a name");
                let hidden = dir.is_root && self.control.is_some() && entry.name == CONTROL_DIR;
                if !hidden && emit(entry) {
                    return Ok(());
                }
            }
        }
    }

    fn list_control(
        &self,
        offset: u64,
        emit: &mut dyn FnMut(Listed<'_>) -> bool,
    ) -> io::Result<()> {
        let dots = [".", ".."].map(|name| (Control::dir(), libc::DT_DIR, name));
        let files = self
            .control()?
            .list()
            .map(|(id, name)| (id, libc::DT_REG, name));
        let entries = dots.into_iter().chain(files).zip(1..);
        for ((ino, kind, name), next) in entries.skip(offset as usize) {
            if emit(Listed {
                ino,
                next,
                kind,
                name: OsStr::new(name),
            }) {
                break;
            }
        }
        Ok(())
    }

    /// Makes a directory's completed changes durable on the base.
    ///
    /// # Errors
    /// Whatever the base reports.
    pub fn fsyncdir(&self, handle: u64, data_only: bool) -> io::Result<()> {
        match &*self.handle(handle)? {
            Handle::Dir(dir) => {
                let stream = lock(&dir.stream);
                sys::sync_listed(stream.as_raw_fd(), data_only)
            }
            Handle::ControlDir => Ok(()),
            _ => Err(sys::errno(libc::ENOTDIR)),
        }
    }
}

/// Splits the first `linux_dirent64` off `buf`.
fn next_entry(buf: &[u8]) -> Option<(Listed<'_>, &[u8])> {
    let eight = |at: usize| buf.get(at..at + 8)?.try_into().ok().map(u64::from_ne_bytes);
    let len = usize::from(u16::from_ne_bytes(buf.get(16..18)?.try_into().ok()?));
    let (record, after) = buf.split_at_checked(len)?;
    assert!(
        len > NAME_AT,
        "an entry of {len} bytes has no room for a name"
    );
    let name = record.get(NAME_AT..)?;
    let end = name.iter().position(|&byte| byte == 0)?;
    let name = OsStr::from_bytes(&name[..end]);
    let kind = record[NAME_AT - 1];
    Some((
        Listed {
            ino: eight(0)?,
            next: eight(8)?,
            kind,
            name,
        },
        after,
    ))
}
