//! Every way a mount can be refused: what is wrong and what to try, on standard error, and the
//! documented exit code.
//!
//! Cases that need root or a FUSE device print "skipped" without them, and fail under
//! `THERMOCLINE_REQUIRE_ALL=1`.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use std::{env, ptr};
use tempfile::TempDir;
use thermocline::{BaseIdentity, Store, StoreOptions};
use twox_hash::XxHash3_64;

const USAGE: i32 = 2;
const CACHE: i32 = 3;
const SYSTEM: i32 = 4;

/// Size of the caches made here.
const SIZE: u64 = 4 << 20;
/// The user "nobody".
const NOBODY: u32 = 65_534;

/// Whether this process is root; otherwise the case is skipped, or fails when all are required.
fn root(case: &str) -> bool {
    // SAFETY: no arguments, cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    allowed(case, root, "root")
}

/// Whether there is a FUSE device this process may use.
fn fuse(case: &str) -> bool {
    let device = File::options().read(true).write(true).open("/dev/fuse");
    allowed(case, device.is_ok(), "a FUSE device")
}

fn allowed(case: &str, present: bool, what: &str) -> bool {
    let required = env::var_os("THERMOCLINE_REQUIRE_ALL").is_some_and(|value| value == "1");
    assert!(present || !required, "{case} needs {what}");
    if !present {
        println!("skipped: {case} needs {what}");
    }
    present
}

/// One test at a time: a process being started holds, until it runs its program, what the others
/// have open, locks included.
static TURN: Mutex<()> = Mutex::new(());

/// A base, a mountpoint and a place for a cache, removed at the end.
struct Ground {
    directory: TempDir,
    _turn: Option<MutexGuard<'static, ()>>,
}

impl Ground {
    fn new() -> Self {
        Self::with(Some(TURN.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// A second one in the same test.
    fn another(&self) -> Self {
        Self::with(None)
    }

    fn with(turn: Option<MutexGuard<'static, ()>>) -> Self {
        let directory = tempfile::tempdir().expect("directory");
        let ground = Self {
            directory,
            _turn: turn,
        };
        fs::create_dir(ground.base()).expect("base");
        fs::create_dir(ground.mountpoint()).expect("mountpoint");
        ground
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn base(&self) -> PathBuf {
        self.path("base")
    }

    fn mountpoint(&self) -> PathBuf {
        self.path("mnt")
    }

    fn cache(&self) -> PathBuf {
        self.path("tier")
    }

    /// `thermocline mount BASE MOUNTPOINT` with the words of `options`.
    fn mount(&self, options: &str) -> Command {
        let mut command = thermocline();
        command.arg("mount").arg(self.base()).arg(self.mountpoint());
        command.args(options.split_whitespace());
        command
    }

    /// The same with the cache, in the foreground: nothing stays behind when it is wrongly served.
    fn mount_cache(&self, options: &str) -> Command {
        let mut command = self.mount(options);
        command.arg("--foreground").arg("--cache").arg(self.cache());
        command
    }

    /// Makes the cache as a mount of this base would.
    fn make_cache(&self) -> Store {
        let base = fs::metadata(self.base()).expect("base");
        let options = StoreOptions {
            page_size: 8192,
            size: Some(SIZE),
            base: BaseIdentity {
                file_system: base.dev(),
                inode: base.ino(),
                path: self.base().display().to_string(),
                ..BaseIdentity::default()
            },
            format: false,
            deadline: None,
        };
        Store::open(&self.cache(), &options).expect("cache")
    }

    /// Changes the cache file.
    fn damage(&self, change: impl FnOnce(&File)) {
        drop(self.make_cache());
        let file = File::options().read(true).write(true).open(self.cache());
        change(&file.expect("cache file"));
    }
}

fn thermocline() -> Command {
    Command::new(env!("CARGO_BIN_EXE_thermocline"))
}

/// Runs `command`, which must fail with `code` and a message with all `parts` and some advice.
fn refused(command: &mut Command, code: i32, parts: &[&str]) {
    let output = command.output().expect("runs");
    let message = message(&output);
    assert_eq!(output.status.code(), Some(code), "{command:?}: {message}");
    assert!(message.starts_with("error: "), "{message}");
    assert!(message.contains("\n  try: "), "no advice: {message}");
    assert!(!message.contains("os error"), "{message}");
    for part in parts {
        assert!(message.contains(part), "no \"{part}\" in: {message}");
    }
}

fn message(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn text(path: &Path) -> String {
    path.display().to_string()
}

#[test]
fn base_missing_or_not_a_directory() {
    let ground = Ground::new();
    fs::remove_dir(ground.base()).expect("remove");
    let base = text(&ground.base());
    refused(
        &mut ground.mount_cache("--size 4M"),
        USAGE,
        &[&base, "does not exist"],
    );
    fs::write(ground.base(), "x").expect("file");
    refused(
        &mut ground.mount_cache("--size 4M"),
        USAGE,
        &[&base, "not a directory"],
    );
    assert!(
        !ground.cache().exists(),
        "nothing is made before the checks"
    );
}

#[test]
fn base_read_only() {
    if !root("base_read_only") {
        return;
    }
    let ground = Ground::new();
    let _base = Tmpfs::mount(&ground.base(), "size=1m", libc::MS_RDONLY);
    let base = text(&ground.base());
    refused(
        &mut ground.mount_cache("--size 4M"),
        SYSTEM,
        &[&base, "read-only"],
    );
}

#[test]
fn mountpoint_missing_used_or_inside_base() {
    let ground = Ground::new();
    let with = |mountpoint: &Path| {
        let mut command = thermocline();
        command
            .arg("mount")
            .arg(ground.base())
            .arg(mountpoint)
            .arg("--cache");
        command
            .arg(ground.cache())
            .args(["--size", "4M", "--foreground"]);
        command
    };
    refused(
        &mut with(&ground.path("no")),
        USAGE,
        &["no does not exist", "mkdir -p"],
    );
    let inside = ground.base().join("inside");
    fs::create_dir(&inside).expect("directory");
    refused(
        &mut with(&inside),
        USAGE,
        &["is inside base", &text(&ground.base())],
    );
    refused(&mut with(&ground.base()), USAGE, &["is inside base"]);
    refused(
        &mut with(ground.directory.path()),
        USAGE,
        &["is inside mountpoint"],
    );
    let link = ground.path("link");
    symlink(&inside, &link).expect("link");
    refused(&mut with(&link), USAGE, &["is inside base"]);
    let used = ground.path("used");
    fs::create_dir(&used).expect("directory");
    fs::write(used.join("file"), "x").expect("file");
    refused(&mut with(&used), USAGE, &["not empty"]);
    refused(&mut with(&used.join("file")), USAGE, &["not a directory"]);
}

#[test]
fn cache_not_named_or_in_an_impossible_place() {
    if !fuse("cache_not_named_or_in_an_impossible_place") {
        return;
    }
    let ground = Ground::new();
    refused(
        &mut ground.mount("--size 4M"),
        USAGE,
        &["no cache file", "--cache"],
    );
    let inside = format!("--size 4M --cache {}", text(&ground.base().join("tier")));
    refused(
        &mut ground.mount(&inside),
        USAGE,
        &["inside the base directory"],
    );
    refused(
        &mut ground.mount_cache(""),
        USAGE,
        &["does not exist yet", "--size"],
    );
    refused(&mut ground.mount_cache("--size 4k"), USAGE, &["too small"]);
    refused(
        &mut ground.mount_cache("--size 4M --page-size 5000"),
        USAGE,
        &["5000", "8KiB"],
    );
    let block = "--size 4M --foreground --cache /dev/null";
    let output = ground.mount(block).output().expect("runs");
    assert!(!output.status.success(), "/dev/null is no cache");
}

#[test]
fn cache_file_of_something_else_or_of_another_base() {
    if !fuse("cache_file_of_something_else_or_of_another_base") {
        return;
    }
    let ground = Ground::new();
    fs::write(ground.cache(), "my thesis, the only copy\n".repeat(1000)).expect("file");
    let cache = text(&ground.cache());
    refused(
        &mut ground.mount_cache("--size 4M"),
        CACHE,
        &[&cache, "does not hold a cache"],
    );
    let kept = fs::read_to_string(ground.cache()).expect("file");
    assert!(
        kept.starts_with("my thesis"),
        "what is refused is not touched"
    );

    let other = ground.another();
    drop(other.make_cache());
    fs::copy(other.cache(), ground.cache()).expect("copy");
    let parts = [
        &*cache,
        "belongs to base",
        &text(&other.base()),
        &text(&ground.base()),
    ];
    refused(&mut ground.mount_cache(""), CACHE, &parts);
}

#[test]
fn cache_of_another_shape() {
    if !fuse("cache_of_another_shape") {
        return;
    }
    let ground = Ground::new();
    drop(ground.make_cache());
    let page_size = ["pages of 8192 bytes", "16384", "--page-size 8192"];
    refused(
        &mut ground.mount_cache("--page-size 16k"),
        CACHE,
        &page_size,
    );
    let size = ["4194304 bytes", "8388608", "--size"];
    refused(&mut ground.mount_cache("--size 8M"), CACHE, &size);
}

#[test]
fn cache_of_another_version() {
    if !fuse("cache_of_another_version") {
        return;
    }
    let ground = Ground::new();
    ground.damage(|file| {
        for copy in [0, 4096] {
            let mut block = [0; 4096];
            file.read_exact_at(&mut block, copy).expect("read");
            block[8..12].copy_from_slice(&77_u32.to_le_bytes());
            let checksum = XxHash3_64::oneshot(&block[..4088]);
            block[4088..].copy_from_slice(&checksum.to_le_bytes());
            file.write_all_at(&block, copy).expect("write");
        }
    });
    refused(
        &mut ground.mount_cache(""),
        CACHE,
        &["format version 77", "version 2", "--format"],
    );
}

#[test]
fn superblock_corrupt_or_truncated() {
    if !fuse("superblock_corrupt_or_truncated") {
        return;
    }
    let ground = Ground::new();
    ground.damage(|file| {
        for copy in [0, 4096] {
            file.write_all_at(b"?", copy + 50).expect("write");
        }
    });
    refused(
        &mut ground.mount_cache(""),
        CACHE,
        &["superblock", "--format"],
    );
    for (length, word) in [(100, "superblock"), (2 << 20, "truncated")] {
        fs::remove_file(ground.cache()).expect("remove");
        ground.damage(|file| file.set_len(length).expect("cut"));
        refused(&mut ground.mount_cache(""), CACHE, &[word, "--format"]);
    }
}

#[test]
fn cache_in_use() {
    if !fuse("cache_in_use") {
        return;
    }
    let ground = Ground::new();
    let _held = ground.make_cache();
    let cache = text(&ground.cache());
    refused(
        &mut ground.mount_cache(""),
        CACHE,
        &[&cache, "in use by another mount"],
    );
    refused(
        &mut ground.mount_cache("--format --size 4M"),
        CACHE,
        &["in use"],
    );
}

#[test]
fn the_error_of_a_background_mount_reaches_the_caller() {
    if !fuse("the_error_of_a_background_mount_reaches_the_caller") {
        return;
    }
    let ground = Ground::new();
    let _held = ground.make_cache();
    let mut command = ground.mount("");
    refused(
        command.arg("--cache").arg(ground.cache()),
        CACHE,
        &["in use by another mount"],
    );
}

#[test]
fn no_fuse_device() {
    if !root("no_fuse_device") {
        return;
    }
    let ground = Ground::new();
    let mut command = ground.mount_cache("--size 4M");
    in_own_namespace(&mut command, || Ok(()));
    refused(&mut command, SYSTEM, &["no FUSE device", "modprobe fuse"]);
    assert!(
        !ground.cache().exists(),
        "nothing is made before the checks"
    );
}

#[test]
fn no_permission_for_the_fuse_device() {
    if !root("no_permission_for_the_fuse_device") {
        return;
    }
    let ground = Ground::new();
    let mut command = ground.for_nobody();
    in_own_namespace(&mut command, || {
        let (name, mode) = (c"/dev/fuse", libc::S_IFCHR | 0o600);
        // SAFETY: `name` is a terminated string.
        check(unsafe { libc::mknod(name.as_ptr(), mode, libc::makedev(10, 229)) })?;
        become_nobody()
    });
    refused(&mut command, SYSTEM, &["no permission", "/dev/fuse"]);
}

#[test]
fn no_permission_for_base_or_cache() {
    if !root("no_permission_for_base_or_cache") {
        return;
    }
    let ground = Ground::new();
    let run = || {
        let mut command = ground.for_nobody();
        in_own_namespace(&mut command, || {
            let (name, mode) = (c"/dev/fuse", libc::S_IFCHR | 0o666);
            // SAFETY: `name` is a terminated string; clearing the mask needs nothing.
            check(unsafe { libc::mknod(name.as_ptr(), mode, libc::makedev(10, 229)) })?;
            // SAFETY: as above.
            check(unsafe { libc::chmod(name.as_ptr(), 0o666) })?;
            become_nobody()
        });
        command
    };
    drop(ground.make_cache());
    let cache = text(&ground.cache());
    refused(&mut run(), SYSTEM, &[&cache, "Permission denied"]);
    let mut command = run();
    fs::set_permissions(ground.base(), PermissionsExt::from_mode(0o500)).expect("mode");
    std::os::unix::fs::chown(ground.base(), Some(0), Some(0)).expect("owner");
    refused(&mut command, SYSTEM, &[&text(&ground.base())]);
}

#[test]
fn flash_full() {
    if !root("flash_full") || !fuse("flash_full") {
        return;
    }
    let ground = Ground::new();
    let flash = ground.path("flash");
    fs::create_dir(&flash).expect("directory");
    let _flash = Tmpfs::mount(&flash, "size=1m", 0);
    let cache = flash.join("tier");
    let options = format!("--foreground --size 4M --cache {}", text(&cache));
    refused(
        &mut ground.mount(&options),
        CACHE,
        &[&text(&cache), "no room", "--size"],
    );
    assert!(!cache.exists(), "a cache that found no room is removed");
}

#[test]
fn base_full() {
    if !root("base_full") || !fuse("base_full") {
        return;
    }
    let ground = Ground::new();
    let _base = Tmpfs::mount(&ground.base(), "size=1m", 0);
    let mut command = ground.mount("--size 4M");
    let output = command
        .arg("--cache")
        .arg(ground.cache())
        .output()
        .expect("runs");
    assert!(output.status.success(), "{}", message(&output));
    let path = ground.mountpoint().join("base/5");
    fs::create_dir_all(&path).expect("directories");
    let mut file = File::create(path.join("16384")).expect("file");
    let page = [7; 8192];
    let filled = (0..256)
        .find_map(|_| file.write_all(&page).err())
        .expect("full before 2 MiB");
    assert_eq!(filled.kind(), ErrorKind::StorageFull);
    drop(file);
    let written = fs::read(path.join("16384")).expect("read");
    assert!(written.len() > 8192 && written.iter().all(|byte| *byte == 7));
    fs::remove_file(path.join("16384")).expect("remove");
    // The kernel tells the mount of the last close when it pleases; until then base keeps the file.
    let start = Instant::now();
    while let Err(error) = fs::write(path.join("16385"), page) {
        assert_eq!(error.kind(), ErrorKind::StorageFull);
        assert!(
            start.elapsed() < Duration::from_secs(60),
            "no room after removing the file"
        );
    }
    unmount(&ground.mountpoint());
    assert_eq!(
        fs::read(ground.base().join("base/5/16385")).expect("base"),
        page
    );
}

#[test]
fn mounted_twice_and_unmounted_while_used() {
    if !fuse("mounted_twice_and_unmounted_while_used") || !root("unmounting") {
        return;
    }
    let ground = Ground::new();
    let mut command = ground.mount("--size 4M");
    let output = command
        .arg("--cache")
        .arg(ground.cache())
        .output()
        .expect("runs");
    assert!(output.status.success(), "{}", message(&output));
    let twice = ["already", "thermocline umount"];
    refused(&mut ground.mount_cache(""), USAGE, &twice);
    let open = File::create(ground.mountpoint().join("open")).expect("file");
    let mut umount = thermocline();
    refused(
        umount.arg("umount").arg(ground.mountpoint()),
        1,
        &["is in use", "fuser"],
    );
    drop(open);
    unmount(&ground.mountpoint());
}

impl Ground {
    /// A mount command that user nobody can start, with base and mountpoint nobody's own.
    fn for_nobody(&self) -> Command {
        let program = self.path("thermocline");
        if !program.exists() {
            fs::copy(env!("CARGO_BIN_EXE_thermocline"), &program).expect("copy");
        }
        for path in [
            self.directory.path(),
            &program,
            &self.base(),
            &self.mountpoint(),
        ] {
            fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("mode");
        }
        for path in [self.base(), self.mountpoint()] {
            std::os::unix::fs::chown(path, Some(NOBODY), Some(NOBODY)).expect("owner");
        }
        let mut command = Command::new(program);
        command.arg("mount").arg(self.base()).arg(self.mountpoint());
        command.arg("--foreground").arg("--size").arg("4M");
        command.arg("--cache").arg(self.cache());
        command
    }
}

/// Unmounts; the serving process has ended when this returns.
fn unmount(mountpoint: &Path) {
    let output = thermocline()
        .arg("umount")
        .arg(mountpoint)
        .output()
        .expect("runs");
    assert!(output.status.success(), "{}", message(&output));
}

/// Runs `command` where `/dev` holds nothing but what `prepare` makes.
fn in_own_namespace(
    command: &mut Command,
    prepare: impl Fn() -> io::Result<()> + Send + Sync + 'static,
) {
    // SAFETY: between fork and exec only system calls are made, on constant strings.
    unsafe {
        command.pre_exec(move || {
            check(libc::unshare(libc::CLONE_NEWNS))?;
            let private = libc::MS_REC | libc::MS_PRIVATE;
            let none = ptr::null();
            check(libc::mount(
                c"none".as_ptr(),
                c"/".as_ptr(),
                none,
                private,
                none.cast(),
            ))?;
            let (dev, tmpfs) = (c"/dev".as_ptr(), c"tmpfs".as_ptr());
            check(libc::mount(
                tmpfs,
                dev,
                tmpfs,
                0,
                c"mode=755".as_ptr().cast(),
            ))?;
            prepare()
        });
    }
}

fn become_nobody() -> io::Result<()> {
    // SAFETY: no pointers but an empty list.
    unsafe {
        check(libc::setgroups(0, ptr::null()))?;
        check(libc::setgid(NOBODY))?;
        check(libc::setuid(NOBODY))
    }
}

fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// A file system in memory, unmounted at the end.
struct Tmpfs {
    path: CString,
}

impl Tmpfs {
    fn mount(path: &Path, options: &str, flags: libc::c_ulong) -> Self {
        let path = CString::new(path.as_os_str().as_bytes()).expect("path");
        let options = CString::new(options).expect("options");
        let tmpfs = c"tmpfs".as_ptr();
        // SAFETY: all are terminated strings that outlive the call.
        let result =
            unsafe { libc::mount(tmpfs, path.as_ptr(), tmpfs, flags, options.as_ptr().cast()) };
        check(result).expect("mount tmpfs");
        Self { path }
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        // SAFETY: a terminated string. A failure leaves a mount in a temporary directory.
        unsafe { libc::umount2(self.path.as_ptr(), libc::MNT_DETACH) };
    }
}
