//! What the tests of this crate share.

#![expect(dead_code, reason = "every test binary uses its own part of this")]

use std::path::Path;
use std::sync::Arc;

use thermocline::device::MemoryDevice;
use thermocline::{BaseIdentity, Engine, EngineConfig, Store, StoreOptions};
use thermocline_mount::{Error, Mount, MountConfig, MountHandle};

/// Pages of 4 KiB, so that requests of the tests are parts of pages, whole ones and several.
pub(crate) const PAGE: u32 = 4096;

/// An engine over a flash tier in memory, with a small DRAM pool.
pub(crate) fn engine(flash_bytes: u64, pool_bytes: u64) -> Arc<Engine> {
    let options = StoreOptions {
        page_size: PAGE,
        size: Some(flash_bytes),
        base: BaseIdentity {
            file_system: 1,
            inode: 2,
            path: "/base".into(),
            ..BaseIdentity::default()
        },
        format: true,
        deadline: None,
    };
    let device = Arc::new(MemoryDevice::new());
    let flash = Store::with_device(device, "memory", &options).expect("flash store");
    let config = EngineConfig {
        page_size: PAGE,
        policy: "lru".into(),
        pool_bytes,
        ..EngineConfig::default()
    };
    Engine::start(config, Some(flash)).expect("engine")
}

/// Pseudo-random numbers from a seed (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next number below `limit`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % limit
    }

    /// Bytes to write.
    pub(crate) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

/// A mount in a temporary directory: `base/` beside `mnt/`.
pub(crate) struct TestMount {
    pub(crate) dir: tempfile::TempDir,
    pub(crate) engine: Arc<Engine>,
    handle: Option<MountHandle>,
}

impl TestMount {
    /// Mounts with `adjust`ed configuration, or says why it cannot be done here: then the test
    /// prints that it was skipped and passes, unless `THERMOCLINE_REQUIRE_ALL=1`.
    pub(crate) fn start(adjust: impl FnOnce(&mut MountConfig)) -> Option<Self> {
        Self::start_with(engine(1 << 20, 64 << 10), adjust)
    }

    /// The same with an engine of the caller's.
    pub(crate) fn start_with(
        engine: Arc<Engine>,
        adjust: impl FnOnce(&mut MountConfig),
    ) -> Option<Self> {
        let dir = tempfile::tempdir().expect("temporary directory");
        let (base, mountpoint) = (dir.path().join("base"), dir.path().join("mnt"));
        std::fs::create_dir(&base).expect("base");
        std::fs::create_dir(&mountpoint).expect("mountpoint");
        let mut config = MountConfig::new(&base, &mountpoint);
        adjust(&mut config);
        match Mount::start(config, Arc::clone(&engine)) {
            Ok(handle) => Some(Self {
                dir,
                engine,
                handle: Some(handle),
            }),
            Err(error @ (Error::NoFuseDevice | Error::FusePermission(_))) => {
                let required = std::env::var_os("THERMOCLINE_REQUIRE_ALL").is_some();
                assert!(!required, "required, but: {error}");
                eprintln!("skipped: {error}");
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    /// A mount whose every file is cached, whatever its name.
    pub(crate) fn all_cached() -> Option<Self> {
        Self::start(|config| config.rules = cache_everything())
    }

    pub(crate) fn base(&self) -> std::path::PathBuf {
        self.dir.path().join("base")
    }

    pub(crate) fn mnt(&self) -> std::path::PathBuf {
        self.dir.path().join("mnt")
    }

    /// The mount's handle.
    pub(crate) fn handle(&self) -> &MountHandle {
        self.handle.as_ref().expect("mounted")
    }

    /// Unmounts; every file must be closed.
    pub(crate) fn end(mut self) {
        if let Some(handle) = self.handle.take() {
            handle
                .unmount()
                .map_err(|(_, error)| error)
                .expect("unmounted");
        }
        self.engine.stop().expect("engine stopped");
    }
}

impl Drop for TestMount {
    fn drop(&mut self) {
        // A failed test may leave files open: detach, so that the directory can go.
        if let Some(handle) = self.handle.take()
            && let Err((handle, _)) = handle.unmount()
        {
            detach(handle.mountpoint());
            let _ = handle.wait();
        }
    }
}

fn detach(mountpoint: &Path) {
    let _ = std::process::Command::new("umount")
        .arg("-l")
        .arg(mountpoint)
        .status();
}

/// One rule that caches every file as a relation.
pub(crate) fn cache_everything() -> thermocline::classify::Rules {
    use thermocline::classify::{Rule, Rules};
    let rule = Rule {
        path: "**".into(),
        kind: Some("relation".into()),
        cache: Some(true),
        dialect: None,
    };
    Rules::new(vec![rule]).expect("rule")
}
