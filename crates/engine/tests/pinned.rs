//! Pinned files on a running engine: loaded, kept under a flood of other requests, across restarts
//! and changes of size; refused when they do not fit; and right whatever is written meanwhile.
#![cfg(not(feature = "shuttle"))]

use std::fs;
use std::path::Path;
use std::sync::Arc;
use thermocline::{Engine, EngineConfig, Error, FileKind, HintSet, Object, ObjectSpec, Request};
use thermocline::{Pins, Store, StoreOptions};

const PAGE: u64 = 8192;
const TABLE: u64 = 200;
const OTHER: u64 = 1500;

/// Byte that page `page` of the file begins and ends with in its `version`.
fn content(page: u64, version: u8) -> Vec<u8> {
    vec![(page % 251) as u8 ^ version; PAGE as usize]
}

struct Scene {
    directory: tempfile::TempDir,
    config: EngineConfig,
}

impl Scene {
    fn new(policy: &str, write_back: bool) -> Self {
        let directory = tempfile::tempdir().expect("directory");
        for (name, pages) in [("table", TABLE), ("other", OTHER)] {
            let pages: Vec<u8> = (0..pages).flat_map(|page| content(page, 0)).collect();
            fs::write(directory.path().join(name), pages).expect("a file");
        }
        let config = EngineConfig {
            write_back,
            policy: policy.into(),
            ..EngineConfig::default()
        };
        Self { directory, config }
    }

    fn start(&self) -> Arc<Engine> {
        let options = StoreOptions {
            size: Some(600 * PAGE),
            ..StoreOptions::default()
        };
        let store = Store::open(&self.path("cache"), &options).expect("a cache");
        Engine::start(self.config.clone(), Some(store)).expect("starts")
    }

    fn path(&self, name: &str) -> std::path::PathBuf {
        self.directory.path().join(name)
    }

    fn open(&self, engine: &Engine, name: &str) -> Arc<Object> {
        open(engine, self.directory.path(), name)
    }
}

fn open(engine: &Engine, base: &Path, name: &str) -> Arc<Object> {
    let spec = ObjectSpec::of_file(base, name, FileKind::Relation).expect("opens");
    engine.open_object(spec).expect("opens")
}

fn pins() -> Pins {
    Pins {
        paths: vec!["table".into()],
        pages: TABLE as u32,
    }
}

fn request(object: &Object, page: u64) -> Request<'_> {
    Request {
        object,
        offset: page * PAGE,
        hints: HintSet::UNKNOWN,
        client: 0,
    }
}

fn read(engine: &Engine, object: &Object, page: u64, version: u8) {
    let mut bytes = vec![0; PAGE as usize];
    engine
        .read(&request(object, page), &mut bytes)
        .expect("reads");
    assert!(bytes == content(page, version), "page {page}");
}

fn flood(engine: &Engine, other: &Object) {
    for round in 0..3 {
        for page in 0..OTHER {
            read(engine, other, page, 0);
        }
        for page in (0..OTHER).step_by(7) {
            let bytes = content(page, 0);
            engine.write(&request(other, page), &bytes).expect("writes");
        }
        engine.sync(other, round == 0).expect("syncs");
    }
}

fn pinned(engine: &Engine) -> u64 {
    engine.stats().tier.expect("a tier").pinned.into()
}

/// Every page of the table comes from flash.
fn is_on_flash(engine: &Engine, table: &Object, version: u8) {
    let hits = || engine.stats().tier.expect("a tier").pinned_hits;
    let before = hits();
    for page in 0..TABLE {
        read(engine, table, page, version);
    }
    assert_eq!(hits() - before, TABLE, "of each page one");
}

#[test]
fn a_pinned_file_is_loaded_and_stays() {
    for (policy, back) in [
        ("tac", false),
        ("value", true),
        ("value-time", true),
        ("priority", true),
        ("cac", true),
    ] {
        let mut scene = Scene::new(policy, back);
        let engine = scene.start();
        let (table, other) = (scene.open(&engine, "table"), scene.open(&engine, "other"));
        flood(&engine, &other);
        read(&engine, &table, 3, 0);
        assert_eq!(
            engine.set_pins(pins(), |_| true).expect("fits"),
            TABLE as u32
        );
        let mut seen = Vec::new();
        let loaded = engine.load(&table, |bytes| {
            seen.push(bytes);
            true
        });
        assert_eq!(loaded.expect("loads"), TABLE as u32, "{policy}");
        assert!(seen.is_sorted() && seen.last() == Some(&(TABLE * PAGE)));
        flood(&engine, &other);
        assert_eq!(pinned(&engine), TABLE, "{policy}");
        for page in (0..TABLE).step_by(5) {
            let bytes = content(page, 0);
            engine
                .write(&request(&table, page), &bytes)
                .expect("writes");
        }
        engine.sync(&table, true).expect("syncs");
        flood(&engine, &other);
        engine.flush(|_| true).expect("flushes");
        is_on_flash(&engine, &table, 0);
        for object in [&table, &other] {
            engine.close_object(object);
        }
        engine.stop().expect("stops");
        drop(engine);
        scene.config.pins = pins();
        let engine = scene.start();
        assert_eq!(pinned(&engine), TABLE, "{policy}, after a restart");
        let (table, other) = (scene.open(&engine, "table"), scene.open(&engine, "other"));
        flood(&engine, &other);
        is_on_flash(&engine, &table, 0);
        for blocks in [900, 500] {
            let size = 4 * 4096 * 4 + blocks * PAGE;
            let resized = engine.resize(size, |_| true);
            let left = resized.expect("resizes");
            // A smaller cache may lose copies, and gets them again as they are read.
            engine.load(&table, |_| true).expect("loads");
            flood(&engine, &other);
            assert_eq!(pinned(&engine), TABLE, "{policy}, {left} blocks");
            is_on_flash(&engine, &table, 0);
        }
        engine.set_pins(Pins::default(), |_| true).expect("unpins");
        assert_eq!(pinned(&engine), 0);
        assert_eq!(engine.stats().tier.expect("a tier").pinned_slots, 0);
        flood(&engine, &other);
        for page in 0..TABLE {
            read(&engine, &table, page, 0);
        }
        engine.stop().expect("stops");
    }
}

#[test]
fn more_than_fits_is_refused_with_the_numbers() {
    let scene = Scene::new("tac", false);
    let engine = scene.start();
    let slots = engine.stats().tier.expect("a tier").slots;
    let pages = Pins::most_of(slots) + 1;
    let too_much = Pins { pages, ..pins() };
    let refused = engine.set_pins(too_much, |_| true).expect_err("too much");
    assert!(matches!(refused, Error::PinnedTooMuch { .. }));
    let words = refused.to_string();
    for part in [pages.to_string(), slots.to_string(), "resize".into()] {
        assert!(words.contains(&part), "{words}");
    }
    assert_eq!(engine.pins(), Pins::default());
    assert_eq!(engine.stats().tier.expect("a tier").pinned_slots, 0);
    engine.stop().expect("stops");
}

#[test]
fn pins_change_while_others_read_and_write() {
    let scene = Scene::new("lru", true);
    let engine = scene.start();
    let (table, other) = (scene.open(&engine, "table"), scene.open(&engine, "other"));
    let over = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (engine, over) = (&engine, &over);
        let (table, other) = (&table, &other);
        scope.spawn(move || {
            let mut at = 0;
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                at = (at + 7) % OTHER;
                read(engine, other, at, 0);
            }
        });
        scope.spawn(move || {
            for version in 1..=20 {
                for page in 0..TABLE {
                    let bytes = content(page, version);
                    engine.write(&request(table, page), &bytes).expect("writes");
                }
                engine.sync(table, true).expect("syncs");
                for page in 0..TABLE {
                    read(engine, table, page, version);
                }
            }
            over.store(true, std::sync::atomic::Ordering::Relaxed);
        });
        let mut pin = false;
        while !over.load(std::sync::atomic::Ordering::Relaxed) {
            pin = !pin;
            let wanted = if pin { pins() } else { Pins::default() };
            engine.set_pins(wanted, |_| true).expect("changes");
            if pin {
                engine.load(table, |_| true).expect("loads");
            }
        }
    });
    engine.set_pins(pins(), |_| true).expect("pins");
    engine.load(&table, |_| true).expect("loads");
    is_on_flash(&engine, &table, 20);
    engine.stop().expect("stops");
    // The same without pins, and with fewer pages set aside than the file has: nothing is lost.
    for pages in [0, 50] {
        let mut scene = Scene {
            config: scene.config.clone(),
            directory: tempfile::tempdir().expect("directory"),
        };
        for name in ["table", "other"] {
            fs::write(scene.path(name), vec![0; (TABLE * PAGE) as usize]).expect("a file");
        }
        scene.config.pins = Pins { pages, ..pins() };
        let engine = scene.start();
        assert_eq!(engine.stats().tier.expect("a tier").pinned_slots, pages);
        engine.stop().expect("stops");
    }
}

/// Dirty pages of a file fill the tier; at the next start most of it is set aside for another one,
/// and the cache stays as long as it is, or is made longer before those pages have left.
#[test]
fn dirty_pages_find_room_at_a_start_with_other_pins() {
    for grown_to in [None, Some(620), Some(1200)] {
        dirty_pages_find_room(grown_to);
    }
}

fn dirty_pages_find_room(grown_to: Option<u64>) {
    let mut scene = Scene::new("lru", true);
    let engine = scene.start();
    let other = scene.open(&engine, "other");
    let slots = u64::from(engine.stats().tier.expect("a tier").slots);
    for page in 0..slots {
        engine
            .write(&request(&other, page), &content(page, 9))
            .expect("writes");
    }
    engine.sync(&other, true).expect("syncs");
    let dirty = engine.dirty_pages();
    assert!(dirty > slots / 2, "{dirty} of {slots}");
    engine.close_object(&other);
    drop(other);
    engine.stop().expect("stops");
    drop(engine);
    scene.config.pins = Pins {
        pages: 500,
        ..pins()
    };
    let engine = scene.start();
    // They are being written back already: what counts is that none is lost.
    assert!(engine.stats().tier.expect("a tier").lost.is_empty());
    if let Some(pages) = grown_to {
        engine.resize(pages * PAGE, |_| true).expect("grows");
    }
    let other = scene.open(&engine, "other");
    for page in 0..slots {
        read(&engine, &other, page, 9);
    }
    engine.flush(|_| true).expect("flushes");
    let table = scene.open(&engine, "table");
    engine.load(&table, |_| true).expect("loads");
    // What waits for flash is served from DRAM.
    while engine.stats().tier.expect("a tier").staged > 0 {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    is_on_flash(&engine, &table, 0);
    engine.stop().expect("stops");
}
