//! Flash reads on the ring of a serving thread (FUSE over io_uring): a device that answers late, or
//! never, costs time and nothing else. `scripts/with-ring.sh` allows that transport.

mod common;

use std::fs::{File, OpenOptions};
use std::io::{self, PipeReader, PipeWriter, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use common::{PAGE, TestMount, cache_everything};
use thermocline::device::{AlignedBuf, Device, DirectFile, FileDevice, FileOptions};
use thermocline::{BaseIdentity, Engine, EngineConfig, Store, StoreOptions};
use thermocline_mount::Transport;

const PAGES: usize = 64;

/// A device whose reads by somebody's ring go to a pipe while it is sick: they have no answer until
/// somebody writes to it.
struct Sick {
    device: FileDevice,
    pipe: PipeReader,
    sick: Arc<AtomicBool>,
}

impl Device for Sick {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.device.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.device.write_at(buf, offset)
    }
    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.device.sync(data_only)
    }
    fn len(&self) -> io::Result<u64> {
        self.device.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.device.set_len(len)
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.device.punch(offset, len)
    }
    fn direct(&self) -> Option<DirectFile<'_>> {
        let lent = self.device.direct()?;
        match self.sick.load(Ordering::Acquire) {
            true => Some(lent.redirected(self.pipe.as_fd())),
            false => Some(lent),
        }
    }
    fn label(&self) -> String {
        self.device.label()
    }
}

struct Rig {
    mount: TestMount,
    sick: Arc<AtomicBool>,
    late: PipeWriter,
    _cache: tempfile::TempDir,
}

fn page(index: usize) -> Vec<u8> {
    (0..PAGE as usize)
        .map(|at| (at * 31 + index * 7) as u8)
        .collect()
}

/// A mount over io_uring with a file whose pages are all on flash; `None` where the kernel has no
/// such transport.
fn rig() -> Option<Rig> {
    let cache = tempfile::tempdir().expect("a folder");
    let (pipe, late) = io::pipe().expect("a pipe");
    let sick = Arc::new(AtomicBool::new(false));
    let options = FileOptions {
        create: true,
        deadline: Some(Duration::from_millis(150)),
        ..FileOptions::default()
    };
    let device = FileDevice::open(cache.path().join("cache"), options).expect("a device");
    let device = Arc::new(Sick {
        device,
        pipe,
        sick: Arc::clone(&sick),
    });
    let options = StoreOptions {
        page_size: PAGE,
        size: Some(4 << 20),
        base: BaseIdentity {
            file_system: 1,
            inode: 2,
            path: "/base".into(),
            ..BaseIdentity::default()
        },
        format: true,
        ..StoreOptions::default()
    };
    let store = Store::with_device(device, "cache", &options).expect("a store");
    let config = EngineConfig {
        page_size: PAGE,
        policy: "lru".into(),
        read_ahead: 0,
        ..EngineConfig::default()
    };
    let engine = Engine::start(config, Some(store)).expect("an engine");
    let mount = TestMount::start_with(engine, |config| {
        config.rules = cache_everything();
        config.transport = Transport::Auto;
        let bytes: Vec<u8> = (0..PAGES).flat_map(page).collect();
        std::fs::write(config.base.join("file"), bytes).expect("a file");
    })?;
    if !mount.handle().is_over_io_uring() {
        let allowed = "/sys/module/fuse/parameters/enable_uring";
        let allowed = std::fs::read_to_string(allowed).is_ok_and(|text| text.trim() == "Y");
        assert!(!allowed, "the kernel offers it, and it is not used");
        eprintln!("skipped: no FUSE over io_uring here");
        mount.end();
        return None;
    }
    let rig = Rig {
        mount,
        sick,
        late,
        _cache: cache,
    };
    rig.warm();
    Some(rig)
}

impl Rig {
    fn file(&self) -> File {
        let mut how = OpenOptions::new();
        how.read(true).custom_flags(libc::O_DIRECT);
        how.open(self.mount.mnt().join("file")).expect("opens")
    }

    fn warm(&self) {
        for _ in 0..20 {
            self.read_all(1);
            let tier = || self.mount.engine.stats().tier.expect("a tier");
            while tier().staged > 0 {
                std::thread::yield_now();
            }
            if tier().resident as usize == PAGES {
                return;
            }
        }
        panic!("the pages do not come to flash");
    }

    /// Every page, by several threads at once.
    fn read_all(&self, threads: usize) {
        std::thread::scope(|scope| {
            for first in 0..threads {
                scope.spawn(move || {
                    let (file, mut buf) = (self.file(), AlignedBuf::new(PAGE as usize));
                    for index in (first..PAGES).step_by(threads) {
                        let at = index as u64 * u64::from(PAGE);
                        file.read_exact_at(&mut buf, at).expect("reads");
                        assert!(buf[..] == page(index)[..], "page {index}");
                    }
                });
            }
        });
    }

    fn timed_out(&self) -> u64 {
        let tier = self.mount.engine.stats().tier.expect("a tier");
        let late = tier
            .faults
            .iter()
            .filter(|(name, _)| name.contains("timed"));
        late.map(|(_, count)| count).sum()
    }
}

#[test]
fn flash_hits_are_answered_by_the_serving_thread() {
    let Some(rig) = rig() else { return };
    let before = rig.mount.engine.stats();
    rig.read_all(8);
    let after = rig.mount.engine.stats();
    let flash = |stats: &thermocline::Stats| stats.page_reads["flash"];
    assert_eq!(flash(&after) - flash(&before), PAGES as u64);
    rig.mount.end();
}

#[test]
fn late_answers_of_the_device_reach_nobody() {
    let Some(mut rig) = rig() else { return };
    rig.sick.store(true, Ordering::Release);
    rig.read_all(8);
    let late = rig.timed_out();
    assert!(late > 0, "the device was asked");
    // Its lanes are the device's until it answers; the others serve meanwhile.
    rig.sick.store(false, Ordering::Release);
    rig.read_all(4);
    // Now it answers, with bytes that are nobody's.
    let wrong = vec![0xee; PAGE as usize];
    for _ in 0..late {
        rig.late.write_all(&wrong).expect("writes");
    }
    for threads in 1..8 {
        rig.read_all(threads);
    }
    assert_eq!(rig.timed_out(), late, "it is well again");
    rig.mount.end();
}

#[test]
fn unmounting_does_not_wait_for_a_device_that_never_answers() {
    let Some(rig) = rig() else { return };
    rig.sick.store(true, Ordering::Release);
    rig.read_all(8);
    assert!(rig.timed_out() > 0);
    rig.mount.end();
}
