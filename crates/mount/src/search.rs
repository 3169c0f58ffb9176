//! Finding a file of base again by what the cache says of it.
//!
//! What the cache says is not believed: it may have been crafted by whoever could write it, and
//! names may mean something else by now. Names are walked one component at a time, from base
//! down, and no symbolic link is followed; nothing is opened for I/O before an `O_PATH` descriptor
//! has shown that it is the regular file that is wanted.

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
pub(crate) fn under_name(base: RawFd, name: &str, wanted: &Identity) -> Option<OwnedFd> {
    walk(base, name).filter(|fd| is_it(fd, wanted))
}

/// The file at `name`, a path relative to `base`.
pub(crate) fn walk(base: RawFd, name: &str) -> Option<OwnedFd> {
    let mut components = name.split('/');
    // Empty components are refused, so no absolute name goes anywhere, and so are `.` and `..`.
    let mut fd = sys::open_node(base, components.next()?.as_ref()).ok()?;
    for component in components {
        fd = sys::open_node(fd.as_raw_fd(), component.as_ref()).ok()?;
    }
    Some(fd)
}

/// The file `wanted` wherever it is below `base`, and its name.
pub(crate) fn anywhere(base: RawFd, wanted: &Identity) -> io::Result<Option<(OwnedFd, PathBuf)>> {
    let mut directories = vec![(sys::open_directory(base)?, PathBuf::new())];
    while let Some((directory, path)) = directories.pop() {
        for entry in fs::read_dir(sys::descriptor_path(directory.as_raw_fd()))? {
            let entry = entry?;
            let kind = entry.file_type()?;
            if kind.is_symlink() || !kind.is_dir() && entry.ino() != wanted.inode {
                continue;
            }
            let Ok(fd) = sys::open_node(directory.as_raw_fd(), &entry.file_name()) else {
                continue; // it went away meanwhile
            };
            let path = path.join(entry.file_name());
            if kind.is_dir() {
                directories.push((sys::open_directory(fd.as_raw_fd())?, path));
            } else if is_it(&fd, wanted) {
                return Ok(Some((fd, path)));
            }
        }
    }
    Ok(None)
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

fn is_it(fd: &OwnedFd, wanted: &Identity) -> bool {
    let stat = sys::stat(fd.as_raw_fd());
    stat.is_ok_and(|stat| is_file(&stat) && identity(fd.as_raw_fd(), &stat) == *wanted)
}

/// A path as the engine keeps it.
pub(crate) fn name_of(path: &Path) -> String {
    debug_assert!(!path.as_os_str().as_bytes().starts_with(b"/"));
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

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
        let found = under_name(fd, "a/b/inside", &inside).unwrap();
        assert!(open(&found, false).is_ok());
        assert!(under_name(fd, "a/b/inside", &outside).is_none());
        let absolute = dir.path().join("outside");
        for name in [
            "../outside",
            "up/outside",
            "link",
            absolute.to_str().unwrap(),
        ] {
            assert!(under_name(fd, name, &outside).is_none(), "{name}");
        }
        for name in [
            "side/b/inside",
            "a//b/inside",
            "./a/b/inside",
            "a/b/../b/inside",
            "",
        ] {
            assert!(under_name(fd, name, &inside).is_none(), "{name}");
        }
        // Neither is opened: a device could be hurt by that, a fifo waits.
        let fifo = identity_of(&base.join("fifo"));
        assert!(under_name(fd, "fifo", &fifo).is_none());
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
        assert!(under_name(base.as_raw_fd(), &name_of(&name), &wanted).is_some());
    }
}
