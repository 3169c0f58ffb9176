//! The bytes of a filter: header, pages, table of checksums.
//!
//! | bytes | what |
//! |---|---|
//! | 0..4096 | header |
//! | then δ × page size | pages: bit i of a page is bit i % 8 of its byte i / 8 |
//! | then 8 × δ, rounded up to 4096 | table: xxh3-64 of each page |
//!
//! Header (little-endian): 0..8 magic `THERMBBF`; 8..12 version; 12..16 state (0 being built, 1
//! whole); 16..20 page size; 20..24 pages; 24..28 hash functions; 28..32 kind of keys (0 text, 1
//! integer); 32..40 seed; 40..48 keys; 48..56 bits that are set; 56..64 xxh3-64 of the table;
//! 4088..4096 xxh3-64 of what is before.
//!
//! A file is a filter only when the header says *whole*. That is written after the pages and the
//! table are durable, so a power cut leaves a filter that is whole or one that is refused.

use crate::error::FilterError;
use crate::key::KeyKind;
use crate::{FORMAT_VERSION, key};
use serde::Serialize;
use thermocline::device::{ALIGNMENT, AlignedBuf, Device};
use twox_hash::XxHash3_64;

pub(crate) const HEADER_BYTES: usize = ALIGNMENT;
/// The first bytes of a filter.
pub const MAGIC: [u8; 8] = *b"THERMBBF";
const CHECKSUM_AT: usize = HEADER_BYTES - 8;

/// Pages at most: their number takes the 16 bits of a hash that a key's mark lacks.
pub const PAGES_MAX: u32 = 1 << (64 - 8 * size_of::<key::Mark>() as u32);
/// Bytes of a page at most: bit positions are numbers of 32 bits.
pub const PAGE_BYTES_MAX: u32 = 64 << 20;
/// Hash functions at most.
pub(crate) const HASHES_MAX: u32 = 32;

/// What a filter is, and what is in it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Summary {
    /// Bytes of one page: a sub-filter.
    pub page_bytes: u32,
    /// Pages: δ in the paper.
    pub pages: u32,
    /// Hash functions: k.
    pub hashes: u32,
    /// What its keys are.
    pub kind: KeyKind,
    /// Of the hash.
    pub seed: u64,
    /// Keys that were inserted, equal ones counted each time.
    pub keys: u64,
    /// Bits that are set.
    pub bits_set: u64,
}

impl Summary {
    /// Bits of the whole filter.
    #[must_use]
    pub fn bits(&self) -> u64 {
        u64::from(self.pages) * self.page_bits() as u64
    }

    /// The chance that a key that was never inserted is answered with "yes": the share of bits
    /// that are set, to the power of the number of hash functions.
    #[must_use]
    pub fn expected_false_positives(&self) -> f64 {
        let share = self.bits_set as f64 / self.bits() as f64;
        share.powi(self.hashes as i32)
    }

    /// Bytes on the device.
    #[must_use]
    pub fn length(&self) -> u64 {
        self.table_offset() + self.table_bytes() as u64
    }

    pub(crate) fn page_bits(&self) -> u32 {
        self.page_bytes * 8
    }

    pub(crate) fn page_offset(&self, page: u32) -> u64 {
        assert!(page < self.pages);
        HEADER_BYTES as u64 + u64::from(page) * u64::from(self.page_bytes)
    }

    fn table_offset(&self) -> u64 {
        HEADER_BYTES as u64 + u64::from(self.pages) * u64::from(self.page_bytes)
    }

    fn table_bytes(&self) -> usize {
        (self.pages as usize * 8).next_multiple_of(ALIGNMENT)
    }

    /// Refuses what the format cannot hold.
    pub(crate) fn check(&self) -> Result<(), FilterError> {
        let within = |option, value, least, most, unit: &str| {
            let expected = format!("{least} to {most}{unit}");
            let fits = (least..=most).contains(&value);
            fits.then_some(())
                .ok_or(FilterError::Option { option, expected })
        };
        let unit = ALIGNMENT as u32;
        let whole = self.page_bytes.is_multiple_of(unit);
        let size = if whole { self.page_bytes } else { 0 };
        let bytes = " bytes, and a multiple of 4096";
        within("the page size", size, unit, PAGE_BYTES_MAX, bytes)?;
        within("the number of pages", self.pages, 1, PAGES_MAX, "")?;
        within(
            "the number of hash functions",
            self.hashes,
            1,
            HASHES_MAX,
            "",
        )
    }

    fn encode(&self, whole: bool, table: u64) -> AlignedBuf {
        let mut block = AlignedBuf::new(HEADER_BYTES);
        let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(8, &FORMAT_VERSION.to_le_bytes());
        put(12, &u32::from(whole).to_le_bytes());
        put(16, &self.page_bytes.to_le_bytes());
        put(20, &self.pages.to_le_bytes());
        put(24, &self.hashes.to_le_bytes());
        put(28, &u32::from(self.kind == KeyKind::Integer).to_le_bytes());
        put(32, &self.seed.to_le_bytes());
        put(40, &self.keys.to_le_bytes());
        put(48, &self.bits_set.to_le_bytes());
        put(56, &table.to_le_bytes());
        let checksum = XxHash3_64::oneshot(&block[..CHECKSUM_AT]);
        block[CHECKSUM_AT..].copy_from_slice(&checksum.to_le_bytes());
        block
    }
}

/// A device, with errors that name it.
pub(crate) struct Place<'a>(pub(crate) &'a dyn Device);

impl Place<'_> {
    pub(crate) fn failed(&self, source: std::io::Error) -> FilterError {
        let device = self.0.label();
        FilterError::Device { device, source }
    }

    pub(crate) fn damaged(&self, what: impl Into<String>) -> FilterError {
        let (device, what) = (self.0.label(), what.into());
        FilterError::Damaged { device, what }
    }

    pub(crate) fn write(&self, bytes: &[u8], offset: u64) -> Result<(), FilterError> {
        let written = self.0.write_at(bytes, offset);
        written.map_err(|error| self.failed(error))
    }

    pub(crate) fn sync(&self) -> Result<(), FilterError> {
        self.0.sync(false).map_err(|error| self.failed(error))
    }

    /// Says that a filter begins here and is not whole; gives it its length, all zeros.
    pub(crate) fn begin(&self, summary: &Summary) -> Result<(), FilterError> {
        let resize = |length| self.0.set_len(length).map_err(|error| self.failed(error));
        resize(0)?;
        resize(summary.length())?;
        self.write(&summary.encode(false, 0), 0)?;
        self.sync()
    }

    /// Writes the table, makes all durable, then says that the filter is whole.
    pub(crate) fn complete(&self, summary: &Summary, table: &[u64]) -> Result<(), FilterError> {
        assert_eq!(
            table.len(),
            summary.pages as usize,
            "a checksum for each page"
        );
        let mut bytes = AlignedBuf::new(summary.table_bytes());
        for (to, checksum) in bytes.chunks_exact_mut(8).zip(table) {
            to.copy_from_slice(&checksum.to_le_bytes());
        }
        self.write(&bytes, summary.table_offset())?;
        self.sync()?;
        let checksum = XxHash3_64::oneshot(&bytes);
        self.write(&summary.encode(true, checksum), 0)?;
        self.sync()
    }

    /// Reads header and table.
    pub(crate) fn open(&self) -> Result<(Summary, Vec<u64>), FilterError> {
        let found = self.0.len().map_err(|error| self.failed(error))?;
        let mut header = AlignedBuf::new(HEADER_BYTES);
        self.read(&mut header, 0, found, HEADER_BYTES as u64)?;
        let (summary, checksum) = self.decode(&header)?;
        let expected = summary.length();
        if found < expected {
            return Err(self.truncated(found, expected));
        }
        let mut bytes = AlignedBuf::new(summary.table_bytes());
        self.read(&mut bytes, summary.table_offset(), found, expected)?;
        if XxHash3_64::oneshot(&bytes) != checksum {
            return Err(self.damaged("the table of checksums"));
        }
        let number = |eight: &[u8]| number(eight, 0);
        let table = bytes.chunks_exact(8).map(number);
        Ok((
            summary.clone(),
            table.take(summary.pages as usize).collect(),
        ))
    }

    fn truncated(&self, found: u64, expected: u64) -> FilterError {
        let device = self.0.label();
        FilterError::Truncated {
            device,
            found,
            expected,
        }
    }

    /// Fills `bytes`, or says that the file, `found` bytes of `expected`, is too short.
    fn read(
        &self,
        bytes: &mut [u8],
        offset: u64,
        found: u64,
        expected: u64,
    ) -> Result<(), FilterError> {
        let read = self.0.read_at(bytes, offset);
        let read = read.map_err(|error| self.failed(error))?;
        if read == bytes.len() {
            return Ok(());
        }
        if offset == 0 && !bytes.starts_with(&MAGIC) {
            let device = self.0.label();
            return Err(FilterError::NotAFilter { device });
        }
        Err(self.truncated(found, expected))
    }

    fn decode(&self, header: &[u8]) -> Result<(Summary, u64), FilterError> {
        let device = self.0.label();
        if !header.starts_with(&MAGIC) {
            return Err(FilterError::NotAFilter { device });
        }
        let word = |at| number(header, at) as u32;
        let (found, known) = (word(8), FORMAT_VERSION);
        if found != known {
            return Err(FilterError::Version {
                device,
                found,
                known,
            });
        }
        if XxHash3_64::oneshot(&header[..CHECKSUM_AT]) != number(header, CHECKSUM_AT) {
            return Err(self.damaged("the header"));
        }
        if word(12) != 1 {
            return Err(FilterError::Unfinished { device });
        }
        let summary = Summary {
            page_bytes: word(16),
            pages: word(20),
            hashes: word(24),
            kind: match word(28) {
                0 => KeyKind::Text,
                1 => KeyKind::Integer,
                _ => return Err(self.damaged("the header names an unknown kind of keys")),
            },
            seed: number(header, 32),
            keys: number(header, 40),
            bits_set: number(header, 48),
        };
        let sane = summary.check();
        sane.map_err(|error| self.damaged(format!("the header: {error}")))?;
        Ok((summary, number(header, 56)))
    }

    /// Reads a page and holds it against its checksum.
    pub(crate) fn read_page(
        &self,
        summary: &Summary,
        page: u32,
        checksum: u64,
        bytes: &mut [u8],
    ) -> Result<(), FilterError> {
        assert_eq!(bytes.len(), summary.page_bytes as usize);
        let read = self.0.read_at(bytes, summary.page_offset(page));
        let read = read.map_err(|error| self.failed(error))?;
        if read < bytes.len() {
            return Err(self.truncated(summary.page_offset(page) + read as u64, summary.length()));
        }
        if XxHash3_64::oneshot(bytes) != checksum {
            return Err(self.damaged(format!("page {page} is not what was written there")));
        }
        Ok(())
    }
}

/// The eight bytes at `at`.
fn number(bytes: &[u8], at: usize) -> u64 {
    let mut eight = [0; 8];
    eight.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(eight)
}
