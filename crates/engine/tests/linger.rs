//! Files that nobody uses any more and that still wait for base: with a limit they are closed by
//! whoever leaves them, together, and base has their bytes.
#![cfg(not(shuttle))]

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;
use thermocline::device::Device;
use thermocline::{Engine, EngineConfig, FileKind, HintSet, ObjectSpec, Request};
use thermocline::{Store, StoreOptions};

const PAGE: usize = 8192;
const FILES: usize = 40;

fn engine(directory: &Path, write_back: bool) -> Arc<Engine> {
    let options = StoreOptions {
        size: Some(16 << 20),
        ..StoreOptions::default()
    };
    let store = Store::open(&directory.join("cache"), &options).expect("a cache");
    let config = EngineConfig {
        write_back,
        ..EngineConfig::default()
    };
    Engine::start(config, Some(store)).expect("starts")
}

/// What the base files of a test know of each other's syncs.
#[derive(Default)]
struct Syncs {
    /// Under way, and the most there ever were.
    at_once: Mutex<[usize; 2]>,
    more: Condvar,
    /// Syncs of the one file that is told so fail.
    failing: AtomicBool,
}

/// A base file whose first sync waits for another file's.
struct Together {
    file: Arc<dyn Device>,
    syncs: Arc<Syncs>,
    fails: bool,
}

impl Device for Together {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.file.write_at(buf, offset)
    }
    fn sync(&self, data_only: bool) -> io::Result<()> {
        let mut at_once = self.syncs.at_once.lock().expect("sound");
        at_once[0] += 1;
        at_once[1] = at_once[1].max(at_once[0]);
        self.syncs.more.notify_all();
        if at_once[1] < 2 {
            // Only a test that fails waits so long.
            let long = Duration::from_secs(5);
            let more = self.syncs.more.wait_timeout(at_once, long);
            at_once = more.expect("sound").0;
        }
        at_once[0] -= 1;
        drop(at_once);
        if self.fails && self.syncs.failing.load(Ordering::Acquire) {
            return Err(io::Error::from_raw_os_error(libc::EIO));
        }
        self.file.sync(data_only)
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn reserve(&self, offset: u64, len: u64, ahead: u64) -> io::Result<()> {
        self.file.reserve(offset, len, ahead)
    }
    fn give_back(&self) -> io::Result<()> {
        self.file.give_back()
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file.punch(offset, len)
    }
    fn label(&self) -> String {
        self.file.label()
    }
}

/// Writes a page of each file, and leaves it without a sync; how many objects there are then.
fn leave_files(engine: &Engine, base: &Path) -> usize {
    leave_files_of(engine, base, |spec, _| spec)
}

fn leave_files_of(
    engine: &Engine,
    base: &Path,
    change: impl Fn(ObjectSpec, usize) -> ObjectSpec,
) -> usize {
    for number in 0..FILES {
        let name = format!("file{number}");
        fs::write(base.join(&name), vec![0; PAGE]).expect("a file");
        let spec = ObjectSpec::of_file(base, &name, FileKind::Relation).expect("opens");
        let spec = change(spec, number);
        let object = engine.open_object(spec).expect("opens");
        let request = Request {
            object: &object,
            offset: 0,
            hints: HintSet::UNKNOWN,
            client: 0,
        };
        let bytes = [number as u8 + 1; PAGE];
        engine.write(&request, &bytes).expect("writes");
        engine.close_object(&object);
    }
    engine.open_objects()
}

#[test]
fn files_that_linger_are_as_few_as_the_limit_says() {
    let most = 3;
    for write_back in [false, true] {
        let directory = tempfile::tempdir().expect("directory");
        let base = directory.path().join("base");
        fs::create_dir(&base).expect("base");
        let engine = engine(directory.path(), write_back);
        engine.limit_objects(most);
        let left = leave_files(&engine, &base);
        assert!(left <= most, "back {write_back}: {left}");
        let is_whole = |number: &usize| {
            let bytes = fs::read(base.join(format!("file{number}"))).expect("reads");
            bytes == [*number as u8 + 1; PAGE]
        };
        let whole = (0..FILES).filter(is_whole).count();
        assert!(whole >= FILES - most, "back {write_back}: {whole}");
        engine.stop().expect("stops");
    }
}

#[test]
fn files_that_linger_share_their_syncs_and_each_is_told_its_own_error() {
    const FAILS: usize = 5;
    for write_back in [false, true] {
        let directory = tempfile::tempdir().expect("directory");
        let base = directory.path().join("base");
        fs::create_dir(&base).expect("base");
        let engine = engine(directory.path(), write_back);
        engine.limit_objects(9);
        let syncs = Arc::new(Syncs::default());
        syncs.failing.store(true, Ordering::Release);
        let together = |spec: ObjectSpec, number| ObjectSpec {
            base: Arc::new(Together {
                file: Arc::clone(&spec.base),
                syncs: Arc::clone(&syncs),
                fails: number == FAILS,
            }),
            ..spec
        };
        let left = leave_files_of(&engine, &base, together);
        let most = syncs.at_once.lock().expect("sound")[1];
        assert!(most > 1, "back {write_back}: files wait for each other");
        assert!(left <= 10, "back {write_back}: {left}");
        syncs.failing.store(false, Ordering::Release);
        for number in 0..FILES {
            let name = format!("file{number}");
            let spec = ObjectSpec::of_file(&base, &name, FileKind::Relation).expect("opens");
            let object = engine.open_object(spec).expect("opens");
            let told = engine
                .sync(&object, true)
                .map_err(|error| error.raw_os_error());
            let expected = match number {
                FAILS => Err(Some(libc::EIO)),
                _ => Ok(()),
            };
            assert_eq!(told, expected, "back {write_back}: {name}");
            engine.close_object(&object);
        }
        engine.stop().expect("stops");
    }
}
