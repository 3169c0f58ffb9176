//! A base, a mountpoint and a cache that a mount is to refuse.
//!
//! Cases that need root or a FUSE device print "skipped" without them, and fail under
//! `THERMOCLINE_REQUIRE_ALL=1`.

#![allow(dead_code, reason = "each test program uses a part")]

use std::ffi::CString;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::{env, ptr};
use tempfile::TempDir;
use thermocline::store::{Batch, Fate, ObjectChange, SavedObject};
use thermocline::{BaseIdentity, Identity, Stamp, Store, StoreOptions};
use thermocline_core::{BlockId, MapChange, MapEntry, ObjectId, PageId};
use twox_hash::XxHash3_64;

pub(crate) const USAGE: i32 = 2;
pub(crate) const CACHE: i32 = 3;
pub(crate) const SYSTEM: i32 = 4;

/// Size of the caches made here.
pub(crate) const SIZE: u64 = 4 << 20;
/// The user "nobody".
pub(crate) const NOBODY: u32 = 65_534;

/// Whether this process is root; otherwise the case is skipped, or fails when all are required.
pub(crate) fn root(case: &str) -> bool {
    // SAFETY: no arguments, cannot fail.
    let root = unsafe { libc::geteuid() } == 0;
    allowed(case, root, "root")
}

/// Whether there is a FUSE device this process may use.
pub(crate) fn fuse(case: &str) -> bool {
    let device = File::options().read(true).write(true).open("/dev/fuse");
    allowed(case, device.is_ok(), "a FUSE device")
}

pub(crate) fn allowed(case: &str, present: bool, what: &str) -> bool {
    let required = env::var_os("THERMOCLINE_REQUIRE_ALL").is_some_and(|value| value == "1");
    assert!(present || !required, "{case} needs {what}");
    if !present {
        println!("skipped: {case} needs {what}");
    }
    present
}

/// One test at a time: a process being started holds, until it runs its program, what the others
/// have open, locks included.
pub(crate) static TURN: Mutex<()> = Mutex::new(());

/// A base, a mountpoint and a place for a cache, removed at the end.
pub(crate) struct Ground {
    pub(crate) directory: TempDir,
    _turn: Option<MutexGuard<'static, ()>>,
}

impl Ground {
    pub(crate) fn new() -> Self {
        Self::with(Some(TURN.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// A second one in the same test.
    pub(crate) fn another(&self) -> Self {
        Self::with(None)
    }

    pub(crate) fn with(turn: Option<MutexGuard<'static, ()>>) -> Self {
        let directory = tempfile::tempdir().expect("directory");
        let ground = Self {
            directory,
            _turn: turn,
        };
        fs::create_dir(ground.base()).expect("base");
        fs::create_dir(ground.mountpoint()).expect("mountpoint");
        ground
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn base(&self) -> PathBuf {
        self.path("base")
    }

    pub(crate) fn mountpoint(&self) -> PathBuf {
        self.path("mnt")
    }

    pub(crate) fn cache(&self) -> PathBuf {
        self.path("tier")
    }

    /// `thermocline mount BASE MOUNTPOINT` with the words of `options`.
    pub(crate) fn mount(&self, options: &str) -> Command {
        let mut command = thermocline();
        command.arg("mount").arg(self.base()).arg(self.mountpoint());
        command.args(options.split_whitespace());
        command
    }

    /// The same with the cache, in the foreground: nothing stays behind when it is wrongly served.
    pub(crate) fn mount_cache(&self, options: &str) -> Command {
        let mut command = self.mount(options);
        command.arg("--foreground").arg("--cache").arg(self.cache());
        command
    }

    /// Makes the cache as a mount of this base would.
    pub(crate) fn make_cache(&self) -> Store {
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
            ..StoreOptions::default()
        };
        Store::open(&self.cache(), &options).expect("cache")
    }

    /// Makes the cache with that many dirty pages of one file in it.
    pub(crate) fn make_dirty(&self, pages: u64) {
        let store = self.make_cache();
        store.mark_open().expect("opens");
        let bytes = [7; 8192];
        let change = |number: u64| {
            let (block, page) = (BlockId(number as u32), PageId::new(ObjectId(1), number));
            store.write_block(block, &bytes).expect("block");
            let entry = MapEntry {
                page,
                checksum: thermocline::store::checksum(page, &bytes),
                version: 1,
                dirty: true,
            };
            MapChange::Set {
                block,
                entry: Some(entry),
            }
        };
        let object = SavedObject {
            id: ObjectId(1),
            identity: Identity::default(),
            stamp: Stamp::default(),
            name: "base/5/16384".into(),
            fate: Fate::default(),
            promised: true,
        };
        let batch = Batch {
            changes: (0..pages).map(change).collect(),
            objects: vec![ObjectChange::Put(object.clone())],
            time_ns: 1,
        };
        store.commit(&batch).expect("commit");
        store.close(vec![object]).expect("closes");
    }

    /// Gives the only object in the cache another id and name, as somebody would who can make
    /// such a file (docs/flash-format.md).
    pub(crate) fn craft(&self, id: u32, name: &str) {
        let mut cache = fs::read(self.cache()).expect("cache");
        let word = |cache: &[u8], at: usize| {
            u32::from_le_bytes(cache[at..at + 4].try_into().expect("four")) as usize
        };
        let generation = |cache: &[u8], at: usize| word(cache, at + 24);
        let newer = if generation(&cache, 0) > generation(&cache, 4096) {
            0
        } else {
            4096
        };
        let (journal, area) = (word(&cache, newer + 80), word(&cache, newer + 84));
        let table = 8192 + (journal + word(&cache, newer + 96) * area) * 4096;
        let length = word(&cache, newer + 100);
        let object = table + 16;
        let old_name = usize::from(cache[object + 61]);
        let intents = cache[object + 63 + old_name..table + length].to_vec();
        let mut new = cache[table..object + 63].to_vec();
        new[16..20].copy_from_slice(&id.to_le_bytes());
        new[16 + 61] = name.len() as u8;
        new.extend(name.as_bytes());
        new.extend(intents);
        cache[table..table + new.len()].copy_from_slice(&new);
        let put = |cache: &mut [u8], at: usize, bytes: &[u8]| {
            cache[at..at + bytes.len()].copy_from_slice(bytes);
        };
        put(&mut cache, newer + 100, &(new.len() as u32).to_le_bytes());
        put(
            &mut cache,
            newer + 104,
            &XxHash3_64::oneshot(&new).to_le_bytes(),
        );
        let sum = XxHash3_64::oneshot(&cache[newer..newer + 4088]);
        put(&mut cache, newer + 4088, &sum.to_le_bytes());
        fs::write(self.cache(), cache).expect("write");
    }

    /// Changes the cache file.
    pub(crate) fn damage(&self, change: impl FnOnce(&File)) {
        drop(self.make_cache());
        let file = File::options().read(true).write(true).open(self.cache());
        change(&file.expect("cache file"));
    }
}

pub(crate) fn thermocline() -> Command {
    Command::new(env!("CARGO_BIN_EXE_thermocline"))
}

/// Runs `command`, which must fail with `code` and a message with all `parts` and some advice.
pub(crate) fn refused(command: &mut Command, code: i32, parts: &[&str]) {
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

pub(crate) fn message(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

pub(crate) fn text(path: &Path) -> String {
    path.display().to_string()
}

impl Ground {
    /// A mount command that user nobody can start, with base and mountpoint nobody's own.
    pub(crate) fn for_nobody(&self) -> Command {
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
pub(crate) fn unmount(mountpoint: &Path) {
    let output = thermocline()
        .arg("umount")
        .arg(mountpoint)
        .output()
        .expect("runs");
    assert!(output.status.success(), "{}", message(&output));
}

/// Runs `command` where `/dev` holds nothing but what `prepare` makes.
pub(crate) fn in_own_namespace(
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

pub(crate) fn become_nobody() -> io::Result<()> {
    // SAFETY: no pointers but an empty list.
    unsafe {
        check(libc::setgroups(0, ptr::null()))?;
        check(libc::setgid(NOBODY))?;
        check(libc::setuid(NOBODY))
    }
}

pub(crate) fn check(result: libc::c_int) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// A file system in memory, unmounted at the end.
pub(crate) struct Tmpfs {
    path: CString,
}

impl Tmpfs {
    pub(crate) fn mount(path: &Path, options: &str, flags: libc::c_ulong) -> Self {
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
