//! Device models: how long a request would take on a device that is not here.
//!
//! A model is pure: it is told the time and answers with a duration. The simulator adds the
//! answers up in virtual time; the engine's shaped device waits for them in real time. Both
//! keep the queue; a model knows only the state of the mechanics and of the wire. Models use
//! no random numbers: the same calls give the same answers.
//!
//! Rules
//! 1. [`Model::service`] is called when the device *starts* the request, in order of start
//!    times; `now` never goes back.
//! 2. At most [`Model::channels`] requests are in service at once; for a disk that is one.
//! 3. Answers are estimates for the device named by the preset, from the source written there.
//!    Output made with one must say "emulated".

mod disk;
mod flash;
mod network;

pub use disk::{DiskModel, DiskParameters};
pub use flash::{FlashModel, FlashParameters};
pub use network::{NetworkModel, NetworkParameters};

/// A point in virtual or real time, in nanoseconds from an arbitrary start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Nanos(pub u64);

/// What a request does to the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IoOp {
    /// Reads bytes.
    Read,
    /// Writes bytes.
    Write,
    /// Makes written bytes durable; moves none.
    Sync,
}

/// How requests follow each other, for [`Model::expected`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pattern {
    /// Anywhere on the device, one at a time.
    Random,
    /// Each where the last one ended.
    Sequential,
}

/// One device's timing.
#[derive(Clone, Debug)]
pub enum Model {
    /// A hard disk: one arm, rotating.
    Disk(DiskModel),
    /// Flash: no position, several channels.
    Flash(FlashModel),
    /// A volume behind a network.
    Network(NetworkModel),
}

impl Model {
    /// The names [`Model::preset`] knows.
    pub const PRESETS: [&str; 6] = ["hdd", "hdd-15k", "ssd", "iodrive", "nvme", "network"];

    /// A device by its short name; `None` when there is none. Sources are with each parameter
    /// set.
    #[must_use]
    pub fn preset(name: &str) -> Option<Self> {
        Some(match name {
            "hdd" => Self::Disk(DiskModel::new(DiskParameters::RPM_7200)),
            "hdd-15k" => Self::Disk(DiskModel::new(DiskParameters::RPM_15000)),
            "ssd" => Self::Flash(FlashModel::new(FlashParameters::SATA)),
            "iodrive" => Self::Flash(FlashModel::new(FlashParameters::IODRIVE)),
            "nvme" => Self::Flash(FlashModel::new(FlashParameters::NVME)),
            "network" => Self::Network(NetworkModel::new(NetworkParameters::VOLUME)),
            _ => return None,
        })
    }

    /// What to call it in output, after the word "emulated".
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Disk(disk) => disk.parameters().name,
            Self::Flash(flash) => flash.parameters().name,
            Self::Network(network) => network.parameters().name,
        }
    }

    /// Requests that can be in service at the same time.
    #[must_use]
    pub fn channels(&self) -> u32 {
        match self {
            Self::Disk(_) => 1,
            Self::Flash(flash) => flash.parameters().channels,
            Self::Network(network) => network.parameters().channels,
        }
    }

    /// Addressable bytes; positions at and past it wrap around.
    #[must_use]
    pub fn capacity(&self) -> u64 {
        match self {
            Self::Disk(disk) => disk.parameters().capacity,
            Self::Flash(_) | Self::Network(_) => u64::MAX,
        }
    }

    /// The same mechanics over `capacity` bytes: a full stroke spans that much. Flash and
    /// network stay as they are.
    ///
    /// # Panics
    /// When `capacity` is 0.
    #[must_use]
    pub fn with_capacity(self, capacity: u64) -> Self {
        match self {
            Self::Disk(disk) => Self::Disk(DiskModel::new(DiskParameters {
                capacity,
                ..*disk.parameters()
            })),
            other => other,
        }
    }

    /// Serves a request of `len` bytes at byte `position` that starts `now`; returns the
    /// nanoseconds until it is done, and moves the device there.
    pub fn service(&mut self, now: Nanos, op: IoOp, position: u64, len: u64) -> u64 {
        match self {
            Self::Disk(disk) => disk.service(now, op, position, len),
            Self::Flash(flash) => flash.service(now, op, len),
            Self::Network(network) => network.service(now, op, len),
        }
    }

    /// Nanoseconds until the device could start to transfer at `position`, if it set off
    /// `now`: what a scheduler compares. 0 where position does not matter.
    #[must_use]
    pub fn positioning(&self, now: Nanos, position: u64) -> u64 {
        match self {
            Self::Disk(disk) => disk.positioning(now, position),
            Self::Flash(_) | Self::Network(_) => 0,
        }
    }

    /// Mean nanoseconds of a request of `len` bytes with nothing queued.
    #[must_use]
    pub fn expected(&self, op: IoOp, pattern: Pattern, len: u64) -> u64 {
        match self {
            Self::Disk(disk) => disk.parameters().expected(op, pattern, len),
            Self::Flash(flash) => flash.parameters().expected(op, len),
            Self::Network(network) => network.parameters().expected(op, len),
        }
    }
}

/// Nanoseconds that `len` bytes take at `rate` bytes per second, rounded up.
fn transfer_ns(len: u64, rate: u64) -> u64 {
    assert!(rate > 0, "a rate of zero never ends");
    let ns = (u128::from(len) * 1_000_000_000).div_ceil(u128::from(rate));
    u64::try_from(ns).unwrap_or(u64::MAX)
}

/// A wire that carries one transfer at a time, in the order they are ready.
#[derive(Clone, Debug, Default)]
struct Wire {
    free_at: u64,
}

impl Wire {
    /// Carries a transfer of `duration` ns that is ready at `ready`; returns its end.
    fn carry(&mut self, ready: u64, duration: u64) -> u64 {
        let end = self.free_at.max(ready).saturating_add(duration);
        debug_assert!(end >= ready && end >= self.free_at);
        self.free_at = end;
        end
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_preset_exists_and_has_its_own_name() {
        let mut names: Vec<_> = Model::PRESETS
            .iter()
            .map(|p| Model::preset(p).unwrap().name())
            .collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Model::PRESETS.len());
        assert!(Model::preset("floppy").is_none());
    }

    #[test]
    fn transfer_times() {
        assert_eq!(transfer_ns(0, 1), 0);
        assert_eq!(transfer_ns(1, 1_000_000_000), 1);
        assert_eq!(transfer_ns(1, 3_000_000_000), 1);
        assert_eq!(transfer_ns(133_750_000, 133_750_000), 1_000_000_000);
        assert_eq!(transfer_ns(u64::MAX, 1), u64::MAX);
    }

    #[test]
    fn the_same_calls_give_the_same_answers() {
        for preset in Model::PRESETS {
            let run = || {
                let mut model = Model::preset(preset).unwrap();
                let mut now = 0;
                (0..1000u64)
                    .map(|i| {
                        let op = [IoOp::Read, IoOp::Write, IoOp::Sync][i as usize % 3];
                        let position = i.wrapping_mul(0x9E37_79B9_7F4A_7C15);
                        let took = model.service(Nanos(now), op, position, 8192 * (i % 5));
                        now += took;
                        took
                    })
                    .collect::<Vec<_>>()
            };
            assert_eq!(run(), run());
        }
    }

    #[test]
    fn a_smaller_disk_has_the_same_strokes() {
        let small = Model::preset("hdd").unwrap().with_capacity(64 << 20);
        assert_eq!(small.capacity(), 64 << 20);
        let full = small.positioning(Nanos(0), (64 << 20) - 1);
        assert!(full >= 16_000_000, "{full}");
        let flash = Model::preset("ssd").unwrap().with_capacity(1);
        assert_eq!(flash.capacity(), u64::MAX);
    }

    /// The speeds of the presets stand in the order everybody expects.
    #[test]
    fn random_reads_rank_the_devices() {
        let cost = |name: &str| {
            Model::preset(name)
                .unwrap()
                .expected(IoOp::Read, Pattern::Random, 8192)
        };
        assert!(cost("hdd") > cost("hdd-15k"));
        assert!(cost("hdd-15k") > cost("network"));
        assert!(cost("network") > cost("ssd"));
        assert!(cost("ssd") > cost("nvme"));
        assert!(cost("ssd") > cost("iodrive"));
    }
}
