//! What one seed chooses before anything runs.

use crate::draw::Draw;
use crate::model::FileModel;
use crate::step::FILES;
use crate::world::{FileId, World};
use std::sync::Arc;
use thermocline::classify::Dialect;
use thermocline::config::DirtySettings;
use thermocline::mutant::Mutant;
use thermocline::{
    BaseIdentity, EngineConfig, Identity, Leave, MapLoad, ObjectSpec, Pins, StoreOptions,
};
use thermocline_core::{FileKind, policy, pool};

/// Write modes to test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Write-through.
    Through,
    /// Write-back, with switches to write-through and back.
    Back,
    /// The store alone, without an engine: see [`crate::run_store`].
    Store,
}

impl Mode {
    /// As on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Through => "through",
            Self::Back => "back",
            Self::Store => "store",
        }
    }
}

/// The engine and tier of one run.
#[derive(Clone, Debug)]
pub struct Setup {
    /// Write mode at the start.
    pub mode: Mode,
    /// Bytes per page.
    pub page_size: u32,
    /// Tier policy at the start.
    pub policy: &'static str,
    /// Pages of the tier.
    pub slots: u64,
    /// Frames of the pool.
    pub frames: u64,
    /// Policy of the pool.
    pub pool: &'static str,
    /// How dirty pages are kept and written back.
    pub dirty: DirtySettings,
    /// Pages of the write buffer.
    pub buffer: u32,
    /// Whether devices fail now and then.
    pub faults: bool,
    /// Whether the last file passes by the tier, as logs do.
    pub passing: bool,
    /// Pages set aside for pinned files at a start; 0 where none is pinned.
    pub pinned: u32,
    /// When the map is read.
    pub load: MapLoad,
    /// Whether base can set room aside.
    pub reserves: bool,
    /// Whether base is served without a cache.
    pub bare: bool,
    /// What is allowed where base's mark stands in the way.
    pub leave: Leave,
    /// A bug planted in engine, store and claim.
    pub planted: Mutant,
}

/// How names begin of files that pass by the tier.
const PASSING: &str = "log";

/// Where the flash device is in every world.
pub(crate) const FLASH: FileId = FileId(0);
/// Where another cache is that base may be served with instead.
pub(crate) const SPARE: FileId = FileId(1);

impl Setup {
    /// The choices of `seed`. Policies take turns.
    #[must_use]
    pub fn of(seed: u64, mode: Mode) -> Self {
        let mut draw = Draw::new(seed ^ 0x5E7);
        let policies = policy::NAMES;
        Self {
            mode,
            page_size: draw.one(&[512, 512, 512, 1024]),
            policy: policies[(seed % policies.len() as u64) as usize],
            slots: 8 + draw.below(33),
            frames: draw.one(&[0, 2, 4, 8]),
            pool: draw.one(pool::NAMES),
            dirty: DirtySettings {
                reserve: draw.one(&[0.0, 0.1, 0.3]),
                reserve_high: draw.one(&[0.3, 0.7]),
                dirty_high: draw.one(&[0.2, 0.5, 0.9]),
                // Counted in steps where there are no threads, not in thousandths of seconds.
                recovery_s: draw.one(&[0.01, 0.1, 30.0]),
                rate: 0,
            },
            buffer: draw.one(&[1, 2, 4, 8]),
            faults: draw.chance(1, 3),
            passing: draw.chance(1, 3),
            pinned: if seed.is_multiple_of(3) { 5 } else { 0 },
            load: draw.one(&[MapLoad::Before, MapLoad::After]),
            reserves: draw.chance(3, 4),
            bare: false,
            leave: Leave::default(),
            planted: Mutant::None,
        }
    }

    /// What the file in place `at` is called, for the so many-th time.
    pub(crate) fn name_of(&self, at: usize, number: u64) -> String {
        match self.passing && at + 1 == FILES {
            true => format!("{PASSING}{at}.{number}"),
            false => format!("file{at}.{number}"),
        }
    }

    /// The first file and what takes its place, with so many pages; none for 0.
    fn pins(&self, pages: u32) -> Pins {
        match pages {
            0 => Pins::default(),
            _ => Pins {
                paths: vec!["file0.*".into()],
                pages,
            },
        }
    }

    /// What is pinned from then on when the tier gets so many slots.
    pub(crate) fn pins_for(&self, slots: u64) -> Pins {
        self.pins(if slots.is_multiple_of(16) {
            0
        } else {
            slots as u32 / 2
        })
    }

    /// A file that durably holds `bytes`.
    pub(crate) fn model(&self, bytes: &[u8]) -> FileModel {
        FileModel::holding(bytes, u64::from(self.page_size))
    }

    pub(crate) fn config(&self, world: &World) -> EngineConfig {
        EngineConfig {
            clock: world.clock().shared(),
            planted: self.planted,
            page_size: self.page_size,
            policy: self.policy.into(),
            pool_bytes: self.frames * u64::from(self.page_size),
            write_buffer_pages: self.buffer,
            writers_max: 1,
            pool_policy: self.pool.into(),
            write_back: self.mode == Mode::Back && !self.bare,
            dirty: self.dirty,
            pins: self.pins(self.pinned),
            inline: true,
            ..EngineConfig::default()
        }
    }

    /// Length of a cache with some `slots` beside superblocks, journal, objects and map.
    pub(crate) fn length(&self, slots: u64) -> u64 {
        (40 << 10) + (slots * u64::from(self.page_size)).next_multiple_of(4096)
    }

    pub(crate) fn store_options(
        &self,
        world: &World,
        found: bool,
        base: BaseIdentity,
    ) -> StoreOptions {
        StoreOptions {
            clock: world.clock().shared(),
            planted: self.planted,
            load: self.load,
            page_size: self.page_size,
            size: (!found).then_some(self.length(self.slots)),
            base,
            ..StoreOptions::default()
        }
    }
}

/// The base file `file` of `world` as the engine is given it.
#[must_use]
pub fn spec_of(world: &World, file: FileId, name: &str, identity: Identity) -> ObjectSpec {
    let (stamped, touched) = (world.clone(), world.clone());
    ObjectSpec {
        name: name.into(),
        group: "table".into(),
        identity,
        base: world.device(file),
        kind: FileKind::Relation,
        dialect: Dialect::None,
        cached: !name.starts_with(PASSING),
        stamp: Arc::new(move || stamped.stamp(file)),
        touch: Arc::new(move |time| {
            touched.touch(file, time);
            Ok(())
        }),
    }
}
