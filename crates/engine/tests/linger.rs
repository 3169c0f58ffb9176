//! Files that nobody uses any more and that still wait for base: with a limit they are closed by
//! whoever leaves them, and base has their bytes.
#![cfg(not(feature = "shuttle"))]

use std::fs::{self, File};
use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;
use thermocline::{Engine, EngineConfig, Error, FileKind, HintSet, ObjectSpec, Request};
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

/// Writes a page of each file, and leaves it without a sync; how many objects there are then.
fn leave_files(engine: &Engine, base: &Path) -> usize {
    for number in 0..FILES {
        let name = format!("file{number}");
        fs::write(base.join(&name), vec![0; PAGE]).expect("a file");
        let spec = ObjectSpec::of_file(base, &name, FileKind::Relation).expect("opens");
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
fn base_is_not_written_before_all_files_were_compared() {
    let directory = tempfile::tempdir().expect("directory");
    let base = directory.path().join("base");
    fs::create_dir(&base).expect("base");
    let first = engine(directory.path(), true);
    leave_files(&first, &base);
    first.stop().expect("stops");
    drop(first);
    let path = |number: usize| base.join(format!("file{number}"));
    let before = |number: usize| fs::read(path(number)).expect("reads");
    let all: Vec<_> = (0..FILES).map(before).collect();
    // Whichever is looked at last, many are before it.
    let changed = File::options()
        .write(true)
        .open(path(FILES / 2))
        .expect("opens");
    changed
        .set_modified(SystemTime::UNIX_EPOCH)
        .expect("changes");
    let engine = engine(directory.path(), true);
    engine.limit_objects(1);
    let find = |which: &_, name: &str, _| ObjectSpec::find(&base, name, FileKind::Relation, which);
    let refused = engine.adopt(&find, false).expect_err("one was changed");
    assert!(matches!(refused, Error::ChangedBehind { ref files, .. } if files.len() == 1));
    for (number, bytes) in all.iter().enumerate() {
        assert!(before(number) == *bytes, "file{number} was written");
    }
    engine
        .adopt(&find, true)
        .expect("what waits for it is given up");
    engine.flush(|_| true).expect("flushes");
    for number in (0..FILES).filter(|number| *number != FILES / 2) {
        assert_eq!(before(number), [number as u8 + 1; PAGE]);
    }
    engine.stop().expect("stops");
}
