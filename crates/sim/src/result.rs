//! What a run of one policy at one size came to.

use serde::Serialize;

/// Page requests counted after the warm-up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Page requests.
    pub requests: u64,
    /// Page reads.
    pub reads: u64,
    /// Page writes.
    pub writes: u64,
    /// Reads served by the DRAM pool.
    pub pool_hits: u64,
    /// Reads served by flash.
    pub flash_hits: u64,
    /// Writes of a page that was on flash.
    pub write_hits: u64,
    /// Reads served by base.
    pub base_reads: u64,
    /// Pages written to base.
    pub base_writes: u64,
    /// Pages written to flash: admissions, and renewals of copies.
    pub flash_writes: u64,
    /// Base reads of a page never requested before.
    pub compulsory_misses: u64,
    /// I/Os.
    pub ios: u64,
    /// I/Os that read.
    pub io_reads: u64,
    /// Of these, those of which base read no page.
    pub io_read_hits: u64,
}

/// Reads of one client: a database of a trace, or a trace that names none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ClientTotals {
    /// What it is called; empty while it is counted.
    pub name: String,
    /// Page reads.
    pub reads: u64,
    /// Of these, those base did not serve.
    pub read_hits: u64,
}

/// Page requests of one object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectTotals {
    /// Page reads.
    pub reads: u64,
    /// Of these, those base did not serve.
    pub read_hits: u64,
    /// Its pages written to flash.
    pub flash_writes: u64,
}

/// One interval of a run, warm-up included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Sample {
    /// Page requests from the start of the trace to the interval's end.
    pub requests: u64,
    /// Page reads in the interval.
    pub reads: u64,
    /// Of these, those base did not serve.
    pub read_hits: u64,
}

/// One row of what policies learned (see [`thermocline_core::policy::LearnedHintSet`]).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LearnedRow {
    /// The hint values that are known, `type=value`.
    pub hints: String,
    /// The client whose hints these are; 0 where there is but one.
    pub client: u32,
    /// N(H).
    pub requests: f64,
    /// Nr(H).
    pub rereads: f64,
    /// D(H), requests.
    pub distance: f64,
    /// Pr(H).
    pub priority: f64,
    /// Pages on flash whose last request carried H.
    pub resident: u32,
}

/// A hint type as the hybrid policies see it.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LearnedType {
    /// Its name.
    pub name: String,
    /// Weighted impurity; lower separates priorities better.
    pub impurity: f64,
    /// Whether hint sets are told apart by it.
    pub used: bool,
}

/// What a policy had learned at the end of the run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LearnedTable {
    /// Windows closed.
    pub windows: u64,
    /// Requests in one window.
    pub window: u64,
    /// Hint sets, most valuable first.
    pub hint_sets: Vec<LearnedRow>,
    /// Hint types, purest first.
    pub hint_types: Vec<LearnedType>,
    /// What pages turned out to be worth by hint set and age; empty where that is not kept.
    pub worth: Vec<WorthRow>,
    /// Who leads; null where the policy follows no other.
    pub race: Option<RaceTable>,
}

/// How a policy that `auto` may follow does in its race (see
/// [`thermocline_core::policy::LearnedFinalist`]).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct FinalistRow {
    /// The policy.
    pub name: String,
    /// Whether it decides now.
    pub leads: bool,
    /// Read hits a request of the sample.
    pub hits: f64,
    /// Pages written to flash a request.
    pub flash_writes: f64,
    /// Base's time saved less the price of flash writes, random reads a request.
    pub score: f64,
    /// How far its miniature is ahead of the tier since it last was behind, in random reads.
    pub ahead: f64,
    /// The lead that decides.
    pub needed: f64,
}

/// The race of the policies that `auto` may follow.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RaceTable {
    /// The policies.
    pub finalists: Vec<FinalistRow>,
    /// Changes of leader.
    pub changes: u64,
    /// Requests of the sample.
    pub requests: u64,
    /// Slots of each miniature.
    pub slots: u32,
}

impl From<&thermocline_core::policy::LearnedRace> for RaceTable {
    fn from(race: &thermocline_core::policy::LearnedRace) -> Self {
        let finalists = race.finalists.iter().map(|of| FinalistRow {
            name: of.name.to_string(),
            leads: of.leads,
            hits: of.hits,
            flash_writes: of.flash_writes,
            score: of.score,
            ahead: of.ahead,
            needed: of.needed,
        });
        Self {
            finalists: finalists.collect(),
            changes: race.changes,
            requests: race.requests,
            slots: race.slots,
        }
    }
}

/// What a page is worth some time after its last request (see
/// [`thermocline_core::policy::LearnedWorth`]).
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorthRow {
    /// The hint values that are known, `type=value`.
    pub hints: String,
    /// The client whose hints these are; 0 where there is but one.
    pub client: u32,
    /// Requests since the last one, at least.
    pub age: u64,
    /// From 0 (not read again, or written first) to 1 (read at once).
    pub worth: f64,
    /// Samples that the mean is over.
    pub samples: u32,
}

/// What a run came to. Field names are those of `thermocline simulate --json`; ratios are null
/// where nothing was counted. docs/simulator.md explains every field.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct RunResult {
    /// The policy; "none" for base only.
    pub policy: String,
    /// Size of the tier, pages.
    pub capacity_pages: u64,
    /// Slots for pages: less than the capacity when metadata is charged against it.
    pub slots: u64,
    /// Frames of the DRAM pool above it.
    pub pool_pages: u64,
    /// Bytes per page.
    pub page_size: u32,
    /// Different pages in the workload.
    pub distinct_pages: u64,
    /// Page requests that were not counted, at the start.
    pub warm_up_requests: u64,
    /// Page requests counted: reads and writes.
    pub requests: u64,
    /// Page reads.
    pub reads: u64,
    /// Page writes.
    pub writes: u64,
    /// Reads that base did not serve, and writes of pages that were on flash.
    pub hits: u64,
    /// Reads that base did not serve.
    pub read_hits: u64,
    /// Requests that are no hits.
    pub misses: u64,
    /// Reads of pages never requested before: misses of any tier.
    pub compulsory_misses: u64,
    /// read_hits / reads: by page, which is by byte.
    pub read_hit_ratio: Option<f64>,
    /// I/Os that read and of which base served no page / I/Os that read: by request.
    pub io_read_hit_ratio: Option<f64>,
    /// Reads served by the pool.
    pub pool_hits: u64,
    /// Reads served by flash.
    pub flash_reads: u64,
    /// Pages written to flash.
    pub flash_writes: u64,
    /// Pages read from base.
    pub base_reads: u64,
    /// Pages written to base.
    pub base_writes: u64,
    /// Pages written to flash per page served from it.
    pub wear: Option<f64>,
    /// I/Os counted.
    pub ios: u64,
    /// Flash hits / flash hits of opt-bypass at the same size; none under a pool, where others may
    /// have more than it.
    pub opt_share: Option<f64>,
    /// Time both devices spent serving, ms.
    pub device_ms: f64,
    /// Of this, base.
    pub base_device_ms: f64,
    /// Of this, flash.
    pub flash_device_ms: f64,
    /// Virtual time of the closed loop, ms.
    pub elapsed_ms: f64,
    /// Clients of the closed loop.
    pub clients: u32,
    /// I/Os per second of virtual time.
    pub ios_per_s: Option<f64>,
    /// Virtual time without flash / with it.
    pub speedup: Option<f64>,
    /// Bytes the policy and the slot map held at the end.
    pub metadata_bytes: u64,
    /// Reads of each trace, when there are several.
    pub by_client: Vec<ClientTotals>,
    /// Reads over the run.
    pub samples: Vec<Sample>,
    /// Virtual time at the end of each of `samples`, ms; empty without devices.
    #[serde(skip)]
    pub sample_ms: Vec<f64>,
    /// Of each object, by its number in the workload.
    #[serde(skip)]
    pub by_object: Vec<ObjectTotals>,
    /// I/Os that reached base; 0 without devices.
    #[serde(skip)]
    pub base_ios: u64,
    /// Bytes that only flash had at the end; 0 in write-through.
    #[serde(skip)]
    pub dirty_bytes: u64,
    /// What the policy had learned; null where it learns nothing or was not asked.
    pub learned: Option<LearnedTable>,
}

impl RunResult {
    /// I/Os per second. Memory takes no time in the model: a million for each client are the most
    /// here, so that speeds can be compared.
    #[must_use]
    pub fn rate(&self) -> f64 {
        let most = f64::from(self.clients) * 1e6;
        self.ios_per_s.map_or(most, |rate| rate.min(most))
    }

    /// Fills in what follows from the totals.
    pub(crate) fn count(&mut self, totals: &Totals) {
        self.requests = totals.requests;
        self.reads = totals.reads;
        self.writes = totals.writes;
        self.read_hits = totals.pool_hits + totals.flash_hits;
        self.hits = self.read_hits + totals.write_hits;
        self.misses = totals.requests - self.hits;
        self.compulsory_misses = totals.compulsory_misses;
        self.read_hit_ratio = ratio(self.read_hits, totals.reads);
        self.io_read_hit_ratio = ratio(totals.io_read_hits, totals.io_reads);
        self.pool_hits = totals.pool_hits;
        self.flash_reads = totals.flash_hits;
        self.flash_writes = totals.flash_writes;
        self.base_reads = totals.base_reads;
        self.base_writes = totals.base_writes;
        self.wear = ratio(totals.flash_writes, totals.flash_hits);
        self.ios = totals.ios;
    }
}

/// `part / whole`; nothing when there is no whole.
pub(crate) fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}
