//! One file's object in the engine: the only place of this crate that makes requests.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use thermocline::classify::{Access, Dialect, Streams};
use thermocline::device::Device;
use thermocline::{Engine, Identity, Object, ObjectSpec, Request, Stamp, Told};
use thermocline_core::hint::{FileKind, HintSet, RequestType, hint_type};

/// A file to be registered with the engine.
pub(crate) struct Spec<'a> {
    pub(crate) path: &'a Path,
    pub(crate) file: Arc<File>,
    pub(crate) base: Arc<dyn Device>,
    pub(crate) kind: FileKind,
    pub(crate) cached: bool,
}

/// An open object; closed when dropped. Its pages stay cached.
pub(crate) struct Backing {
    engine: Arc<Engine>,
    object: Arc<Object>,
    base: Arc<dyn Device>,
    streams: Mutex<Streams>,
}

impl Backing {
    pub(crate) fn open(engine: &Arc<Engine>, spec: Spec<'_>) -> io::Result<Self> {
        let meta = spec.file.metadata()?;
        let name = spec.path.file_name().unwrap_or(spec.path.as_os_str());
        let (file, touched) = (Arc::clone(&spec.file), spec.file);
        if spec.cached {
            // What flash copies from base must not be lost by a power cut before it is.
            spec.base.sync(true)?;
        }
        let object = engine.open_object(ObjectSpec {
            name: name.to_string_lossy().into_owned(),
            group: name.to_string_lossy().into_owned(),
            identity: Identity::of(&meta),
            base: Arc::clone(&spec.base),
            kind: spec.kind,
            dialect: if spec.cached {
                Dialect::Sqlite
            } else {
                Dialect::None
            },
            cached: spec.cached,
            stamp: Arc::new(move || file.metadata().ok().as_ref().map(Stamp::of)),
            // When flash has failed, base's time is to show that the file is newer than flash.
            touch: Arc::new(move |at| set_modified(&touched, at)),
        })?;
        let (engine, streams) = (Arc::clone(engine), Mutex::default());
        let opened = Self {
            engine,
            object,
            base: spec.base,
            streams,
        };
        if spec.cached {
            // The engine may still have the object, with a length that others have changed since.
            opened.engine.take_length(&opened.object)?;
        }
        Ok(opened)
    }

    /// Reads past the engine: nothing of it is kept.
    pub(crate) fn read_base(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.base.read_at(buf, offset)
    }

    /// Reads at most `buf.len()` bytes; short at the end of the file. The request type is filled
    /// in: sequential when the file's earlier reads lead here.
    pub(crate) fn read(
        &self,
        buf: &mut [u8],
        offset: u64,
        hints: HintSet,
        client: u32,
    ) -> io::Result<usize> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        let request = match streams.note(offset, buf.len() as u64) {
            Access::Sequential => RequestType::SequentialRead,
            Access::Random => RequestType::Read,
        };
        drop(streams);
        let hints = hints.with(hint_type::REQUEST, request.value());
        self.engine.read(
            &Request {
                object: &self.object,
                offset,
                hints,
                client,
            },
            buf,
        )
    }

    pub(crate) fn write(
        &self,
        data: &[u8],
        offset: u64,
        hints: HintSet,
        client: u32,
    ) -> io::Result<()> {
        self.engine.write(
            &Request {
                object: &self.object,
                offset,
                hints,
                client,
            },
            data,
        )
    }

    pub(crate) fn truncate(&self, len: u64) -> io::Result<()> {
        self.engine.truncate(&self.object, len)
    }

    /// What a handle that opens the file now was told of failed syncs.
    pub(crate) fn told(&self) -> Told {
        Told::by(&self.object)
    }

    pub(crate) fn sync(&self, told: &Told, data_only: bool) -> io::Result<()> {
        self.engine.sync_for(&self.object, told, data_only)
    }

    /// Bytes on base.
    pub(crate) fn len(&self) -> io::Result<u64> {
        self.base.len()
    }

    /// The file was changed by somebody else: drops what is cached of it and takes note of its
    /// length.
    pub(crate) fn refresh(&self) -> io::Result<()> {
        self.engine.trim(&self.object);
        self.engine.take_length(&self.object)
    }

    /// Drops what is cached of the file.
    pub(crate) fn forget_pages(&self) {
        self.engine.trim(&self.object);
    }
}

impl Drop for Backing {
    fn drop(&mut self) {
        self.engine.close_object(&self.object);
    }
}

/// Sets when the file was last changed: nanoseconds since 1970, or now by its own clock.
fn set_modified(file: &File, at: Option<i64>) -> io::Result<()> {
    const SECOND_NS: i64 = 1_000_000_000;
    let time = |tv_sec, tv_nsec| libc::timespec { tv_sec, tv_nsec };
    let modified = match at {
        None => time(0, libc::UTIME_NOW),
        Some(ns) => time(ns.div_euclid(SECOND_NS), ns.rem_euclid(SECOND_NS)),
    };
    let times = [time(0, libc::UTIME_OMIT), modified];
    // SAFETY: the descriptor is open as long as `file` is, and `times` is what the call reads.
    match unsafe { libc::futimens(file.as_raw_fd(), times.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_is_touched_was_changed_now_by_its_own_clock() {
        let directory = tempfile::tempdir().unwrap();
        let file = File::create(directory.path().join("a.db")).unwrap();
        let stamp = || Stamp::of(&file.metadata().unwrap());
        let accessed = || file.metadata().unwrap().accessed().unwrap();
        let before = (accessed(), stamp().mtime_ns);
        for ns in [-1, 1_000_000_001] {
            set_modified(&file, Some(ns)).unwrap();
            assert_eq!(stamp().mtime_ns, ns);
        }
        set_modified(&file, None).unwrap();
        assert!(stamp().mtime_ns >= before.1);
        assert_eq!(accessed(), before.0);
    }
}
