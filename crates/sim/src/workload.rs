//! The page requests of one or several traces, and what is in them.
//!
//! Opening reads everything once: it counts, numbers the distinct pages, and keeps the decoded
//! requests as long as they fit into [`WorkloadOptions::memory`] (36 bytes a page request). A
//! trace that does not fit is decoded again for every run; what then stays in memory is one
//! entry of about 30 bytes per *distinct* page while opening and one bit per page request after.

use crate::bits::Bits;
use crate::error::SimError;
use crate::merge::{Interleave, Merge};
use crate::noise::{NOISE_VALUES, Noise};
use crate::reach::Reach;
use crate::request::{Kind, PageRequest};
use crate::source::{Opener, Records};
use crate::split::{Bypassed, Splitter, Writes};
use hashbrown::HashTable;
use thermocline_core::hash;
use thermocline_core::hint::HINT_TYPES_MAX;
use thermocline_core::noise::NoiseHints;
use thermocline_core::{HintSet, ObjectId, PageId};
use thermocline_trace::{Catalog, DATABASE};

/// Page requests handed over at a time.
const CHUNK: usize = 1 << 16;
/// Bytes per page request kept in memory: itself, its page's number, its next read, and its next
/// read unless a write comes first.
pub const BYTES_PER_REQUEST: u64 = size_of::<PageRequest>() as u64 + 12;
/// Bytes per page when neither the trace nor the user says.
pub const PAGE_SIZE_DEFAULT: u32 = 4096;
/// Bytes of the smallest page: smaller ones are no pages of a device.
const PAGE_SIZE_MIN: u32 = 512;
/// Different pages at most: their numbers have 32 bits, and one of them stands for none.
const PAGES_MAX: usize = u32::MAX as usize;

/// How traces become page requests.
#[derive(Clone, Debug)]
pub struct WorkloadOptions {
    /// Bytes per page; the trace's own when not given.
    pub page_size: Option<u32>,
    /// What writes do.
    pub writes: Writes,
    /// Whether requests recorded past the tier count.
    pub bypassed: Bypassed,
    /// Order of several traces.
    pub interleave: Interleave,
    /// Meaningless hints to add.
    pub noise: Noise,
    /// Bytes for decoded page requests.
    pub memory: u64,
}

impl Default for WorkloadOptions {
    fn default() -> Self {
        Self {
            page_size: None,
            writes: Writes::default(),
            bypassed: Bypassed::default(),
            interleave: Interleave::default(),
            noise: Noise::default(),
            memory: 2 << 30,
        }
    }
}

/// What is in a workload. "Requests" are page requests; trims are counted apart.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Facts {
    /// The share of all extents whose requests are in it: below 1 for a sample. All other figures
    /// are of the sample.
    pub share: f64,
    /// Bytes per page.
    pub page_size: u32,
    /// Page requests: reads and writes.
    pub requests: u64,
    /// Page reads.
    pub reads: u64,
    /// Page writes.
    pub writes: u64,
    /// Writes of a part of a page, among the writes.
    pub part_writes: u64,
    /// Trims.
    pub trims: u64,
    /// I/Os, that is requests of the trace: reads and writes.
    pub ios: u64,
    /// Different pages.
    pub distinct_pages: u64,
    /// Reads of a page that was never requested before: misses of any tier.
    pub first_touch_reads: u64,
    /// Different hint sets.
    pub hint_sets: u64,
    /// Traces.
    pub traces: usize,
    /// Clients that give hints: databases of all traces; 1 where none are told apart.
    pub clients: usize,
    /// Requests left out because they were recorded past the tier.
    pub skipped_bypassed: u64,
    /// Writes left out because they are to be ignored.
    pub skipped_writes: u64,
    /// From the first record of a trace to the last request, milliseconds.
    pub duration_ms: u64,
    /// Whether the trace counts pages of a size it does not know.
    pub counts_pages: bool,
    /// Of each object: the page after the last one requested; in a sample too, whose pages lie
    /// where they lay ([`Facts::pages_of`]).
    pub extents: Vec<u64>,
}

impl Facts {
    /// About how many different pages there are, in the sample or not.
    #[must_use]
    pub fn all_pages(&self) -> u64 {
        (self.distinct_pages as f64 / self.share).round() as u64
    }

    /// Pages of flash that `object` takes when it is wholly there. Addresses of a sample are those
    /// of the whole, so its extent is the whole's, and it takes its share of that.
    #[must_use]
    pub fn pages_of(&self, object: ObjectId) -> u64 {
        match self.extents.get(object.0 as usize).copied().unwrap_or(0) {
            0 => 0,
            extent if self.share == 1.0 => extent,
            extent => (extent as f64 * self.share).round().max(1.0) as u64,
        }
    }
}

/// Pages forgotten by one trim: its position among all requests and trims, and page numbers.
pub(crate) type Trimmed = (u32, Vec<u32>);

/// See the module text.
pub struct Workload {
    openers: Vec<Opener>,
    options: WorkloadOptions,
    facts: Facts,
    hint_sets: Vec<HintSet>,
    catalogs: Vec<Option<Catalog>>,
    /// Of each object: its trace, and its number there.
    objects: Vec<(usize, ObjectId)>,
    /// Of each client: its trace, and its number there.
    clients: Vec<(usize, u32)>,
    /// Of each trace: the hint type that names its databases.
    databases: Vec<Option<usize>>,
    noise_at: usize,
    decoded: Option<Vec<PageRequest>>,
    /// Of each decoded request: the number of its page.
    ids: Vec<u32>,
    trims: Vec<Trimmed>,
    /// First touches by position; used when nothing is decoded.
    first: Bits,
}

impl Workload {
    /// Reads the traces once. `progress` is told the page requests so far, now and then.
    ///
    /// # Errors
    /// When a trace cannot be read, holds nothing to simulate, or options do not fit it.
    pub fn open(
        openers: Vec<Opener>,
        options: WorkloadOptions,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Self, SimError> {
        let (mut merge, mut splitter, counts_pages) = start(&openers, &options)?;
        let mut scan = Scan::new(options.memory);
        let mut pages = Vec::new();
        while let Some(merged) = merge.next()? {
            splitter.split(&merged, &mut pages)?;
            for request in pages.drain(..) {
                scan.add(request)?;
            }
            if merged.number % CHUNK as u64 == 0 {
                progress(scan.facts.requests);
            }
        }
        let facts = Facts {
            share: share(merge.sources())?,
            page_size: splitter.page_size,
            ios: splitter.ios,
            duration_ms: splitter.duration_ms,
            distinct_pages: scan.pages.len() as u64,
            hint_sets: splitter.hints.sets().len() as u64,
            traces: openers.len(),
            clients: splitter.clients.len().max(1),
            skipped_bypassed: splitter.skipped_bypassed,
            skipped_writes: splitter.skipped_writes,
            counts_pages,
            extents: splitter.ends.clone(),
            ..scan.facts
        };
        if facts.requests == 0 {
            return Err(SimError::Nothing {
                bypassed: facts.skipped_bypassed,
                ignored: facts.skipped_writes,
            });
        }
        Ok(Self {
            catalogs: merge
                .sources()
                .iter()
                .map(|source| source.catalog().cloned())
                .collect(),
            noise_at: splitter.noise_at,
            clients: splitter.clients.clone(),
            databases: splitter.databases.clone(),
            objects: splitter.objects.clone(),
            hint_sets: splitter.hints.sets().to_vec(),
            decoded: scan.fits.then_some(scan.decoded),
            ids: scan.ids,
            trims: scan.trims,
            first: scan.first,
            openers,
            options,
            facts,
        })
    }

    /// What is in it.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// The options it was opened with.
    #[must_use]
    pub fn options(&self) -> &WorkloadOptions {
        &self.options
    }

    /// Every hint set, by the numbers in the requests.
    #[must_use]
    pub fn hint_sets(&self) -> &[HintSet] {
        &self.hint_sets
    }

    /// All page requests, when they fit into memory.
    #[must_use]
    pub fn decoded(&self) -> Option<&[PageRequest]> {
        self.decoded.as_deref()
    }

    /// Page numbers by request; empty when nothing is decoded.
    pub(crate) fn ids(&self) -> &[u32] {
        &self.ids
    }

    pub(crate) fn trims(&self) -> &[Trimmed] {
        &self.trims
    }

    /// The name of a value of hint type `position` as the client of `hints` uses it.
    #[must_use]
    pub fn value_name(&self, hints: &HintSet, position: usize) -> String {
        let value = hints.get(position);
        let noise = (self.noise_at..self.noise_at + self.options.noise.types).contains(&position);
        let catalog = self.catalog_of(hints).filter(|_| !noise);
        let name = catalog.and_then(|catalog| catalog.value_name(position, value));
        name.map_or_else(|| value.to_string(), str::to_string)
    }

    /// The name of `object` that its trace recorded: a path, when a mount recorded it.
    #[must_use]
    pub fn object_path(&self, object: ObjectId) -> String {
        let place = self.objects.get(object.0 as usize);
        let name = place.and_then(|&(trace, local)| {
            let catalog = self.catalogs.get(trace)?.as_ref()?;
            catalog.object_name(local)
        });
        name.map_or_else(|| format!("object {}", object.0), str::to_string)
    }

    /// The trace of `object`'s requests, from 0.
    pub(crate) fn trace_of_object(&self, object: ObjectId) -> usize {
        let place = self.objects.get(object.0 as usize);
        place.map_or(0, |(trace, _)| *trace)
    }

    /// The name of hint type `position` as the client of `hints` uses it.
    #[must_use]
    pub fn type_name(&self, hints: &HintSet, position: usize) -> String {
        if (self.noise_at..self.noise_at + self.options.noise.types).contains(&position) {
            return format!("noise{}", position - self.noise_at + 1);
        }
        let names = self.catalog_of(hints).map(|c| c.schema().names());
        let name = names.and_then(|names| names.get(position));
        name.cloned().unwrap_or_else(|| format!("hint {position}"))
    }

    fn catalog_of(&self, hints: &HintSet) -> Option<&Catalog> {
        self.catalogs.get(self.trace_of(hints.client()))?.as_ref()
    }

    /// The trace of a client's requests, from 0.
    fn trace_of(&self, client: u32) -> usize {
        let at = client.saturating_sub(1) as usize;
        self.clients.get(at).map_or(0, |(trace, _)| *trace)
    }

    /// What to call client `client`, from 1: its trace, and in it its database.
    #[must_use]
    pub fn client_name(&self, client: u32) -> String {
        let trace = self.trace_of(client);
        let number = self.clients.get(client.saturating_sub(1) as usize);
        let number = number.map_or(0, |(_, number)| *number);
        let catalog = self.catalogs.get(trace).and_then(Option::as_ref);
        let position = self.databases.get(trace).copied().flatten();
        let name = position.filter(|_| number != 0);
        let name = name.and_then(|position| catalog?.value_name(position, number));
        match (name, position) {
            (Some(name), _) => name.to_string(),
            (None, Some(_)) => format!("trace {}, no database", trace + 1),
            (None, None) => format!("trace {}", trace + 1),
        }
    }

    /// Hands over all page requests and trims in order, in chunks, with the hint sets they name.
    ///
    /// # Errors
    /// When a trace that is not in memory cannot be read again.
    pub fn for_each_chunk(
        &self,
        mut each: impl FnMut(&[PageRequest], &[HintSet]),
    ) -> Result<(), SimError> {
        if let Some(decoded) = &self.decoded {
            decoded
                .chunks(CHUNK)
                .for_each(|chunk| each(chunk, &self.hint_sets));
            return Ok(());
        }
        let (mut merge, mut splitter, _) = start(&self.openers, &self.options)?;
        let mut chunk: Vec<PageRequest> = Vec::with_capacity(CHUNK);
        let mut at = 0;
        loop {
            let merged = merge.next()?;
            let ended = merged.is_none();
            if let Some(merged) = merged {
                splitter.split(&merged, &mut chunk)?;
            }
            if chunk.len() >= CHUNK || ended {
                for request in &mut chunk {
                    if self.first.get(at) {
                        request.set_first_touch();
                    }
                    at += 1;
                }
                each(&chunk, splitter.hints.sets());
                chunk.clear();
            }
            if ended {
                return Ok(());
            }
        }
    }
}

/// Opens every trace and sees whether they go together. Also says whether one counts pages.
fn start(
    openers: &[Opener],
    options: &WorkloadOptions,
) -> Result<(Merge, Splitter, bool), SimError> {
    assert!(!openers.is_empty(), "a workload has at least one trace");
    let sources: Result<Vec<_>, SimError> = openers.iter().map(|open| open()).collect();
    let sources = sources?;
    let page_size = page_size(&sources, options.page_size)?;
    whole_pages(&sources, page_size)?;
    let unit = |source: &dyn Records| match source.counts_pages() {
        true => 1,
        false => u64::from(page_size),
    };
    let mut splitter = Splitter::new(page_size, sources.iter().map(|of| unit(of.as_ref())));
    let names = |of: &dyn Records| {
        let mut names = of.schema().names().iter();
        names.position(|name| name == DATABASE)
    };
    splitter.tell_apart(sources.iter().map(|of| names(of.as_ref())).collect());
    splitter.writes = options.writes;
    splitter.bypassed = options.bypassed;
    let types = sources.iter().map(|source| source.schema().names().len());
    splitter.noise_at = types.max().unwrap_or(0);
    let Noise { types, seed } = options.noise;
    splitter.noise = NoiseHints::new(seed, splitter.noise_at, types, NOISE_VALUES);
    if splitter.noise.is_none() {
        return Err(SimError::Noise {
            noise: options.noise.types,
            found: splitter.noise_at,
            max: HINT_TYPES_MAX,
        });
    }
    let counts_pages = sources.iter().any(|source| source.counts_pages());
    let merge = Merge::new(sources, options.interleave)?;
    Ok((merge, splitter, counts_pages))
}

/// Sees whether a page of the simulation is in each sample as a whole or not at all.
fn whole_pages(sources: &[Box<dyn Records>], page_size: u32) -> Result<(), SimError> {
    for (at, source) in sources.iter().enumerate() {
        let extent = source.extent().filter(|_| !source.counts_pages());
        let Some(extent) = extent.filter(|extent| !extent.is_multiple_of(page_size.into())) else {
            continue;
        };
        return Err(SimError::Extents {
            trace: at + 1,
            extent,
            page_size,
        });
    }
    Ok(())
}

/// The share of all requests that is in each trace: the same in all.
fn share(sources: &[Box<dyn Records>]) -> Result<f64, SimError> {
    let first = sources[0].share();
    for (at, source) in sources.iter().enumerate() {
        let found = source.share();
        if found != first {
            let trace = at + 1;
            return Err(SimError::Shares {
                trace,
                found,
                first,
            });
        }
    }
    Ok(first)
}

/// The page size asked for, or the one all traces agree on.
fn page_size(sources: &[Box<dyn Records>], asked: Option<u32>) -> Result<u32, SimError> {
    if let Some(size) = asked {
        return Ok(size);
    }
    let said = |source: &dyn Records| source.page_size().filter(|_| !source.counts_pages());
    let first = said(sources[0].as_ref());
    for (at, source) in sources.iter().enumerate() {
        let odd = |size: &u32| *size < PAGE_SIZE_MIN || !size.is_power_of_two();
        if let Some(size) = said(source.as_ref()).filter(odd) {
            let trace = at + 1;
            return Err(SimError::PageSize { trace, size });
        }
    }
    let text = |size: Option<u32>| size.map_or("a size not given".into(), |s| format!("{s} B"));
    for (at, source) in sources.iter().enumerate() {
        let said = said(source.as_ref());
        if said != first {
            return Err(SimError::PageSizes {
                trace: at + 1,
                found: text(said),
                first: text(first),
            });
        }
    }
    Ok(first.unwrap_or(PAGE_SIZE_DEFAULT))
}

/// The first pass.
struct Scan {
    facts: Facts,
    /// Every page ever requested, with its number.
    pages: HashTable<(PageId, u32)>,
    /// Numbers of pages that were trimmed and not requested since.
    gone: Vec<bool>,
    reach: Reach,
    at: u64,
    memory: u64,
    fits: bool,
    decoded: Vec<PageRequest>,
    ids: Vec<u32>,
    trims: Vec<Trimmed>,
    first: Bits,
}

impl Scan {
    fn new(memory: u64) -> Self {
        Self {
            facts: Facts::default(),
            pages: HashTable::new(),
            gone: Vec::new(),
            reach: Reach::default(),
            at: 0,
            memory,
            fits: true,
            decoded: Vec::new(),
            ids: Vec::new(),
            trims: Vec::new(),
            first: Bits::default(),
        }
    }

    fn add(&mut self, mut request: PageRequest) -> Result<(), SimError> {
        let id = match request.kind() {
            Kind::Trim => {
                self.facts.trims += 1;
                let gone = self.trim(&request);
                if self.fits {
                    self.trims.push((self.at as u32, gone));
                }
                u32::MAX
            }
            kind => {
                let (id, first) = self.touch(request.page()).ok_or(SimError::TooMany {
                    pages: PAGES_MAX as u64,
                })?;
                self.count(kind, first);
                if first {
                    request.set_first_touch();
                }
                id
            }
        };
        self.keep(request, id);
        self.at += 1;
        Ok(())
    }

    fn count(&mut self, kind: Kind, first: bool) {
        self.facts.requests += 1;
        match kind {
            Kind::Read => {
                self.facts.reads += 1;
                self.facts.first_touch_reads += u64::from(first);
            }
            _ => self.facts.writes += 1,
        }
        self.facts.part_writes += u64::from(kind == Kind::PartWrite);
    }

    fn keep(&mut self, request: PageRequest, id: u32) {
        let bytes = (self.at + 1).saturating_mul(BYTES_PER_REQUEST);
        // Positions have 32 bits, of which two values at the end mean something else.
        if self.fits && (bytes > self.memory || self.at >= u64::from(u32::MAX) - 2) {
            self.fits = false;
            for (at, request) in (0..).zip(&self.decoded) {
                if request.is_first_touch() {
                    self.first.set(at);
                }
            }
            self.decoded = Vec::new();
            self.ids = Vec::new();
            self.trims = Vec::new();
        }
        if self.fits {
            self.decoded.push(request);
            self.ids.push(id);
        } else if request.is_first_touch() {
            self.first.set(self.at);
        }
    }

    /// The number of `page` and whether this is its first touch; none when there are too many.
    fn touch(&mut self, page: PageId) -> Option<(u32, bool)> {
        let hash = hash::of_page(page);
        if let Some(&(_, id)) = self.pages.find(hash, |(known, _)| *known == page) {
            let first = std::mem::take(&mut self.gone[id as usize]);
            if first {
                self.reach.extend(page);
            }
            return Some((id, first));
        }
        if self.gone.len() >= PAGES_MAX {
            return None;
        }
        let id = self.gone.len() as u32;
        self.gone.push(false);
        self.reach.extend(page);
        let rehash = |(page, _): &(PageId, u32)| hash::of_page(*page);
        self.pages.insert_unique(hash, (page, id), rehash);
        Some((id, true))
    }

    /// Numbers of the pages a trim forgets, in order. Some may have been forgotten before.
    fn trim(&mut self, trim: &PageRequest) -> Vec<u32> {
        let Some((first, last)) = self.reach.cut(trim) else {
            return Vec::new();
        };
        let mut found: Vec<u32> = if last - first < self.pages.len() as u64 {
            let ids = (first..=last).filter_map(|index| {
                let page = PageId::new(trim.object, index);
                let known = self.pages.find(hash::of_page(page), |(p, _)| *p == page);
                known.map(|(_, id)| *id)
            });
            ids.collect()
        } else {
            let range = first..=last;
            let inside = |page: &PageId| page.object == trim.object && range.contains(&page.index);
            let known = self.pages.iter().filter(|(page, _)| inside(page));
            known.map(|(_, id)| *id).collect()
        };
        found.sort_unstable();
        for &id in &found {
            self.gone[id as usize] = true;
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::VecRecords;
    use thermocline_core::ObjectId;
    use thermocline_trace::{Op, Served, TraceRecord};

    fn record(op: Op, page: u64, pages: u64) -> TraceRecord {
        TraceRecord {
            time_ns: page,
            client: 0,
            op,
            served: Served::Unknown,
            object: ObjectId(0),
            offset: page * 4096,
            length: pages * 4096,
            latency_ns: 0,
            hints: HintSet::UNKNOWN,
        }
    }

    fn records() -> Vec<TraceRecord> {
        vec![
            record(Op::Read, 0, 3),
            record(Op::Write, 1, 1),
            record(Op::Read, 1, 1),
            record(Op::Trim, 0, 2),
            record(Op::Read, 1, 2),
        ]
    }

    fn open(memory: u64) -> Workload {
        let options = WorkloadOptions {
            memory,
            ..WorkloadOptions::default()
        };
        let openers = vec![VecRecords::opener(records(), 4096)];
        Workload::open(openers, options, &mut |_| {}).expect("opens")
    }

    #[test]
    fn everything_is_counted() {
        let facts = open(1 << 20).facts().clone();
        assert_eq!((facts.requests, facts.reads, facts.writes), (7, 6, 1));
        assert_eq!((facts.ios, facts.trims, facts.distinct_pages), (4, 1, 3));
        // Pages 0, 1, 2 at first; page 1 again after the trim.
        assert_eq!(facts.first_touch_reads, 4);
        assert_eq!(facts.extents, [3]);
    }

    #[test]
    fn decoded_or_streamed_it_is_the_same() {
        let collect = |workload: &Workload| {
            let mut all = Vec::new();
            workload
                .for_each_chunk(|chunk, hints| {
                    assert!(chunk.iter().all(|r| (r.hints as usize) < hints.len()));
                    all.extend_from_slice(chunk);
                })
                .expect("reads");
            all
        };
        let (decoded, streamed) = (open(1 << 20), open(3 * BYTES_PER_REQUEST));
        assert!(decoded.decoded().is_some() && streamed.decoded().is_none());
        assert_eq!(collect(&decoded), collect(&streamed));
        assert_eq!(decoded.facts(), streamed.facts());
    }

    #[test]
    fn times_of_day_count_from_the_first_record_of_each_trace() {
        let day_ns = 86_400_000_000_000;
        let opener = |days: u64, pages: [u64; 2]| {
            let record = |(second, page): (u64, u64)| TraceRecord {
                time_ns: (19_000 + days) * day_ns + second * 1_000_000_000,
                ..record(Op::Read, page, 1)
            };
            let records = [(0, pages[0]), (10, pages[1])].map(record);
            VecRecords::opener(records.to_vec(), 4096)
        };
        let openers = vec![opener(0, [1, 2]), opener(7, [3, 4])];
        let workload = Workload::open(openers, WorkloadOptions::default(), &mut |_| {});
        let workload = workload.expect("opens");
        let requests = workload.decoded().expect("in memory");
        let seen: Vec<_> = requests.iter().map(|r| (r.index, r.time_ms())).collect();
        assert_eq!(seen, [(1, 0), (3, 0), (2, 10_000), (4, 10_000)]);
        assert_eq!(workload.facts().duration_ms, 10_000);
    }

    #[test]
    fn a_trace_of_more_than_49_days_is_as_long_as_it_is() {
        let at = |days: u64| TraceRecord {
            time_ns: days * 86_400_000_000_000,
            ..record(Op::Write, days, 1)
        };
        let openers = vec![VecRecords::opener((0..=100).map(at).collect(), 4096)];
        let workload = Workload::open(openers, WorkloadOptions::default(), &mut |_| {});
        let workload = workload.expect("opens");
        assert_eq!(workload.facts().duration_ms, 100 * 86_400_000);
        assert!((crate::plan::days(&workload, 0) - 100.0).abs() < 1e-9);
    }

    #[test]
    fn nothing_is_an_error_that_says_why() {
        let mut past = record(Op::Read, 0, 1);
        past.served = Served::Bypass;
        let openers = vec![VecRecords::opener(vec![past], 4096)];
        let result = Workload::open(openers, WorkloadOptions::default(), &mut |_| {});
        let text = result.err().expect("nothing").to_string();
        assert!(text.contains("1 were recorded past the tier"), "{text}");
    }

    /// A trace that reads `pages` pages of one object, then writes, reads and trims a page of each
    /// of `files` others.
    fn many_trims(pages: u64, files: u32) -> Vec<TraceRecord> {
        let of = |op, object| TraceRecord {
            object: ObjectId(object),
            ..record(op, 0, 1)
        };
        let large = (0..pages / 1000).map(|at| record(Op::Read, at * 1000, 1000));
        let each = |object| [Op::Write, Op::Read, Op::Trim].map(|op| of(op, object));
        large.chain((1..=files).flat_map(each)).collect()
    }

    /// By the trace's pages times the number of trims it would not end.
    #[test]
    fn a_trim_costs_what_its_object_has_not_what_the_trace_has() {
        let openers = vec![VecRecords::opener(many_trims(300_000, 200_000), 4096)];
        let workload = Workload::open(openers, WorkloadOptions::default(), &mut |_| {});
        let workload = workload.expect("opens");
        assert!(workload.trims().iter().all(|(_, gone)| gone.len() == 1));
    }

    #[test]
    fn a_page_beyond_a_trim_of_any_length_stays() {
        let far = 1 << 28;
        let first_touches = |trimmed: u64| {
            let records = vec![
                record(Op::Read, far + 1000, 1),
                record(Op::Trim, 0, trimmed),
                record(Op::Read, far + 1000, 1),
            ];
            let openers = vec![VecRecords::opener(records, 4096)];
            let workload = Workload::open(openers, WorkloadOptions::default(), &mut |_| {});
            workload.expect("opens").facts().first_touch_reads
        };
        for trimmed in [far - 2, far - 1, far, far + 1, far + 999, far + 1000] {
            assert_eq!(first_touches(trimmed), 1, "{trimmed}");
        }
        assert_eq!(first_touches(far + 1001), 2);
    }

    #[test]
    fn pages_of_an_object_that_grows_again_are_forgotten_again() {
        let records = vec![
            record(Op::Read, 0, 10),
            record(Op::Trim, 4, 100),
            record(Op::Read, 0, 6),
            record(Op::Trim, 5, 5),
            record(Op::Read, 4, 3),
            record(Op::Trim, 2, 2),
            record(Op::Trim, 0, 100),
            record(Op::Read, 0, 10),
        ];
        let openers = vec![VecRecords::opener(records, 4096)];
        let workload = Workload::open(openers, WorkloadOptions::default(), &mut |_| {});
        let facts = workload.expect("opens").facts().clone();
        assert_eq!(
            (facts.first_touch_reads, facts.distinct_pages),
            (10 + 2 + 2 + 10, 10)
        );
    }
}
