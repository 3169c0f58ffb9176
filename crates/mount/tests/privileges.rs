//! What a mount of root's does for others: new inodes are theirs from the start, and set-id bits
//! go when somebody else writes.

mod common;

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::Path;

use common::TestMount;
use thermocline_mount::{Caller, Fs, ROOT, file_devices};

const OWNER: u32 = 1000;
const OTHER: u32 = 2000;

/// The mount and a plain directory beside it, open to everybody.
fn start() -> Option<TestMount> {
    start_with(true)
}

/// The same; without `cached` the kernel serves the files itself, where it can.
fn start_with(cached: bool) -> Option<TestMount> {
    let mount = TestMount::start(|config| config.rules = common::cache_all(cached))?;
    let plain = mount.dir.path().join("plain");
    fs::create_dir(&plain).expect("plain directory");
    for path in [mount.dir.path(), &mount.base(), &plain] {
        fs::set_permissions(path, fs::Permissions::from_mode(0o777)).expect("chmod");
    }
    Some(mount)
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("stat").mode()
}

/// The mode on base: the kernel may remember the mount's for a second.
fn modes_after_writes(dir: &Path, base: &Path) -> Vec<(String, u32)> {
    let ways = [
        "write",
        "append",
        "truncate",
        "O_TRUNC",
        "fallocate",
        "root",
    ];
    let mut found = Vec::new();
    for way in ways {
        for bits in [0o6777, 0o2777, 0o4766] {
            let name = format!("{way}-{bits:o}");
            let path = dir.join(&name);
            fs::write(&path, [1; 100]).expect("write");
            std::os::unix::fs::chown(&path, Some(OWNER), Some(OWNER)).expect("chown");
            // The mount hears of the last close a moment later, and a file that is open stays the
            // kernel's.
            std::thread::sleep(std::time::Duration::from_millis(20));
            fs::set_permissions(&path, fs::Permissions::from_mode(bits)).expect("chmod");
            match way {
                "root" => change("write", &path),
                _ => common::as_user(OTHER, || change(way, &path)),
            }
            found.push((name.clone(), mode(&base.join(&name)) & 0o7777));
            // Set again, they go again: nothing of the first time is remembered.
            std::thread::sleep(std::time::Duration::from_millis(20));
            fs::set_permissions(&path, fs::Permissions::from_mode(bits)).expect("chmod");
            common::as_user(OTHER, || change("write", &path));
            found.push((name.clone(), mode(&base.join(&name)) & 0o7777));
        }
    }
    found
}

fn change(way: &str, path: &Path) {
    let mut options = OpenOptions::new();
    let options = match way {
        "append" => options.append(true),
        "O_TRUNC" => options.write(true).truncate(true),
        _ => options.write(true),
    };
    let file = options.open(path).expect("open");
    match way {
        "write" | "append" => file.write_all_at(b"changed", 0).expect("write"),
        "truncate" => file.set_len(5).expect("truncate"),
        "fallocate" => {
            // SAFETY: no memory is passed.
            assert_eq!(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, 8192) }, 0);
        }
        _ => {}
    }
}

#[test]
fn set_id_bits_go_when_somebody_else_changes_the_file() {
    if !common::is_root() {
        return;
    }
    for cached in [true, false] {
        let Some(mount) = start_with(cached) else {
            return;
        };
        let plain = mount.dir.path().join("plain");
        let expected = modes_after_writes(&plain, &plain);
        let found = modes_after_writes(&mount.mnt(), &mount.base());
        assert_eq!(found, expected, "cached: {cached}");
        mount.end();
    }
}

/// File capabilities go with any write, whoever writes.
#[test]
fn file_capabilities_go_when_the_file_is_changed() {
    if !common::is_root() {
        return;
    }
    for cached in [true, false] {
        let Some(mount) = start_with(cached) else {
            return;
        };
        for way in ["write", "append", "truncate", "O_TRUNC", "fallocate"] {
            let path = mount.mnt().join(way);
            fs::write(&path, [1; 100]).expect("write");
            std::thread::sleep(std::time::Duration::from_millis(20));
            // `cap_net_raw` permitted and effective: `struct vfs_cap_data` of revision 2.
            let value: Vec<u8> = [0x0200_0001_u32, 1 << 13, 0, 0, 0]
                .iter()
                .flat_map(|word| word.to_le_bytes())
                .collect();
            set_capability(&path, &value);
            assert!(has_capability(&mount.base().join(way)), "{way}: set");
            change(way, &path);
            let gone = !has_capability(&mount.base().join(way));
            assert!(gone, "{way}, cached: {cached}");
        }
        mount.end();
    }
}

const CAPABILITY: &std::ffi::CStr = c"security.capability";

fn set_capability(path: &Path, value: &[u8]) {
    let path = std::ffi::CString::new(path.to_str().expect("path")).expect("path");
    // SAFETY: strings are NUL-terminated, and the value is as long as it says.
    let set = unsafe {
        let value = (value.as_ptr().cast(), value.len());
        libc::setxattr(path.as_ptr(), CAPABILITY.as_ptr(), value.0, value.1, 0)
    };
    assert_eq!(set, 0, "{}", std::io::Error::last_os_error());
}

fn has_capability(path: &Path) -> bool {
    let path = std::ffi::CString::new(path.to_str().expect("path")).expect("path");
    let none = std::ptr::null_mut();
    // SAFETY: strings are NUL-terminated, and nothing is written.
    unsafe { libc::getxattr(path.as_ptr(), CAPABILITY.as_ptr(), none, 0) >= 0 }
}

fn makes(dir: &Path) -> Vec<(&'static str, u32, u32, u32)> {
    let group = dir.join("group");
    fs::create_dir(&group).expect("mkdir");
    std::os::unix::fs::chown(&group, None, Some(3000)).expect("chown");
    fs::set_permissions(&group, fs::Permissions::from_mode(0o2777)).expect("chmod");
    let make = |path: &Path, bits: u32| {
        let mut options = OpenOptions::new();
        let options = options.write(true).create_new(true).mode(bits);
        options.open(path).expect("create")
    };
    let fifo = |path: &Path| {
        let path = std::ffi::CString::new(path.to_str().expect("path")).expect("path");
        // SAFETY: the path is NUL-terminated.
        assert_eq!(unsafe { libc::mkfifo(path.as_ptr(), 0o622) }, 0);
    };
    let all = || {
        for inside in [dir, &group] {
            drop(make(&inside.join("file"), 0o4751));
            drop(make(&inside.join("group-id"), 0o2755));
            drop(make(&inside.join("read-only"), 0o444));
            fs::create_dir(inside.join("dir")).expect("mkdir");
            std::os::unix::fs::symlink("x", inside.join("link")).expect("symlink");
            fifo(&inside.join("fifo"));
        }
    };
    common::as_user(OTHER, all);
    let names = ["file", "group-id", "read-only", "dir", "link", "fifo"];
    let stat = |inside: &Path, name: &'static str| {
        let stat = fs::symlink_metadata(inside.join(name)).expect("stat");
        (name, stat.mode(), stat.uid(), stat.gid())
    };
    let of = |inside: &Path| names.map(|name| stat(inside, name));
    [of(dir), of(&group)].concat()
}

#[test]
fn new_inodes_have_the_owner_and_mode_they_have_on_a_plain_directory() {
    if !common::is_root() {
        return;
    }
    let Some(mount) = start() else { return };
    let expected = makes(&mount.dir.path().join("plain"));
    assert_eq!(makes(&mount.mnt()), expected);
    mount.end();
}

/// Refuses this thread every change of an owner or a mode from now on.
fn forbid_changing_owners() {
    let calls = [
        libc::SYS_fchown,
        libc::SYS_fchownat,
        libc::SYS_fchmod,
        libc::SYS_fchmodat,
    ];
    let op = |code: u32, jt: u8, jf: u8, k: u32| libc::sock_filter {
        code: code as u16,
        jt,
        jf,
        k,
    };
    let mut program = vec![op(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0)];
    for (number, call) in calls.iter().enumerate() {
        let to_refusal = (calls.len() - number) as u8;
        let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        program.push(op(equal, to_refusal, 0, *call as u32));
    }
    let answer = libc::BPF_RET | libc::BPF_K;
    program.push(op(answer, 0, 0, libc::SECCOMP_RET_ALLOW));
    let refusal = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    program.push(op(answer, 0, 0, refusal));
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the filter and its program live through the call, which copies them.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const filter),
            0
        );
    }
}

#[test]
fn a_new_inode_is_its_makers_from_the_start() {
    if !common::is_root() {
        return;
    }
    let dir = tempfile::tempdir().expect("temporary directory");
    let engine = common::engine(1 << 20, 0);
    let (base, rules) = (dir.path().to_path_buf(), common::cache_everything());
    let fs = Fs::new(base, engine, file_devices(), rules, None).expect("file system");
    let caller = Caller {
        uid: OTHER,
        gid: OTHER,
        tid: 0,
    };
    // A chown by name could be led to another file by who owns the directory.
    std::thread::scope(|scope| {
        let work = || {
            forbid_changing_owners();
            let name = OsStr::new;
            let flags = libc::O_RDWR;
            let made = fs.create(caller, ROOT, name("file"), 0o640, flags);
            let (entry, opened) = made.expect("create");
            assert_eq!(entry.stat.st_uid, OTHER);
            fs.release(opened.handle).expect("release");
            let fifo = libc::S_IFIFO | 0o640;
            for entry in [
                fs.mkdir(caller, ROOT, name("dir"), 0o750),
                fs.symlink(caller, ROOT, name("link"), name("x")),
                fs.mknod(caller, ROOT, name("fifo"), fifo, 0),
            ] {
                let stat = entry.expect("made").stat;
                assert_eq!((stat.st_uid, stat.st_gid), (OTHER, OTHER));
            }
            // The thread is itself again.
            let own = File::create(dir.path().join("own")).expect("create");
            assert_eq!(own.metadata().expect("stat").uid(), 0);
        };
        scope.spawn(work).join().expect("thread");
    });
}

#[test]
fn a_caller_makes_files_where_the_mount_alone_may_go() {
    if !common::is_root() {
        return;
    }
    // The kernel has checked the caller against base's modes; supplementary groups, which the
    // file system is not told, may have decided.
    let dir = tempfile::tempdir().expect("temporary directory");
    let engine = common::engine(1 << 20, 0);
    let (base, rules) = (dir.path().to_path_buf(), common::cache_everything());
    let fs = Fs::new(base, engine, file_devices(), rules, None).expect("file system");
    let caller = Caller {
        uid: OTHER,
        gid: OTHER,
        tid: 0,
    };
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).expect("chmod");
    let made = fs.create(caller, ROOT, OsStr::new("f"), 0o600, libc::O_RDWR);
    assert_eq!(made.expect("create").0.stat.st_uid, OTHER);
}
