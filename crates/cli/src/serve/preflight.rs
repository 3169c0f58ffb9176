//! What must hold before anything is started, and before the process leaves the terminal.

use crate::failure::{Failure, Outcome, reason};
use crate::serve::client;
use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use thermocline_mount::Mount;

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
    client::answers(mountpoint)?;
    let (base, mountpoint) = Mount::check(base, mountpoint)?;
    let way = "rename it, or bind it to a path that is (mount --bind)";
    utf8("base directory", &base, way)?;
    utf8("mountpoint", &mountpoint, "another directory")?;
    writable(&base)?;
    let cache = cache
        .map(|cache| check_cache(cache, &base, &mountpoint))
        .transpose()?;
    Ok(Places {
        base,
        mountpoint,
        cache,
    })
}

/// Refuses a path that is not UTF-8: what a mount and the commands tell each other is, so nothing
/// could be asked of a mount with such a path.
pub(crate) fn utf8(what: &str, path: &Path, way: &str) -> Outcome {
    match path.to_str() {
        Some(_) => Ok(()),
        None => Err(Failure::usage(format!("{what} {path:?} is not UTF-8")).advise(way)),
    }
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
    Err(Failure::io("write to base directory", base, &error))
}

/// The cache file's path behind symbolic links that may be trusted; its directory must exist, and
/// not be one that is served.
pub(crate) fn check_cache(
    cache: &Path,
    base: &Path,
    mountpoint: &Path,
) -> Result<PathBuf, Failure> {
    let shown = cache.display();
    if cache.is_dir() {
        return Err(Failure::usage(format!("cache {shown} is a directory"))
            .advise(format!("--cache {}", cache.join("tier").display())));
    }
    let resolved = thermocline::store::resolve(cache)?;
    let absolute = std::path::absolute(&resolved).map_err(|e| Failure::io("find", cache, &e))?;
    let found = place_of(&absolute).map_err(|error| {
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
    utf8("cache", &found, "a file whose whole path is")?;
    Ok(found)
}

/// Where a file is, or would be made, behind symbolic links.
fn place_of(path: &Path) -> io::Result<PathBuf> {
    path.canonicalize().or_else(|_| {
        let parent = path.parent().unwrap_or(Path::new("/")).canonicalize()?;
        Ok(parent.join(path.file_name().unwrap_or_default()))
    })
}

/// Refuses a file that the mount would write through itself, or into its cache.
pub(crate) fn apart(what: &str, path: &Path, places: &Places) -> Outcome {
    // One that cannot be found is refused by whoever opens it.
    let found = place_of(path).unwrap_or_else(|_| path.to_path_buf());
    let shown = path.display();
    let mountpoint = &places.mountpoint;
    if found.starts_with(mountpoint) {
        let within = mountpoint.display();
        let message = format!("{what} {shown} is inside the mountpoint {within}");
        return Err(Failure::usage(message).advise("a place outside of it"));
    }
    match places.cache.as_ref().filter(|cache| is_same(cache, &found)) {
        Some(cache) => {
            let message = format!("{what} {shown} is the cache {}", cache.display());
            Err(Failure::usage(message).advise("another file"))
        }
        None => Ok(()),
    }
}

/// Whether both are one file, by whatever names.
fn is_same(one: &Path, other: &Path) -> bool {
    let number = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    one == other || number(one).is_some_and(|found| Some(found) == number(other))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;
    use std::fs;

    #[test]
    fn a_cache_is_a_file_outside_of_what_is_served() {
        let root = tempfile::tempdir().expect("dir");
        let (base, mountpoint) = (root.path().join("base"), root.path().join("mnt"));
        fs::create_dir(&base).expect("base");
        fs::create_dir(&mountpoint).expect("mnt");
        let check = |cache: &Path| check_cache(cache, &base, &mountpoint);
        let refused = |cache: &Path| check(cache).expect_err("refused").to_string();
        assert!(refused(&base.join("tier")).contains("inside the base directory"));
        assert!(refused(&mountpoint.join("tier")).contains("inside the mountpoint"));
        assert!(refused(root.path()).contains("is a directory"));
        assert!(refused(&root.path().join("no/tier")).contains("cannot find the directory"));
        let good = root.path().join("tier");
        assert_eq!(
            check(&good).expect("accepted"),
            good.canonicalize().unwrap_or(good)
        );
    }

    #[test]
    fn what_a_mount_writes_is_not_where_it_serves_nor_its_cache() {
        let root = tempfile::tempdir().expect("dir");
        let of = |name: &str| root.path().join(name);
        for directory in ["base", "mnt"] {
            fs::create_dir(of(directory)).expect("directory");
        }
        fs::write(of("tier"), "pages").expect("cache");
        fs::hard_link(of("tier"), of("link")).expect("link");
        let places = Places {
            base: of("base"),
            mountpoint: of("mnt"),
            cache: Some(of("tier")),
        };
        let check = |name: &str| apart("log", &of(name), &places);
        let refused = |name: &str| check(name).expect_err("refused").to_string();
        assert!(refused("mnt/log").contains("is inside the mountpoint"));
        assert!(check("base/log").is_ok());
        assert!(refused("tier").contains("is the cache"));
        assert!(refused("link").contains("is the cache"));
        assert!(check("log").is_ok());
    }

    #[test]
    fn a_cache_has_a_path_that_can_be_told() {
        let root = tempfile::tempdir().expect("dir");
        let odd = root.path().join(OsStr::from_bytes(b"\xe9"));
        fs::create_dir(&odd).expect("directory");
        for cache in [
            odd.join("tier"),
            odd.with_file_name(OsStr::from_bytes(b"t\xff")),
        ] {
            let nowhere = Path::new("/nowhere");
            let failure = check_cache(&cache, nowhere, nowhere).expect_err("refused");
            assert!(failure.message.contains("is not UTF-8"), "{failure}");
            assert!(failure.message.contains("\\x"), "{failure}");
        }
    }

    #[test]
    fn a_symbolic_link_into_base_does_not_fool_it() {
        let root = tempfile::tempdir().expect("dir");
        let base = root.path().join("base");
        fs::create_dir(&base).expect("base");
        let link = root.path().join("elsewhere");
        std::os::unix::fs::symlink(&base, &link).expect("link");
        let failure = check_cache(&link.join("tier"), &base, Path::new("/nowhere"));
        assert!(
            failure
                .expect_err("refused")
                .message
                .contains("inside the base directory")
        );
    }
}
