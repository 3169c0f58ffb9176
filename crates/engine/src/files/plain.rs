//! Plain files of a base directory as objects, for programs that bring no devices of their own.

use crate::classify::Dialect;
use crate::device::{FileDevice, FileOptions};
use crate::files::object::{Identity, ObjectSpec, Stamp};
use std::fs::{self, File, Metadata, OpenOptions};
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
        Self {
            length: file.len(),
            mtime_ns: Self::nanoseconds(file.mtime(), file.mtime_nsec()),
            ctime_ns: Self::nanoseconds(file.ctime(), file.ctime_nsec()),
        }
    }

    /// A time in nanoseconds since 1970. Times that are too far away for them (before 1678, after
    /// 2262) are all one: the first, or the last, that there is.
    #[must_use]
    pub fn nanoseconds(seconds: i64, rest: i64) -> i64 {
        let whole = seconds.saturating_mul(SECOND_NS);
        match whole {
            i64::MIN => whole,
            _ => whole.saturating_add(rest),
        }
    }

    /// When the contents were last changed, where nanoseconds since 1970 can tell.
    pub(crate) fn time_of_change(&self) -> Option<i64> {
        let told = self.mtime_ns != i64::MAX && self.mtime_ns != i64::MIN;
        told.then_some(self.mtime_ns)
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
        Self::of_open(file, &path, name, kind)
    }

    fn of_open(file: File, path: &Path, name: &str, kind: FileKind) -> io::Result<Self> {
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
    /// `None`. What [`crate::Engine::adopt`] asks for. A file that was renamed is not found. One
    /// that cannot be written is opened to be read.
    ///
    /// # Errors
    /// Those of [`ObjectSpec::of_file`], but for a missing file.
    pub fn find(
        base: &Path,
        name: &str,
        kind: FileKind,
        identity: &Identity,
    ) -> io::Result<Option<Self>> {
        let path = base.join(name);
        // Asked before it is opened: another file, or what is no file, is none of our business.
        let is_it = |found: &Metadata| Identity::of(found) == *identity;
        let opened = fs::metadata(&path).and_then(|found| match is_it(&found) {
            true => open_as_allowed(&path).map(Some),
            false => Ok(None),
        });
        match opened {
            Ok(None) => Ok(None),
            Ok(Some(file)) => {
                let spec = Self::of_open(file, &path, name, kind)?;
                Ok((spec.identity == *identity).then_some(spec))
            }
            Err(error) if is_not_there(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Opens a file to be written, or to be read where writing is not allowed.
fn open_as_allowed(path: &Path) -> io::Result<File> {
    let both = OpenOptions::new().read(true).write(true).open(path);
    let refused = [libc::EACCES, libc::EPERM, libc::EROFS, libc::ETXTBSY];
    match both {
        Err(error) if refused.map(Some).contains(&error.raw_os_error()) => File::open(path),
        opened => opened,
    }
}

/// Whether it says that no file has the name: none at all, or something else on its way.
fn is_not_there(error: &io::Error) -> bool {
    let none = [libc::ENOENT, libc::ENOTDIR, libc::ELOOP, libc::EISDIR];
    none.map(Some).contains(&error.raw_os_error())
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
    fn a_file_that_cannot_be_written_is_found_and_a_directory_is_not() {
        let base = tempfile::tempdir().expect("a directory");
        let path = base.path().join("t");
        let find = |identity: &Identity| {
            ObjectSpec::find(base.path(), "t", FileKind::Relation, identity).expect("asks")
        };
        // A program that runs may not be written, not even by root.
        fs::copy("/bin/sleep", &path).expect("copies");
        let identity = Identity::of(&fs::metadata(&path).expect("is there"));
        let running = std::process::Command::new(&path).arg("60").spawn();
        let mut running = running.expect("runs");
        let found = find(&identity);
        running.kill().expect("ends");
        running.wait().expect("ended");
        assert!(found.is_some_and(|spec| !spec.base.can_write()));
        fs::remove_file(&path).expect("removes");
        fs::create_dir(&path).expect("makes");
        assert!(find(&identity).is_none(), "a directory");
        let directory = Identity::of(&fs::metadata(&path).expect("is there"));
        let under = ObjectSpec::find(base.path(), "t/u", FileKind::Relation, &identity);
        assert!(under.expect("asks").is_none() && directory != identity);
        fs::write(base.path().join("v"), "file").expect("writes");
        let under = ObjectSpec::find(base.path(), "v/u", FileKind::Relation, &identity);
        assert!(under.expect("asks").is_none(), "below a file");
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
