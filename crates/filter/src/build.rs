//! Making a filter: deferred writes.

use crate::error::FilterError;
use crate::key::{Key, KeyKind, Mark, mark_of, page_of, positions};
use crate::lanes::{Drain, Lanes, Pipeline};
use crate::layout::{Place, Summary};
use serde::Serialize;
use std::sync::Arc;
use thermocline::device::{AlignedBuf, Device};
use twox_hash::XxHash3_64;

/// How large a filter is, and what it is built with.
#[derive(Clone, Debug)]
pub struct BuildOptions {
    /// Bytes of a page: a multiple of 4096, at most 64 MiB.
    pub page_bytes: u32,
    /// Pages, at most 65,536. Their product with the page size is the filter's size.
    pub pages: u32,
    /// Hash functions, 1 to 32: bits that a key sets.
    pub hashes: u32,
    /// What the keys are.
    pub kind: KeyKind,
    /// Of the hash: filters of one set with different seeds are wrong about different keys.
    pub seed: u64,
    /// Memory and threads.
    pub lanes: Lanes,
}

impl Default for BuildOptions {
    /// The paper's pages of 2 MiB and two hash functions; 16 pages.
    fn default() -> Self {
        Self {
            page_bytes: 2 << 20,
            pages: 16,
            hashes: 2,
            kind: KeyKind::Text,
            seed: 0,
            lanes: Lanes::default(),
        }
    }
}

/// A filter that is being made. Dropped before [`Builder::finish`] it leaves a file that
/// [`crate::Filter::open`] refuses; nothing is written to it any more.
pub struct Builder {
    device: Arc<dyn Device>,
    summary: Summary,
    pipeline: Pipeline<Mark, Writer>,
}

/// What a finished build did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Built {
    /// The filter.
    pub summary: Summary,
    /// Pages read to be changed.
    pub page_reads: u64,
    /// Pages written.
    pub page_writes: u64,
    /// Bytes written, header and table too.
    pub bytes_written: u64,
}

impl std::fmt::Debug for Builder {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut out = out.debug_struct("Builder");
        out.field("summary", &self.summary).finish_non_exhaustive()
    }
}

impl Builder {
    /// Begins a filter on `device`, whose bytes are lost.
    ///
    /// # Errors
    /// When an option is out of range, there is too little memory, or the device fails.
    pub fn create(device: Arc<dyn Device>, options: &BuildOptions) -> Result<Self, FilterError> {
        let summary = Summary {
            page_bytes: options.page_bytes,
            pages: options.pages,
            hashes: options.hashes,
            kind: options.kind,
            seed: options.seed,
            keys: 0,
            bits_set: 0,
        };
        summary.check()?;
        let writer = || Writer::new(Arc::clone(&device), summary.clone());
        let pipeline = Pipeline::start(&summary, &options.lanes, writer)?;
        Place(&*device).begin(&summary)?;
        Ok(Self {
            device,
            summary,
            pipeline,
        })
    }

    /// Adds a key. Costs an append to a block in memory; when the block is full a worker reads
    /// and writes a page.
    ///
    /// # Errors
    /// When the key is of another kind than the filter, or the device failed under an earlier
    /// key; the filter is then lost.
    pub fn insert(&mut self, key: Key<'_>) -> Result<(), FilterError> {
        let (expected, found) = (self.summary.kind, key.kind());
        if expected != found {
            return Err(FilterError::Kind { expected, found });
        }
        let hash = key.hash(self.summary.seed);
        let page = page_of(hash, self.summary.pages);
        self.pipeline.push(page, mark_of(hash), &mut |_| ())?;
        self.summary.keys += 1;
        Ok(())
    }

    /// Writes what waits, makes all durable, and says on the device that the filter is whole.
    ///
    /// # Errors
    /// When the device fails; the filter is then lost.
    pub fn finish(self) -> Result<Built, FilterError> {
        let (device, mut summary) = (self.device, self.summary);
        let writers = self.pipeline.finish(&mut |_| ())?;
        let empty = XxHash3_64::oneshot(&AlignedBuf::new(summary.page_bytes as usize));
        let mut table = vec![empty; summary.pages as usize];
        let (mut page_reads, mut page_writes) = (0, 0);
        for writer in &writers {
            for (to, checksum) in table.iter_mut().zip(&writer.table) {
                *to = checksum.unwrap_or(*to);
            }
            page_reads += writer.page_reads;
            page_writes += writer.page_writes;
            summary.bits_set += writer.bits_set;
        }
        Place(&*device).complete(&summary, &table)?;
        let pages = page_writes * u64::from(summary.page_bytes);
        let frame = summary.length() - u64::from(summary.pages) * u64::from(summary.page_bytes);
        Ok(Built {
            // The header is written twice: at the beginning and at the end.
            bytes_written: pages + frame + crate::layout::HEADER_BYTES as u64,
            summary,
            page_reads,
            page_writes,
        })
    }
}

/// A worker's part of a build.
struct Writer {
    device: Arc<dyn Device>,
    summary: Summary,
    page: AlignedBuf,
    /// Checksums of the pages that this worker wrote.
    table: Vec<Option<u64>>,
    page_reads: u64,
    page_writes: u64,
    bits_set: u64,
}

impl Writer {
    fn new(device: Arc<dyn Device>, summary: Summary) -> Self {
        Self {
            device,
            page: AlignedBuf::new(summary.page_bytes as usize),
            table: vec![None; summary.pages as usize],
            summary,
            page_reads: 0,
            page_writes: 0,
            bits_set: 0,
        }
    }
}

impl Drain<Mark> for Writer {
    fn drain(&mut self, page: u32, marks: &mut [Mark]) -> Result<(), FilterError> {
        let place = Place(&*self.device);
        let (hashes, bits) = (self.summary.hashes, self.summary.page_bits());
        match self.table[page as usize] {
            // Not written yet, so all zeros.
            None => self.page.fill(0),
            Some(checksum) => {
                place.read_page(&self.summary, page, checksum, &mut self.page)?;
                self.page_reads += 1;
            }
        }
        for mark in marks {
            for position in positions(*mark, hashes, bits) {
                let byte = &mut self.page[(position >> 3) as usize];
                let bit = 1 << (position & 7);
                self.bits_set += u64::from(*byte & bit == 0);
                *byte |= bit;
            }
        }
        place.write(&self.page, self.summary.page_offset(page))?;
        self.page_writes += 1;
        self.table[page as usize] = Some(XxHash3_64::oneshot(&self.page));
        Ok(())
    }
}
