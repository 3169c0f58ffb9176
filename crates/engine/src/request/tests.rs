//! What counts as a hit, and is told to a policy, and what does not.

use super::Part;
use super::read::Reading;
use crate::classify::Dialect;
use crate::config::EngineConfig;
use crate::device::{Device, MemoryDevice};
use crate::engine::{Engine, Request};
use crate::files::object::{Identity, Object, ObjectSpec, Stamp};
use crate::state::page_of;
use crate::store::{Store, StoreOptions};
use std::sync::{Arc, Mutex};
use thermocline_core::policy::{self, TierPolicy};
use thermocline_core::{FileKind, HintSet, PageId, ReadStart};
use thermocline_trace::Served;

const PAGE: usize = 512;
const PAGES: usize = 40;

type Log = Arc<Mutex<Vec<(PageId, u32)>>>;

/// LRU that remembers the hits in the pool that it is told of.
struct Logged(Box<dyn TierPolicy>, Log);

impl TierPolicy for Logged {
    fn on_pool_hits(&mut self, page: PageId, hits: u32) {
        self.1.lock().expect("lock").push((page, hits));
    }

    thermocline_core::pass_on!(0: name, on_request, on_aside, decide, surplus, on_admit, on_found,
        on_remove, on_trim, on_pool, on_reserve, on_time, on_written, dirty_pages, keeps_outdated,
        on_dirty, on_clean, write_buffer, is_buffered, is_synchronous, worth, taught, learned,
        bytes, bytes_full, assert_invariants);
}

/// An engine in write-back without threads, with a pool of so many frames; a file, and what the
/// policy is told.
fn rig(frames: usize) -> (Arc<Engine>, Arc<Object>, Log) {
    let config = EngineConfig {
        page_size: PAGE as u32,
        pool_bytes: (frames * PAGE) as u64,
        write_back: true,
        inline: true,
        ..EngineConfig::default()
    };
    let options = StoreOptions {
        page_size: PAGE as u32,
        size: Some(Store::length_for(64, PAGE as u32)),
        ..StoreOptions::default()
    };
    let store = Store::with_device(Arc::new(MemoryDevice::new()), "cache", &options);
    let log = Log::default();
    let engine = Engine::start_with_policy(config, Some(store.expect("opens")), |options| {
        let lru = policy::build("lru", options).expect("lru");
        Box::new(Logged(lru, Arc::clone(&log)))
    });
    let engine = engine.expect("starts");
    let base = Arc::new(MemoryDevice::new());
    base.write_at(&[1; PAGES * PAGE], 0).expect("base");
    let spec = ObjectSpec {
        name: "file".into(),
        group: "file".into(),
        identity: Identity::default(),
        base,
        kind: FileKind::Relation,
        dialect: Dialect::None,
        cached: true,
        stamp: Arc::new(|| Some(Stamp::default())),
        touch: crate::untouched(),
    };
    let object = engine.open_object(spec).expect("opens");
    (engine, object, log)
}

fn request(object: &Object, offset: usize) -> Request<'_> {
    Request {
        object,
        offset: offset as u64,
        hints: HintSet::UNKNOWN,
        client: 0,
    }
}

/// All hits that were not told yet are, in batches.
fn drain(engine: &Engine) {
    let mut inner = engine.inner();
    (0..64).for_each(|shard| engine.drain_hits(&mut inner, shard));
}

/// Frames that go to flash, frames that go to base while it is off, and a page that is completed.
#[test]
fn a_copy_of_the_engines_own_is_no_hit() {
    let (engine, object, log) = rig(8);
    // What is filled again and again is not young any more.
    for index in 0..PAGES {
        let at = request(&object, index * PAGE);
        engine.write(&at, &[7; PAGE]).expect("writes");
        let part = request(&object, index * PAGE + 1);
        engine.write(&part, &[8; 9]).expect("writes a part");
        while engine.step() {}
    }
    engine.sync(&object, false).expect("syncs");
    engine
        .write(&request(&object, 0), &[9; PAGE])
        .expect("writes");
    engine.decide(&mut engine.inner(), &[], |hierarchy, out| {
        hierarchy.switch_off(out);
    });
    while engine.step() {}
    engine.clean_everything().expect("base takes it");
    drain(&engine);
    assert_eq!(engine.stats().pool.hits, 0);
    assert_eq!(*log.lock().expect("lock"), []);
}

/// A page that came into the pool while its reader waited for the lock.
#[test]
fn a_hit_is_told_once() {
    let (engine, object, log) = rig(2);
    let mut page = [0; PAGE];
    let at = request(&object, 0);
    engine.read(&at, &mut page).expect("reads");
    engine
        .read(&request(&object, PAGE), &mut page)
        .expect("reads");
    let mut reading = Reading {
        engine: &engine,
        object: &object,
        request: &at,
        length: PAGE,
        served: Served::Unknown,
        ahead: false,
    };
    let id = page_of(&object, 0);
    let mut inner = engine.inner();
    let start = inner.hierarchy.start_read(id);
    assert!(matches!(start, ReadStart::Frame(_)), "{start:?}");
    let part: Part = reading.part(0);
    reading.serve_frame(&mut inner, &part, &mut page);
    drop(inner);
    drain(&engine);
    assert_eq!(engine.stats().pool.hits, 1);
    assert_eq!(*log.lock().expect("lock"), [(id, 1)]);
}
