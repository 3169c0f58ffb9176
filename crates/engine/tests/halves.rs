//! Reads in two halves: the caller fetches the pages from flash itself, and whatever it brings,
//! also nothing at all, the bytes that are served are right.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use thermocline::classify::Dialect;
use thermocline::device::{AlignedBuf, Device, FaultScript, Faulty, MemoryDevice};
use thermocline::{
    BaseIdentity, Engine, EngineConfig, FlashRead, Identity, Object, ObjectSpec, ReadEnded,
    ReadStarted, Request, Stamp, Store, StoreOptions,
};
use thermocline_core::{FileKind, HintSet};

const PAGE: usize = 4096;
const PAGES: usize = 16;

struct Rig {
    engine: Arc<Engine>,
    object: Arc<Object>,
    base: Arc<MemoryDevice>,
    cache: std::fs::File,
    _dir: tempfile::TempDir,
}

fn page(index: usize, version: u8) -> Vec<u8> {
    (0..PAGE)
        .map(|at| (at / 7) as u8 ^ index as u8 ^ version)
        .collect()
}

fn store(path: &Path) -> Store {
    let options = StoreOptions {
        page_size: PAGE as u32,
        size: Some(Store::length_for(64, PAGE as u32)),
        base: BaseIdentity {
            file_system: 1,
            inode: 2,
            path: "/base".into(),
            ..BaseIdentity::default()
        },
        ..StoreOptions::default()
    };
    Store::open(path, &options).expect("opens")
}

/// An engine with pages 0..8 of one object on flash, in a file.
fn rig(wrap: impl FnOnce(Store) -> Store) -> Rig {
    let dir = tempfile::tempdir().expect("makes a folder");
    let path = dir.path().join("cache");
    let base = Arc::new(MemoryDevice::new());
    for index in 0..PAGES {
        base.write_at(&page(index, 0), (index * PAGE) as u64)
            .expect("writes");
    }
    let config = EngineConfig {
        page_size: PAGE as u32,
        policy: "lru".into(),
        ..EngineConfig::default()
    };
    let engine = Engine::start(config, Some(wrap(store(&path)))).expect("starts");
    let spec = ObjectSpec {
        name: "file".into(),
        group: "file".into(),
        identity: Identity {
            device: 1,
            inode: 7,
            generation: 1,
        },
        base: base.clone(),
        kind: FileKind::Unknown,
        dialect: Dialect::None,
        cached: true,
        stamp: Arc::new(|| Some(Stamp::default())),
        touch: thermocline::untouched(),
    };
    let object = engine.open_object(spec).expect("opens");
    let rig = Rig {
        engine,
        object,
        base,
        cache: std::fs::File::options()
            .read(true)
            .write(true)
            .open(&path)
            .expect("opens"),
        _dir: dir,
    };
    assert_eq!(rig.read(0, 8).expect("reads"), rig.expected(0, 8));
    while rig.engine.stats().tier.is_some_and(|tier| tier.staged > 0) {
        std::thread::yield_now();
    }
    rig
}

impl Rig {
    fn expected(&self, first: usize, pages: usize) -> Vec<u8> {
        let mut bytes = vec![0; pages * PAGE];
        self.base
            .read_at(&mut bytes, (first * PAGE) as u64)
            .expect("reads");
        bytes
    }

    fn read(&self, first: usize, pages: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; pages * PAGE];
        let request = Request {
            object: &self.object,
            offset: (first * PAGE) as u64,
            hints: HintSet::UNKNOWN,
            client: 0,
        };
        self.engine.read(&request, &mut bytes)?;
        Ok(bytes)
    }

    fn start(&self, offset: usize, len: usize, most: usize) -> ReadStarted {
        let mut buf = vec![0; len];
        let at = (offset as u64, 0);
        self.engine
            .start_read(&self.object, at, &mut buf, most, || HintSet::UNKNOWN)
    }

    fn started(&self, first: usize, pages: usize) -> FlashRead {
        match self.start(first * PAGE, pages * PAGE, usize::MAX) {
            ReadStarted::Flash(read) => read,
            other => panic!("its pages are on flash: {other:?}"),
        }
    }

    /// Fetches all parts as a device would.
    fn fetch(&self, read: &FlashRead) -> (Vec<io::Result<usize>>, AlignedBuf) {
        let mut lane = AlignedBuf::new(read.length());
        let mut at = 0;
        let mut results = Vec::new();
        for (offset, len) in read.parts() {
            results.push(self.cache.read_at(&mut lane[at..at + len], offset));
            at += len;
        }
        (results, lane)
    }

    fn end(&self, read: FlashRead, results: &[io::Result<usize>], lane: &[u8]) -> (bool, Vec<u8>) {
        let mut reply = vec![0; read.length()];
        match read.end(&self.engine, results, lane, &mut reply) {
            ReadEnded::Done(len) => {
                assert_eq!(len, reply.len());
                (true, reply)
            }
            ReadEnded::Failed(failed) => {
                let len = failed
                    .from_base(&self.engine, &mut reply)
                    .expect("base has it");
                assert_eq!(len, reply.len());
                (false, reply)
            }
        }
    }

    fn faults(&self) -> u64 {
        let tier = self.engine.stats().tier.expect("there is one");
        tier.faults.values().sum()
    }
}

#[test]
fn pages_on_flash_are_fetched_by_the_caller() {
    let rig = rig(|store| store);
    let read = rig.started(2, 4);
    let parts: Vec<_> = read.parts().collect();
    assert_eq!(parts.iter().map(|(_, len)| len).sum::<usize>(), 4 * PAGE);
    let (results, lane) = rig.fetch(&read);
    let (whole, bytes) = rig.end(read, &results, &lane);
    assert!(whole && bytes == rig.expected(2, 4));
    assert_eq!(rig.faults(), 0);
    rig.engine.stop().expect("stops");
}

#[test]
fn pages_that_do_not_come_right_come_from_base() {
    let rig = rig(|store| store);
    let ways = ["wrong", "short", "failed", "interrupted", "damaged", "late"];
    for (first, how) in ways.into_iter().enumerate() {
        let before = rig.faults();
        let read = rig.started(first, 2);
        if how == "damaged" {
            let (offset, _) = read.parts().next().expect("a part");
            rig.cache
                .write_all_at(&[0x55; 100], offset)
                .expect("writes");
        }
        let (mut results, mut lane) = rig.fetch(&read);
        match how {
            "wrong" => lane[PAGE / 2] ^= 1,
            "short" => results[0] = Ok(PAGE - 512),
            "late" => results[0] = Err(io::ErrorKind::TimedOut.into()),
            "interrupted" => results[0] = Err(io::ErrorKind::Interrupted.into()),
            "failed" => results[0] = Err(io::Error::from_raw_os_error(libc::EIO)),
            _ => {}
        }
        let (whole, bytes) = rig.end(read, &results, &lane);
        assert!(!whole && bytes == rig.expected(first, 2), "{how}");
        // A request that was not finished is no fault of the device; wrong bytes are, also when
        // they come right a second time.
        let fault = rig.faults() > before;
        let finished = !matches!(how, "short" | "interrupted");
        assert_eq!(fault, finished, "{how}");
        // Whatever was given up comes back by later reads; late devices are soon given up whole.
        assert_eq!(rig.read(0, 8).expect("reads"), rig.expected(0, 8));
        while rig.engine.stats().tier.is_some_and(|tier| tier.staged > 0) {
            std::thread::yield_now();
        }
    }
    rig.engine.stop().expect("stops");
}

#[test]
fn a_page_that_base_has_older_is_asked_for_again() {
    let rig = rig(|store| store);
    rig.engine.set_write_back(true);
    for how in ["wrong", "failed", "damaged"] {
        let request = Request {
            object: &rig.object,
            offset: 5 * PAGE as u64,
            hints: HintSet::UNKNOWN,
            client: 0,
        };
        rig.engine.write(&request, &page(5, 9)).expect("writes");
        rig.engine.sync(&rig.object, false).expect("syncs");
        assert_eq!(rig.expected(5, 1), page(5, 0), "base is older");
        let read = rig.started(5, 1);
        if how == "damaged" {
            let (offset, _) = read.parts().next().expect("a part");
            rig.cache
                .write_all_at(&[0x55; 100], offset)
                .expect("writes");
        }
        let (mut results, mut lane) = rig.fetch(&read);
        match how {
            "wrong" => lane[PAGE / 2] ^= 1,
            "failed" => results[0] = Err(io::Error::from_raw_os_error(libc::EIO)),
            _ => {}
        }
        let mut reply = vec![0; PAGE];
        let ReadEnded::Failed(failed) = read.end(&rig.engine, &results, &lane, &mut reply) else {
            panic!("{how}: served");
        };
        let read = failed.from_base(&rig.engine, &mut reply);
        assert_eq!(read.is_ok(), how != "damaged", "{how}");
        assert!(
            read.is_err() || reply == page(5, 9),
            "{how}: the newest bytes"
        );
        assert_eq!(rig.faults() > 0, how == "damaged", "{how}");
    }
    rig.engine.stop().expect("stops");
}

#[test]
fn what_is_not_on_flash_whole_is_left_to_an_ordinary_read() {
    let rig = rig(|store| store);
    let waits = |started| matches!(started, ReadStarted::Waits);
    assert!(waits(rig.start(9 * PAGE, PAGE, usize::MAX)), "in base");
    assert!(
        waits(rig.start(7 * PAGE, 2 * PAGE, usize::MAX)),
        "half of it in base"
    );
    assert!(waits(rig.start(512, PAGE, usize::MAX)), "parts of pages");
    assert!(
        waits(rig.start(0, 2 * PAGE, PAGE)),
        "longer than the caller can take"
    );
    assert!(
        waits(rig.start(PAGES * PAGE, PAGE, usize::MAX)),
        "past the end"
    );
    let request = Request {
        object: &rig.object,
        offset: 0,
        hints: HintSet::UNKNOWN,
        client: 0,
    };
    rig.engine.write(&request, &page(0, 9)).expect("writes");
    if let ReadStarted::Flash(read) = rig.start(0, PAGE, usize::MAX) {
        let (results, lane) = rig.fetch(&read);
        assert_eq!(
            rig.end(read, &results, &lane).1,
            page(0, 9),
            "never the old bytes"
        );
    }
    rig.engine.stop().expect("stops");
}

#[test]
fn a_device_that_lends_no_file_serves_by_itself() {
    let faulty = |store: Store| {
        store.wrapped(|device| Arc::new(Faulty::new(device, FaultScript::new(), None)))
    };
    let rig = rig(faulty);
    assert!(matches!(rig.start(0, PAGE, usize::MAX), ReadStarted::Waits));
    assert_eq!(rig.read(0, 8).expect("reads"), rig.expected(0, 8));
    rig.engine.stop().expect("stops");
}

#[test]
fn a_writer_waits_until_a_started_read_has_ended() {
    let rig = rig(|store| store);
    let read = rig.started(3, 1);
    let written = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let request = Request {
                object: &rig.object,
                offset: 3 * PAGE as u64,
                hints: HintSet::UNKNOWN,
                client: 0,
            };
            rig.engine.write(&request, &page(3, 77)).expect("writes");
            written.store(true, Ordering::Release);
        });
        let (results, lane) = rig.fetch(&read);
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(
            !written.load(Ordering::Acquire),
            "a page has readers or one writer"
        );
        assert_eq!(rig.end(read, &results, &lane), (true, page(3, 0)));
    });
    assert_eq!(rig.read(3, 1).expect("reads"), page(3, 77));
    rig.engine.stop().expect("stops");
}
