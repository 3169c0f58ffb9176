//! Odd corners, each compared with what a plain directory does.

mod common;

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::sync::Arc;

use common::TestMount;
use thermocline_mount::{DeviceFactory, file_devices};

/// Compares what `work` finds in a plain directory with what it finds in mounts of both modes.
fn compare<T: PartialEq + std::fmt::Debug>(work: impl Fn(&Path) -> T) {
    for back in [false, true] {
        let engine = match back {
            true => common::engine_back(4 << 20, 64 << 10),
            false => common::engine(4 << 20, 64 << 10),
        };
        let all = |config: &mut thermocline_mount::MountConfig| {
            config.rules = common::cache_everything();
        };
        let Some(mount) = TestMount::start_with(engine, all) else {
            return;
        };
        let plain = mount.dir.path().join("plain");
        fs::create_dir(&plain).expect("plain directory");
        assert_eq!(work(&mount.mnt()), work(&plain), "write-back {back}");
        mount.end();
    }
}

fn open(path: &Path) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false);
    options.open(path).expect("open")
}

#[test]
fn times_before_1970() {
    compare(|dir| {
        let path = dir.join("f");
        let file = open(&path);
        let times = [
            (-2, 500_000_000),
            (-1, 999_999_999),
            (-1, 0),
            (-1_000_000_000, 1),
            (0, 1),
            (4_102_444_800, 123_456_789),
        ];
        times.map(|(tv_sec, tv_nsec)| {
            let time = libc::timespec { tv_sec, tv_nsec };
            // SAFETY: two times, as the call reads.
            let set = unsafe { libc::futimens(file.as_raw_fd(), [time, time].as_ptr()) };
            let stat = fs::metadata(&path).expect("stat");
            (
                set,
                stat.mtime(),
                stat.mtime_nsec(),
                stat.atime(),
                stat.atime_nsec(),
            )
        })
    });
}

/// A name in a directory, without its path.
fn at(dir: &File, name: &str) -> (libc::c_int, CString) {
    (dir.as_raw_fd(), CString::new(name).expect("name"))
}

fn make_dir(dir: &File, name: &str) -> File {
    let (fd, name) = at(dir, name);
    // SAFETY: the name is NUL-terminated; the new descriptor is owned by the file made of it.
    unsafe {
        assert_eq!(libc::mkdirat(fd, name.as_ptr(), 0o700), 0);
        let fd = libc::openat(fd, name.as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY);
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        <File as std::os::fd::FromRawFd>::from_raw_fd(fd)
    }
}

fn make_file(dir: &File, name: &str) -> io::Result<File> {
    let (fd, name) = at(dir, name);
    // SAFETY: the name is NUL-terminated; the new descriptor is owned by the file made of it.
    unsafe {
        let fd = libc::openat(fd, name.as_ptr(), libc::O_RDWR | libc::O_CREAT, 0o600);
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(<File as std::os::fd::FromRawFd>::from_raw_fd(fd))
    }
}

#[test]
fn files_deeper_than_the_longest_path() {
    let deep = "d".repeat(200);
    compare(|dir| {
        let mut found = Vec::new();
        let mut inner = File::open(dir).expect("directory");
        for level in 0..30 {
            inner = make_dir(&inner, &deep);
            let file = make_file(&inner, "file");
            let code = file.as_ref().err().and_then(io::Error::raw_os_error);
            if let Ok(file) = file {
                file.write_all_at(b"content", 0).expect("write");
                file.sync_all().expect("fsync");
                let mut back = [0; 7];
                file.read_exact_at(&mut back, 0).expect("read");
                assert_eq!(&back, b"content");
            }
            found.push((level, code));
        }
        found
    });
}

#[test]
fn files_with_names_near_the_longest_path() {
    compare(|dir| {
        let mut directory = dir.to_path_buf();
        while directory.as_os_str().len() + 201 < 3800 {
            directory.push("d".repeat(200));
            fs::create_dir(&directory).expect("mkdir");
        }
        directory.push("e".repeat(3850 - directory.as_os_str().len() - 1));
        fs::create_dir(&directory).expect("mkdir");
        [3990, 4050, 4085, 4090, 4094, 4095, 4096].map(|total: usize| {
            let mut path = directory.clone();
            let left = total - path.as_os_str().len() - 1;
            path.push("f".repeat(left));
            let made = File::create_new(&path).map(drop);
            let code = made.err().and_then(|error| error.raw_os_error());
            (total, code, fs::symlink_metadata(&path).is_ok())
        })
    });
}

#[test]
fn ranges_that_no_file_has() {
    compare(|dir| {
        let file = open(&dir.join("f"));
        file.write_all_at(&[7; 20_000], 0).expect("write");
        let (keep, punch) = (libc::FALLOC_FL_KEEP_SIZE, libc::FALLOC_FL_PUNCH_HOLE);
        let zero = libc::FALLOC_FL_ZERO_RANGE;
        let mut found = Vec::new();
        for mode in [0, keep, keep | punch, punch, zero, zero | keep] {
            for (offset, len) in [
                (0, 1 << 62),
                (0, i64::MAX),
                (1, i64::MAX),
                (i64::MAX, 1),
                (4096, i64::MAX),
                (0, 0),
                (0, -1),
                (-1, 1),
            ] {
                // SAFETY: no memory is passed.
                let done = unsafe { libc::fallocate(file.as_raw_fd(), mode, offset, len) };
                let code = (done < 0).then(|| io::Error::last_os_error().raw_os_error());
                let len = file.metadata().expect("stat").len();
                let mut content = vec![0; 20_000];
                file.read_exact_at(&mut content, 0).expect("read");
                let kept = content.iter().filter(|&&byte| byte == 7).count();
                found.push((mode, offset, len, code, kept));
            }
        }
        found
    });
}

#[test]
fn names_of_any_bytes() {
    compare(|dir| {
        let long = vec![b'a'; 255];
        let names: [&[u8]; 6] = [
            &long,
            b"\xff\xfe",
            b"new\nline",
            b" (deleted)",
            b"-",
            b"..x",
        ];
        names.map(|name| {
            let path = dir.join(std::ffi::OsStr::from_bytes(name));
            fs::write(&path, b"x").expect("write");
            let listed = fs::read_dir(dir).expect("list");
            listed
                .filter(|entry| entry.as_ref().expect("entry").file_name().as_bytes() == name)
                .count()
        })
    });
}

#[test]
fn a_file_that_cannot_be_opened_is_not_left_behind() {
    let devices: DeviceFactory = Arc::new(|file, known| match known.name.contains("bad") {
        true => Err(io::Error::from_raw_os_error(libc::EMFILE)),
        false => file_devices()(file, known),
    });
    let Some(mount) = TestMount::start(|config| config.devices = devices) else {
        return;
    };
    let failed = File::create_new(mount.mnt().join("bad")).expect_err("no device");
    assert_eq!(failed.raw_os_error(), Some(libc::EMFILE));
    drop(File::create_new(mount.mnt().join("good")).expect("create"));
    let names = fs::read_dir(mount.base()).expect("list");
    let names: Vec<_> = names.map(|e| e.expect("entry").file_name()).collect();
    assert_eq!(names, ["good"]);
    mount.end();
}
