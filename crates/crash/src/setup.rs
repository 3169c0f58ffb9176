//! What one seed chooses before anything runs.

use crate::draw::Draw;
use crate::world::World;
use std::sync::Arc;
use thermocline::classify::Dialect;
use thermocline::{BaseIdentity, Engine, EngineConfig, Identity, ObjectSpec, Store, StoreOptions};
use thermocline_core::{FileKind, policy};

use crate::world::FileId;

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
    /// Pages of the write buffer.
    pub buffer: u32,
    /// Whether devices fail now and then.
    pub faults: bool,
}

/// Where the flash device is in every world.
pub(crate) const FLASH: FileId = FileId(0);

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
            buffer: draw.one(&[1, 2, 4, 8]),
            faults: draw.chance(1, 3),
        }
    }

    fn config(&self) -> EngineConfig {
        EngineConfig {
            page_size: self.page_size,
            policy: self.policy.into(),
            pool_bytes: self.frames * u64::from(self.page_size),
            write_buffer_pages: self.buffer,
            writers_max: 1,
            ..EngineConfig::default()
        }
    }

    fn flash_options(&self) -> StoreOptions {
        let base = BaseIdentity {
            file_system: 1,
            inode: 2,
            path: "/base".into(),
        };
        StoreOptions {
            page_size: self.page_size,
            size: Some(8192 + (64 << 10) + self.slots * u64::from(self.page_size)),
            base,
            format: false,
            deadline: None,
        }
    }

    /// Starts an engine on the flash device of `world`.
    ///
    /// # Errors
    /// What the engine said.
    pub fn start(&self, world: &World) -> Result<Arc<Engine>, String> {
        let device = world.device(FLASH);
        let store = Store::with_device(device, "flash", &self.flash_options());
        let store = store.map_err(|error| format!("the cache does not open: {error}"))?;
        let engine = Engine::start(self.config(), Some(store));
        engine.map_err(|error| format!("the engine does not start: {error}"))
    }
}

/// The base file `file` of `world` as the engine is given it.
#[must_use]
pub fn spec_of(world: &World, file: FileId, name: &str, identity: Identity) -> ObjectSpec {
    let stamped = world.clone();
    ObjectSpec {
        name: name.into(),
        group: "table".into(),
        identity,
        base: world.device(file),
        kind: FileKind::Relation,
        dialect: Dialect::None,
        cached: true,
        stamp: Arc::new(move || stamped.stamp(file)),
    }
}
