//! Requests into page requests: objects and hint sets numbered, noise added.

use crate::error::SimError;
use crate::merge::Merged;
use crate::request::{Kind, PAGES_MAX, PageRequest};
use hashbrown::HashTable;
use thermocline_core::hash::mix;
use thermocline_core::noise::NoiseHints;
use thermocline_core::{HintSet, ObjectId, PageId};
use thermocline_trace::{Op, Served, TraceRecord};

/// The most bytes of one I/O: no kernel takes more at once. Beyond it the trace is taken for
/// malformed.
const IO_BYTES_MAX: u64 = 4 << 30;
/// As many pages it may have in any case, as where pages are counted and their size is not known.
const IO_PAGES_LEAST: u64 = 1 << 20;
/// The most pages that one request for a trim says, without reaching the end.
const TRIM_PAGES_MAX: u64 = PAGES_MAX as u64 - 1;
/// The most such requests that one trim becomes, many PiB.
const TRIMS_MAX: u64 = 1 << 16;

/// What writes do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Writes {
    /// They go to base, renew the copy on flash, and policies that admit on writes may do so.
    #[default]
    Allocate,
    /// The same, but recency policies admit nothing on a write.
    NoAllocate,
    /// They count as reads: what simulators without writes do.
    AsReads,
    /// They are left out, as if the trace had none.
    Ignore,
}

/// Requests that a rule, or a tier that was off, sent past the tier when they were recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bypassed {
    /// Left out: the tier did not see them.
    #[default]
    Skip,
    /// Simulated like all others.
    Include,
}

/// See the module text.
#[derive(Debug)]
pub(crate) struct Splitter {
    pub(crate) page_size: u32,
    pub(crate) writes: Writes,
    pub(crate) bypassed: Bypassed,
    pub(crate) noise: Option<NoiseHints>,
    /// Position of the first noise type.
    pub(crate) noise_at: usize,
    /// Of each trace: what its offsets are divided by, and the numbers of its objects.
    traces: Vec<(u64, Vec<Option<u32>>)>,
    /// Of each trace: the hint type that names the database, where it has one.
    pub(crate) databases: Vec<Option<usize>>,
    /// Of each client: its trace, and its number there. Every trace has a number 0; none at all are
    /// told apart where there is but one trace, of one database.
    pub(crate) clients: Vec<(usize, u32)>,
    /// Of each object: the page after the last one requested.
    pub(crate) ends: Vec<u64>,
    /// Of each object: its trace, and its number there.
    pub(crate) objects: Vec<(usize, ObjectId)>,
    pub(crate) hints: Interner,
    pub(crate) ios: u64,
    /// Time of the latest request.
    pub(crate) duration_ms: u64,
    pub(crate) skipped_bypassed: u64,
    pub(crate) skipped_writes: u64,
}

impl Splitter {
    /// A splitter for traces whose offsets are divided by `units`.
    pub(crate) fn new(page_size: u32, units: impl IntoIterator<Item = u64>) -> Self {
        Self {
            page_size,
            writes: Writes::default(),
            bypassed: Bypassed::default(),
            noise: None,
            noise_at: 0,
            traces: units.into_iter().map(|unit| (unit, Vec::new())).collect(),
            databases: Vec::new(),
            clients: Vec::new(),
            ends: Vec::new(),
            objects: Vec::new(),
            hints: Interner::default(),
            ios: 0,
            duration_ms: 0,
            skipped_bypassed: 0,
            skipped_writes: 0,
        }
    }

    /// Appends the page requests of one record to `out`: none for syncs, empty requests and
    /// those that are left out.
    pub(crate) fn split(
        &mut self,
        merged: &Merged,
        out: &mut Vec<PageRequest>,
    ) -> Result<(), SimError> {
        let record = &merged.record;
        if record.op == Op::Sync || record.length == 0 || self.leaves_out(record) {
            return Ok(());
        }
        let unit = self.traces[merged.trace].0;
        let wrong = || SimError::Address {
            trace: merged.trace + 1,
            record: merged.number,
        };
        let final_byte = record.offset.checked_add(record.length - 1);
        let final_byte = final_byte.ok_or_else(wrong)?;
        let (first, last) = (record.offset / unit, final_byte / unit);
        let object = self.object(merged.trace, record.object);
        let hints = self.hint_set(merged.trace, record);
        let time_ms = record.time_ns / 1_000_000;
        self.duration_ms = self.duration_ms.max(time_ms);
        let page = |index| PageId::new(object, index);
        let too_long = || SimError::TooLong {
            trace: merged.trace + 1,
            record: merged.number,
            pages: (last - first).saturating_add(1),
            page_size: self.page_size,
        };
        if record.op == Op::Trim {
            let push = |(index, pages)| {
                out.push(PageRequest::new(
                    page(index),
                    Kind::Trim,
                    hints,
                    time_ms,
                    pages,
                ));
            };
            let trims = self.trims(object, first, last).ok_or_else(too_long)?;
            trims.into_iter().for_each(push);
            return Ok(());
        }
        let most = (IO_BYTES_MAX / u64::from(self.page_size)).max(IO_PAGES_LEAST);
        if last - first >= most {
            return Err(too_long());
        }
        let end = &mut self.ends[object.0 as usize];
        *end = (*end).max(last.saturating_add(1));
        self.ios += 1;
        let mut pages = (last - first + 1) as u32;
        for index in first..=last {
            let kind = self.kind(record, index, unit);
            out.push(PageRequest::new(page(index), kind, hints, time_ms, pages));
            pages = 0;
        }
        Ok(())
    }

    /// Tells databases apart: the n-th of `databases` is the hint type that names those of trace n.
    pub(crate) fn tell_apart(&mut self, databases: Vec<Option<usize>>) {
        debug_assert_eq!(databases.len(), self.traces.len(), "one for each trace");
        if databases.len() > 1 || databases.iter().any(Option::is_some) {
            self.clients = (0..databases.len()).map(|trace| (trace, 0)).collect();
        }
        self.databases = databases;
    }

    /// The number, from 1, of a trace's database among those of all traces.
    fn client(&mut self, trace: usize, database: u32) -> u32 {
        let of = (trace, database);
        let at = self.clients.iter().position(|known| *known == of);
        let at = at.unwrap_or_else(|| {
            self.clients.push(of);
            self.clients.len() - 1
        });
        at as u32 + 1
    }

    fn leaves_out(&mut self, record: &TraceRecord) -> bool {
        let bypassed = record.served == Served::Bypass && self.bypassed == Bypassed::Skip;
        let ignored = record.op == Op::Write && self.writes == Writes::Ignore;
        self.skipped_bypassed += u64::from(bypassed);
        self.skipped_writes += u64::from(ignored && !bypassed);
        bypassed || ignored
    }

    /// What the request does to page `index`.
    fn kind(&self, record: &TraceRecord, index: u64, unit: u64) -> Kind {
        if record.op == Op::Read || self.writes == Writes::AsReads {
            return Kind::Read;
        }
        let start = index * unit;
        let covers_start = record.offset <= start;
        let covers_end = record.offset + (record.length - 1) >= start + (unit - 1);
        if covers_start && covers_end {
            Kind::Write
        } else {
            Kind::PartWrite
        }
    }

    /// The first pages and lengths of what a trim becomes: one that reaches the last page ever
    /// requested reaches the end, and one that is longer than a request says is several. None
    /// where that is too many.
    fn trims(&self, object: ObjectId, first: u64, last: u64) -> Option<Vec<(u64, u32)>> {
        if last.saturating_add(1) >= self.ends[object.0 as usize] {
            return Some(vec![(first, PAGES_MAX)]);
        }
        if (last - first) / TRIM_PAGES_MAX >= TRIMS_MAX {
            return None;
        }
        let begins = (first..=last).step_by(TRIM_PAGES_MAX as usize);
        let length = |begin: u64| ((last - begin).saturating_add(1)).min(TRIM_PAGES_MAX) as u32;
        Some(begins.map(|begin| (begin, length(begin))).collect())
    }

    /// The number of a trace's object among those of all traces.
    fn object(&mut self, trace: usize, local: ObjectId) -> ObjectId {
        let numbers = &mut self.traces[trace].1;
        let at = local.0 as usize;
        if at >= numbers.len() {
            numbers.resize(at + 1, None);
        }
        let number = *numbers[at].get_or_insert_with(|| {
            self.ends.push(0);
            self.objects.push((trace, local));
            self.ends.len() as u32 - 1
        });
        ObjectId(number)
    }

    fn hint_set(&mut self, trace: usize, record: &TraceRecord) -> u32 {
        let mut hints = record.hints;
        if !self.clients.is_empty() {
            let position = self.databases[trace];
            let database = position.map_or(0, |position| hints.get(position));
            if let Some(position) = position {
                hints.set(position, 0);
            }
            hints = hints.from_client(self.client(trace, database));
        }
        if let (Some(noise), true) = (&self.noise, record.op != Op::Trim) {
            hints = noise.add(self.ios, &hints);
        }
        self.hints.number(&hints)
    }
}

/// Hint sets numbered in order of appearance.
#[derive(Debug, Default)]
pub(crate) struct Interner {
    map: HashTable<u32>,
    sets: Vec<HintSet>,
    latest: u32,
}

impl Interner {
    /// All sets seen so far.
    pub(crate) fn sets(&self) -> &[HintSet] {
        &self.sets
    }

    fn number(&mut self, hints: &HintSet) -> u32 {
        if self.sets.get(self.latest as usize) == Some(hints) {
            return self.latest;
        }
        let hash = hash_of(hints);
        let found = self.map.find(hash, |&at| self.sets[at as usize] == *hints);
        self.latest = match found {
            Some(&number) => number,
            None => {
                let number = self.sets.len() as u32;
                self.sets.push(*hints);
                let sets = &self.sets;
                let rehash = |&at: &u32| hash_of(&sets[at as usize]);
                self.map.insert_unique(hash, number, rehash);
                number
            }
        };
        self.latest
    }
}

fn hash_of(hints: &HintSet) -> u64 {
    let client = u64::from(hints.client());
    let fold = |hash, &value: &u32| mix(hash, u64::from(value));
    hints.values().iter().fold(client, fold)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(op: Op, offset: u64, length: u64) -> TraceRecord {
        TraceRecord {
            time_ns: 5_000_000,
            client: 3,
            op,
            served: Served::Unknown,
            object: ObjectId(4),
            offset,
            length,
            latency_ns: 0,
            hints: HintSet::UNKNOWN,
        }
    }

    fn split(splitter: &mut Splitter, record: TraceRecord) -> Vec<(u64, Kind, u32)> {
        let mut out = Vec::new();
        let merged = Merged {
            trace: 0,
            number: 1,
            record,
        };
        splitter.split(&merged, &mut out).expect("splits");
        let shape = |r: &PageRequest| (r.index, r.kind(), r.pages());
        out.iter().map(shape).collect()
    }

    #[test]
    fn requests_become_pages_and_partial_writes_show() {
        let mut s = Splitter::new(4096, [4096]);
        let pages = split(&mut s, record(Op::Read, 4095, 2));
        assert_eq!(pages, [(0, Kind::Read, 2), (1, Kind::Read, 0)]);
        let pages = split(&mut s, record(Op::Write, 4096, 8192));
        assert_eq!(pages, [(1, Kind::Write, 2), (2, Kind::Write, 0)]);
        let pages = split(&mut s, record(Op::Write, 4000, 8192));
        let kinds = [
            (0, Kind::PartWrite, 3),
            (1, Kind::Write, 0),
            (2, Kind::PartWrite, 0),
        ];
        assert_eq!(pages, kinds);
        assert_eq!(split(&mut s, record(Op::Sync, 0, 0)), []);
        assert_eq!(split(&mut s, record(Op::Read, 9, 0)), []);
        assert_eq!((s.ios, s.ends[0]), (3, 3));
    }

    #[test]
    fn writes_can_be_reads_or_nothing() {
        let mut s = Splitter::new(4096, [4096]);
        s.writes = Writes::AsReads;
        let pages = split(&mut s, record(Op::Write, 1, 2));
        assert_eq!(pages, [(0, Kind::Read, 1)]);
        s.writes = Writes::Ignore;
        assert_eq!(split(&mut s, record(Op::Write, 1, 2)), []);
        assert_eq!(s.skipped_writes, 1);
    }

    #[test]
    fn a_trim_of_the_last_page_seen_reaches_the_end() {
        let mut s = Splitter::new(4096, [4096]);
        split(&mut s, record(Op::Read, 0, 4096 * 10));
        let pages = split(&mut s, record(Op::Trim, 4096, 4096 * 3));
        assert_eq!(pages, [(1, Kind::Trim, 3)]);
        let pages = split(&mut s, record(Op::Trim, 4096 * 9, 4096));
        assert_eq!(pages, [(9, Kind::Trim, PAGES_MAX)]);
    }

    #[test]
    fn a_trim_longer_than_a_request_says_is_several() {
        let mut s = Splitter::new(4096, [1]);
        split(&mut s, record(Op::Read, 1 << 40, 1));
        let most = PAGES_MAX - 1;
        let trims = |length| vec![(3, Kind::Trim, length)];
        let length = u64::from(most);
        assert_eq!(split(&mut s, record(Op::Trim, 3, length)), trims(most));
        let mut two = trims(most);
        two.push((3 + length, Kind::Trim, 1));
        assert_eq!(split(&mut s, record(Op::Trim, 3, length + 1)), two);
        split(&mut s, record(Op::Read, 1 << 60, 1));
        let merged = Merged {
            trace: 0,
            number: 1,
            record: record(Op::Trim, 0, 1 << 59),
        };
        let long = s.split(&merged, &mut Vec::new());
        assert!(matches!(long, Err(SimError::TooLong { .. })), "{long:?}");
    }

    #[test]
    fn absurd_lengths_are_named() {
        let mut s = Splitter::new(4096, [4096]);
        let merged = |record| Merged {
            trace: 0,
            number: 17,
            record,
        };
        let long = s.split(&merged(record(Op::Read, 0, 1 << 50)), &mut Vec::new());
        let text = long.unwrap_err().to_string();
        assert!(
            text.contains("record 17") && text.contains("pages"),
            "{text}"
        );
        let over = s.split(&merged(record(Op::Read, u64::MAX, 2)), &mut Vec::new());
        assert!(matches!(over, Err(SimError::Address { record: 17, .. })));
    }

    #[test]
    fn no_request_has_more_pages_than_an_io_can() {
        let mut s = Splitter::new(4096, [4096]);
        assert_eq!(split(&mut s, record(Op::Read, 0, 4 << 30)).len(), 1 << 20);
        let merged = Merged {
            trace: 0,
            number: 1,
            record: record(Op::Read, 0, (4 << 30) + 1),
        };
        let long = s.split(&merged, &mut Vec::new());
        assert!(matches!(
            long,
            Err(SimError::TooLong {
                pages: 1_048_577,
                ..
            })
        ));
    }

    #[test]
    fn page_numbers_of_64_bits_are_split_by_one() {
        let mut s = Splitter::new(4096, [1]);
        let pages = split(&mut s, record(Op::Write, u64::MAX, 1));
        assert_eq!(pages, [(u64::MAX, Kind::Write, 1)]);
    }

    #[test]
    fn several_traces_are_several_clients_with_their_own_objects() {
        let mut s = Splitter::new(4096, [4096, 4096]);
        s.tell_apart(vec![None, None]);
        let mut out = Vec::new();
        for trace in [0, 1, 0] {
            let record = record(Op::Read, 0, 1);
            let merged = Merged {
                trace,
                number: 1,
                record,
            };
            s.split(&merged, &mut out).expect("splits");
        }
        let seen: Vec<_> = out.iter().map(|r| (r.object.0, r.hints)).collect();
        assert_eq!(seen, [(0, 0), (1, 1), (0, 0)]);
        let clients: Vec<u32> = s.hints.sets().iter().map(HintSet::client).collect();
        assert_eq!(clients, [1, 2]);
    }

    #[test]
    fn databases_of_one_trace_are_clients_whose_hints_do_not_name_them() {
        let mut s = Splitter::new(4096, [4096]);
        s.tell_apart(vec![Some(8)]);
        for database in [2, 0, 1, 2] {
            let mut record = record(Op::Read, 0, 1);
            record.hints.set(8, database);
            split(&mut s, record);
        }
        let sets: Vec<_> = s
            .hints
            .sets()
            .iter()
            .map(|h| (h.client(), h.get(8)))
            .collect();
        assert_eq!(sets, [(2, 0), (1, 0), (3, 0)]);
        assert_eq!(s.clients, [(0, 0), (0, 2), (0, 1)]);
    }
}
