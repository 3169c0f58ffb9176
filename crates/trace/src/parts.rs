//! The files of one recording.
//!
//! Parquet keeps its directory at the end of the file, so a file that was not closed cannot be
//! read. A recording is therefore a sequence of *parts*: `trace.parquet`,
//! `trace.0002.parquet`, `trace.0003.parquet` ... A part being written carries `.partial`
//! after its name and is renamed when it is closed. **A file without `.partial` is complete**;
//! a process that is killed loses its `.partial` part and nothing else.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::error::ReadError;

/// The file name of part `number` (from 1) of the trace at `path`.
///
/// # Panics
/// When `number` is 0.
#[must_use]
pub fn part_path(path: &Path, number: u32) -> PathBuf {
    assert!(number > 0, "parts are counted from 1");
    if number == 1 {
        return path.to_path_buf();
    }
    let mut name = path.file_stem().map(OsString::from).unwrap_or_default();
    name.push(format!(".{number:04}"));
    if let Some(extension) = path.extension() {
        name.push(".");
        name.push(extension);
    }
    path.with_file_name(name)
}

/// The name a part has until it is closed.
#[must_use]
pub fn partial_path(part: &Path) -> PathBuf {
    let mut name = part.as_os_str().to_os_string();
    name.push(".partial");
    PathBuf::from(name)
}

/// Makes the unfinished file at `partial`, empty. Whoever writes it holds a lock on it until it has
/// its final name, so that nobody else begins it anew meanwhile.
pub(crate) fn create_partial(partial: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    let file = options.open(partial)?;
    lock(&file)?;
    // It may have got its final name before the lock was there.
    let (ours, found) = (file.metadata()?, partial.metadata()?);
    if (ours.dev(), ours.ino()) != (found.dev(), found.ino()) {
        return Err(being_written());
    }
    file.set_len(0)?;
    Ok(file)
}

/// The unfinished file at `partial`, when there is one, locked.
///
/// # Errors
/// When somebody writes it.
pub(crate) fn lock_partial(partial: &Path) -> io::Result<Option<File>> {
    // Some file systems lock only what is open for writing.
    match OpenOptions::new().read(true).write(true).open(partial) {
        Ok(file) => lock(&file).map(|()| Some(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A file system that knows no locks is none to fail for.
fn lock(file: &File) -> io::Result<()> {
    match file.try_lock() {
        Err(TryLockError::WouldBlock) => Err(being_written()),
        Ok(()) | Err(TryLockError::Error(_)) => Ok(()),
    }
}

fn being_written() -> io::Error {
    let text = "it is being written; wait until it is finished, or choose another name";
    io::Error::new(io::ErrorKind::ResourceBusy, text)
}

/// The finished parts of the trace at `path`, in order.
///
/// # Errors
/// When there is none, when one in the middle is missing, when the directory cannot be read.
pub fn parts_of(path: &Path) -> Result<Vec<PathBuf>, ReadError> {
    let numbers = part_numbers(path).map_err(|source| ReadError::File {
        path: path.to_path_buf(),
        source,
    })?;
    if numbers.is_empty() {
        return Err(nothing_finished(path));
    }
    for (number, found) in (1..).zip(&numbers) {
        if *found != number {
            return Err(ReadError::MissingPart {
                path: part_path(path, number),
            });
        }
    }
    Ok(numbers
        .into_iter()
        .map(|number| part_path(path, number))
        .collect())
}

fn nothing_finished(path: &Path) -> ReadError {
    let partial = partial_path(path);
    if partial.exists() {
        return ReadError::Unfinished {
            path: path.to_path_buf(),
            partial,
        };
    }
    ReadError::File {
        path: path.to_path_buf(),
        source: io::Error::new(io::ErrorKind::NotFound, "no such file"),
    }
}

/// Numbers of the finished parts that exist, ascending.
pub(crate) fn part_numbers(path: &Path) -> io::Result<Vec<u32>> {
    let mut numbers = Vec::new();
    if path.exists() {
        numbers.push(1);
    }
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let entries = match directory.read_dir() {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(numbers),
        Err(error) => return Err(error),
    };
    for entry in entries {
        numbers.extend(later_part_number(path, &entry?.file_name()));
    }
    numbers.sort_unstable();
    Ok(numbers)
}

/// The finished parts of a trace at `path` that are there, in order, whether or not one of them is
/// missing: what a new trace of that name would have as its own.
///
/// # Errors
/// When the directory cannot be read.
pub fn parts_found(path: &Path) -> io::Result<Vec<PathBuf>> {
    let numbers = part_numbers(path)?.into_iter();
    Ok(numbers.map(|number| part_path(path, number)).collect())
}

/// The number of the part called `name`, when it is a part of `path` other than the first. Names
/// are bytes: they need not be UTF-8.
fn later_part_number(path: &Path, name: &OsStr) -> Option<u32> {
    let rest = name.as_bytes().strip_prefix(path.file_stem()?.as_bytes())?;
    let rest = rest.strip_prefix(b".")?;
    let digits = match path.extension() {
        Some(extension) => rest
            .strip_suffix(extension.as_bytes())?
            .strip_suffix(b".")?,
        None => rest,
    };
    let digits = std::str::from_utf8(digits).ok()?;
    let number = digits.parse().ok().filter(|&number| number > 1)?;
    let canonical = part_path(path, number);
    (canonical.file_name()? == name).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_parts() {
        let path = Path::new("d/trace.parquet");
        assert_eq!(part_path(path, 1), path);
        assert_eq!(part_path(path, 2), Path::new("d/trace.0002.parquet"));
        assert_eq!(part_path(path, 12345), Path::new("d/trace.12345.parquet"));
        assert_eq!(part_path(Path::new("t"), 3), Path::new("t.0003"));
        assert_eq!(partial_path(path), Path::new("d/trace.parquet.partial"));
    }

    #[test]
    fn only_canonical_names_are_parts() {
        let path = Path::new("trace.parquet");
        assert_eq!(
            later_part_number(path, "trace.0002.parquet".as_ref()),
            Some(2)
        );
        for other in [
            "trace.2.parquet",
            "trace.0001.parquet",
            "trace.0002.parquet.partial",
            "x.0002.parquet",
        ] {
            assert_eq!(later_part_number(path, other.as_ref()), None, "{other}");
        }
    }

    #[test]
    fn parts_of_a_name_that_is_not_utf_8_are_found() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(OsStr::from_bytes(b"nu\xff.parquet"));
        std::fs::write(&path, "").unwrap();
        std::fs::write(part_path(&path, 2), "").unwrap();
        // Another name that looks the same when it is made text.
        let other = OsStr::from_bytes(b"nu\xfe.0003.parquet");
        std::fs::write(dir.path().join(other), "").unwrap();
        let parts = parts_of(&path).unwrap();
        assert_eq!(parts, [path.clone(), part_path(&path, 2)]);
    }

    #[test]
    fn a_gap_is_an_error_that_names_the_missing_part() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.parquet");
        let missing = |error| match error {
            ReadError::MissingPart { path } => path,
            other => panic!("{other}"),
        };
        std::fs::write(part_path(&path, 3), "").unwrap();
        assert_eq!(missing(parts_of(&path).unwrap_err()), path);
        std::fs::write(&path, "").unwrap();
        assert_eq!(missing(parts_of(&path).unwrap_err()), part_path(&path, 2));
        std::fs::write(part_path(&path, 2), "").unwrap();
        assert_eq!(parts_of(&path).unwrap().len(), 3);
    }

    #[test]
    fn an_unfinished_recording_is_explained() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("t.parquet");
        assert!(matches!(parts_of(&path), Err(ReadError::File { .. })));
        std::fs::write(partial_path(&path), "").unwrap();
        assert!(matches!(parts_of(&path), Err(ReadError::Unfinished { .. })));
    }
}
