//! What a run of one combination came to.

use super::flow::Flow;
use super::meter::{Counted, Requests};
use crate::closed_loop::Elapsed;
use crate::result::{ObjectTotals, ratio};
use serde::Serialize;

/// Checkpoints of a map behind an eviction zone (thesis §6.4.5), counted from admissions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct ZoneCost {
    /// Slots of the zone, per cent of all.
    pub percent: f64,
    /// Times the zone was used up: each time the whole map is written.
    pub checkpoints: u64,
    /// Bytes of these maps, 8 for each slot (thesis §6.5.5) in whole pages.
    pub bytes: u64,
    /// The same per byte of pages written to flash.
    pub per_data_byte: Option<f64>,
}

/// Field names are those of `thermocline joint --json`; docs/simulator.md explains them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct JointResult {
    /// Pool policy and tier policy.
    pub combination: String,
    /// Whether dirty pages stay in DRAM and on flash.
    pub write_back: bool,
    /// Different pages of the trace / pages of the tier.
    pub database: f64,
    /// Pages of the pool / pages of the tier.
    pub pool: f64,
    /// Pages of the tier: slots of the policy and the reserve.
    pub tier_pages: u64,
    /// Of these, the reserve for dirty pages.
    pub reserve_pages: u64,
    /// Frames.
    pub pool_pages: u64,
    /// Bytes per page.
    pub page_size: u32,
    /// Page requests that were not counted, at the start.
    pub warm_up_requests: u64,
    /// Page requests counted: reads and writes.
    pub requests: u64,
    /// Page reads: `pool_hits` + `flash_reads` + `base_reads`.
    pub reads: u64,
    /// Page writes.
    pub writes: u64,
    /// Reads served by the pool.
    pub pool_hits: u64,
    /// Reads served by flash.
    pub flash_reads: u64,
    /// Reads served by base.
    pub base_reads: u64,
    /// Share of reads that the pool did not serve.
    pub miss_rate: Option<f64>,
    /// The same of reads of pages that were on flash.
    pub miss_rate_on_flash: Option<f64>,
    /// The same of the other reads.
    pub miss_rate_off_flash: Option<f64>,
    /// Share of the reads that were of pages on flash.
    pub reads_on_flash: Option<f64>,
    /// Pages written to flash.
    pub flash_writes: u64,
    /// Pages admitted by the policy.
    pub admissions: u64,
    /// Pages written to base.
    pub base_writes: u64,
    /// Of these, writes that went to base at once.
    pub writes_through: u64,
    /// Of these, dirty pages of the pool that flash did not take.
    pub cleaned_to_base: u64,
    /// Of these, dirty pages of flash; each was read from flash.
    pub destage_writes: u64,
    /// I/Os that wrote the latter.
    pub destage_ios: u64,
    /// Dirty pages in the pool at the end.
    pub dirty_in_pool: u64,
    /// Dirty pages on flash at the end.
    pub dirty_on_flash: u64,
    /// Transactions in the part counted, when the trace's were told.
    pub transactions: Option<f64>,
    /// Time base spent serving, ms.
    pub base_device_ms: f64,
    /// Time flash spent serving, over all its channels, ms.
    pub flash_device_ms: f64,
    /// Both.
    pub device_ms: f64,
    /// `base_device_ms` per transaction.
    pub base_ms_per_transaction: Option<f64>,
    /// `flash_device_ms` per transaction.
    pub flash_ms_per_transaction: Option<f64>,
    /// `device_ms` per transaction.
    pub ms_per_transaction: Option<f64>,
    /// Share of the time in which base served at least one I/O.
    pub base_utilisation: Option<f64>,
    /// The same of flash.
    pub flash_utilisation: Option<f64>,
    /// Virtual time of the closed loop, ms.
    pub elapsed_ms: f64,
    /// Transactions per minute of virtual time.
    pub transactions_per_minute: Option<f64>,
    /// Clients of the closed loop.
    pub clients: u32,
    /// Commits of the map's journal.
    pub commits: u64,
    /// Bytes of the journal.
    pub journal_bytes: u64,
    /// Bytes of checkpoints of the map.
    pub checkpoint_bytes: u64,
    /// Both per byte of pages written to flash.
    pub map_bytes_per_data_byte: Option<f64>,
    /// What an eviction zone would have cost instead.
    pub zones: Vec<ZoneCost>,
    /// Virtual time at the beginning of the part counted and at the end of each hundredth of it,
    /// ms; empty without devices.
    #[serde(skip)]
    pub ends_ms: Vec<f64>,
    /// Of each object, by its number in the workload.
    #[serde(skip)]
    pub by_object: Vec<ObjectTotals>,
    /// I/Os that reached base; 0 without devices.
    #[serde(skip)]
    pub base_ios: u64,
    /// I/Os of the trace.
    #[serde(skip)]
    pub ios: u64,
    /// Bytes the tier's policy and the slot map held at the end.
    #[serde(skip)]
    pub metadata_bytes: u64,
}

impl JointResult {
    /// Fills in what was counted, in so many transactions.
    pub(super) fn count(&mut self, counted: &Counted, transactions: Option<f64>) {
        self.requests(&counted.requests);
        self.flow(&counted.flow);
        self.transactions = transactions;
        self.ends_ms = counted.ends.iter().map(|ns| *ns as f64 / 1e6).collect();
        self.by_object.clone_from(&counted.objects);
        if let Some(elapsed) = &counted.elapsed {
            self.base_ios = elapsed.base_ios;
            self.time(elapsed);
        }
    }

    fn requests(&mut self, requests: &Requests) {
        let misses = requests.misses_on_flash + requests.misses_off_flash;
        self.reads = requests.reads;
        self.writes = requests.writes;
        self.requests = requests.reads + requests.writes;
        self.ios = requests.ios;
        self.pool_hits = requests.pool_hits;
        self.miss_rate = ratio(misses, requests.reads);
        self.miss_rate_on_flash = ratio(requests.misses_on_flash, requests.reads_on_flash);
        self.miss_rate_off_flash = ratio(requests.misses_off_flash, requests.reads_off_flash);
        self.reads_on_flash = ratio(requests.reads_on_flash, requests.reads);
    }

    fn flow(&mut self, flow: &Flow) {
        self.flash_reads = flow.flash_reads;
        self.base_reads = flow.base_reads;
        self.flash_writes = flow.flash_writes;
        self.admissions = flow.admissions;
        self.base_writes = flow.base_writes;
        self.writes_through = flow.writes_through;
        self.cleaned_to_base = flow.cleaned_to_base;
        self.destage_writes = flow.destage_reads;
        self.destage_ios = flow.destage_ios;
        self.commits = flow.commits;
        self.journal_bytes = flow.journal_bytes;
        self.checkpoint_bytes = flow.checkpoint_bytes;
        let data = flow.flash_writes * u64::from(self.page_size);
        self.map_bytes_per_data_byte = ratio(flow.journal_bytes + flow.checkpoint_bytes, data);
    }

    fn time(&mut self, elapsed: &Elapsed) {
        let ms = |ns: u64| ns as f64 / 1e6;
        self.base_device_ms = ms(elapsed.base_busy_ns);
        self.flash_device_ms = ms(elapsed.flash_busy_ns);
        self.device_ms = self.base_device_ms + self.flash_device_ms;
        self.elapsed_ms = ms(elapsed.ns);
        self.base_utilisation = ratio(elapsed.base_active_ns, elapsed.ns);
        self.flash_utilisation = ratio(elapsed.flash_active_ns, elapsed.ns);
        let Some(transactions) = self.transactions.filter(|count| *count > 0.0) else {
            return;
        };
        self.base_ms_per_transaction = Some(self.base_device_ms / transactions);
        self.flash_ms_per_transaction = Some(self.flash_device_ms / transactions);
        self.ms_per_transaction = Some(self.device_ms / transactions);
        let minutes = self.elapsed_ms / 60_000.0;
        self.transactions_per_minute = (minutes > 0.0).then(|| transactions / minutes);
    }

    /// What eviction zones of these sizes (per cent of the slots) would have cost. A zone is used
    /// up when as many pages have come to flash as it has slots: each takes the place of an
    /// evicted page, or a place that was free.
    pub(super) fn count_zones(&mut self, percents: &[f64]) {
        let page = u64::from(self.page_size.max(1));
        let map = (self.tier_pages * 8).div_ceil(page) * page;
        let data = self.flash_writes * page;
        let cost = |&percent: &f64| {
            let slots = (self.tier_pages as f64 * percent / 100.0).max(1.0) as u64;
            let checkpoints = self.admissions / slots;
            let bytes = checkpoints * map;
            ZoneCost {
                percent,
                checkpoints,
                bytes,
                per_data_byte: ratio(bytes, data),
            }
        };
        self.zones = percents.iter().map(cost).collect();
    }
}
