//! The devices of a simulated hierarchy: what a page costs, and how long an I/O takes.
//!
//! All of them are models. Their parameters come from the source written at each preset in
//! [`thermocline_core::model`], from the two below, or from `thermocline calibrate`.

use thermocline_core::Costs;
use thermocline_core::model::{IoOp, Model, Nanos, NetworkModel, NetworkParameters, Pattern};

/// An object store reached with GET and PUT: a first byte after 30 ms and 10 Gbit/s together,
/// both assumptions; 5,500 requests per second, what Amazon S3 documents for reads of one
/// prefix (writes: 3,500, not told apart here); 256 requests under way at once, an assumption.
pub const S3_LIKE: NetworkParameters = NetworkParameters {
    name: "object store",
    round_trip: 30_000_000,
    rate: 1_250_000_000,
    requests_per_second: 5_500,
    channels: 256,
};

/// Baleen's disk-head time (FAST 2024): 11.5 ms per I/O to position.
const BALEEN_POSITION_NS: u64 = 11_500_000;
/// Baleen's unit of transfer.
const BALEEN_CHUNK: u64 = 128 << 10;
/// Baleen's transfer rate, bytes per second.
const BALEEN_RATE: u64 = 143 << 20;

/// Bytes of a sequential read when costs are taken from a model.
const STRETCH: u64 = 1 << 20;

/// One device's timing.
#[derive(Clone, Debug)]
pub enum Timing {
    /// A device model.
    Model(Model),
    /// Baleen's formula: I/Os × 11.5 ms + 128-KiB chunks at 143 MiB/s, one at a time.
    Baleen,
    /// Measured costs per page, one I/O at a time: `random` or `sequential` ns a read page, the
    /// first of an I/O being sequential when it begins where the last one ended.
    Costs {
        /// Of a page read anywhere.
        random_read: f64,
        /// Of a page read after its neighbour.
        sequential_read: f64,
        /// Of a page written anywhere; its neighbours cost as if read.
        random_write: f64,
        /// Bytes per page.
        page_size: u32,
        /// Where the last I/O ended.
        end: u64,
    },
}

/// Names of base presets.
pub const BASES: [&str; 6] = ["hdd", "hdd-15k", "ssd", "network", "s3-like", "baleen"];
/// Names of flash presets.
pub const FLASHES: [&str; 3] = ["ssd", "iodrive", "nvme"];

impl Timing {
    /// The base device called `name` (see [`BASES`]).
    #[must_use]
    pub fn base(name: &str) -> Option<Self> {
        match name {
            "baleen" => Some(Self::Baleen),
            "s3-like" => Some(Self::Model(Model::Network(NetworkModel::new(S3_LIKE)))),
            name if BASES.contains(&name) => Model::preset(name).map(Self::Model),
            _ => None,
        }
    }

    /// The flash device called `name` (see [`FLASHES`]).
    #[must_use]
    pub fn flash(name: &str) -> Option<Self> {
        FLASHES
            .contains(&name)
            .then(|| Model::preset(name).map(Self::Model))?
    }

    /// The same device filled by `bytes`: a disk's arm moves over all of it for that many.
    #[must_use]
    pub fn filled_by(self, bytes: u64) -> Self {
        match self {
            Self::Model(model) => Self::Model(model.with_capacity(bytes.max(1))),
            other => other,
        }
    }

    /// What to call it in output.
    #[must_use]
    pub fn describe(&self) -> String {
        match self {
            Self::Model(model) => format!("{} (model)", model.name()),
            Self::Baleen => "disk-head time as Baleen counts it (model)".into(),
            Self::Costs { .. } => "calibrated costs, one I/O at a time (model)".into(),
        }
    }

    /// I/Os in service at once.
    pub(crate) fn channels(&self) -> u32 {
        match self {
            Self::Model(model) => model.channels(),
            Self::Baleen | Self::Costs { .. } => 1,
        }
    }

    /// Nanoseconds of an I/O that starts now; see [`Model::service`].
    pub(crate) fn service(&mut self, now: Nanos, op: IoOp, position: u64, len: u64) -> u64 {
        match self {
            Self::Model(model) => model.service(now, op, position, len),
            Self::Baleen => {
                let bytes = len.div_ceil(BALEEN_CHUNK) * BALEEN_CHUNK;
                BALEEN_POSITION_NS + ns_at(bytes, BALEEN_RATE)
            }
            Self::Costs {
                random_read,
                sequential_read,
                random_write,
                page_size,
                end,
            } => {
                let random = match op {
                    IoOp::Read => *random_read,
                    IoOp::Write | IoOp::Sync => *random_write,
                };
                // A sync is nowhere: it goes on from nothing, and nothing goes on from it.
                let first = match len > 0 && *end == position {
                    true => *sequential_read,
                    false => random,
                };
                let more = len.div_ceil(u64::from(*page_size)).saturating_sub(1);
                if len > 0 {
                    *end = position.wrapping_add(len);
                }
                (first + more as f64 * *sequential_read) as u64
            }
        }
    }

    /// Mean ns of a page read anywhere, of one read after its neighbour, of one written.
    fn page_costs(&self, page_size: u32) -> (f64, f64, f64) {
        let page = u64::from(page_size);
        match self {
            Self::Model(model) => {
                let cost = |op, pattern, len| model.expected(op, pattern, len) as f64;
                let share = f64::from(page_size) / STRETCH as f64;
                (
                    cost(IoOp::Read, Pattern::Random, page),
                    share * cost(IoOp::Read, Pattern::Sequential, STRETCH),
                    cost(IoOp::Write, Pattern::Random, page),
                )
            }
            Self::Baleen => {
                let transfer = ns_at(page, BALEEN_RATE) as f64;
                let random = BALEEN_POSITION_NS as f64 + transfer;
                (random, transfer, random)
            }
            Self::Costs {
                random_read,
                sequential_read,
                random_write,
                ..
            } => (*random_read, *sequential_read, *random_write),
        }
    }
}

fn ns_at(bytes: u64, rate: u64) -> u64 {
    (u128::from(bytes) * 1_000_000_000 / u128::from(rate)) as u64
}

/// Both devices.
#[derive(Clone, Debug)]
pub struct Devices {
    /// Bulk storage.
    pub base: Timing,
    /// The tier's device.
    pub flash: Timing,
    /// Base reads of one I/O at most so many bytes apart are one read that passes over what lies
    /// between, which is on flash or in the pool; `None`: as the live engine, by what a seek costs.
    pub bridge: Option<u64>,
}

impl Devices {
    /// Devices whose pages cost what `thermocline calibrate` measured.
    #[must_use]
    pub fn calibrated(costs: &Costs, page_size: u32) -> Self {
        let timing = |read, sequential, write| Timing::Costs {
            random_read: read,
            sequential_read: sequential,
            random_write: write,
            page_size,
            end: u64::MAX,
        };
        Self {
            base: timing(
                costs.base_random_read,
                costs.base_sequential_read,
                costs.base_random_write,
            ),
            flash: timing(costs.flash_read, costs.flash_read, costs.flash_write),
            bridge: None,
        }
    }

    /// The same for pages of `page_size`, where the costs are of pages of `measured` bytes. What
    /// base takes to go through the bytes of a page grows with them, what it takes to get there
    /// does not. Of flash only pages of one size were measured: theirs is its cost.
    #[must_use]
    pub fn calibrated_for(costs: &Costs, measured: u32, page_size: u32) -> Self {
        if measured == page_size {
            return Self::calibrated(costs, page_size);
        }
        let through = costs.base_sequential_read;
        let sequential = through * f64::from(page_size) / f64::from(measured);
        let anywhere = |cost: f64| (cost - through).max(0.0) + sequential;
        let scaled = Costs {
            base_random_read: anywhere(costs.base_random_read),
            base_sequential_read: sequential,
            base_random_write: anywhere(costs.base_random_write),
            ..*costs
        };
        Self::calibrated(&scaled, page_size)
    }

    /// [`Devices::bridge`] in bytes, where pages have so many ([`Costs::bridge_pages`]).
    #[must_use]
    pub fn bridge_bytes(&self, page_size: u32) -> u64 {
        let by_costs = || self.costs(page_size).bridge_pages();
        let bytes = || by_costs().saturating_mul(u64::from(page_size));
        self.bridge.unwrap_or_else(bytes)
    }

    /// What a page of `page_size` costs on them: what cost-aware policies decide by.
    #[must_use]
    pub fn costs(&self, page_size: u32) -> Costs {
        let (random, sequential, write) = self.base.page_costs(page_size);
        let (flash_read, _, flash_write) = self.flash.page_costs(page_size);
        Costs {
            base_random_read: random,
            base_sequential_read: sequential,
            base_random_write: write,
            flash_read,
            flash_write,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_exists_and_is_called_a_model() {
        for name in BASES {
            assert!(Timing::base(name).expect(name).describe().contains("model"));
        }
        for name in FLASHES {
            assert!(
                Timing::flash(name)
                    .expect(name)
                    .describe()
                    .contains("model")
            );
        }
        assert!(Timing::base("iodrive").is_none() && Timing::flash("hdd").is_none());
    }

    #[test]
    fn a_disk_filled_by_little_seeks_as_far_as_a_full_one() {
        let far = |timing: Timing, span: u64| {
            let mut timing = timing;
            timing.service(Nanos(0), IoOp::Read, 0, 4096);
            timing.service(Nanos(1_000_000_000), IoOp::Read, span - 4096, 4096)
        };
        let disk = || Timing::base("hdd").expect("a preset");
        let span = 1 << 28;
        assert!(far(disk().filled_by(span), span) > 2 * far(disk(), span));
        assert_eq!(
            far(Timing::Baleen.filled_by(1), span),
            far(Timing::Baleen, span)
        );
    }

    #[test]
    fn baleen_counts_ios_and_chunks() {
        let mut baleen = Timing::Baleen;
        let chunk = 874_125; // 128 KiB at 143 MiB/s in ns
        let mut ask = |len| baleen.service(Nanos(0), IoOp::Read, 0, len) - BALEEN_POSITION_NS;
        assert_eq!(ask(1), chunk);
        assert_eq!(ask(128 << 10), chunk);
        assert!((2 * chunk..=2 * chunk + 2).contains(&ask((128 << 10) + 1)));
    }

    #[test]
    fn calibrated_costs_come_back_and_tell_sequential_from_random() {
        let costs = Costs::default();
        let mut devices = Devices::calibrated(&costs, 8192);
        assert_eq!(devices.costs(8192), costs);
        let mut read = |at| devices.base.service(Nanos(0), IoOp::Read, at, 8192);
        let (random, sequential) = (read(0), read(8192));
        assert_eq!(random, costs.base_random_read as u64);
        assert_eq!(sequential, costs.base_sequential_read as u64);
        assert_eq!(read(0), random);
    }

    #[test]
    fn a_sync_leaves_the_place_where_the_last_io_ended() {
        let costs = Costs::default();
        let mut devices = Devices::calibrated(&costs, 8192);
        let flash = &mut devices.flash;
        for _ in 0..2 {
            let sync = flash.service(Nanos(0), IoOp::Sync, 0, 0);
            let write = flash.service(Nanos(0), IoOp::Write, 0, 8192);
            assert_eq!([sync, write], [costs.flash_write as u64; 2]);
        }
        let base = &mut devices.base;
        base.service(Nanos(0), IoOp::Read, 0, 8192);
        base.service(Nanos(0), IoOp::Sync, 8192, 0);
        let next = base.service(Nanos(0), IoOp::Read, 8192, 8192);
        assert_eq!(next, costs.base_sequential_read as u64);
    }

    #[test]
    fn an_io_costs_base_the_same_in_pages_of_any_size() {
        let costs = Costs {
            base_random_read: 8e6,
            base_sequential_read: 5e4,
            base_random_write: 7e6,
            ..Costs::default()
        };
        let took = |page_size: u32| {
            let mut devices = Devices::calibrated_for(&costs, 8192, page_size);
            let base = &mut devices.base;
            let ios = [
                (IoOp::Read, 1 << 30),
                (IoOp::Write, 5 << 30),
                (IoOp::Read, 0),
            ];
            ios.map(|(op, at)| base.service(Nanos(0), op, at, 1 << 20))
        };
        let expected = took(8192);
        assert_eq!(expected[0], 8_000_000 + 127 * 50_000);
        for page_size in [4096, 16384, 65536] {
            for (found, expected) in took(page_size).into_iter().zip(expected) {
                assert!(
                    found.abs_diff(expected) <= 1,
                    "{page_size}: {found} {expected}"
                );
            }
        }
    }
}
