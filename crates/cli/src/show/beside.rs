//! Files that a command writes beside its answer: pictures, tables, settings.

use crate::failure::{Failure, Outcome};
use std::fs::{self, File, Permissions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use thermocline_trace::parts_of;

/// Refuses `path`, which `option` names, when it is one of the files `read` or a part of a trace
/// among them.
pub(crate) fn apart(option: &str, path: Option<&PathBuf>, read: &[PathBuf]) -> Outcome {
    let file = |path: &Path| path.metadata().ok().map(|found| (found.dev(), found.ino()));
    let Some((path, written)) = path.and_then(|path| Some((path, file(path)?))) else {
        return Ok(());
    };
    for one in read {
        let parts = parts_of(one).unwrap_or_default();
        let mut all = parts.iter().chain([one]);
        if let Some(read) = all.find(|read| file(read) == Some(written)) {
            let fact = format!(
                "{option} {} is {}, which is read: it would be lost",
                path.display(),
                read.display()
            );
            return Err(Failure::usage(fact).advise(format!("another file for {option}")));
        }
    }
    Ok(())
}

/// How every page of this program begins.
const PAGE: &[u8] = b"<!doctype html";

/// Refuses to replace a file at `path`, which `option` names, by a page unless it is one.
pub(crate) fn only_pages(option: &str, path: Option<&PathBuf>) -> Outcome {
    let Some(path) = path.filter(|path| path.is_file()) else {
        return Ok(());
    };
    let mut head = Vec::new();
    let read =
        File::open(path).and_then(|file| file.take(PAGE.len() as u64).read_to_end(&mut head));
    read.map_err(|error| Failure::io("read", path, &error))?;
    if head.is_empty() || head.eq_ignore_ascii_case(PAGE) {
        return Ok(());
    }
    let fact = format!("{option} {} is there, and is no web page", path.display());
    Err(Failure::usage(fact).advise(format!("another file for {option}, or move it away")))
}

/// Writes `text` to the file at `path`, which has what it had before until all is written.
pub(crate) fn write(path: &Path, text: &str) -> Outcome {
    let failed = |error| Failure::io("write", path, &error);
    let found = path.metadata().ok();
    // A terminal or a pipe is written to where it is.
    if found.as_ref().is_some_and(|found| !found.is_file()) {
        return fs::write(path, text).map_err(failed);
    }
    // A link to what is not there yet stays one.
    if found.is_none() && path.is_symlink() {
        return fs::write(path, text).map_err(failed);
    }
    let path = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    match replace(&path, directory, found.as_ref(), text) {
        // Where no other file can be made, or take its place, it is written as it is.
        Err(Refused::Place(_)) if found.is_some() => fs::write(&path, text).map_err(failed),
        Err(Refused::Place(error) | Refused::Bytes(error)) => Err(failed(error)),
        Ok(()) => Ok(()),
    }
}

/// Why a file was not replaced.
enum Refused {
    /// There is no place for another file, or it may not be what the old one is.
    Place(io::Error),
    /// The bytes could not be written. There may be no room for them, so the old file is left
    /// alone: it would be cut off, and its own bytes be gone.
    Bytes(io::Error),
}

impl From<io::Error> for Refused {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                Self::Bytes(error)
            }
            _ => Self::Place(error),
        }
    }
}

/// Puts a new file in the place of the one that was `found` at `path`: with its rights, and its
/// owner as far as this process may say so. After a crash one of the two is there.
fn replace(
    path: &Path,
    directory: &Path,
    found: Option<&fs::Metadata>,
    text: &str,
) -> Result<(), Refused> {
    let new = Permissions::from_mode(0o666);
    let mut file = tempfile::Builder::new()
        .permissions(new)
        .tempfile_in(directory)?;
    if let Some(found) = found {
        let ours = file.as_file().metadata()?;
        if (ours.uid(), ours.gid()) != (found.uid(), found.gid()) {
            std::os::unix::fs::fchown(file.as_file(), Some(found.uid()), Some(found.gid()))?;
        }
        fs::set_permissions(file.path(), found.permissions())?;
    }
    let written = file.write_all(text.as_bytes());
    let written = written.and_then(|()| file.as_file().sync_all());
    written.map_err(Refused::Bytes)?;
    file.persist(path).map(drop).map_err(|error| error.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_replaced_whole() {
        let directory = tempfile::tempdir().expect("dir");
        let path = directory.path().join("page.html");
        let names = || fs::read_dir(directory.path()).expect("list").count();
        write(&path, "one").expect("writes");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("mode");
        let link = directory.path().join("link.html");
        std::os::unix::fs::symlink("page.html", &link).expect("link");
        write(&link, "two").expect("writes");
        assert_eq!(fs::read_to_string(&path).expect("reads"), "two");
        assert_eq!(path.metadata().expect("there").mode() & 0o777, 0o640);
        assert!(link.is_symlink() && names() == 2);
        let dangling = directory.path().join("dangling.html");
        std::os::unix::fs::symlink("new.html", &dangling).expect("link");
        write(&dangling, "new").expect("writes");
        assert!(dangling.is_symlink() && directory.path().join("new.html").is_file());
        write(Path::new("/dev/null"), "three").expect("writes");
        let nowhere = directory.path().join("none/page.html");
        let failure = write(&nowhere, "four").expect_err("no directory");
        assert!(failure.message.contains("none/page.html"), "{failure}");
    }
}
