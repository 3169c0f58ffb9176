//! Files that grow in write-back: base has their length and room for them at once, their bytes
//! later, or never.
#![cfg(not(shuttle))]

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use thermocline::config::DirtySettings;
use thermocline::device::{Device, FaultScript, Faulty, FileDevice, FileOptions, Metered};
use thermocline::{Engine, EngineConfig, FileKind, HintSet, Object, ObjectSpec, Request};
use thermocline::{Store, StoreOptions};

const PAGE: usize = 4096;
const LONG_AGO_NS: i64 = 1_000_000_000_000_000_000;

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
        let spec = ObjectSpec::of_file(self.directory.path(), "file", FileKind::Relation);
        let spec = spec.expect("opens");
        let file = FileDevice::open(self.path(), FileOptions::default()).expect("opens");
        let base = Arc::new(Metered::new(Faulty::new(file, self.script.clone(), None)));
        let device: Arc<dyn Device> = base.clone();
        let object = self.engine.open_object(ObjectSpec {
            base: device,
            ..spec
        });
        (object.expect("opens"), base)
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
    let file = fs::File::options()
        .write(true)
        .open(scene.path())
        .expect("opens");
    let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_nanos(LONG_AGO_NS as u64);
    let set = || file.set_modified(long_ago);
    let identity = thermocline::Identity::of(&file.metadata().expect("is there"));
    let stamp = || file.metadata().ok().as_ref().map(thermocline::Stamp::of);
    scene
        .engine
        .change_metadata(&identity, stamp, set)
        .expect("sets");
    scene.engine.close_object(&object);
    let after = fs::metadata(scene.path()).expect("is there");
    assert!(after.blocks() * 512 < before, "{}", after.blocks());
    assert_eq!(
        (after.len(), after.modified().expect("a time")),
        (64 * PAGE as u64, long_ago)
    );
    let (object, _) = scene.open();
    assert_eq!(scene.read(&object, 65 * PAGE), [1; 64 * PAGE]);
    scene.engine.close_object(&object);
    scene.engine.stop().expect("stops");
}
