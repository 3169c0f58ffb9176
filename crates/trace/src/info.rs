//! What is in a trace: the figures behind `thermocline trace info`.
//!
//! Memory: one 64-byte bitmap and its key per 512 pages touched (at worst one per page), the
//! counters of each object and hint value, and the histograms; nothing grows with the number
//! of rows.

mod histogram;
mod table;

use std::collections::{HashMap, HashSet};

use serde::Serialize;
use thermocline_core::{ObjectId, PageId};

use crate::catalog::Catalog;
use crate::error::ReadError;
use crate::reader::{Addressing, TraceMeta};
use crate::record::{Op, Served, TraceRecord};
use crate::source::Source;
use crate::write::PAGE_SIZE_DEFAULT;
use histogram::Histogram;

/// Summary of a trace.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceInfo {
    /// Name of the file format.
    pub format: &'static str,
    /// Rows.
    pub rows: u64,
    /// Requests of the file that are not for data and were left out.
    pub skipped: u64,
    /// What offsets and lengths count: `bytes`, or `pages` of unknown size.
    pub addressed_in: &'static str,
    /// Records the recorder had to drop.
    pub dropped: u64,
    /// Files.
    pub parts: usize,
    /// Bytes of all files.
    pub file_bytes: u64,
    /// From the first arrival to the last completion, nanoseconds.
    pub duration_ns: u64,
    /// Start, nanoseconds since 1970-01-01 UTC, when the trace says it.
    pub start_unix_ns: Option<u64>,
    /// The program that wrote the trace.
    pub product: Option<String>,
    /// The share of the extents whose requests are in it, 1 for all.
    pub sample: f64,
    /// Bytes per page used for page counts; 1 when the trace counts in pages.
    pub page_size: u32,
    /// Different clients.
    pub clients: u64,
    /// Different pages read or written.
    pub distinct_pages: u64,
    /// Figures per operation, in the order of [`Op::ALL`]; operations that do not occur left out.
    pub operations: Vec<OpSummary>,
    /// Figures of reads by where they were served, in the order of [`Served::ALL`].
    pub reads_by_place: Vec<OpSummary>,
    /// The objects with most requests, most first.
    pub objects: Vec<ObjectSummary>,
    /// Different objects in the trace.
    pub objects_total: u64,
    /// Values of each hint type, types in column order.
    pub hints: Vec<HintCounts>,
}

/// Requests of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OpSummary {
    /// Operation, or place of service.
    pub name: &'static str,
    /// Requests.
    pub requests: u64,
    /// Bytes.
    pub bytes: u64,
    /// Latencies.
    pub latency: LatencySummary,
}

/// Percentiles of latencies in nanoseconds, each at most 3.2 % above the true one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LatencySummary {
    /// Half of the requests took at most this.
    pub p50_ns: u64,
    /// 95 % took at most this.
    pub p95_ns: u64,
    /// 99 % took at most this.
    pub p99_ns: u64,
    /// The longest.
    pub max_ns: u64,
}

/// Requests to one object.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ObjectSummary {
    /// Its name.
    pub name: String,
    /// Reads.
    pub reads: u64,
    /// Writes.
    pub writes: u64,
    /// Bytes read.
    pub read_bytes: u64,
    /// Bytes written.
    pub written_bytes: u64,
}

/// How often each value of a hint type occurs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct HintCounts {
    /// The hint type.
    pub name: String,
    /// Value and requests, most frequent first; unknown is a value too. At most as many as asked
    /// for.
    pub values: Vec<(String, u64)>,
    /// Different values, unknown not counted.
    pub distinct: u64,
}

/// Reads the whole trace and sums it up. `top` limits the lists of objects and hint values;
/// `page_size` overrides the trace's own.
///
/// # Errors
/// Those of the reader.
pub fn summarise(
    reader: impl Into<Source>,
    top: usize,
    page_size: Option<u32>,
) -> Result<TraceInfo, ReadError> {
    let mut reader = reader.into();
    let page_size = match reader.meta().addressing {
        Addressing::Pages => 1,
        Addressing::Bytes => page_size
            .or(reader.meta().page_size)
            .unwrap_or(PAGE_SIZE_DEFAULT),
    };
    assert!(page_size > 0, "a page has bytes");
    let mut sums = Sums::new(page_size, reader.schema().names().len());
    for record in &mut reader {
        sums.add(&record?);
    }
    let meta = reader.meta().clone();
    let (format, skipped) = (reader.format(), reader.skipped());
    let info = sums.into_info(meta, &reader.into_catalog(), top);
    Ok(TraceInfo {
        format: format.name(),
        skipped,
        ..info
    })
}

#[derive(Default)]
struct Tally {
    requests: u64,
    bytes: u64,
    latency: Histogram,
}

impl Tally {
    fn add(&mut self, record: &TraceRecord) {
        self.requests += 1;
        self.bytes = self.bytes.saturating_add(record.length);
        self.latency.add(record.latency_ns);
    }

    fn summary(&self, name: &'static str) -> Option<OpSummary> {
        let (requests, bytes) = (self.requests, self.bytes);
        (requests > 0).then(|| OpSummary {
            name,
            requests,
            bytes,
            latency: self.latency.summary(),
        })
    }
}

struct Sums {
    page_size: u64,
    rows: u64,
    first_ns: u64,
    last_ns: u64,
    clients: HashSet<u32>,
    pages: PageSet,
    operations: Vec<Tally>,
    places: Vec<Tally>,
    objects: HashMap<ObjectId, ObjectSummary>,
    hints: Vec<HashMap<u32, u64>>,
}

impl Sums {
    fn new(page_size: u32, hint_types: usize) -> Self {
        Self {
            page_size: u64::from(page_size),
            rows: 0,
            first_ns: u64::MAX,
            last_ns: 0,
            clients: HashSet::new(),
            pages: PageSet::default(),
            operations: Op::ALL.iter().map(|_| Tally::default()).collect(),
            places: Served::ALL.iter().map(|_| Tally::default()).collect(),
            objects: HashMap::new(),
            hints: vec![HashMap::new(); hint_types],
        }
    }

    fn add(&mut self, record: &TraceRecord) {
        self.rows += 1;
        self.first_ns = self.first_ns.min(record.time_ns);
        self.last_ns = self
            .last_ns
            .max(record.time_ns.saturating_add(record.latency_ns));
        self.clients.insert(record.client);
        self.operations[record.op.at()].add(record);
        if record.op == Op::Read {
            self.places[record.served.at()].add(record);
        }
        self.add_to_object(record);
        for (position, counts) in self.hints.iter_mut().enumerate() {
            *counts.entry(record.hints.get(position)).or_default() += 1;
        }
    }

    fn add_to_object(&mut self, record: &TraceRecord) {
        let object = self
            .objects
            .entry(record.object)
            .or_insert_with(|| ObjectSummary {
                name: String::new(),
                reads: 0,
                writes: 0,
                read_bytes: 0,
                written_bytes: 0,
            });
        match record.op {
            Op::Read => {
                object.reads += 1;
                object.read_bytes = object.read_bytes.saturating_add(record.length);
            }
            Op::Write => {
                object.writes += 1;
                object.written_bytes = object.written_bytes.saturating_add(record.length);
            }
            Op::Trim | Op::Sync => return,
        }
        self.pages
            .add_range(record.object, record.offset, record.length, self.page_size);
    }

    fn into_info(self, meta: TraceMeta, catalog: &Catalog, top: usize) -> TraceInfo {
        let operations = Op::ALL
            .iter()
            .filter_map(|op| self.operations[op.at()].summary(op.name()));
        let places = Served::ALL
            .iter()
            .filter_map(|at| self.places[at.at()].summary(at.name()));
        let names = catalog.schema().names().iter().enumerate();
        let hints = names.zip(&self.hints).map(|((position, name), counts)| {
            hint_counts(name, counts, top, |value| {
                catalog.value_name(position, value)
            })
        });
        TraceInfo {
            format: "",
            rows: self.rows,
            skipped: 0,
            addressed_in: match meta.addressing {
                Addressing::Bytes => "bytes",
                Addressing::Pages => "pages",
            },
            dropped: meta.dropped,
            parts: meta.parts,
            file_bytes: meta.bytes,
            duration_ns: self.last_ns.saturating_sub(self.first_ns),
            start_unix_ns: meta.start_unix_ns,
            sample: meta.sample.share(),
            product: meta.product,
            page_size: u32::try_from(self.page_size).unwrap_or(u32::MAX),
            clients: self.clients.len() as u64,
            distinct_pages: self.pages.len(),
            operations: operations.collect(),
            reads_by_place: places.collect(),
            objects_total: self.objects.len() as u64,
            hints: hints.collect(),
            objects: top_objects(self.objects, catalog, top),
        }
    }
}

fn top_objects(
    objects: HashMap<ObjectId, ObjectSummary>,
    catalog: &Catalog,
    top: usize,
) -> Vec<ObjectSummary> {
    let mut list: Vec<_> = objects.into_iter().collect();
    list.sort_by_key(|(id, object)| (std::cmp::Reverse(object.reads + object.writes), *id));
    list.truncate(top);
    let named = list.into_iter().map(|(id, object)| {
        let name = catalog.object_name(id).unwrap_or("?").to_string();
        ObjectSummary { name, ..object }
    });
    named.collect()
}

fn hint_counts<'a>(
    name: &str,
    counts: &HashMap<u32, u64>,
    top: usize,
    value_name: impl Fn(u32) -> Option<&'a str>,
) -> HintCounts {
    let mut list: Vec<(u32, u64)> = counts
        .iter()
        .map(|(&value, &count)| (value, count))
        .collect();
    list.sort_by_key(|&(value, count)| (std::cmp::Reverse(count), value));
    let distinct = list.iter().filter(|(value, _)| *value != 0).count() as u64;
    list.truncate(top);
    let named = list.into_iter().map(|(value, count)| {
        let text = value_name(value).map_or_else(|| format!("#{value}"), str::to_string);
        (text, count)
    });
    HintCounts {
        name: name.to_string(),
        values: named.collect(),
        distinct,
    }
}

/// A set of pages as bitmaps of 512.
#[derive(Default)]
struct PageSet {
    chunks: HashMap<(ObjectId, u64), [u64; 8]>,
}

/// Pages per bitmap.
const CHUNK_PAGES: u64 = 512;

/// Most pages one request is counted to touch: a row of a damaged or foreign trace may claim any
/// length.
const REQUEST_PAGES_MAX: u64 = 1 << 20;

impl PageSet {
    fn add_range(&mut self, object: ObjectId, offset: u64, length: u64, page_size: u64) {
        if length == 0 {
            return;
        }
        let first = offset / page_size;
        let last = offset.saturating_add(length - 1) / page_size;
        for index in first..=last.min(first.saturating_add(REQUEST_PAGES_MAX - 1)) {
            self.add(PageId::new(object, index));
        }
    }

    fn add(&mut self, page: PageId) {
        let bits = self
            .chunks
            .entry((page.object, page.index / CHUNK_PAGES))
            .or_default();
        let at = page.index % CHUNK_PAGES;
        bits[(at / 64) as usize] |= 1 << (at % 64);
    }

    fn len(&self) -> u64 {
        self.chunks
            .values()
            .flatten()
            .map(|bits| u64::from(bits.count_ones()))
            .sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_counted_once() {
        let mut pages = PageSet::default();
        pages.add_range(ObjectId(1), 0, 8192, 8192);
        pages.add_range(ObjectId(1), 8191, 2, 8192);
        pages.add_range(ObjectId(2), 512 * 8192, 8192 * 600, 8192);
        pages.add_range(ObjectId(2), 0, 0, 8192);
        assert_eq!(pages.len(), 602);
    }

    #[test]
    fn absurd_lengths_do_not_run_away() {
        let mut pages = PageSet::default();
        pages.add_range(ObjectId(1), u64::MAX - 10, u64::MAX, 1);
        assert_eq!(pages.len(), 11);
        pages.add_range(ObjectId(1), 0, u64::MAX, 1);
        assert_eq!(pages.len(), 11 + REQUEST_PAGES_MAX);
    }
}
