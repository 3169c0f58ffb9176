//! More files than the table on flash has room for: the tier stays on, bytes are right, and files
//! that came late are cached once pages of earlier ones have left.
#![cfg(not(feature = "shuttle"))]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use thermocline::{Engine, EngineConfig, FileKind, HintSet, Object, ObjectSpec, Request};
use thermocline::{Store, StoreOptions};

const PAGE: usize = 8192;
/// With names as long as here, the table of a cache of 4 MiB has room for a third of these.
const FILES: usize = 600;

fn start(directory: &Path, write_back: bool) -> Arc<Engine> {
    let options = StoreOptions {
        size: Some(4 << 20),
        ..StoreOptions::default()
    };
    let store = Store::open(&directory.join("cache"), &options).expect("a cache");
    let config = EngineConfig {
        write_back,
        policy: "lru".into(),
        ..EngineConfig::default()
    };
    Engine::start(config, Some(store)).expect("starts")
}

fn open(engine: &Engine, base: &Path, number: usize) -> Arc<Object> {
    let name = format!("{number:0200}");
    let spec = ObjectSpec::of_file(base, &name, FileKind::Relation).expect("opens");
    engine.open_object(spec).expect("opens")
}

fn request(object: &Object) -> Request<'_> {
    Request {
        object,
        offset: 0,
        hints: HintSet::UNKNOWN,
        client: 0,
    }
}

fn flash_hits(engine: &Engine) -> u64 {
    engine.stats().page_reads["flash"]
}

/// Writes a page of each file; with `at_once` all files are open together.
fn write_all(engine: &Engine, base: &Path, at_once: bool) {
    let mut open_files = Vec::new();
    for number in 0..FILES {
        fs::write(base.join(format!("{number:0200}")), [0; PAGE]).expect("a file");
        let object = open(engine, base, number);
        let bytes = [number as u8 | 1; PAGE];
        engine.write(&request(&object), &bytes).expect("writes");
        engine.sync(&object, true).expect("syncs");
        open_files.push(object);
        if !at_once {
            engine.close_object(&open_files.pop().expect("one is open"));
        }
    }
    for object in open_files {
        engine.close_object(&object);
    }
}

#[test]
fn more_files_than_the_table_has_room_for() {
    for (write_back, at_once) in [(false, false), (true, false), (false, true), (true, true)] {
        let directory = tempfile::tempdir().expect("directory");
        let base = directory.path().join("base");
        fs::create_dir(&base).expect("base");
        let engine = start(directory.path(), write_back);
        write_all(&engine, &base, at_once);
        let on = || engine.tier_state();
        assert_eq!(on(), Ok(()), "back {write_back}, at once {at_once}");
        let mut bytes = [0; PAGE];
        let hits = flash_hits(&engine);
        for _ in 0..2 {
            for number in 0..FILES {
                let object = open(&engine, &base, number);
                engine.read(&request(&object), &mut bytes).expect("reads");
                assert_eq!(bytes, [number as u8 | 1; PAGE], "file {number}");
                engine.read(&request(&object), &mut bytes).expect("reads");
                engine.close_object(&object);
            }
        }
        assert!(flash_hits(&engine) > hits, "what came late is cached too");
        assert_eq!(on(), Ok(()), "back {write_back}, at once {at_once}");
        engine.stop().expect("stops");
        drop(engine);
        // What was saved is found again.
        let engine = start(directory.path(), write_back);
        assert!(engine.stats().tier.expect("a tier").restored > 0);
        engine.stop().expect("stops");
    }
}
