//! Through a real mount, with the system calls databases make. Every file is cached unless a
//! test says otherwise, so that the tier is in the path of each of them.

mod common;

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use common::{Random, TestMount};
use thermocline_mount::{ControlFile, ControlFiles, Error, Mount, MountConfig};

/// Starts a mount, or ends the test as skipped.
macro_rules! mount {
    () => {
        match TestMount::all_cached() {
            Some(mount) => mount,
            None => return,
        }
    };
}

fn open_rw(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .expect("open")
}

fn check(result: i32) -> io::Result<()> {
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(())
    }
}

fn c_path(path: &Path) -> CString {
    CString::new(path.as_os_str().as_bytes()).expect("path")
}

fn fallocate(file: &File, mode: i32, offset: i64, len: i64) -> io::Result<()> {
    // SAFETY: no memory is passed.
    check(unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len) })
}

#[test]
fn what_is_written_is_on_the_base_byte_for_byte() {
    let mount = mount!();
    let mut random = Random::new(1);
    let content = random.bytes(100_000);
    fs::write(mount.mnt().join("f"), &content).expect("write");
    assert_eq!(fs::read(mount.mnt().join("f")).expect("read"), content);
    assert_eq!(
        fs::read(mount.base().join("f")).expect("read base"),
        content
    );
    assert_eq!(
        fs::metadata(mount.mnt().join("f")).expect("stat").len(),
        100_000
    );
    mount.end();
}

#[test]
fn a_file_renamed_over_an_open_one_leaves_the_old_content_readable() {
    let mount = mount!();
    let (old, new) = (mount.mnt().join("old"), mount.mnt().join("new"));
    fs::write(&old, b"old content").expect("write");
    fs::write(&new, b"new content").expect("write");
    let mut reader = File::open(&old).expect("open");
    fs::rename(&new, &old).expect("rename over an open file");
    let mut text = String::new();
    reader.read_to_string(&mut text).expect("read");
    assert_eq!(text, "old content");
    assert_eq!(fs::read(&old).expect("read"), b"new content");
    assert!(!new.exists());
    drop(reader);
    mount.end();
}

#[test]
fn an_unlinked_open_file_lives_until_it_is_closed_and_is_then_trimmed() {
    let mount = mount!();
    let path = mount.mnt().join("gone");
    let file = open_rw(&path);
    fs::remove_file(&path).expect("unlink");
    // Databases write temporary files after they unlinked them.
    let content = Random::new(2).bytes(40_000);
    file.write_all_at(&content, 0).expect("write after unlink");
    let mut back = vec![0; content.len()];
    file.read_exact_at(&mut back, 0).expect("read after unlink");
    assert_eq!(back, content);
    let resident = |mount: &TestMount| mount.engine.stats().tier.expect("tier").resident;
    assert!(
        resident(&mount) > 0,
        "the file's pages are in the tier while it is open"
    );
    drop(file);
    let engine = Arc::clone(&mount.engine);
    mount.end(); // waits for the release
    assert_eq!(engine.stats().tier.expect("tier").resident, 0);
}

#[test]
fn a_file_unlinked_while_closed_is_trimmed_too() {
    let mount = mount!();
    let path = mount.mnt().join("closed");
    fs::write(&path, Random::new(3).bytes(40_000)).expect("write");
    fs::read(&path).expect("read");
    fs::remove_file(&path).expect("unlink");
    let engine = Arc::clone(&mount.engine);
    mount.end();
    assert_eq!(engine.stats().tier.expect("tier").resident, 0);
}

#[test]
fn names_links_and_directories() {
    let mount = mount!();
    let at = |name: &str| mount.mnt().join(name);
    fs::create_dir(at("d")).expect("mkdir");
    fs::write(at("d/a"), b"x").expect("write");
    fs::hard_link(at("d/a"), at("b")).expect("link");
    std::os::unix::fs::symlink("d/a", at("s")).expect("symlink");
    assert_eq!(
        fs::read_link(at("s")).expect("readlink"),
        PathBuf::from("d/a")
    );
    assert_eq!(fs::read(at("s")).expect("through the link"), b"x");
    let (a, b) = (
        fs::metadata(at("d/a")).expect("a"),
        fs::metadata(at("b")).expect("b"),
    );
    assert_eq!((a.ino(), a.nlink()), (b.ino(), 2));
    assert_eq!(
        a.ino(),
        fs::metadata(mount.base().join("b")).expect("base").ino()
    );
    let refused = fs::remove_dir(at("d")).expect_err("not empty");
    assert_eq!(refused.kind(), ErrorKind::DirectoryNotEmpty);
    fs::remove_file(at("d/a")).expect("unlink");
    fs::remove_dir(at("d")).expect("rmdir");
    let fifo = c_path(&at("fifo"));
    // SAFETY: the path is NUL-terminated.
    check(unsafe { libc::mkfifo(fifo.as_ptr(), 0o600) }).expect("mkfifo");
    assert!(
        fs::metadata(at("fifo"))
            .expect("fifo")
            .file_type()
            .is_fifo()
    );
    let mut names: Vec<_> = fs::read_dir(mount.mnt())
        .expect("list")
        .map(|entry| {
            entry
                .expect("entry")
                .file_name()
                .into_string()
                .expect("name")
        })
        .collect();
    names.sort();
    assert_eq!(names, ["b", "fifo", "s"]);
    mount.end();
}

#[test]
fn a_large_directory_is_listed_once_and_whole() {
    let mount = mount!();
    for number in 0..3000 {
        File::create(mount.base().join(format!("file-{number}"))).expect("create");
    }
    let mut names: Vec<_> = fs::read_dir(mount.mnt())
        .expect("list")
        .map(|entry| entry.expect("entry").file_name())
        .collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 3000);
    mount.end();
}

#[test]
fn renames_with_flags() {
    let mount = mount!();
    let (a, b) = (
        c_path(&mount.mnt().join("a")),
        c_path(&mount.mnt().join("b")),
    );
    fs::write(mount.mnt().join("a"), b"A").expect("write");
    fs::write(mount.mnt().join("b"), b"B").expect("write");
    let rename = |flags: u32| {
        let cwd = libc::AT_FDCWD;
        // SAFETY: both paths are NUL-terminated.
        check(unsafe { libc::renameat2(cwd, a.as_ptr(), cwd, b.as_ptr(), flags) })
    };
    let refused = rename(libc::RENAME_NOREPLACE).expect_err("b exists");
    assert_eq!(refused.kind(), ErrorKind::AlreadyExists);
    rename(libc::RENAME_EXCHANGE).expect("exchange");
    assert_eq!(fs::read(mount.mnt().join("a")).expect("read"), b"B");
    assert_eq!(fs::read(mount.mnt().join("b")).expect("read"), b"A");
    mount.end();
}

#[test]
fn extended_attributes() {
    let mount = mount!();
    let path = mount.mnt().join("f");
    fs::write(&path, b"x").expect("write");
    let (file, name) = (c_path(&path), c"user.note");
    // SAFETY: strings are NUL-terminated and buffers have the lengths given.
    unsafe {
        let (file, name) = (file.as_ptr(), name.as_ptr());
        check(libc::setxattr(file, name, b"value".as_ptr().cast(), 5, 0)).expect("set");
        let mut buf = [0_u8; 64];
        assert_eq!(libc::getxattr(file, name, buf.as_mut_ptr().cast(), 64), 5);
        assert_eq!(&buf[..5], b"value");
        assert_eq!(libc::getxattr(file, name, buf.as_mut_ptr().cast(), 2), -1);
        assert_eq!(
            io::Error::last_os_error().raw_os_error(),
            Some(libc::ERANGE)
        );
        let listed = libc::listxattr(file, buf.as_mut_ptr().cast(), 64);
        assert!(listed > 0);
        let names = String::from_utf8_lossy(&buf[..listed.unsigned_abs()]).into_owned();
        assert!(names.contains("user.note"), "{names:?}");
        check(libc::removexattr(file, name)).expect("remove");
        assert_eq!(libc::getxattr(file, name, buf.as_mut_ptr().cast(), 64), -1);
        assert_eq!(
            io::Error::last_os_error().raw_os_error(),
            Some(libc::ENODATA)
        );
    }
    mount.end();
}

#[test]
fn allocation_holes_and_seeking() {
    let mount = mount!();
    let file = open_rw(&mount.mnt().join("f"));
    file.write_all_at(&[7; 65536], 0).expect("write");
    let mut buf = vec![0; 65536];
    file.read_exact_at(&mut buf, 0).expect("into the tier");
    let keep = libc::FALLOC_FL_KEEP_SIZE;
    fallocate(&file, keep | libc::FALLOC_FL_PUNCH_HOLE, 5000, 20_000).expect("punch");
    fallocate(&file, libc::FALLOC_FL_ZERO_RANGE, 40_000, 100).expect("zero");
    fallocate(&file, keep, 100_000, 5000).expect("allocate behind the end");
    assert_eq!(file.metadata().expect("stat").len(), 65536);
    file.read_exact_at(&mut buf, 0).expect("read");
    for (at, byte) in buf.iter().enumerate() {
        let zero = (5000..25_000).contains(&at) || (40_000..40_100).contains(&at);
        assert_eq!(*byte, if zero { 0 } else { 7 }, "byte {at}");
    }
    fallocate(&file, 0, 0, 80_000).expect("allocate and extend");
    assert_eq!(file.metadata().expect("stat").len(), 80_000);
    assert_eq!(file.read_at(&mut buf, 65536).expect("read"), 80_000 - 65536);
    assert!(buf[..80_000 - 65536].iter().all(|&b| b == 0));
    // SAFETY: no memory is passed.
    let hole = unsafe { libc::lseek(file.as_raw_fd(), 0, libc::SEEK_HOLE) };
    assert!((5000..25_000).contains(&hole), "first hole at {hole}");
    let moved = fallocate(&file, libc::FALLOC_FL_COLLAPSE_RANGE, 0, 4096).expect_err("moves data");
    assert_eq!(moved.raw_os_error(), Some(libc::EOPNOTSUPP));
    drop(file);
    mount.end();
}

#[test]
fn truncating_forgets_the_tail() {
    let mount = mount!();
    let path = mount.mnt().join("f");
    fs::write(&path, [9; 30_000]).expect("write");
    fs::read(&path).expect("into the tier");
    let file = open_rw(&path);
    file.set_len(10_000).expect("cut");
    file.set_len(30_000).expect("extend");
    let back = fs::read(&path).expect("read");
    assert!(back[..10_000].iter().all(|&b| b == 9));
    assert!(back[10_000..].iter().all(|&b| b == 0));
    // By path, without an open handle.
    drop(file);
    // SAFETY: the path is NUL-terminated.
    check(unsafe { libc::truncate(c_path(&path).as_ptr(), 5) }).expect("truncate by path");
    assert_eq!(fs::read(&path).expect("read"), [9; 5]);
    // And by opening.
    File::create(&path).expect("O_TRUNC");
    assert_eq!(fs::metadata(&path).expect("stat").len(), 0);
    mount.end();
}

/// A shared or private map of a whole file.
struct Map {
    at: *mut libc::c_void,
    len: usize,
}

impl Map {
    fn of(file: &File, len: usize, flags: i32) -> Self {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new map at an address of the kernel's choice.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), len, prot, flags, file.as_raw_fd(), 0) };
        assert_ne!(at, libc::MAP_FAILED, "{}", io::Error::last_os_error());
        Self { at, len }
    }

    fn bytes(&mut self) -> &mut [u8] {
        // SAFETY: the map is `len` bytes long and lives as long as `self`.
        unsafe { std::slice::from_raw_parts_mut(self.at.cast(), self.len) }
    }

    fn sync(&self) {
        // SAFETY: the map is `len` bytes long.
        check(unsafe { libc::msync(self.at, self.len, libc::MS_SYNC) }).expect("msync");
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what was mapped.
        unsafe { libc::munmap(self.at, self.len) };
    }
}

#[test]
fn maps_shared_and_private() {
    let mount = mount!();
    let file = open_rw(&mount.mnt().join("app.db-shm"));
    file.set_len(32768).expect("size");
    let mut one = Map::of(&file, 32768, libc::MAP_SHARED);
    let second = open_rw(&mount.mnt().join("app.db-shm"));
    let mut two = Map::of(&second, 32768, libc::MAP_SHARED);
    one.bytes()[100] = 42;
    assert_eq!(two.bytes()[100], 42, "both maps are the same memory");
    one.sync();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 100).expect("read");
    assert_eq!(byte, [42]);
    assert_eq!(
        fs::read(mount.base().join("app.db-shm")).expect("base")[100],
        42
    );
    file.write_all_at(&[43], 100).expect("write beside the map");
    assert_eq!(two.bytes()[100], 43);
    let mut private = Map::of(&file, 32768, libc::MAP_PRIVATE);
    private.bytes()[100] = 1;
    file.read_exact_at(&mut byte, 100).expect("read");
    assert_eq!(byte, [43], "a private map changes nothing");
    drop((one, two, private, file, second));
    mount.end();
}

#[test]
fn locks_are_seen_by_other_processes() {
    let mount = mount!();
    let path = mount.mnt().join("lock");
    let file = open_rw(&path);
    // SAFETY: no memory is passed.
    check(unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) }).expect("lock");
    let other = open_rw(&path);
    // SAFETY: no memory is passed.
    let refused = check(unsafe { libc::flock(other.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) });
    assert_eq!(refused.expect_err("locked").kind(), ErrorKind::WouldBlock);
    let range = libc::flock {
        l_type: libc::F_WRLCK as i16,
        l_whence: 0,
        l_start: 10,
        l_len: 5,
        l_pid: 0,
    };
    // SAFETY: `range` is a valid `flock`.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_SETLK, &raw const range) })
        .expect("range");
    let script = "import fcntl,sys\nf=open(sys.argv[1],'r+')\n\
                  try:\n fcntl.lockf(f,fcntl.LOCK_EX|fcntl.LOCK_NB,5,10)\n\
                  except OSError: sys.exit(7)";
    let child = std::process::Command::new("python3")
        .arg("-c")
        .arg(script)
        .arg(&path)
        .status();
    match child {
        Ok(status) => assert_eq!(status.code(), Some(7), "another process got the range"),
        Err(error) => {
            assert!(
                std::env::var_os("THERMOCLINE_REQUIRE_ALL").is_none(),
                "python3: {error}"
            );
        }
    }
    drop((file, other));
    mount.end();
}

#[test]
fn modes_owners_and_times() {
    let mount = mount!();
    let path = mount.mnt().join("f");
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o666)
        .open(&path);
    drop(file.expect("create"));
    // SAFETY: sets and restores the process's file mode mask; other tests of this binary
    // compare no modes.
    let umask = unsafe {
        let mask = libc::umask(0o022);
        libc::umask(mask);
        mask
    };
    let mode = fs::metadata(&path).expect("stat").mode() & 0o7777;
    assert_eq!(mode, 0o666 & !umask);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o4755)).expect("chmod");
    assert_eq!(fs::metadata(&path).expect("stat").mode() & 0o7777, 0o4755);
    let when = std::time::UNIX_EPOCH + std::time::Duration::new(1_000_000_000, 123_456_789);
    File::options()
        .write(true)
        .open(&path)
        .expect("open")
        .set_times(fs::FileTimes::new().set_modified(when).set_accessed(when))
        .expect("set times");
    assert_eq!(
        fs::metadata(&path)
            .expect("stat")
            .modified()
            .expect("mtime"),
        when
    );
    let base = fs::metadata(mount.base().join("f")).expect("base");
    assert_eq!(base.modified().expect("mtime"), when);
    if base.uid() == 0 {
        std::os::unix::fs::chown(&path, Some(12), Some(34)).expect("chown");
        let base = fs::metadata(mount.base().join("f")).expect("base");
        assert_eq!((base.uid(), base.gid()), (12, 34));
    }
    mount.end();
}

#[test]
fn file_system_statistics_are_the_bases() {
    let mount = mount!();
    let statvfs = |path: &Path| {
        // SAFETY: the path is NUL-terminated, the buffer a zeroed `statvfs`.
        unsafe {
            let mut buf: libc::statvfs = std::mem::zeroed();
            check(libc::statvfs(c_path(path).as_ptr(), &raw mut buf)).expect("statvfs");
            buf
        }
    };
    let (here, base) = (statvfs(&mount.mnt()), statvfs(&mount.base()));
    assert_eq!(
        (here.f_blocks, here.f_frsize),
        (base.f_blocks, base.f_frsize)
    );
    assert_eq!(here.f_namemax, base.f_namemax);
    mount.end();
}

#[test]
fn appending_direct_and_vectored_writes() {
    let mount = mount!();
    let path = mount.mnt().join("log");
    let mut writers: Vec<File> = (0..2)
        .map(|_| {
            OpenOptions::new()
                .append(true)
                .create(true)
                .open(&path)
                .expect("open")
        })
        .collect();
    for round in 0..50_u8 {
        for writer in &mut writers {
            writer.write_all(&[round; 100]).expect("append");
        }
    }
    let content = fs::read(&path).expect("read");
    assert_eq!(content.len(), 10_000);
    assert!(
        content
            .chunks(200)
            .enumerate()
            .all(|(n, c)| c.iter().all(|&b| usize::from(b) == n))
    );

    let direct = OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(true)
        .custom_flags(libc::O_DIRECT | libc::O_DSYNC)
        .open(mount.mnt().join("direct"))
        .expect("O_DIRECT");
    let page = thermocline::device::AlignedBuf::new(8192);
    direct.write_all_at(&page, 0).expect("aligned write");
    let mut back = thermocline::device::AlignedBuf::new(8192);
    direct.read_exact_at(&mut back, 0).expect("aligned read");
    drop((writers, direct));
    mount.end();
}

#[test]
fn copies_within_the_kernel() {
    let mount = mount!();
    let content = Random::new(5).bytes(300_000);
    fs::write(mount.mnt().join("from"), &content).expect("write");
    fs::copy(mount.mnt().join("from"), mount.mnt().join("to")).expect("copy");
    assert_eq!(fs::read(mount.mnt().join("to")).expect("read"), content);
    mount.end();
}

#[test]
fn many_threads_read_and_write_their_pages() {
    let mount = mount!();
    let file = Arc::new(open_rw(&mount.mnt().join("shared")));
    let threads: Vec<_> = (0..8_u64)
        .map(|thread| {
            let file = Arc::clone(&file);
            std::thread::spawn(move || {
                let mut random = Random::new(100 + thread);
                let mut last = [0_u8; 16];
                for round in 1..=200_u8 {
                    let page = random.below(16);
                    let offset = (page * 8 + thread) * 4096;
                    file.write_all_at(&[round; 4096], offset).expect("write");
                    last[page as usize] = round;
                    let page = random.below(16) as usize;
                    let mut back = [0; 4096];
                    let at = (page as u64 * 8 + thread) * 4096;
                    let len = file.read_at(&mut back, at).expect("read");
                    assert!(
                        back[..len].iter().all(|&b| b == last[page]),
                        "thread {thread}"
                    );
                    assert!(len == 4096 || last[page] == 0);
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().expect("thread");
    }
    drop(file);
    mount.end();
}

#[test]
fn syncing_files_and_directories() {
    let mount = mount!();
    let file = open_rw(&mount.mnt().join("f"));
    file.write_all_at(b"data", 0).expect("write");
    file.sync_data().expect("fdatasync");
    file.sync_all().expect("fsync");
    File::open(mount.mnt())
        .expect("open directory")
        .sync_all()
        .expect("fsync directory");
    drop(file);
    mount.end();
}

#[test]
fn what_is_not_supported_says_so() {
    let mount = mount!();
    let unnamed = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_TMPFILE)
        .mode(0o600)
        .open(mount.mnt())
        .expect_err("O_TMPFILE");
    assert_eq!(unnamed.raw_os_error(), Some(libc::EOPNOTSUPP));
    mount.end();
}

#[test]
fn the_kind_of_file_system_is_named() {
    let mount = mount!();
    let table = fs::read_to_string("/proc/self/mounts").expect("mounts");
    let mountpoint = mount.mnt().canonicalize().expect("mountpoint");
    let line = table
        .lines()
        .find(|line| line.split(' ').nth(1) == mountpoint.to_str());
    let fields: Vec<&str> = line.expect("mounted").split(' ').collect();
    assert_eq!(fields[2], "fuse.thermocline");
    assert_eq!(
        Path::new(fields[0]),
        mount.base().canonicalize().expect("base")
    );
    mount.end();
}

#[derive(Default)]
struct Switch {
    written: std::sync::Mutex<Vec<String>>,
}

impl ControlFiles for Switch {
    fn files(&self) -> Vec<ControlFile> {
        vec![
            ControlFile {
                name: "stats",
                writable: false,
            },
            ControlFile {
                name: "policy",
                writable: true,
            },
        ]
    }

    fn read(&self, name: &str) -> io::Result<Vec<u8>> {
        Ok(format!("{name} {}\n", self.written.lock().expect("lock").len()).into_bytes())
    }

    fn write(&self, name: &str, command: &str) -> io::Result<()> {
        assert_eq!(name, "policy");
        if command == "nonsense" {
            return Err(ErrorKind::InvalidInput.into());
        }
        self.written.lock().expect("lock").push(command.into());
        Ok(())
    }
}

#[test]
fn the_control_directory_is_found_by_name_and_not_listed() {
    let switch = Arc::new(Switch::default());
    let control: Arc<dyn ControlFiles> = Arc::clone(&switch) as _;
    let Some(mount) = TestMount::start(|config| config.control = Some(control)) else {
        return;
    };
    assert_eq!(
        fs::read_dir(mount.mnt()).expect("list").count(),
        0,
        "an empty mount looks empty"
    );
    let control = mount.mnt().join(".thermocline");
    let names: Vec<_> = fs::read_dir(&control)
        .expect("list")
        .map(|e| e.expect("entry").file_name())
        .collect();
    assert_eq!(names, ["stats", "policy"]);
    let mut stats = File::open(control.join("stats")).expect("open");
    fs::write(control.join("policy"), "lru\n").expect("write");
    assert_eq!(*switch.written.lock().expect("lock"), ["lru"]);
    let mut text = String::new();
    stats.read_to_string(&mut text).expect("read");
    assert_eq!(
        text, "stats 0\n",
        "an open file says what it said when it was opened"
    );
    stats.seek(SeekFrom::Start(2)).expect("seek");
    text.clear();
    stats.read_to_string(&mut text).expect("read");
    assert_eq!(text, "ats 0\n");
    assert_eq!(
        fs::read_to_string(control.join("stats")).expect("read"),
        "stats 1\n"
    );
    let refused = fs::write(control.join("policy"), "nonsense").expect_err("not a policy");
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    for path in [control.join("new"), control.clone()] {
        assert!(fs::create_dir(&path).is_err(), "{path:?} was created");
    }
    assert!(fs::remove_file(control.join("stats")).is_err());
    assert!(!mount.base().join(".thermocline").exists());
    // What base has under this name may be its mark.
    fs::create_dir(mount.base().join(".thermocline")).expect("a directory of base's");
    let moved = fs::rename(&control, mount.mnt().join("x"));
    let removed = fs::remove_dir(&control);
    for refused in [moved, removed] {
        let code = refused.expect_err("not to be taken away").raw_os_error();
        assert_eq!(code, Some(libc::EPERM));
    }
    assert!(mount.base().join(".thermocline").exists());
    drop(stats);
    mount.end();
}

#[test]
fn a_mount_in_use_is_not_unmounted() {
    let Some(mount) = TestMount::all_cached() else {
        return;
    };
    let (base, other) = (
        mount.dir.path().join("base2"),
        mount.dir.path().join("mnt2"),
    );
    fs::create_dir(&base).expect("base");
    fs::create_dir(&other).expect("mountpoint");
    let engine = common::engine(1 << 20, 0);
    let handle = Mount::start(MountConfig::new(&base, &other), engine.clone()).expect("mount");
    let file = open_rw(&other.join("f"));
    let (handle, error) = handle.unmount().expect_err("a file is open");
    assert!(matches!(error, Error::Busy(_)), "{error}");
    file.write_all_at(b"still served", 0).expect("write");
    drop(file);
    handle
        .unmount()
        .map_err(|(_, error)| error)
        .expect("unmounted");
    engine.stop().expect("engine stopped");
    mount.end();
}

#[test]
fn mounts_that_cannot_be_are_refused_with_their_reason() {
    let dir = tempfile::tempdir().expect("temporary directory");
    let at = |name: &str| dir.path().canonicalize().expect("path").join(name);
    for name in ["base", "base/inside", "mnt", "full", "full/entry"] {
        fs::create_dir(at(name)).expect("mkdir");
    }
    fs::write(at("file"), b"").expect("write");
    let refuse = |base: &str, mountpoint: &str| {
        let config = MountConfig::new(at(base), at(mountpoint));
        Mount::start(config, common::engine(1 << 20, 0))
            .expect_err("refused")
            .to_string()
    };
    for (base, mountpoint, reason) in [
        ("missing", "mnt", "does not exist"),
        ("file", "mnt", "is not a directory"),
        ("base", "missing", "mkdir -p"),
        ("base", "file", "is not a directory"),
        ("base", "full", "is not empty"),
        ("base", "base/inside", "is inside base"),
        ("mnt", "mnt", "is inside base"),
    ] {
        let message = refuse(base, mountpoint);
        assert!(
            message.contains(reason),
            "{base} on {mountpoint}: {message}"
        );
        let named = message.contains(at(base).to_str().expect("path"))
            || message.contains(at(mountpoint).to_str().expect("path"));
        assert!(named, "{message}");
    }
    let Some(mount) = TestMount::all_cached() else {
        return;
    };
    let config = MountConfig::new(at("base"), mount.mnt());
    let twice = Mount::start(config, common::engine(1 << 20, 0)).expect_err("mounted already");
    assert!(matches!(twice, Error::AlreadyMounted(_)), "{twice}");
    mount.end();
}

#[test]
fn unmounting_while_the_last_closes_are_on_their_way_is_an_ordinary_end() {
    for _ in 0..200 {
        let mount = mount!();
        let paths: Vec<PathBuf> = (0..8).map(|i| mount.mnt().join(i.to_string())).collect();
        // The kernel sends a close later, on its own.
        let files: Vec<File> = paths.iter().map(|path| open_rw(path)).collect();
        drop(files);
        mount.end();
    }
}
