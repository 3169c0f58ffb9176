//! Who may have made the file of a cache. The process that uses it may be root, and what the file
//! says decides which bytes go to base: so nobody else may be able to make it, change it, or say
//! by a symbolic link which file it is.
//!
//! 1. A cache is made in a file that is made with it, mode 0600. An empty file that is there
//!    already is taken only when the cache is to be made anew.
//! 2. A regular file must belong to this process's user or to root, and nobody else may write it.
//! 3. Symbolic links at the end of the path are followed when they belong to this user or to root,
//!    so that an administrator's names work (`/dev/disk/by-id/...`, `/var/cache/tier`).
//! 4. A block device is taken as it is: who may use it is said by its node in `/dev`.
//!
//! The directories on the way are the administrator's to protect.

use super::StoreOptions;
use crate::error::Error;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Symbolic links followed one after another; as many as the kernel follows.
const LINKS_MAX: usize = 40;
/// Write permission of the group and of others.
const OTHERS_WRITE: u32 = 0o022;

/// The file that `path` means, behind the symbolic links at its end.
///
/// # Errors
/// [`Error::Untrusted`] when such a link belongs to another user; [`Error::CacheIo`] when it cannot
/// be read. That there is no file is no error.
pub fn resolve(path: &Path) -> Result<PathBuf, Error> {
    let failed = |source| failed(path, source);
    let mut at = path.to_path_buf();
    for _ in 0..LINKS_MAX {
        let found = match fs::symlink_metadata(&at) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(at),
            Err(error) => return Err(failed(error)),
        };
        if !found.is_symlink() {
            return Ok(at);
        }
        if !is_ours(&found) {
            let user = found.uid();
            return Err(Error::Untrusted {
                path: path.display().to_string(),
                why: format!("the symbolic link {} belongs to user {user}", at.display()),
                advice: "name the file itself".into(),
            });
        }
        let target = fs::read_link(&at).map_err(failed)?;
        at = match at.parent() {
            Some(parent) => parent.join(target),
            None => target,
        };
    }
    Err(failed(io::Error::from_raw_os_error(libc::ELOOP)))
}

/// The file of a cache that is there, open for reading, and for writing where `write` says so.
pub(super) fn open_existing(path: &Path, write: bool) -> Result<Option<File>, Error> {
    let named = resolve(path)?;
    let mut how = OpenOptions::new();
    how.read(true).write(write).custom_flags(libc::O_NOFOLLOW);
    match fs::symlink_metadata(&named) {
        Ok(found) => Ok(Some(open_checked(path, &named, &found, &how)?.0)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(path, error)),
    }
}

fn open_checked(
    path: &Path,
    named: &Path,
    found: &Metadata,
    how: &OpenOptions,
) -> Result<(File, Metadata), Error> {
    check(path, found)?;
    let file = how.open(named).map_err(|error| failed(path, error))?;
    let opened = file.metadata().map_err(|error| failed(path, error))?;
    // What was opened counts, not what was there a moment ago.
    check(path, &opened)?;
    Ok((file, opened))
}

/// The file of a cache, open for reading and writing, and its path when it was made.
pub(super) fn open(path: &Path, options: &StoreOptions) -> Result<(File, Option<PathBuf>), Error> {
    let named = resolve(path)?;
    let mut how = OpenOptions::new();
    how.read(true).write(true).custom_flags(libc::O_NOFOLLOW);
    match fs::symlink_metadata(&named) {
        Ok(found) => {
            let (file, found) = open_checked(path, &named, &found, &how)?;
            if found.is_file() && found.len() == 0 && !options.format {
                return Err(Error::Untrusted {
                    path: path.display().to_string(),
                    why: "it is empty, and was not made by a mount".into(),
                    advice: "remove it, so that it is made anew, or use it with --format".into(),
                });
            }
            Ok((file, None))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if options.size.is_none() {
                let path = path.display().to_string();
                return Err(Error::NoSize { path });
            }
            let made = how.create_new(true).mode(0o600).open(&named);
            made.map(|file| (file, Some(named)))
                .map_err(|error| failed(path, error))
        }
        Err(error) => Err(failed(path, error)),
    }
}

/// What is wrong with the owner or the mode of a cache file, if anything is.
pub(super) fn objection(found: &Metadata) -> Option<String> {
    let mode = found.mode() & 0o7777;
    match () {
        () if found.file_type().is_block_device() => None,
        () if !is_ours(found) => Some(format!("it belongs to user {}", found.uid())),
        () if mode & OTHERS_WRITE != 0 => Some(format!("others may write it (mode {mode:04o})")),
        () => None,
    }
}

fn check(path: &Path, found: &Metadata) -> Result<(), Error> {
    if !found.is_file() && !found.file_type().is_block_device() {
        let message = "neither a regular file nor a block device";
        let source = io::Error::new(io::ErrorKind::InvalidInput, message);
        return Err(failed(path, source));
    }
    let Some(why) = objection(found) else {
        return Ok(());
    };
    let shown = path.display();
    Err(Error::Untrusted {
        path: shown.to_string(),
        why,
        advice: format!(
            "name another file; if you made this one and trust what it holds, `chown {} {shown}` \
             and `chmod 600 {shown}`",
            user()
        ),
    })
}

fn is_ours(found: &Metadata) -> bool {
    found.uid() == 0 || found.uid() == user()
}

fn user() -> u32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { libc::geteuid() }
}

fn failed(path: &Path, source: io::Error) -> Error {
    Error::CacheIo {
        path: path.display().to_string(),
        source,
    }
}
