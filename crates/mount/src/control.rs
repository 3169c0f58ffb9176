//! The control directory: `.thermocline/` in the mount's root, found by name only.
//!
//! It exists nowhere on the base and directory listings leave it out, because `initdb` and
//! other programs want an empty directory to be empty. Reading a file gives what it said when
//! it was opened; every write is one command and reports its own error.

use std::ffi::OsStr;
use std::io;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use crate::inode::FIRST_CONTROL;
use crate::sys::{self, Stat};

/// The control directory's name.
pub const CONTROL_DIR: &str = ".thermocline";

/// Ids that the directory and its files may have.
const IDS: u64 = 256;

/// One file of the control directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlFile {
    /// Its name.
    pub name: &'static str,
    /// Whether the mounter (nobody else) may write it.
    pub writable: bool,
}

/// What the files of the control directory say and do; given by whoever mounts.
pub trait ControlFiles: Send + Sync {
    /// The files there are. Must not change while mounted.
    fn files(&self) -> Vec<ControlFile>;

    /// What a file says now.
    ///
    /// # Errors
    /// Any; the reader's open fails with it.
    fn read(&self, name: &str) -> io::Result<Vec<u8>>;

    /// Executes what was written to a file, without its trailing line feed.
    ///
    /// # Errors
    /// `InvalidInput` for what the file does not understand; the writer gets it.
    fn write(&self, name: &str, command: &str) -> io::Result<()>;
}

/// The control directory of one mount.
pub(crate) struct Control {
    files: Vec<ControlFile>,
    source: Arc<dyn ControlFiles>,
    mounted: i64,
}

impl Control {
    pub(crate) fn new(source: Arc<dyn ControlFiles>) -> Self {
        let mounted = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let files = source.files();
        assert!(files.len() < IDS as usize, "{} control files", files.len());
        let plain = |file: &ControlFile| !file.name.is_empty() && !file.name.contains('/');
        assert!(files.iter().all(plain), "names of control files");
        Self {
            files,
            source,
            mounted: mounted.as_secs().cast_signed(),
        }
    }

    /// Whether an id belongs to this directory.
    pub(crate) fn owns(id: u64) -> bool {
        (FIRST_CONTROL..FIRST_CONTROL + IDS).contains(&id)
    }

    /// The directory's own id.
    pub(crate) fn dir() -> u64 {
        FIRST_CONTROL
    }

    /// The id of a file in it.
    pub(crate) fn find(&self, name: &OsStr) -> io::Result<u64> {
        let index = self
            .files
            .iter()
            .position(|file| OsStr::new(file.name) == name);
        let index = index.ok_or_else(|| sys::errno(libc::ENOENT))?;
        let id = FIRST_CONTROL + 1 + index as u64;
        assert!(Self::owns(id), "{id} is another's");
        Ok(id)
    }

    fn file(&self, id: u64) -> io::Result<(usize, &ControlFile)> {
        let index = (id.wrapping_sub(FIRST_CONTROL + 1)) as usize;
        let file = self
            .files
            .get(index)
            .ok_or_else(|| sys::errno(libc::EISDIR))?;
        Ok((index, file))
    }

    /// Attributes; the length is 0, as in `/proc`.
    pub(crate) fn stat(&self, id: u64) -> io::Result<Stat> {
        let mode = if id == Self::dir() {
            libc::S_IFDIR | 0o555
        } else if self.file(id)?.1.writable {
            libc::S_IFREG | 0o644
        } else {
            libc::S_IFREG | 0o444
        };
        assert!(Self::owns(id), "{id} is another's");
        // SAFETY: all zero is a valid `stat64`.
        let mut stat: Stat = unsafe { std::mem::zeroed() };
        (stat.st_ino, stat.st_mode, stat.st_nlink) = (id, mode, 1);
        stat.st_uid = sys::effective_uid();
        stat.st_blksize = 4096;
        (stat.st_atime, stat.st_mtime, stat.st_ctime) = (self.mounted, self.mounted, self.mounted);
        Ok(stat)
    }

    /// Number and present content of a file.
    pub(crate) fn open(&self, id: u64) -> io::Result<(usize, Vec<u8>)> {
        let (index, file) = self.file(id)?;
        Ok((index, self.source.read(file.name)?))
    }

    /// Executes one write.
    pub(crate) fn write(&self, index: usize, data: &[u8]) -> io::Result<()> {
        let file = self
            .files
            .get(index)
            .ok_or_else(|| sys::errno(libc::EBADF))?;
        let text = std::str::from_utf8(data).map_err(|_| sys::errno(libc::EINVAL))?;
        let command = text.strip_suffix('\n').unwrap_or(text);
        self.source.write(file.name, command)
    }

    /// The names in it, with their ids.
    pub(crate) fn list(&self) -> impl Iterator<Item = (u64, &'static str)> + '_ {
        let names = self.files.iter().map(|file| file.name);
        names
            .enumerate()
            .map(|(index, name)| (FIRST_CONTROL + 1 + index as u64, name))
    }
}
