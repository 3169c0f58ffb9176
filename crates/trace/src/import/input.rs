//! The bytes of a trace: decompressed on the way, cut into units, every unit with its place.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Unit;
use crate::error::ReadError;

/// Longest line of any text format. A binary file taken for text is refused after this many
/// bytes instead of being read into memory.
const LINE_MAX: usize = 64 << 10;

/// Bytes read at a time, before and after decompression.
const BUFFER: usize = 128 << 10;

/// Most memory an `.xz` file may ask for, KiB. `xz -9` asks for 64 MiB.
const XZ_MEMORY_KIB: u32 = 256 << 10;

/// Units of one stream.
pub(crate) struct Input {
    path: PathBuf,
    reader: Box<dyn BufRead + Send>,
    /// Bytes taken from the file, still compressed.
    taken: Arc<AtomicU64>,
    total: u64,
    /// The unit read last.
    unit: Vec<u8>,
    /// The unit read last, or asked for, and how it is counted.
    place: Place,
}

#[derive(Clone, Copy)]
enum Place {
    Line(u64),
    Record { number: u64, byte: u64 },
}

impl std::fmt::Debug for Input {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = f.debug_struct("Input");
        out.field("path", &self.path).finish_non_exhaustive()
    }
}

impl Input {
    /// Opens the file at `path`.
    pub(crate) fn open(path: &Path) -> Result<Self, ReadError> {
        let failed = |source| ReadError::File {
            path: path.to_path_buf(),
            source,
        };
        let file = File::open(path).map_err(failed)?;
        let total = file.metadata().map_err(failed)?.len();
        Self::new(path, Box::new(file), total)
    }

    /// Reads from `reader`, calling it `path` in errors. `total` is its length in bytes, 0 when
    /// not known.
    pub(crate) fn new(
        path: &Path,
        reader: Box<dyn Read + Send>,
        total: u64,
    ) -> Result<Self, ReadError> {
        let taken = Arc::new(AtomicU64::new(0));
        let counted = Counted {
            inner: reader,
            taken: Arc::clone(&taken),
        };
        let reader = decompressed(BufReader::with_capacity(BUFFER, counted));
        let reader = reader.map_err(|source| ReadError::File {
            path: path.to_path_buf(),
            source,
        })?;
        Ok(Self {
            path: path.to_path_buf(),
            reader,
            taken,
            total,
            unit: Vec::new(),
            place: Place::Line(0),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn taken(&self) -> u64 {
        self.taken.load(Ordering::Relaxed)
    }

    pub(crate) fn total(&self) -> u64 {
        self.total
    }

    /// The bytes that come next, without taking them: at least one, unless the stream ends here.
    pub(crate) fn head(&mut self) -> Result<&[u8], ReadError> {
        match self.reader.fill_buf() {
            Ok(head) => Ok(head),
            Err(source) => Err(ReadError::File {
                path: self.path.clone(),
                source,
            }),
        }
    }

    /// The unit read last; of a line, without its end.
    pub(crate) fn unit(&self) -> &[u8] {
        &self.unit
    }

    /// Reads the next unit; false at the end of the stream.
    pub(crate) fn advance(&mut self, unit: Unit) -> Result<bool, ReadError> {
        match unit {
            Unit::Line => self.advance_line(),
            Unit::Bytes(size) => self.advance_record(size),
        }
    }

    fn advance_line(&mut self) -> Result<bool, ReadError> {
        let number = match self.place {
            Place::Line(number) => number + 1,
            Place::Record { .. } => 1,
        };
        self.place = Place::Line(number);
        self.unit.clear();
        let mut limited = (&mut self.reader).take(LINE_MAX as u64 + 1);
        let read = limited.read_until(b'\n', &mut self.unit);
        let read = read.map_err(|error| self.wrong(error.to_string()))?;
        if read > LINE_MAX {
            return Err(self.wrong(format!("longer than {LINE_MAX} bytes: not a text trace")));
        }
        while let [rest @ .., b'\n' | b'\r'] = self.unit.as_slice() {
            let length = rest.len();
            self.unit.truncate(length);
        }
        Ok(read > 0)
    }

    fn advance_record(&mut self, size: usize) -> Result<bool, ReadError> {
        assert!(size > 0, "records have bytes");
        self.place = match self.place {
            Place::Record { number, byte } => Place::Record {
                number: number + 1,
                byte: byte + self.unit.len() as u64,
            },
            Place::Line(_) => Place::Record { number: 0, byte: 0 },
        };
        self.unit.clear();
        let mut limited = (&mut self.reader).take(size as u64);
        let read = limited.read_to_end(&mut self.unit);
        let read = read.map_err(|error| self.wrong(error.to_string()))?;
        if read > 0 && read < size {
            return Err(self.wrong(format!("the file ends after {read} of its {size} bytes")));
        }
        Ok(read == size)
    }

    /// An error about the unit read last.
    pub(crate) fn wrong(&self, reason: String) -> ReadError {
        let path = self.path.clone();
        match self.place {
            Place::Line(line) => ReadError::Line { path, line, reason },
            Place::Record { number, byte } => ReadError::Record {
                path,
                record: number,
                byte,
                reason,
            },
        }
    }
}

/// Counts what is read from the file, for progress.
struct Counted {
    inner: Box<dyn Read + Send>,
    taken: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.inner.read(buffer)?;
        self.taken.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

/// Puts a decompressor in front when the first bytes ask for one.
fn decompressed(mut reader: BufReader<Counted>) -> io::Result<Box<dyn BufRead + Send>> {
    let head = reader.fill_buf()?;
    let buffered = |reader: Box<dyn Read + Send>| -> Box<dyn BufRead + Send> {
        Box::new(BufReader::with_capacity(BUFFER, reader))
    };
    if head.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let decoder = zstd::stream::read::Decoder::with_buffer(reader)?;
        return Ok(buffered(Box::new(decoder)));
    }
    if head.starts_with(b"\xfd7zXZ\0") {
        let decoder = lzma_rust2::XzReader::new_mem_limit(reader, true, XZ_MEMORY_KIB);
        return Ok(buffered(Box::new(decoder)));
    }
    if head.starts_with(&[0x1f, 0x8b]) {
        let decoder = flate2::bufread::MultiGzDecoder::new(reader);
        return Ok(buffered(Box::new(decoder)));
    }
    Ok(Box::new(reader))
}
