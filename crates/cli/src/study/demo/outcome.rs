//! What a run measured.

use serde::Serialize;
use std::collections::BTreeMap;

/// Page reads by where they were served.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Reads {
    /// From the DRAM pool.
    pub(crate) pool: u64,
    /// From flash, or on the way there (write buffer).
    pub(crate) flash: u64,
    /// From base.
    pub(crate) base: u64,
}

impl Reads {
    /// All of them.
    pub(crate) fn total(&self) -> u64 {
        self.pool + self.flash + self.base
    }

    /// Those since `earlier`.
    pub(crate) fn since(&self, earlier: &Self) -> Self {
        Self {
            pool: self.pool - earlier.pool,
            flash: self.flash - earlier.flash,
            base: self.base - earlier.base,
        }
    }

    /// Share of the reads the pool did not serve that flash did, 0 to 1.
    pub(crate) fn flash_hit_ratio(&self) -> f64 {
        share(self.flash, self.flash + self.base)
    }
}

/// `part` / `whole`; 0 when there is no whole.
pub(crate) fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        0.0
    } else {
        part as f64 / whole as f64
    }
}

/// One point of a run's course.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Transactions done, warm-up included.
    pub(crate) transactions: u64,
    /// Seconds on the run's clock.
    pub(crate) seconds: f64,
    /// Reads so far.
    pub(crate) reads: Reads,
}

/// A read of one page of the database that the DRAM pool did not serve.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PageRead {
    /// Seconds on the run's clock.
    pub(crate) seconds: f64,
    /// Page number in the file, from 0.
    pub(crate) page: u64,
    /// Served from flash, not base.
    pub(crate) flash: bool,
}

/// One configuration's run.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Outcome {
    /// Short name: `hdd`, `lru`, `tac`, `ssd`.
    pub(crate) name: String,
    /// The configuration in words.
    pub(crate) configuration: String,
    /// The base device, "emulated" if it is.
    pub(crate) base: String,
    /// The flash device; empty without.
    pub(crate) flash: String,
    /// Transactions before measuring.
    pub(crate) warm_up_transactions: u64,
    /// Transactions measured.
    pub(crate) transactions: u64,
    /// Seconds they took: emulated time of the disk and measured time of the rest.
    pub(crate) seconds: f64,
    /// Wall-clock seconds of the whole run.
    pub(crate) wall_seconds: f64,
    /// Transactions per second.
    pub(crate) transactions_per_second: f64,
    /// Reads while measuring.
    pub(crate) reads: Reads,
    /// Share of the reads below the DRAM pool that flash served, 0 to 1.
    pub(crate) flash_hit_ratio: f64,
    /// Milliseconds of base reads per transaction.
    pub(crate) base_read_ms_per_transaction: f64,
    /// Milliseconds of base writes per transaction.
    pub(crate) base_write_ms_per_transaction: f64,
    /// Milliseconds of flash device time per transaction, background writes included.
    pub(crate) flash_ms_per_transaction: f64,
    /// Throughput over that of the hard disk alone; absent when that was not run.
    pub(crate) speed_up: Option<f64>,
    /// The wall-clock limit ended the run before all transactions were done.
    pub(crate) cut_short: bool,
    /// Transactions by kind, warm-up included.
    pub(crate) kinds: BTreeMap<&'static str, u64>,
    #[serde(skip)]
    pub(crate) samples: Vec<Sample>,
    #[serde(skip)]
    pub(crate) page_reads: Vec<PageRead>,
}

/// A run of pages of the file that belong to one table or index.
#[derive(Clone, Debug)]
pub(crate) struct Band {
    /// Table or index.
    pub(crate) name: String,
    /// First page, from 0.
    pub(crate) first: u64,
    /// Last page.
    pub(crate) last: u64,
}
