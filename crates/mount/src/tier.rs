//! What the mount needs of the tier below it.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, PoisonError};

use thermocline::classify::FileClass;
use thermocline_core::hint::HintSet;
use thermocline_core::page::ObjectId;

use crate::sys;

/// An object to register.
#[derive(Debug)]
pub struct Spec {
    /// Path relative to the mount.
    pub name: String,
    /// Device, inode number, inode generation.
    pub identity: (u64, u64, u64),
    /// The base file.
    pub file: Arc<File>,
    /// Kind, caching, page layout.
    pub class: FileClass,
}

/// One read or write.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Which object.
    pub object: ObjectId,
    /// From which byte.
    pub offset: u64,
    /// What is known about it.
    pub hints: HintSet,
    /// Who: a thread id.
    pub client: u32,
}

/// Reads, writes and forgets objects.
pub trait Tier: Send + Sync {
    /// Registers an open file.
    fn open_object(&self, spec: Spec) -> io::Result<ObjectId>;
    /// The file is closed; its pages may stay.
    fn close_object(&self, id: ObjectId);
    /// Short at the end of the file.
    fn read(&self, request: &Request, buf: &mut [u8]) -> io::Result<usize>;
    /// Writes all of `data`.
    fn write(&self, request: &Request, data: &[u8]) -> io::Result<()>;
    /// Sets the length.
    fn truncate(&self, id: ObjectId, len: u64) -> io::Result<()>;
    /// Makes a range read zeros.
    fn punch(&self, id: ObjectId, offset: u64, len: u64) -> io::Result<()>;
    /// Makes completed writes durable.
    fn sync(&self, id: ObjectId, data_only: bool) -> io::Result<()>;
    /// The object is gone for good.
    fn trim(&self, id: ObjectId);
    /// The object has another name.
    fn rename(&self, id: ObjectId, name: String);
}

/// No tier: everything goes to the base.
#[derive(Debug, Default)]
pub struct PassThrough {
    files: Mutex<(u32, HashMap<u32, Arc<File>>)>,
}

impl PassThrough {
    fn file(&self, id: ObjectId) -> io::Result<Arc<File>> {
        let files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.1.get(&id.0).cloned().ok_or_else(|| sys::errno(libc::EBADF))
    }
}

impl Tier for PassThrough {
    fn open_object(&self, spec: Spec) -> io::Result<ObjectId> {
        let mut files = self.files.lock().unwrap_or_else(PoisonError::into_inner);
        files.0 += 1;
        let id = files.0;
        files.1.insert(id, spec.file);
        Ok(ObjectId(id))
    }
    fn close_object(&self, id: ObjectId) {
        self.files.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&id.0);
    }
    fn read(&self, request: &Request, buf: &mut [u8]) -> io::Result<usize> {
        self.file(request.object)?.read_at(buf, request.offset)
    }
    fn write(&self, request: &Request, data: &[u8]) -> io::Result<()> {
        self.file(request.object)?.write_all_at(data, request.offset)
    }
    fn truncate(&self, id: ObjectId, len: u64) -> io::Result<()> {
        self.file(id)?.set_len(len)
    }
    fn punch(&self, id: ObjectId, offset: u64, len: u64) -> io::Result<()> {
        let mode = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;
        let file = self.file(id)?;
        sys::fallocate(&file, mode, offset.cast_signed(), len.cast_signed())
    }
    fn sync(&self, id: ObjectId, data_only: bool) -> io::Result<()> {
        sys::sync(self.file(id)?.as_raw_fd(), data_only)
    }
    fn trim(&self, _id: ObjectId) {}
    fn rename(&self, _id: ObjectId, _name: String) {}
}
