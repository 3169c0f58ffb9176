//! libCacheSim's oracleGeneral: see `crate::import::oracle_general` for the layout.
//!
//! One record per page. The time is in whole seconds from the start of the trace, the size is
//! the page size (1 for traces that count in pages). The field for the next access needs the
//! future: records are written without it first, then the file is gone through once more from
//! its end to its beginning, with the next request of every page in a map.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, BufWriter, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

use thermocline_core::ObjectId;

use super::output::{Output, Stream};
use super::{Head, Refused, Sink, WriteError};
use crate::catalog::Catalog;
use crate::import::oracle_general::RECORD;
use crate::record::TraceRecord;

const SECOND_NS: u64 = 1_000_000_000;

/// Records read and written back at a time on the way from the end to the beginning.
const CHUNK: u64 = 1 << 14;

/// Bits of a page's index in a number made of object and index.
const INDEX_BITS: u32 = 40;

/// Bits of an object's number in it.
const OBJECT_BITS: u32 = 24;

/// One 64-bit number per page.
///
/// Object number × 2^40 + index, while objects (numbered in order of appearance, from 0) are
/// fewer than 2^24 and the index is below 2^40: so the pages of the first object keep their
/// index. An index beyond that in the first object keeps its value too; in another object it is
/// added to a hash of the object's number. Such *far* pages are counted, for they may meet
/// others.
pub(super) struct PageNumbers {
    page_size: u64,
    /// Far pages of the first object, and of others.
    far: (u64, u64),
}

impl PageNumbers {
    pub(super) fn new(page_size: u32) -> Self {
        assert!(page_size > 0, "pages have bytes");
        Self {
            page_size: u64::from(page_size),
            far: (0, 0),
        }
    }

    /// The number of the page `row` begins with.
    pub(super) fn of(&mut self, row: &TraceRecord) -> u64 {
        let ObjectId(object) = row.object;
        let index = row.offset / self.page_size;
        if index >> INDEX_BITS == 0 && object >> OBJECT_BITS == 0 {
            return u64::from(object) << INDEX_BITS | index;
        }
        if object == 0 {
            self.far.0 += 1;
            return index;
        }
        self.far.1 += 1;
        mixed(u64::from(object)).wrapping_add(index)
    }

    /// Rows whose page may share its number with another one.
    pub(super) fn far(&self, catalog: &Catalog) -> u64 {
        match catalog.objects() {
            0 | 1 => 0,
            _ => self.far.0 + self.far.1,
        }
    }
}

/// The finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA 2014): a bijection.
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

pub(super) struct OracleWriter {
    output: Output,
    file: BufWriter<File>,
    numbers: PageNumbers,
    records: u64,
}

impl OracleWriter {
    pub(super) fn create(path: &Path, head: &Head, overwrite: bool) -> Result<Self, WriteError> {
        let (output, file) = Output::create(path, overwrite)?;
        Ok(Self {
            output,
            file: BufWriter::with_capacity(1 << 17, file),
            numbers: PageNumbers::new(head.page_size),
            records: 0,
        })
    }
}

impl Sink for OracleWriter {
    fn write(&mut self, row: &TraceRecord, _: &Catalog) -> Result<(), Refused> {
        let seconds = row.time_ns / SECOND_NS;
        let seconds = u32::try_from(seconds)
            .map_err(|_| Refused::Unfit(format!("its time, {seconds} s, exceeds 32 bits")))?;
        let size = u32::try_from(self.numbers.page_size).unwrap_or(u32::MAX);
        let mut record = [0; RECORD];
        record[..4].copy_from_slice(&seconds.to_le_bytes());
        record[4..12].copy_from_slice(&self.numbers.of(row).to_le_bytes());
        record[12..16].copy_from_slice(&size.to_le_bytes());
        record[16..].copy_from_slice(&(-1i64).to_le_bytes());
        self.records += 1;
        let written = self.file.write_all(&record);
        Ok(written.map_err(|source| self.output.failed(source))?)
    }

    fn finish(self: Box<Self>, catalog: &Catalog) -> Result<(u64, u64), WriteError> {
        let Self {
            mut output,
            file,
            numbers,
            records,
        } = *self;
        let file = file.into_inner().map_err(io::IntoInnerError::into_error);
        let linked = file.and_then(|file| {
            link(&file, records)?;
            Ok(file)
        });
        let file = linked.map_err(|source| output.failed(source))?;
        if output.compressed() {
            compress(file, &mut output).map_err(|source| output.failed(source))?;
        }
        Ok((output.commit()?, numbers.far(catalog)))
    }
}

/// Puts the content of `file`, compressed, into the output's place.
fn compress(mut file: File, output: &mut Output) -> io::Result<()> {
    file.seek(SeekFrom::Start(0))?;
    let mut stream = Stream::new(output.replace()?, true)?;
    let mut buffer = vec![0; CHUNK as usize];
    loop {
        match file.read(&mut buffer)? {
            0 => return stream.finish(),
            read => stream.write_all(&buffer[..read])?,
        }
    }
}

/// Fills in the next access of every record, from the last to the first.
fn link(file: &File, records: u64) -> io::Result<()> {
    let mut next: HashMap<[u8; 8], i64> = HashMap::new();
    let mut buffer = vec![0; CHUNK as usize * RECORD];
    let mut end = records;
    while end > 0 {
        let start = end.saturating_sub(CHUNK);
        let bytes = &mut buffer[..(end - start) as usize * RECORD];
        file.read_exact_at(bytes, start * RECORD as u64)?;
        let mut number = end.cast_signed();
        for record in bytes.chunks_exact_mut(RECORD).rev() {
            let mut page = [0; 8];
            page.copy_from_slice(&record[4..12]);
            let later = next.insert(page, number).unwrap_or(-1);
            record[16..].copy_from_slice(&later.to_le_bytes());
            number -= 1;
        }
        assert_eq!(number, start.cast_signed());
        file.write_all_at(bytes, start * RECORD as u64)?;
        end = start;
    }
    Ok(())
}
