//! Where the records of a trace come from.

use crate::error::SimError;
use crate::workload::PAGE_SIZE_DEFAULT;
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use thermocline_core::hash::mix;
use thermocline_core::{HintSchema, ObjectId};
use thermocline_trace::{
    Addressing, Catalog, EXTENT_PAGES, ImportOptions, Op, ReadError, Sample, Source, TraceRecord,
};

/// The records of one trace, once from beginning to end.
pub trait Records: Iterator<Item = Result<TraceRecord, ReadError>> {
    /// Bytes per page, when the trace says; 1 when it counts in pages.
    fn page_size(&self) -> Option<u32>;

    /// Whether offsets and lengths count pages, not bytes.
    fn counts_pages(&self) -> bool;

    /// The names of its hint types.
    fn schema(&self) -> &HintSchema;

    /// The share of all extents whose requests it has, above 0, at most 1
    /// ([`thermocline_trace::Sample`]).
    fn share(&self) -> f64 {
        1.0
    }

    /// Units of offsets of one extent, all of whose requests are there or none; of a sample alone.
    fn extent(&self) -> Option<u64> {
        let unit = || self.page_size().unwrap_or(PAGE_SIZE_DEFAULT);
        (self.share() < 1.0).then(|| EXTENT_PAGES * u64::from(unit()))
    }

    /// Names behind the numbers of the records read so far, when it has any.
    fn catalog(&self) -> Option<&Catalog>;
}

/// Opens a trace from its beginning, as often as it is asked to: a trace that does not fit in
/// memory is read once for every run.
pub type Opener = Box<dyn Fn() -> Result<Box<dyn Records>, SimError> + Send + Sync>;

/// An opener of the trace at `path`, in any format. What comes through a pipe is opened once: the
/// second time it fails, instead of waiting for somebody who writes it again.
#[must_use]
pub fn opener(path: PathBuf, options: ImportOptions) -> Opener {
    let opened = AtomicBool::new(false);
    Box::new(move || {
        let again = opened.swap(true, Ordering::Relaxed);
        if again && path.metadata().is_ok_and(|found| !found.is_file()) {
            return Err(SimError::ReadOnce { path: path.clone() });
        }
        Ok(Box::new(thermocline_trace::open(&path, &options)?))
    })
}

/// An opener of the records from share `from` to share `to` of `open`'s, by number. Times begin
/// anew with the first of them. The trace is read once more, to count.
#[must_use]
pub fn part(open: Opener, from: f64, to: f64) -> Opener {
    if (from, to) == (0.0, 1.0) {
        return open;
    }
    let count: OnceLock<u64> = OnceLock::new();
    Box::new(move || {
        let all = match count.get() {
            Some(all) => *all,
            None => {
                let mut all = 0u64;
                for record in open()? {
                    record?;
                    all += 1;
                }
                *count.get_or_init(|| all)
            }
        };
        let at = |share: f64| (share * all as f64).round() as u64;
        let mut records = open()?;
        for _ in 0..at(from) {
            records.next().transpose()?;
        }
        Ok(Box::new(Part {
            records,
            left: at(to).saturating_sub(at(from)),
            begin: None,
        }))
    })
}

/// An opener of the requests of `open`'s that are in `sample`, cut where the sample ends.
/// Trims and syncs are all kept: they cost nothing, and forget what the sample never had. Where
/// pages of `page_size` are simulated, each is in it as a whole or not at all.
#[must_use]
pub fn sampled(open: Opener, sample: Sample, page_size: Option<u32>) -> Opener {
    if sample.is_all() {
        return open;
    }
    Box::new(move || {
        let records = open()?;
        // Pages are bytes where they are not known: as the simulator takes them.
        let unit = records.page_size().unwrap_or(PAGE_SIZE_DEFAULT);
        let page = page_size.filter(|_| !records.counts_pages());
        let page = u64::from(page.unwrap_or(unit));
        let extent = EXTENT_PAGES * u64::from(unit);
        Ok(Box::new(Sampled {
            // A page that lies in several extents would be in the sample with any of them.
            extent: match extent.is_multiple_of(page) {
                true => extent,
                false => EXTENT_PAGES * page,
            },
            salt: salt(records.share()),
            records,
            sample,
            cut: VecDeque::new(),
        }))
    })
}

/// What makes the hash of a sample of a trace of this share another one than the recorder's: the
/// same would take all of what is there, or of it what the smaller share alone would.
fn salt(share: f64) -> u32 {
    match share < 1.0 {
        true => mix(share.to_bits(), 0x7361_6d70_6c65) as u32,
        false => 0,
    }
}

/// A sample of a trace.
struct Sampled {
    records: Box<dyn Records>,
    sample: Sample,
    /// Changes the numbers of objects in the hash that decides.
    salt: u32,
    /// Units of offsets that an extent has.
    extent: u64,
    /// What is left of the last record.
    cut: VecDeque<TraceRecord>,
}

impl Iterator for Sampled {
    type Item = Result<TraceRecord, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.cut.is_empty() {
            let record = match self.records.next()? {
                Ok(record) if matches!(record.op, Op::Read | Op::Write) => record,
                other => return Some(other),
            };
            let all = record.offset..record.offset.saturating_add(record.length);
            let object = ObjectId(record.object.0 ^ self.salt);
            let parts = self.sample.parts(object, self.extent, all);
            self.cut.extend(parts.map(|part| TraceRecord {
                offset: part.start,
                length: part.end - part.start,
                ..record
            }));
        }
        self.cut.pop_front().map(Ok)
    }
}

impl Records for Sampled {
    fn page_size(&self) -> Option<u32> {
        self.records.page_size()
    }

    fn counts_pages(&self) -> bool {
        self.records.counts_pages()
    }

    fn schema(&self) -> &HintSchema {
        self.records.schema()
    }

    fn share(&self) -> f64 {
        self.records.share() * self.sample.share()
    }

    fn extent(&self) -> Option<u64> {
        // Those of a trace that is a sample itself are the smaller ones.
        self.records.extent().or(Some(self.extent))
    }

    fn catalog(&self) -> Option<&Catalog> {
        self.records.catalog()
    }
}

/// Some of a trace.
struct Part {
    records: Box<dyn Records>,
    left: u64,
    /// Time of the first record, ns.
    begin: Option<u64>,
}

impl Iterator for Part {
    type Item = Result<TraceRecord, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.left = self.left.checked_sub(1)?;
        let mut record = self.records.next()?;
        if let Ok(record) = &mut record {
            let begin = *self.begin.get_or_insert(record.time_ns);
            record.time_ns = record.time_ns.saturating_sub(begin);
        }
        Some(record)
    }
}

impl Records for Part {
    fn page_size(&self) -> Option<u32> {
        self.records.page_size()
    }

    fn counts_pages(&self) -> bool {
        self.records.counts_pages()
    }

    fn schema(&self) -> &HintSchema {
        self.records.schema()
    }

    fn share(&self) -> f64 {
        self.records.share()
    }

    fn extent(&self) -> Option<u64> {
        self.records.extent()
    }

    fn catalog(&self) -> Option<&Catalog> {
        self.records.catalog()
    }
}

impl Records for Source {
    fn page_size(&self) -> Option<u32> {
        self.meta().page_size
    }

    fn counts_pages(&self) -> bool {
        self.meta().addressing == Addressing::Pages
    }

    fn schema(&self) -> &HintSchema {
        Source::schema(self)
    }

    fn share(&self) -> f64 {
        self.meta().sample.share()
    }

    fn catalog(&self) -> Option<&Catalog> {
        Some(Source::catalog(self))
    }
}

/// Records that are in memory already.
#[derive(Clone, Debug, Default)]
pub struct VecRecords {
    records: std::vec::IntoIter<TraceRecord>,
    page_size: Option<u32>,
    schema: HintSchema,
}

impl VecRecords {
    /// A trace of `records` whose pages have `page_size` bytes.
    #[must_use]
    pub fn new(records: Vec<TraceRecord>, page_size: u32) -> Self {
        Self {
            records: records.into_iter(),
            page_size: Some(page_size),
            schema: HintSchema::default(),
        }
    }

    /// An opener of the same records, time and again.
    #[must_use]
    pub fn opener(records: Vec<TraceRecord>, page_size: u32) -> Opener {
        let trace = Self::new(records, page_size);
        Box::new(move || Ok(Box::new(trace.clone())))
    }
}

impl Iterator for VecRecords {
    type Item = Result<TraceRecord, ReadError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.records.next().map(Ok)
    }
}

impl Records for VecRecords {
    fn page_size(&self) -> Option<u32> {
        self.page_size
    }

    fn counts_pages(&self) -> bool {
        false
    }

    fn schema(&self) -> &HintSchema {
        &self.schema
    }

    fn catalog(&self) -> Option<&Catalog> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Workload, WorkloadOptions};
    use thermocline_core::HintSet;
    use thermocline_trace::{Op, Served};

    #[test]
    fn a_sample_of_a_sample_takes_its_share_again() {
        let record = |number: u64| TraceRecord {
            time_ns: number,
            client: 0,
            op: Op::Read,
            served: Served::Base,
            object: ObjectId(number as u32 % 7),
            offset: number * 4096 * EXTENT_PAGES,
            length: 4096,
            latency_ns: 0,
            hints: HintSet::UNKNOWN,
        };
        let half = Sample::of(0.5).expect("a share");
        let count = |open: Opener| {
            let records = open().expect("opens");
            (records.share(), records.count())
        };
        let all = || VecRecords::opener((0..4000).map(record).collect(), 4096);
        let (share, once) = count(sampled(all(), half, None));
        assert!(share == 0.5 && (1850..2150).contains(&once), "{once}");
        let (share, twice) = count(sampled(sampled(all(), half, None), half, None));
        assert!(share == 0.25 && (850..1150).contains(&twice), "{twice}");
    }

    #[test]
    fn a_page_larger_than_an_extent_is_in_a_sample_as_a_whole() {
        // Requests of 512 bytes, 2 MiB of them; an extent of such pages has 16 KiB.
        let record = |number: u64| TraceRecord {
            time_ns: number,
            client: 0,
            op: Op::Read,
            served: Served::Base,
            object: ObjectId(0),
            offset: number * 512,
            length: 512,
            latency_ns: 0,
            hints: HintSet::UNKNOWN,
        };
        let page = 64 << 10;
        let all = || VecRecords::opener((0..1 << 16).map(record).collect(), 512);
        let quarter = Sample::of(0.25).expect("a share");
        let mut found = std::collections::HashMap::new();
        for record in sampled(all(), quarter, Some(page))().expect("opens") {
            let at = record.expect("reads").offset / u64::from(page);
            *found.entry(at).or_insert(0u64) += 1;
        }
        assert!(!found.is_empty() && found.values().all(|&requests| requests == 128));
        let options = || WorkloadOptions {
            page_size: Some(page),
            ..WorkloadOptions::default()
        };
        let open = |opener| Workload::open(vec![opener], options(), &mut |_| {});
        assert!(open(sampled(all(), quarter, Some(page))).is_ok());
        // What was sampled by smaller extents cannot be put together again.
        let refused = open(sampled(all(), quarter, None)).err().expect("refused");
        assert!(
            matches!(refused, SimError::Extents { extent: 16384, .. }),
            "{refused}"
        );
        let again = sampled(sampled(all(), quarter, None), quarter, Some(page));
        assert!(matches!(open(again), Err(SimError::Extents { .. })));
    }

    #[test]
    fn a_part_begins_at_its_share_and_at_time_nothing() {
        let record = |number: u64| TraceRecord {
            time_ns: 100 + number,
            client: 0,
            op: Op::Read,
            served: Served::Base,
            object: ObjectId(0),
            offset: number * 4096,
            length: 4096,
            latency_ns: 0,
            hints: HintSet::UNKNOWN,
        };
        let read = |from, to| {
            let open = part(
                VecRecords::opener((0..10).map(record).collect(), 4096),
                from,
                to,
            );
            // Opened more than once, it is the same.
            [
                open().expect("opens").count(),
                open().expect("opens").count(),
            ]
        };
        assert_eq!(
            (read(0.0, 1.0), read(0.0, 0.5), read(0.5, 1.0)),
            ([10; 2], [5; 2], [5; 2])
        );
        assert_eq!((read(0.5, 0.5), read(0.84, 1.0)), ([0; 2], [2; 2]));
        let open = part(
            VecRecords::opener((0..10).map(record).collect(), 4096),
            0.5,
            1.0,
        );
        let first = open().expect("opens").next().expect("one").expect("reads");
        assert_eq!((first.offset, first.time_ns), (5 * 4096, 0));
    }
}
