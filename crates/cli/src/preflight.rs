//! What must hold before anything is started: the directories, the FUSE device, the cache's place.
//!
//! Each check has its own message: the reader should not have to guess from `EINVAL`.

use crate::failure::{Code, Failure, Outcome, reason};
use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The device through which the kernel talks to a file system in a process.
const FUSE_DEVICE: &str = "/dev/fuse";

/// The directories of a mount, absolute and without symbolic links.
#[derive(Debug)]
pub(crate) struct Places {
    /// The database's own files.
    pub(crate) base: PathBuf,
    /// Where they will be seen.
    pub(crate) mountpoint: PathBuf,
    /// The cache file, if there is to be one.
    pub(crate) cache: Option<PathBuf>,
}

/// Checks the directories and the FUSE device.
pub(crate) fn check(
    base: &Path,
    mountpoint: &Path,
    cache: Option<&Path>,
) -> Result<Places, Failure> {
    let base = check_base(base)?;
    let mountpoint = check_mountpoint(mountpoint)?;
    check_apart(&base, &mountpoint)?;
    let cache = cache
        .map(|cache| check_cache(cache, &base, &mountpoint))
        .transpose()?;
    check_fuse(Path::new(FUSE_DEVICE))?;
    Ok(Places {
        base,
        mountpoint,
        cache,
    })
}

fn check_base(base: &Path) -> Result<PathBuf, Failure> {
    let found = base.canonicalize().map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => {
            Failure::usage(format!("base directory {} does not exist", base.display()))
                .advise("make it first, or give the directory that holds the database's files")
        }
        _ => Failure::io("open base directory", base, &error),
    })?;
    if !found.is_dir() {
        return Err(Failure::usage(format!(
            "base {} is not a directory",
            base.display()
        )));
    }
    writable(&found)?;
    Ok(found)
}

/// Refuses a directory this process cannot write to.
fn writable(base: &Path) -> Outcome {
    let path = CString::new(base.as_os_str().as_bytes())
        .map_err(|_| Failure::usage("a path cannot hold a zero byte"))?;
    // SAFETY: `path` is a terminated string that outlives the call.
    if unsafe { libc::access(path.as_ptr(), libc::R_OK | libc::W_OK | libc::X_OK) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::EROFS) {
        let message = format!(
            "base directory {} is on a read-only file system",
            base.display()
        );
        return Err(Failure::new(Code::System, message)
            .advise("remount that file system read-write: a database writes even when it reads"));
    }
    Err(Failure::io("write to base directory", base, &error))
}

fn check_mountpoint(mountpoint: &Path) -> Result<PathBuf, Failure> {
    let shown = mountpoint.display();
    let found = mountpoint
        .canonicalize()
        .map_err(|error| match error.raw_os_error() {
            Some(libc::ENOENT) => Failure::usage(format!("mountpoint {shown} does not exist"))
                .advise(format!("mkdir -p {shown}")),
            Some(libc::ENOTCONN) => {
                Failure::usage(format!("{shown} is a mount whose process is gone"))
                    .advise(format!("thermocline umount {shown}, then mount again"))
            }
            _ => Failure::io("open mountpoint", mountpoint, &error),
        })?;
    if !found.is_dir() {
        return Err(Failure::usage(format!(
            "mountpoint {shown} is not a directory"
        )));
    }
    if found.join(crate::commands::control::DIRECTORY).is_dir() {
        return Err(
            Failure::usage(format!("{shown} is a Thermocline mount already")).advise(format!(
                "thermocline status {shown}, or thermocline umount {shown}"
            )),
        );
    }
    let mut entries = fs::read_dir(&found).map_err(|e| Failure::io("read", mountpoint, &e))?;
    if entries.next().is_some() {
        return Err(Failure::usage(format!("mountpoint {shown} is not empty"))
            .advise("the mount would hide what is in it: give an empty directory"));
    }
    Ok(found)
}

/// Refuses directories within one another: the mount would serve itself.
fn check_apart(base: &Path, mountpoint: &Path) -> Outcome {
    let what = if base == mountpoint {
        "are the same directory"
    } else if mountpoint.starts_with(base) {
        "do not work: the mountpoint is inside base"
    } else if base.starts_with(mountpoint) {
        "do not work: base is inside the mountpoint"
    } else {
        return Ok(());
    };
    let (base, mountpoint) = (base.display(), mountpoint.display());
    Err(
        Failure::usage(format!("base {base} and mountpoint {mountpoint} {what}"))
            .advise("a mountpoint beside base, for example /srv/NAME"),
    )
}

/// The cache file's path; its directory must exist, and not be one that is served.
fn check_cache(cache: &Path, base: &Path, mountpoint: &Path) -> Result<PathBuf, Failure> {
    let shown = cache.display();
    if cache.is_dir() {
        return Err(Failure::usage(format!("cache {shown} is a directory"))
            .advise(format!("--cache {}", cache.join("tier").display())));
    }
    let absolute = std::path::absolute(cache).map_err(|e| Failure::io("find", cache, &e))?;
    let found = absolute.canonicalize().or_else(|_| {
        let parent = absolute.parent().unwrap_or(Path::new("/")).canonicalize()?;
        Ok(parent.join(absolute.file_name().unwrap_or_default()))
    });
    let found = found.map_err(|error: io::Error| {
        Failure::usage(format!(
            "cannot find the directory of cache {shown}: {}",
            reason(&error)
        ))
        .advise("give a file in a directory on the flash device, or a block device")
    })?;
    for (name, served) in [("base directory", base), ("mountpoint", mountpoint)] {
        if found.starts_with(served) {
            let message = format!("cache {shown} is inside the {name} {}", served.display());
            return Err(Failure::usage(message).advise("a place on the flash device outside of it"));
        }
    }
    Ok(found)
}

fn check_fuse(device: &Path) -> Outcome {
    let error = match File::options().read(true).write(true).open(device) {
        Ok(_) => return Ok(()),
        Err(error) => error,
    };
    let shown = device.display();
    // Anyone but root mounts through fusermount3, which opens the device itself.
    // SAFETY: no arguments; always succeeds.
    let through_fusermount = unsafe { libc::geteuid() } != 0 && finds_fusermount();
    match error.kind() {
        io::ErrorKind::PermissionDenied if through_fusermount => Ok(()),
        io::ErrorKind::PermissionDenied => Err(Failure::new(
            Code::System,
            format!("no permission to use {shown}"),
        )
        .advise("run as root, or install fuse3 and let this user read and write the device")),
        _ => Err(Failure::new(
            Code::System,
            format!("no FUSE device: cannot open {shown}: {}", reason(&error)),
        )
        .advise(
            "modprobe fuse; in a container: --device /dev/fuse --cap-add SYS_ADMIN. \
             thermocline demo needs neither",
        )),
    }
}

fn finds_fusermount() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|directory| directory.join("fusermount3").exists())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(outcome: Result<impl std::fmt::Debug, Failure>) -> String {
        outcome.expect_err("refused").to_string()
    }

    #[test]
    fn directories_must_exist_and_be_apart() {
        let root = tempfile::tempdir().expect("dir");
        let (base, inner) = (root.path().join("base"), root.path().join("base/inner"));
        fs::create_dir_all(&inner).expect("dirs");
        let missing = root.path().join("missing");
        assert!(message(check(&missing, &inner, None)).contains("does not exist"));
        assert!(message(check(&base, &missing, None)).contains("mkdir -p"));
        assert!(message(check(&base, &inner, None)).contains("mountpoint is inside base"));
        assert!(message(check(&inner, &inner, None)).contains("same directory"));
    }

    #[test]
    fn a_symbolic_link_into_base_does_not_fool_it() {
        let root = tempfile::tempdir().expect("dir");
        let (base, inner) = (root.path().join("base"), root.path().join("base/inner"));
        fs::create_dir_all(&inner).expect("dirs");
        let link = root.path().join("elsewhere");
        std::os::unix::fs::symlink(&inner, &link).expect("link");
        assert!(message(check(&base, &link, None)).contains("inside base"));
    }

    #[test]
    fn a_mountpoint_must_be_an_empty_directory() {
        let root = tempfile::tempdir().expect("dir");
        let (base, used) = (root.path().join("base"), root.path().join("used"));
        fs::create_dir(&base).expect("base");
        fs::create_dir(&used).expect("used");
        fs::write(used.join("file"), "x").expect("file");
        assert!(message(check(&base, &used, None)).contains("not empty"));
        assert!(message(check(&base, &used.join("file"), None)).contains("not a directory"));
        assert!(message(check(&used.join("file"), &used, None)).contains("not a directory"));
    }

    #[test]
    fn a_cache_is_a_file_outside_of_what_is_served() {
        let root = tempfile::tempdir().expect("dir");
        let (base, mountpoint) = (root.path().join("base"), root.path().join("mnt"));
        fs::create_dir(&base).expect("base");
        fs::create_dir(&mountpoint).expect("mnt");
        let refused = |cache: &Path| message(check(&base, &mountpoint, Some(cache)));
        assert!(refused(&base.join("tier")).contains("inside the base directory"));
        assert!(refused(&mountpoint.join("tier")).contains("inside the mountpoint"));
        assert!(refused(root.path()).contains("is a directory"));
        assert!(refused(&root.path().join("no/tier")).contains("cannot find the directory"));
    }

    #[test]
    fn a_missing_device_is_named() {
        let root = tempfile::tempdir().expect("dir");
        let failure = check_fuse(&root.path().join("fuse")).expect_err("refused");
        assert_eq!(failure.code, Code::System);
        assert!(failure.message.starts_with("no FUSE device"), "{failure}");
    }
}
