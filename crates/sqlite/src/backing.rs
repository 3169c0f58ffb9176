//! Stand-in for the engine: passes every request to the base file.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use thermocline_core::hint::{FileKind, HintSet};

/// Stand-in engine.
pub struct Engine;

/// Stand-in device.
pub type Device = std::fs::File;

pub(crate) struct Spec {
    pub(crate) path: PathBuf,
    pub(crate) dev: u64,
    pub(crate) ino: u64,
    pub(crate) base: Arc<Device>,
    pub(crate) kind: FileKind,
    pub(crate) cached: bool,
}

/// One file's object in the engine.
pub(crate) struct Backing {
    device: Arc<Device>,
}

impl Backing {
    pub(crate) fn open(_engine: &Arc<Engine>, spec: Spec) -> io::Result<Self> {
        Ok(Self { device: spec.base })
    }

    pub(crate) fn read(&self, buf: &mut [u8], offset: u64, _hints: HintSet) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self
                .device
                .read_at(&mut buf[done..], offset + done as u64)?
            {
                0 => break,
                n => done += n,
            }
        }
        Ok(done)
    }

    pub(crate) fn write(&self, data: &[u8], offset: u64, _hints: HintSet) -> io::Result<()> {
        self.device.write_all_at(data, offset)
    }

    pub(crate) fn truncate(&self, len: u64) -> io::Result<()> {
        self.device.set_len(len)
    }

    pub(crate) fn sync(&self, data_only: bool) -> io::Result<()> {
        if data_only {
            self.device.sync_data()
        } else {
            self.device.sync_all()
        }
    }

    pub(crate) fn len(&self) -> io::Result<u64> {
        Ok(self.device.metadata()?.len())
    }

    pub(crate) fn forget_pages(&self) {}
}
