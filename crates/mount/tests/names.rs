//! Files that lose their names, change their attributes, or are changed behind the mount, while the
//! newest bytes are in DRAM or on flash.

mod common;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use common::TestMount;
use thermocline_mount::{Caller, Fs, ROOT, SetAttr, Time, WriteOptions, file_devices};

const PAGE: usize = common::PAGE as usize;

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path).expect("open")
}

fn pages(fill: u8) -> Vec<u8> {
    vec![fill; 4 * PAGE]
}

fn read(file: &File) -> Vec<u8> {
    let mut bytes = pages(0);
    file.read_exact_at(&mut bytes, 0).expect("read");
    bytes
}

/// A mount in write-back, with and without a pool.
fn mounts() -> impl Iterator<Item = TestMount> {
    let start = |pool| {
        let engine = common::engine_back(8 << 20, pool);
        TestMount::start_with(engine, |config| config.rules = common::cache_everything())
    };
    [0, 512 << 10].into_iter().filter_map(start)
}

/// Waits until the background has done what it does without being asked.
fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let begin = Instant::now();
    while !holds() {
        assert!(begin.elapsed() < Duration::from_secs(60), "never: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_file_without_a_name_keeps_its_newest_bytes_while_it_is_open() {
    for mount in mounts() {
        for synced in [false, true] {
            let file = open(&mount.mnt().join("a"));
            file.write_all_at(&pages(1), 0).expect("write");
            file.sync_all().expect("fsync");
            file.write_all_at(&pages(2), 0).expect("write");
            if synced {
                file.sync_all().expect("fsync");
            }
            fs::remove_file(mount.mnt().join("a")).expect("unlink");
            assert_eq!(read(&file), pages(2), "unlinked, synced {synced}");
            // Whoever has the inode can open it again, and sees the same.
            let again = open(Path::new(&format!("/proc/self/fd/{}", file.as_raw_fd())));
            drop(file);
            assert_eq!(read(&again), pages(2), "opened again, synced {synced}");
            again.write_all_at(&pages(3), 0).expect("write");
            again.sync_all().expect("fsync");
            assert_eq!(read(&again), pages(3));
            drop(again);
            eventually("its pages go", || mount.engine.dirty_pages() == 0);
        }
        mount.end();
    }
}

#[test]
fn the_victim_of_a_rename_keeps_its_newest_bytes_while_it_is_open() {
    for mount in mounts() {
        let (victim, other) = (open(&mount.mnt().join("a")), open(&mount.mnt().join("b")));
        for (file, fill) in [(&victim, 1), (&other, 5)] {
            file.write_all_at(&pages(fill), 0).expect("write");
            file.sync_all().expect("fsync");
            file.write_all_at(&pages(fill + 1), 0).expect("write");
        }
        fs::rename(mount.mnt().join("b"), mount.mnt().join("a")).expect("rename");
        assert_eq!(read(&victim), pages(2));
        assert_eq!(read(&open(&mount.mnt().join("a"))), pages(6));
        drop((victim, other));
        mount.end();
    }
}

#[test]
fn a_file_that_was_removed_leaves_nothing_to_the_next_of_its_inode_number() {
    for mount in mounts() {
        for round in 0..40u8 {
            let path = mount.mnt().join(format!("f{}", round % 3));
            let file = open(&path);
            let before = file.metadata().expect("stat").len();
            assert_eq!(before, 0, "round {round}");
            file.set_len(4 * PAGE as u64).expect("grow");
            assert_eq!(read(&file), pages(0), "round {round}");
            file.write_all_at(&pages(round + 1), 0).expect("write");
            file.write_all_at(&pages(round + 2), 0).expect("write");
            assert_eq!(read(&file), pages(round + 2));
            drop(file);
            fs::remove_file(&path).expect("unlink");
        }
        mount.end();
    }
}

#[test]
fn overwriting_moves_the_time_of_change_and_writing_back_does_not() {
    for mount in mounts() {
        let path = mount.mnt().join("a");
        let file = open(&path);
        file.write_all_at(&pages(1), 0).expect("write");
        file.sync_all().expect("fsync");
        let past = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
        file.set_modified(past).expect("utimens");
        file.write_all_at(&pages(2), 0).expect("write");
        let now = fs::metadata(&path).expect("stat").mtime();
        assert!(now > 1_000_000_000, "an overwrite is a change: {now}");
        // What is set by hand stays, whatever is written back later.
        file.write_all_at(&pages(3), 0).expect("write");
        file.set_modified(past).expect("utimens");
        assert_eq!(fs::metadata(&path).expect("stat").mtime(), 1_000_000_000);
        mount.engine.flush(|_| true).expect("written back");
        drop(file);
        let base = fs::metadata(mount.base().join("a")).expect("stat");
        assert_eq!(base.mtime(), 1_000_000_000, "writing back is no change");
        assert_eq!(fs::read(mount.base().join("a")).expect("base"), pages(3));
        mount.end();
    }
}

/// The kernel takes the attributes of a look-up for a second.
#[test]
fn looking_a_written_file_up_tells_its_time_of_change() {
    let [pool, flash] = [512 << 10, 0].map(|pool| common::engine_back(8 << 20, pool));
    let dir = tempfile::tempdir().expect("temporary directory");
    for engine in [pool, flash] {
        let rules = common::cache_everything();
        let mount = Fs::new(dir.path().into(), engine, file_devices(), rules, None);
        let mount = mount.expect("file system");
        fs::write(dir.path().join("a"), pages(1)).expect("write");
        let found = || mount.lookup(ROOT, OsStr::new("a")).expect("found");
        let handle = mount.open(found().id, libc::O_RDWR).expect("opened").handle;
        write_and_sync(&mount, handle, 2);
        let set = SetAttr {
            mtime: Some(Time::At(1_000_000_000, 0)),
            ..SetAttr::default()
        };
        mount.setattr(found().id, &set).expect("utimens");
        assert_eq!(found().stat.st_mtime, 1_000_000_000);
        let written = mount.write(NOBODY, handle, 0, &pages(3), WriteOptions::default());
        written.expect("written");
        let stat = found().stat;
        assert!(stat.st_mtime > 1_000_000_000, "{}", stat.st_mtime);
        mount.release(handle).expect("closed");
        mount.close_all();
        mount.engine().stop().expect("stopped");
    }
}

#[test]
fn what_is_changed_on_base_is_seen_within_a_second() {
    for mount in mounts() {
        let (seen, base) = (mount.mnt(), mount.base());
        for name in ["a", "b"] {
            fs::write(base.join(name), pages(1)).expect("write");
            assert_eq!(fs::read(seen.join(name)).expect("read"), pages(1));
        }
        eventually("they are closed", || mount.handle().fs().held().1 == 0);
        fs::write(base.join("a"), [2; 10]).expect("write");
        fs::rename(base.join("b"), base.join("c")).expect("rename");
        std::thread::sleep(Duration::from_millis(1200));
        assert_eq!(fs::metadata(seen.join("a")).expect("stat").len(), 10);
        assert_eq!(fs::read(seen.join("a")).expect("read"), [2; 10]);
        assert!(fs::metadata(seen.join("b")).is_err(), "it was renamed");
        assert_eq!(fs::read(seen.join("c")).expect("read"), pages(1));
        mount.end();
    }
}

#[test]
fn a_closed_file_restored_on_base_with_its_old_times_is_noticed() {
    let Some(mount) = TestMount::all_cached() else {
        return;
    };
    let path = mount.mnt().join("a");
    let file = open(&path);
    file.write_all_at(&pages(1), 0).expect("write");
    file.sync_all().expect("fsync");
    for _ in 0..3 {
        assert_eq!(read(&file), pages(1));
    }
    let times = file.metadata().expect("stat").modified().expect("mtime");
    drop(file);
    eventually("it is closed", || mount.handle().fs().held().1 == 0);
    // Attributes changed through the mount are its own doing, and cost no page.
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o640)).expect("chmod");
    let stale = || {
        mount
            .engine
            .stats()
            .tier
            .map_or(0, |tier| tier.stale_objects)
    };
    assert_eq!(read(&open(&path)), pages(1));
    assert_eq!(stale(), 0, "a chmod through the mount");
    eventually("it is closed again", || mount.handle().fs().held().1 == 0);
    let base = open(&mount.base().join("a"));
    base.write_all_at(&pages(9), 0).expect("restore");
    base.set_modified(times).expect("utimens");
    drop(base);
    eventually("the restored file is seen", || {
        read(&open(&path)) == pages(9)
    });
    mount.end();
}

/// A file system without a mount over `base`, in write-back with a cache file.
fn over(base: &Path, cache: &Path) -> Fs {
    let (engine, rules) = (common::engine_on_file(cache, 0), common::cache_everything());
    Fs::new(base.into(), engine, file_devices(), rules, None).expect("file system")
}

const NOBODY: Caller = Caller {
    uid: 0,
    gid: 0,
    tid: 0,
};

fn write_and_sync(fs: &Fs, handle: u64, fill: u8) {
    let options = WriteOptions::default();
    let written = fs.write(NOBODY, handle, 0, &pages(fill), options);
    written
        .and_then(|()| fs.fsync(handle, false))
        .expect("durable");
}

#[test]
fn a_file_that_is_opened_after_its_last_name_went_is_not_waited_for() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (base, cache) = (dir.path().join("base"), dir.path().join("cache"));
    fs::create_dir(&base).expect("base");
    fs::write(base.join("a"), pages(1)).expect("write");
    let mount = over(&base, &cache);
    let node = mount.lookup(ROOT, OsStr::new("a")).expect("found").id;
    mount.unlink(ROOT, OsStr::new("a")).expect("unlinked");
    // As through `/proc/self/fd` of a descriptor that was opened with `O_PATH`.
    let handle = mount.open(node, libc::O_RDWR).expect("opened").handle;
    write_and_sync(&mount, handle, 2);
    assert!(mount.engine().dirty_pages() > 0);
    let crashed = dir.path().join("crashed");
    fs::copy(&cache, &crashed).expect("what a crash leaves");
    over(&base, &crashed)
        .adopt_dirty(false)
        .expect("not waited for");
    mount.release(handle).expect("closed");
    mount.forget(node, 1);
    eventually("its pages go", || mount.engine().dirty_pages() == 0);
    mount.engine().stop().expect("stopped");
}

#[test]
fn a_file_that_is_renamed_while_it_is_closed_keeps_its_pages() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let (base, cache) = (dir.path().join("base"), dir.path().join("cache"));
    fs::create_dir(&base).expect("base");
    fs::write(base.join("a"), pages(1)).expect("write");
    let mount = over(&base, &cache);
    let node = mount.lookup(ROOT, OsStr::new("a")).expect("found").id;
    let handle = mount.open(node, libc::O_RDWR).expect("opened").handle;
    write_and_sync(&mount, handle, 2);
    mount.release(handle).expect("closed");
    mount.engine().flush(|_| true).expect("written back");
    eventually("it is closed", || mount.engine().open_objects() == 0);
    let [a, b] = ["a", "b"].map(|name| (ROOT, OsStr::new(name)));
    mount.rename(a, b, 0).expect("renamed");
    mount.close_all();
    mount.engine().stop().expect("stopped");
    drop(mount);
    let mount = over(&base, &cache);
    mount.adopt_dirty(false).expect("nothing waits");
    let node = mount.lookup(ROOT, OsStr::new("b")).expect("found").id;
    let handle = mount.open(node, libc::O_RDONLY).expect("opened").handle;
    let mut bytes = pages(0);
    let read = mount.read(NOBODY, handle, 0, &mut bytes).expect("read");
    assert_eq!((read, bytes), (4 * PAGE, pages(2)));
    assert_eq!(mount.engine().stats().page_reads["flash"], 4);
    mount.release(handle).expect("closed");
    mount.engine().stop().expect("stopped");
}

/// An overlay that is taken away with its directory.
struct Overlay(tempfile::TempDir);

impl Overlay {
    /// One whose file `a` gets another inode number when it is copied up: it has two names.
    fn new() -> Option<Self> {
        let dir = tempfile::tempdir().expect("temporary directory");
        for part in ["lower", "upper", "work", "merged"] {
            fs::create_dir(dir.path().join(part)).expect("a part");
        }
        let lower = dir.path().join("lower");
        fs::write(lower.join("a"), pages(1)).expect("write");
        fs::hard_link(lower.join("a"), lower.join("b")).expect("link");
        let parts = "lowerdir=lower,upperdir=upper,workdir=work,index=off";
        let mounted = std::process::Command::new("mount")
            .args(["-t", "overlay", "-o", parts, "overlay", "merged"])
            .current_dir(dir.path())
            .status();
        let mounted = mounted.is_ok_and(|status| status.success());
        let required = std::env::var_os("THERMOCLINE_REQUIRE_ALL").is_some();
        assert!(mounted || !required, "required, but no overlay");
        mounted.then(|| Self(dir))
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        common::detach(&self.0.path().join("merged"));
    }
}

#[test]
fn a_file_that_an_overlay_copies_up_is_looked_up_again() {
    let Some(overlay) = common::is_root().then(Overlay::new).flatten() else {
        eprintln!("skipped: no overlay");
        return;
    };
    let base = overlay.0.path().join("merged");
    let mount = over(&base, &overlay.0.path().join("cache"));
    let found = || mount.lookup(ROOT, OsStr::new("a")).expect("found").id;
    let refused = mount.open(found(), libc::O_RDWR).expect_err("copied up");
    assert_eq!(refused.raw_os_error(), Some(libc::ESTALE));
    let handle = mount.open(found(), libc::O_RDWR).expect("opened").handle;
    write_and_sync(&mount, handle, 2);
    mount.release(handle).expect("closed");
    mount.close_all();
    mount.engine().flush(|_| true).expect("written back");
    assert_eq!(fs::read(base.join("a")).expect("read"), pages(2));
    mount.engine().stop().expect("stopped");
}

const CHILD: &str = "THERMOCLINE_TEST_NAMES";

#[test]
fn a_file_that_cannot_be_looked_at_keeps_its_name() {
    if let Some(dir) = std::env::var_os(CHILD) {
        return lose_names_without_descriptors(Path::new(&dir));
    }
    let dir = tempfile::tempdir().expect("temporary directory");
    let name = "a_file_that_cannot_be_looked_at_keeps_its_name";
    let child = common::again(name, CHILD, dir.path());
    let said = String::from_utf8_lossy(&child.stderr);
    assert!(child.status.success(), "{said}");
    assert_eq!(fs::read(dir.path().join("b")).expect("it is there"), b"b");
}

fn lose_names_without_descriptors(base: &Path) {
    for name in ["a", "b"] {
        fs::write(base.join(name), name).expect("write");
    }
    let (engine, rules) = (common::engine_back(1 << 20, 0), common::cache_everything());
    // A thread that starts opens a file for a moment (its allocator asks for the processors): the
    // descriptor would be free later.
    std::thread::sleep(std::time::Duration::from_millis(500));
    let mount = Fs::new(base.into(), engine, file_devices(), rules, None).expect("file system");
    let [a, b] = ["a", "b"].map(|name| (ROOT, OsStr::new(name)));
    let unlinked = with_descriptors(0, || mount.unlink(b.0, b.1));
    // One is enough for the file that is moved, and not for the one it is moved over.
    let renamed = with_descriptors(1, || mount.rename(a, b, 0));
    for refused in [unlinked, renamed] {
        let code = refused.expect_err("no descriptor").raw_os_error();
        assert_eq!(code, Some(libc::EMFILE));
    }
    assert_eq!(fs::read(base.join("a")).expect("it is there"), b"a");
    let absent = (ROOT, OsStr::new("c"));
    let node = mount.lookup(a.0, a.1).expect("found").id;
    for way in 0..4 {
        let made = with_descriptors(0, || match way {
            0 => mount.mkdir(NOBODY, ROOT, absent.1, 0o755),
            1 => mount.symlink(NOBODY, ROOT, absent.1, OsStr::new("a")),
            2 => mount.mknod(NOBODY, ROOT, absent.1, libc::S_IFREG | 0o644, 0),
            _ => mount.link(node, ROOT, absent.1),
        });
        let code = made.err().and_then(|error| error.raw_os_error());
        assert_eq!(code, Some(libc::EMFILE));
        assert!(fs::symlink_metadata(base.join("c")).is_err(), "way {way}");
    }
    let whiteout = mount.rename(a, absent, libc::RENAME_WHITEOUT);
    let code = whiteout.err().and_then(|error| error.raw_os_error());
    assert_eq!(code, Some(libc::EINVAL));
    let code = |done: io::Result<()>| done.err().and_then(|error| error.raw_os_error());
    assert_eq!(code(mount.unlink(absent.0, absent.1)), Some(libc::ENOENT));
    assert_eq!(code(mount.rename(a, absent, 0)), None);
    assert_eq!(code(mount.rename(absent, a, 0)), None);
}

/// Does something while the process has so many descriptors left.
fn with_descriptors<T>(left: u64, work: impl FnOnce() -> T) -> T {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let lowest = File::open("/dev/null").expect("open").as_raw_fd() as u64;
    // SAFETY: `limit` is a valid `rlimit` in both calls.
    let set = unsafe {
        assert_eq!(libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit), 0);
        let short = libc::rlimit {
            rlim_cur: lowest + left,
            ..limit
        };
        libc::setrlimit(libc::RLIMIT_NOFILE, &raw const short)
    };
    assert_eq!(set, 0);
    let done = work();
    // SAFETY: as above.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert_eq!(set, 0);
    done
}
