//! Plain files of a base directory as objects, for programs that bring no devices of their own.

use crate::classify::Dialect;
use crate::device::{FileDevice, FileOptions};
use crate::files::object::{Identity, ObjectSpec, Stamp};
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::UNIX_EPOCH;
use thermocline_core::FileKind;

const SECOND_NS: i64 = 1_000_000_000;

impl Identity {
    /// Which file this is: device, inode, and birth time where the file system knows it.
    #[must_use]
    pub fn of(file: &Metadata) -> Self {
        let born = file.created().ok();
        let born = born.and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        Self {
            device: file.dev(),
            inode: file.ino(),
            generation: born.map_or(0, |born| born.as_nanos() as u64),
        }
    }
}

impl Stamp {
    /// What changes when somebody writes the file.
    #[must_use]
    pub fn of(file: &Metadata) -> Self {
        let ns = |seconds: i64, rest: i64| seconds.saturating_mul(SECOND_NS).saturating_add(rest);
        Self {
            length: file.len(),
            mtime_ns: ns(file.mtime(), file.mtime_nsec()),
            ctime_ns: ns(file.ctime(), file.ctime_nsec()),
        }
    }
}

impl ObjectSpec {
    /// The file `name` below the directory `base`, which exists and may be written. It is cached,
    /// its pages are not typed, and it is a group of its own; change the fields to say more.
    ///
    /// Syncs the file: copies of its pages on flash must not outlive a power failure that takes
    /// the file back.
    ///
    /// # Errors
    /// Those of opening and syncing it; `InvalidInput` when it is no regular file or block device.
    pub fn of_file(base: &Path, name: &str, kind: FileKind) -> io::Result<Self> {
        let path = base.join(name);
        let file = OpenOptions::new().read(true).write(true).open(&path)?;
        file.sync_all()?;
        let identity = Identity::of(&file.metadata()?);
        let file = Arc::new(file);
        let (stamped, options) = (Arc::clone(&file), FileOptions::default());
        let label = path.display().to_string();
        Ok(Self {
            name: name.into(),
            group: name.into(),
            identity,
            base: Arc::new(FileDevice::from_file(Arc::clone(&file), label, options)?),
            kind,
            dialect: Dialect::None,
            cached: true,
            stamp: Arc::new(move || stamped.metadata().ok().as_ref().map(Stamp::of)),
            touch: Arc::new(move |at| set_modified(&file, at)),
        })
    }

    /// As [`ObjectSpec::of_file`] if that file is there and is the one called `identity`; else
    /// `None`. What [`crate::Engine::adopt`] asks for. A file that was renamed is not found.
    ///
    /// # Errors
    /// Those of [`ObjectSpec::of_file`], but for a missing file.
    pub fn find(
        base: &Path,
        name: &str,
        kind: FileKind,
        identity: &Identity,
    ) -> io::Result<Option<Self>> {
        match Self::of_file(base, name, kind) {
            Ok(spec) => Ok((spec.identity == *identity).then_some(spec)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Sets when the file was last changed: nanoseconds since 1970, or now by its own clock.
fn set_modified(file: &File, at: Option<i64>) -> io::Result<()> {
    let modified = match at {
        None => libc::timespec {
            tv_sec: 0,
            tv_nsec: libc::UTIME_NOW,
        },
        Some(ns) => libc::timespec {
            tv_sec: ns.div_euclid(SECOND_NS),
            tv_nsec: ns.rem_euclid(SECOND_NS),
        },
    };
    let accessed = libc::timespec {
        tv_sec: 0,
        tv_nsec: libc::UTIME_OMIT,
    };
    let times = [accessed, modified];
    // SAFETY: the descriptor is open as long as `file` is, and `times` is what the call reads.
    match unsafe { libc::futimens(file.as_raw_fd(), times.as_ptr()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn another_file_of_the_same_name_is_not_found() {
        let base = tempfile::tempdir().expect("a directory");
        let find = |identity: &Identity| {
            ObjectSpec::find(base.path(), "t", FileKind::Relation, identity).expect("asks")
        };
        assert!(find(&Identity::default()).is_none(), "no file at all");
        fs::write(base.path().join("t"), "one").expect("writes");
        let spec = ObjectSpec::of_file(base.path(), "t", FileKind::Relation).expect("opens");
        assert!(find(&spec.identity).is_some());
        fs::write(base.path().join("u"), "two").expect("writes");
        fs::rename(base.path().join("u"), base.path().join("t")).expect("renames");
        assert!(
            find(&spec.identity).is_none(),
            "the name means another file"
        );
    }

    #[test]
    fn touching_sets_the_time_of_change_alone() {
        let base = tempfile::tempdir().expect("a directory");
        let path = base.path().join("t");
        fs::write(&path, "bytes").expect("writes");
        let spec = ObjectSpec::of_file(base.path(), "t", FileKind::Relation).expect("opens");
        let accessed = fs::metadata(&path)
            .and_then(|m| m.accessed())
            .expect("asks");
        for ns in [-1, 1_000_000_001] {
            (spec.touch)(Some(ns)).expect("touches");
            let stamp = (spec.stamp)().expect("is there");
            assert_eq!((stamp.length, stamp.mtime_ns), (5, ns));
        }
        (spec.touch)(None).expect("touches");
        let now = (spec.stamp)().expect("is there");
        assert!(now.mtime_ns > 1_000_000_001 && now.mtime_ns <= now.ctime_ns);
        let later = fs::metadata(&path)
            .and_then(|m| m.accessed())
            .expect("asks");
        assert_eq!(later, accessed);
    }
}
