//! A file that gets its name when it is complete.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::WriteError;
use crate::error::RecordError;
use crate::parts::{create_partial, lock_partial, part_numbers, part_path, partial_path};

/// Zstandard level of files whose name ends with `.zst`.
const LEVEL: i32 = 3;

/// A file under construction; removed when it is dropped without being committed.
pub(super) struct Output {
    path: PathBuf,
    partial: PathBuf,
    /// Keeps the lock until the file has its name.
    lock: File,
    /// Further parts of what is replaced: they would be taken for parts of the new file.
    obsolete: Vec<PathBuf>,
    committed: bool,
}

impl Output {
    /// Creates the file beside `path`, for reading and writing.
    pub(super) fn create(path: &Path, overwrite: bool) -> Result<(Self, File), WriteError> {
        Self::begin(place(path, overwrite)?, Vec::new())
    }

    /// The same for a format whose traces may have further parts, found by name: those at hand
    /// belong to the trace that is replaced.
    pub(super) fn create_first(path: &Path, overwrite: bool) -> Result<(Self, File), WriteError> {
        let target = place(path, overwrite)?;
        let mut obsolete = later_parts(path)?;
        // Under a link the file has another name, and maybe parts under that one.
        if target != path {
            obsolete.extend(later_parts(&target)?);
        }
        match obsolete.first() {
            Some(part) if !overwrite || !part.is_file() => {
                let path = part.clone();
                Err(RecordError::Exists { path }.into())
            }
            _ => Self::begin(target, obsolete),
        }
    }

    fn begin(path: PathBuf, obsolete: Vec<PathBuf>) -> Result<(Self, File), WriteError> {
        let partial = partial_path(&path);
        let failed = |source| WriteError::file(&partial, source);
        let file = create_partial(&partial).map_err(failed)?;
        let lock = file.try_clone().map_err(failed)?;
        let output = Self {
            path,
            partial,
            lock,
            obsolete,
            committed: false,
        };
        Ok((output, file))
    }

    /// Another file in place of the one being written, which is gone when it is closed.
    pub(super) fn replace(&mut self) -> io::Result<File> {
        fs::remove_file(&self.partial)?;
        let file = create_partial(&self.partial)?;
        self.lock = file.try_clone()?;
        Ok(file)
    }

    /// Gives the file its name; returns its size in bytes.
    pub(super) fn commit(mut self) -> Result<u64, WriteError> {
        // Before the new file has its name: after it they would be read as parts of it.
        let aside = self.set_aside()?;
        if let Err(source) = fs::rename(&self.partial, &self.path) {
            put_back(&aside);
            return Err(self.failed(source));
        }
        self.committed = true;
        for (_, aside) in &aside {
            fs::remove_file(aside).map_err(|source| WriteError::file(aside, source))?;
        }
        let found = self.path.metadata();
        Ok(found.map_err(|source| self.failed(source))?.len())
    }

    /// Renames what is replaced, where that is several files. The first one goes first: without it
    /// the others are not read as a trace. Returns old and new names.
    fn set_aside(&self) -> Result<Vec<(PathBuf, PathBuf)>, WriteError> {
        let mut moved = Vec::new();
        if self.obsolete.is_empty() {
            return Ok(moved);
        }
        for part in std::iter::once(&self.path).chain(&self.obsolete) {
            let mut aside = part.clone().into_os_string();
            aside.push(".replaced");
            let aside = PathBuf::from(aside);
            match fs::rename(part, &aside) {
                Ok(()) => moved.push((part.clone(), aside)),
                Err(source) if source.kind() == io::ErrorKind::NotFound => {}
                Err(source) => {
                    put_back(&moved);
                    return Err(WriteError::file(part, source));
                }
            }
        }
        Ok(moved)
    }

    pub(super) fn failed(&self, source: io::Error) -> WriteError {
        WriteError::file(&self.path, source)
    }

    /// Whether the name asks for Zstandard.
    pub(super) fn compressed(&self) -> bool {
        self.path.extension().is_some_and(|ending| ending == "zst")
    }
}

/// Gives what was set aside its names again, the first file last.
fn put_back(moved: &[(PathBuf, PathBuf)]) {
    for (part, aside) in moved.iter().rev() {
        // What cannot be renamed is still there, under the other name.
        let _ = fs::rename(aside, part);
    }
}

/// Where a file called `path` is to be: a link stays one, and what it names is replaced. Devices
/// and pipes are never replaced.
fn place(path: &Path, overwrite: bool) -> Result<PathBuf, WriteError> {
    let unfit = |reason: &str| {
        let reason = io::Error::new(io::ErrorKind::InvalidInput, reason);
        WriteError::file(path, reason)
    };
    match path.metadata() {
        Ok(found) if !found.is_file() => Err(unfit(
            "it is no regular file, and a trace is written to one; choose another name",
        )),
        Ok(_) if !overwrite => {
            let path = path.to_path_buf();
            Err(RecordError::Exists { path }.into())
        }
        Ok(_) if path.is_symlink() => {
            let found = path.canonicalize();
            found.map_err(|source| WriteError::file(path, source))
        }
        Err(_) if path.is_symlink() => Err(unfit(
            "it is a link to what is not there; choose another name, or remove it",
        )),
        _ => Ok(path.to_path_buf()),
    }
}

/// Parts of a trace at `path` other than the first.
fn later_parts(path: &Path) -> Result<Vec<PathBuf>, WriteError> {
    let mut numbers = part_numbers(path).map_err(|source| WriteError::file(path, source))?;
    // A recording that goes on would add to them, and to what is written now.
    let next = numbers.last().map_or(2, |last| last + 1);
    let next = partial_path(&part_path(path, next));
    lock_partial(&next).map_err(|source| WriteError::file(&next, source))?;
    numbers.retain(|&number| number > 1);
    let parts = numbers.iter().map(|&number| part_path(path, number));
    Ok(parts.collect())
}

impl Drop for Output {
    fn drop(&mut self) {
        if !self.committed {
            // It may be gone already, and nobody is left to hear of an error.
            let _ = fs::remove_file(&self.partial);
        }
    }
}

/// Bytes on their way to a file, compressed or not.
pub(super) enum Stream {
    Plain(BufWriter<File>),
    Zstd(zstd::stream::write::Encoder<'static, BufWriter<File>>),
}

impl Stream {
    pub(super) fn new(file: File, compressed: bool) -> io::Result<Self> {
        let file = BufWriter::with_capacity(1 << 17, file);
        if !compressed {
            return Ok(Self::Plain(file));
        }
        Ok(Self::Zstd(zstd::stream::write::Encoder::new(file, LEVEL)?))
    }

    pub(super) fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Plain(file) => file.write_all(bytes),
            Self::Zstd(encoder) => encoder.write_all(bytes),
        }
    }

    pub(super) fn finish(self) -> io::Result<()> {
        match self {
            Self::Plain(mut file) => file.flush(),
            Self::Zstd(encoder) => encoder.finish()?.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_replaced_is_left_whole() {
        let directory = tempfile::tempdir().expect("dir");
        let path = directory.path().join("t.parquet");
        let parts = [path.clone(), part_path(&path, 2), part_path(&path, 3)];
        let read = || parts.each_ref().map(|part| fs::read(part).ok());
        let begin = || Output::create_first(&path, true).expect("begins").0;
        for part in &parts {
            fs::write(part, "old").expect("writes");
        }
        let output = begin();
        fs::remove_file(&output.partial).expect("removed");
        assert!(output.commit().is_err(), "it has nothing to rename");
        assert_eq!(read(), [(); 3].map(|()| Some(b"old".to_vec())));
        begin().commit().expect("replaces");
        assert_eq!(read(), [Some(Vec::new()), None, None]);
        let left = fs::read_dir(directory.path()).expect("list").count();
        assert_eq!(left, 1, "nothing is left aside");
    }
}
