//! What a mount says about itself: one structure, shown as text, as JSON and as metrics.

mod clients;
pub(crate) mod exposition;
pub(crate) mod live;
pub(crate) mod metrics;
#[cfg(test)]
mod rules;
pub(crate) mod text;
mod warm;

use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use thermocline::Stats;

/// Everything `.thermocline/stats.json` holds.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Report {
    /// The mount.
    pub(crate) mount: MountFacts,
    /// The devices below it, base first.
    pub(crate) devices: Vec<DeviceFacts>,
    /// What the engine counted.
    pub(crate) stats: Stats,
    /// The list of what is hot, and warming from one.
    #[serde(default)]
    pub(crate) warm: WarmFacts,
}

/// The list of what is hot on flash, and warming from one.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct WarmFacts {
    /// Where the list is kept; empty for nowhere.
    pub(crate) list: PathBuf,
    /// Lists written since the start.
    pub(crate) kept: u64,
    /// Pages in the last one, its bytes, and how long it took.
    pub(crate) kept_pages: u64,
    pub(crate) kept_bytes: u64,
    pub(crate) kept_ms: u64,
    /// The list that the mount was warmed from; empty for none.
    pub(crate) from: PathBuf,
    /// `none`, `reading`, `done`, `full`, `off`, `ended`, or `failed: ` and why.
    pub(crate) state: String,
    /// Pages in it.
    pub(crate) listed: u64,
    /// Those that were looked at, and those that came to flash.
    pub(crate) seen: u64,
    pub(crate) came: u64,
    /// Requests to base for them, and their bytes.
    pub(crate) requests: u64,
    pub(crate) bytes: u64,
    /// Parts of files that base did not give.
    pub(crate) failed: u64,
}

/// What is mounted where, by which process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct MountFacts {
    /// Process that serves.
    pub(crate) pid: u32,
    /// Version of the program that serves.
    pub(crate) version: String,
    /// Directory below.
    pub(crate) base: PathBuf,
    /// Directory where it is seen.
    pub(crate) mountpoint: PathBuf,
    /// Cache file; empty without one.
    pub(crate) cache: PathBuf,
    /// Log of the process; empty for none, which only a mount in the foreground may have.
    pub(crate) log: PathBuf,
    /// Trace file being recorded; empty for none.
    pub(crate) record: PathBuf,
    /// Why the last recording ended before it was to; empty when it did not.
    pub(crate) not_recorded: String,
    /// Whether a signal asked for the end, which waits for open files.
    pub(crate) asked_to_end: bool,
    /// Why pinned files were not loaded, the last time; empty when they were.
    pub(crate) not_loaded: String,
}

/// What one device did since the mount.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct DeviceFacts {
    /// `base` or `flash`.
    pub(crate) role: String,
    /// What the device calls itself; says "emulated" when it is.
    pub(crate) label: String,
    /// Seconds in which it had something to do.
    pub(crate) busy_s: f64,
    /// Reads.
    pub(crate) reads: IoFacts,
    /// Writes.
    pub(crate) writes: IoFacts,
    /// Syncs.
    pub(crate) syncs: IoFacts,
}

/// I/Os of one kind on one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct IoFacts {
    /// How many.
    pub(crate) count: u64,
    /// How many failed.
    pub(crate) errors: u64,
    /// Bytes moved.
    pub(crate) bytes: u64,
    /// Half of them took at most this, in microseconds.
    pub(crate) p50_us: f64,
    /// 95 % took at most this, in microseconds.
    pub(crate) p95_us: f64,
    /// 99 % took at most this, in microseconds.
    pub(crate) p99_us: f64,
}

impl Report {
    /// Page reads that went to the tier, wherever they were served.
    pub(crate) fn page_reads(&self) -> u64 {
        self.stats.page_reads.values().sum()
    }

    /// Page reads that base was spared.
    pub(crate) fn page_hits(&self) -> u64 {
        self.page_reads() - self.stats.page_reads.get("base").copied().unwrap_or(0)
    }
}

#[cfg(test)]
pub(crate) mod sample {
    use super::*;
    use thermocline::{Latency, ObjectStats, PoolStats, TierStats};

    fn counts(pairs: &[(&str, u64)]) -> std::collections::BTreeMap<String, u64> {
        pairs
            .iter()
            .map(|(name, count)| ((*name).to_string(), *count))
            .collect()
    }

    /// A mount that has been at work.
    pub(crate) fn report() -> Report {
        let latency = |count| Latency {
            count,
            mean_us: 90.0,
            p50_us: 85.0,
            p95_us: 140.0,
            p99_us: 7_200.0,
            below: std::array::from_fn(|at| count * at as u64 / 22),
        };
        let object = |name: &str, pages, resident| ObjectStats {
            name: name.into(),
            kind: "relation".into(),
            pages,
            resident,
            reads: 1_000,
            hits: 900,
            writes: 10,
            passthrough: false,
        };
        let tier = TierStats {
            device: "file /ssd/tier".into(),
            policy: "tac".into(),
            off: None,
            bytes: 8 << 30,
            slots: 1_000_000,
            resident: 250_000,
            staged: 3,
            admissions: 260_000,
            refusals: counts(&[("cold", 4_321), ("pinned", 0)]),
            removals: counts(&[("evicted", 10_000)]),
            faults: counts(&[("corrupt", 1)]),
            flash_writes: 260_100,
            memory_bytes: 61 << 20,
            ..TierStats::default()
        };
        let stats = Stats {
            uptime_s: 3_723.0,
            page_size: 8192,
            page_reads: counts(&[("base", 100), ("buffer", 0), ("flash", 890), ("pool", 10)]),
            page_writes: 77,
            write_hits: 7,
            read_bytes: 8_192_000,
            write_bytes: 630_784,
            read_latency: [("flash".to_string(), latency(890))].into(),
            write_latency: latency(77),
            tier: Some(tier),
            pool: PoolStats {
                frames: 128,
                filled: 64,
                hits: 10,
                evictions: 0,
                ..PoolStats::default()
            },
            objects: vec![
                object("base/5/16384", 1_000, 250),
                object("base/5/1259", 10, 10),
            ],
            ..Stats::default()
        };
        let mount = MountFacts {
            asked_to_end: false,
            pid: 42,
            version: "0.1.0".into(),
            base: "/bulk/pg".into(),
            mountpoint: "/srv/pg".into(),
            cache: "/ssd/tier".into(),
            log: "/ssd/tier.log".into(),
            record: PathBuf::new(),
            not_loaded: String::new(),
            not_recorded: String::new(),
        };
        let io = IoFacts {
            count: 100,
            errors: 0,
            bytes: 819_200,
            p50_us: 7_000.0,
            ..IoFacts::default()
        };
        let base = DeviceFacts {
            role: "base".into(),
            label: "emulated 7200-rpm disk".into(),
            busy_s: 1_200.5,
            reads: io,
            ..DeviceFacts::default()
        };
        Report {
            mount,
            devices: vec![base],
            stats,
            warm: WarmFacts::default(),
        }
    }
}
