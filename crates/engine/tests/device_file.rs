//! `FileDevice` does what `MemoryDevice` does, whatever the alignment and the way it was opened.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;
use tempfile::TempDir;
use thermocline::device::{AlignedBuf, Device, FileDevice, FileOptions, MemoryDevice};

const CREATE: FileOptions = FileOptions {
    direct: true,
    read_only: false,
    create: true,
    create_new: false,
    deadline: None,
};

/// Long enough never to matter in a test, so that only the path through the ring is tested.
const FAR: Option<Duration> = Some(Duration::from_secs(3600));

fn every_way() -> [FileOptions; 4] {
    [
        CREATE,
        FileOptions {
            direct: false,
            ..CREATE
        },
        FileOptions {
            deadline: FAR,
            ..CREATE
        },
        FileOptions {
            direct: false,
            deadline: FAR,
            ..CREATE
        },
    ]
}

fn device(dir: &TempDir, name: &str, options: FileOptions) -> FileDevice {
    FileDevice::open(dir.path().join(name), options).unwrap()
}

#[derive(Clone, Debug)]
enum Step {
    Read {
        offset: u64,
        len: usize,
        skew: usize,
    },
    Write {
        offset: u64,
        len: usize,
        skew: usize,
        byte: u8,
    },
    SetLen(u64),
    Punch {
        offset: u64,
        len: u64,
    },
    Sync(bool),
}

/// Offsets and lengths, half of them aligned.
fn place() -> impl Strategy<Value = (u64, usize)> {
    prop_oneof![
        (0u64..40, 0usize..6).prop_map(|(o, l)| (o * 4096, l * 4096)),
        (0u64..160_000, 0usize..20_000),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let skew = prop_oneof![Just(0usize), 1usize..64];
    prop_oneof![
        4 => (place(), skew.clone())
            .prop_map(|((offset, len), skew)| Step::Read { offset, len, skew }),
        4 => (place(), skew, any::<u8>())
            .prop_map(|((offset, len), skew, byte)| Step::Write { offset, len, skew, byte }),
        1 => (0u64..200_000).prop_map(Step::SetLen),
        1 => place().prop_map(|(offset, len)| Step::Punch { offset, len: len as u64 }),
        1 => any::<bool>().prop_map(Step::Sync),
    ]
}

/// Does one step on both and compares what they return.
fn compare(step: &Step, model: &MemoryDevice, real: &FileDevice) {
    match *step {
        Step::Read { offset, len, skew } => {
            let mut expected = vec![0xEE; len];
            let mut buf = AlignedBuf::new(len + skew);
            let n = model.read_at(&mut expected, offset).unwrap();
            assert_eq!(
                real.read_at(&mut buf[skew..], offset).unwrap(),
                n,
                "{step:?}"
            );
            assert!(buf[skew..skew + n] == expected[..n], "{step:?}");
        }
        Step::Write {
            offset,
            len,
            skew,
            byte,
        } => {
            let mut buf = AlignedBuf::new(len + skew);
            for (i, b) in buf.iter_mut().enumerate() {
                *b = byte.wrapping_add((i / 512) as u8);
            }
            model.write_at(&buf[skew..], offset).unwrap();
            real.write_at(&buf[skew..], offset).unwrap();
        }
        Step::SetLen(len) => {
            model.set_len(len).unwrap();
            real.set_len(len).unwrap();
        }
        Step::Punch { offset, len } => {
            model.punch(offset, len).unwrap();
            real.punch(offset, len).unwrap();
        }
        Step::Sync(data_only) => real.sync(data_only).unwrap(),
    }
    assert_eq!(real.len().unwrap(), model.len().unwrap(), "{step:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn equals_memory(steps in prop::collection::vec(step(), 1..24)) {
        let dir = tempfile::tempdir().unwrap();
        for (i, options) in every_way().into_iter().enumerate() {
            let path = dir.path().join(i.to_string());
            let real = FileDevice::open(&path, options).unwrap();
            let model = MemoryDevice::new();
            for step in &steps {
                compare(step, &model, &real);
            }
            assert!(std::fs::read(&path).unwrap() == model.snapshot(), "{options:?}");
        }
    }
}

#[test]
fn transfers_longer_than_one_request() {
    let dir = tempfile::tempdir().unwrap();
    for (i, options) in every_way().into_iter().enumerate() {
        let device = device(&dir, &i.to_string(), options);
        let data: Vec<u8> = (0..(3 << 20) + 8192)
            .map(|i| (i / 4096 % 251) as u8)
            .collect();
        for skew in [0, 1] {
            let mut buf = AlignedBuf::new(data.len() + skew);
            buf[skew..].copy_from_slice(&data);
            device.write_at(&buf[skew..], 4096).unwrap();
            buf.fill(0);
            assert_eq!(device.read_at(&mut buf[skew..], 4096).unwrap(), data.len());
            assert!(buf[skew..] == data[..]);
        }
    }
}

#[test]
fn reads_at_an_unaligned_end_are_short() {
    let dir = tempfile::tempdir().unwrap();
    for (i, options) in every_way().into_iter().enumerate() {
        let device = device(&dir, &i.to_string(), options);
        device.write_at(&[5; 5000], 0).unwrap();
        let mut buf = AlignedBuf::new(16384);
        assert_eq!(device.read_at(&mut buf, 0).unwrap(), 5000);
        assert_eq!(device.read_at(&mut buf, 4096).unwrap(), 904);
        assert_eq!(device.read_at(&mut buf, 8192).unwrap(), 0);
        assert_eq!(device.len().unwrap(), 5000);
    }
}

#[test]
fn direct_only_when_asked_for() {
    let dir = tempfile::tempdir().unwrap();
    assert!(
        !device(
            &dir,
            "b",
            FileOptions {
                direct: false,
                ..CREATE
            }
        )
        .is_direct()
    );
    let refused = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(false)
        .custom_flags(libc::O_DIRECT)
        .open(dir.path().join("p"))
        .is_err();
    assert_eq!(device(&dir, "a", CREATE).is_direct(), !refused);
}

#[test]
fn a_read_only_device_refuses_every_change() {
    let dir = tempfile::tempdir().unwrap();
    device(&dir, "f", CREATE).write_at(&[1; 4096], 0).unwrap();
    let by_option = device(
        &dir,
        "f",
        FileOptions {
            read_only: true,
            create: false,
            ..CREATE
        },
    );
    let file = File::open(dir.path().join("f")).unwrap();
    let by_descriptor = FileDevice::from_file(file, "f", FileOptions::default()).unwrap();
    for device in [by_option, by_descriptor] {
        let erofs = |r: io::Result<()>| r.unwrap_err().raw_os_error() == Some(libc::EROFS);
        assert!(erofs(device.write_at(&[2; 4096], 0)));
        assert!(erofs(device.set_len(0)));
        assert!(erofs(device.punch(0, 4096)));
        let mut buf = [0; 4096];
        assert_eq!(device.read_at(&mut buf, 0).unwrap(), 4096);
        assert!(buf.iter().all(|&b| b == 1));
    }
}

#[test]
fn open_refuses_what_is_not_there_or_not_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let missing = FileDevice::open(dir.path().join("x"), FileOptions::default());
    assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    let read_only = FileOptions {
        read_only: true,
        ..FileOptions::default()
    };
    let directory = FileDevice::open(dir.path(), read_only);
    assert_eq!(directory.unwrap_err().kind(), io::ErrorKind::InvalidInput);
    let new = FileOptions {
        create_new: true,
        ..FileOptions::default()
    };
    device(&dir, "f", new);
    let again = FileDevice::open(dir.path().join("f"), new);
    assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
}

/// The frontend hands over descriptors opened with whatever flags the application chose, of
/// files that may be gone from their directory.
#[test]
fn from_file_survives_odd_flags_and_unlink() {
    let dir = tempfile::tempdir().unwrap();
    for flags in [0, libc::O_APPEND, libc::O_DIRECT, libc::O_DSYNC] {
        let path = dir.path().join(format!("f{flags}"));
        let mut options = OpenOptions::new();
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(flags);
        let Ok(file) = options.open(&path) else {
            assert_eq!(flags, libc::O_DIRECT, "only direct I/O may be missing");
            continue;
        };
        std::fs::remove_file(&path).unwrap();
        check_overwrite(FileDevice::from_file(file, "gone", FileOptions::default()).unwrap());
    }
}

/// Set for the process that may open nothing more.
const FULL: &str = "THERMOCLINE_TEST_NO_DESCRIPTOR";

/// A file has one descriptor until requests of both kinds were made. Where there is none for the
/// second kind everything is buffered, and nothing fails.
#[test]
fn without_a_descriptor_left_everything_is_buffered() {
    let Some(path) = std::env::var_os(FULL) else {
        let dir = tempfile::tempdir().unwrap();
        let name = "without_a_descriptor_left_everything_is_buffered";
        let child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", name, "--nocapture"])
            .env(FULL, dir.path().join("f"))
            .output()
            .unwrap();
        assert!(child.status.success(), "{child:?}");
        return;
    };
    let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let before = descriptors();
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(true);
    let file = Arc::new(options.open(path).unwrap());
    let share = || FileDevice::from_file(Arc::clone(&file), "f", CREATE).unwrap();
    let device = share();
    device.write_at(&[1; 8192], 0).unwrap();
    assert_eq!(descriptors(), before + 1);
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the call reads the limit, and changes this process alone.
    let limited = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none) };
    assert_eq!(limited, 0);
    assert!(
        File::open("/dev/null").is_err(),
        "nothing more can be opened"
    );
    device.write_at(&[2; 100], 4090).unwrap();
    assert!(!device.is_direct());
    device.write_at(&[3; 4096], 4096).unwrap();
    device.sync(true).unwrap();
    let mut buf = [0; 8192];
    assert_eq!(device.read_at(&mut buf, 0).unwrap(), 8192);
    assert!(buf[..4090].iter().all(|&b| b == 1) && buf[4090..4096].iter().all(|&b| b == 2));
    assert!(buf[4096..].iter().all(|&b| b == 3));
    // Whoever opens the same file anew wants it direct; neither is in the other's way.
    let again = share();
    device.write_at(&[4; 100], 4090).unwrap();
    again.write_at(&[5; 100], 100).unwrap();
    again.write_at(&[6; 4096], 4096).unwrap();
    for device in [device, again] {
        assert_eq!(device.read_at(&mut buf[..5000], 0).unwrap(), 5000);
        assert!(buf[100..200].iter().all(|&b| b == 5));
        assert!(buf[4090..4096].iter().all(|&b| b == 4));
        assert!(buf[4096..5000].iter().all(|&b| b == 6));
    }
}

fn check_overwrite(device: FileDevice) {
    device.write_at(&[1; 8192], 0).unwrap();
    device.write_at(&[2; 4096], 0).unwrap();
    device.write_at(&[3; 10], 4090).unwrap();
    assert_eq!(
        device.len().unwrap(),
        8192,
        "append mode must not move writes"
    );
    let mut buf = [0; 8192];
    assert_eq!(device.read_at(&mut buf, 0).unwrap(), 8192);
    assert!(buf[..4090].iter().all(|&b| b == 2));
    assert!(buf[4090..4100].iter().all(|&b| b == 3));
    assert!(buf[4100..].iter().all(|&b| b == 1));
    assert_eq!(device.label(), "file gone");
}

#[test]
fn errors_keep_their_code() {
    let dir = tempfile::tempdir().unwrap();
    for (i, options) in every_way().into_iter().enumerate() {
        let device = device(&dir, &i.to_string(), options);
        let direct = device.is_direct();
        assert!(device.write_at(&[0; 4096], u64::MAX - 8191).is_err());
        assert!(device.set_len(u64::MAX).is_err());
        assert_eq!(
            device.is_direct(),
            direct,
            "a bad offset is no verdict on the device"
        );
        device.punch(u64::MAX - 4096, 4096).unwrap();
        assert!(device.is_empty().unwrap());
    }
}

#[test]
fn many_threads_many_pages() {
    let dir = tempfile::tempdir().unwrap();
    for (i, options) in every_way().into_iter().enumerate() {
        let device = Arc::new(device(&dir, &i.to_string(), options));
        std::thread::scope(|scope| {
            for t in 0..4u64 {
                let device = &device;
                scope.spawn(move || pages_of_one_thread(device, t));
            }
        });
        assert_eq!(device.len().unwrap(), 4 * 16 * 8192);
        assert_eq!(device.abandoned(), 0);
    }
}

fn pages_of_one_thread(device: &dyn Device, t: u64) {
    for page in (0..16).map(|i| i * 4 + t) {
        let mut buf = vec![page as u8; 8192];
        device.write_at(&buf, page * 8192).unwrap();
        buf.fill(0xFF);
        assert_eq!(device.read_at(&mut buf, page * 8192).unwrap(), 8192);
        assert!(buf.iter().all(|&b| b == page as u8));
    }
}

/// A change through another descriptor of the file is seen, buffered or direct.
#[test]
fn sees_what_others_write() {
    let dir = tempfile::tempdir().unwrap();
    let device = device(&dir, "f", CREATE);
    device.write_at(&[1; 8192], 0).unwrap();
    let mut buf = [0; 4096];
    device.read_at(&mut buf[..100], 1).unwrap();
    overwrite(&dir.path().join("f"));
    for range in [0..4096, 0..100] {
        let n = range.len();
        assert_eq!(device.read_at(&mut buf[range.clone()], 0).unwrap(), n);
        assert!(buf[range].iter().all(|&b| b == 9));
    }
}

fn overwrite(path: &Path) {
    let mut file = OpenOptions::new().write(true).open(path).unwrap();
    file.write_all(&[9; 8192]).unwrap();
}

/// With no time at all, requests finish or are abandoned as luck has it. Whichever: the
/// caller's buffer holds the right bytes or none, and every abandoned request comes to its end.
#[test]
fn abandoned_requests_touch_nobodys_memory() {
    let dir = tempfile::tempdir().unwrap();
    let plain = device(&dir, "f", CREATE);
    for page in 0..64u64 {
        plain.write_at(&[page as u8; 8192], page * 8192).unwrap();
    }
    plain.sync(true).unwrap();
    let hasty = device(
        &dir,
        "f",
        FileOptions {
            deadline: Some(Duration::ZERO),
            ..CREATE
        },
    );
    for page in (0..64u64).cycle().take(256) {
        let mut buf = [0xEE; 8192];
        let expected = match hasty.read_at(&mut buf, page * 8192) {
            Ok(n) => {
                assert_eq!(n, 8192);
                page as u8
            }
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::TimedOut);
                0xEE
            }
        };
        assert!(buf.iter().all(|&b| b == expected), "page {page}");
    }
    for page in 0..64u64 {
        if let Err(error) = hasty.write_at(&[0xAA; 8192], page * 8192) {
            assert_eq!(error.kind(), io::ErrorKind::TimedOut);
        }
    }
    while hasty.abandoned() > 0 {
        std::thread::yield_now();
    }
    for page in 0..64u64 {
        let mut buf = [0; 8192];
        plain.read_at(&mut buf, page * 8192).unwrap();
        assert!(buf[0] == page as u8 || buf[0] == 0xAA);
        assert!(
            buf.iter().all(|&b| b == buf[0]),
            "page {page} is old or new"
        );
    }
}
