//! Files that grow in write-back: base has their length and room for them at once, their bytes
//! later, or never.
#![cfg(not(feature = "shuttle"))]

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thermocline::config::DirtySettings;
use thermocline::device::{Device, FaultScript, Faulty, FileDevice, FileOptions, Metered};
use thermocline::{Engine, EngineConfig, FileKind, HintSet, Identity, Object, ObjectSpec, Request};
use thermocline::{Stamp, Store, StoreOptions, TouchFn};

const PAGE: usize = 4096;
/// Long enough for another thread to go wrong in.
const A_WHILE: Duration = Duration::from_millis(300);

type Base = Metered<Faulty<FileDevice>>;

/// An engine in write-back, and an empty file on a base that is counted and fails on command.
struct Scene {
    directory: tempfile::TempDir,
    engine: Arc<Engine>,
    script: Arc<FaultScript>,
}

impl Scene {
    fn new(policy: &str, reserve: f64) -> Self {
        let directory = tempfile::tempdir().expect("directory");
        let options = StoreOptions {
            size: Some(4 << 20),
            page_size: PAGE as u32,
            ..StoreOptions::default()
        };
        let store = Store::open(&directory.path().join("cache"), &options).expect("a cache");
        let config = EngineConfig {
            write_back: true,
            policy: policy.into(),
            page_size: PAGE as u32,
            dirty: DirtySettings {
                reserve,
                dirty_high: 1.0,
                ..DirtySettings::default()
            },
            ..EngineConfig::default()
        };
        Self {
            engine: Engine::start(config, Some(store)).expect("starts"),
            script: FaultScript::new(),
            directory,
        }
    }

    fn path(&self) -> PathBuf {
        self.directory.path().join("file")
    }

    fn open(&self) -> (Arc<Object>, Arc<Base>) {
        if !self.path().exists() {
            fs::write(self.path(), "").expect("a file");
        }
        let base = Metered::new(Faulty::new(self.file(), self.script.clone(), None));
        let base = Arc::new(base);
        let device: Arc<dyn Device> = base.clone();
        (self.open_on(device, |touch| touch), base)
    }

    fn file(&self) -> FileDevice {
        FileDevice::open(self.path(), FileOptions::default()).expect("opens")
    }

    fn open_on(&self, base: Arc<dyn Device>, touch: impl Fn(TouchFn) -> TouchFn) -> Arc<Object> {
        let spec = ObjectSpec::of_file(self.directory.path(), "file", FileKind::Relation);
        let spec = spec.expect("opens");
        let touch = touch(Arc::clone(&spec.touch));
        let spec = ObjectSpec {
            base,
            touch,
            ..spec
        };
        self.engine.open_object(spec).expect("opens")
    }

    /// Sets the time of change as a mount does, to one of long ago, or none.
    fn change(&self, at: Option<SystemTime>) {
        let file = fs::File::options().write(true).open(self.path());
        let file = file.expect("opens");
        let identity = Identity::of(&file.metadata().expect("is there"));
        let stamp = || file.metadata().ok().as_ref().map(Stamp::of);
        let set = || match at {
            Some(at) => self.engine.set_times(&identity, || file.set_modified(at)),
            None => Ok(()),
        };
        let changed = self.engine.change_metadata(&identity, stamp, set);
        changed.expect("changes");
    }

    fn changed_at(&self) -> SystemTime {
        let file = fs::metadata(self.path()).expect("is there");
        file.modified().expect("a time")
    }

    fn write(&self, object: &Object, offset: usize, bytes: &[u8]) -> io::Result<()> {
        self.engine.write(&request(object, offset), bytes)
    }

    fn read(&self, object: &Object, length: usize) -> Vec<u8> {
        let mut bytes = vec![0xEE; length];
        let read = self.engine.read(&request(object, 0), &mut bytes);
        bytes.truncate(read.expect("reads"));
        bytes
    }

    fn length(&self) -> usize {
        fs::metadata(self.path()).expect("is there").len() as usize
    }
}

#[test]
fn a_write_past_the_longest_file_there_can_be_is_refused() {
    let scene = Scene::new("lru", 0.0);
    let (object, _base) = scene.open();
    for offset in [u64::MAX, u64::MAX - 10, i64::MAX as u64 - 10] {
        let past = Request {
            offset,
            ..request(&object, 0)
        };
        let error = scene.engine.write(&past, &[1; PAGE]);
        let error = error.expect_err("no file is that long");
        assert_eq!(error.raw_os_error(), Some(27), "EFBIG: {error}");
    }
    assert_eq!(scene.length(), 0);
    scene.engine.close_object(&object);
    scene.engine.stop().expect("stops");
}

fn request(object: &Object, offset: usize) -> Request<'_> {
    Request {
        object,
        offset: offset as u64,
        hints: HintSet::UNKNOWN,
        client: 0,
    }
}

fn allocated(path: &Path) -> u64 {
    fs::metadata(path).expect("is there").blocks() * 512
}

fn long_ago() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(1_000_000_000)
}

/// Where somebody waits while it is shut.
#[derive(Default)]
struct Gate {
    shut: Mutex<bool>,
    waiting: Mutex<bool>,
    changed: Condvar,
}

impl Gate {
    fn shut(&self) {
        *self.shut.lock().expect("lock") = true;
    }

    fn open(&self) {
        *self.shut.lock().expect("lock") = false;
        self.changed.notify_all();
    }

    fn pass(&self) {
        let shut = self.shut.lock().expect("lock");
        *self.waiting.lock().expect("lock") = *shut;
        drop(self.changed.wait_while(shut, |shut| *shut).expect("lock"));
    }

    fn until_somebody_waits(&self) {
        while !*self.waiting.lock().expect("lock") {
            thread::yield_now();
        }
    }
}

/// A base file whose room may end within what is to be set aside, and whose writes pass a gate.
struct Odd {
    file: FileDevice,
    gate: Arc<Gate>,
    full: bool,
}

impl Device for Odd {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        self.file.read_at(buf, offset)
    }
    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<()> {
        self.gate.pass();
        self.file.write_at(buf, offset)
    }
    fn sync(&self, data_only: bool) -> io::Result<()> {
        self.file.sync(data_only)
    }
    fn len(&self) -> io::Result<u64> {
        self.file.len()
    }
    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }
    fn reserve(&self, offset: u64, len: u64, ahead: u64) -> io::Result<()> {
        if !self.full {
            return self.file.reserve(offset, len, ahead);
        }
        self.file.set_len(offset + len / 2)?;
        Err(io::Error::from_raw_os_error(libc::ENOSPC))
    }
    fn punch(&self, offset: u64, len: u64) -> io::Result<()> {
        self.file.punch(offset, len)
    }
    fn label(&self) -> String {
        self.file.label()
    }
}

#[test]
fn what_is_gone_soon_never_reaches_base() {
    let scene = Scene::new("lru", 0.0);
    let (object, base) = scene.open();
    let mut all = Vec::new();
    for page in 0..100 {
        all.extend([page as u8 + 1; PAGE]);
        scene
            .write(&object, page * PAGE, &all[page * PAGE..])
            .expect("writes");
        assert_eq!(
            scene.length(),
            (page + 1) * PAGE,
            "base has the length at once"
        );
    }
    assert!(
        allocated(&scene.path()) >= 100 * PAGE as u64,
        "and the room"
    );
    scene.engine.sync(&object, true).expect("syncs");
    assert_eq!(base.meter().write.requests, 0);
    assert_eq!(scene.read(&object, 101 * PAGE), all);
    assert_eq!(fs::read(scene.path()).expect("reads"), vec![0; 100 * PAGE]);
    scene.engine.truncate(&object, 0).expect("cuts");
    scene.engine.flush(|_| true).expect("flushes");
    assert_eq!(
        base.meter().write.requests,
        0,
        "nothing is left to be written"
    );
    scene.write(&object, 0, &all).expect("writes");
    scene.engine.flush(|_| true).expect("flushes");
    assert_eq!(fs::read(scene.path()).expect("reads"), all);
    scene.engine.close_object(&object);
    scene.engine.stop().expect("stops");
}

#[test]
fn the_part_that_fills_no_page_goes_to_base() {
    let scene = Scene::new("lru", 0.0);
    let (object, base) = scene.open();
    let bytes: Vec<u8> = (0..PAGE * 5 / 2).map(|at| at as u8 | 1).collect();
    scene.write(&object, 0, &bytes[..100]).expect("writes");
    scene.write(&object, 100, &bytes[100..]).expect("writes");
    assert_eq!(scene.length(), bytes.len());
    assert_eq!(scene.read(&object, 3 * PAGE), bytes);
    assert_eq!(base.meter().write.bytes, 100 + PAGE as u64 / 2);
    let on_base = fs::read(scene.path()).expect("reads");
    assert_eq!(on_base[2 * PAGE..], bytes[2 * PAGE..]);
    // Behind a hole: the page that begins in it has room too.
    scene
        .write(&object, 400 * PAGE + 1000, &bytes[..2 * PAGE])
        .expect("writes");
    let mut expected = bytes.clone();
    expected.resize(400 * PAGE + 1000, 0);
    expected.extend(&bytes[..2 * PAGE]);
    assert_eq!(scene.read(&object, 410 * PAGE), expected);
    scene.engine.flush(|_| true).expect("flushes");
    assert_eq!(fs::read(scene.path()).expect("reads"), expected);
    assert!(
        allocated(&scene.path()) < 200 * PAGE as u64,
        "a hole stays one"
    );
    scene.engine.close_object(&object);
    scene.engine.stop().expect("stops");
}

#[test]
fn lack_of_room_is_told_at_once_and_leaves_nothing() {
    let scene = Scene::new("lru", 0.0);
    let (object, base) = scene.open();
    scene.write(&object, 0, &[1; PAGE]).expect("writes");
    for error in ["ENOSPC", "EDQUOT", "EIO"] {
        scene
            .script
            .load(&format!("write fail {error}"))
            .expect("a script");
        let failed = scene
            .write(&object, PAGE, &[2; 3 * PAGE])
            .expect_err("no room");
        let code = match error {
            "ENOSPC" => libc::ENOSPC,
            "EDQUOT" => libc::EDQUOT,
            _ => libc::EIO,
        };
        assert_eq!(failed.raw_os_error(), Some(code));
        assert_eq!(
            (scene.length(), scene.read(&object, 9 * PAGE).len()),
            (PAGE, PAGE)
        );
        assert_eq!(scene.engine.dirty_pages(), 1, "the first page alone");
        scene.script.clear();
    }
    scene
        .write(&object, PAGE, &[2; 3 * PAGE])
        .expect("there is room again");
    assert_eq!(scene.read(&object, 9 * PAGE)[PAGE..], [2; 3 * PAGE]);
    assert_eq!(base.meter().write.requests, 0);
    // A base that does not keep its promise of room.
    // ENOENT is what a network file system may say; it is an error as any other.
    for error in ["ENOSPC", "ENOENT"] {
        scene.script.clear();
        scene
            .script
            .load(&format!("write fail {error}"))
            .expect("a script");
        assert!(scene.engine.flush(|_| true).is_err(), "{error}");
    }
    assert_eq!(scene.engine.dirty_pages(), 4, "nothing is given up");
    assert_eq!(scene.read(&object, 9 * PAGE)[PAGE..], [2; 3 * PAGE]);
    scene.engine.sync(&object, true).expect("flash keeps them");
    scene.script.clear();
    scene.engine.flush(|_| true).expect("flushes");
    assert_eq!(
        fs::read(scene.path()).expect("reads")[PAGE..],
        [2; 3 * PAGE]
    );
    scene.engine.close_object(&object);
    scene.engine.stop().expect("stops");
}

#[test]
fn a_stream_goes_to_base() {
    let scene = Scene::new("lru", 0.0);
    let (object, base) = scene.open();
    let bytes = vec![3; 1 << 20];
    for at in 0..3 {
        scene.write(&object, at << 20, &bytes).expect("writes");
    }
    assert_eq!(base.meter().write.requests, 3);
    assert_eq!(scene.engine.dirty_pages(), 0);
    assert_eq!(scene.read(&object, 4 << 20), vec![3; 3 << 20]);
    scene.engine.close_object(&object);
    scene.engine.stop().expect("stops");
}

#[test]
fn a_base_that_sets_no_room_aside_gets_the_bytes() {
    let scene = Scene::new("lru", 0.0);
    let (object, base) = scene.open();
    // As a file system says that has no such thing.
    scene
        .script
        .load("write times 1 fail EOPNOTSUPP")
        .expect("a script");
    for page in 0..5 {
        scene
            .write(&object, page * PAGE, &[page as u8; PAGE])
            .expect("writes");
        assert_eq!(scene.length(), (page + 1) * PAGE);
    }
    assert_eq!(base.meter().write.requests, 5);
    assert_eq!(
        fs::read(scene.path()).expect("reads")[4 * PAGE..],
        [4; PAGE]
    );
    scene.engine.close_object(&object);
    scene.engine.stop().expect("stops");
}

#[test]
fn what_no_place_is_left_for_goes_to_base_in_one_piece() {
    let scene = Scene::new("tac", 0.0);
    let (object, base) = scene.open();
    scene.write(&object, 0, &[7; 16 * PAGE]).expect("writes");
    assert_eq!(
        fs::read(scene.path()).expect("reads"),
        [7; 16 * PAGE],
        "tac refuses writes"
    );
    assert_eq!(base.meter().write.requests, 1);
    scene.engine.close_object(&object);
    scene.engine.stop().expect("stops");
}

#[test]
fn room_ahead_is_given_back_and_times_set_by_hand_stay() {
    let scene = Scene::new("lru", 0.0);
    let (object, _) = scene.open();
    for page in 0..64 {
        scene
            .write(&object, page * PAGE, &[1; PAGE])
            .expect("writes");
    }
    let before = allocated(&scene.path());
    assert!(before > 64 * PAGE as u64, "room ahead: {before}");
    scene.engine.sync(&object, false).expect("syncs");
    scene.change(Some(long_ago()));
    scene.engine.close_object(&object);
    let after = fs::metadata(scene.path()).expect("is there");
    assert!(after.blocks() * 512 < before, "{}", after.blocks());
    assert_eq!(
        (after.len(), after.modified().expect("a time")),
        (64 * PAGE as u64, long_ago())
    );
    let (object, _) = scene.open();
    assert_eq!(scene.read(&object, 65 * PAGE), [1; 64 * PAGE]);
    scene.engine.close_object(&object);
    scene.engine.stop().expect("stops");
}

#[test]
fn a_part_of_the_room_that_was_to_be_had_leaves_the_file_as_it_was() {
    let scene = Scene::new("lru", 0.0);
    fs::write(scene.path(), [1; PAGE]).expect("a file");
    let base = Odd {
        file: scene.file(),
        gate: Arc::default(),
        full: true,
    };
    let object = scene.open_on(Arc::new(base), |touch| touch);
    let failed = scene.write(&object, PAGE, &[2; 4 * PAGE]);
    let code = failed.expect_err("no room").raw_os_error();
    assert_eq!(code, Some(libc::ENOSPC));
    assert_eq!(scene.length(), PAGE);
    assert_eq!(scene.read(&object, 9 * PAGE), [1; PAGE]);
    scene.engine.close_object(&object);
    scene.engine.stop().expect("stops");
}

#[test]
fn a_time_set_while_base_is_written_in_the_background_stays() {
    let scene = Scene::new("lru", 0.0);
    fs::write(scene.path(), [1; 4 * PAGE]).expect("a file");
    let gate = Arc::new(Gate::default());
    let base = Odd {
        file: scene.file(),
        gate: Arc::clone(&gate),
        full: false,
    };
    let object = scene.open_on(Arc::new(base), |touch| touch);
    gate.shut();
    scene.write(&object, 0, &[2; 4 * PAGE]).expect("writes");
    scene.engine.sync(&object, false).expect("syncs");
    thread::scope(|scope| {
        let flushed = scope.spawn(|| scene.engine.flush(|_| true));
        gate.until_somebody_waits();
        // Whoever waits for the write already lets nobody else by.
        scope.spawn(|| scene.change(None));
        thread::sleep(A_WHILE);
        scope.spawn(|| scene.change(Some(long_ago())));
        thread::sleep(A_WHILE);
        gate.open();
        flushed.join().expect("a thread").expect("flushes");
    });
    assert_eq!(scene.changed_at(), long_ago());
    scene.engine.close_object(&object);
    assert_eq!(fs::read(scene.path()).expect("reads"), [2; 4 * PAGE]);
    scene.engine.stop().expect("stops");
}

#[test]
fn a_time_set_while_earlier_writes_are_about_to_show_stays() {
    let scene = Scene::new("lru", 0.0);
    fs::write(scene.path(), [1; PAGE]).expect("a file");
    let gate = Arc::new(Gate::default());
    let object = scene.open_on(Arc::new(scene.file()), |touch| {
        let gate = Arc::clone(&gate);
        Arc::new(move |at| {
            gate.pass();
            touch(at)
        })
    });
    scene.write(&object, 0, &[2; PAGE]).expect("writes");
    gate.shut();
    thread::scope(|scope| {
        scope.spawn(|| scene.engine.touch(&object));
        gate.until_somebody_waits();
        scope.spawn(|| {
            scene.engine.touch(&object);
            scene.change(Some(long_ago()));
        });
        thread::sleep(A_WHILE);
        gate.open();
    });
    assert_eq!(scene.changed_at(), long_ago());
    scene.engine.close_object(&object);
    scene.engine.stop().expect("stops");
}
