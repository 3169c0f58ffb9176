//! A file that gets its name when it is complete.

use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};

use super::WriteError;
use crate::error::RecordError;
use crate::parts::{create_partial, partial_path};

/// Zstandard level of files whose name ends with `.zst`.
const LEVEL: i32 = 3;

/// A file under construction; removed when it is dropped without being committed.
pub(super) struct Output {
    path: PathBuf,
    partial: PathBuf,
    /// Keeps the lock until the file has its name.
    lock: File,
    committed: bool,
}

impl Output {
    /// Creates the file beside `path`, for reading and writing.
    pub(super) fn create(path: &Path, overwrite: bool) -> Result<(Self, File), WriteError> {
        if !overwrite && path.exists() {
            let path = path.to_path_buf();
            return Err(RecordError::Exists { path }.into());
        }
        let partial = partial_path(path);
        let failed = |source| WriteError::file(&partial, source);
        let file = create_partial(&partial).map_err(failed)?;
        let lock = file.try_clone().map_err(failed)?;
        let path = path.to_path_buf();
        let output = Self {
            path,
            partial,
            lock,
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
        fs::rename(&self.partial, &self.path).map_err(|source| self.failed(source))?;
        self.committed = true;
        let found = self.path.metadata();
        Ok(found.map_err(|source| self.failed(source))?.len())
    }

    pub(super) fn failed(&self, source: io::Error) -> WriteError {
        WriteError::file(&self.path, source)
    }

    /// Whether the name asks for Zstandard.
    pub(super) fn compressed(&self) -> bool {
        self.path.extension().is_some_and(|ending| ending == "zst")
    }
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
