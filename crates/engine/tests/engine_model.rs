//! The engine against plain files in memory: whatever is read must be what a file would hold,
//! through every policy, with and without pool and tier, with faults, in many threads.

mod aloud;

use aloud::panic_aloud;
use proptest::prelude::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use thermocline::classify::Dialect;
use thermocline::device::{Device, MemoryDevice};
use thermocline::{
    BaseIdentity, Engine, EngineConfig, Error, Identity, Object, ObjectSpec, Request, Stamp, Store,
    StoreOptions,
};
use thermocline_core::hash::mix;
use thermocline_core::{FileKind, HintSet, RequestType, hint_type, policy};

const PAGE: u32 = 512;
const POLICIES: &[&str] = policy::NAMES;

fn options(size: u64) -> StoreOptions {
    let base = BaseIdentity {
        file_system: 1,
        inode: 2,
        path: "/base".into(),
        ..BaseIdentity::default()
    };
    StoreOptions {
        page_size: PAGE,
        size: Some(size),
        base,
        format: false,
        deadline: None,
        ..StoreOptions::default()
    }
}

/// Length of a cache that has `slots` policy slots and little more.
fn size_of_cache(slots: u64) -> u64 {
    let blocks = EngineConfig::default().blocks_for(slots as u32);
    Store::length_for(blocks, PAGE)
}

fn start(
    policy: &str,
    pool_pages: u64,
    flash: Option<Arc<MemoryDevice>>,
    slots: u64,
) -> Arc<Engine> {
    panic_aloud();
    let config = EngineConfig {
        page_size: PAGE,
        policy: policy.into(),
        pool_bytes: pool_pages * u64::from(PAGE),
        write_buffer_pages: 4,
        writers_max: 2,
        ..EngineConfig::default()
    };
    let store = flash.map(|device| {
        Store::with_device(device, "memory", &options(size_of_cache(slots))).expect("opens")
    });
    Engine::start(config, store).expect("starts")
}

struct BaseFile {
    device: Arc<MemoryDevice>,
    version: Arc<AtomicU64>,
}

impl BaseFile {
    fn new() -> Self {
        Self {
            device: Arc::new(MemoryDevice::new()),
            version: Arc::default(),
        }
    }

    fn open(&self, engine: &Engine, inode: u64) -> Arc<Object> {
        let (device, version) = (self.device.clone(), self.version.clone());
        let stamp = move || {
            let length = device.len().ok()?;
            let time = version.load(Ordering::Relaxed) as i64;
            Some(Stamp {
                length,
                mtime_ns: time,
                ctime_ns: time,
            })
        };
        let spec = ObjectSpec {
            name: format!("file{inode}"),
            group: "file".into(),
            identity: Identity {
                device: 1,
                inode,
                generation: 1,
            },
            base: self.device.clone(),
            kind: FileKind::Relation,
            dialect: Dialect::Postgres,
            cached: true,
            stamp: Arc::new(stamp),
            touch: thermocline::untouched(),
        };
        engine.open_object(spec).expect("opens")
    }
}

fn request(object: &Object, offset: u64, hint: u32) -> Request<'_> {
    let hints = HintSet::UNKNOWN
        .with(hint_type::REQUEST, hint)
        .with(hint_type::PLAN_LEVEL, hint / 2);
    Request {
        object,
        offset,
        hints,
        client: 1,
    }
}

#[derive(Debug, Clone)]
enum Step {
    Read(u64, usize, u32),
    Write(u64, usize, u8, u32),
    Truncate(u64),
    Punch(u64, u64),
    Reopen,
    Policy(usize),
    Off,
    On,
    Back(bool),
    Sync,
    Flush,
    /// The same cache with about this many slots.
    Resize(u64),
    /// Another cache with as many.
    Replace(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let offset = || (0u64..24, 0u64..3).prop_map(|(page, odd)| page * 512 + odd * 100);
    let length = prop::sample::select(vec![1usize, 100, 512, 1024, 4096, 5000]);
    prop_oneof![
        8 => (offset(), length.clone(), 0u32..4).prop_map(|(o, l, h)| Step::Read(o, l, h)),
        5 => (offset(), length, any::<u8>(), 0u32..7)
            .prop_map(|(o, l, b, h)| Step::Write(o, l, b, h)),
        1 => offset().prop_map(Step::Truncate),
        1 => (offset(), 1u64..3000).prop_map(|(o, l)| Step::Punch(o, l)),
        1 => Just(Step::Reopen),
        1 => (0..POLICIES.len()).prop_map(Step::Policy),
        1 => Just(Step::Off),
        1 => Just(Step::On),
        1 => prop::bool::weighted(0.8).prop_map(Step::Back),
        1 => Just(Step::Sync),
        1 => Just(Step::Flush),
        1 => (1u64..60).prop_map(Step::Resize),
        1 => (1u64..60).prop_map(Step::Replace),
    ]
}

/// Only what the caller can see coming may stand in the way.
fn resize(engine: &Engine, slots: u64) {
    let length = size_of_cache(slots);
    match engine.resize(length, |_| true) {
        Ok(_) => assert_eq!(engine.stats().tier.map(|t| t.bytes), Some(length)),
        Err(Error::CacheIo { source, .. }) => {
            assert_eq!(source.kind(), std::io::ErrorKind::InvalidInput, "{source}");
        }
        Err(error) => assert!(
            matches!(error, Error::NoTier | Error::TierOff { .. }),
            "{error}"
        ),
    }
    engine.assert_invariants();
}

fn replace(engine: &Engine, slots: u64) {
    let device = Arc::new(MemoryDevice::new());
    let store = Store::with_device(device, "other", &options(size_of_cache(slots)));
    match engine.replace(store.expect("opens"), |_| true) {
        Ok(()) => {
            assert_eq!(engine.tier_state(), Ok(()), "it is on");
            let bytes = size_of_cache(slots);
            assert_eq!(engine.stats().tier.map(|t| t.bytes), Some(bytes));
        }
        Err(error) => assert!(matches!(error, Error::NoTier), "{error}"),
    }
    engine.assert_invariants();
}

fn apply(engine: &Engine, file: &BaseFile, id: &mut Arc<Object>, model: &mut Vec<u8>, step: Step) {
    match step {
        Step::Read(offset, length, hint) => {
            let mut buf = vec![0xAA; length];
            let read = engine
                .read(&request(id, offset, hint), &mut buf)
                .expect("reads");
            let from = (offset as usize).min(model.len());
            let expected = &model[from..(from + length).min(model.len())];
            assert_eq!(&buf[..read], expected, "read of {length} at {offset}");
        }
        Step::Write(offset, length, byte, hint) => {
            let data: Vec<u8> = (0..length).map(|i| byte.wrapping_add(i as u8)).collect();
            engine
                .write(&request(id, offset, hint), &data)
                .expect("writes");
            let end = offset as usize + length;
            model.resize(model.len().max(end), 0);
            model[offset as usize..end].copy_from_slice(&data);
        }
        Step::Truncate(length) => {
            engine.truncate(id, length).expect("truncates");
            model.resize(length as usize, 0);
        }
        Step::Punch(offset, length) => {
            engine.punch(id, offset, length).expect("punches");
            let from = (offset as usize).min(model.len());
            let to = ((offset + length) as usize).min(model.len());
            model[from..to].fill(0);
        }
        Step::Reopen => {
            engine.close_object(id);
            *id = file.open(engine, 1);
        }
        Step::Policy(at) => engine.set_policy(POLICIES[at]).expect("known"),
        Step::Back(back) => engine.set_write_back(back),
        Step::Sync => engine.sync(id, false).expect("syncs"),
        Step::Flush => {
            engine.flush(|_| true).expect("flushes");
            assert_eq!(engine.dirty_pages(), 0);
            assert_eq!(
                &file.device.snapshot(),
                model,
                "base is whole after a flush"
            );
        }
        Step::Resize(slots) => resize(engine, slots),
        Step::Replace(slots) => replace(engine, slots),
        Step::Off => engine.tier_off("test").expect("base takes dirty pages"),
        Step::On => {
            let _ = engine.tier_on();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn reads_equal_a_plain_file(
        policy in 0..POLICIES.len(),
        pool in prop::sample::select(vec![0u64, 1, 6]),
        slots in prop::sample::select(vec![None, Some(1u64), Some(8), Some(40)]),
        steps in prop::collection::vec(step(), 1..120),
    ) {
        let flash = slots.map(|_| Arc::new(MemoryDevice::new()));
        let engine = start(POLICIES[policy], pool, flash, slots.unwrap_or(0));
        let file = BaseFile::new();
        let mut id = file.open(&engine, 1);
        let mut model = Vec::new();
        for step in steps {
            apply(&engine, &file, &mut id, &mut model, step);
            engine.assert_invariants();
        }
        engine.flush(|_| true).expect("flushes");
        prop_assert_eq!(file.device.snapshot(), model, "base holds every byte");
        engine.close_object(&id);
        engine.stop().expect("stops");
    }
}

fn fill_and_read(engine: &Engine, id: &Arc<Object>, pages: u64) {
    let data: Vec<u8> = (0..pages * 512).map(|i| (i / 512) as u8).collect();
    engine.write(&request(id, 0, 0), &data).expect("writes");
    let mut buf = [0; 512];
    for page in 0..pages {
        engine
            .read(&request(id, page * 512, 1), &mut buf)
            .expect("reads");
        assert_eq!(buf, [page as u8; 512]);
    }
}

fn flash_reads(engine: &Engine) -> u64 {
    engine.stats().page_reads["flash"]
}

/// Waits for the write buffer to drain, so that what is counted does not depend on a race.
fn settle(engine: &Engine) {
    while engine.stats().tier.is_some_and(|t| t.staged > 0) {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
}

#[test]
fn a_clean_stop_is_warm_and_a_changed_file_is_not_believed() {
    for (changed, crashes) in [(false, 0), (true, 0), (true, 1), (false, 2), (true, 2)] {
        let (flash, file) = (Arc::new(MemoryDevice::new()), BaseFile::new());
        let engine = start("lru", 0, Some(flash.clone()), 64);
        let id = file.open(&engine, 1);
        fill_and_read(&engine, &id, 3);
        engine.close_object(&id);
        engine.stop().expect("stops");
        drop(engine);
        if changed {
            file.device
                .write_at(&[77; 512], 0)
                .expect("writes behind the back");
            file.version.fetch_add(1, Ordering::Relaxed);
        }
        // Starts that end in a crash before anything is committed change nothing of that.
        for _ in 0..crashes {
            drop(start("lru", 0, Some(flash.clone()), 64));
        }
        let engine = start("lru", 0, Some(flash), 64);
        assert_eq!(engine.stats().tier.map(|t| t.restored), Some(3));
        let id = file.open(&engine, 1);
        let mut buf = [0; 512];
        engine.read(&request(&id, 0, 1), &mut buf).expect("reads");
        assert_eq!(buf, [if changed { 77 } else { 0 }; 512]);
        assert_eq!(flash_reads(&engine), u64::from(!changed));
        assert_eq!(
            engine.stats().tier.map(|t| t.stale_objects),
            Some(u32::from(changed))
        );
    }
}

/// Clean copies of a region that base was being written in come back once they were compared, by
/// whoever reads them or in the background; what base lost is not among them.
#[test]
fn copies_in_doubt_are_compared_with_base() {
    for read in [false, true] {
        let (flash, file) = (Arc::new(MemoryDevice::new()), BaseFile::new());
        let engine = start("lru", 0, Some(flash.clone()), 64);
        let id = file.open(&engine, 1);
        for page in 0..40 {
            let write = request(&id, page * 512, 0);
            engine.write(&write, &[page as u8; 512]).expect("writes");
            settle(&engine);
        }
        engine.flush(|_| true).expect("commits");
        drop(engine);
        // A power failure took this write from base, and its time with it.
        file.device.write_at(&[99; 512], 7 * 512).expect("writes");
        let engine = start("lru", 0, Some(flash), 64);
        let tier = || engine.stats().tier.expect("a tier");
        assert_eq!(
            (tier().restored, tier().doubted, tier().in_doubt),
            (0, 40, 40)
        );
        let id = file.open(&engine, 1);
        let mut buf = [0; 40 * 512];
        if read {
            engine.read(&request(&id, 0, 1), &mut buf).expect("reads");
            assert_eq!(tier().in_doubt, 0, "a reader compares what it reads");
        }
        // From here on files were compared, and the verifier is at work.
        engine.flush(|_| true).expect("commits");
        while tier().in_doubt > 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        assert_eq!((tier().verified, tier().given_up), (39, 1));
        settle(&engine);
        engine.read(&request(&id, 0, 1), &mut buf).expect("reads");
        for (page, bytes) in buf.chunks_exact(512).enumerate() {
            let expected = if page == 7 { 99 } else { page as u8 };
            assert_eq!(bytes, [expected; 512], "page {page}");
        }
        assert!(flash_reads(&engine) >= 39);
        engine.close_object(&id);
        engine.stop().expect("stops");
    }
}

/// Pages whose region base was being written in are not believed after a crash; others are.
#[test]
fn a_crash_is_warm_but_where_base_was_being_written() {
    for written in [false, true] {
        let (flash, file) = (Arc::new(MemoryDevice::new()), BaseFile::new());
        file.device.write_at(&[1; 3 * 512], 0).expect("writes");
        let engine = start("lru", 0, Some(flash.clone()), 64);
        let id = file.open(&engine, 1);
        let mut buf = [0; 512];
        for page in 0..3 {
            engine
                .read(&request(&id, page * 512, 1), &mut buf)
                .expect("reads");
        }
        settle(&engine);
        if written {
            engine
                .write(&request(&id, 0, 0), &[2; 512])
                .expect("writes");
        }
        engine.flush(|_| true).expect("commits");
        // No stop: the process is gone.
        drop(engine);
        let engine = start("lru", 0, Some(flash), 64);
        let restored = if written { 0 } else { 3 };
        assert_eq!(engine.stats().tier.map(|t| t.restored), Some(restored));
        let id = file.open(&engine, 1);
        engine.read(&request(&id, 0, 1), &mut buf).expect("reads");
        assert_eq!(buf, [if written { 2 } else { 1 }; 512]);
        assert_eq!(flash_reads(&engine), u64::from(!written));
    }
}

/// Where on the device blocks with these bytes lie.
fn find_blocks(flash: &MemoryDevice, bytes: &[u8; 512]) -> Vec<u64> {
    let snapshot = flash.snapshot();
    let blocks = snapshot.chunks_exact(512).enumerate();
    let found = blocks.filter(|(_, block)| block == bytes);
    found.map(|(at, _)| at as u64 * 512).collect()
}

#[test]
fn damaged_slots_are_refetched_and_counted() {
    let (flash, file) = (Arc::new(MemoryDevice::new()), BaseFile::new());
    let engine = start("lru", 0, Some(flash.clone()), 64);
    let id = file.open(&engine, 1);
    fill_and_read(&engine, &id, 4);
    settle(&engine);
    // Every block's bytes are changed on the device.
    for page in 0..4 {
        for at in find_blocks(&flash, &[page; 512]) {
            flash.write_at(&[0xEE; 512], at).expect("writes");
        }
    }
    let mut buf = [0; 512];
    for page in 0..4 {
        engine
            .read(&request(&id, page * 512, 1), &mut buf)
            .expect("reads");
        assert_eq!(buf, [page as u8; 512]);
    }
    let tier = engine.stats().tier.expect("a tier");
    assert_eq!(tier.faults["corrupt"], 4);
    assert_eq!(tier.removals["failed"], 4);
    assert_eq!(tier.off, None, "four bad pages do not condemn a device");
}

/// The right page in the wrong slot is a wrong page: checksums cover the address.
#[test]
fn swapped_slots_are_noticed() {
    let (flash, file) = (Arc::new(MemoryDevice::new()), BaseFile::new());
    let engine = start("lru", 0, Some(flash.clone()), 64);
    let id = file.open(&engine, 1);
    engine
        .write(&request(&id, 0, 0), &[5; 1024])
        .expect("writes two equal pages");
    settle(&engine);
    let mut buf = [0; 512];
    engine.read(&request(&id, 0, 1), &mut buf).expect("reads");
    assert_eq!(flash_reads(&engine), 1);
    assert_eq!(
        find_blocks(&flash, &[5; 512]).len(),
        2,
        "equal pages have equal bytes on flash"
    );
    engine
        .write(&request(&id, 512, 0), &[6; 512])
        .expect("writes");
    settle(&engine);
    let first = find_blocks(&flash, &[5; 512]);
    for at in first {
        flash
            .write_at(&[6; 512], at)
            .expect("page 1's bytes into page 0's block");
    }
    engine.read(&request(&id, 0, 1), &mut buf).expect("reads");
    assert_eq!(buf, [5; 512]);
    assert_eq!(engine.stats().tier.map(|t| t.faults["corrupt"]), Some(1));
}

/// A stream of reads and writes with random hints in every position, run through an engine whose
/// hints went through `change`; the bytes that were read.
fn bytes_read(policy: &str, change: impl Fn(HintSet, u64) -> HintSet) -> Vec<Vec<u8>> {
    let file = BaseFile::new();
    let engine = start(policy, 4, Some(Arc::new(MemoryDevice::new())), 16);
    let id = file.open(&engine, 1);
    let mut seen = Vec::new();
    for step in 0..2000u64 {
        let draw = mix(7, step);
        let mut hints = HintSet::UNKNOWN;
        for position in 0..8 {
            hints.set(position, (mix(draw, position as u64) % 9) as u32);
        }
        let request = Request {
            hints: change(hints, step),
            ..request(&id, (draw >> 33) % 60 * 512, 0)
        };
        if draw.is_multiple_of(3) {
            engine.write(&request, &[step as u8; 512]).expect("writes");
        } else {
            let mut buf = vec![0; 512];
            let read = engine.read(&request, &mut buf).expect("reads");
            buf.truncate(read);
            seen.push(buf);
        }
    }
    engine.stop().expect("stops");
    let mut whole = vec![0; 60 * 512];
    let read = file.device.read_at(&mut whole, 0).expect("reads");
    whole.truncate(read);
    seen.push(whole);
    seen
}

/// Permuted, random, missing and absurd hints on the same requests give the same bytes, under
/// every policy.
#[test]
fn wrong_hints_never_change_contents() {
    for policy in POLICIES {
        let right = bytes_read(policy, |hints, _| hints);
        assert!(
            right.iter().any(|bytes| !bytes.is_empty()),
            "something is read"
        );
        let permuted = bytes_read(policy, |hints, step| {
            let values = *hints.values();
            let mut other = HintSet::UNKNOWN.from_client((step % 3) as u32);
            for (position, value) in values.into_iter().enumerate() {
                let shift = mix(step, 99) as usize % values.len();
                other.set((position + shift) % values.len(), value);
            }
            other
        });
        assert_eq!(permuted, right, "permuted hints under {policy}");
        let none = bytes_read(policy, |_, _| HintSet::UNKNOWN);
        assert_eq!(none, right, "no hints under {policy}");
        let absurd = bytes_read(policy, |mut hints, step| {
            (0..12).for_each(|at| hints.set(at, mix(step, at as u64) as u32));
            hints
        });
        assert_eq!(absurd, right, "absurd hints under {policy}");
    }
}

/// Threads on disjoint and shared pages: every read sees a whole version that was written, and
/// never an older one than the reader has seen before.
#[test]
fn many_threads_see_whole_and_growing_versions() {
    for policy in POLICIES {
        let file = BaseFile::new();
        let engine = start(policy, 8, Some(Arc::new(MemoryDevice::new())), 24);
        let id = file.open(&engine, 1);
        const PAGES: u64 = 48;
        engine
            .write(&request(&id, 0, 0), &vec![0; (PAGES * 512) as usize])
            .expect("writes");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (engine, stop, id) = (&engine, &stop, &id);
            let readers: Vec<_> = (0..4u64)
                .map(|seed| scope.spawn(move || read_versions(engine, id, PAGES, seed, stop)))
                .collect();
            let writers: Vec<_> = (0..2u64)
                .map(|parity| {
                    scope.spawn(move || {
                        for version in 1..=120u8 {
                            for page in (parity..PAGES).step_by(2) {
                                engine
                                    .write(&request(id, page * 512, 0), &[version; 512])
                                    .expect("writes");
                            }
                        }
                    })
                })
                .collect();
            writers.into_iter().for_each(|w| w.join().expect("writer"));
            stop.store(true, Ordering::Relaxed);
            readers.into_iter().for_each(|r| r.join().expect("reader"));
        });
        let mut buf = [0; 512];
        for page in 0..PAGES {
            engine
                .read(&request(&id, page * 512, 1), &mut buf)
                .expect("reads");
            assert_eq!(buf, [120; 512]);
        }
        engine.stop().expect("stops");
    }
}

fn read_versions(engine: &Engine, id: &Arc<Object>, pages: u64, seed: u64, stop: &AtomicBool) {
    let mut newest = vec![0u8; pages as usize];
    let (mut state, mut reads) = (seed, 0);
    // At least some reads, however late this thread was started.
    while !stop.load(Ordering::Relaxed) || reads < 200 {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1442);
        let page = (state >> 33) % pages;
        let mut buf = [0; 512];
        let hint = RequestType::Read.value();
        engine
            .read(&request(id, page * 512, hint), &mut buf)
            .expect("reads");
        assert!(buf.iter().all(|b| *b == buf[0]), "a torn page");
        assert!(
            buf[0] >= newest[page as usize],
            "page {page} went back in time"
        );
        newest[page as usize] = buf[0];
        reads += 1;
    }
}
