//! Finding a file of base again by what the cache says of it.
//!
//! What the cache says is not believed: it may have been crafted by whoever could write it, and
//! names may mean something else by now. Names are walked one component at a time, from base
//! down, and no symbolic link is followed; nothing is opened for I/O before an `O_PATH` descriptor
//! has shown that it is the regular file that is wanted.

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirEntryExt;
use std::path::{Path, PathBuf};

use thermocline::Identity;

use crate::object::{identity, is_file};
use crate::sys;

/// The file `wanted` if it is at `name`, a path relative to `base`.
///
/// # Errors
/// Those of looking, which do not mean that it is gone.
pub(crate) fn under_name(
    base: RawFd,
    name: &str,
    wanted: &Identity,
) -> io::Result<Option<OwnedFd>> {
    match walk(base, name)? {
        Some(fd) if is_it(&fd, wanted)? => Ok(Some(fd)),
        _ => Ok(None),
    }
}

/// The file at `name`, a path relative to `base`.
///
/// # Errors
/// Those of looking, which do not mean that there is none.
pub(crate) fn walk(base: RawFd, name: &str) -> io::Result<Option<OwnedFd>> {
    let mut found: Option<OwnedFd> = None;
    // Empty components are refused, so no absolute name goes anywhere, and so are `.` and `..`.
    for component in name.split('/') {
        let parent = found.as_ref().map_or(base, AsRawFd::as_raw_fd);
        match sys::open_node(parent, component.as_ref()) {
            Err(error) if is_gone(&error) || is_no_name(&error) => return Ok(None),
            opened => found = Some(opened?),
        }
    }
    assert!(found.is_some(), "a name has a component");
    Ok(found)
}

/// Whether an error says that nothing is there, or no directory to look in.
fn is_gone(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOENT | libc::ENOTDIR))
}

/// Whether an error says that nothing can have such a name.
fn is_no_name(error: &io::Error) -> bool {
    let code = error.raw_os_error();
    matches!(code, Some(libc::EINVAL | libc::ENAMETOOLONG))
}

/// A directory that is being searched, and those in it that are still to be.
struct Level {
    directory: OwnedFd,
    path: PathBuf,
    below: Vec<OsString>,
}

/// The file `wanted` wherever it is below `base`, and its name. One directory a level is open.
///
/// # Errors
/// Those of looking, which do not mean that it is gone. What may not be looked into keeps no file
/// elsewhere from being found; without one it is the error.
pub(crate) fn anywhere(base: RawFd, wanted: &Identity) -> io::Result<Option<(OwnedFd, PathBuf)>> {
    let mut level = Level {
        directory: sys::open_directory(base)?,
        path: PathBuf::new(),
        below: Vec::new(),
    };
    if let Some(found) = level.search(wanted)? {
        return Ok(Some(found));
    }
    let (mut levels, mut forbidden) = (vec![level], None);
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.below.pop() else {
            levels.pop();
            continue;
        };
        let path = level.path.join(&name);
        let searched = level.enter(&name).and_then(|mut inner| {
            let found = inner.search(wanted)?;
            Ok((inner, found))
        });
        match searched {
            Ok((_, Some(found))) => return Ok(Some(found)),
            Ok((inner, None)) => {
                let depth = inner.path.iter().count();
                assert_eq!(depth, levels.len(), "one directory a level is open");
                levels.push(inner);
            }
            // It went away meanwhile, or something else has its name.
            Err(error) if is_gone(&error) || error.raw_os_error() == Some(libc::ELOOP) => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                forbidden.get_or_insert((path, error));
            }
            Err(error) => return Err(error),
        }
    }
    match forbidden {
        None => Ok(None),
        Some((path, error)) => {
            let text = format!("it may be in {}: {error}", path.display());
            Err(io::Error::new(io::ErrorKind::PermissionDenied, text))
        }
    }
}

impl Level {
    /// The directory `name` in this one.
    fn enter(&self, name: &OsStr) -> io::Result<Self> {
        let directory = sys::open_node(self.directory.as_raw_fd(), name)?;
        Ok(Self {
            directory,
            path: self.path.join(name),
            below: Vec::new(),
        })
    }

    /// Looks for `wanted` in this directory itself, and notes what directories it has.
    fn search(&mut self, wanted: &Identity) -> io::Result<Option<(OwnedFd, PathBuf)>> {
        for entry in fs::read_dir(sys::descriptor_path(self.directory.as_raw_fd()))? {
            let entry = entry?;
            let kind = match entry.file_type() {
                Err(error) if is_gone(&error) => continue,
                kind => kind?,
            };
            if kind.is_dir() {
                self.below.push(entry.file_name());
            }
            if kind.is_dir() || kind.is_symlink() || entry.ino() != wanted.inode {
                continue;
            }
            match sys::open_node(self.directory.as_raw_fd(), &entry.file_name()) {
                Err(error) if is_gone(&error) => {} // it went away meanwhile
                Err(error) => return Err(error),
                Ok(fd) if is_it(&fd, wanted)? => {
                    let path = self.path.join(entry.file_name());
                    assert!(path.is_relative(), "{} is below base", path.display());
                    return Ok(Some((fd, path)));
                }
                Ok(_) => {}
            }
        }
        Ok(None)
    }
}

/// Opens for I/O what [`under_name`] or [`anywhere`] found; `only_read`: reading will do.
pub(crate) fn open(found: &OwnedFd, only_read: bool) -> io::Result<fs::File> {
    let flags = libc::O_NONBLOCK | libc::O_NOCTTY;
    let opened = match sys::reopen(found.as_raw_fd(), libc::O_RDWR | flags) {
        Err(error) if only_read && sys::refuses_writers(&error) => {
            sys::reopen(found.as_raw_fd(), libc::O_RDONLY | flags)
        }
        other => other,
    }?;
    assert!(
        sys::stat(opened.as_raw_fd()).is_ok_and(|stat| is_file(&stat)),
        "what was checked is what was opened"
    );
    Ok(opened.into())
}

fn is_it(fd: &OwnedFd, wanted: &Identity) -> io::Result<bool> {
    let stat = sys::stat(fd.as_raw_fd())?;
    Ok(is_file(&stat) && identity(fd.as_raw_fd(), &stat) == *wanted)
}

/// A path as the engine keeps it.
pub(crate) fn name_of(path: &Path) -> String {
    debug_assert!(!path.as_os_str().as_bytes().starts_with(b"/"));
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn identity_of(path: &Path) -> Identity {
        let fd = sys::open_base(path.parent().unwrap()).unwrap();
        let fd = sys::open_node(fd.as_raw_fd(), path.file_name().unwrap()).unwrap();
        identity(fd.as_raw_fd(), &sys::stat(fd.as_raw_fd()).unwrap())
    }

    fn fifo(path: &Path) {
        let parent = sys::open_base(path.parent().unwrap()).unwrap();
        let name = path.file_name().unwrap();
        sys::mknod(parent.as_raw_fd(), name, libc::S_IFIFO | 0o600, 0).unwrap();
    }

    #[test]
    fn only_regular_files_below_base_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let base = dir.path().join("base");
        fs::create_dir_all(base.join("a/b")).unwrap();
        for name in ["outside", "base/a/b/inside"] {
            fs::write(dir.path().join(name), b"x").unwrap();
        }
        fifo(&base.join("fifo"));
        symlink(dir.path(), base.join("up")).unwrap();
        symlink("a", base.join("side")).unwrap();
        symlink(dir.path().join("outside"), base.join("link")).unwrap();
        let fd = sys::open_base(&base).unwrap();
        let fd = fd.as_raw_fd();
        let inside = identity_of(&base.join("a/b/inside"));
        let outside = identity_of(&dir.path().join("outside"));
        let found = under_name(fd, "a/b/inside", &inside).unwrap().unwrap();
        assert!(open(&found, false).is_ok());
        assert!(under_name(fd, "a/b/inside", &outside).unwrap().is_none());
        let absolute = dir.path().join("outside");
        for name in [
            "../outside",
            "up/outside",
            "link",
            absolute.to_str().unwrap(),
        ] {
            assert!(under_name(fd, name, &outside).unwrap().is_none(), "{name}");
        }
        for name in [
            "side/b/inside",
            "a//b/inside",
            "./a/b/inside",
            "a/b/../b/inside",
            "",
        ] {
            assert!(under_name(fd, name, &inside).unwrap().is_none(), "{name}");
        }
        // Neither is opened: a device could be hurt by that, a fifo waits.
        let fifo = identity_of(&base.join("fifo"));
        assert!(under_name(fd, "fifo", &fifo).unwrap().is_none());
        assert!(anywhere(fd, &fifo).unwrap().is_none());
        assert!(anywhere(fd, &outside).unwrap().is_none());
        let (_, name) = anywhere(fd, &inside).unwrap().unwrap();
        assert_eq!(name_of(&name), "a/b/inside");
    }

    #[test]
    fn files_deeper_than_the_longest_path_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let base = sys::open_base(dir.path()).unwrap();
        let deep = "d".repeat(250);
        let mut inner = sys::open_directory(base.as_raw_fd()).unwrap();
        for _ in 0..20 {
            sys::mkdir(inner.as_raw_fd(), deep.as_ref(), 0o700).unwrap();
            inner = sys::open_node(inner.as_raw_fd(), deep.as_ref()).unwrap();
        }
        let file = sys::create(inner.as_raw_fd(), "file".as_ref(), 0o600).unwrap();
        let stat = sys::stat(file.as_raw_fd()).unwrap();
        let wanted = identity(file.as_raw_fd(), &stat);
        let (_, name) = anywhere(base.as_raw_fd(), &wanted).unwrap().unwrap();
        assert_eq!(name.components().count(), 21);
        let named = under_name(base.as_raw_fd(), &name_of(&name), &wanted);
        assert!(named.unwrap().is_some());
    }

    #[test]
    fn an_error_of_looking_does_not_mean_that_a_file_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), b"x").unwrap();
        let wanted = identity_of(&dir.path().join("file"));
        let base = sys::open_base(dir.path()).unwrap();
        // A name below a file, and names that nothing can have.
        for name in ["none", "none/file", "file/file", "file/", &"n".repeat(300)] {
            let found = under_name(base.as_raw_fd(), name, &wanted);
            assert!(found.unwrap().is_none(), "{name}");
        }
        let code = |error: io::Error| error.raw_os_error();
        let closed = -1;
        let looked = walk(closed, "file").map_err(code);
        assert_eq!(looked.unwrap_err(), Some(libc::EBADF));
        let looked = under_name(closed, "file", &wanted).map_err(code);
        assert_eq!(looked.unwrap_err(), Some(libc::EBADF));
    }

    /// Runs `work` as somebody who may not do everything, in a thread of its own.
    fn as_somebody<T: Send>(work: impl FnOnce() -> T + Send) -> T {
        std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                if sys::effective_uid() == 0 {
                    sys::set_fs_user(12_345);
                }
                work()
            });
            thread.join().unwrap()
        })
    }

    #[test]
    fn what_may_not_be_looked_into_hides_no_file_elsewhere_and_leaves_doubt() {
        let dir = tempfile::tempdir().unwrap();
        let set = |path: &Path, mode| {
            fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
        };
        set(dir.path(), 0o755);
        let inner = ["lost", "open", "z-listed"].map(|name| dir.path().join(name));
        for path in &inner {
            fs::create_dir(path).unwrap();
            fs::write(path.join("file"), b"x").unwrap();
            fs::create_dir(path.join("below")).unwrap();
        }
        let files = inner.each_ref().map(|path| identity_of(&path.join("file")));
        let base = sys::open_base(dir.path()).unwrap();
        let find = |wanted: &Identity| {
            let found = as_somebody(|| anywhere(base.as_raw_fd(), wanted));
            found.map(|found| found.map(|(_, path)| name_of(&path)))
        };
        // Of one the names cannot be read, of the other one they can, and nothing else.
        set(&inner[0], 0o000);
        set(&inner[2], 0o444);
        assert_eq!(find(&files[1]).unwrap().as_deref(), Some("open/file"));
        for hidden in [0, 2] {
            let said = find(&files[hidden]).unwrap_err();
            assert_eq!(said.kind(), io::ErrorKind::PermissionDenied, "{said}");
            assert!(said.to_string().contains("it may be in "), "{said}");
        }
        for path in &inner {
            set(path, 0o755);
        }
        assert_eq!(find(&files[2]).unwrap().as_deref(), Some("z-listed/file"));
        fs::remove_file(inner[2].join("file")).unwrap();
        assert!(find(&files[2]).unwrap().is_none());
        set(dir.path(), 0o000);
        let found = as_somebody(|| anywhere(base.as_raw_fd(), &files[0]));
        set(dir.path(), 0o755);
        assert!(found.is_err(), "base itself");
    }
}
