//! A snapshot of everything that is counted, for people, Prometheus and JSON.

use crate::engine::Engine;
use crate::files::object::{Counted, Object};
use crate::observe::histogram::Latency;
use crate::observe::learned::LearnedTable;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;
use thermocline_core::counters::Cleaning;
use thermocline_core::policy::{Refusal, Removal};
use thermocline_core::{Fault, ObjectId, PageId, Source};
use thermocline_trace::Served;

/// A pace is told after so long: a start admits more than the days after it.
const WEAR_SHOWN_AFTER: Duration = Duration::from_secs(600);

/// Everything an engine counted since it started.
///
/// ```
/// use thermocline::{Engine, EngineConfig};
///
/// # let engine = Engine::start(EngineConfig::default(), None)?;
/// let stats = engine.stats();
/// assert!(stats.tier.is_none(), "no cache file");
/// assert_eq!(stats.page_reads["flash"], 0);
/// # engine.stop()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Stats {
    /// Seconds since the start.
    pub uptime_s: f64,
    /// Bytes per page.
    pub page_size: u32,
    /// Page reads by where they were served: pool, buffer, flash, base.
    pub page_reads: BTreeMap<String, u64>,
    /// Page writes of cached objects.
    pub page_writes: u64,
    /// Page writes that updated a flash copy.
    pub write_hits: u64,
    /// Read requests of objects that are not cached.
    pub bypassed_reads: u64,
    /// Write requests of objects that are not cached.
    pub bypassed_writes: u64,
    /// Bytes read by the frontend.
    pub read_bytes: u64,
    /// Bytes written by the frontend.
    pub write_bytes: u64,
    /// Read requests by where they were served, with latencies as the frontend saw them.
    pub read_latency: BTreeMap<String, Latency>,
    /// Write requests.
    pub write_latency: Latency,
    /// The flash tier; `None` without a cache file.
    pub tier: Option<TierStats>,
    /// The DRAM pool.
    pub pool: PoolStats,
    /// Objects with pages on flash or requests, most pages on flash first.
    pub objects: Vec<ObjectStats>,
    /// Databases that are told apart; empty where none are.
    #[serde(default)]
    pub clients: Vec<ClientStats>,
    /// Trace rows that could not be recorded because the queue was full.
    pub trace_dropped: Option<u64>,
}

/// The flash tier.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TierStats {
    /// What the device calls itself.
    pub device: String,
    /// Tier policy.
    pub policy: String,
    /// What the memory it may take made of it, in one sentence; `None` where it is whole.
    #[serde(default)]
    pub policy_remark: Option<String>,
    /// Why the tier is off; `None` while it is on.
    pub off: Option<String>,
    /// While the map is being read: how far that is, in per cent.
    #[serde(default)]
    pub loading: Option<u32>,
    /// Bytes of the cache.
    pub bytes: u64,
    /// Slots.
    pub slots: u32,
    /// Slots that hold a page.
    pub resident: u32,
    /// Slots among them that are set aside for pinned files.
    #[serde(default)]
    pub pinned_slots: u32,
    /// Those that hold a page.
    #[serde(default)]
    pub pinned: u32,
    /// Page reads served from them.
    #[serde(default)]
    pub pinned_hits: u64,
    /// Page reads served from flash by count whose bytes came from base: they lay between pages
    /// that were read there.
    #[serde(default)]
    pub bridged: u64,
    /// Slots of the reserve for dirty pages that the policy does not hold.
    #[serde(default)]
    pub reserve: u32,
    /// Those that hold a page.
    #[serde(default)]
    pub reserved: u32,
    /// Whether writes stay off base where they can.
    #[serde(default)]
    pub write_back: bool,
    /// Whole writes of the cache a day, by pages written to it since the start; none in the first
    /// ten minutes. Its journal and checkpoints are not counted.
    #[serde(default)]
    pub drive_writes_per_day: Option<f64>,
    /// As many as the policy may make; 0 for no limit.
    #[serde(default)]
    pub drive_writes_allowed: f64,
    /// Pages on flash that are newer than base.
    #[serde(default)]
    pub dirty: u32,
    /// Dirty pages that the device does not give back: object name and page index.
    #[serde(default)]
    pub lost: Vec<LostPage>,
    /// Dirty pages written back to base.
    #[serde(default)]
    pub destaged: u64,
    /// Commits of the map so far; one sync of the device each.
    #[serde(default)]
    pub commits: u64,
    /// Pages in the write buffer.
    pub staged: u32,
    /// Pages that were brought by warming from a list, since the start.
    #[serde(default)]
    pub warmed: u64,
    /// Pages that were warm at the start.
    pub restored: u32,
    /// Clean pages that a crash left in doubt, at the start: base was being written around them.
    #[serde(default)]
    pub doubted: u32,
    /// Those that were not compared with base yet.
    #[serde(default)]
    pub in_doubt: u32,
    /// Those that were what base holds, and are warm.
    #[serde(default)]
    pub verified: u64,
    /// Those that were not, or had to make room.
    #[serde(default)]
    pub given_up: u64,
    /// Files that had changed behind the tier's back; their pages were dropped.
    pub stale_objects: u32,
    /// Files served from base because the table on flash had no room for their names.
    #[serde(default)]
    pub unnamed_files: u32,
    /// Pages admitted.
    pub admissions: u64,
    /// Pages not admitted, by reason.
    pub refusals: BTreeMap<String, u64>,
    /// Pages that left, by reason.
    pub removals: BTreeMap<String, u64>,
    /// Flash I/Os that failed, by kind.
    pub faults: BTreeMap<String, u64>,
    /// Pages written to flash.
    pub flash_writes: u64,
    /// Bytes of DRAM for map, checksums and policy.
    pub memory_bytes: u64,
    /// What the policy learned about hints; `None` where it learns nothing.
    pub learned: Option<LearnedTable>,
}

/// A dirty page that the flash device does not give back.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LostPage {
    /// Name of its file.
    pub object: String,
    /// Offset in the file, bytes.
    pub offset: u64,
}

/// The DRAM pool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStats {
    /// Policy.
    #[serde(default)]
    pub policy: String,
    /// Frames with a page that is written out later.
    #[serde(default)]
    pub dirty: u32,
    /// Dirty pages written out to flash: replacement, recovery, synchronous.
    #[serde(default)]
    pub cleaned_to_flash: BTreeMap<String, u64>,
    /// The same to base.
    #[serde(default)]
    pub cleaned_to_base: BTreeMap<String, u64>,
    /// Frames.
    pub frames: u32,
    /// Frames that hold a page.
    pub filled: u32,
    /// Page reads served from frames.
    pub hits: u64,
    /// Pages that left.
    pub evictions: u64,
}

/// One database of several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientStats {
    /// Its directory; empty for files of none.
    pub name: String,
    /// Pages on flash.
    pub resident: u64,
    /// Read requests.
    pub reads: u64,
    /// Read requests served entirely from pool, buffer or flash.
    pub hits: u64,
    /// Write requests.
    pub writes: u64,
}

/// One object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ObjectStats {
    /// Name, relative to the base directory.
    pub name: String,
    /// Kind of file.
    pub kind: String,
    /// Pages it has, or had when it was closed.
    pub pages: u64,
    /// Pages on flash.
    pub resident: u32,
    /// Read requests.
    pub reads: u64,
    /// Read requests served entirely from pool, buffer or flash.
    pub hits: u64,
    /// Write requests.
    pub writes: u64,
    /// Whether the kernel serves it from base itself: its requests are not counted.
    #[serde(default)]
    pub passthrough: bool,
}

fn by_name<T: Copy>(
    all: &[T],
    name: impl Fn(T) -> &'static str,
    counts: &[u64],
) -> BTreeMap<String, u64> {
    debug_assert_eq!(all.len(), counts.len());
    all.iter()
        .zip(counts)
        .map(|(&value, &n)| (name(value).to_string(), n))
        .collect()
}

impl Engine {
    /// Regions of base that are marked as being written: after a crash copies in them are compared.
    #[doc(hidden)]
    #[must_use]
    pub fn marked_regions(&self) -> usize {
        self.inner().hierarchy.ledger().intents()
    }

    /// How many dirty pages flash does not give back.
    #[must_use]
    pub fn lost_count(&self) -> usize {
        self.inner().hierarchy.lost().len()
    }

    /// Everything counted so far.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let inner = self.inner();
        let counters = *inner.hierarchy.counters();
        let mut reads = counters.reads;
        reads[Source::Pool as usize] = self.frames.hits();
        let by_why = |counts: &[u64]| by_name(&Cleaning::ALL, Cleaning::name, counts);
        let pool = PoolStats {
            policy: inner.hierarchy.pool().policy().name().into(),
            dirty: inner.hierarchy.pool().dirty(),
            cleaned_to_flash: by_why(&counters.cleaned_to_flash),
            cleaned_to_base: by_why(&counters.cleaned_to_base),
            frames: self.frame_count,
            filled: inner.hierarchy.pool().filled(),
            hits: reads[Source::Pool as usize],
            evictions: counters.pool_evictions,
        };
        drop(inner);
        let (objects, gone) = self.object_stats();
        let latency = |served: &Served| {
            let latency = self.latency[*served as usize].latency();
            (latency.count > 0).then(|| (served.name().to_string(), latency))
        };
        Stats {
            uptime_s: self.age().as_secs_f64(),
            page_size: self.config.page_size,
            page_reads: by_name(&Source::ALL, Source::name, &reads),
            page_writes: counters.writes,
            write_hits: counters.write_hits,
            bypassed_reads: self.bypassed[0].load(Ordering::Relaxed),
            bypassed_writes: self.bypassed[1].load(Ordering::Relaxed),
            read_bytes: self.read_bytes.load(Ordering::Relaxed),
            write_bytes: self.write_bytes.load(Ordering::Relaxed),
            read_latency: Served::ALL.iter().filter_map(latency).collect(),
            write_latency: self.write_latency.latency(),
            tier: self.tier_stats(),
            pool,
            clients: self.client_stats(&objects, &gone),
            objects,
            trace_dropped: self.recorder().map(|recorder| recorder.dropped()),
        }
    }

    pub(crate) fn lost_pages(&self, pages: &[PageId]) -> Vec<LostPage> {
        let named = |page: &PageId| {
            let object = self.object(page.object);
            let name = object.map(|object| {
                let name = object.name.read();
                name.clone()
            });
            LostPage {
                object: name.unwrap_or_default(),
                offset: page.index * u64::from(self.config.page_size),
            }
        };
        pages.iter().map(named).collect()
    }

    /// Whole writes a day of a cache of `bytes` bytes, by so many pages since the start.
    fn drive_writes(&self, pages: u64, bytes: u64) -> Option<f64> {
        let days = self.age().as_secs_f64() / 86_400.0;
        let written = pages as f64 * f64::from(self.config.page_size);
        (self.age() >= WEAR_SHOWN_AFTER).then(|| written / bytes.max(1) as f64 / days)
    }

    pub(crate) fn tier_stats(&self) -> Option<TierStats> {
        let flash = self.store()?;
        let learned = self.learned();
        let inner = self.inner();
        let (hierarchy, counters) = (&inner.hierarchy, inner.hierarchy.counters());
        let left: u64 = counters.removals.iter().sum();
        let (restored, doubted) = self.found_at_start();
        let came = counters.admissions + counters.doubts_verified + u64::from(restored);
        debug_assert_eq!(came, left + u64::from(hierarchy.on_flash()), "none is lost");
        Some(TierStats {
            device: flash.label(),
            policy: hierarchy.policy().name().into(),
            policy_remark: hierarchy.policy_remark(),
            off: hierarchy.is_off().then(|| inner.off_reason.clone()),
            loading: (hierarchy.is_loading()).then(|| self.load_percent.load(Ordering::Relaxed)),
            bytes: flash.length(),
            slots: hierarchy.slots().capacity() + hierarchy.slots().keeps(),
            resident: hierarchy.on_flash(),
            pinned_slots: hierarchy.slots().keeps(),
            pinned: hierarchy.slots().kept(),
            warmed: counters.warmed,
            pinned_hits: counters.kept_reads,
            bridged: counters.bridged,
            reserve: hierarchy.slots().reserve(),
            reserved: hierarchy.slots().reserved(),
            write_back: hierarchy.is_write_back(),
            drive_writes_per_day: self.drive_writes(counters.flash_writes, flash.length()),
            // Another policy, to which the mount was switched, has no allowance.
            drive_writes_allowed: match hierarchy.policy().name() {
                "value" | "value-time" => self.config.drive_writes_per_day,
                _ => 0.0,
            },
            dirty: hierarchy.slots().dirty(),
            lost: self.lost_pages(&hierarchy.lost()),
            destaged: counters.destaged,
            commits: inner.commits.count,
            staged: hierarchy.staged(),
            restored,
            doubted,
            in_doubt: hierarchy.doubts(),
            verified: counters.doubts_verified,
            given_up: counters.doubts_given_up,
            stale_objects: self.stale_objects.load(Ordering::Relaxed),
            unnamed_files: self.unnamed_files.load(Ordering::Relaxed),
            admissions: counters.admissions,
            refusals: by_name(&Refusal::ALL, Refusal::name, &counters.refusals),
            removals: by_name(&Removal::ALL, Removal::name, &counters.removals),
            faults: by_name(&Fault::ALL, Fault::name, &counters.faults),
            flash_writes: counters.flash_writes,
            memory_bytes: hierarchy.bytes() as u64,
            learned,
        })
    }

    /// What was counted of each object that is known, and of those forgotten, by their client.
    fn object_stats(&self) -> (Vec<ObjectStats>, BTreeMap<u32, Counted>) {
        // Under one lock: no object closes in between, so each is counted once.
        let registry = self.registry();
        let (closed, gone) = (registry.closed(), registry.gone().clone());
        let open: Vec<Arc<Object>> = self.objects.read().iter().flatten().cloned().collect();
        drop(registry);
        let page = u64::from(self.config.page_size);
        // Base alone knows how long a file is that the kernel writes to.
        let length_of = |object: &Object| match object.passthrough.load(Ordering::Acquire) {
            true => object.base.len().unwrap_or(0),
            false => object.length(),
        };
        let lengths: Vec<u64> = open.iter().map(|object| length_of(object)).collect();
        let inner = self.inner();
        let resident = |id: ObjectId| inner.hierarchy.resident_of(id);
        let open = open
            .iter()
            .zip(lengths)
            .map(|(object, length)| ObjectStats {
                name: object.name.read().clone(),
                kind: object.kind.name().into(),
                pages: length.div_ceil(page),
                resident: resident(object.id),
                reads: object.counts.reads.load(Ordering::Relaxed),
                hits: object.counts.hits.load(Ordering::Relaxed),
                writes: object.counts.writes.load(Ordering::Relaxed),
                passthrough: object.passthrough.load(Ordering::Acquire),
            });
        let closed = closed.into_iter().map(|object| ObjectStats {
            name: object.name,
            kind: object.kind.name().into(),
            pages: object.length.div_ceil(page),
            resident: resident(object.id),
            reads: object.counts.reads.load(Ordering::Relaxed),
            hits: object.counts.hits.load(Ordering::Relaxed),
            writes: object.counts.writes.load(Ordering::Relaxed),
            passthrough: false,
        });
        let mut all: Vec<ObjectStats> = open.chain(closed).collect();
        all.sort_by(|a, b| (b.resident, b.reads, &a.name).cmp(&(a.resident, a.reads, &b.name)));
        (all, gone)
    }
}
