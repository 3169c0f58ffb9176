//! Flash: no position, several channels behind one wire.
//!
//! Each request has its latency on a channel of its own, then its bytes go over the wire that
//! all channels share. So latency limits one thread, the number of channels limits small
//! requests together, and the wire limits bytes. Left out: garbage collection, wear, write
//! cliffs, the drive's own cache.

use super::{IoOp, Nanos, Wire, transfer_ns};

/// What a data sheet says of a flash device. Times in nanoseconds, rates in bytes per second.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlashParameters {
    /// What to call it in output.
    pub name: &'static str,
    /// From request to first byte.
    pub read_latency: u64,
    /// From last byte to acknowledgement.
    pub write_latency: u64,
    /// A sync on its own.
    pub sync_latency: u64,
    /// All channels together, reading.
    pub read_rate: u64,
    /// All channels together, writing.
    pub write_rate: u64,
    /// Requests in service at once.
    pub channels: u32,
}

impl FlashParameters {
    /// The SSD of the thesis, §6.5: Intel X25-E 32 GB, SATA; 0.075 ms random read (§6.5.2).
    /// From its data sheet: 0.085 ms write, 250 and 170 MB/s, ten channels.
    pub const SATA: Self = Self {
        name: "SATA SSD",
        read_latency: 75_000,
        write_latency: 85_000,
        sync_latency: 85_000,
        read_rate: 250_000_000,
        write_rate: 170_000_000,
        channels: 10,
    };

    /// The device of the TAC paper, §4.1, table 1: Fusion-io 80 GB, 50 µs read latency, 700 MB/s
    /// reading and 550 MB/s writing at 16 KiB. Assumed: write latency equal to read latency,
    /// 25 channels (what its bandwidth takes at that latency).
    pub const IODRIVE: Self = Self {
        name: "PCIe flash card",
        read_latency: 50_000,
        write_latency: 50_000,
        sync_latency: 0,
        read_rate: 700_000_000,
        write_rate: 550_000_000,
        channels: 25,
    };

    /// Typical data-sheet values of a data-centre NVMe drive with power-loss protection:
    /// 80 µs read, 20 µs write, 3.0 and 1.5 GB/s.
    pub const NVME: Self = Self {
        name: "NVMe SSD",
        read_latency: 80_000,
        write_latency: 20_000,
        sync_latency: 0,
        read_rate: 3_000_000_000,
        write_rate: 1_500_000_000,
        channels: 64,
    };

    /// Mean nanoseconds of a request with nothing queued.
    pub(super) fn expected(&self, op: IoOp, len: u64) -> u64 {
        match op {
            IoOp::Read => self.read_latency + transfer_ns(len, self.read_rate),
            IoOp::Write => self.write_latency + transfer_ns(len, self.write_rate),
            IoOp::Sync => self.sync_latency,
        }
    }
}

/// A flash device at one moment.
#[derive(Clone, Debug)]
pub struct FlashModel {
    parameters: FlashParameters,
    wire: Wire,
}

impl FlashModel {
    /// An idle device.
    ///
    /// # Panics
    /// When it has no channel or no bandwidth.
    #[must_use]
    pub fn new(parameters: FlashParameters) -> Self {
        assert!(
            parameters.channels > 0,
            "a device without channels serves nobody"
        );
        assert!(parameters.read_rate > 0 && parameters.write_rate > 0);
        Self {
            parameters,
            wire: Wire::default(),
        }
    }

    /// What it was made with.
    #[must_use]
    pub fn parameters(&self) -> &FlashParameters {
        &self.parameters
    }

    /// See [`super::Model::service`].
    pub fn service(&mut self, now: Nanos, op: IoOp, len: u64) -> u64 {
        let p = &self.parameters;
        let (latency, rate) = match op {
            IoOp::Read => (p.read_latency, p.read_rate),
            IoOp::Write => (p.write_latency, p.write_rate),
            IoOp::Sync => return p.sync_latency,
        };
        let ready = now.0.saturating_add(latency);
        self.wire.carry(ready, transfer_ns(len, rate)) - now.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEVICES: [FlashParameters; 3] = [
        FlashParameters::SATA,
        FlashParameters::IODRIVE,
        FlashParameters::NVME,
    ];

    /// Runs `requests` requests of `len`, `depth` at a time, and returns the time taken.
    fn run(parameters: FlashParameters, op: IoOp, len: u64, depth: usize, requests: u64) -> u64 {
        let mut flash = FlashModel::new(parameters);
        let mut free = vec![0u64; depth.min(parameters.channels as usize)];
        for _ in 0..requests {
            let channel = (0..free.len()).min_by_key(|&c| free[c]).unwrap();
            free[channel] += flash.service(Nanos(free[channel]), op, len);
        }
        *free.iter().max().unwrap()
    }

    #[test]
    fn one_at_a_time_costs_what_is_expected() {
        for p in DEVICES {
            for op in [IoOp::Read, IoOp::Write] {
                assert_eq!(run(p, op, 8192, 1, 100), 100 * p.expected(op, 8192));
            }
        }
    }

    #[test]
    fn depth_helps_until_the_wire_is_full() {
        for p in DEVICES {
            let alone = run(p, IoOp::Read, 4096, 1, 4000);
            let two = run(p, IoOp::Read, 4096, 2, 4000);
            assert!(
                two * 10 <= alone * 6,
                "{}: two at a time: {two} of {alone}",
                p.name
            );
            let large = 1 << 20;
            let deep = run(p, IoOp::Read, large, 64, 1000);
            let floor = transfer_ns(large * 1000, p.read_rate);
            assert!(deep >= floor && deep <= floor + floor / 50, "{}", p.name);
        }
    }

    #[test]
    fn the_paper_device_reaches_the_paper_bandwidth() {
        // TAC §4.1: 700 MB/s in random 16 KiB reads.
        let took = run(FlashParameters::IODRIVE, IoOp::Read, 16384, 64, 10_000);
        let rate = 16384 * 10_000 * 1_000_000_000 / took;
        assert!((650_000_000..=700_000_000).contains(&rate), "{rate}");
    }

    #[test]
    fn a_sync_moves_nothing() {
        let mut flash = FlashModel::new(FlashParameters::SATA);
        assert_eq!(flash.service(Nanos(0), IoOp::Sync, 0), 85_000);
        let read = flash.service(Nanos(0), IoOp::Read, 4096);
        assert_eq!(read, FlashParameters::SATA.expected(IoOp::Read, 4096));
    }
}
