//! What the tests of this crate share.

#![expect(dead_code, reason = "every test binary uses its own part of this")]

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex, Once};

use thermocline::device::{Device, FileDevice, FileOptions, MemoryDevice};
use thermocline::{BaseIdentity, Engine, EngineConfig, Store, StoreOptions};
use thermocline_mount::{DeviceFactory, Error, Mount, MountConfig, MountHandle};

/// Pages of 4 KiB, so that requests of the tests are parts of pages, whole ones and several.
pub(crate) const PAGE: u32 = 4096;

fn store_options(flash_bytes: u64, format: bool) -> StoreOptions {
    StoreOptions {
        page_size: PAGE,
        size: Some(flash_bytes),
        base: BaseIdentity {
            file_system: 1,
            inode: 2,
            path: "/base".into(),
            ..BaseIdentity::default()
        },
        format,
        deadline: None,
        ..StoreOptions::default()
    }
}

fn config(pool_bytes: u64, write_back: bool) -> EngineConfig {
    EngineConfig {
        page_size: PAGE,
        policy: "lru".into(),
        pool_bytes,
        write_back,
        ..EngineConfig::default()
    }
}

/// Has panics say where and why past what a test's output is kept by: one under a request or a lock
/// ends the process, and with it what was kept.
fn panic_aloud() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            let _ = writeln!(io::stderr(), "{panic}");
            before(panic);
        }));
    });
}

fn in_memory(flash_bytes: u64, config: EngineConfig) -> Arc<Engine> {
    panic_aloud();
    let device = Arc::new(MemoryDevice::new());
    let options = store_options(flash_bytes, true);
    let flash = Store::with_device(device, "memory", &options).expect("flash store");
    Engine::start(config, Some(flash)).expect("engine")
}

/// An engine over a flash tier in memory, with a small DRAM pool.
pub(crate) fn engine(flash_bytes: u64, pool_bytes: u64) -> Arc<Engine> {
    in_memory(flash_bytes, config(pool_bytes, false))
}

/// The same in write-back.
pub(crate) fn engine_back(flash_bytes: u64, pool_bytes: u64) -> Arc<Engine> {
    in_memory(flash_bytes, config(pool_bytes, true))
}

/// An engine in write-back over a cache file, made if it is not there.
pub(crate) fn engine_on_file(cache: &Path, pool_bytes: u64) -> Arc<Engine> {
    panic_aloud();
    let options = store_options(4 << 20, false);
    let flash = Store::open(cache, &options).expect("flash store");
    Engine::start(config(pool_bytes, true), Some(flash)).expect("engine")
}

/// Runs the test `name` of this program again, in a process that finds `dir` under `key`.
pub(crate) fn again(name: &str, key: &str, dir: &Path) -> std::process::Output {
    std::process::Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", name, "--nocapture"])
        .env(key, dir)
        .output()
        .expect("child")
}

/// Whether tests that change owners can run; says that they are skipped if not.
pub(crate) fn is_root() -> bool {
    // SAFETY: the call always succeeds.
    let root = unsafe { libc::geteuid() } == 0;
    if !root {
        let required = std::env::var_os("THERMOCLINE_REQUIRE_ALL").is_some();
        assert!(!required, "required, but not root");
        eprintln!("skipped: not root");
    }
    root
}

/// Runs `work` in a thread that acts as user and group `id` without further groups.
pub(crate) fn as_user<T: Send>(id: u32, work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            // SAFETY: raw system calls change this thread alone; no memory is passed.
            unsafe {
                let none = std::ptr::null::<libc::gid_t>();
                assert_eq!(libc::syscall(libc::SYS_setgroups, 0, none), 0);
                assert_eq!(libc::syscall(libc::SYS_setresgid, id, id, id), 0);
                assert_eq!(libc::syscall(libc::SYS_setresuid, id, id, id), 0);
            }
            work()
        });
        thread.join().expect("thread of the user")
    })
}

/// A base file that notes each sync: true for data alone.
pub(crate) struct Noting(FileDevice, Syncs);

/// The syncs of base so far: true for those of data alone.
pub(crate) type Syncs = Arc<Mutex<Vec<bool>>>;

/// Base files that note their syncs, and where.
pub(crate) fn noting() -> (DeviceFactory, Syncs) {
    let syncs = Syncs::default();
    let noted = Arc::clone(&syncs);
    let devices: DeviceFactory = Arc::new(move |file, known| {
        let device = FileDevice::from_file(file, known.name, FileOptions::default())?;
        Ok(Arc::new(Noting(device, Arc::clone(&noted))))
    });
    (devices, syncs)
}

impl Device for Noting {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(buf, offset)
    }
    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.1.lock().expect("lock").push(data_only);
        self.0.sync(data_only)
    }
    fn len(&self) -> io::Result<u64> {
        self.0.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.0.set_len(len)
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.0.punch(offset, len)
    }
    fn label(&self) -> String {
        self.0.label()
    }
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

    /// Unmounts; every file must be closed. Whoever looks at all mounts of the machine (`df`) may
    /// hold it for a moment.
    pub(crate) fn end(mut self) {
        let mut left = 100;
        while let Some(handle) = self.handle.take() {
            match handle.unmount() {
                Ok(()) => {}
                Err((handle, Error::Busy(_))) if left > 0 => {
                    left -= 1;
                    self.handle = Some(handle);
                    std::thread::sleep(std::time::Duration::from_millis(100));
                }
                Err((_, error)) => panic!("not unmounted: {error}"),
            }
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

/// Takes a mount away from under its users.
pub(crate) fn detach(mountpoint: &Path) {
    let _ = std::process::Command::new("umount")
        .arg("-l")
        .arg(mountpoint)
        .status();
}

/// One rule that caches every file as a relation.
pub(crate) fn cache_everything() -> thermocline::classify::Rules {
    cache_all(true)
}

/// One rule that caches every file, or none.
pub(crate) fn cache_all(cached: bool) -> thermocline::classify::Rules {
    use thermocline::classify::{Rule, Rules};
    let rule = Rule {
        path: "**".into(),
        kind: Some("relation".into()),
        cache: Some(cached),
        dialect: None,
    };
    Rules::new(vec![rule]).expect("rule")
}
