//! Growing, shrinking and replacing the cache of an engine at work: whatever is read is the newest,
//! nothing that a sync promised is lost by a crash afterwards, and the old cache is not believed.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use thermocline::classify::Dialect;
use thermocline::device::{Device, FaultScript, Faulty, MemoryDevice};
use thermocline::{
    BaseIdentity, Engine, EngineConfig, Error, Identity, Object, ObjectSpec, Request, Stamp, Store,
    StoreOptions,
};
use thermocline_core::{FileKind, HintSet};

const PAGE: u32 = 512;
const PAGES: u64 = 96;

fn options(blocks: u32) -> StoreOptions {
    let base = BaseIdentity {
        file_system: 1,
        inode: 2,
        path: "/base".into(),
        ..BaseIdentity::default()
    };
    StoreOptions {
        page_size: PAGE,
        size: (blocks > 0).then(|| Store::length_for(blocks, PAGE)),
        base,
        format: false,
        deadline: None,
        ..StoreOptions::default()
    }
}

fn length(blocks: u32) -> u64 {
    Store::length_for(blocks, PAGE)
}

/// A cache on `device`: made when it is empty, else opened at whatever size it has.
fn cache(device: &Arc<MemoryDevice>, blocks: u32) -> Store {
    let made = device.len().is_ok_and(|length| length > 0);
    let blocks = if made { 0 } else { blocks };
    Store::with_device(device.clone(), "cache", &options(blocks)).expect("opens")
}

fn config(policy: &str, pool_pages: u64, inline: bool) -> EngineConfig {
    EngineConfig {
        page_size: PAGE,
        policy: policy.into(),
        pool_bytes: pool_pages * u64::from(PAGE),
        write_back: true,
        write_buffer_pages: 4,
        writers_max: 2,
        inline,
        ..EngineConfig::default()
    }
}

/// A base file whose stamp changes only when the test says so.
#[derive(Clone, Default)]
struct BaseFile {
    device: Arc<MemoryDevice>,
    version: Arc<AtomicU64>,
}

impl BaseFile {
    fn new() -> Self {
        let file = Self::default();
        let zeros = vec![0; (PAGES * 512) as usize];
        file.device.write_at(&zeros, 0).expect("writes");
        file
    }

    fn spec(&self) -> ObjectSpec {
        let (device, version) = (self.device.clone(), self.version.clone());
        let stamp = move || {
            let time = version.load(Ordering::Relaxed) as i64;
            Some(Stamp {
                length: device.len().ok()?,
                mtime_ns: time,
                ctime_ns: time,
            })
        };
        ObjectSpec {
            name: "file".into(),
            group: "file".into(),
            identity: Identity {
                device: 1,
                inode: 7,
                generation: 1,
            },
            base: self.device.clone(),
            kind: FileKind::Relation,
            dialect: Dialect::Postgres,
            cached: true,
            stamp: Arc::new(stamp),
            touch: thermocline::untouched(),
        }
    }

    /// An engine over `store`, and this file opened in it.
    fn start(&self, config: EngineConfig, store: Store) -> (Arc<Engine>, Arc<Object>) {
        let engine = Engine::start(config, Some(store)).expect("starts");
        let opener = |_: &Identity, _: &str, _: bool| Ok(Some(self.spec()));
        engine.adopt(&opener, false).expect("adopts");
        let id = engine.open_object(self.spec()).expect("opens");
        (engine, id)
    }

    /// As [`BaseFile::spec`], where base does what `script` says.
    fn scripted(&self, script: &Arc<FaultScript>) -> ObjectSpec {
        ObjectSpec {
            base: Arc::new(Faulty::new(self.device.clone(), script.clone(), None)),
            ..self.spec()
        }
    }
}

fn request(object: &Object, page: u64) -> Request<'_> {
    Request {
        object,
        offset: page * u64::from(PAGE),
        hints: HintSet::UNKNOWN,
        client: 1,
    }
}

fn write(engine: &Engine, id: &Arc<Object>, page: u64, byte: u8) {
    engine
        .write(&request(id, page), &[byte; PAGE as usize])
        .expect("writes");
}

fn read(engine: &Engine, id: &Arc<Object>, page: u64) -> u8 {
    let mut buf = [0xEE; PAGE as usize];
    let length = engine.read(&request(id, page), &mut buf).expect("reads");
    assert_eq!(length, buf.len());
    assert!(buf.iter().all(|byte| *byte == buf[0]), "a torn page");
    buf[0]
}

fn tier(engine: &Engine) -> thermocline::TierStats {
    engine.stats().tier.expect("a tier")
}

/// Background work until there is none.
fn rest(engine: &Engine) {
    while engine.step() {}
}

/// Every page newly written and synced, and read; some of them dirty.
fn fill(engine: &Engine, id: &Arc<Object>, byte: u8) {
    for page in 0..PAGES {
        write(engine, id, page, byte);
    }
    engine.sync(id, false).expect("syncs");
    rest(engine);
    for page in (0..PAGES).chain(0..PAGES) {
        assert_eq!(read(engine, id, page), byte);
        rest(engine);
    }
    // Background work may have written everything back by now.
    for page in 0..8 {
        write(engine, id, page, byte);
    }
    engine.sync(id, false).expect("syncs");
}

fn all_are(engine: &Engine, id: &Arc<Object>, byte: u8) {
    for page in 0..PAGES {
        assert_eq!(read(engine, id, page), byte, "page {page}");
    }
}

#[test]
fn a_longer_cache_keeps_its_pages_and_dirty_ones() {
    for (policy, pool) in [("lru", 0), ("tac", 8), ("cac", 8), ("lc", 0)] {
        let (flash, file) = (Arc::new(MemoryDevice::new()), BaseFile::new());
        let (engine, id) = file.start(config(policy, pool, true), cache(&flash, 40));
        fill(&engine, &id, 1);
        let before = tier(&engine);
        assert!(
            before.dirty > 0 && before.resident > 0,
            "{policy} {before:?}"
        );
        let blocks = engine.resize(length(200), |_| true).expect("grows");
        engine.assert_invariants();
        let after = tier(&engine);
        assert!(after.slots > before.slots * 4 && blocks >= 200);
        assert_eq!(
            (after.resident, after.dirty),
            (before.resident, before.dirty)
        );
        all_are(&engine, &id, 1);
        fill(&engine, &id, 2);
        let grown = tier(&engine);
        assert!(
            grown.resident > before.slots,
            "new slots are used: {grown:?}"
        );
        // No stop: the process is gone, and what was synced is on flash.
        drop(engine);
        let (engine, id) = file.start(config(policy, pool, true), cache(&flash, 0));
        assert_eq!(tier(&engine).slots, after.slots, "the size is in the cache");
        assert!(tier(&engine).dirty > 0);
        all_are(&engine, &id, 2);
    }
}

/// `default` is what the memory for policies allows at each size: `auto` while it is small.
#[test]
fn the_default_policy_follows_the_size_of_the_cache() {
    let (flash, file) = (Arc::new(MemoryDevice::new()), BaseFile::new());
    let memory = EngineConfig {
        policy_memory: 4 << 20,
        ..config("default", 0, true)
    };
    let (engine, id) = file.start(memory.clone(), cache(&flash, 40));
    fill(&engine, &id, 1);
    assert_eq!(engine.policy(), "auto", "{:?}", engine.policy_remark());
    let before = tier(&engine);
    engine.resize(length(20_000), |_| true).expect("grows");
    engine.assert_invariants();
    assert_eq!(
        (engine.policy(), engine.policy_asked()),
        ("tac".into(), "default".into())
    );
    assert!(engine.policy_remark().is_some(), "the user is told why");
    let grown = tier(&engine);
    assert_eq!(
        (grown.resident, grown.dirty),
        (before.resident, before.dirty)
    );
    all_are(&engine, &id, 1);
    fill(&engine, &id, 2);
    drop(engine);
    // The process is gone: a start comes to the same choice.
    let (engine, id) = file.start(memory, cache(&flash, 0));
    assert_eq!(engine.policy(), "tac");
    all_are(&engine, &id, 2);
    engine.resize(length(40), |_| true).expect("shrinks");
    engine.assert_invariants();
    assert_eq!(engine.policy(), "auto", "{:?}", engine.policy_remark());
    all_are(&engine, &id, 2);
}

#[test]
fn a_shorter_cache_writes_back_and_keeps_what_fits() {
    for (policy, pool) in [("lru", 0), ("tac", 8), ("cac", 8), ("lc", 0)] {
        let (flash, file) = (Arc::new(MemoryDevice::new()), BaseFile::new());
        let (engine, id) = file.start(config(policy, pool, true), cache(&flash, 160));
        fill(&engine, &id, 1);
        let before = tier(&engine);
        assert!(before.dirty > 0, "{before:?}");
        let mut told = Vec::new();
        let blocks = engine.resize(length(40), |progress| {
            told.push(progress.left);
            true
        });
        let blocks = blocks.expect("shrinks");
        engine.assert_invariants();
        assert_eq!(told.first(), Some(&u64::from(before.dirty)), "{told:?}");
        let after = tier(&engine);
        assert!((40..60).contains(&blocks), "{blocks}");
        assert_eq!((after.bytes, after.dirty), (length(40), 0));
        assert_eq!(flash.len().expect("length"), length(40));
        assert!(after.resident > 0, "some pages stay: {after:?}");
        assert!(engine.is_write_back(), "the mode is what it was");
        all_are(&engine, &id, 1);
        fill(&engine, &id, 3);
        assert!(tier(&engine).dirty > 0, "{policy}: {:?}", tier(&engine));
        drop(engine);
        let (engine, id) = file.start(config(policy, pool, true), cache(&flash, 0));
        assert_eq!(tier(&engine).slots, after.slots);
        all_are(&engine, &id, 3);
    }
}

#[test]
fn another_cache_takes_over_and_the_old_one_knows_nothing() {
    for (policy, pool) in [("lru", 0), ("tac", 8), ("cac", 8)] {
        let (old, new) = (Arc::new(MemoryDevice::new()), Arc::new(MemoryDevice::new()));
        let file = BaseFile::new();
        let (engine, id) = file.start(config(policy, pool, true), cache(&old, 60));
        fill(&engine, &id, 1);
        write(&engine, &id, 5, 9);
        engine
            .replace(cache(&new, 120), |_| true)
            .expect("replaces");
        engine.assert_invariants();
        let after = tier(&engine);
        assert_eq!((after.resident, after.dirty), (0, 0), "it starts cold");
        assert_eq!(after.bytes, length(120));
        assert_eq!(read(&engine, &id, 5), 9);
        fill(&engine, &id, 2);
        assert!(tier(&engine).dirty > 0);
        drop(engine);
        // The old cache first: base is then as its own run left it, and it adds nothing to it.
        let (engine, id) = file.start(config(policy, pool, true), cache(&old, 0));
        assert_eq!((tier(&engine).restored, tier(&engine).dirty), (0, 0));
        assert!((1..3).contains(&read(&engine, &id, 0)), "what base has");
        drop(engine);
        let (engine, id) = file.start(config(policy, pool, true), cache(&new, 0));
        all_are(&engine, &id, 2);
    }
}

/// An engine at work on a device that `script` can kill.
fn mortal(
    old: &Arc<MemoryDevice>,
    file: &BaseFile,
) -> (Arc<FaultScript>, Arc<Engine>, Arc<Object>) {
    let script = FaultScript::new();
    let faults = Arc::clone(&script);
    let store = cache(old, 60).wrapped(|device| Arc::new(Faulty::new(device, faults, None)));
    let (engine, id) = file.start(config("lru", 0, true), store);
    fill(&engine, &id, 1);
    (script, engine, id)
}

const DEAD: &str = "any fail EIO";

/// The old cache cannot be told any more: the lease has to run out first.
#[test]
fn a_cache_whose_device_died_is_replaced() {
    for noticed in [false, true] {
        let (old, new) = (Arc::new(MemoryDevice::new()), Arc::new(MemoryDevice::new()));
        let file = BaseFile::new();
        let (script, engine, id) = mortal(&old, &file);
        engine.flush(|_| true).expect("flushes");
        if noticed {
            script.load("sync fail EIO").expect("script");
            write(&engine, &id, 90, 1);
            let _ = engine.sync(&id, false);
            assert!(engine.tier_state().is_err(), "a commit failed");
            engine.flush(|_| true).expect("it can still be read");
        }
        script.load(DEAD).expect("script");
        engine.replace(cache(&new, 60), |_| true).expect("replaces");
        engine.assert_invariants();
        fill(&engine, &id, 2);
        assert_eq!(engine.tier_state(), Ok(()));
        assert!(tier(&engine).dirty > 0, "the new cache is used");
        drop(engine);
        let (engine, id) = file.start(config("lru", 0, true), cache(&new, 0));
        all_are(&engine, &id, 2);
    }
}

#[test]
fn a_cache_that_alone_has_pages_is_not_replaced_once_it_is_dead() {
    let (old, new) = (Arc::new(MemoryDevice::new()), Arc::new(MemoryDevice::new()));
    let file = BaseFile::new();
    let (script, engine, id) = mortal(&old, &file);
    script.load(DEAD).expect("script");
    let refused = engine.replace(cache(&new, 60), |_| true);
    let error = refused.expect_err("pages are lost");
    assert!(matches!(error, Error::Unsaved { .. }), "{error}");
    assert_eq!(tier(&engine).bytes, length(60));
    engine.assert_invariants();
    let mut buf = [0; PAGE as usize];
    let read = engine.read(&request(&id, 0), &mut buf);
    assert!(read.is_err(), "never the older bytes of base");
}

#[test]
fn what_cannot_be_done_is_refused_and_changes_nothing() {
    let (flash, file) = (Arc::new(MemoryDevice::new()), BaseFile::new());
    let (engine, id) = file.start(config("lru", 0, true), cache(&flash, 100));
    fill(&engine, &id, 1);
    let before = tier(&engine);
    let kind = |error: Error| match error {
        Error::CacheIo { source, .. } => source.kind(),
        other => panic!("{other}"),
    };
    for bytes in [0, 4096, length(100) + 1, length(100) - 1] {
        let error = engine.resize(bytes, |_| true).expect_err("no such size");
        assert_eq!(kind(error), io::ErrorKind::InvalidInput, "{bytes}");
    }
    let stopped = engine.resize(length(40), |_| false);
    assert!(matches!(stopped, Err(Error::Stopped)));
    assert_eq!(
        tier(&engine).dirty,
        before.dirty,
        "nothing was written back"
    );
    let other = StoreOptions {
        page_size: 1024,
        ..options(40)
    };
    let other = Store::with_device(Arc::new(MemoryDevice::new()), "other", &other).expect("opens");
    let wrong = engine.replace(other, |_| true);
    assert!(matches!(wrong, Err(Error::PageSize { .. })));
    let again = engine.replace(cache(&Arc::new(copy_of(&flash)), 0), |_| true);
    assert!(
        matches!(again, Err(Error::StillInUse { .. })),
        "it holds pages"
    );
    assert_eq!(tier(&engine).slots, before.slots);
    all_are(&engine, &id, 1);
    fill(&engine, &id, 2);
    all_are(&engine, &id, 2);
    engine.tier_off("test").expect("off");
    let off = engine.resize(length(120), |_| true);
    assert!(matches!(off, Err(Error::TierOff { .. })));
    let none = Engine::start(config("lru", 4, true), None).expect("starts");
    assert!(matches!(
        none.resize(length(40), |_| true),
        Err(Error::NoTier)
    ));
}

/// The device fails while the cache is made shorter, and keeps the tier from going back.
#[test]
fn a_tier_that_stayed_small_is_made_as_large_as_its_cache() {
    let (flash, file) = (Arc::new(MemoryDevice::new()), BaseFile::new());
    let script = FaultScript::new();
    let faults = Arc::clone(&script);
    let store = cache(&flash, 100).wrapped(|device| Arc::new(Faulty::new(device, faults, None)));
    let (engine, id) = file.start(config("lru", 0, true), store);
    fill(&engine, &id, 1);
    engine.flush(|_| true).expect("flushes");
    let before = tier(&engine).slots;
    script.load("sync fail EIO").expect("script");
    engine.resize(length(40), |_| true).expect_err("no commit");
    script.clear();
    assert!(tier(&engine).slots < before);
    assert_eq!(tier(&engine).bytes, length(100));
    engine.tier_on().expect("it works again");
    engine.resize(length(100), |_| true).expect("resizes");
    assert_eq!(tier(&engine).slots, before);
    engine.assert_invariants();
    fill(&engine, &id, 2);
    all_are(&engine, &id, 2);
}

fn copy_of(device: &MemoryDevice) -> MemoryDevice {
    let copy = MemoryDevice::new();
    copy.write_at(&device.snapshot(), 0).expect("writes");
    copy
}

/// Base holds up the sync of a batch of destaging. When the batch ends the tier has other slots,
/// with dirty pages in them: it makes none of these clean.
#[test]
fn a_batch_that_base_holds_up_outlasts_a_change_of_the_tier() {
    let to = |blocks: u32| {
        move |engine: &Engine| {
            engine.resize(length(blocks), |_| true).expect("resizes");
        }
    };
    let replace = |engine: &Engine| {
        let other = cache(&Arc::new(MemoryDevice::new()), 40);
        engine.replace(other, |_| true).expect("replaces");
    };
    for policy in ["lc", "lru"] {
        held_up_by_base(policy, to(40));
        held_up_by_base(policy, to(320));
        held_up_by_base(policy, replace);
    }
}

fn held_up_by_base(policy: &str, change: impl Fn(&Engine)) {
    let (flash, file) = (Arc::new(MemoryDevice::new()), BaseFile::new());
    let script = FaultScript::new();
    let config = config(policy, 0, true);
    let engine = Engine::start(config, Some(cache(&flash, 160))).expect("starts");
    let id = engine.open_object(file.scripted(&script)).expect("opens");
    (0..PAGES).for_each(|page| write(&engine, &id, page, 1));
    engine.sync(&id, false).expect("syncs");
    assert!(tier(&engine).dirty > 60, "{:?}", tier(&engine));
    script.load("sync times 1 hang 60s").expect("script");
    std::thread::scope(|scope| {
        let late = scope.spawn(|| {
            let mut batches = 0..1;
            engine.flush(|_| batches.next().is_some())
        });
        while script.counts().hung == 0 {
            assert!(!late.is_finished(), "base was synced");
            std::thread::sleep(Duration::from_millis(1));
        }
        change(&engine);
        (0..PAGES).for_each(|page| write(&engine, &id, page, 2));
        engine.sync(&id, false).expect("syncs");
        let dirty = tier(&engine).dirty;
        assert!(dirty > 0, "{:?}", tier(&engine));
        assert!(!late.is_finished(), "base still holds it up");
        script.clear();
        late.join().expect("a thread").expect("flushes");
        assert_eq!(tier(&engine).dirty, dirty);
    });
    engine.assert_invariants();
    all_are(&engine, &id, 2);
    engine.flush(|_| true).expect("flushes");
    all_are(&engine, &id, 2);
}

/// Readers and writers in threads of their own while the tier grows, shrinks and moves: nobody sees
/// a page go back in time, everybody gets through, and the end is what was written last.
#[test]
fn requests_go_on_while_the_tier_changes() {
    for (policy, pool) in [("lru", 0), ("tac", 8), ("cac", 8), ("lc", 0), ("clock", 4)] {
        let (flash, file) = (Arc::new(MemoryDevice::new()), BaseFile::new());
        let (engine, id) = file.start(config(policy, pool, false), cache(&flash, 60));
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (engine, stop, id) = (&engine, &stop, &id);
            let readers: Vec<_> = (0..2)
                .map(|seed| scope.spawn(move || read_on(engine, id, seed, stop)))
                .collect();
            let writers: Vec<_> = (0..2)
                .map(|half| scope.spawn(move || write_on(engine, id, half, stop)))
                .collect();
            for round in 0..6 {
                for blocks in [150, 30, 80] {
                    engine.resize(length(blocks), |_| true).expect("resizes");
                    engine.assert_invariants();
                }
                let other = Arc::new(MemoryDevice::new());
                engine
                    .replace(cache(&other, 60 + round), |_| true)
                    .expect("replaces");
                engine.assert_invariants();
            }
            stop.store(true, Ordering::Relaxed);
            let written: Vec<u8> = writers
                .into_iter()
                .map(|w| w.join().expect("writer"))
                .collect();
            readers.into_iter().for_each(|r| r.join().expect("reader"));
            for page in 0..PAGES {
                assert_eq!(read(engine, id, page), written[(page % 2) as usize]);
            }
        });
        engine.flush(|_| true).expect("flushes");
        engine.close_object(&id);
        engine.stop().expect("stops");
    }
}

/// Some page is always dirty.
#[test]
fn the_tier_goes_off_while_others_write() {
    for (policy, pool) in [("lru", 0), ("cac", 8), ("lc", 0)] {
        let (flash, file) = (Arc::new(MemoryDevice::new()), BaseFile::new());
        let store = cache(&flash, 300);
        let engine = Engine::start(config(policy, pool, false), Some(store)).expect("starts");
        let script = FaultScript::new();
        script.load("write delay 5ms").expect("script");
        let id = engine.open_object(file.scripted(&script)).expect("opens");
        let stop = AtomicBool::new(false);
        let written = std::thread::scope(|scope| {
            let (engine, stop, id) = (&engine, &stop, &id);
            let write_on = |half| move || write_for_ever(engine, id, half, stop);
            let writers = [0, 1].map(|half| scope.spawn(write_on(half)));
            engine.tier_off("test").expect("goes off");
            stop.store(true, Ordering::Relaxed);
            writers.map(|writer| writer.join().expect("writer"))
        });
        assert!(engine.tier_state().is_err());
        for page in 0..PAGES {
            assert_eq!(read(&engine, &id, page), written[(page % 2) as usize]);
        }
        engine.close_object(&id);
        engine.stop().expect("stops");
    }
}

fn write_for_ever(engine: &Engine, id: &Arc<Object>, half: u64, stop: &AtomicBool) -> u8 {
    let mut version = 0u8;
    while !stop.load(Ordering::Relaxed) {
        version = version.wrapping_add(1);
        for page in (half..PAGES).step_by(2) {
            write(engine, id, page, version);
        }
    }
    version
}

/// More pages that base refuses than one batch has, in the file that comes first. Whoever flushes
/// is asked between two batches of the other one.
#[test]
fn what_base_refuses_of_a_file_keeps_no_other_from_it() {
    for (policy, pool) in [("lc", 0), ("lru", 700)] {
        let (flash, bad) = (Arc::new(MemoryDevice::new()), BaseFile::new());
        let mut setup = config(policy, pool, true);
        setup.dirty.dirty_high = 1.0;
        setup.dirty.reserve_high = 1.0;
        let script = FaultScript::new();
        let engine = Engine::start(setup, Some(cache(&flash, 2000))).expect("starts");
        let first = engine.open_object(bad.scripted(&script)).expect("opens");
        let good = BaseFile::new();
        let mut spec = good.spec();
        spec.identity.inode = 8;
        let second = engine.open_object(spec).expect("opens");
        for page in 0..300 {
            write(&engine, &first, page, 1);
            write(&engine, &second, page, 2);
        }
        assert!(engine.dirty_pages() > 500, "{}", engine.dirty_pages());
        script.load("write fail EIO").expect("script");
        let mut left = Vec::new();
        let noted = engine.flush(|progress| {
            left.push(progress.left);
            true
        });
        noted.expect_err("base refuses pages");
        let batch = 256;
        let asked = left.windows(2).all(|two| two[0] <= two[1] + batch);
        assert!(asked, "{policy}: {left:?}");
        let mut last = [0];
        assert_eq!(good.device.read_at(&mut last, 299 * 512).expect("reads"), 1);
        assert_eq!(last, [2], "{policy}: the other file is whole");
        assert_eq!(engine.dirty_pages(), 300, "{policy}");
        script.clear();
        engine.flush(|_| true).expect("flushes");
        assert_eq!(engine.dirty_pages(), 0);
        engine.assert_invariants();
    }
}

/// Writes ever higher versions to every second page, with syncs and pairs of pages; the last.
fn write_on(engine: &Engine, id: &Arc<Object>, half: u64, stop: &AtomicBool) -> u8 {
    let mut version = 0;
    while !stop.load(Ordering::Relaxed) && version < 250 {
        version += 1;
        for page in (half..PAGES).step_by(2) {
            write(engine, id, page, version);
        }
        engine.sync(id, true).expect("syncs");
    }
    version
}

fn read_on(engine: &Engine, id: &Arc<Object>, seed: u64, stop: &AtomicBool) {
    let mut newest = [0; PAGES as usize];
    let mut page = seed;
    while !stop.load(Ordering::Relaxed) {
        page = (page * 5 + 7 + seed) % PAGES;
        let seen = read(engine, id, page);
        assert!(
            seen >= newest[page as usize],
            "page {page} went back in time"
        );
        newest[page as usize] = seen;
    }
}
