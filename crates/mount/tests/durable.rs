//! Writes that promise to be durable when they return: `O_SYNC`, `O_DSYNC`, `RWF_DSYNC`.

mod common;

use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use common::{PAGE, TestMount};
use thermocline::device::{AlignedBuf, Device, FaultScript, Faulty, FileDevice, FileOptions};
use thermocline_mount::{DeviceFactory, Mount, MountConfig};

/// How a write asks to be durable, and whether the file's data alone is meant.
const WAYS: [(&str, bool); 6] = [
    ("O_SYNC", false),
    ("O_DSYNC", true),
    ("O_SYNC|O_DIRECT", false),
    ("RWF_DSYNC", true),
    ("RWF_SYNC", false),
    ("writev O_DSYNC", true),
];
const LEN: usize = 4 * PAGE as usize;
const CHILD: &str = "THERMOCLINE_TEST_DURABLE";

fn open(path: &Path, flags: i32) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.custom_flags(flags).open(path).expect("open")
}

/// Overwrites the file from its start, in one of [`WAYS`].
fn write(path: &Path, way: &str, byte: u8) -> File {
    let mut content = AlignedBuf::new(LEN);
    content.fill(byte);
    let flags = match way {
        "O_SYNC" => libc::O_SYNC,
        "O_SYNC|O_DIRECT" => libc::O_SYNC | libc::O_DIRECT,
        "O_DSYNC" | "writev O_DSYNC" => libc::O_DSYNC,
        _ => 0,
    };
    let mut file = open(path, flags);
    let flags = match way {
        "RWF_DSYNC" => libc::RWF_DSYNC,
        "RWF_SYNC" => libc::RWF_SYNC,
        "writev O_DSYNC" => {
            let halves = content.split_at(LEN / 2);
            let slices = [IoSlice::new(halves.0), IoSlice::new(halves.1)];
            assert_eq!(file.write_vectored(&slices).expect("writev"), LEN);
            return file;
        }
        _ => {
            file.write_all_at(&content, 0).expect("write");
            return file;
        }
    };
    let slice = [IoSlice::new(&content)];
    // SAFETY: an `IoSlice` has the layout of `iovec`, and its bytes outlive the call.
    let written = unsafe { libc::pwritev2(file.as_raw_fd(), slice.as_ptr().cast(), 1, 0, flags) };
    assert_eq!(written, LEN as isize, "{}", io::Error::last_os_error());
    file
}

#[test]
fn in_write_through_base_is_synced_before_a_synchronous_write_returns() {
    for cached in [true, false] {
        let (devices, syncs) = common::noting();
        let Some(mount) = TestMount::start(|config| {
            config.rules = common::cache_all(cached);
            config.devices = devices;
            config.passthrough = false;
        }) else {
            return;
        };
        let path = mount.mnt().join("f");
        let file = open(&path, 0);
        file.write_all_at(&[1; LEN], 0).expect("write");
        file.sync_all().expect("fsync");
        let taken = || std::mem::take(&mut *syncs.lock().expect("lock"));
        taken();
        file.write_all_at(&[1; LEN], 0).expect("an ordinary write");
        assert_eq!(taken(), [], "cached {cached}: nobody asked for a sync");
        for (way, data_only) in WAYS {
            let file = write(&path, way, 2);
            let found = taken();
            assert!(
                found.contains(&data_only),
                "cached {cached}, {way}: syncs of base {found:?}"
            );
            drop(file);
        }
        drop(file);
        mount.end();
    }
}

#[test]
fn in_write_through_what_allocates_in_a_synchronous_file_is_synced_too() {
    let (devices, syncs) = common::noting();
    let Some(mount) = TestMount::start(|config| config.devices = devices) else {
        return;
    };
    let file = open(&mount.mnt().join("f"), libc::O_SYNC);
    // SAFETY: no memory is passed.
    assert_eq!(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, 65536) }, 0);
    assert_eq!(*syncs.lock().expect("lock"), [false]);
    drop(file);
    mount.end();
}

/// What flash copies must not be lost by a power cut before it is: somebody else may have written
/// it a moment ago, and synced nothing.
#[test]
fn what_others_wrote_to_base_is_synced_before_it_is_read() {
    for back in [false, true] {
        let (devices, syncs) = common::noting();
        let engine = match back {
            true => common::engine_back(4 << 20, 64 << 10),
            false => common::engine(4 << 20, 64 << 10),
        };
        let Some(mount) = TestMount::start_with(engine, |config| {
            config.rules = common::cache_everything();
            config.devices = devices;
        }) else {
            return;
        };
        let taken = || std::mem::take(&mut *syncs.lock().expect("lock"));
        let ours = open(&mount.mnt().join("ours"), 0);
        ours.write_all_at(&[1; LEN], 0).expect("write");
        assert_eq!(taken(), [], "nobody else wrote it");
        std::fs::write(mount.base().join("theirs"), [2; LEN]).expect("past the mount");
        let theirs = File::open(mount.mnt().join("theirs")).expect("open");
        theirs.read_at(&mut [0; LEN], 0).expect("read");
        assert_eq!(taken(), [false], "write-back {back}");
        drop((ours, theirs));
        mount.end();
    }
}

/// Base files whose next sync fails when the script says so.
fn failing() -> (DeviceFactory, Arc<FaultScript>) {
    let script = FaultScript::new();
    let faults = Arc::clone(&script);
    let devices: DeviceFactory = Arc::new(move |file, known| {
        let device = FileDevice::from_file(file, known.name, FileOptions::default())?;
        Ok(Arc::new(Faulty::new(device, Arc::clone(&faults), None)))
    });
    (devices, script)
}

/// As on a plain file system, where each descriptor that is open at the time is told once.
#[test]
fn a_sync_of_base_that_failed_is_told_to_each_descriptor_once() {
    for cached in [true, false] {
        let (devices, script) = failing();
        let Some(mount) = TestMount::start(|config| {
            config.rules = common::cache_all(cached);
            config.devices = devices;
            config.passthrough = false;
        }) else {
            return;
        };
        let path = mount.mnt().join("f");
        let (writer, other, synchronous) =
            (open(&path, 0), open(&path, 0), open(&path, libc::O_DSYNC));
        writer.write_all_at(&[1; LEN], 0).expect("write");
        script.load("sync times 1 fail EIO").expect("a script");
        let code = |result: io::Result<()>| result.map_err(|error| error.raw_os_error());
        let (failed, done) = (Err(Some(libc::EIO)), Ok(()));
        let sync = |file: &File| code(file.sync_all());
        assert_eq!(sync(&other), failed, "cached {cached}: base failed");
        let late = open(&path, 0);
        assert_eq!(sync(&writer), failed, "cached {cached}: it wrote");
        assert_eq!(sync(&writer), done, "cached {cached}: told once");
        assert_eq!((sync(&other), sync(&late)), (done, done));
        let write = || code(synchronous.write_all_at(&[2; LEN], 0));
        assert_eq!(write(), failed, "cached {cached}: a synchronous write");
        assert_eq!(write(), done, "cached {cached}: told once");
        drop((writer, other, synchronous, late));
        mount.end();
    }
}

#[test]
fn a_synchronous_write_in_write_back_survives_a_kill() {
    let name = "a_synchronous_write_in_write_back_survives_a_kill";
    if let Some(dir) = std::env::var_os(CHILD) {
        return write_and_die(Path::new(&dir));
    }
    for (pool_bytes, cached) in [(0, true), (256 << 10, true), (256 << 10, false)] {
        let dir = tempfile::tempdir().expect("temporary directory");
        for name in ["base", "mnt"] {
            std::fs::create_dir(dir.path().join(name)).expect("directory");
        }
        let what = format!("{pool_bytes} {cached}");
        std::fs::write(dir.path().join("what"), &what).expect("settings");
        let child = common::again(name, CHILD, dir.path());
        common::detach(&dir.path().join("mnt"));
        let out = String::from_utf8_lossy(&child.stdout);
        if out.contains("no mount here") {
            return;
        }
        assert!(out.contains("all written"), "{child:?}");
        let (engine, handle) = mount(dir.path(), pool_bytes, cached).expect("a second mount");
        for (way, _) in WAYS {
            let content = std::fs::read(dir.path().join("mnt").join(way)).expect("read");
            assert!(
                content.len() == LEN && content.iter().all(|&byte| byte == 2),
                "pool {pool_bytes}, cached {cached}, {way}: {:?} of {} bytes",
                content.first(),
                content.len()
            );
        }
        handle
            .unmount()
            .map_err(|(_, error)| error)
            .expect("unmounted");
        engine.stop().expect("engine stopped");
    }
}

type Mounted = (Arc<thermocline::Engine>, thermocline_mount::MountHandle);

fn mount(dir: &Path, pool_bytes: u64, cached: bool) -> Result<Mounted, String> {
    let engine = common::engine_on_file(&dir.join("cache"), pool_bytes);
    let mut config = MountConfig::new(dir.join("base"), dir.join("mnt"));
    config.rules = common::cache_all(cached);
    let handle = Mount::start(config, Arc::clone(&engine)).map_err(|error| error.to_string())?;
    Ok((engine, handle))
}

/// The child: writes in every way, and is killed at once.
fn write_and_die(dir: &Path) {
    let what = std::fs::read_to_string(dir.join("what")).expect("settings");
    let (pool_bytes, cached) = what.split_once(' ').expect("two settings");
    let pool_bytes = pool_bytes.parse().expect("a number");
    if TestMount::all_cached().is_none() {
        println!("no mount here");
        return;
    }
    let mounted = mount(dir, pool_bytes, cached == "true").expect("mount");
    for (way, _) in WAYS {
        let file = open(&dir.join("mnt").join(way), 0);
        file.write_all_at(&[1; LEN], 0).expect("write");
        file.sync_all().expect("fsync");
    }
    let files = WAYS.map(|(way, _)| write(&dir.join("mnt").join(way), way, 2));
    println!("all written");
    // SAFETY: no memory is passed; the process ends here.
    unsafe { libc::kill(libc::getpid(), libc::SIGKILL) };
    drop((files, mounted));
}

/// A base file whose first sync says that there is no such call.
struct Unknown(FileDevice, Arc<AtomicU32>);

impl Device for Unknown {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.0.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.0.write_at(buf, offset)
    }
    fn sync(&self, data_only: bool) -> io::Result<()> {
        match self.1.fetch_add(1, Ordering::AcqRel) {
            0 => Err(io::Error::from_raw_os_error(libc::ENOSYS)),
            _ => self.0.sync(data_only),
        }
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

#[test]
fn a_sync_that_base_does_not_know_fails_and_the_next_one_is_asked_for() {
    for cached in [true, false] {
        let syncs = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&syncs);
        let devices: DeviceFactory = Arc::new(move |file, known| {
            let device = FileDevice::from_file(file, known.name, FileOptions::default())?;
            Ok(Arc::new(Unknown(device, Arc::clone(&counted))))
        });
        let Some(mount) = TestMount::start(|config| {
            config.rules = common::cache_all(cached);
            config.devices = devices;
            config.passthrough = false;
        }) else {
            return;
        };
        let file = open(&mount.mnt().join("f"), 0);
        file.write_all_at(&[1; LEN], 0).expect("write");
        let refused = file.sync_all().expect_err("base knows no sync");
        assert_eq!(refused.raw_os_error(), Some(libc::EOPNOTSUPP));
        let before = syncs.load(Ordering::Acquire);
        file.write_all_at(&[2; LEN], 0).expect("write");
        file.sync_all().expect("fsync");
        let after = syncs.load(Ordering::Acquire);
        assert!(after > before, "cached {cached}: base was not asked");
        drop(file);
        mount.end();
    }
}
